"""What a model is trained on, said so that every trainer's batches can be compared with the store: each trained token after all before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prep_assets_tests.extensions.exports.conftest import Document

Lesson = tuple[tuple[int, ...], int]
"""The tokens of a document before a trained one, and that one."""


def lessons(documents: Iterable[Document]) -> list[Lesson]:
    """By the store: the first token of a document has nothing to be predicted from."""
    return [(tuple(tokens[:at]), tokens[at]) for tokens, mask in documents for at in range(1, len(tokens)) if mask[at]]


def lessons_of(tokens: Sequence[int], targets: Sequence[int], positions: Sequence[int], ignore: int = -100) -> list[Lesson]:
    """By a trainer: `targets` are shifted, ``targets[i]`` is predicted at place i from the tokens of its document up to there."""
    return [(tuple(tokens[at - positions[at] : at + 1]), target) for at, target in enumerate(targets) if target != ignore]


def shifted(labels: Any) -> list[int]:
    """Labels as Hugging Face's models shift them: the label at i + 1 belongs to the prediction at i."""
    return [*labels[1:], -100]
