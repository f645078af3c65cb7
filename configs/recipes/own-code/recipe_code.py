"""Code that the recipes of this folder name: a schema, weights of turns, and a tokenizer. Its source is part of what stores are built of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets.schemas.fields import text_of

SHORT = 2_000


def trivia(row: Mapping[str, Any], *, answer_key: str = "answer") -> Sample:
    """A question and its answer."""
    answer = text_of(row, answer_key)
    if not answer.strip():
        raise Refused("empty_answer", f"{answer_key!r} is empty")
    return Sample((turn(USER, text_of(row, "question")), turn(ASSISTANT, answer)))


def short_answers_only(sample: Sample) -> list[float | None]:
    """No weight for answers of more than 2,000 characters; all other turns are left to the policy."""
    return [0.0 if turn.role == ASSISTANT and len(turn.text) > SHORT else None for turn in sample.turns]


class LongestMatch:
    """Takes the longest token of a ``tokenizer.json`` that stands next in the text, as RWKV's World models do, in place of merges."""

    def __init__(self, folder: Path) -> None:
        spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        self._control = {token["content"]: token["id"] for token in spec["added_tokens"]}
        letters = _bytes_of_letters()
        ordinary = {text: number for text, number in spec["model"]["vocab"].items() if text not in self._control}
        self._tokens = {number: bytes(letters[letter] for letter in text) for text, number in ordinary.items()}
        self._numbers = {own: number for number, own in self._tokens.items()}
        self._longest = max(map(len, self._numbers))

    def tokens(self) -> dict[int, bytes]:
        """Ordinary tokens: id and bytes."""
        return self._tokens

    def control(self) -> dict[str, int]:
        """Control tokens: text and id."""
        return self._control

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text."""
        data, at, found = text.encode(), 0, list[int]()
        while at < len(data):
            own = next((data[at:end] for end in range(at + self._longest, at, -1) if data[at:end] in self._numbers), b"")
            found += [self._numbers[own]] if own else []
            at += len(own) or 1
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return b"".join(self._tokens[number] for number in ids).decode()


def _bytes_of_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: itself for what can be printed, the next of U+0100 and on for the others."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [number for number in range(256) if number not in printed]
    return {chr(number): number for number in printed} | {chr(256 + at): number for at, number in enumerate(others)}
