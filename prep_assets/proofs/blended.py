"""Proof of a blend: what its options ask for holds of the order that is stored, whoever chose it.

It knows nothing of random numbers. An order is right if every item exists, no item comes again before its domain is through, each phase has the tokens and
the shares that it is asked for, to half an item, and each domain is spread evenly over the phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.proofs.verdict import Verdict, fails
from prep_assets.stores.arrays import argsort, compress, equals, stretches, take
from prep_assets.stores.blends import BlendStore

Ints = npt.NDArray[np.int64]


class _Asked(Struct, frozen=True):
    """What is asked of one phase: its tokens and the share of each domain; `None` where the domains decide."""

    tokens: int | None
    weights: Mapping[str, float] | None


class _Part(Struct, frozen=True):
    """What one phase has of one domain: where its items stand in the phase, and their tokens."""

    places: Ints
    tokens: int
    longest: int


def check_blend(
    blend: BlendStore, lengths: Mapping[str, npt.NDArray[Any]], options: Mapping[str, Any], claimed: Mapping[str, float]
) -> Verdict:
    """Hold an order to its options.

    Args:
        lengths: domain to int[N], tokens of each of its items.
        options: ``weights``, ``tokens``, ``schedule``, ``epochs`` and ``shuffle``.
        claimed: ``tokens`` of the manifest, and ``share_<domain>`` of these.
    """
    numbers: dict[str, float] = {"items": len(blend)}
    if list(blend.domains) != sorted(lengths):
        return fails("domains", f"the blend is of {list(blend.domains)}, the configuration of {sorted(lengths)}", numbers)
    stray = next((first + int(at.argmax()) for first, at in _outside(blend, lengths) if at.any()), None)
    if stray is not None:
        named = int(blend.domain[stray])
        domain = blend.domains[named] if named < len(blend.domains) else f"domain {named}"
        return fails(f"item {stray:,}", f"is number {int(blend.item[stray]):,} of {domain}, where there is none", numbers)
    asked = [_Asked(phase["tokens"], phase["weights"]) for phase in options["schedule"] or [options]]
    if len(asked) != len(blend.ends):
        return fails("phases", f"the blend has {len(blend.ends)} phases, its options {len(asked)}", numbers)
    offered = {name: int(len(lengths[name]) * ((options["epochs"] or {}).get(name, 1.0)) + 0.5) for name in blend.domains}
    begins, parts, spent = np.array([0, *blend.ends]), list[list[_Part]]([] for _ in asked), set[str]()
    for number, name in enumerate(blend.domains):
        places = compress(equals(blend.domain, number))
        items = take(blend.item, places).astype(np.int64)
        if fault := _passes(items, len(lengths[name]), offered[name], ordered=not options["shuffle"]):
            return fails(name, fault, numbers)
        spent |= {name} if len(items) == offered[name] else set()
        cuts = np.searchsorted(places, begins)
        sizes = np.asarray(lengths[name])
        longest = int(sizes.max(initial=0))
        for phase, (low, high) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
            tokens = sum(int(sizes[items[low:high][part]].sum()) for part in stretches(high - low))
            parts[phase].append(_Part(places[low:high] - begins[phase], tokens, longest))
    for phase, (wanted, of_domains) in enumerate(zip(asked, parts, strict=True), 1):
        shares = _shares(wanted, lengths, options["epochs"] or {})
        fault = _amounts(blend.domains, wanted, shares, of_domains, spent) or _evenness(blend.domains, of_domains)
        if fault:
            return fails(f"phase {phase}", fault, numbers)
    totals = [sum(phase[number].tokens for phase in parts) for number in range(len(blend.domains))]
    numbers["tokens"] = sum(totals)
    if claimed["tokens"] != sum(totals):
        return fails("tokens", f"the items have {sum(totals):,} tokens, the manifest says {claimed['tokens']:,}", numbers)
    for name, tokens in zip(blend.domains, totals, strict=True):
        share = tokens / max(1, sum(totals))
        if abs(claimed[f"share_{name}"] - share) > 1e-9:
            return fails(name, f"is {share:.4f} of the tokens, the manifest says {claimed[f'share_{name}']:.4f}", numbers)
    return Verdict(
        True, f"{len(blend):,} items with {sum(totals):,} tokens have the shares and the order that the options ask for", numbers
    )


def _outside(blend: BlendStore, lengths: Mapping[str, npt.NDArray[Any]]) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
    """Which items do not exist, a stretch at a time."""
    counts = np.array([*(len(lengths[name]) for name in blend.domains), 0])
    for part in stretches(len(blend)):
        domain = np.minimum(blend.domain[part], len(blend.domains)).astype(np.int64)
        yield part.start, blend.item[part] >= counts[domain]


def _passes(items: Ints, count: int, offered: int, *, ordered: bool) -> str:
    """The fault of a domain's items, in their order: one that comes again before the others came, or more of them than `epochs` allows."""
    if len(items) > offered:
        return f"{len(items):,} of its items are used, and epochs allow {offered:,}"
    for begin in range(0, len(items), max(1, count)):
        once = items[begin : begin + count]
        in_order = take(once, argsort(once))
        if len(twice := np.flatnonzero(np.diff(in_order) == 0)):
            return f"item {in_order[twice[0]]:,} comes again before pass {begin // count + 1} over the domain is through"
        if ordered and len(wrong := np.flatnonzero(once != np.arange(len(once)))):
            return f"item {once[wrong[0]]:,} comes where item {wrong[0]:,} must: shuffle is false"
    return ""


