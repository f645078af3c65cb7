"""Contrastive rows: one query, what belongs to it and what does not, nothing empty, nothing on both sides; texts to be embedded have ids of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prep_assets.disk.digests import Digests
from prep_assets.proofs.held_out import fingerprint
from prep_assets.proofs.verdict import Verdict, Worst, shown

Rows = Iterable[Mapping[str, Any]]
SIDES = ("positives", "negatives")
BESIDE = {"instruction", "positive_scores", "negative_scores"}
"""Fields that a row may have beside query, positives and negatives."""


def check_contrasts(train: Rows, test: Rows) -> Verdict:
    """Check every row, that ids are given once, and that no query of the training file is held out as well."""
    numbers = {"rows_checked": 0, "rows_failed": 0, "positives": 0, "negatives": 0, "rows_without_negatives": 0}
    worst: Worst | None = None
    queries = Digests()
    ids: set[int] = set()
    for name, rows in (("train", train), ("test", test)):
        for number, row in enumerate(rows, 1):
            fault = _fault(row)
            digest = fingerprint(row.get("query"))
            if fault is None and name == "test" and digest in queries:
                fault = "its query is in the training file as well"
            if fault is None and "id" in row and row["id"] in ids:
                fault = f"the id {row['id']} was given to another text before"
            if name == "train":
                queries.add(digest)
            numbers["rows_checked"] += 1
            if fault is not None:
                numbers["rows_failed"] += 1
                worst = worst or Worst(f"{name} line {number:,}", f"{fault}: {shown(row)}")
            elif "id" in row:
                ids.add(row["id"])
            else:
                for side in SIDES:
                    numbers[side] += len(row[side])
                numbers["rows_without_negatives"] += not row["negatives"]
    if worst is not None:
        summary = f"{numbers['rows_failed']:,} of {numbers['rows_checked']:,} rows fail; first {worst.where}: {worst.note}"
        return Verdict(False, summary, numbers, worst)
    said = f"{numbers['rows_checked']:,} rows are sound: {numbers['positives']:,} positive and {numbers['negatives']:,} negative texts"
    return Verdict(True, said, numbers)


def _fault(row: Mapping[str, Any]) -> str | None:
    if not isinstance(row.get("query"), str) or not row["query"].strip():
        return "the query is empty"
    if "id" in row:
        return None if set(row) == {"query", "id"} and type(row["id"]) is int else f"fields {list(row)}, a text to embed has query and id"
    if not {"query", *SIDES} <= set(row) <= {"query", *SIDES, *BESIDE}:
        return f"fields {list(row)}, needs query, positives and negatives, and may have {', '.join(sorted(BESIDE))}"
    seen: dict[str, str] = {row["query"].strip(): "the query"}
    for side in SIDES:
        for text in row[side]:
            if not isinstance(text, str) or not text.strip():
                return f"{side} hold an empty text"
            if text.strip() in seen:
                return f"{side} hold {text!r}, which is one of {seen[text.strip()]} as well"
            seen[text.strip()] = side
        scores = row.get(f"{side[:-1]}_scores")
        if scores is not None and len(scores) != len(row[side]):
            return f"{len(scores)} scores for {len(row[side])} {side}"
    return None if row["positives"] else "there is no positive text"
