"""One batch of rows that are cut one by one and of groups that are cut all at once, in the order of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.tokenization.cuts import Cuts, Ints, Row, bounds, moved, of_rows
from prep_assets.tokenization.forms import FormCuts
from prep_assets.tokenization.truncation import Prompt

Group = tuple[Ints, FormCuts]
"""Which rows of a batch, and how these are cut."""


def merged(count: int, rows: Mapping[int, Row], groups: Sequence[Group]) -> Cuts:
    """A batch of `count` rows, each of which is in `rows` or in one of `groups`."""
    alone = np.array(list(rows), np.int64)
    single = of_rows(list(rows.values()))
    if not groups:
        return single
    batch = _Batch(*(np.zeros(count, np.int64) for _ in range(4)))
    batch.measure(alone, list(rows.values()), groups)
    items, segments, breaks, starts = (bounds(each) for each in (batch.items, batch.segments, batch.breaks, batch.bytes))
    made = Cuts(
        [],
        np.zeros(int(segments[-1]), bool),
        np.empty(int(items[-1]), np.int64),
        np.empty(int(items[-1]), np.int64),
        items,
        starts,
        np.empty(int(breaks[-1]), np.int64),
        np.empty(int(breaks[-1]), np.float32),
        {},
        [],
        _texts(rows, groups),
    )
    texts = np.empty(int(segments[-1]), object)
    for at, cut in groups:
        _put_group(made, texts, at, cut, (items, segments, breaks, starts))
    if len(alone):
        _put_rows(made, texts, single, batch, alone, (items, segments, breaks, starts))
    made.segments.extend(texts.tolist())
    return made


@dataclass(frozen=True, slots=True)
class _Batch:
    """How many items, segments, breaks and bytes each row has: int64[n] each."""

    items: Ints
    segments: Ints
    breaks: Ints
    bytes: Ints

    def measure(self, alone: Ints, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Fill in the sizes."""
        self.items[alone] = [len(row.items) for row in rows]
        self.segments[alone] = [len(row.segments) for row in rows]
        self.breaks[alone] = [len(row.breaks) for row in rows]
        self.bytes[alone] = [row.item_ends[-1] if row.item_ends else 0 for row in rows]
        for at, cut in groups:
            self.items[at], self.segments[at], self.breaks[at] = len(cut.form.items), len(cut.form.segments), len(cut.form.weights)
            self.bytes[at] = cut.item_ends[:, -1]


def _put_group(made: Cuts, texts: npt.NDArray[np.object_], rows: Ints, cut: FormCuts, places: tuple[Ints, ...]) -> None:
    form = cut.form
    items, segments, breaks, starts = (each[rows] for each in places)
    here = items[:, None] + np.arange(len(form.items))
    made.items[here], made.item_ends[here] = form.items, cut.item_ends + starts[:, None]
    here = breaks[:, None] + np.arange(len(form.weights))
    made.breaks[here], made.weights[here] = cut.breaks + starts[:, None], form.weights
    made.is_first[segments[: len(segments) * bool(form.segments)]] = form.is_first
    for number, column in enumerate(cut.segments()):
        texts[segments + number] = column
    if cut.prompts.size:
        for row, edges in zip(rows.tolist(), (cut.prompts + starts[:, None]).tolist(), strict=True):
            made.prompts[row] = list(map(Prompt, edges[::2], edges[1::2], form.prompt_roles))


def _put_rows(
    made: Cuts, texts: npt.NDArray[np.object_], single: Cuts, batch: _Batch, alone: Ints, places: tuple[Ints, Ints, Ints, Ints]
) -> None:
    def ranges(starts: Ints, sizes: Ints) -> Ints:
        """The places of all rows, one run after the other."""
        counts = sizes[alone]
        return np.repeat(starts[alone] - bounds(counts)[:-1], counts) + np.arange(counts.sum())

    items, segments, breaks, starts = places
    shift = starts[alone] - single.starts[:-1]
    here = ranges(items, batch.items)
    made.items[here], made.item_ends[here] = single.items, single.item_ends + np.repeat(shift, batch.items[alone])
    here = ranges(breaks, batch.breaks)
    made.breaks[here], made.weights[here] = single.breaks + np.repeat(shift, batch.breaks[alone]), single.weights
    here = ranges(segments, batch.segments)
    made.is_first[here], texts[here] = single.is_first, np.array([*single.segments, None], object)[:-1]
    for number, (row, by) in enumerate(zip(alone.tolist(), shift.tolist(), strict=True)):
        if prompts := single.prompts[number]:
            made.prompts[row] = moved(prompts, by)
    for number, first, count, path in single.images:
        row = int(alone[number])
        made.images.append((row, first - int(single.item_bounds[number]) + int(items[row]), count, path))


def _texts(rows: Mapping[int, Row], groups: Sequence[Group]) -> Callable[[int], str]:
    def text(row: int) -> str:
        if row in rows:
            return rows[row].text
        at, cut = next((at, cut) for at, cut in groups if row in at)
        return cut.text(int(np.flatnonzero(at == row)[0]))

    return text
