"""What packed tables and blends must hold, in which order and in which rows, derived from the options and the lengths alone.

Each algorithm is written here a second time, one record at a time. For a million records, an order takes two seconds, rows take three; those of
first fit, which looks for the first of all open rows, take six.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from heapq import heappop, heappush
from itertools import chain, islice
from math import ceil, lcm
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.stores.arrays import Spool, argsort, compress, concatenate, cumulative_sums, equals, fill_column, numbers, take, zeros

# Which records of which domains, and in which order.
#
# A domain's random numbers are raw outputs of PCG64, seeded by the sha256 of ``seed/name``: one draw to choose records, one for each pass over
# them, one for their places among those of other domains.

START: Ints = np.zeros(1, np.int64)


class Order(Struct, frozen=True):
    """Records or windows in the order in which they are packed or trained: int64[n] each; `source` numbers the domains, which are sorted."""

    source: Ints
    record: Ints
    length: Ints

    def at(self, index: Ints) -> Order:
        """Return the records of an index."""
        return Order(take(self.source, index), take(self.record, index), take(self.length, index))


def expected_order(lengths: Mapping[str, Ints], packing: Mapping[str, Any]) -> Order:
    """Return the records of a table, in packing order.

    Args:
        lengths: tokens of each record, by domain.
        packing: ``weights``, ``epochs``, ``max_items``, ``seed`` and ``shuffle`` of the options.
    """
    names, shuffle = sorted(lengths), bool(packing["shuffle"])
    draws = {name: _draw(packing["seed"], name) for name in names}
    records = {name: _records(len(lengths[name]), name, packing, draws[name] if shuffle else None) for name in names}
    if packing.get("weights"):
        ends = {name: _ends(lengths[name], records[name]) for name in names}
        shares = {name: Fraction(packing["weights"][name]) for name in names}
        total = min(Fraction(int(ends[name][-1])) / shares[name] for name in names if shares[name])
        records = {name: records[name][: _nearest(ends[name], shares[name] * total)] for name in names}
    in_domain_order = _by_domain(lengths, records)
    return (
        in_domain_order.at(argsort(concatenate([_ranks(draws[name], len(records[name])) for name in names], np.uint64)))
        if shuffle
        else in_domain_order
    )


def expected_blend(lengths: Mapping[str, Ints], options: Mapping[str, Any]) -> list[Order]:
    """Return the items of each phase of a blend, in order.

    A phase goes on where the one before it stopped. Its items of a domain are spread evenly: the j-th of n stands in the j-th of n equal parts of the phase,
    in the middle or, if shuffled, at a random place of 32 bits.

    Args:
        lengths: tokens of each item, by domain.
        options: ``weights``, ``tokens``, ``schedule``, ``epochs``, ``seed`` and ``shuffle``.
    """
    names, shuffle = sorted(lengths), bool(options["shuffle"])
    draws = {name: _draw(options["seed"], name) for name in names}
    left = {name: _records(len(lengths[name]), name, options, draws[name] if shuffle else None) for name in names}
    natural = {name: Fraction((options["epochs"] or {}).get(name, 1.0)) * int(lengths[name].sum()) for name in names}
    phases = list[Order]()
    for phase in options["schedule"] or [options]:
        counts = {name: len(left[name]) for name in names}
        if phase["weights"] is not None or phase["tokens"] is not None:
            ends = {name: _ends(lengths[name], left[name]) for name in names}
            weights = {name: Fraction(weight) for name, weight in (natural if phase["weights"] is None else phase["weights"]).items()}
            whole = sum(weights.values())
            given = [Fraction(int(ends[name][-1])) / weights[name] for name in names if weights[name]]
            total = min(given) if phase["tokens"] is None else Fraction(phase["tokens"]) / whole
            counts = {name: _nearest(ends[name], weights[name] * total) for name in names}
        taken = {name: left[name][: counts[name]] for name in names}
        left = {name: left[name][counts[name] :] for name in names}
        places = [_spread(draws[name] if shuffle else None, counts[name]) for name in names]
        phases.append(_by_domain(lengths, taken).at(argsort(concatenate(places))))
    return phases


def _draw(seed: int, name: str) -> np.random.PCG64:
    return np.random.PCG64(int(hashlib.sha256(f"{seed}/{name}".encode()).hexdigest(), 16))


def _by_domain(lengths: Mapping[str, Ints], records: Mapping[str, Ints]) -> Order:
    """Return the records of all domains, one domain after another."""
    names = sorted(lengths)
    return Order(
        concatenate([np.broadcast_to(number, len(records[name])) for number, name in enumerate(names)]),
        concatenate([records[name] for name in names]),
        concatenate([take(lengths[name], records[name]) for name in names]),
    )


def _records(count: int, name: str, options: Mapping[str, Any], draw: np.random.PCG64 | None) -> Ints:
    """Return the records that a domain offers, epoch after epoch."""
    most = (options.get("max_items") or {}).get(name)
    pool = fill_column(count, lambda part: np.arange(part.start, part.stop)) if draw is None else argsort(_ranks(draw, count))
    pool = pool[:most]
    remaining, passes = int(len(pool) * (options.get("epochs") or {}).get(name, 1.0) + 0.5), list[Ints]()
    while remaining > 0:
        epoch = pool if draw is None else take(pool, argsort(_ranks(draw, len(pool))))
        passes.append(epoch[:remaining])
        remaining -= len(pool)
    return concatenate(passes)


def _ranks(draw: np.random.PCG64, count: int) -> npt.NDArray[np.uint64]:
    return fill_column(count, lambda part: draw.random_raw(part.stop - part.start), np.uint64)


def _spread(draw: np.random.PCG64 | None, count: int) -> Ints:
    """Return the places of a domain's items in a phase, from 0 to 2**32."""
    middle = np.broadcast_to(np.uint64(1 << 63), count)
    bits, half = middle if draw is None else _ranks(draw, count), np.uint64(32)
    return fill_column(
        count, lambda part: ((np.arange(part.start, part.stop, dtype=np.uint64) << half) + (bits[part] >> half)) // np.uint64(count)
    )


