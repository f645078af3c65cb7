"""Rows of preferences: ``{prompt, chosen, rejected}`` of a pair, ``{prompt, completion, label}`` of a labelled answer, in TRL's forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prep_assets.assets.writing.images import refuse_images
from prep_assets.assets.writing.message_rows import (
    Columns,
    RowForm,
    extra_columns,
    refuse_fractions,
    sample_of,
    says_something,
    turns_of,
    written,
)
from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, USER, Pair, PlainChat, PlainPair, Sample, Turn
from prep_assets.stores.lines import LinesWriter

UNPAIRED, UNPAIRED_TEST = "unpaired", "unpaired_test"


def preference_row(example: object, form: RowForm) -> Columns:
    """The row of a pair, or of a sample with a label.

    Raises:
        Refused: neither of them; an empty or equal answer; a conversation that the form cannot hold.
    """
    if isinstance(example, PlainPair):
        return _plain_row(example, form) or preference_row(example.pair(), form)
    if isinstance(example, Sample) and example.label is not None:
        row = _row({"prompt": example.turns[:-1], "completion": example.turns[-1:]}, extra_columns(example), form)
        return {**row, "label": example.label, **extra_columns(example)}
    if not isinstance(example, Pair):
        raise Refused("not_a_pair", f"the schema gives {type(example).__name__}, preferences need a Pair or a label", stage="pair")
    row = _row({"prompt": example.prompt, "chosen": example.chosen, "rejected": example.rejected}, extra_columns(example), form)
    if row["chosen"] == row["rejected"]:
        raise Refused("equal_answers", "chosen and rejected are the same", stage="pair")
    return row | extra_columns(example) | ({} if example.margin is None else {"margin": example.margin})


def _plain_row(pair: PlainPair, form: RowForm) -> Columns | None:
    """The row of a plain pair; `None` where a string cannot hold its prompt."""
    roles, texts = pair.prompt.roles, pair.prompt.texts
    if form == "text":
        return {"prompt": texts[0], "chosen": pair.chosen, "rejected": pair.rejected} if roles == (USER,) else None
    prompt = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    chosen, rejected = ([{"role": ASSISTANT, "content": answer}] for answer in (pair.chosen, pair.rejected))
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def _row(parts: Mapping[str, Sequence[Turn]], columns: Columns, form: RowForm) -> Columns:
    refuse_images([turn for turns in parts.values() for turn in turns], "pair")
    parts = {part: turns if part != "prompt" else [_weighted(turn, None) for turn in turns] for part, turns in parts.items()}
    refuse_fractions([turn for turns in parts.values() for turn in turns], "pair")
    row = {part: written(turns, form, columns, "pair") if turns else "" for part, turns in parts.items()}
    for part, value in row.items():
        if not says_something(value):
            raise Refused(f"empty_{part}", f"the {part} is empty", stage="pair")
    return row


def pair_sample(row: Mapping[str, Any], side: str) -> Sample:
    """The conversation of one side of a pair: the prompt with weight 0, the answer with weight 1, but for what of it has another weight."""
    prompt = [_weighted(turn, 0.0) for turn in turns_of(row["prompt"], USER)]
    answer = [_as_answer(turn) if turn.role in (ASSISTANT, COMPLETION) else _weighted(turn, 0.0) for turn in turns_of(row[side], ASSISTANT)]
    return sample_of(row, [*prompt, *answer])


def plain_sides(row: Mapping[str, Any], sides: Sequence[str]) -> list[PlainChat | None]:
    """The same of both in columns, which leave out the weights; `None` where a message is more than a text, something stands beside the turns, or the
    answer is not one turn of an assistant."""
    prompt = _plain(row["prompt"], USER) if row.keys() <= {"prompt", "chosen", "rejected", "margin"} else None
    return [_plain_side(prompt, _plain(row[side], ASSISTANT)) if prompt is not None else None for side in sides]


def _plain_side(prompt: PlainChat, answer: PlainChat | None) -> PlainChat | None:
    if answer is None or len(answer.roles) != 1 or answer.roles[0] not in (ASSISTANT, COMPLETION):
        return None
    return PlainChat(prompt.roles + answer.roles, prompt.texts + answer.texts)


def _plain(value: str | Sequence[Mapping[str, Any]], role: str) -> PlainChat | None:
    """The turns of a column, each of one text; `role` is that of a string."""
    if isinstance(value, str):
        return PlainChat((role,), (value,))
    if {*map(len, value)} - {2} or {type(message["content"]) for message in value} - {str}:
        return None
    return PlainChat(tuple([message["role"] for message in value]), tuple([message["content"] for message in value]))


def _as_answer(turn: Turn) -> Turn:
    return replace(turn, regions=tuple(r if r.loss_weight is not None else replace(r, loss_weight=1.0) for r in turn.regions))


def _weighted(turn: Turn, weight: float | None) -> Turn:
    if all(region.loss_weight == weight for region in turn.regions):
        return turn
    return replace(turn, regions=tuple(replace(region, loss_weight=weight) for region in turn.regions))


@dataclass(slots=True)
class UnpairedFiles:
    """``unpaired.jsonl`` and its test file: one answer with a label a line, as KTO trains on them, beside the pairs.

    They are opened when the first labelled answer comes, so that they are there only where a domain gives labelled answers.

    Attributes:
        payload, names, seed: the store's folder, its domains, and the seed of the training file's order; `None`: the order of the source.
    """

    payload: Path
    names: tuple[str, ...]
    seed: int | None
    stack: ExitStack
    _writers: dict[bool, LinesWriter] = field(default_factory=dict)

    def append(self, row: Mapping[str, Any], to_test: bool, **origin: int) -> None:
        """Append one row to the training or the held-out file."""
        if not self._writers:
            self._writers = {
                False: self.stack.enter_context(LinesWriter(self.payload, UNPAIRED, self.names, shuffle_seed=self.seed)),
                True: self.stack.enter_context(LinesWriter(self.payload, UNPAIRED_TEST, self.names)),
            }
        self._writers[to_test].append(row, **origin)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows are in each file, for the manifest; nothing where there is none."""
        return {f"unpaired_{'test' if to_test else 'train'}": len(writer) for to_test, writer in self._writers.items()}
