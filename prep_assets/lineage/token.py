"""One token of a traced row: what it stands for, why it is trained or not, and what a trainer makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.previews import token_texts
from prep_assets.assets.writing.merging import BY_DOMAIN
from prep_assets.errors import ConfigError
from prep_assets.lineage.opened import family_of
from prep_assets.lineage.trace import Trace, Traced
from prep_assets.lineage.why import PADDING, Why
from prep_assets.tokenization.vocabulary import Vocabulary

AROUND = 60
"""Characters of the render that are shown before and after a token."""


@dataclass(frozen=True, slots=True)
class Named:
    """A token id and its text."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        place: in the row.
        token: what the store holds there.
        weight: its weight in the loss, 1 where the store has no mask; below 0 where it is not attended.
        expected: what the source gives instead, where the store is wrong.
        why: why it is trained or not.
        span: the characters (start, end) that it stands for in the text of its record.
        before, text, after: that text around it, and what it stands for there.
        within: its characters (start, end) in the region of the source that it comes from.
        field: where that region stands in the raw row, e.g. ``messages[2].content``; `None` where that is not certain.
        predicts: what a trainer, which shifts labels by one, trains at this place: the next token, where that is trained.
        predicted_at: the place at which this token is the label; `None` where it is not trained, or no place of the row predicts it.
    """

    place: int
    token: Named
    weight: float
    expected: Named | None
    why: Why
    span: tuple[int, int]
    before: str
    text: str
    after: str
    within: tuple[int, int] | None
    field: str | None
    predicts: Named | None
    predicted_at: int | None


def token_of(trace: Trace, place: int) -> tuple[Token, Traced | None]:
    """A token of a row, and the piece that it is in; `None` for padding.

    Raises:
        ConfigError: the row has no such token.
    """
    row = trace.row
    if not len(row.ids):
        raise ConfigError(f"{row.place.asset} holds lines and no tokens; trace a row of what is made of it: {_tokenized(row.place.asset)}")
    if not 0 <= place < len(row.ids):
        raise ConfigError(f"token {place:,} of row {row.place.row:,}: there are {len(row.ids):,}, numbered from 0")
    weights = _weights(trace).tolist()
    named = partial(_named, trace.made_with.vocabulary(family_of(trace.made_with, row.place.asset)))
    after = place + 1
    predicts = named(int(row.ids[after])) if after < len(row.ids) and weights[after] > 0 else None
    predicted_at = place - 1 if weights[place] > 0 and place else None
    here = named(int(row.ids[place])), weights[place]
    traced = next((each for each in trace.pieces if each.piece.start <= place < each.piece.end), None)
    if traced is None or traced.sequence is None:
        return Token(place, *here, None, PADDING, (0, 0), "", "", "", None, None, predicts, predicted_at), None
    number = traced.piece.first + place - traced.piece.start
    sequence = traced.sequence
    if number >= len(sequence):
        raise ConfigError(
            f"token {place:,}: the store holds more tokens here than the source gives. Verify it: prep-assets verify {row.place.asset}"
        )
    start, end = int(sequence.starts[number]), int(sequence.ends[number])
    why, text = sequence.why(number), sequence.text
    expected = named(int(sequence.ids[number])) if place in traced.differs else None
    around = text[max(0, start - AROUND) : start], text[start:end], text[end : end + AROUND]
    within = None if why.region is None else (start - why.region[0], end - why.region[0])
    field = None if traced.source is None or why.content is None else field_of(traced.source.payload, why.content)
    return Token(place, *here, expected, why, (start, end), *around, within, field, predicts, predicted_at), traced


def _weights(trace: Trace) -> npt.NDArray[np.float32]:
    """The loss weight of each token. A stream without a mask is trained whole, or not at all: its sources say which."""
    if trace.row.weights is not None:
        return trace.row.weights
    weights = np.zeros(len(trace.row.ids), np.float32)
    for traced in trace.pieces:
        if traced.sequence is not None:
            piece = traced.piece
            here = traced.sequence.loss[piece.first : piece.first + piece.end - piece.start]
            weights[piece.start : piece.start + len(here)] = here
    return weights


def _named(vocabulary: Vocabulary, number: int) -> Named:
    return Named(number, token_texts(vocabulary, [number])[0] if 0 <= number < vocabulary.size else "")


def _tokenized(asset: str) -> str:
    name = asset.removesuffix(BY_DOMAIN)
    made = {"preferences": "preference_tokens", "rl_prompts": "rl_tokens", "arithmetic_prompts": "arithmetic_tokens"}
    return made.get(name, name.replace("_raw", "_tokens")) + asset.removeprefix(name)


def field_of(payload: Any, content: str) -> str | None:
    """The one place in a raw row whose text is, or holds, what a region says; `None` where several do, or none."""
    if not content.strip():
        return None
    strings = list(_strings(payload, ""))
    exact = [path for path, text in strings if text == content]
    holding = exact or [path for path, text in strings if content.strip() in text]
    return holding[0] if len(holding) == 1 else None


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _strings(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _strings(each, f"{path}[{number}]")


def trace_as_json(trace: Trace) -> dict[str, Any]:
    """A traced row: what it is made of, in order, with the whole way to the source."""
    row = trace.row
    return {
        **asdict(row.place),
        "rows": row.count,
        "tokens": len(row.ids),
        "differs": list(trace.differs),
        "pieces": [piece_as_json(each) for each in trace.pieces],
        "stores": {label: dict(hashes) for label, hashes in trace.hashes.items()},
    }


def piece_as_json(traced: Traced) -> dict[str, Any]:
    """A piece of a row."""
    piece = traced.piece
    return {
        "start": piece.start,
        "end": piece.end,
        "first": piece.first,
        "part": piece.part,
        "path": [asdict(place) for place in piece.path],
        "source": None if traced.source is None else asdict(traced.source),
        "line": None if traced.line is None else dict(traced.line),
        "text": None if traced.sequence is None else traced.sequence.text,
    }


def token_as_json(token: Token, traced: Traced | None) -> dict[str, Any]:
    """One token, with the piece that it is in."""
    return {**asdict(token), "piece": None if traced is None else piece_as_json(traced)}
