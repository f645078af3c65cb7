"""A packed table against the token stores it was made from: every piece is those tokens with that loss mask and that
attention, and no record is used twice over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from prep_assets.disk.columns import together
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import ATTENTION, TokenStore


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
            return _failed(packed, int(pieces["row"][fault[0]]), fault[1], checked, fault[2])
    if once and _used_twice(documents):
        return Verdict(
            False, "some record's tokens are in the table twice", {"tokens_checked": checked}, Worst("documents", "overlapping pieces")
        )
    return Verdict(
        True, f"{checked:,} packed tokens equal their records, tokens and mask", {"tokens_checked": checked, "rows_checked": len(packed)}
    )


def _fault(
    block: Mapping[str, np.ndarray], first: int, pieces: Mapping[str, np.ndarray], sources: Sequence[str], stores: Sequence[TokenStore]
) -> tuple[int, str, int] | None:
    """The first piece of a block of rows, which begins with row `first`, that is not its record: its number, what is wrong, and the place in its row, -1
    where none is. All that can be are compared as one."""
    row, offset, length, source, record, start = (pieces[key] for key in ("row", "row_offset", "length", "source", "record", "start"))
    known = (source >= 0) & (source < len(stores))
    there = known & (record >= 0) & (record < np.array([len(store) for store in stores])[np.where(known, source, 0)])
    begin, end = np.zeros_like(record), np.zeros_like(record)
    for number, store in enumerate(stores):
        here = there & (source == number)
        which = record[here]
        begin[here], end[here] = np.where(which > 0, store.ends[which - 1], 0), store.ends[which]
    width = next(iter(block.values())).shape[1]
    whole = there & (start >= 0) & (begin + start + length <= end)
    sound = whole & (offset >= 0) & (length > 0) & (offset + length <= width)
    count = len(sound) if sound.all() else int(sound.argmin())
    at, low, size = ((row - first) * width + offset)[:count].tolist(), (begin + start)[:count].tolist(), length[:count].tolist()
    spans, ends, faults = list(zip(source.tolist(), low, size, strict=False)), np.cumsum(size), list[tuple[int, str, int]]()
    for key, rows in block.items() if count else ():
        flat = np.ascontiguousarray(rows).ravel()
        found = np.concatenate([flat[place : place + own] for place, own in zip(at, size, strict=True)])
        expected = np.concatenate([_stored(stores[number], key, begins, begins + own) for number, begins, own in spans])
        if not np.array_equal(found, expected):
            wrong = int((found != expected).argmax())
            piece = int(np.searchsorted(ends, wrong, "right"))
            place = int(offset[piece] + wrong - (ends[piece] - size[piece]))
            what = ATTENTION if key == "loss_mask" and min(found[wrong], expected[wrong]) < 0 else key
            name = f"{sources[source[piece]]} record {record[piece]:,}"
            faults.append((piece, f"{what} differs from {name} at place {place} of the row", place))
    if faults or count == len(sound):
        return min(faults, key=lambda fault: fault[0], default=None)
    domain, number = sources[source[count]] if known[count] else f"domain {source[count]}", int(record[count])
    if not there[count]:
        what = f"{domain} has no record {number:,}"
    elif start[count] < 0:
        what = f"a piece starts before {domain} record {number:,}"
    else:
        what = f"a piece at {offset[count]} leaves its row" if whole[count] else f"{domain} record {number:,} is shorter than its piece"
    return count, what, -1


def _stored(store: TokenStore, key: str, begin: int, end: int) -> np.ndarray:
    """What a store has of some tokens; of its loss mask, the weights with the attention in them."""
    return store.weights(slice(begin, end)) if key == "loss_mask" else np.asarray(store.arrays[key][begin:end])


def _used_twice(documents: Mapping[str, np.ndarray]) -> bool:
    for here in together(documents["record"]):
        here = here[np.lexsort([documents[field][here] for field in ("start", "record", "source")])]
        source, record, start, length = (documents[field][here] for field in ("source", "record", "start", "length"))
        same = (np.diff(source) == 0) & (np.diff(record) == 0)
        if (same & (start[1:] < (start + length)[:-1])).any():
            return True
    return False


def _failed(packed: PackedStore, row: int, what: str, checked: int, at: int = -1) -> Verdict:
    worst = Worst(
        f"row {row:,}",
        what,
        tuple(np.asarray(packed.tokens[row]).tolist()),
        tuple(map(float, packed.weights(row).tolist())),
        at,
    )
    return Verdict(False, f"row {row:,}: {what}", {"tokens_checked": checked}, worst)
