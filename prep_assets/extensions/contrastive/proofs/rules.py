"""Reasons for rejecting contrastive rows that JSON Schema cannot say, by the names that `formats/contrastive.json` gives them."""

from __future__ import annotations

from prep_assets.proofs.formats import Format
from prep_assets.samples import Row

QUERIES = ("query", "anchor", "question", "ques")
POSITIVES = ("positive", "positives", "pos", "context_positive", "positive_passages", "positive_ctxs")


def several_fields(row: Row, format: Format) -> bool:
    """Two spellings of one field are there."""
    spellings = (("query_key", QUERIES), ("positive_key", POSITIVES))
    return any(format.options[option] is None and sum(row.get(key) is not None for key in keys) > 1 for option, keys in spellings)
