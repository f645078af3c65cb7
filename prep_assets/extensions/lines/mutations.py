"""What the selftest does to lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from prep_assets.extensions.lines.proofs import Line
from prep_assets.proofs.mutations import Change, mutate_one

LOST = object()
"""In the place of a value that is taken away."""


def with_fields(line: Line, **changes: Any) -> Line | None:
    """Return the line with other field values; `None` where nothing changes."""
    stored = {key: value for key, value in {**line.stored, **changes}.items() if value is not LOST}
    same = stored == line.stored and [*map(type, stored.values())] == [*map(type, line.stored.values())]
    return None if same else replace(line, stored=stored)


def field(name: str, value: Callable[[Any], Any]) -> Change:
    """Mutate one field of a line that has it."""
    return mutate_one(lambda line: with_fields(line, **{name: value(line.stored[name])}) if name in line.stored else None)


def of_next_line(name: str) -> Change:
    """Give every line a field of the next one."""

    def changed(lines: Sequence[Line], at: int) -> list[Line] | None:
        values = [line.stored.get(name) for line in lines]
        if len({str(value) for value in values}) < 2:
            return None
        shifted = zip(lines, [*values[1:], values[0]], strict=True)
        return [line if value is None else replace(line, stored={**line.stored, name: value}) for line, value in shifted]

    return changed


def mutate_last_text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """Apply `change` to a text, to the last message, or to the last part of its content. A message without text, such as a lone tool call, stays."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        key = next((key for key in ("text", "content") if value[-1].get(key)), None)
        return value if key is None else [*value[:-1], {**value[-1], key: changed(value[-1][key])}]

    return changed


half_as_long = mutate_last_text(lambda text: text[: len(text) // 2] or text + text)
longer = mutate_last_text(lambda text: text + " Hurry.")


def blank(value: Any) -> Any:
    """A text, or messages, with white space alone and no call."""
    return " " if isinstance(value, str) else [{"role": value[-1]["role"], "content": " "}]


row_lost = mutate_one(lambda line: replace(line, made=None))
"""The row of a line no longer gives a line."""
