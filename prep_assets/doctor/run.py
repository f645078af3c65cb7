"""A trainer's preparation and ours on the rows of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prep_assets.doctor import trl
from prep_assets.doctor.compare import LIBRARY, PIECES, TYPED, Difference, compare, meeting
from prep_assets.doctor.ours import Ours
from prep_assets.doctor.rules import RULES, Chat, Labelled, Stops
from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.samples import Sample
from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.encode import Places


@dataclass(frozen=True, slots=True)
class Compared:
    """One row on both sides: our render, our tokens, what the trainer trains of them, and how they differ."""

    id: str
    rendered: Rendered
    ours: Places
    ids: Sequence[int]
    labels: Sequence[bool]
    differences: tuple[Difference, ...]


@dataclass
class Diagnosis:
    """What was found.

    Attributes:
        how: whose code prepared the trainer's side.
        rows: how many were looked at.
        compared, equal: rows that both sides take, and those of them whose labels are all equal.
        refused: why we refuse rows, with how many.
        stopped: why the trainer does, with how many.
        reasons: (side, reason) → rows.
        tokens: (side, reason) → tokens.
        shown: rows that differ, the first of each reason first.
    """

    trainer: str
    how: str
    rows: int = 0
    compared: int = 0
    equal: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    shown: list[Compared] = field(default_factory=list)

    def add(self, row: Compared, most: int) -> None:
        """Count a row; it is shown where it differs in a way that was not seen before, or there is room."""
        self.compared += 1
        self.equal += not row.differences
        kinds = {(each.side, each.reason) for each in row.differences}
        is_new = bool(kinds - set(self.reasons))
        self.reasons.update(kinds)
        for each in row.differences:
            self.tokens[each.side, each.reason] += each.end - each.start
        if row.differences and most and (is_new or len(self.shown) < most):
            self.shown.append(row)


def diagnose(ours: Ours, tokenizer: Any, trainer: str, rows: Iterable[tuple[str, Sample]], *, most: int = 3) -> Diagnosis:
    """Compare on every row.

    Args:
        tokenizer: as transformers opens it, with the chat template that the trainer is given.
        trainer: a key of `RULES`.
        rows: record id and chat.
        most: how many rows that differ are kept to be shown; more where there are more reasons.

    Raises:
        ConfigError: no such trainer.
    """
    if trainer not in RULES:
        raise ConfigError(f"no trainer {trainer!r}{nearest(trainer, RULES) or '.'} Known: {', '.join(RULES)}")
    version = trl.installed() if trainer == "trl" else None
    name, _ = RULES[trainer]
    how = f"its own code, version {version}" if version else "rules read from its code; the trainer itself is not run"
    found = Diagnosis(name, how)
    taken = list(_taken(ours, rows, found))
    for (identity, rendered, places, _), labelled in zip(taken, _theirs(tokenizer, trainer, version, taken, found), strict=True):
        if labelled is None:
            continue
        ids, labels = labelled
        low, high = meeting(places.ids, ids)
        why = "" if low + high == max(len(ids), len(places.ids)) else _why_other_ids(ours, tokenizer, rendered, places)
        differences = compare(rendered, places, ids, labels, tokenizer.decode(ids[low : len(ids) - high]), why)
        found.add(Compared(identity, rendered, places, ids, labels, tuple(differences)), most)
    return found


def _why_other_ids(ours: Ours, tokenizer: Any, rendered: Rendered, places: Places) -> str:
    whole = list(tokenizer(rendered.text, add_special_tokens=False)["input_ids"])
    if whole == places.ids.tolist():
        return PIECES
    typed = any(token in rendered.text[start:end] for start, end in rendered.content for token in ours.encoder.vocabulary.control)
    return TYPED if typed else LIBRARY


Taken = tuple[str, Rendered, Places, Mapping[str, Any]]


def _taken(ours: Ours, rows: Iterable[tuple[str, Sample]], found: Diagnosis) -> Iterator[Taken]:
    """The rows that we do not refuse, with the messages of each."""
    for identity, sample in rows:
        found.rows += 1
        try:
            rendered, places = ours.row(sample)
            given = {"messages": ours.messages(sample), **({"tools": [*sample.tools]} if sample.tools else {})}
        except Refused as refusal:
            found.refused[f"{refusal.reason}: {refusal.detail}"] += 1
            continue
        yield identity, rendered, places, given


def _theirs(tokenizer: Any, trainer: str, version: str | None, taken: Sequence[Taken], found: Diagnosis) -> Iterator[Labelled | None]:
    """The trainer's ids and labels of each row; `None` where it stops."""
    if version:
        try:
            yield from trl.prepare(tokenizer, [given for *_, given in taken])
        except Stops as error:
            found.stopped[str(error)] += len(taken)
            yield from [None] * len(taken)
        return
    chat, (_, rule) = Chat(tokenizer), RULES[trainer]
    for *_, given in taken:
        try:
            yield rule(chat, given["messages"], given.get("tools"))
        except Stops as error:
            found.stopped[str(error)] += 1
            yield None
