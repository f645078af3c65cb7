"""DistillKit's compressed rows: of each place the bytes of log-probabilities, and those of the ids of their tokens.

Log-probabilities are in descending order: `exact_k` numbers; the coefficients of a function of the rank t that says the others; and bins of residuals, each a
scale and whole numbers of `element_bits`. Floats are little-endian, whole numbers are packed from their most significant bit on, and each part begins with a
byte. With `delta_encoding` all but the first are differences. The format is that of ``distillkit/compression/monotonic_logprobs.py``, version of July 2026;
the older form is that of ``legacy.py`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from prep_assets.array_types import Bytes, Floats, Ints
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Row
from prep_assets.schemas.fields import value_at

Dtype = Literal["float16", "bfloat16", "float32", "float64"]
WIDTHS: Mapping[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
MOST_FITTED = 1.25
"""A fit may say too much: probabilities of a place that add up to more than 1 and not to more than this are divided by their sum."""
Count = Annotated[int, Meta(ge=1)]


class Bin(Struct, frozen=True, forbid_unknown_fields=True):
    """Residuals of consecutive ranks."""

    scale_dtype: Dtype
    element_bits: Annotated[int, Meta(ge=1, le=32)]
    num_elements: Count


class Compression(Struct, frozen=True, forbid_unknown_fields=True):
    """What DistillKit writes into ``compression_config.yaml``, beside the rows."""

    d: Annotated[int, Meta(ge=2)]
    k: Count
    exact_k: Annotated[int, Meta(ge=0)]
    residual_bins: tuple[Bin, ...] = ()
    exact_dtype: Dtype = "float32"
    polynomial_terms: tuple[int | Literal["sqrt", "exp"], ...] | None = None
    # of 16 bits, the function would be rounded at each step, and says something else in full precision
    term_dtype: Literal["float32", "float64"] = "float32"
    delta_encoding: bool = True
    error_diffusion: bool = False  # of the writer alone
    normalize_t: bool = False

    @property
    def id_bits(self) -> int:
        """The bits of a token id."""
        return (self.d - 1).bit_length()

    def decoded(self, row: Row, ids_key: str, numbers_key: str) -> tuple[Ints, Floats]:
        """int64[N, k] token ids and float64[N, k] log-probabilities of N places, from the bytes of each.

        Raises:
            Refused: other bytes than the compression says.
        """
        terms = self.polynomial_terms or ()
        width = self.exact_k * WIDTHS[self.exact_dtype] + len(terms) * WIDTHS[self.term_dtype]
        width += sum(WIDTHS[each.scale_dtype] + _bytes_of(each.num_elements * each.element_bits) for each in self.residual_bins)
        data, at = _bytes(value_at(row, numbers_key), numbers_key, width), 0

        def taken(size: int) -> Bytes:
            nonlocal at
            at += size
            return np.ascontiguousarray(data[:, at - size : at])

        values = np.zeros((len(data), self.k))
        values[:, : self.exact_k] = _floats(taken(self.exact_k * WIDTHS[self.exact_dtype]), self.exact_dtype)
        tail, coefficients = values[:, self.exact_k :], _floats(taken(len(terms) * WIDTHS[self.term_dtype]), self.term_dtype)
        rank = np.arange(tail.shape[1]) / (max(tail.shape[1] - 1, 1) if self.normalize_t else 1)
        with np.errstate(all="ignore"):  # what is no number is refused with the row
            for number, term in enumerate(terms):
                tail += coefficients[:, number, None] * (rank**term if isinstance(term, int) else getattr(np, term)(rank))
            first = 0
            for each in self.residual_bins:
                scale, bits = _floats(taken(WIDTHS[each.scale_dtype]), each.scale_dtype), each.element_bits
                steps = _unpacked(taken(_bytes_of(each.num_elements * bits)), bits, each.num_elements)
                tail[:, first : first + each.num_elements] += (2 * steps - 1 if bits == 1 else steps - (1 << bits - 1)) * scale
                first += each.num_elements
            if self.delta_encoding:
                values = np.cumsum(values, 1)
        packed = _bytes(value_at(row, ids_key), ids_key, _bytes_of(self.k * self.id_bits))
        return _named(_unpacked(packed, self.id_bits, self.k), values, ids_key, numbers_key)


class OlderCompression(Struct, frozen=True, forbid_unknown_fields=True):
    """What DistillKit's configurations call ``legacy_logit_compression``: `exact_k` numbers, and ``coeffs`` of powers of the rank, from 1 on, for the others.
    Words of 64 bits hold as many ids as fit, the first in the lowest bits."""

    vocab_size: Annotated[int, Meta(ge=2)]
    k: Count
    exact_k: Annotated[int, Meta(ge=0)]
    polynomial_degree: Annotated[int, Meta(ge=0, le=64)]
    invert_polynomial: bool = True
    with_sqrt_term: bool = False
    term_dtype: Dtype = "float32"  # of the writer alone: rows have numbers

    def decoded(self, row: Row, ids_key: str, numbers_key: str) -> tuple[Ints, Floats]:
        """As `Compression.decoded`."""
        rank = np.arange(1.0, self.k - self.exact_k + 1)
        powers = [rank ** (-power if self.invert_polynomial else power) for power in range(self.polynomial_degree + 1)]
        functions = np.array([*powers, *([np.sqrt(rank)] if self.with_sqrt_term else [])])
        exact = _table(value_at(row, numbers_key), numbers_key, self.exact_k, "iuf")
        factors = _table(value_at(row, COEFFICIENTS), COEFFICIENTS, len(functions) if len(rank) else 0, "iuf")
        if len(factors) != len(exact):
            raise Refused("length_mismatch", f"{COEFFICIENTS!r} has {len(factors)} places, {numbers_key!r} has {len(exact)}")
        fitted = factors @ functions if len(rank) else np.zeros((len(exact), 0))
        bits = (self.vocab_size - 1).bit_length()
        words = _table(value_at(row, ids_key), ids_key, -(-self.k // (64 // bits)), "iu").astype(np.int64)
        ids = words[:, :, None] >> np.arange(0, 64 - bits + 1, bits) & (1 << bits) - 1
        return _named(ids.reshape(len(words), -1)[:, : self.k], np.hstack([exact.astype(np.float64), fitted]), ids_key, numbers_key)


COEFFICIENTS = "coeffs"


def compression_of(options: Mapping[str, Any]) -> Compression | OlderCompression:
    """Raises:
    ConfigError: no such compression.
    """
    form: type[Compression | OlderCompression] = OlderCompression if "vocab_size" in options else Compression
    try:
        read = msgspec.convert(options, form)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"option compression: {error}. Give what compression_config.yaml says, beside DistillKit's rows, or legacy_logit_compression"
        ) from error
    binned = sum(each.num_elements for each in read.residual_bins) if isinstance(read, Compression) else 0
    if binned > read.k - read.exact_k:
        raise ConfigError(f"option compression: exact_k {read.exact_k} and {binned} residuals are more than k, which is {read.k}")
    return read


def _named(ids: Ints, values: Floats, ids_key: str, numbers_key: str) -> tuple[Ints, Floats]:
    """Ids and log-probabilities of each place, whose fit may say a little too much.

    Raises:
        Refused: they are of another number of places.
    """
    if len(ids) != len(values):
        raise Refused("length_mismatch", f"{ids_key!r} has {len(ids)} places, {numbers_key!r} has {len(values)}")
    with np.errstate(all="ignore"):
        mass = np.exp(values).sum(1, keepdims=True)
    return ids, values - np.log(np.where((mass > 1) & (mass <= MOST_FITTED), mass, 1))


def _bytes_of(bits: int) -> int:
    return -(-bits // 8)


def _table(lists: Any, key: str, width: int, kinds: str, what: str = "numbers") -> npt.NDArray[Any]:
    """[N, width] of N lists of numbers."""
    try:
        table = np.array(lists)
    except ValueError:  # of unequal length
        table = np.zeros(0)
    if table.ndim != 2 or table.shape[1] != width or table.dtype.kind not in kinds:
        raise Refused("other_compression", f"{key!r} has no {width} {what} at each place, which is what the option compression says")
    return table


def _bytes(lists: Any, key: str, width: int) -> Bytes:
    table = _table(lists, key, width, "iu", "bytes")
    if not 0 <= table.min() <= table.max() < 256:
        raise Refused("other_compression", f"{key!r} has numbers that are no bytes")
    return table.astype(np.uint8)


def _floats(data: Bytes, dtype: Dtype) -> Floats:
    if dtype == "bfloat16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return data.view(np.dtype(dtype).newbyteorder("<")).astype(np.float64)


def _unpacked(data: Bytes, bits: int, count: int) -> Ints:
    """int64[N, count] of whole numbers."""
    planes = np.unpackbits(data, axis=1)[:, : bits * count].reshape(len(data), count, bits)
    numbers = np.zeros((len(data), count), np.int64)
    for bit in range(bits):
        numbers = numbers << 1 | planes[:, :, bit]
    return numbers
