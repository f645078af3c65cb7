"""Entries of a teacher: a second reading of their rows, value by value, and what the stored ones must be. Shares no code with the schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import exp, log, sqrt
from struct import unpack
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.formats import definition_of
from prep_assets.proofs.verdict import Numbers, Rule

LEAST = -10_000.0
MOST, MOST_FITTED = 1.01, 1.25
ROUNDED, SMALLEST = 2.0**-11, 2.0**-25
"""A number that is stored as float16 is off by half of its last bit at most, and by half of the smallest step near 0."""
Entries = Sequence[tuple[int, float]]


def entries_again(row: Mapping[str, Any], options: Mapping[str, Any]) -> list[Entries]:
    """Return each list of entries of a row: token ids with log-probabilities, from the likeliest on."""
    settings = {**definition_of("distilled")["x-options"], **options}
    ids, mask = row.get(settings["teacher_ids_key"]), row.get(settings["entry_mask_key"])
    sums = row[settings["log_sum_key"]] if settings["log_sum_key"] else None
    again: list[Entries] = []
    for at, place in enumerate(row[settings["logprobs_key"]]):
        if settings["compression"] is not None:
            assert ids is not None
            said = settings["compression"]
            pairs = (
                _fitted(ids[at], place, row["coeffs"][at], said)
                if "vocab_size" in said
                else _decompressed(bytes(ids[at]), bytes(place), said)
            )
        elif settings["teacher_ids_key"] is not None:
            assert ids is not None
            pairs = list(zip(ids[at] or (), place or (), strict=True))
        elif isinstance(place, Mapping):
            pairs = [(int(token), value["logprob"]) for token, value in place.items()]
        else:
            pairs = [
                (int(entry["token"].rpartition(":")[2]), entry["logprob"]) if isinstance(entry, Mapping) else (entry[1], entry[0])
                for entry in place or ()
            ]
        pairs = [(token, value if sums is None else value - sums[at]) for token, value in pairs]
        kept = [pair for number, pair in enumerate(pairs) if pair[1] > LEAST and (mask is None or mask[at][number])]
        again.append(sorted(kept, key=lambda pair: -pair[1])[: settings["top_k"]])
    return again


_FLOATS = {"float16": ("<e", 2, b""), "bfloat16": ("<f", 2, b"\0\0"), "float32": ("<f", 4, b""), "float64": ("<d", 8, b"")}


def _decompressed(ids: bytes, numbers: bytes, said: Mapping[str, Any]) -> list[tuple[int, float]]:
    """The entries of one place of DistillKit's compressed rows, number by number."""
    rest = numbers

    def taken(size: int) -> bytes:
        nonlocal rest
        first, rest = rest[:size], rest[size:]
        return first

    def floats(count: int, dtype: str) -> list[float]:
        code, width, before = _FLOATS[dtype]
        return [unpack(code, before + taken(width))[0] for _ in range(count)]

    exact, terms = floats(said["exact_k"], said.get("exact_dtype", "float32")), said.get("polynomial_terms") or []
    factors = floats(len(terms), said.get("term_dtype", "float32"))
    residuals: list[float] = []
    for each in said.get("residual_bins", ()):
        [scale], bits, count = floats(1, each["scale_dtype"]), each["element_bits"], each["num_elements"]
        steps = _whole_numbers(taken((bits * count + 7) // 8), bits, count)
        residuals += [scale * (2 * step - 1 if bits == 1 else step - 2 ** (bits - 1)) for step in steps]
    count = said["k"] - said["exact_k"]
    values = list(exact)
    for rank in range(count):
        t = rank / max(count - 1, 1) if said.get("normalize_t") else float(rank)
        functions = [t**term if isinstance(term, int) else {"sqrt": sqrt, "exp": exp}[term](t) for term in terms]
        fitted = sum(factor * value for factor, value in zip(factors, functions, strict=True))
        values.append(fitted + (residuals[rank] if rank < len(residuals) else 0.0))
    if said.get("delta_encoding", True):
        values = list(accumulate(values))
    return list(zip(_whole_numbers(ids, (said["d"] - 1).bit_length(), said["k"]), _at_most_one(values), strict=True))


def _at_most_one(values: Sequence[float]) -> list[float]:
    mass = sum(map(exp, values))
    return [value - log(mass) if 1 < mass <= MOST_FITTED else value for value in values]


def _fitted(words: Sequence[int], exact: Sequence[float], factors: Sequence[float], said: Mapping[str, Any]) -> list[tuple[int, float]]:
    """The entries of one place of DistillKit's older rows."""
    sign, bits = -1 if said.get("invert_polynomial", True) else 1, (said["vocab_size"] - 1).bit_length()
    values = list(exact)
    for rank in range(1, said["k"] - said["exact_k"] + 1):
        functions = [float(rank) ** (sign * power) for power in range(said["polynomial_degree"] + 1)]
        functions += [sqrt(rank)] if said.get("with_sqrt_term") else []
        values.append(sum(factor * value for factor, value in zip(factors, functions, strict=True)))
    numbers = [word >> bits * place & (1 << bits) - 1 for word in words for place in range(64 // bits)]
    return list(zip(numbers[: said["k"]], _at_most_one(values), strict=True))


def _whole_numbers(packed: bytes, bits: int, count: int) -> list[int]:
    number = int.from_bytes(packed, "big") >> 8 * len(packed) - bits * count
    return [number >> bits * place & (1 << bits) - 1 for place in reversed(range(count))]


def entries_of_tokens(row: Mapping[str, Any], options: Mapping[str, Any], weights: Sequence[float]) -> list[Entries]:
    """Return the entries of each token of a record; `weights` are those of its tokens."""
    settings, lists = {**definition_of("distilled")["x-options"], **options}, entries_again(row, options)
    ids = row.get(settings["ids_key"])
    if ids is None:
        listed = iter(lists)
        return [next(listed, ()) if weight else () for weight in weights]
    place = 1 if settings["teacher_shifted"] or len(lists) < len(ids) else 0
    if row.get("attention_mask") is not None and "attention_mask" not in settings["mask_keys"]:
        place -= list(row["attention_mask"]).index(1)
    return [lists[at - place] if 0 <= at - place < len(lists) else () for at in range(len(weights))]


def trained_by_entries(row: Mapping[str, Any], options: Mapping[str, Any]) -> list[bool]:
    """Return whether each of the row's own ids has entries, and so is trained where neither labels nor masks say otherwise."""
    ids = row[{**definition_of("distilled")["x-options"], **options}["ids_key"]]
    return [bool(entries) for entries in entries_of_tokens({**row, "attention_mask": None}, options, ids)]


def rejected_again(reason: str, row: Mapping[str, Any], options: Mapping[str, Any], limit: int | None) -> str | None:
    """Judge a row that is rejected for its entries. Returns ``""`` where the reason holds, `None` where no second reading can tell, else why the row is
    right. Of rows without ids of their own, and of padded ones, none can."""
    ids = row.get({**definition_of("distilled")["x-options"], **options}["ids_key"])
    if ids is None or not all(row.get("attention_mask") or ()):
        return None
    named = [{token for token, _ in entries} for entries in entries_of_tokens({**row, "attention_mask": None}, options, ids)]
    own, before, behind = (sum(map(set.__contains__, sets, tokens)) for sets, tokens in ((named, ids), (named, ids[1:]), (named[1:], ids)))
    holds = {
        "too_long": limit is not None and len(ids) > limit,
        "no_teacher": not any(named),
        "teacher_shifted": max(before, behind) > own,
        "teacher_of_other_tokens": sum(map(bool, named)) >= 8 and not own,
    }.get(reason)
    if holds is None:
        return None
    says = f"{len(ids):,} ids, {own:,} of them among their own entries, {before:,} among those before them, {behind:,} among those behind"
    return "" if holds else says


@dataclass(frozen=True, slots=True, eq=False)
class Taught:
    """One record.

    Attributes:
        id: of its row.
        tokens: int[T], its ids.
        counts, ids, logprobs: the stored entries, see `prep_assets.stores.lists`.
        source: the entries of each token, read again.
    """

    id: str
    tokens: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    ids: npt.NDArray[Any]
    logprobs: npt.NDArray[Any]
    source: Sequence[Entries]


def _fault(record: Taught, numbers: Counter[str]) -> str | None:
    counts = [len(entries) for entries in record.source]
    if record.counts.tolist() != counts:
        pairs = zip(record.counts.tolist(), counts, strict=False)
        at = next((number for number, (stored, wanted) in enumerate(pairs) if stored != wanted), min(len(record.counts), len(counts)))
        return f"token {at} has another number of entries than in the row"
    flat = list(chain.from_iterable(record.source))
    token_of = np.repeat(np.arange(len(counts)), counts)
    wanted_ids, wanted = np.array([token for token, _ in flat]), np.array([value for _, value in flat])
    if len(record.ids) != len(flat) or len(record.logprobs) != len(flat):
        return f"{len(record.ids)} entries, the row has {len(flat)}"
    if (wrong := np.flatnonzero(record.ids != wanted_ids)).size:
        at = int(wrong[0])
        return f"an entry of token {token_of[at]} is id {record.ids[at]}, the row has {wanted_ids[at]}"
    if (wrong := np.flatnonzero(~(np.abs(record.logprobs - wanted) <= np.abs(wanted) * ROUNDED + SMALLEST))).size:
        at = int(wrong[0])
        return f"a log-probability of token {token_of[at]} is {record.logprobs[at]:g}, the row has {wanted[at]:g}"
    for at, entries in enumerate(record.source):
        if max((value for _, value in entries), default=0.0) > 0 or sum(exp(value) for _, value in entries) > MOST:
            return f"the entries of token {at} are no probabilities"
        if len({token for token, _ in entries}) < len(entries):
            return f"token {at} has two entries of one id"
    tokens = record.tokens.tolist()
    named = [{token for token, _ in entries} for entries in record.source]
    numbers["records_checked"] += 1
    numbers["tokens_with_entries"] += sum(map(bool, named))
    numbers["entries_checked"] += len(record.ids)
    numbers["own"] += sum(token in entries for token, entries in zip(tokens, named, strict=True))
    numbers["before"] += sum(token in entries for token, entries in zip(tokens[1:], named, strict=False))
    numbers["behind"] += sum(token in entries for token, entries in zip(tokens, named[1:], strict=False))
    return None


def _shifted(numbers: Numbers) -> str:
    """Over all records, tokens stand among their own entries more often than among those of a neighbour."""
    says = "{own:,} of {tokens_with_entries:,} tokens are among their own entries, {before:,} among those before them, {behind:,} among those behind"
    return says.format_map(numbers) if max(numbers["before"], numbers["behind"]) > numbers["own"] else ""


check_teacher = Rule(
    _fault,
    ("records_checked", "tokens_with_entries", "entries_checked", "own", "before", "behind"),
    "{entries_checked:,} entries of {tokens_with_entries:,} tokens are those of their rows, as float16; {own:,} tokens are among their own".format_map,
    whole=_shifted,
    nothing="no token has entries of a teacher",
)
