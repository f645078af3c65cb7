"""Proofs of packed tables: pieces against their records, and the mixture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.proofs.verdict import Verdict, Worst, fails
from prep_assets.stores.arrays import argsort, concatenate, cumulative_sums, fill_column, numbers, sorted_groups, stretches, take, zeros
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import ATTENTION, TokenStore

# Which records of which domains a packed table must hold, and in which order: computed from the options alone.
#
# A domain's random numbers are raw outputs of PCG64, seeded by the sha256 of ``seed/name``: one draw to choose records, one for each pass over
# them, one for their places among those of other domains.

Ints = npt.NDArray[np.int64]
START: Ints = np.zeros(1, np.int64)


class Order(Struct, frozen=True):
    """Records in the order in which they are packed: int64[n] each; `source` numbers the domains, which are sorted."""

    source: Ints
    record: Ints
    length: Ints


def expected_order(lengths: Mapping[str, Ints], packing: Mapping[str, Any]) -> Order:
    """Return the records of a table, in packing order.

    Args:
        lengths: tokens of each record, by domain.
        packing: ``weights``, ``epochs``, ``max_items``, ``seed`` and ``shuffle`` of the options.
    """
    names, shuffle = sorted(lengths), bool(packing["shuffle"])
    draws = {name: np.random.PCG64(int(hashlib.sha256(f"{packing['seed']}/{name}".encode()).hexdigest(), 16)) for name in names}
    records = {name: _records(len(lengths[name]), name, packing, draws[name] if shuffle else None) for name in names}
    if packing.get("weights"):
        ends = {name: concatenate([START, cumulative_sums(take(lengths[name], records[name]))]) for name in names}
        shares = {name: Fraction(packing["weights"][name]) for name in names}
        total = min(Fraction(int(ends[name][-1])) / shares[name] for name in names if shares[name])
        records = {name: records[name][: _nearest(ends[name], shares[name] * total)] for name in names}
    in_domain_order = Order(
        concatenate([np.broadcast_to(number, len(records[name])) for number, name in enumerate(names)]),
        concatenate(list(records.values())),
        concatenate([take(lengths[name], records[name]) for name in names]),
    )
    if not shuffle:
        return in_domain_order
    shuffled = argsort(concatenate([_ranks(draws[name], len(records[name])) for name in names], np.uint64))
    return Order(*(take(column, shuffled) for column in (in_domain_order.source, in_domain_order.record, in_domain_order.length)))


def _records(count: int, name: str, packing: Mapping[str, Any], draw: np.random.PCG64 | None) -> Ints:
    """Return the records that a domain offers, epoch after epoch."""
    most = (packing.get("max_items") or {}).get(name)
    pool = fill_column(count, lambda part: np.arange(part.start, part.stop)) if draw is None else argsort(_ranks(draw, count))
    pool = pool[:most]
    remaining, passes = int(len(pool) * (packing.get("epochs") or {}).get(name, 1.0) + 0.5), list[Ints]()
    while remaining > 0:
        epoch = pool if draw is None else take(pool, argsort(_ranks(draw, len(pool))))
        passes.append(epoch[:remaining])
        remaining -= len(pool)
    return concatenate(passes)


def _ranks(draw: np.random.PCG64, count: int) -> npt.NDArray[np.uint64]:
    return fill_column(count, lambda part: draw.random_raw(part.stop - part.start), np.uint64)


def _nearest(ends: Ints, target: Fraction) -> int:
    """Return how many records have a total nearest to `target` tokens; fewer on a tie."""
    near = int(np.searchsorted(ends, ceil(target)))
    return min((max(0, near - 1), near), key=lambda count: (abs(int(ends[count]) - target), count))


# A packed table against the token stores it was made from: every piece is those tokens with that loss mask and that attention, and no record is used twice
# over.


def check_pieces(packed: PackedStore, tokens: Mapping[str, TokenStore], *, once: bool) -> Verdict:
    """Compare every piece of every row with its record, token by token.

    Args:
        tokens: the token store of each domain, by name.
        once: whether a token may be in the table only once (false where domains are used for several epochs).
    """
    documents = {field: np.asarray(values) for field, values in packed.documents.items()}
    stores, checked = [tokens[name] for name in packed.sources], 0
    for first, block_ids, _ in packed.blocks():
        block = {"tokens": block_ids, "loss_mask": packed.weights(slice(first, first + len(block_ids)))}
        low, high = np.searchsorted(documents["row"], [first, first + len(block_ids)]).tolist()
        pieces = {field: values[low:high].astype(np.int64) for field, values in documents.items()}
        fault = _fault(block, first, pieces, packed.sources, stores)
        checked += int(pieces["length"][: None if fault is None else fault[0]].sum())
        if fault is not None:
            row = int(pieces["row"][fault[0]])
            ids, weights = np.asarray(packed.tokens[row]), packed.weights(row)
            return fails(f"row {row:,}", fault[1], {"tokens_checked": checked}, ids, weights, fault[2])
    if once and _used_twice(documents):
        worst = Worst("documents", "overlapping pieces")
        return Verdict(False, "some record's tokens are in the table twice", {"tokens_checked": checked}, worst)
    numbers = {"tokens_checked": checked, "rows_checked": len(packed)}
    return Verdict(True, f"{checked:,} packed tokens equal their records, tokens and mask", numbers)


def _fault(
    block: Mapping[str, np.ndarray], first: int, pieces: Mapping[str, np.ndarray], sources: Sequence[str], stores: Sequence[TokenStore]
) -> tuple[int, str, int] | None:
    """Return the first piece that differs from its record, in a block of rows from row `first` on: its index, the fault, and the place in its row, -1
    for none. Pieces are compared in bulk where possible."""
    row, offset, length, source, record, start = (pieces[key] for key in ("row", "row_offset", "length", "source", "record", "start"))
    known = (source >= 0) & (source < len(stores))
    exists = known & (record >= 0) & (record < np.array([len(store) for store in stores])[np.where(known, source, 0)])
    begin, end = np.zeros_like(record), np.zeros_like(record)
    for number, store in enumerate(stores):
        of_store = exists & (source == number)
        record_numbers = record[of_store]
        begin[of_store], end[of_store] = np.where(record_numbers > 0, store.ends[record_numbers - 1], 0), store.ends[record_numbers]
    width = next(iter(block.values())).shape[1]
    whole = exists & (start >= 0) & (begin + start + length <= end)
    sound = whole & (offset >= 0) & (length > 0) & (offset + length <= width)
    count = len(sound) if sound.all() else int(sound.argmin())
    at, low, size = ((row - first) * width + offset)[:count].tolist(), (begin + start)[:count].tolist(), length[:count].tolist()
    spans, ends, faults = list(zip(source.tolist(), low, size, strict=False)), np.cumsum(size), list[tuple[int, str, int]]()
    for key, rows in block.items() if count else ():
        flat = np.ascontiguousarray(rows).ravel()
        packed_values = np.concatenate([flat[place : place + tokens] for place, tokens in zip(at, size, strict=True)])
        expected = np.concatenate([_stored(stores[number], key, begins, begins + tokens) for number, begins, tokens in spans])
        if not np.array_equal(packed_values, expected):
            wrong = int((packed_values != expected).argmax())
            piece = int(np.searchsorted(ends, wrong, "right"))
            place = int(offset[piece] + wrong - (ends[piece] - size[piece]))
            what = ATTENTION if key == "loss_mask" and min(packed_values[wrong], expected[wrong]) < 0 else key
            name = f"{sources[source[piece]]} record {record[piece]:,}"
            faults.append((piece, f"{what} differs from {name} at place {place} of the row", place))
    if faults or count == len(sound):
        return min(faults, key=lambda fault: fault[0], default=None)
    domain, number = sources[source[count]] if known[count] else f"domain {source[count]}", int(record[count])
    if not exists[count]:
        what = f"{domain} has no record {number:,}"
    elif start[count] < 0:
        what = f"a piece starts before {domain} record {number:,}"
    else:
        what = f"a piece at {offset[count]} leaves its row" if whole[count] else f"{domain} record {number:,} is shorter than its piece"
    return count, what, -1


def _stored(store: TokenStore, key: str, begin: int, end: int) -> np.ndarray:
    """Return an array of a store for a range of tokens; for the loss mask, the weights with attention in them."""
    return store.weights(slice(begin, end)) if key == "loss_mask" else np.asarray(store.arrays[key][begin:end])


def _used_twice(documents: Mapping[str, np.ndarray]) -> bool:
    for indices in sorted_groups(documents["record"]):
        indices = indices[np.lexsort([documents[field][indices] for field in ("start", "record", "source")])]
        source, record, start, length = (documents[field][indices] for field in ("source", "record", "start", "length"))
        same = (np.diff(source) == 0) & (np.diff(record) == 0)
        if (same & (start[1:] < (start + length)[:-1])).any():
            return True
    return False


# The mixture of a packed table: every record that the options ask for is in it whole, as often as they ask, or left out for a valid reason.

Trained = Callable[[int, int, int, int], int]
"""Domain, record, start, end → how many of these tokens are trained."""


def check_mixture(
    documents: Mapping[str, npt.NDArray[Any]],
    sources: Sequence[str],
    lengths: Mapping[str, Ints],
    packing: Mapping[str, Any],
    trained: Trained,
    claimed: Mapping[str, float],
) -> Verdict:
    """Compare the pieces of a table with the expected mixture.

    Args:
        documents: fields of its pieces, in order.
        sources: names of the domains, sorted; pieces hold their indices.
        lengths: tokens of each record, by domain.
        packing: the options.
        claimed: ``tokens_left_out`` and ``tokens_in_untrained_rows`` as the manifest counts them, and ``share_<domain>``.
    """
    packed = {field: np.asarray(documents[field]) for field in ("source", "record", "start", "length")}
    numbers: dict[str, float] = {"records_expected": 0, "tokens_packed": int(packed["length"].sum()), "tokens_untrained": 0}
    if list(sources) != sorted(lengths):
        return fails("domains", f"the table is of {list(sources)}, the configuration of {sorted(lengths)}", numbers)
    known = [len(lengths[name]) for name in sources]
    if (stranger := _stranger(packed, known)) is not None:
        return fails("documents", stranger, numbers)
    order = expected_order(lengths, packing)
    numbers["records_expected"] = len(order.record)
    pieces = _usable(order, packing)
    for source, record, start, end, surplus in _differences(pieces, packed):
        name = f"{sources[source]} record {record:,}"
        if surplus > 0:
            return fails(name, f"tokens {start:,} to {end:,} are {surplus} times more in the table than the options ask for", numbers)
        if (lost := trained(source, record, start, end)) > 0:
            return fails(name, f"{lost:,} trained tokens between {start:,} and {end:,} are in no row", numbers)
        numbers["tokens_untrained"] += -surplus * (end - start)
    fault = _claims(order, packed, sources, claimed, numbers)
    if fault is None and packing["strategy"] in ("concat", "simple") and not _in_order(pieces, packed):
        fault = f"{packing['strategy']} keeps the order of the mixture, the table does not"
    if fault is None and packing.get("buckets"):
        fault = _shared_row(documents, sources, lengths, packing["buckets"])
    if fault is not None:
        return fails("documents", fault, numbers)
    return Verdict(True, f"the rows hold the {len(order.record):,} records that the options ask for, whole or counted as left out", numbers)


def _shared_row(
    documents: Mapping[str, npt.NDArray[Any]], sources: Sequence[str], lengths: Mapping[str, Ints], buckets: Sequence[int]
) -> str | None:
    """Return the fault of the first row whose documents are of two buckets."""
    for part in stretches(len(documents["row"])):
        with_last = slice(max(0, part.start - 1), part.stop)
        rows, source, record = (np.asarray(documents[field][with_last]) for field in ("row", "source", "record"))
        whole = np.zeros(len(rows))
        for number, name in enumerate(sources):
            whole[source == number] = np.asarray(lengths[name])[record[source == number]]
        bucket = (whole[:, None] > np.array(buckets)).sum(axis=1)
        shared = np.flatnonzero((np.diff(rows) == 0) & (np.diff(bucket) != 0))
        if len(shared):
            return f"row {rows[shared[0]]:,} holds documents of different buckets"
    return None


def _usable(order: Order, packing: Mapping[str, Any]) -> dict[str, Ints]:
    """Return the part of each record that the strategy packs: from token 0, `length` tokens."""
    row_len, strategy, whole = int(packing["row_len"]), packing["strategy"], order.length
    ends, total = cumulative_sums(whole), int(whole.sum())
    limit = total // row_len * row_len if packing["tail"] == "drop" else total
    overlong = {"truncate": row_len, "drop": 0}.get(packing["overlong"]) if strategy != "bfd_split" else None

    def length(part: slice) -> Ints:
        lengths = whole[part]
        if strategy == "concat":
            kept_lengths: Ints = np.clip(limit - (ends[part] - lengths), 0, lengths)
            return kept_lengths
        return lengths if overlong is None else np.where(lengths > row_len, overlong, lengths)

    return {"source": order.source, "record": order.record, "start": zeros(len(whole)), "length": fill_column(len(whole), length)}


def _stranger(packed: Mapping[str, Ints], known: Sequence[int]) -> str | None:
    """Return the fault of the first piece whose record does not exist."""
    counts = np.array(known)
    for part in stretches(len(packed["record"])):
        source, record = packed["source"][part], packed["record"][part]
        sound = (source >= 0) & (source < len(counts))
        wrong = ~sound | (record < 0) | (record >= counts[np.where(sound, source, 0)])
        if wrong.any():
            at = int(wrong.argmax())
            return f"piece {part.start + at:,} is of record {record[at]:,} of domain {source[at]}, where there is none"
    return None


def _differences(wanted: Mapping[str, Ints], packed: Mapping[str, Ints]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield domain, record, start, end and surplus of every stretch that is in the table more or less often than wanted."""
    begin = len(packed["record"])
    for indices in sorted_groups(concatenate([packed["record"], wanted["record"]])):
        packed_indices, wanted_indices = indices[indices < begin], indices[indices >= begin] - begin
        yield from _surplus(
            {key: column[wanted_indices] for key, column in wanted.items()}, {key: column[packed_indices] for key, column in packed.items()}
        )


