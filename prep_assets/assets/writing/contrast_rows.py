"""Rows of the contrastive family: ``{query, positives, negatives}``, or ``{query, id}`` of a text that is only to be embedded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import xxhash

from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Contrastive
from prep_assets.errors import Refused
from prep_assets.samples import Contrast


def contrast_row(example: object) -> dict[str, Any]:
    """The row of an example.

    Raises:
        Refused: something else; a query without a positive text; one text in two places.
    """
    if not isinstance(example, Contrast):
        raise Refused("not_a_contrast", f"the schema gives {type(example).__name__}, this family needs a Contrast", stage="contrast")
    if example.id is not None:
        return {"query": example.query, "id": example.id}
    if not example.positives:
        raise Refused("empty_positive", "no text belongs to the query", stage="contrast")
    seen = {example.query.strip(): "the query"}
    for side, texts in (("positive", example.positives), ("negative", example.negatives)):
        for number, text in enumerate(texts):
            if not text.strip():
                raise Refused("empty_text", f"{side} text {number} is empty", stage="contrast")
            if (other := seen.get(text.strip())) is not None:
                reason = "positive_among_negatives" if (side, other[:8]) == ("negative", "positive") else "repeated_text"
                raise Refused(reason, f"{side} text {number} is {other} as well: {text[:80]!r}", stage="contrast")
            seen[text.strip()] = f"{side} text {number}"
    row = {"query": example.query, "positives": list(example.positives), "negatives": list(example.negatives)}
    beside = {
        "instruction": example.instruction,
        "positive_scores": list(example.positive_scores),
        "negative_scores": list(example.negative_scores),
    }
    return row | {key: value for key, value in beside.items() if value}


def query_digest(query: str) -> bytes:
    """What decides whether a query is held out."""
    return xxhash.xxh3_128_digest(msgspec.json.encode(query))


class Judged:
    """Makes rows, and refuses those with a text that is longer than ``max_seq_len``: an embedding model would cut it in silence."""

    def __init__(self, workspace: Workspace) -> None:
        family = workspace.family(Contrastive)
        self._limit = family.preprocessing.max_seq_len
        self._backend = None if self._limit is None else workspace.vocabulary(family).encoder

    def row(self, example: object) -> Mapping[str, Any]:
        """The row of an example.

        Raises:
            Refused: as `contrast_row` says; ``too_long``.
        """
        row = contrast_row(example)
        if self._limit is not None and self._backend is not None:
            instruction = row.get("instruction", "")
            texts = [instruction + row["query"], *row.get("positives", ()), *row.get("negatives", ())]
            longest = max(len(each.ids) for each in self._backend.encode_batch(texts, add_special_tokens=True))
            if longest > self._limit:
                raise Refused("too_long", f"a text of {longest:,} tokens, max_seq_len is {self._limit:,}", stage="contrast")
        return row
