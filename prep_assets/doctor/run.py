"""A trainer's preparation and ours on the rows of a file."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prep_assets.doctor.compare import LIBRARY, PIECES, TYPED, Difference, compare, meeting
from prep_assets.doctor.rules import RULES, Chat, Labelled, Ours, Stops
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
    version = trl_version() if trainer == "trl" else None
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
            yield from prepared_by_trl(tokenizer, [given for *_, given in taken])
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


def trl_version() -> str | None:
    """The version of TRL; `None` where it, or what its trainer needs, cannot be imported."""
    try:
        import datasets  # noqa: F401
        import trl
        from trl import SFTConfig, SFTTrainer  # noqa: F401
    except ImportError:
        return None
    return str(trl.__version__)


def prepared_by_trl(tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[Labelled]:
    """Ids and labels of every row, as `SFTTrainer` with ``assistant_only_loss`` has them.

    Raises:
        Stops: the trainer refuses the data set.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"output_dir": folder, "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True}
        try:
            config = SFTConfig(assistant_only_loss=True, max_length=None, packing=False, **options)
            trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list([*map(dict, rows)]), processing_class=tokenizer)
        except Exception as error:  # whatever it says, it is TRL's answer
            raise Stops(f"TRL stops: {type(error).__name__}: {error}") from error
        return [_labelled(trainer.data_collator([row])) for row in trainer.train_dataset]


def _labelled(batch: Mapping[str, Any]) -> Labelled:
    return batch["input_ids"][0].tolist(), (batch["labels"][0] != -100).tolist()
