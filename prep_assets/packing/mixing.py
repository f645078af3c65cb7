"""Mixing: which records of which domains are packed, and in which order."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from fractions import Fraction
from hashlib import sha256
from math import isfinite
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, nearest
from prep_assets.packing.strategies import checked_lengths
from prep_assets.stores.arrays import argsort, concatenate, cumulative_sums, fill_column, take, zeros
from prep_assets.stores.files import free_bytes

BYTES_OF_A_RECORD = 256
"""Approximate bytes on disk per record for selection, order and plan."""


class DomainShare(Struct, frozen=True):
    """A domain's part of the mixture: records and tokens, counted as often as they are used, and its share of all tokens (0 to 1)."""

    domain: str
    records: int
    tokens: int
    share: float


class Mixture(Struct, frozen=True, eq=False):
    """n records in the order in which they are to be packed. A record appears once per pass over its domain.

    Attributes:
        domains: names, sorted.
        domain: int64[n], index into `domains`.
        record: int64[n], record number within the domain.
        lengths: int64[n], tokens of each: what `pack` takes.
        shares: the realised mixture, one per domain.
    """

    domains: tuple[str, ...]
    domain: Ints
    record: Ints
    lengths: Ints
    shares: tuple[DomainShare, ...]


def mix(
    lengths: Mapping[str, npt.ArrayLike],
    *,
    weights: Mapping[str, float] | None = None,
    epochs: Mapping[str, float] | None = None,
    max_items: Mapping[str, int] | None = None,
    seed: int = 0,
    shuffle: bool = True,
) -> Mixture:
    """Choose records and their order.

    Each domain offers `max_items` of its records, `epochs` times over. Without `weights` all that is offered is taken. With them, the
    result has these shares of **tokens**: the domain that first runs out sets the total, and of every other domain as many records are
    taken as come nearest to its share.

    The choice within a domain depends on the seed and the domain's name alone: neither the order in which domains are listed nor
    another domain changes it. Random numbers are raw 64-bit outputs of PCG64, which NumPy keeps the same over versions.

    Args:
        lengths: domain to int[N], tokens per record.
        weights: domain to relative share of tokens, for every domain; 0 leaves a domain out.
        epochs: domain to passes over it, default 1; 2.5 is two passes and half the records of a third.
        max_items: domain to the most records used of it; a random choice when shuffling, else the first ones.
        shuffle: shuffle over all domains; else domains stand in the order of their names, each in its own order.

    Raises:
        ConfigError: a name that is not a domain, an invalid number, or weights that the domains cannot give.
        PrepAssetsError: a record without tokens.
    """
    domains = tuple(sorted(lengths))
    known = {name: checked_lengths(lengths[name], f"lengths of domain {name!r}") for name in domains}
    check_numbers(domains, weights, epochs, max_items)
    pools = {name: min(known[name].size, (max_items or {}).get(name, known[name].size)) for name in domains}
    offered = {name: int(pools[name] * (epochs or {}).get(name, 1.0) + 0.5) for name in domains}
    check_room(offered)
    streams = {name: stream_of(seed, name) for name in domains}
    chosen = {name: offer(known[name].size, pools[name], offered[name], streams[name] if shuffle else None) for name in domains}
    if weights is not None:
        chosen = _take_shares({name: take(known[name], chosen[name]) for name in domains}, chosen, weights)
    tokens = [take(known[name], chosen[name]) for name in domains]
    counts = [int(column.sum()) for column in tokens]
    shares = tuple(
        DomainShare(name, column.size, count, count / max(1, sum(counts)))
        for name, column, count in zip(domains, tokens, counts, strict=True)
    )
    numbers = [np.broadcast_to(number, chosen[name].size) for number, name in enumerate(domains)]
    domain, record, sizes = concatenate(numbers), concatenate(list(chosen.values())), concatenate(tokens)
    if shuffle and domains:
        shuffled = argsort(concatenate([drawn(streams[name], chosen[name].size) for name in domains], np.uint64))
        domain, record, sizes = (take(column, shuffled) for column in (domain, record, sizes))
    return Mixture(domains, domain, record, sizes, shares)


