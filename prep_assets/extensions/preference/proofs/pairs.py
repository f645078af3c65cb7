"""Proofs of lines of preferences, and of the margins of pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from prep_assets.extensions.lines.proofs import ON_BOTH_SIDES, Rows, about, contradicted, judged
from prep_assets.proofs.second_reading import Seen
from prep_assets.proofs.verdict import AS_FLOAT32, Rule, Verdict, Worst, shown, some_fail

# Preference pairs: one prompt, two different answers, nothing empty, no prompt on both sides of the split. Labelled answers likewise.

FIELDS = ["prompt", "chosen", "rejected"]
UNPAIRED_FIELDS = ["prompt", "completion", "label"]
RANKED_FIELDS = ["prompt", "responses", "rewards"]
OPTIONAL_PAIR_FIELDS = ("tools", "chat_template_kwargs", "margin")
"""Optional fields of pairs and labelled answers."""


def check_pairs(
    train: Rows,
    test: Rows,
    unpaired: Rows = (),
    unpaired_test: Rows = (),
    ranked: Rows = (),
    ranked_test: Rows = (),
    *,
    one_domain: bool = False,
) -> Verdict:
    """Check every pair, labelled answer and list, and that no prompt of the training files is held out. In `one_domain` no answer to a prompt may be labelled
    good and bad."""
    answers = Seen()
    training = {"train": train, "unpaired": unpaired, "ranked": ranked}
    files = {**training, "test": test, "unpaired_test": unpaired_test, "ranked_test": ranked_test}
    checked = ("pairs_checked", "pairs_failed", "longer_chosen", "prompts_in_both")
    numbers = dict.fromkeys((*checked, "labelled_checked", "desirable", "lists_checked", "tied"), 0)
    worst: Worst | None = None
    for name, where, row, fault in judged(files, "prompt", _pair_fault):
        labelled, ordered = name.startswith("unpaired"), name.startswith("ranked")
        if labelled and one_domain and fault is None and contradicted(claim(row), answers):
            fault = "the same answer has the other label as well"
        numbers["lists_checked" if ordered else "labelled_checked" if labelled else "pairs_checked"] += 1
        if fault is not None:
            numbers["prompts_in_both"] += fault == ON_BOTH_SIDES.format("prompt")
            numbers["pairs_failed"] += 1
            worst = worst or Worst(where, f"{fault}: {shown(row)}")
        elif labelled:
            numbers["desirable"] += row["label"]
        elif ordered:
            numbers["tied"] += len(set(row["rewards"])) < len(row["rewards"])
        else:
            numbers["longer_chosen"] += len(str(row["chosen"])) > len(str(row["rejected"]))
    if not numbers["lists_checked"]:
        del numbers["lists_checked"], numbers["tied"]
    if worst is not None:
        count = numbers["pairs_checked"] + numbers["labelled_checked"] + numbers.get("lists_checked", 0)
        return some_fail(numbers["pairs_failed"], count, "pairs fail", worst, numbers)
    share = numbers["longer_chosen"] / max(1, numbers["pairs_checked"])
    summary = f"{numbers['pairs_checked']:,} pairs are sound; in {share:.0%} the chosen answer is the longer one"
    if numbers["labelled_checked"]:
        summary += f"; {numbers['labelled_checked']:,} labelled answers are sound, {numbers['desirable']:,} of them desirable"
    if "lists_checked" in numbers:
        summary += f"; {numbers['lists_checked']:,} lists are in the order of their rewards, {numbers['tied']:,} with equal ones"
    return Verdict(True, summary, numbers)


def claim(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a labelled answer is about, and its label; `None` for another line."""
    return (about(row, "label"), str(row["label"])) if "label" in row else None


def _list_fault(row: Mapping[str, Any]) -> str | None:
    rewards, answers = row["rewards"], row["responses"]
    if len(rewards) != len(answers) or len(answers) < 2:
        return f"{len(rewards)} rewards of {len(answers)} responses"
    if {*map(type, rewards)} != {float}:
        return f"rewards {rewards}, which are no floats"
    if any(first < second for first, second in pairwise(rewards)) or rewards[0] == rewards[-1]:
        return f"rewards {rewards}, not from the best to a worse one"
    if {*map(type, answers)} != {type(row["prompt"])}:
        return "strings and lists of messages are mixed"
    empty = [number for number, answer in enumerate(answers) if _is_empty(answer)]
    return f"response {empty[0]} is empty" if empty else None


def _pair_fault(file: str, row: Mapping[str, Any]) -> str | None:
    labelled, ordered = file.startswith("unpaired"), file.startswith("ranked")
    needed = RANKED_FIELDS if ordered else UNPAIRED_FIELDS if labelled else FIELDS
    if list(row)[: len(needed)] != needed or not set(row) <= {*needed, *OPTIONAL_PAIR_FIELDS}:
        return f"fields {list(row)}, needs {needed} and may have {', '.join(OPTIONAL_PAIR_FIELDS)}"
    if isinstance(row["prompt"], str) and not {"tools", "chat_template_kwargs"}.isdisjoint(row):
        return "tools and variables of a chat template stand beside strings, which no template renders"
    if labelled and not isinstance(row["label"], bool):
        return f"label is {row['label']!r}, needs true or false"
    texts = ["prompt"] if ordered else [field for field in needed if field != "label"]
    if len({type(row[field]) for field in texts}) != 1:
        return "strings and lists of messages are mixed"
    for field in texts:
        if _is_empty(row[field]):
            return f"{field} is empty"
    if ordered and (fault := _list_fault(row)):
        return fault
    if not (ordered or labelled) and row["chosen"] == row["rejected"]:
        return "chosen equals rejected"
    answers = row["responses"] if ordered else [row[field] for field in texts[1:]]
    others = (answer[0]["role"] for answer in answers if not isinstance(answer, str) and answer[0]["role"] != "assistant")
    return next((f"an answer begins with what the {role} says" for role in others), None)


def _is_empty(value: Any) -> bool:
    """Whether a string, or the last of a list of messages, is blank and calls no tool."""
    if isinstance(value, str):
        return not value.strip()
    if not value:
        return True
    content = value[-1].get("content", "")
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return not (text.strip() or value[-1].get("tool_calls"))


# Margins of pairs, which are differences of rewards.


@dataclass(frozen=True, slots=True)
class Margin:
    """The stored margin of a pair, and that of its line; `None` where there is none."""

    id: str
    stored: float | None
    source: float | None


def _margin_fault(pair: Margin, numbers: Counter[str]) -> str | None:
    numbers["pairs_checked"] += 1
    numbers["margins_checked"] += pair.stored is not None
    same = (pair.stored is None) == (pair.source is None)
    if pair.stored is not None and pair.source is not None:
        same = bool(np.isclose(pair.stored, pair.source, **AS_FLOAT32))
    said, stored = ("none" if margin is None else f"{margin:g}" for margin in (pair.source, pair.stored))
    return None if same else f"its margin is {stored}, its line says {said}"


check_margins = Rule(
    _margin_fault,
    ("pairs_checked", "margins_checked"),
    "{margins_checked:,} margins of {pairs_checked:,} pairs are those of their lines, as float32".format_map,
)
