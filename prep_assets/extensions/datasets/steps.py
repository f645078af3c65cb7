"""Solutions whose steps are judged, for process reward models: ``stepwise`` (TRL), ``math_shepherd``, ``prm800k``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.rl.schemas import prompt_turns
from prep_assets.samples import ASSISTANT, USER, Group, Row, turn
from prep_assets.schemas.fields import as_integer, as_list, as_mapping, as_number, as_text, needed, texts_of, value_at
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import offered, with_system_of


def _judged(row: Row, prompt: Sequence[Any], texts: Sequence[str], rewards: Sequence[float], separator: str) -> Group:
    """The group of one response, whose reward is that of its last step. `separator` ends each step but the last."""
    if len(texts) != len(rewards) or not texts:
        raise Refused("length_mismatch", f"{len(texts)} steps have {len(rewards)} labels")
    if empty := [number for number, text in enumerate(texts) if not text.strip()]:
        raise Refused("empty_answer", f"step {empty[0]} has no text")
    ended = [text + separator for text in texts[:-1]] + [texts[-1]]
    steps = tuple(zip(ended, map(float, rewards), strict=True))
    return Group(tuple(prompt), ((turn(ASSISTANT, "".join(ended)),),), (float(rewards[-1]),), steps=(steps,), **offered(row))


@schema(
    "stepwise",
    gives=Group,
    example={"prompt": "What is 2 + 3 * 4?", "completions": ["3 * 4 is 12.", "2 + 12 is 15."], "labels": [True, False]},
    further="steps",
)
def stepwise(
    *, prompt_key: str = "prompt", completions_key: str = "completions", labels_key: str = "labels", separator: str = "\n"
) -> Convert:
    """A prompt, the steps of a solution, and a label for each: TRL's stepwise supervision.

    Options:
        prompt_key: the prompt, a string or an array of messages.
        completions_key: array of steps.
        labels_key: array of labels: true or false, or numbers.
        separator: ends each step but the last, as TRL's `step_separator`.
    """
    if not separator:
        raise ConfigError("separator is empty, so step boundaries are unknown")

    def convert(row: Row) -> Group:
        prompt = with_system_of(row, prompt_turns(value_at(row, prompt_key), prompt_key))
        texts = [
            as_text(step, f"{completions_key}[{i}]") for i, step in enumerate(as_list(value_at(row, completions_key), completions_key))
        ]
        labels = as_list(value_at(row, labels_key), labels_key)
        rewards = [float(label) if isinstance(label, bool) else as_number(label, f"{labels_key}[{i}]") for i, label in enumerate(labels)]
        return _judged(row, prompt, texts, rewards, separator)

    return convert


_SHEPHERD = {
    "input": "What is 2 + 3 * 4? Step 1: 3 * 4 is 12. ки\nStep 2: 2 + 12 is 15. The answer is: 15 ки",
    "label": "What is 2 + 3 * 4? Step 1: 3 * 4 is 12. +\nStep 2: 2 + 12 is 15. The answer is: 15 -",
}
_FIRST = "Step 1:"


@schema("math_shepherd", gives=Group, example=_SHEPHERD, further="steps")
def math_shepherd(*, input_key: str = "input", label_key: str = "label", tag: str = "ки") -> Convert:
    """Question and steps in one text, each step followed by a tag, and the same text with ``+`` or ``-`` in place of each tag.

    Options:
        input_key: the text with tags.
        label_key: the text with labels.
        tag: the tag after each step.
    """

    def convert(row: Row) -> Group:
        text, labelled = texts_of(row, input_key, label_key)
        parts = text.split(tag)
        if len(parts) < 2 or parts[-1].strip():
            raise Refused("bad_steps", f"{input_key!r} has {len(parts) - 1} marks {tag!r}, and {parts[-1].strip()[:40]!r} behind the last")
        rewards, at = list[float](), 0
        for number, part in enumerate(parts[:-1]):
            mark = at + len(part)
            if labelled[at:mark] != part or labelled[mark : mark + 1] not in ("+", "-"):
                raise Refused("bad_steps", f"{label_key!r} is not {input_key!r} with + or - behind step {number + 1}")
            rewards.append(1.0 if labelled[mark] == "+" else 0.0)
            at = mark + 1
        question, first, rest = parts[0].partition(_FIRST)
        if not first:
            raise Refused("bad_steps", f"{input_key!r} has no {_FIRST!r} behind its question")
        texts = [(first + rest).strip(), *(part.strip() for part in parts[1:-1])]
        return _judged(row, [turn(USER, needed(question.strip(), "empty_prompt", input_key))], texts, rewards, "\n")

    return convert


_PRM800K: dict[str, Any] = {
    "question": {"problem": "What is 2 + 3 * 4?"},
    "label": {
        "steps": [
            {"completions": [{"text": "3 * 4 is 12.", "rating": 1}], "human_completion": None, "chosen_completion": 0},
            {"completions": [{"text": "2 + 12 is 15.", "rating": -1}], "human_completion": None, "chosen_completion": None},
        ],
        "finish_reason": "found_error",
    },
}


@schema("prm800k", gives=Group, example=_PRM800K, further="steps")
def prm800k(*, separator: str = "\n") -> Convert:
    """OpenAI's PRM800K: the chosen completion of each step with its rating (-1, 0 or 1), and the first completion of a step in which none was chosen.

    Options:
        separator: ends each step but the last.
    """
    if not separator:
        raise ConfigError("separator is empty, so step boundaries are unknown")

    def convert(row: Row) -> Group:
        problem = as_text(value_at(as_mapping(value_at(row, "question"), "question"), "problem", "question.problem"), "question.problem")
        label = as_mapping(value_at(row, "label"), "label")
        label.get("finish_reason"), label.get("total_time")
        texts, rewards = list[str](), list[float]()
        for number, value in enumerate(as_list(value_at(label, "steps", "label.steps"), "label.steps")):
            where = f"label.steps[{number}]"
            step = as_mapping(value, where)
            chosen, human = step.get("chosen_completion"), step.get("human_completion")
            if chosen is None and human is not None:
                raise Refused("unrated_step", f"{where} was written by a person, and has no rating")
            completions = as_list(value_at(step, "completions", where), where)
            at = 0 if chosen is None else as_integer(chosen, f"{where}.chosen_completion")
            if not 0 <= at < len(completions):
                raise Refused("length_mismatch", f"{where} chooses completion {at} of {len(completions)}")
            for other in (
                *completions,
                *([] if human is None else [human]),
            ):  # those that were not chosen are left out, as the format means it
                each = as_mapping(other, where)
                [each.get(name) for name in ("text", "rating", "flagged", "source", "corrected_rating")]
            completion = as_mapping(completions[at], where)
            if completion.get("rating") is None:
                raise Refused("unrated_step", f"{where}: the completion that was chosen has no rating")
            texts.append(as_text(value_at(completion, "text", where), f"{where}.text"))
            rewards.append(as_number(completion["rating"], f"{where}.rating"))
            if chosen is None:
                break
        return _judged(row, [turn(USER, needed(problem, "empty_prompt", "question.problem"))], texts, rewards, separator)

    return convert
