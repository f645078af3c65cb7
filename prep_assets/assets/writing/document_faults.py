"""Which tokenized documents are refused: those that are too long, and those whose tokens do not say all of their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from prep_assets.assets.writing.documents import Documents
from prep_assets.errors import Refused
from prep_assets.tokenization.flat import Flat
from prep_assets.tokenization.vocabulary import Vocabulary
from prep_assets.tokenization.weighing import CANNOT_REPRESENT


def too_long(flat: Flat, max_seq_len: int | None) -> Iterator[tuple[int, Refused]]:
    """The documents, by index, that have too many tokens."""
    lengths = np.diff(flat.offsets)
    for i in np.flatnonzero(lengths > max_seq_len) if max_seq_len is not None else ():
        yield int(i), Refused("too_long", f"{lengths[i]:,} tokens, max_seq_len is {max_seq_len:,}", stage="tokenize")


def lossy(
    flat: Flat,
    documents: Documents,
    vocabulary: Vocabulary,
    byte_lengths: npt.NDArray[np.int64] | None,
    tokenized: Callable[[str, str], str],
) -> dict[int, Refused]:
    """The documents, by index, whose tokens do not stand for exactly their bytes.

    Args:
        byte_lengths: bytes that each id stands for; `None` where ids stand for no fixed ones, and only an unknown token tells.
        tokenized: what of a document, of which it gets text and id, is tokenized. It is asked for documents whose bytes do not add up.
    """
    if byte_lengths is None:
        return {} if vocabulary.unknown_id is None else _unknown(flat, vocabulary.unknown_id)
    sizes = np.array([len(text) if text.isascii() else len(text.encode()) for text in documents.texts], np.int64)
    found = _totals(byte_lengths, flat)
    # a SentencePiece tokenizer puts one space in front of the first word
    allowed = (0, 1) if vocabulary.prefix_space != "never" else (0,)
    suspects = np.flatnonzero(~np.isin(found - sizes, allowed)).tolist()
    return {
        i: Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize")
        for i in suspects
        if found[i] - len(tokenized(documents.texts[i], documents.id_of(i)).encode()) not in allowed
    }


def _unknown(flat: Flat, unknown: int) -> dict[int, Refused]:
    """The documents, by index, of which the tokenizer does not know some character."""
    places = np.flatnonzero(flat.ids == unknown)
    documents = np.unique(np.searchsorted(flat.offsets, places, "right") - 1)
    return {int(document): Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize") for document in documents}


def _totals(table: npt.NDArray[np.int64], flat: Flat) -> npt.NDArray[np.int64]:
    """The sum of each text's entries of a table by id."""
    narrow = table.astype(np.int32)  # half of the memory that a block's lengths take otherwise
    full = np.flatnonzero(np.diff(flat.offsets))
    totals = np.zeros(len(flat.offsets) - 1, np.int64)
    if len(full):
        # a text without ids has no place of its own among the others' starts
        totals[full] = np.add.reduceat(narrow[flat.ids], flat.offsets[full], dtype=np.int64)
    return totals
