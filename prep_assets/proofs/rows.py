"""Row integrity: shapes, dtypes, ids inside the vocabulary, something trained in every row, document borders that add up."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import before, sizes, stretches
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import UNATTENDED
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import ATTENTION, TokenStore

BLOCK = 1 << 20
_before = partial(before, first=-1)  # no row and no record has this number


def check_records(
    store: TokenStore, *, vocabulary_size: int, eos_id: int | None = None, bos_id: int | None = None, ended: bool = True
) -> Verdict:
    """A ragged token store: records that are not empty, ids inside the vocabulary, a mask (where there is one) of weights in [0, 1] with
    something trained in every record, an attention mask (where there is one) of 0 and 1 with nothing trained where it is 0; with `eos_id`, exactly one
    end-of-text token in each record, its last, or none where not `ended`; with `bos_id`, one begin-of-text token, its first."""
    lengths = sizes(store.ends)
    numbers = {"records": len(store), "tokens": store.tokens}
    if len(lengths) and lengths.min() < 1:
        return _failed(numbers, int(lengths.argmin()), f"{int(lengths.min())} tokens")
    for records, tokens in store.blocks(BLOCK):
        low, ids, at = records.start, np.asarray(store.arrays["tokens"][tokens]), store.starts_of(records) - tokens.start
        fault = _ids_fault(ids, at, vocabulary_size) or _ends_fault(ids, at, eos_id, bos_id, ended)
        if fault is None and "loss_mask" in store.arrays:
            fault = _mask_fault(np.asarray(store.arrays["loss_mask"][tokens]), at)
        if fault is None and ATTENTION in store.arrays:
            fault = _attention_fault(np.asarray(store.arrays[ATTENTION][tokens]), store.weights(tokens), at)
        if fault is not None:
            return _failed(numbers, low + fault[0], fault[1], store)
    return Verdict(True, f"{len(store):,} records, {store.tokens:,} tokens: lengths, ids and mask are sound", numbers)


def _ids_fault(ids: npt.NDArray[Any], starts: npt.NDArray[np.int64], size: int) -> tuple[int, str] | None:
    if not len(ids) or (ids.min() >= 0 and ids.max() < size):
        return None
    at = int(((ids < 0) | (ids >= size)).argmax())
    return _record_of(starts, at), f"id {int(ids[at])} is outside the vocabulary of {size:,}"


def _ends_fault(
    ids: npt.NDArray[Any], starts: npt.NDArray[np.int64], eos: int | None, bos: int | None, ended: bool
) -> tuple[int, str] | None:
    """The first record that does not hold its begin-of-text and end-of-text tokens once each, at its ends. They may be one and the same token."""
    last = np.append(starts[1:], len(ids)) - 1
    for token, places, name, where, there in ((bos, starts, "begin", "first", True), (eos, last, "end", "last", ended)):
        if token is None:
            continue
        found = np.flatnonzero(ids == token)
        in_place, count = ids[places] == token, np.diff(np.searchsorted(found, np.append(starts, len(ids))))
        wrong = (count != int(token == bos) + int(ended and token == eos)) | (there & ~in_place)
        if wrong.any():
            record = int(wrong.argmax())
            return record, f"{int(count[record])} {name}-of-text tokens, the {where} token is {'one' if in_place[record] else 'none'}"
    return None


def _mask_fault(mask: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> tuple[int, str] | None:
    wrong = ~((mask >= 0) & np.isfinite(mask))
    if wrong.any():
        at = int(wrong.argmax())
        return _record_of(starts, at), f"loss weight {mask[at]} of a token"
    untrained = ~np.logical_or.reduceat(mask > 0, starts)
    if untrained.any():
        return int(untrained.argmax()), "no token is trained"
    return None


def _attention_fault(attention: npt.NDArray[Any], weights: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> tuple[int, str] | None:
    for wrong, what in ((attention > 1, "an attention of {attention}"), (weights < UNATTENDED, "trained, and not attended")):
        if wrong.any():
            at = int(wrong.argmax())
            return _record_of(starts, at), f"token {at - int(starts[_record_of(starts, at)])}: {what.format(attention=attention[at])}"
    return None


def _record_of(starts: npt.NDArray[np.int64], at: int) -> int:
    return int(np.searchsorted(starts, at, "right")) - 1


def _failed(numbers: dict[str, int], record: int, what: str, store: TokenStore | None = None) -> Verdict:
    ids = tuple(store.record(record, "tokens").tolist()) if store is not None else ()
    weights = tuple(map(float, store.weights(record).tolist())) if store is not None and "loss_mask" in store.arrays else ()
    return Verdict(False, f"record {record:,}: {what}", numbers, Worst(f"record {record:,}", what, ids, weights))


def check_packed(store: PackedStore, *, vocabulary_size: int, pad_id: int) -> Verdict:
    """A packed table: ids inside the vocabulary; pieces that fill each row from its start without gap or overlap; padding after them that
    is `pad_id`, untrained and unattended; something trained in every row, and nothing that is not attended."""
    documents = {field: np.asarray(values) for field, values in store.documents.items()}
    numbers = {"rows": len(store), "pieces": len(documents["row"])}
    borders = _border_fault(documents, len(store), store.row_len)
    if borders is not None:
        return Verdict(False, borders, numbers, Worst("documents", borders))
    for first, tokens, mask in store.blocks():
        low, high = np.searchsorted(documents["row"], [first, first + len(tokens)])
        used = np.bincount(documents["row"][low:high] - first, documents["length"][low:high])
        padding = np.arange(store.row_len)[None, :] >= used[:, None]
        faults = {
            "an id is outside the vocabulary": ((tokens < 0) | (tokens >= vocabulary_size)).any(axis=1),
            "no token is trained": ~(mask != 0).any(axis=1),
            "padding is trained": ((mask != 0) & padding).any(axis=1),
            f"padding is not token {pad_id}": ((tokens != pad_id) & padding).any(axis=1),
            "a loss weight is negative or no number": ~((mask >= 0) & np.isfinite(mask)).all(axis=1),
        }
        if store.attention_mask is not None:
            attention = np.asarray(store.attention_mask[first : first + len(tokens)])
            faults |= {
                "an attention is neither 0 nor 1": (attention > 1).any(axis=1),
                "a trained token is not attended": ((mask != 0) & (attention == 0)).any(axis=1),
                "padding is attended": ((attention != 0) & padding).any(axis=1),
            }
        for what, rows in faults.items():
            if rows.any():
                row = int(rows.argmax())
                worst = Worst(f"row {first + row:,}", what, tuple(tokens[row].tolist()), tuple(map(float, mask[row].tolist())))
                return Verdict(False, f"{what}: row {first + row:,} and {int(rows.sum()) - 1:,} more in its block", numbers, worst)
    return Verdict(
        True,
        f"{len(store):,} rows of {store.row_len:,}, {len(documents['row']):,} pieces: borders, padding, ids and mask are sound",
        numbers,
    )


def _border_fault(documents: dict[str, npt.NDArray[Any]], rows: int, row_len: int) -> str | None:
    row, offset, length = documents["row"], documents["row_offset"], documents["length"]
    source, record, start = documents["source"], documents["record"], documents["start"]
    there = 0
    for part in stretches(len(row)):
        steps = row[part] - _before(row, part)
        if (steps < 0).any():
            return f"pieces are not in the order of their rows: one of row {int(row[part.start + (steps < 0).argmax() - 1]):,} stands before a lower row"
        there += int(np.count_nonzero(steps))
    if there != rows or (len(row) and (row[0] < 0 or row[-1] >= rows)):
        return f"pieces lie in {there:,} rows, the table has {rows:,}"
    for part in stretches(len(row)):
        first, end = row[part] != _before(row, part), offset[part] + length[part]
        expected = np.where(first, 0, _before(offset, part) + _before(length, part))
        wrong = (offset[part] != expected) | (length[part] < 1) | (end > row_len)
        if wrong.any():
            at, place = part.start + int(wrong.argmax()), int(expected[wrong.argmax()])
            return f"row {int(row[at]):,}: a piece at {int(offset[at])} of {int(length[at])} tokens, where {place} was the next free place"
        follows = ~first & (source[part] == _before(source, part)) & (record[part] == _before(record, part))
        follows &= start[part] == _before(start, part) + _before(length, part)
        if follows.any():
            at = part.start + int(follows.argmax())
            return f"row {int(row[at]):,}: a border at place {int(offset[at])}, inside record {int(record[at]):,} of its domain"
    return None
