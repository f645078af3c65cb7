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
    checked = 0
    for first, block_ids, _ in packed.blocks():
        block = {"tokens": block_ids, "loss_mask": packed.weights(slice(first, first + len(block_ids)))}
        low, high = np.searchsorted(documents["row"], [first, first + len(block_ids)]).tolist()
        own = {field: values[low:high] for field, values in documents.items()}
        if _alike(block, first, own, packed.sources, tokens):
            checked += int(own["length"].sum(dtype=np.int64))
            continue
        for piece in range(low, high):
            row, at, length = (int(documents[field][piece]) for field in ("row", "row_offset", "length"))
            domain, record = packed.sources[int(documents["source"][piece])], int(documents["record"][piece])
            store = tokens[domain]
            if not 0 <= record < len(store):
                return _failed(packed, row, f"{domain} has no record {record:,}", checked)
            if documents["start"][piece] < 0:
                return _failed(packed, row, f"a piece starts before {domain} record {record:,}", checked)
            start = (int(store.ends[record - 1]) if record else 0) + int(documents["start"][piece])
            if start + length > int(store.ends[record]):
                return _failed(packed, row, f"{domain} record {record:,} is shorter than its piece", checked)
            here = slice(at, at + length)
            for key, rows in block.items():
                found, expected = rows[row - first, here], _stored(store, key, start, start + length)
                if not np.array_equal(found, expected):
                    wrong = int((found != expected).argmax())
                    place, what = at + wrong, ATTENTION if key == "loss_mask" and min(found[wrong], expected[wrong]) < 0 else key
                    return _failed(
                        packed, row, f"{what} differs from {domain} record {record:,} at place {place} of the row", checked, place
                    )
            checked += length
    if once and _used_twice(documents):
        return Verdict(
            False, "some record's tokens are in the table twice", {"tokens_checked": checked}, Worst("documents", "overlapping pieces")
        )
    return Verdict(
        True, f"{checked:,} packed tokens equal their records, tokens and mask", {"tokens_checked": checked, "rows_checked": len(packed)}
    )


def _alike(
    block: Mapping[str, np.ndarray], first: int, pieces: Mapping[str, np.ndarray], sources: Sequence[str], tokens: Mapping[str, TokenStore]
) -> bool:
    """Whether all pieces of a block of rows, which begins with row `first`, are their records: compared as one."""
    row, offset, length, source, record = (pieces[field].astype(np.int64) for field in ("row", "row_offset", "length", "source", "record"))
    low, stores, judged = pieces["start"].astype(np.int64), [tokens[name] for name in sources], 0
    width = next(iter(block.values())).shape[1]
    if (offset < 0).any() or (length < 1).any() or (offset + length > width).any():  # it would be compared with its neighbours
        return False
    for number, store in enumerate(stores):
        here = source == number
        which = record[here]
        if (which < 0).any() or (which >= len(store)).any() or (low[here] < 0).any():
            return False
        low[here] += np.where(which > 0, store.ends[which - 1], 0)
        if (low[here] + length[here] > store.ends[which]).any():
            return False
        judged += len(which)
    if judged != len(row) or not judged:
        return False
    high, at = (low + length).tolist(), (row - first) * width + offset
    spans = list(zip(map(stores.__getitem__, source.tolist()), low.tolist(), high, strict=True))
    for key, rows in block.items():
        flat = np.ascontiguousarray(rows).ravel()
        found = np.concatenate([flat[begin:end] for begin, end in zip(at.tolist(), (at + length).tolist(), strict=True)])
        if not np.array_equal(found, np.concatenate([_stored(store, key, begin, end) for store, begin, end in spans])):
            return False
    return True


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
