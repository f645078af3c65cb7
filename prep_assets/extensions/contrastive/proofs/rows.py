"""Contrastive rows: one query, positives and negatives, no empty text, no text on both sides; texts to embed have ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prep_assets.extensions.lines.proofs import Rows, judged
from prep_assets.proofs.source_texts import Said
from prep_assets.proofs.verdict import Verdict, Worst, shown, some_fail

SIDES = ("positives", "negatives")
OPTIONAL_CONTRAST_FIELDS = {"instruction", "positive_scores", "negative_scores"}
"""Optional fields of a row with query, positives and negatives."""


def check_contrasts(train: Rows, test: Rows) -> Verdict:
    """Check every row, that ids are unique, and that no query of the training file is held out as well."""
    numbers = dict.fromkeys(("rows_checked", "rows_failed", *SIDES, "rows_without_negatives"), 0)
    worst: Worst | None = None
    ids: set[int] = set()
    for _, where, row, fault in judged({"train": train, "test": test}, "query", lambda _, row: _contrast_fault(row)):
        numbers["rows_checked"] += 1
        if fault is None and "id" in row and row["id"] in ids:
            fault = f"the id {row['id']} was given to another text before"
        if fault is not None:
            numbers["rows_failed"] += 1
            worst = worst or Worst(where, f"{fault}: {shown(row)}")
        elif "id" in row:
            ids.add(row["id"])
        else:
            for side in SIDES:
                numbers[side] += len(row[side])
            numbers["rows_without_negatives"] += not row["negatives"]
    if worst is not None:
        return some_fail(numbers["rows_failed"], numbers["rows_checked"], "rows fail", worst, numbers)
    summary = f"{numbers['rows_checked']:,} rows are sound: {numbers['positives']:,} positive and {numbers['negatives']:,} negative texts"
    return Verdict(True, summary, numbers)


def _contrast_fault(row: Mapping[str, Any]) -> str | None:
    if not isinstance(row.get("query"), str) or not row["query"].strip():
        return "the query is empty"
    if "id" in row:
        return None if set(row) == {"query", "id"} and type(row["id"]) is int else f"fields {list(row)}, a text to embed has query and id"
    if not {"query", *SIDES} <= set(row) <= {"query", *SIDES, *OPTIONAL_CONTRAST_FIELDS}:
        return f"fields {list(row)}, needs query, positives and negatives, and may have {', '.join(sorted(OPTIONAL_CONTRAST_FIELDS))}"
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


def rejected_again(reason: str, said: Iterable[Said], length: Callable[[str], int], limit: int | None) -> str | None:
    """Judge a row that is rejected for its texts; `length` gives their tokens. Returns ``""`` where the reason holds, `None` where no second reading can
    tell, else why the row is right."""
    texts: dict[str, list[str]] = {}
    for each in said:
        texts.setdefault(each.side.partition("[")[0], []).append(each.text)
    query, positives, negatives = (texts.get(side, []) for side in ("query", *SIDES))
    instruction = "".join(texts.get("instruction", ()))
    longest = max(map(length, [*(instruction + text for text in query), *positives, *negatives]), default=0)
    asked, good = ([text.strip() for text in side] for side in (query, positives))
    repeats, before = "", {*asked}
    for text in [*good, *map(str.strip, negatives)]:
        if text in before:
            repeats = repeats or (
                "positive_among_negatives" if len({*good}) == len(good) and text in {*good} - {*asked} else "repeated_text"
            )
        before.add(text)
    holds = {
        "too_long": limit is not None and longest > limit,
        "positive_among_negatives": repeats == reason,
        "repeated_text": repeats == reason,
    }.get(reason)
    if holds is None:
        return None
    return "" if holds else f"its longest text has {longest:,} tokens, and of its texts {repeats or 'no two are the same'}"
