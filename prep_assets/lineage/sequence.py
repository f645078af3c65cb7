"""A record as one sequence of tokens, made from its source once more, with what of the text each token stands for and why it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.lineage.why import Why, why_in_render
from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.vocabulary import Vocabulary

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """One record of a token store.

    Attributes:
        text: its text: the render, or what sampled ids decode to.
        ids, loss: int64[T], float32[T]: what the store must hold; weights below 0 where a token is not attended.
        starts, ends: int64[T], the characters of `text` that each token stands for; none, for tokens that the house writes around it.
        why: number of a token → why it is trained or not.
    """

    text: str
    ids: Ints
    loss: npt.NDArray[np.float32]
    starts: Ints
    ends: Ints
    why: Callable[[int], Why]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int) -> Sequence:
        """The sequence from one token on."""
        rest = slice(first, None)
        return Sequence(
            self.text, self.ids[rest], self.loss[rest], self.starts[rest], self.ends[rest], lambda token: self.why(token + first)
        )

    def between(self, before: tuple[int, ...], after: tuple[int, ...], weight_after: float, why: Callable[[bool], Why]) -> Sequence:
        """The sequence with ids that the house writes before and after its text.

        Args:
            weight_after: loss weight of those after it; those before weigh 1.
            why: of such a token, whether it stands before the text → why it is trained or not.
        """
        low, high = len(before), len(before) + len(self)
        many, none = len(after), np.zeros(len(before), np.int64)
        return Sequence(
            self.text,
            np.concatenate([np.array(before, np.int64), self.ids, np.array(after, np.int64)]),
            np.concatenate([np.ones(low, np.float32), self.loss, np.full(many, weight_after, np.float32)]),
            np.concatenate([none, self.starts, np.full(many, len(self.text), np.int64)]),
            np.concatenate([none, self.ends, np.full(many, len(self.text), np.int64)]),
            lambda token: self.why(token - low) if low <= token < high else why(token < low),
        )


def rendered_sequence(encoder: Encoder, rendered: Rendered, *, binary: bool = False) -> Sequence:
    """The tokens of a render.

    Args:
        binary: whether the store's mask has 0 and 1 only.

    Raises:
        Refused: the encoder refuses it.
    """
    found = encoder.places(rendered)
    loss = (found.loss > 0).astype(np.float32) if binary else found.loss

    def why(token: int) -> Why:
        span = int(found.starts[token]), int(found.ends[token])
        return why_in_render(rendered, encoder.policy, span, float(found.loss[token]), replaced=bool(found.replaced[token]))

    return Sequence(rendered.text, found.ids.astype(np.int64), loss, found.starts, found.ends, why)


def spelled(vocabulary: Vocabulary, ids: Any, loss: npt.NDArray[np.float32], why: Callable[[int], Why]) -> Sequence:
    """Ids that no tokenizer chose here: the text is what they decode to, end to end."""
    texts = [vocabulary.decode([int(token)]) for token in ids]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
    return Sequence("".join(texts), np.asarray(ids, np.int64), loss, starts, ends, why)
