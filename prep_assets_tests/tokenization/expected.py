"""Ids and loss weights worked out the slow way: turn by turn, and byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import Chat, Loaded

Weighted = tuple[str, float]
"""Text, and the loss weight that each of its bytes has."""


@dataclass(frozen=True)
class Expected:
    """One example. `border` says that a token lies half inside a trained region, so that there is no right weight for it."""

    ids: list[int]
    loss: list[float]
    border: bool


def expected(loaded: Loaded, parts: Sequence[Weighted | tuple[int, float]]) -> Expected:
    """Tokens of text, cut at control tokens (given by their id), for a tokenizer whose ids stand for bytes."""
    ids: list[int] = []
    loss: list[float] = []
    border = False
    segment: list[Weighted] = []
    for part in [*parts, None]:
        if part is not None and isinstance(part[0], str):
            segment.append((part[0], part[1]))
            continue
        (tokens,) = loaded.ordinary(["".join(text for text, _ in segment)])
        weights = [weight for text, weight in segment for _ in text.encode()]
        for token, (weight, mixed) in zip(tokens, _weigh(loaded.vocabulary, tokens, segment, weights), strict=True):
            ids.append(token)
            loss.append(weight)
            border = border or mixed
        segment = []
        if part is not None and isinstance(part[0], int):
            ids.append(part[0])
            loss.append(part[1])
    return Expected(ids, loss, border)


def _weigh(
    vocabulary: Vocabulary, tokens: Sequence[int], segment: Sequence[Weighted], weights: Sequence[float]
) -> list[tuple[float, bool]]:
    """Weight of each token, and whether its bytes do not agree on one."""
    data = "".join(text for text, _ in segment).encode()
    table = vocabulary.token_bytes
    assert table is not None
    assert b"".join(table[token] for token in tokens) == data
    found, at = [], 0
    for token in tokens:
        own = weights[at : at + len(table[token])]
        untrained = next((i for i, weight in enumerate(own) if weight), len(own))
        white_space_first = not data[at : at + untrained].decode(errors="replace").strip()
        rest = set(own[untrained:])
        found.append((own[-1], len(set(own)) > 1 and not (white_space_first and len(rest) == 1)))
        at += len(own)
    return found


def chatml(loaded: Loaded, chat: Chat, *, trained: Sequence[str] = ("assistant",), stop: bool = True) -> Expected:
    """A chat in ChatML: control tokens around every turn, whatever is typed in its content."""
    control = loaded.vocabulary.control
    parts: list[Weighted | tuple[int, float]] = []
    for role, content in chat:
        weight = float(role in trained and bool(content.strip()))
        parts += [
            (control["<|im_start|>"], 0.0),
            (f"{role}\n", 0.0),
            (content, weight),
            (control["<|im_end|>"], weight * stop),
            ("\n", 0.0),
        ]
    return expected(loaded, parts)