def _ends(lengths: Ints, records: Ints) -> Ints:
    """Return 0 and the sum of tokens after each record."""
    return concatenate([START, cumulative_sums(take(lengths, records))])


def _nearest(ends: Ints, target: Fraction) -> int:
    """Return how many records have a total nearest to `target` tokens, one at least of any; fewer on a tie."""
    near = int(np.searchsorted(ends, ceil(target)))
    return min((max(1, near - 1), near), key=lambda count: (abs(int(ends[min(count, len(ends) - 1)]) - target), count))


# Which tokens of which record stand where in a packed table.

_AT_ONCE = 1 << 13


class Places(Struct, frozen=True):
    """Pieces in the order of a table: int64[P] each; `member` is the number of a record in the order of packing."""

    member: Ints
    start: Ints
    length: Ints
    row: Ints
    row_offset: Ints


def expected_places(lengths: Ints, packing: Mapping[str, Any]) -> Places:
    """Return the pieces of a table before rows without a trained token are taken out.

    Args:
        lengths: tokens of each record, in packing order.
        packing: ``strategy``, ``row_len``, ``tail``, ``overlong``, ``buckets`` and ``align`` of the options.
    """
    row_len, strategy, multiple = int(packing["row_len"]), packing["strategy"], multiple_of(packing)
    member, start, length = _columns(_cut(numbers(lengths), row_len, strategy, packing["overlong"]))
    if strategy in ("concat", "simple"):
        row = _column(len(length), (_stream if strategy == "concat" else _next_fit)(numbers(with_padding(length, multiple)), row_len))
        if strategy == "concat" and packing["tail"] == "drop":
            full = int(np.searchsorted(row, int(lengths.sum()) // row_len))
            member, start, length, row = (column[:full] for column in (member, start, length, row))
    else:
        # a truncated record keeps the rank of its whole length
        size = take(lengths, member) if packing["overlong"] == "truncate" and strategy != "bfd_split" else length
        longest = int(size.max(initial=0))
        by_size = argsort(fill_column(len(size), lambda part: longest - size[part]))
        member, start, length = (take(column, by_size) for column in (member, start, length))
        row, opened = zeros(len(length)), 0
        bounds = np.array(packing.get("buckets") or [])
        bucket = fill_column(len(length), lambda part: (lengths[member[part], None] > bounds).sum(axis=1))
        for number in range(len(bounds) + 1):
            in_bucket = compress(equals(bucket, number))
            sizes = with_padding(take(length, in_bucket), multiple)
            rows = _column(len(sizes), (_first_fit if strategy == "ffd" else _best_fit)(sizes, row_len))
            row[in_bucket] = rows + opened
            opened += int(rows.max(initial=-1)) + 1
    by_row = argsort(row)
    member, start, length, row = (take(column, by_row) for column in (member, start, length, row))
    ends = cumulative_sums(length)
    of_row = np.bincount(row, length).astype(np.int64)
    begins = np.cumsum(of_row) - of_row
    return Places(member, start, length, row, fill_column(len(row), lambda part: ends[part] - length[part] - begins[row[part]]))


def multiple_of(packing: Mapping[str, Any]) -> int:
    """Return the least number of places that the topology can split: among all ranks of context parallelism in two chunks each, and among all that share
    places by sequence parallelism."""
    align = packing.get("align")
    if align is None:
        return 1
    ranks, layer_ranks = int(align["context_parallel"]), int(align["tensor_parallel"])
    return lcm(int(align["multiple_of"]), 2 * ranks if ranks > 1 else 1, ranks * layer_ranks if align["sequence_parallel"] else 1)


def with_padding(lengths: Ints, multiple: int) -> Ints:
    """Return the places of pieces where each is padded to a multiple."""
    return lengths if multiple == 1 else fill_column(len(lengths), lambda part: lengths[part] + -lengths[part] % multiple)


def _cut(lengths: Iterable[int], row_len: int, strategy: str, overlong: str) -> Iterator[tuple[int, int, int]]:
    """Yield record, start and length of the pieces in packing order. With ``overlong: raise`` a record that is too long stays whole, and so fits no row."""
    place = 0
    for record, whole in enumerate(lengths):
        if strategy == "concat":
            borders = range(row_len - place % row_len, whole, row_len)
            place += whole
        elif strategy == "bfd_split" or overlong == "split":
            borders = range(row_len, whole, row_len)
        elif whole > row_len and overlong in ("truncate", "drop"):
            if overlong == "truncate":
                yield record, 0, row_len
            continue
        else:
            borders = range(0)
        start = 0
        for border in chain(borders, [whole]):
            yield record, start, border - start
            start = border


def _stream(lengths: Iterable[int], row_len: int) -> Iterator[int]:
    """Yield the row of each piece of one long stream."""
    place = 0
    for length in lengths:
        yield place // row_len
        place += length


def _next_fit(lengths: Iterable[int], row_len: int) -> Iterator[int]:
    """Yield the row of each piece: the next one if it does not fit into the last."""
    row, used = -1, row_len
    for length in lengths:
        if used + length > row_len:
            row, used = row + 1, 0
        used += length
        yield row


def _first_fit(lengths: Ints, row_len: int) -> Iterator[int]:
    """Yield the row of each piece: the first with room. A tree holds the largest room of the rows below each node."""
    # two rows that are at most half full would have been one
    leaves = 1 << min(len(lengths), 2 * int(lengths.sum()) // row_len + 1).bit_length()
    room = [row_len] * (2 * leaves)
    for length in numbers(lengths):
        node = 1
        while node < leaves:
            node = 2 * node + (room[2 * node] < length)
        yield node - leaves
        room[node] -= length
        while (node := node // 2) and room[node] != (largest := max(room[2 * node], room[2 * node + 1])):
            room[node] = largest


def _best_fit(lengths: Ints, row_len: int) -> Iterator[int]:
    """Yield the row of each piece: the fullest with room, of equally full ones the first. `rooms` are the sorted rooms of `rows`."""
    rooms, rows, opened = list[int](), defaultdict[int, list[int]](list), 0
    for length in numbers(lengths):
        at = bisect_left(rooms, length)
        if at < len(rooms):
            room = rooms[at]
            row = heappop(rows[room])
            if not rows[room]:
                del rooms[at]
        else:
            room, row, opened = row_len, opened, opened + 1
        left = room - length
        if not rows[left]:
            insort(rooms, left)
        heappush(rows[left], row)
        yield row


def _columns(rows: Iterator[tuple[int, int, int]]) -> tuple[Ints, Ints, Ints]:
    """Return three columns of integers."""
    spool = Spool(np.int64)
    while batch := list(islice(rows, _AT_ONCE)):
        spool.append(np.fromiter(chain.from_iterable(batch), np.int64))
    first, second, third = spool.array().reshape(-1, 3).T
    return first, second, third


def _column(count: int, values: Iterator[int]) -> Ints:
    """Return `count` integers as a column."""
    return fill_column(count, lambda part: np.fromiter(islice(values, part.stop - part.start), np.int64))


# Rows without a trained token are taken out.

Trained = Callable[[int, int, int, int], int]
"""Domain, record, start, end → how many of these tokens are trained."""


def expected_documents(order: Order, packing: Mapping[str, Any], trained: Trained) -> tuple[dict[str, Ints], int]:
    """Return the pieces that a table must hold, as the columns of its documents, and how many tokens are in rows that are taken out, because none of them is
    trained. A whole record has a trained token."""
    places = expected_places(order.length, packing)
    keeps = zeros(len(places.row), bool)  # by row, of which there are no more than pieces
    whole = fill_column(len(places.row), lambda part: places.length[part] == order.length[places.member[part]], bool)
    keeps[take(places.row, compress(whole))] = True
    for piece in numbers(compress(fill_column(len(places.row), lambda part: ~keeps[places.row[part]], bool))):
        if not keeps[places.row[piece]]:
            member, start, length = int(places.member[piece]), int(places.start[piece]), int(places.length[piece])
            keeps[places.row[piece]] = trained(int(order.source[member]), int(order.record[member]), start, start + length) > 0
    kept = compress(fill_column(len(places.row), lambda part: keeps[places.row[part]], bool))
    number = cumulative_sums(keeps)
    members, row = take(places.member, kept), take(places.row, kept)
    documents = _in_steps(
        {
            "row": fill_column(len(row), lambda part: number[row[part]] - 1),
            "row_offset": take(places.row_offset, kept),
            "source": take(order.source, members),
            "record": take(order.record, members),
            "start": take(places.start, kept),
            "length": take(places.length, kept),
        },
        packing,
    )
    return documents, int(places.length.sum()) - int(documents["length"].sum())


def _in_steps(documents: dict[str, Ints], packing: Mapping[str, Any]) -> dict[str, Ints]:
    """Return the pieces with rows in steps of ``balance`` ranks: rows sorted by the squares of their pieces, cut into steps, which are then shuffled."""
    ranks = packing.get("balance")
    if ranks is None:
        return documents
    work = defaultdict[int, int](int)
    for row, length in zip(numbers(documents["row"]), numbers(documents["length"]), strict=True):
        work[row] += length * length
    heaviest_first = sorted(work, key=lambda row: (-work[row], row))
    steps = [heaviest_first[at : at + ranks] for at in range(0, len(work), ranks)]
    whole = len(work) // ranks
    if packing["shuffle"]:
        draw = _draw(packing["seed"], "/steps")
        ranks_of_steps = [int(draw.random_raw()) for _ in range(whole)]
        steps[:whole] = [steps[number] for number in sorted(range(whole), key=lambda number: ranks_of_steps[number])]
    place = {row: number for number, row in enumerate(chain.from_iterable(steps))}
    rows = _column(len(documents["row"]), (place[row] for row in numbers(documents["row"])))
    order = argsort(rows)
    return {**{field: take(values, order) for field, values in documents.items()}, "row": take(rows, order)}
