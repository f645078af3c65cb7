"""The examples of one block, in the order of their records: some with renders of their own, some written by the layouts of their forms, some with the
tokens that they bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.examples import Item
from prep_assets.samples import Sample
from prep_assets.templates.answers import left_out
from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.cuts import Cuts, Cutter
from prep_assets.tokenization.encode import Encoded
from prep_assets.tokenization.forms import FormCuts, merged


@dataclass
class Block:
    """Examples in the order of their records.

    Attributes:
        at: the item of each.
        renders: the render of each; `None` for those in `groups`.
        groups: which examples are of one form, and how these are cut.
    """

    at: list[Item] = field(default_factory=list)
    renders: list[Rendered | None] = field(default_factory=list)
    groups: list[tuple[Sequence[int], FormCuts]] = field(default_factory=list)

    def add(self, item: Item, rendered: Rendered | None) -> None:
        """One more example."""
        self.at.append(item)
        self.renders.append(rendered)

    def kept(self, encoded: Encoded) -> list[Item]:
        """The items of those that are kept."""
        if len(encoded.kept) == len(self.at):
            return self.at
        return [self.at[number] for number in encoded.kept.tolist()]

    def cuts(self, cutter: Cutter) -> Cuts:
        """All of them, cut."""
        rows = {number: cutter.row(rendered) for number, rendered in enumerate(self.renders) if rendered is not None}
        return merged(len(self.at), rows, [(np.array(numbers, np.int64), cut) for numbers, cut in self.groups])

    def put(self, number: int, rendered: Rendered) -> None:
        """Give an example another render."""
        self.renders[number] = rendered
        self._without({number})

    def _without(self, gone: set[int]) -> None:
        left = []
        for numbers, cut in self.groups:
            keep = [at for at, number in enumerate(numbers) if number not in gone]
            if len(keep) == len(numbers):
                left.append((numbers, cut))
            elif keep:
                left.append(([numbers[at] for at in keep], cut.of(keep)))
        self.groups = left

    def of(self, chosen: Sequence[int]) -> Block:
        """Only the chosen examples."""
        self._without(set(range(len(self.at))) - set(chosen))
        number = {old: new for new, old in enumerate(chosen)}
        groups = [([number[old] for old in numbers], cut) for numbers, cut in self.groups]
        return Block([self.at[old] for old in chosen], [self.renders[old] for old in chosen], list(groups))

    def left_out(self, kept: Sequence[int]) -> int:
        """How many turns of these examples lost their reasoning."""
        given = ((self.at[number].given, rendered) for number in kept if (rendered := self.renders[number]) is not None)
        alone = sum(left_out(example, rendered) for example, rendered in given if isinstance(example, Sample))
        groups = ((set(numbers), cut.form.layout.left_out) for numbers, cut in self.groups if cut.form.layout.left_out)
        return alone + sum(count * len(numbers.intersection(kept)) for numbers, count in groups)


Part = tuple[list[Item], Encoded]
"""Kept items with their tokens."""


def in_order(items: Sequence[Item], texts: Part, brought: Part) -> Part:
    """Two parts of a block as one.

    Args:
        items: the whole block.
        texts: the part that was tokenized; images stand in it alone.
        brought: the part that brings its ids.
    """
    places, parts = {id(item.record): number for number, item in enumerate(items)}, (texts, brought)
    found = sorted((places[id(item.record)], part, at) for part, (kept, _) in enumerate(parts) for at, item in enumerate(kept))
    spans = [(parts[part][1], *parts[part][1].offsets[at : at + 2].tolist()) for _, part, at in found]
    ids = np.concatenate([texts[1].ids[:0], *(each.ids[low:high] for each, low, high in spans)])
    loss = np.concatenate([texts[1].loss[:0], *(each.loss[low:high] for each, low, high in spans)])
    offsets = np.cumsum([0, *(high - low for _, low, high in spans)], dtype=np.int64)
    taken = np.array([parts[part][1].taken[at] for _, part, at in found], np.int64)
    images = texts[1].images
    if len(images):
        numbers = np.array([new for new, (_, part, _) in enumerate(found) if part == 0], np.int64)
        images = replace(images, record=numbers[images.record])
    return [parts[part][0][at] for _, part, at in found], Encoded(ids, loss, offsets, np.arange(len(found)), (), images, taken)


def firsts(items: Sequence[Item]) -> npt.NDArray[np.bool_]:
    """Which of the kept examples are the first of their record: bool[n]."""
    return np.array([number == 0 or item.record is not items[number - 1].record for number, item in enumerate(items)], bool)
