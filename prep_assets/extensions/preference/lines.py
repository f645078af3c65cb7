"""Lines of preferences in TRL's forms: ``{prompt, chosen, rejected}`` for a pair, ``{prompt, completion, label}`` for a labelled answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from prep_assets.errors import Refused
from prep_assets.extensions.lines.write import extra_columns, reject_fractions, sample_of, says_something, turns_of, weighted, written
from prep_assets.extensions.preference.config import Preference
from prep_assets.pipeline.asset import Contradiction, Line, LineOf, RowForm
from prep_assets.pipeline.examples import AnyExample, as_example
from prep_assets.pipeline.media import reject_files
from prep_assets.pipeline.sources import unrendered_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import ASSISTANT, COMPLETION, USER, Group, Pair, PlainChat, PlainPair, Sample, Turn, changed

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def preference_row(example: object, form: RowForm) -> dict[str, Any]:
    """The row of a pair, or of a sample with a label.

    Raises:
        Refused: the example is neither; an answer is empty or both are equal; the conversation does not fit the form.
    """
    if isinstance(example, PlainPair):
        return _plain_row(example, form) or preference_row(example.pair(), form)
    if isinstance(example, Sample) and example.label is not None:
        row = _row({"prompt": example.turns[:-1], "completion": example.turns[-1:]}, extra_columns(example), form)
        return {**row, "label": example.label, **extra_columns(example)}
    if isinstance(example, Group):
        return _ranked_row(example, form)
    if not isinstance(example, Pair):
        raise Refused("not_a_pair", f"the schema gives {type(example).__name__}, preferences need a Pair or a label", stage="pair")
    row = _row({"prompt": example.prompt, "chosen": example.chosen, "rejected": example.rejected}, extra_columns(example), form)
    if row["chosen"] == row["rejected"]:
        raise Refused("equal_answers", "chosen and rejected are the same", stage="pair")
    if example.margin is None:
        return row | extra_columns(example)
    if abs(example.margin) > _LARGEST_FLOAT32:
        raise Refused("margin_out_of_range", f"a margin of {example.margin:g}, which no float32 holds", stage="pair")
    return row | extra_columns(example) | {"margin": example.margin}


TIED, LEFT_OUT = "tied", "answers_left_out"
"""Counts of ranked lines with two equal rewards, and of responses that are neither desirable nor undesirable."""


def is_tied(row: Mapping[str, Any]) -> bool:
    """Whether two responses of a ranked line have the same reward."""
    return "rewards" in row and len(set(row["rewards"])) < len(row["rewards"])


def left_out(example: AnyExample) -> int:
    """How many responses of a group have no label, where others have one."""
    return example.labels.count(None) if isinstance(example, Group) else 0


def _two_labels(row: Mapping[str, Any]) -> Refused:
    detail = "one answer to one prompt is labelled both True and False in this domain. Keep the right one of the two"
    return Refused("contradicting_labels", detail, stage="pair")


LABELS = Contradiction(("label",), lambda row: str(row["label"]) if "label" in row else None, _two_labels)
"""No answer of a domain is labelled good and bad."""


def _ranked_row(group: Group, form: RowForm) -> dict[str, Any]:
    """All responses, the best first, with their rewards, by which they are ordered."""
    if len(group.responses) < 2 or len(set(group.rewards)) < 2:
        raise Refused(
            "equal_rewards",
            f"{len(group.responses)} responses with the rewards {[*group.rewards]}, which no order tells apart",
            stage="pair",
        )
    if max(map(abs, group.rewards)) > _LARGEST_FLOAT32:
        raise Refused("reward_out_of_range", f"rewards {[*group.rewards]}, one of which no float32 holds", stage="pair")
    order = sorted(range(len(group.rewards)), key=lambda at: -group.rewards[at])
    parts = {"prompt": group.prompt, **{f"responses[{at}]": group.responses[at] for at in order}}
    row = _row(parts, extra_columns(group), form)
    ranked = {"prompt": row.pop("prompt"), "responses": [*row.values()], "rewards": [group.rewards[at] for at in order]}
    return ranked | extra_columns(group)


def labelled_answers(example: Group) -> list[Sample]:
    """A group of labelled responses as an answer each, without those that have no label."""
    more: dict[str, Any] = {"tools": example.tools, "documents": example.documents, "template_options": example.template_options}
    return [
        Sample((*example.prompt, *response), label=label, **more)
        for response, label in zip(example.responses, example.labels, strict=True)
        if label is not None
    ]


def _plain_row(pair: PlainPair, form: RowForm) -> dict[str, Any] | None:
    """The row of a plain pair; `None` if a string cannot hold its prompt."""
    roles, texts = pair.prompt.roles, pair.prompt.texts
    if form == "text":
        return {"prompt": texts[0], "chosen": pair.chosen, "rejected": pair.rejected} if roles == (USER,) else None
    prompt = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    chosen, rejected = ([{"role": ASSISTANT, "content": answer}] for answer in (pair.chosen, pair.rejected))
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def _row(parts: Mapping[str, Sequence[Turn]], columns: dict[str, Any], form: RowForm) -> dict[str, Any]:
    reject_files([turn for turns in parts.values() for turn in turns], "pair")
    parts = {part: turns if part != "prompt" else [weighted(turn, None) for turn in turns] for part, turns in parts.items()}
    reject_fractions([turn for turns in parts.values() for turn in turns], "pair")
    row = {part: written(turns, form, columns, "pair") if turns else "" for part, turns in parts.items()}
    for part, value in row.items():
        if not says_something(value):
            raise Refused(f"empty_{part.partition('[')[0]}", f"the {part} is empty", stage="pair")
    return row


def pair_line(workspace: Workspace) -> LineOf:
    """Lines of pairs and of labelled answers."""
    reasoning = unrendered_reasoning(workspace.family(Preference))

    def line(content: AnyExample) -> tuple[AnyExample, Line]:
        plain = isinstance(content, PlainPair) and reasoning.leaves((*content.prompt.texts, content.chosen, content.rejected))
        example = content if plain else reasoning.read(as_example(content))
        if isinstance(example, Group) and example.labels:
            answers = labelled_answers(example)
            return example, lambda form: [preference_row(answer, form) for answer in answers]
        return example, partial(preference_row, example)

    return line


# The conversations of a line.


def pair_sample(row: Mapping[str, Any], side: str) -> Sample:
    """The conversation of one side of a pair: the prompt has weight 0, regions of the answer have weight 1 unless the row sets another."""
    prompt = [weighted(turn, 0.0) for turn in turns_of(row["prompt"], USER)]
    answer = [_as_answer(turn) if turn.role in (ASSISTANT, COMPLETION) else weighted(turn, 0.0) for turn in turns_of(row[side], ASSISTANT)]
    return sample_of(row, [*prompt, *answer])


def plain_sides(row: Mapping[str, Any], answers: Sequence[str]) -> list[PlainChat | None]:
    """The conversations of a pair's sides in columns, without weights; `None` if a message is more than text, the row has extra columns, or the answer is
    not one turn of an assistant."""
    prompt = _plain(row["prompt"], USER) if row.keys() <= {"prompt", "chosen", "rejected", "margin"} else None
    return [_plain_side(prompt, _plain(row[side], ASSISTANT)) if prompt is not None else None for side in answers]


def _plain_side(prompt: PlainChat, answer: PlainChat | None) -> PlainChat | None:
    if answer is None or len(answer.roles) != 1 or answer.roles[0] not in (ASSISTANT, COMPLETION):
        return None
    return PlainChat(prompt.roles + answer.roles, prompt.texts + answer.texts)


def _plain(value: str | Sequence[Mapping[str, Any]], role: str) -> PlainChat | None:
    """The plain turns of a column; `role` is the role of a string. `None` if a message is more than text."""
    if isinstance(value, str):
        return PlainChat((role,), (value,))
    if {*map(len, value)} - {2} or {type(message["content"]) for message in value} - {str}:
        return None
    return PlainChat(tuple([message["role"] for message in value]), tuple([message["content"] for message in value]))


def _as_answer(turn: Turn) -> Turn:
    return changed(
        turn, regions=tuple(region if region.loss_weight is not None else changed(region, loss_weight=1.0) for region in turn.regions)
    )
