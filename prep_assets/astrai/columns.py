"""What becomes of a record: arrays for each key of the store. How its texts become tokens and masks is a builder's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.config import Section, Source
from prep_assets.astrai.task import Task
from prep_assets.errors import Refused
from prep_assets.schemas.fields import as_list, as_mapping, as_number, as_text, value_at, wrong_type
from prep_assets.schemas.reader import Account
from prep_assets.schemas.view import View, peek, unread, whole

Text = TypeVar("Text")
"""What a builder makes of a sequence before it is tokenized."""


@dataclass(frozen=True, slots=True)
class Cells:
    """One key of one record.

    Attributes:
        values: 1-D, all elements one after another.
        lengths: of each element, where the key holds a list (the responses of a group); `None` for a flat sequence.
    """

    values: npt.NDArray[Any]
    lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """A token sequence and whether each token is trained: integers[n] and uint8[n]."""

    ids: npt.NDArray[Any]
    mask: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Row:
    """A record that can be kept.

    Attributes:
        cells: its arrays by key.
        cut: how many of its tokens were cut off at the end by ``max_seq_len``.
        dropped: fields that were left out before it was read, see `Account.note`.
        unread: fields with content that no section and no template read, and their values.
    """

    cells: Mapping[str, Cells]
    cut: int
    dropped: tuple[str, ...] = ()
    unread: tuple[tuple[str, Any], ...] = ()


class Builder(ABC, Generic[Text]):
    """Tokenizes and masks records.

    Attributes:
        ignore: fields that are left out before a record is read.
    """

    def __init__(self, task: Task, ignore: Sequence[str] = ()) -> None:
        self.task = task
        self._account = Account(ignore)

    def build(self, payloads: Sequence[Mapping[str, Any]]) -> list[Row | Refused]:
        """One result for each record, in order."""
        views = [self._account.view(payload) for payload in payloads]
        plans = [self._plan(view) for view in views]
        lists = [(key, part) for plan in plans if isinstance(plan, dict) for key, part in plan.items() if isinstance(part, list)]
        encoded = iter(self.encode([(key, text) for key, texts in lists for text in texts]))
        found = [self._row(plan, encoded) if isinstance(plan, dict) else plan for plan in plans]
        return [_with_unread(row, view) if isinstance(row, Row) else row for row, view in zip(found, views, strict=True)]

    @abstractmethod
    def sequence(self, source: Source, row: Mapping[str, Any]) -> Text:
        """The text of a flat output of a record."""

    @abstractmethod
    def element(self, section: Section, value: object, where: str) -> Text:
        """The text of one element of a list."""

    @abstractmethod
    def encode(self, texts: Sequence[tuple[str, Text]]) -> list[Tokens | Refused]:
        """One result for each text; the key of its output stands before it."""

    def trained(self, row: Row) -> Row | Refused:
        """`row`, or why its masks are not good enough."""
        return row

    def _plan(self, row: Mapping[str, Any]) -> dict[str, list[Text] | npt.NDArray[np.float32]] | Refused:
        try:
            require_equal_groups(self.task, row)
            return {key: self._output(source, row) for key, source in self.task.sources.items()}
        except Refused as refusal:
            refusal.stage = refusal.stage or "schema"
            return refusal

    def _output(self, source: Source, row: Mapping[str, Any]) -> list[Text] | npt.NDArray[np.float32]:
        section = source.sections[0]
        if source.is_value:
            return values_at(row, section.field)
        if not source.list_field:
            return [self.sequence(source, row)]
        elements = as_list(value_at(row, section.field), section.field)
        return [self.element(section, element, f"{section.field}[{i}]") for i, element in enumerate(elements)]

    def _row(self, plan: Mapping[str, list[Text] | npt.NDArray[np.float32]], encoded: Iterator[Tokens | Refused]) -> Row | Refused:
        """The cells of a record, each sequence cut to ``max_seq_len``; outputs in the order of the sources."""
        limit = self.task.pipeline.preprocessing.max_seq_len
        # every result is taken, also after a refusal: those of the next record follow
        results = {key: [next(encoded) for _ in part] for key, part in plan.items() if isinstance(part, list)}
        cells: dict[str, Cells] = {}
        cut = 0
        for key, planned in plan.items():
            if isinstance(planned, np.ndarray):
                cells[key] = Cells(planned)
                continue
            parts: list[Tokens] = []
            for result in results[key]:
                if isinstance(result, Refused):
                    return result
                parts.append(result)
            cut += sum(max(0, len(part.ids) - limit) for part in parts)
            lengths = tuple(min(limit, len(part.ids)) for part in parts) if self.task.sources[key].list_field else None
            cells[key] = Cells(np.concatenate([part.ids[:limit] for part in parts]), lengths)
            if (mask_key := self.task.mask_key(key)) in self.task.columns:
                cells[mask_key] = Cells(np.concatenate([part.mask[:limit] for part in parts]), lengths)
        return self.trained(Row(cells, cut))


def _with_unread(row: Row, view: View) -> Row:
    left = tuple((path, whole(value)) for path, value in unread(view))
    dropped = tuple(sorted(view.book.dropped))
    return replace(row, dropped=dropped, unread=left) if left or dropped else row


def messages_at(value: object, where: str) -> Sequence[Mapping[str, Any]]:
    """A list of messages, each with a role, and a content or calls of tools. Null is an empty list."""
    messages = [as_mapping(message, f"{where}[{i}]") for i, message in enumerate([] if value is None else as_list(value, where))]
    for i, message in enumerate(messages):
        as_text(value_at(message, "role", f"{where}[{i}]"), f"{where}[{i}].role")
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and peek(message, "tool_calls")):
            wrong_type(content, f"{where}[{i}].content", "a string, or null beside tool_calls")
    return messages


def values_at(row: Mapping[str, Any], field: str) -> npt.NDArray[np.float32]:
    """The finite number, or the list of them, under `field`: float32[n]. Refuses one that float32 does not hold."""
    value = value_at(row, field)
    numbers: Sequence[Any] = value if isinstance(value, list) else [value]
    exact = np.array([as_number(number, f"{field}[{i}]") for i, number in enumerate(numbers)], np.float64)
    with np.errstate(over="ignore"):
        found = exact.astype(np.float32)
    if not np.isfinite(found).all():
        raise Refused("out_of_range", f"{field!r} is {value}, which is not finite as float32", stage="schema")
    return found


def require_equal_groups(task: Task, row: Mapping[str, Any]) -> None:
    """Refuse a record whose lists differ in length: a reward for each response, a response for each reward."""
    lists = {
        section.field: source for source in task.sources.values() for section in source.sections if source.list_field or source.is_value
    }
    if not any(source.list_field for source in lists.values()):
        return
    sizes = {
        field: 1 if source.is_value and not isinstance(value_at(row, field), list) else len(as_list(value_at(row, field), field))
        for field, source in lists.items()
    }
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise Refused("length_mismatch", f"the lists of one group differ in length or are empty: {sizes}", stage="schema")


def require_length(task: Task, texts: Sequence[str]) -> None:
    """Refuse a document outside ``min_chars … max_chars``, both included, counted in code points over all its sections."""
    length, steps = sum(map(len, texts)), task.pipeline.preprocessing
    if not steps.min_chars <= length <= steps.max_chars:
        reason = "too_short" if length < steps.min_chars else "too_long"
        raise Refused(reason, f"{length:,} characters; min_chars is {steps.min_chars:,}, max_chars {steps.max_chars:,}", stage="schema")


def nothing_there(source: Source, row: Mapping[str, Any]) -> Refused:
    """The refusal of a record that has no text in any field of `source`."""
    fields = ", ".join(repr(section.field) for section in source.sections)
    return Refused("empty", f"no text under {fields}; the record has {', '.join(map(repr, row)) or 'no fields'}", stage="schema")
