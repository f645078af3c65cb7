"""Lines of contrastive rows: ``{query, positives, negatives}``, or ``{query, id}`` for a text that is only embedded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.extensions.contrastive.config import Contrastive
from prep_assets.pipeline.asset import LineOf
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Contrast


def contrast_row(example: object) -> dict[str, Any]:
    """The row of an example.

    Raises:
        Refused: the example is no `Contrast`; the query has no positive text; a text occurs twice.
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
            if (earlier := seen.get(text.strip())) is not None:
                reason = "positive_among_negatives" if (side, earlier[:8]) == ("negative", "positive") else "repeated_text"
                raise Refused(reason, f"{side} text {number} is {earlier} as well: {text[:80]!r}", stage="contrast")
            seen[text.strip()] = f"{side} text {number}"
    row = {"query": example.query, "positives": list(example.positives), "negatives": list(example.negatives)}
    extra = {
        "instruction": example.instruction,
        "positive_scores": list(example.positive_scores),
        "negative_scores": list(example.negative_scores),
    }
    return row | {key: value for key, value in extra.items() if value}


class ContrastRows:
    """Makes rows, and rejects those with a text longer than ``max_seq_len``, which an embedding model would cut silently."""

    def __init__(self, workspace: Workspace) -> None:
        family = workspace.family(Contrastive)
        self._limit = family.preprocessing.max_seq_len
        self._backend = None if self._limit is None else workspace.vocabulary(family).encoder

    def row(self, example: object) -> Mapping[str, Any]:
        """The row of an example.

        Raises:
            Refused: as `contrast_row`; ``too_long``.
        """
        row = contrast_row(example)
        if self._limit is not None and self._backend is not None:
            instruction = row.get("instruction", "")
            texts = [instruction + row["query"], *row.get("positives", ()), *row.get("negatives", ())]
            longest = max(len(encoding.ids) for encoding in self._backend.encode_batch(texts, add_special_tokens=True))
            if longest > self._limit:
                raise Refused("too_long", f"a text of {longest:,} tokens, max_seq_len is {self._limit:,}", stage="contrast")
        return row


def contrast_line(workspace: Workspace) -> LineOf:
    """Lines of queries with their texts."""
    judged = ContrastRows(workspace)
    return lambda content: (content, lambda form: judged.row(content))
