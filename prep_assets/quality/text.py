"""Tokenization identity: a document's tokens decode to its text, and are the reference tokenizer's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.tokenization.engines import ReferenceEngine
from prep_assets.tokenization.vocabulary import Vocabulary

REFERENCE_EVERY = 50
"""Every so many documents are tokenized again by the reference library; the first ones always are."""
REFERENCE_FIRST = 200


@dataclass(frozen=True, slots=True)
class Text:
    """A document: its id, its text and its token ids without the end-of-text token."""

    id: str
    text: str
    ids: npt.NDArray[np.integer]


def prove_texts(texts: Iterable[Text], vocabulary: Vocabulary, reference: ReferenceEngine, *, batch: int = 64) -> Verdict:
    """Decode every document with the tokenizer's own decoder; tokenize a sample of them again with the reference library."""
    decoded = compared = 0
    pending: list[Text] = []
    for number, text in enumerate(texts):
        pending.append(text)
        if number < REFERENCE_FIRST or number % REFERENCE_EVERY == 0:
            ids = reference.encode([text.text]).ids
            compared += 1
            if not np.array_equal(ids, text.ids):
                return _failed(text, f"{len(text.ids):,} ids differ from the reference's {len(ids):,}", decoded, compared)
        if len(pending) == batch:
            fault = _decode(pending, vocabulary)
            if fault is not None:
                return _failed(*fault, decoded, compared)
            decoded, pending = decoded + len(pending), []
    fault = _decode(pending, vocabulary)
    if fault is not None:
        return _failed(*fault, decoded, compared)
    decoded += len(pending)
    summary = f"{decoded:,} documents decode to their text, {compared:,} equal the reference tokenizer's ids"
    return Verdict(True, summary, {"documents_decoded": decoded, "documents_compared": compared})


def _decode(texts: list[Text], vocabulary: Vocabulary) -> tuple[Text, str] | None:
    found = vocabulary.decode_batch([text.ids.tolist() for text in texts])
    for text, decoded in zip(texts, found, strict=True):
        expected = text.text
        if vocabulary.prefix_space != "never" and decoded.startswith(" ") and not expected.startswith(" "):
            decoded = decoded[1:]
        if decoded != expected and vocabulary.token_bytes is not None:
            at = next((i for i, (a, b) in enumerate(zip(decoded, expected, strict=False)) if a != b), min(len(decoded), len(expected)))
            low = max(0, at - 20)
            return text, f"decodes to …{decoded[low : at + 40]!r}…, the text is …{expected[low : at + 40]!r}… (character {at:,})"
    return None


def _failed(text: Text, what: str, decoded: int, compared: int) -> Verdict:
    numbers = {"documents_decoded": decoded, "documents_compared": compared}
    return Verdict(False, f"{text.id}: {what}", numbers, Worst(text.id, what, tuple(text.ids.tolist())))
