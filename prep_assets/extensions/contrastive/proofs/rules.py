"""Reasons for rejecting contrastive rows that JSON Schema cannot say, by the names that `formats/contrastive.json` gives them."""

from __future__ import annotations

import re

from prep_assets.proofs.formats import Format
from prep_assets.samples import Row

QUERIES = ("query", "anchor", "question", "ques")
POSITIVES = ("positive", "positives", "pos", "context_positive", "positive_passages", "positive_ctxs")
NEGATIVES = (
    "negative",
    "negatives",
    "neg",
    "context_negative",
    "hard_negatives",
    "negative_passages",
    "negative_ctxs",
    "hard_negative_ctxs",
)


def several_fields(row: Row, format: Format) -> bool:
    """Two spellings of one field are there."""
    spellings = (("query_key", QUERIES), ("positive_key", POSITIVES))
    return any(format.options[option] is None and sum(row.get(key) is not None for key in keys) > 1 for option, keys in spellings)


def uneven_scores(row: Row, format: Format) -> bool:
    """There are more or fewer scores than texts of a side."""
    good, bad = format.options["positive_key"], format.options["negative_key"]
    sides = {
        "pos_scores": [key for key in row if key == good or (good is None and key in POSITIVES)],
        "neg_scores": [key for key in row if key == bad or (bad is None and (key in NEGATIVES or re.fullmatch("negative_[0-9]+", key)))],
    }
    counts = {
        scores: sum(len(row[key]) if isinstance(row[key], list) else row[key] is not None for key in keys) for scores, keys in sides.items()
    }
    return any(row.get(scores) is not None and len(row[scores]) != count for scores, count in counts.items())
