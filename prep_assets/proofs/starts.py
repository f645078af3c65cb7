"""The begin-of-text token of documents, read from the definition of the tokenizer's post-processor: no code is shared with what writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prep_assets.tokenization.vocabulary import Vocabulary


def documents_begin_with(vocabulary: Vocabulary, bos: str) -> int | None:
    """The id that every document must begin with, `None` where none is asked for; `bos` is the option."""
    if bos == "auto":
        front = [token for processor in _processors(vocabulary.spec.get("post_processor")) for token in _front(processor)]
        return vocabulary.backend.token_to_id(front[0]) if front else None
    return vocabulary.backend.token_to_id(vocabulary.special["bos_token"]) if bos == "true" else None


def _processors(processor: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if processor is not None:
        yield from processor.get("processors", [processor])


def _front(processor: Mapping[str, Any]) -> Iterator[str]:
    """Texts of the special tokens that a post-processor writes before a single text."""
    if processor["type"] in ("BertProcessing", "RobertaProcessing"):
        yield processor["cls"][0]
    for piece in processor.get("single", ()):
        if "Sequence" in piece:
            return
        yield piece["SpecialToken"]["id"]
