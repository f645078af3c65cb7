"""A form of plain chats in bytes: where things stand in the renders of many chats with the same roles, from the lengths of their texts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.plain_forms import Edge, PlainForm

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where things stand in the renders of some chats: see `plain_blocks`."""

    items: Ints
    stretches: Ints
    weights: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class BytesForm:
    """A form in bytes.

    Attributes:
        form: the same in characters.
        written: what stands before, between and after the texts.
        frames: int64[t + 1], bytes of each of these.
        turns: int64[t], which text of a chat stands in each gap.
        stretches: int64[s, 2, 2], begin and end of each trained stretch: how many texts end before it, and so many bytes after these.
        weights: float32[s].
        controls: int64[c, 2, 2], the same of each control token.
        tokens: int64[c], their ids.
        stops: the tokens that end turns.
    """

    form: PlainForm
    written: tuple[bytes, ...]
    frames: Ints
    turns: Ints
    stretches: Ints
    weights: npt.NDArray[np.float32]
    controls: Ints
    tokens: Ints
    stops: frozenset[str]

    @classmethod
    def of(cls, form: PlainForm, control: Mapping[str, int]) -> BytesForm | None:
        """A form in bytes; `None` where something in it begins or ends inside a text, so that each chat has to be looked at.

        Args:
            control: the tokenizer's control tokens and their ids.
        """
        pairs = [(start, end) for start, end, _, _ in form.stretches]
        if any(start[0] != end[0] for start, end in form.controls):
            return None
        written = [form.frames[start[0]][start[1] : end[1]] for start, end in form.controls]
        if any(edge[1] > len(form.frames[edge[0]]) for pair in (*pairs, *form.controls) for edge in pair):
            return None
        if any(text not in control for text in written) or not all(_ends_with(form, end, stop) for _, end, _, stop in form.stretches):
            return None
        frames = tuple(frame.encode() for frame in form.frames)
        return cls(
            form,
            frames,
            np.array([len(frame) for frame in frames]),
            np.array(form.turns, np.int64),
            _in_bytes(form, pairs),
            np.array([weight for _, _, weight, _ in form.stretches], np.float32),
            _in_bytes(form, form.controls),
            np.array([control[text] for text in written], np.int64),
            frozenset(stop for *_, stop in form.stretches if stop),
        )

    def stripped(self, texts: Sequence[str]) -> list[bytes]:
        """The texts of any chat as its render shows them, in its order."""
        return [text.encode() for text in self.form.shown(texts)]

    def placed(self, rows: Ints, lengths: Ints, base: Ints) -> Placed:
        """Where things stand in the renders of these rows.

        Args:
            rows: int64[n], their numbers.
            lengths: int64[n, t], bytes of their texts as the renders show them.
            base: where the render of each number begins, and the end of the last.
        """
        ends = np.zeros((len(rows), len(self.frames)), np.int64)
        np.cumsum(lengths + self.frames[:-1], axis=1, out=ends[:, 1:])
        low, high = (ends[:, self.stretches[:, side, 0]] + self.stretches[:, side, 1] for side in (0, 1))
        of_row = np.repeat(rows, len(self.weights))
        stretches = np.stack([of_row, low.ravel(), high.ravel()], axis=1)
        return Placed(self._items(ends, base[rows], base[rows + 1]), stretches, np.tile(self.weights, len(rows)))

    def _items(self, ends: Ints, first: Ints, last: Ints) -> Ints:
        low, high = (first[:, None] + ends[:, self.controls[:, side, 0]] + self.controls[:, side, 1] for side in (0, 1))
        begins = np.concatenate([first[:, None], high], axis=1).ravel()
        ends = np.concatenate([low, last[:, None]], axis=1).ravel()
        ordinary = np.stack([begins, ends, np.full(len(begins), -1)], axis=1)
        control = np.stack([low.ravel(), high.ravel(), np.tile(self.tokens, len(first))], axis=1)
        return np.concatenate([ordinary[begins < ends], control])


def _in_bytes(form: PlainForm, pairs: Sequence[tuple[Edge, Edge]]) -> Ints:
    places = [[(gap, len(form.frames[gap][:after].encode())) for gap, after in pair] for pair in pairs]
    return np.array(places, np.int64).reshape(len(pairs), 2, 2)


def _ends_with(form: PlainForm, end: Edge, stop: str) -> bool:
    """Whether a stretch that ends there ends with its stop token."""
    return form.frames[end[0]][: end[1]].rstrip().endswith(stop)