def _shares(asked: _Asked, lengths: Mapping[str, npt.NDArray[Any]], epochs: Mapping[str, float]) -> dict[str, Fraction] | None:
    """The share of tokens of each domain in a phase; `None` where all of each is asked for."""
    if asked.weights is None and asked.tokens is None:
        return None
    natural = {name: Fraction(epochs.get(name, 1.0)) * int(sizes.sum()) for name, sizes in lengths.items()}
    weights = natural if asked.weights is None else asked.weights
    whole = sum(map(Fraction, weights.values()))
    return {name: Fraction(weight) / whole for name, weight in weights.items()}


def _amounts(domains: Sequence[str], asked: _Asked, shares: Mapping[str, Fraction] | None, parts: Sequence[_Part], spent: set[str]) -> str:
    """The fault of what a phase has of each domain. Without a budget, one domain gives all that it has, and the others their shares beside it."""
    if shares is None:
        return next((f"{name} has items left, and all are asked for" for name in domains if name not in spent), "")
    if asked.tokens is None:
        ends = [Fraction(part.tokens) / shares[name] for name, part in zip(domains, parts, strict=True) if shares[name] and name in spent]
        if not ends:
            return "no domain gives all of its items, and no budget ends the phase before"
    total = min(ends) if asked.tokens is None else Fraction(asked.tokens)
    for name, part in zip(domains, parts, strict=True):
        target = shares[name] * total
        if abs(part.tokens - target) * 2 > part.longest:
            return f"it has {part.tokens:,} tokens of {name}, and is to have {float(target):,.1f}"
    return ""


def _evenness(domains: Sequence[str], parts: Sequence[_Part]) -> str:
    """The fault of how a phase is mixed: the j-th of a domain's n items stands in the j-th of n equal parts of the phase, give or take an item of each
    domain."""
    whole = sum(len(part.places) for part in parts)
    for name, part in zip(domains, parts, strict=True):
        count = len(part.places)
        for some in stretches(count):
            middle = (np.arange(some.start, some.stop) + 0.5) * (whole / count)
            away = np.abs(part.places[some] + 0.5 - middle)
            if (away > whole / count / 2 + len(domains)).any():
                at = int(away.argmax())
                return f"item {some.start + at:,} of {count:,} of {name} stands at {part.places[some][at]:,} of {whole:,}: they are not spread evenly"
    return ""
