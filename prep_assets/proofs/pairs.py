"""Preference pairs: one prompt, two answers that differ, nothing empty, nothing on both sides of the split. Labelled answers likewise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prep_assets.disk.digests import Digests
from prep_assets.proofs.held_out import fingerprint
from prep_assets.proofs.verdict import Verdict, Worst, shown

Rows = Iterable[Mapping[str, Any]]
FIELDS = ["prompt", "chosen", "rejected"]
UNPAIRED_FIELDS = ["prompt", "completion", "label"]
BESIDE = ("tools", "chat_template_kwargs", "margin")
"""Fields that a row may have beside these."""


def check_pairs(train: Rows, test: Rows, unpaired: Rows = (), unpaired_test: Rows = ()) -> Verdict:
    """Check every pair and every labelled answer, and that no prompt of the training files is in a held-out one."""
    numbers = {"pairs_checked": 0, "pairs_failed": 0, "longer_chosen": 0, "prompts_in_both": 0, "labelled_checked": 0, "desirable": 0}
    worst: Worst | None = None
    prompts = Digests()
    for name, rows in (("train", train), ("unpaired", unpaired), ("test", test), ("unpaired_test", unpaired_test)):
        labelled = name.startswith("unpaired")
        for number, row in enumerate(rows):
            fault = _unpaired_fault(row) if labelled else _fault(row)
            numbers["labelled_checked" if labelled else "pairs_checked"] += 1
            digest = fingerprint(row.get("prompt"))
            if fault is None and name.endswith("test") and digest in prompts:
                fault = "its prompt is in the training file as well"
                numbers["prompts_in_both"] += 1
            if not name.endswith("test"):
                prompts.add(digest)
            if fault is not None:
                numbers["pairs_failed"] += 1
                worst = worst or Worst(f"{name} line {number + 1:,}", f"{fault}: {shown(row)}")
            elif labelled:
                numbers["desirable"] += row["label"]
            else:
                numbers["longer_chosen"] += len(str(row["chosen"])) > len(str(row["rejected"]))
    if worst is not None:
        return Verdict(
            False,
            f"{numbers['pairs_failed']:,} of {numbers['pairs_checked'] + numbers['labelled_checked']:,} pairs fail; first {worst.where}: {worst.note}",
            numbers,
            worst,
        )
    share = numbers["longer_chosen"] / max(1, numbers["pairs_checked"])
    summary = f"{numbers['pairs_checked']:,} pairs are sound; in {share:.0%} the chosen answer is the longer one"
    if numbers["labelled_checked"]:
        summary += f"; {numbers['labelled_checked']:,} labelled answers are sound, {numbers['desirable']:,} of them desirable"
    return Verdict(True, summary, numbers)


def _unpaired_fault(row: Mapping[str, Any]) -> str | None:
    if (fault := _fields_fault(row, UNPAIRED_FIELDS)) is not None:
        return fault
    if not isinstance(row["label"], bool):
        return f"label is {row['label']!r}, needs true or false"
    if type(row["prompt"]) is not type(row["completion"]):
        return "strings and lists of messages are mixed"
    for field in UNPAIRED_FIELDS[:2]:
        if _is_empty(row[field]):
            return f"{field} is empty"
    return None


def _fields_fault(row: Mapping[str, Any], needed: list[str]) -> str | None:
    if list(row)[: len(needed)] != needed or not set(row) <= {*needed, *BESIDE}:
        return f"fields {list(row)}, needs {needed} and may have {', '.join(BESIDE)}"
    if isinstance(row["prompt"], str) and not {"tools", "chat_template_kwargs"}.isdisjoint(row):
        return "tools and variables of a chat template stand beside strings, which no template renders"
    return None


def _is_empty(value: Any) -> bool:
    """Whether a string, or the last of some messages, says nothing and calls nothing."""
    if isinstance(value, str):
        return not value.strip()
    if not value:
        return True
    content = value[-1].get("content", "")
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return not (text.strip() or value[-1].get("tool_calls"))


def _fault(row: Mapping[str, Any]) -> str | None:
    if (fault := _fields_fault(row, FIELDS)) is not None:
        return fault
    if len({type(row[field]) for field in FIELDS}) != 1:
        return "strings and lists of messages are mixed"
    for field in FIELDS:
        if _is_empty(row[field]):
            return f"{field} is empty"
    if row["chosen"] == row["rejected"]:
        return "chosen equals rejected"
    return None
