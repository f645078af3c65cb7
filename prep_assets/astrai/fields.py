"""What a section takes from a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.config import Source
from prep_assets.astrai.task import Task
from prep_assets.errors import Refused
from prep_assets.schemas.fields import as_list, as_mapping, as_number, as_text, value_at, wrong_type
from prep_assets.schemas.sections import plain_text
from prep_assets.schemas.view import peek


def text_at(row: Mapping[str, Any], field: str) -> str:
    """The text under `field`; a number as JSON writes it, null and absent as no text."""
    return plain_text(row.get(field), field)


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
    sizes = {field: _size(row, field, source) for field, source in lists.items()}
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise Refused("length_mismatch", f"the lists of one group differ in length or are empty: {sizes}", stage="schema")


def _size(row: Mapping[str, Any], field: str, source: Source) -> int:
    value = value_at(row, field)
    if isinstance(value, list):
        return len(value)
    return 1 if source.is_value else len(as_list(value, field))


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
