"""Blending: in which order, and how often, a trainer sees the items of all domains, windows or records. Nothing is copied: a blend is two integers an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError
from prep_assets.packing.mixing import DomainShare, check_numbers, check_room, drawn, nearest_count, offer, stream_of
from prep_assets.packing.strategies import checked_lengths
from prep_assets.stores.arrays import argsort, concatenate, fill_column, take

MOST_ITEMS = 1 << 31
"""Items of a domain in one phase."""
FRACTION = 32
"""Bits of a place between two neighbouring items of a domain."""


class Phase(Struct, frozen=True):
    """A part of training.

    Attributes:
        tokens: its budget; `None`: as many as the domains give.
        weights: domain to relative share of tokens; `None`: all that is left of each, or within a budget as much of each as it has in all.
    """

    tokens: int | None = None
    weights: Mapping[str, float] | None = None


class Blended(Struct, frozen=True, eq=False):
    """n items in the order in which they are trained.

    Attributes:
        domains: names, sorted.
        domain: int64[n], index into `domains`.
        item: int64[n], number of the item in its domain.
        phases: of each phase, what it has of each domain.
    """

    domains: tuple[str, ...]
    domain: Ints
    item: Ints
    phases: tuple[tuple[DomainShare, ...], ...]


def blend(
    lengths: Mapping[str, npt.ArrayLike],
    phases: Sequence[Phase],
    *,
    epochs: Mapping[str, float] | None = None,
    seed: int = 0,
    shuffle: bool = True,
) -> Blended:
    """Choose items and their order.

    Each domain offers its items `epochs` times over, shuffled anew for each pass, and no item comes again before the pass is over. A phase goes on where the
    one before it stopped. Within a phase the items of each domain are spread evenly, so that every stretch of it has the shares of the whole: of the first k
    of N items a domain has its share of k, give or take one for each domain.

    Args:
        lengths: domain to int[N], tokens per item.
        phases: one after another.
        epochs: domain to the most passes over it, default 1; 2.5 is two passes and half the items of a third.
        shuffle: false keeps the items of each domain in their order.

    Raises:
        ConfigError: a name that is not a domain, an invalid number, or a budget that the domains cannot give.
        PrepAssetsError: an item without tokens.
    """
    domains = tuple(sorted(lengths))
    known = {name: checked_lengths(lengths[name], f"lengths of domain {name!r}") for name in domains}
    for phase in phases:
        check_numbers(domains, phase.weights, epochs, None)
    if empty := [name for name in domains if not known[name].size and any((phase.weights or {}).get(name) for phase in phases)]:
        raise ConfigError(f"domain {empty[0]!r} has no item, and is to have tokens: nothing of it is as long as a window. Give it weight 0")
    offered = {name: int(known[name].size * (epochs or {}).get(name, 1.0) + 0.5) for name in domains}
    check_room(offered)
    streams = {name: stream_of(seed, name) for name in domains}
    left = {name: offer(known[name].size, known[name].size, offered[name], streams[name] if shuffle else None) for name in domains}
    natural = {name: Fraction((epochs or {}).get(name, 1.0)) * int(known[name].sum()) for name in domains}
    chosen, shares = list[tuple[Ints, Ints]](), list[tuple[DomainShare, ...]]()
    for number, phase in enumerate(phases, 1):
        sizes = {name: take(known[name], left[name]) for name in domains}
        taken = {name: left[name][:count] for name, count in _counts(number, phase, sizes, epochs or {}, natural).items()}
        left = {name: left[name][taken[name].size :] for name in domains}
        tokens = {name: int(sizes[name][: taken[name].size].sum()) for name in domains}
        total = sum(tokens.values())
        shares.append(tuple(DomainShare(name, taken[name].size, tokens[name], tokens[name] / max(1, total)) for name in domains))
        order = argsort(concatenate([_places(taken[name].size, streams[name] if shuffle else None) for name in domains], np.uint64))
        numbers = concatenate([np.broadcast_to(number, taken[name].size) for number, name in enumerate(domains)])
        chosen.append((take(numbers, order), take(concatenate([taken[name] for name in domains]), order)))
    columns = [concatenate(list(column)) for column in zip(*chosen, strict=True)]
    return Blended(domains, columns[0], columns[1], tuple(shares))


def _counts(
    number: int, phase: Phase, sizes: Mapping[str, Ints], epochs: Mapping[str, float], natural: Mapping[str, Fraction]
) -> dict[str, int]:
    """How many items a phase takes of each domain, given the sizes of those that are left; `natural` are the weights where it has none.

    Exact fractions: a domain that gives all of its items gives the last one too, and none is lost to a rounding error.
    """
    left = {name: int(column.sum()) for name, column in sizes.items()}
    if phase.weights is None and phase.tokens is None:
        return {name: column.size for name, column in sizes.items()}
    weights = {name: Fraction(weight) for name, weight in (phase.weights or natural).items()}
    whole = sum(weights.values())
    if spent := [name for name, weight in weights.items() if (weight or not whole) and not left[name]]:
        raise ConfigError(
            f"phase {number} of the blend is to have tokens of domain {spent[0]!r}, of which none are left. Set epochs.{spent[0]} higher, or its "
            "weight to 0"
        )
    share = {name: weights[name] / whole for name in sizes}
    total = min(left[name] / share[name] for name in share if share[name]) if phase.tokens is None else Fraction(phase.tokens)
    for name, part in share.items():
        if part * total > left[name]:
            passes = epochs.get(name, 1.0)
            raise ConfigError(
                f"phase {number} of the blend needs {float(part * total):,.0f} tokens of domain {name!r}, and {left[name]:,} are left of "
                f"{passes:g} passes over it. Set epochs.{name} higher, or the budget or its weight lower"
            )
    counts = {name: nearest_count(name, sizes[name], share[name] * total) for name in sizes}
    if max(counts.values()) >= MOST_ITEMS:
        raise ConfigError(
            f"phase {number} of the blend takes {max(counts.values()):,} items of a domain; cut it into phases of {MOST_ITEMS:,}"
        )
    return counts


def _places(count: int, stream: np.random.PCG64 | None) -> npt.NDArray[np.uint64]:
    """Where the items of a domain stand in a phase, from 0 to 2**32: one in each of `count` equal parts, in the middle or at random."""

    def places(part: slice) -> npt.NDArray[np.uint64]:
        steps = np.arange(part.start, part.stop, dtype=np.uint64) << np.uint64(FRACTION)
        within = np.uint64(1 << (FRACTION - 1)) if stream is None else drawn(stream, part.stop - part.start) >> np.uint64(64 - FRACTION)
        placed: npt.NDArray[np.uint64] = (steps + within) // np.uint64(count)
        return placed

    return fill_column(count, places, np.uint64)
