"""Preference pairs: one prompt, two answers that differ, nothing empty, nothing on both sides of the split."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from prep_assets.quality.verdict import Verdict, Worst

FIELDS = ["prompt", "chosen", "rejected"]


def check_pairs(train: Iterable[Mapping[str, Any]], test: Iterable[Mapping[str, Any]]) -> Verdict:
    """Check every pair of both files, and that no prompt is in both."""
    numbers = {"pairs_checked": 0, "pairs_failed": 0, "longer_chosen": 0, "prompts_in_both": 0}
    worst: Worst | None = None
    prompts: set[bytes] = set()
    for name, rows in (("train", train), ("test", test)):
        for number, row in enumerate(rows):
            fault = _fault(row)
            numbers["pairs_checked"] += 1
            digest = blake2b(json.dumps(row.get("prompt"), sort_keys=True).encode(), digest_size=16).digest()
            if fault is None and name == "test" and digest in prompts:
                fault = "its prompt is in the training file as well"
                numbers["prompts_in_both"] += 1
            if name == "train":
                prompts.add(digest)
            if fault is not None:
                numbers["pairs_failed"] += 1
                worst = worst or Worst(f"{name} line {number + 1:,}", f"{fault}: {json.dumps(row, ensure_ascii=False)[:400]}")
            else:
                numbers["longer_chosen"] += len(str(row["chosen"])) > len(str(row["rejected"]))
    if worst is not None:
        return Verdict(
            False,
            f"{numbers['pairs_failed']:,} of {numbers['pairs_checked']:,} pairs fail; first {worst.where}: {worst.note}",
            numbers,
            worst,
        )
    share = numbers["longer_chosen"] / max(1, numbers["pairs_checked"])
    return Verdict(True, f"{numbers['pairs_checked']:,} pairs are sound; in {share:.0%} the chosen answer is the longer one", numbers)


def _fault(row: Mapping[str, Any]) -> str | None:
    if list(row) != FIELDS:
        return f"fields {list(row)}, needs {FIELDS}"
    if len({type(row[field]) for field in FIELDS}) != 1:
        return "strings and lists of messages are mixed"
    for field in FIELDS:
        value = row[field]
        texts = [value] if isinstance(value, str) else [message.get("content", "") for message in value]
        if not texts or not texts[-1].strip():
            return f"{field} is empty"
    if row["chosen"] == row["rejected"]:
        return "chosen equals rejected"
    return None