def check_room(offered: Mapping[str, int]) -> None:
    """Raises:
    ConfigError: the plan would take more room for temporary files than there is.
    """
    folder = Path(tempfile.gettempdir())
    needed, free = BYTES_OF_A_RECORD * sum(offered.values()), free_bytes(folder)
    if needed > free:
        name = max(offered, key=lambda name: offered[name])
        raise ConfigError(
            f"the mixture would have {sum(offered.values()):,} records, {offered[name]:,} of domain {name!r}: its plan takes about "
            f"{needed:,} bytes of temporary files, {free:,} bytes are free at {folder}. Lower epochs or max_items, or set "
            "TMPDIR to a larger disk"
        )


def offer(count: int, pool_size: int, total: int, stream: np.random.PCG64 | None) -> Ints:
    """Return the records that a domain offers: pass after pass over its pool."""
    pool = _shuffled(fill_column(count, lambda part: np.arange(part.start, part.stop)), stream)[:pool_size]
    records = zeros(total)
    for done in range(0, total, max(pool_size, 1)):
        records[done : done + pool_size] = _shuffled(pool, stream)[: total - done]
    return records


def _take_shares(tokens: Mapping[str, Ints], offered: Mapping[str, Ints], weights: Mapping[str, float]) -> dict[str, Ints]:
    """Of each domain the first records that come nearest to its share of the largest total that all domains can give.

    Exact fractions: the domain that runs out is used to its last record, not short of it by a rounding error.
    """
    for name, counts in tokens.items():
        if weights[name] and not counts.size:
            raise ConfigError(f"domain {name!r} has weight {weights[name]} but no records on offer: give it weight 0, or records")
    total_weight = sum(Fraction(weight) for weight in weights.values())
    share = {name: Fraction(weights[name]) / total_weight for name in tokens}
    total = min(int(tokens[name].sum()) / share[name] for name in tokens if share[name])
    return {name: offered[name][: nearest_count(name, tokens[name], share[name] * total)] for name in tokens}


def nearest_count(name: str, tokens: Ints, target: Fraction) -> int:
    """Return how many of the first records have a total nearest to `target` tokens; the fewer on a tie."""
    if not target:
        return 0
    ends = cumulative_sums(tokens)
    below = int(np.searchsorted(ends, int(target), side="right"))
    so_far = int(ends[below - 1]) if below else 0
    count = below if below == tokens.size or target - so_far <= int(ends[below]) - target else below + 1
    if count == 0:
        raise ConfigError(
            f"domain {name!r} would give {float(target):.1f} tokens to have its weight, but its first record alone has {int(tokens[0])}: "
            "raise its weight, or take more in all: by a larger budget, or by the epochs or max_items of the domain that runs out first"
        )
    return count


def check_numbers(
    domains: tuple[str, ...], weights: Mapping[str, float] | None, epochs: Mapping[str, float] | None, max_items: Mapping[str, int] | None
) -> None:
    for option, numbers, least in (("weights", weights, 0), ("epochs", epochs, 0), ("max_items", max_items, 1)):
        for name, number in (numbers or {}).items():
            if name not in domains:
                raise ConfigError(f"{option} names {name!r}, which is not a domain{nearest(name, domains)}; domains: {', '.join(domains)}")
            if not isfinite(number) or number < least:
                raise ConfigError(f"{option} of domain {name!r} is {number}, must be a number of at least {least}")
    if weights is not None:
        missing = [name for name in domains if name not in weights]
        if missing:
            raise ConfigError(f"weights must name every domain; missing: {', '.join(missing)}. Give 0 to leave a domain out")
        if not any(weights.values()):
            raise ConfigError("weights are all 0: at least one domain needs a weight above 0")


def stream_of(seed: int, name: str) -> np.random.PCG64:
    """Return the generator of a domain."""
    return np.random.PCG64(int.from_bytes(sha256(f"{seed}/{name}".encode()).digest(), "big"))


def drawn(stream: np.random.PCG64, count: int) -> npt.NDArray[np.uint64]:
    """Return the next raw outputs of a generator."""
    return fill_column(count, lambda part: stream.random_raw(part.stop - part.start), np.uint64)


def _shuffled(values: Ints, stream: np.random.PCG64 | None) -> Ints:
    return values if stream is None else take(values, argsort(drawn(stream, values.size)))
