"""Names of speakers where the chat template shows none: left out and counted, or written in front of what is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import Refused
from prep_assets.samples import TEXT, THINKING, TOOL, Example, Region, Sample, Turn, over_turns
from prep_assets.schemas.plain_rows import plain_rows_of, reads_plain
from prep_assets.schemas.registry import Convert
from prep_assets.schemas.view import View, join


def without_speakers(mode: Literal["leave_out", "write"], convert: Convert) -> Convert:
    """The row function `convert`, in whose examples no turn but a tool's has a name. Where names are left out, their fields count as passed over."""

    def unnamed(row: Mapping[str, Any]) -> Example | None:
        example, names = convert(row), set[str]()

        def change(turns: Sequence[Turn]) -> tuple[Turn, ...]:
            names.update(turn.name for turn in turns if _speaks(turn) and turn.name)
            return tuple(_changed(turn, mode) if _speaks(turn) else turn for turn in turns)

        if example is None or (isinstance(example, Sample) and example.tokenized is not None):
            return example
        example = over_turns(example, change)
        if mode == "leave_out" and isinstance(row, View):
            row.book.dropped.update(join(view.path, "name") for view in row.book.views if dict.get(view, "name") in names)
        return example

    plain = plain_rows_of(convert)  # whose messages have no names
    return unnamed if plain is None else reads_plain(unnamed, plain)


def _speaks(turn: Turn) -> bool:
    return turn.role != TOOL and turn.name is not None


def _changed(turn: Turn, mode: str) -> Turn:
    if mode == "leave_out" or not (turn.name or "").strip():
        return replace(turn, name=None)
    prefix, regions = f"{turn.name}: ", list(turn.regions)
    at = next((at for at, region in enumerate(regions) if region.kind != THINKING and not region.drop), len(regions))
    first = regions[at] if at < len(regions) else Region(TEXT, "")
    if first.kind != TEXT:
        regions.insert(at, Region(TEXT, prefix, first.loss_weight))
    elif first.text.lstrip().startswith(tuple(opening for opening, _ in REASONING_TAGS)):
        detail = (
            f"{turn.name!r} speaks in a text that begins with reasoning, {first.text[:40]!r}, and speaker_names: write puts names there. "
        )
        raise Refused("name_before_reasoning", f"{detail}Put the reasoning into a field of its own, or set speaker_names: leave_out")
    else:
        regions[at : at + 1] = [replace(first, text=prefix + first.text)]
    return replace(turn, name=None, regions=tuple(regions))