def _surplus(wanted: Mapping[str, Ints], packed: Mapping[str, Ints]) -> list[tuple[int, int, int, int, int]]:
    source, record = (np.concatenate([packed[key], packed[key], wanted[key], wanted[key]]) for key in ("source", "record"))
    place = np.concatenate([edge for part in (packed, wanted) for edge in (part["start"], part["start"] + part["length"])])
    change = np.repeat([1, -1, -1, 1], [*(len(packed["start"]),) * 2, *(len(wanted["start"]),) * 2])
    order = np.lexsort((place, record, source))
    source, record, place, change = source[order], record[order], place[order], change[order]
    # the edges of a record sum to 0 at its end, so those of the next one can follow
    last = np.append(np.diff(place) != 0, np.ones(min(1, len(source)), bool))
    count = np.cumsum(change)[last]
    source, record, place = source[last], record[last], place[last]
    return [(int(source[at]), int(record[at]), int(place[at]), int(place[at + 1]), int(count[at])) for at in np.flatnonzero(count).tolist()]


def _claims(
    order: Order, packed: Mapping[str, Ints], sources: Sequence[str], claimed: Mapping[str, float], numbers: Mapping[str, float]
) -> str | None:
    used = int(packed["length"].sum())
    left_out = int(order.length.sum()) - used
    if claimed["tokens_left_out"] != left_out:
        return f"{left_out:,} tokens are left out, the manifest says {claimed['tokens_left_out']:,}"
    if claimed["tokens_in_untrained_rows"] != numbers["tokens_untrained"]:
        claimed_tokens = claimed["tokens_in_untrained_rows"]
        return f"{numbers['tokens_untrained']:,.0f} untrained tokens are left out, the manifest says {claimed_tokens:,} are in rows without loss"
    tokens = np.zeros(len(sources))
    for part in stretches(len(packed["source"])):
        tokens += np.bincount(packed["source"][part], packed["length"][part], len(sources))
    for name, count in zip(sources, tokens, strict=True):
        if abs(claimed[f"share_{name}"] - count / max(1, used)) > 1e-9:
            return f"{name} is {count / max(1, used):.4f} of the tokens, the manifest says {claimed[f'share_{name}']:.4f}"
    return None


def _in_order(pieces: Mapping[str, Ints], packed: Mapping[str, Ints]) -> bool:
    """Whether records are in the table in the order of the mixture, apart from those left out."""
    wanted = zip(numbers(pieces["source"]), numbers(pieces["record"]), strict=True)
    last: tuple[int, ...] = ()
    for piece in zip(*(numbers(packed[field]) for field in ("source", "record", "start")), strict=True):
        # `in` consumes the iterator up to the record
        if (piece[:2] != last[:2] or piece <= last) and piece[:2] not in wanted:
            return False
        last = piece
    return True
