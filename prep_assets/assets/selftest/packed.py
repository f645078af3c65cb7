"""Selftest of packed tables: corruptions of a whole table, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.packed import mixture_of
from prep_assets.assets.selftest.trials import Trial, clean, tried
from prep_assets.assets.stage import Store
from prep_assets.proofs.packed_mask import check_pieces
from prep_assets.proofs.positions import check_positions
from prep_assets.proofs.rows import check_packed
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.tokens import ATTENTION, open_tokens


def packed_trials(store: Store) -> list[Trial]:
    """Borders moved, padding trained, a mask shifted inside a row, two rows swapped: on the whole table, in memory."""
    vocabulary, table = store.vocabulary, open_packed(store.directory, "sft_packed")
    tokens = {name: open_tokens(store.above("sft_tokens", name).directory, "train") for name in table.sources}
    once = not store.recipe["packing"].get("epochs")
    attention = None if table.attention_mask is None else np.asarray(table.attention_mask)
    packed = PackedStore(
        np.asarray(table.tokens), np.asarray(table.loss_mask), table.documents, table.sources, table.row_len, attention_mask=attention
    )

    def integrity(changed: PackedStore) -> Verdict:
        return check_packed(changed, vocabulary_size=vocabulary.size, pad_id=vocabulary.pad_id)

    def alignment(changed: PackedStore) -> Verdict:
        return check_pieces(changed, tokens, once=once)

    changes: dict[tuple[str, str], Verdict] = {
        ("mask shifted by +1 in every row", "mask_alignment"): alignment(replace(packed, loss_mask=np.roll(packed.loss_mask, 1, axis=1))),
        ("mask shifted by -1 in every row", "mask_alignment"): alignment(replace(packed, loss_mask=np.roll(packed.loss_mask, -1, axis=1))),
        ("mask all ones", "mask_alignment"): alignment(replace(packed, loss_mask=np.ones_like(packed.loss_mask))),
        ("mask all zeros", "row_integrity"): integrity(replace(packed, loss_mask=np.zeros_like(packed.loss_mask))),
        ("a token replaced", "mask_alignment"): alignment(replace(packed, tokens=_one_changed(packed.tokens, vocabulary.size))),
        ("documents' borders moved", "row_integrity"): integrity(replace(packed, documents=_moved(packed))),
        ("two documents exchanged", "mask_alignment"): alignment(replace(packed, documents=_exchanged(packed))),
    }

    def positions(ids: npt.NDArray[Any]) -> Verdict:
        return check_positions(ids, packed.documents, packed.row_len)

    def mixture(documents: dict[str, npt.NDArray[Any]]) -> Verdict:
        return mixture_of(store, "sft_packed", documents)

    counted, documents = _positions(packed), {field: np.array(values) for field, values in packed.documents.items()}
    piece, number = len(documents["row"]) // 2, np.arange(len(documents["row"]))
    found = {
        **changes,
        ("position ids run on", "row_integrity"): positions(np.tile(np.arange(packed.row_len), (len(packed), 1))),
        ("position ids all zero", "row_integrity"): positions(np.zeros_like(counted)),
        ("position ids from 1", "row_integrity"): positions(counted + 1),
        ("a border inside a document", "row_integrity"): integrity(replace(packed, documents=_split(packed))),
        ("padding trained", "row_integrity"): integrity(_with_padding(packed, vocabulary.pad_id, "trained")),
        ("padding of another token", "row_integrity"): integrity(_with_padding(packed, vocabulary.pad_id, "another token")),
        ("a document replaced by padding", "mixture"): mixture({field: values[number != piece] for field, values in documents.items()}),
        ("a domain missing", "mixture"): mixture({field: values[documents["source"] > 0] for field, values in documents.items()}),
        ("a record used again", "mixture"): mixture({field: np.append(values, values[piece]) for field, values in documents.items()}),
        ("a record replaced by another", "mixture"): mixture({**documents, "record": documents["record"] + (number == piece)}),
        ("a record cut short", "mixture"): mixture({**documents, "length": documents["length"] - (number == piece)}),
    }
    if attention is not None:
        shifted, trained = np.roll(attention, 1, axis=1), packed.loss_mask != 0
        found |= {
            ("attention lost", "mask_alignment"): alignment(replace(packed, attention_mask=None)),
            ("attention shifted by +1 in every row", "mask_alignment"): alignment(replace(packed, attention_mask=shifted)),
            ("attention turned round", "mask_alignment"): alignment(replace(packed, attention_mask=1 - attention)),
            ("trained tokens not attended", "row_integrity"): integrity(replace(packed, attention_mask=attention * ~trained)),
            ("padding attended", "row_integrity"): integrity(_with_padding(packed, vocabulary.pad_id, "attended")),
        }
    whole = [integrity(packed), alignment(packed), positions(counted), mixture(documents)]
    return [clean("every check", whole), *(tried(name, check, [verdict]) for (name, check), verdict in found.items())]


def _positions(packed: PackedStore) -> npt.NDArray[np.int64]:
    """Position ids as they must be, which tables of the format h5 do not store."""
    ids = np.zeros((len(packed), packed.row_len), np.int64)
    for row, offset, length in zip(*(packed.documents[field].tolist() for field in ("row", "row_offset", "length")), strict=True):
        ids[row, offset : offset + length] = np.arange(length)
    return ids


def _split(packed: PackedStore) -> dict[str, npt.NDArray[Any]]:
    """The longest piece is two."""
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    piece = int(documents["length"].argmax())
    size, first = int(documents["length"][piece]), int(documents["length"][piece]) // 2
    documents = {field: np.insert(values, piece + 1, values[piece]) for field, values in documents.items()}
    documents["length"][[piece, piece + 1]] = first, size - first
    documents["row_offset"][piece + 1] += first
    documents["start"][piece + 1] += first
    return documents


def _with_padding(packed: PackedStore, pad: int, fault: Literal["trained", "another token", "attended"]) -> PackedStore:
    """The last piece becomes padding with a fault."""
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    row, offset, length = (int(documents[field][-1]) for field in ("row", "row_offset", "length"))
    here = row, slice(offset, offset + length)
    changed = {"tokens": packed.tokens.copy(), "loss_mask": packed.loss_mask.copy()}
    changed["tokens"][here], changed["loss_mask"][here] = pad + (fault == "another token"), fault == "trained"
    if packed.attention_mask is not None:
        changed[ATTENTION] = packed.attention_mask.copy()
        changed[ATTENTION][here] = fault == "attended"
    return replace(packed, **changed, documents={field: values[:-1] for field, values in documents.items()})


def _one_changed(tokens: np.ndarray, size: int) -> np.ndarray:
    changed = tokens.copy()
    changed[len(changed) // 2, 0] = (int(changed[len(changed) // 2, 0]) + 1) % size
    return changed


def _moved(packed: PackedStore) -> dict[str, np.ndarray]:
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    documents["row_offset"][len(documents["row"]) // 2] += 1
    return documents


def _exchanged(packed: PackedStore) -> dict[str, np.ndarray]:
    """Two pieces of one domain trade their records."""
    documents = {field: np.array(values) for field, values in packed.documents.items()}
    documents["record"][[0, -1]] = documents["record"][[-1, 0]]
    documents["source"][[0, -1]] = documents["source"][[-1, 0]]
    return documents
