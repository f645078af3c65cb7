"""What checks compare token stores of preference pairs with: their sides, read again, and what they must have become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from prep_assets.assets.checks.expected import Examples, Rules
from prep_assets.assets.commands import build_command
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.preference_rows import pair_sample
from prep_assets.config.models import Preference
from prep_assets.errors import StoreError
from prep_assets.proofs.inline_reasoning import read_again
from prep_assets.proofs.plain_forms import answers_derivation
from prep_assets.proofs.truncated import Truncation
from prep_assets.samples import ASSISTANT, TEXT, USER, PlainChat, Region, Sample, Turn
from prep_assets.stores.lines import open_lines, row_of
from prep_assets.stores.tokens import TokenStore

AT_ONCE = 64
"""Records of a side that are given together."""


def pair_examples(store: Store, side: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Examples]:
    """The records of one side, some at a time; `only` of some."""
    pairs = store.above("preferences_by_domain", store.partition)
    if pairs.manifest.content_hash != store.recipe["pairs"]:
        command = build_command(store.asset.name, store.partition)
        raise StoreError(f"preferences_by_domain[{store.partition}] was built again since these tokens. Build them again: {command}")
    read, column = _pair_reading(store), side.removeprefix("test/")
    chosen = range(len(stream)) if only is None else sorted(map(int, only))
    lines, before = open_lines(pairs.directory, "preferences_test" if side.startswith("test/") else "preferences").written(), -1
    for at in range(0, len(chosen), AT_ONCE):
        numbers = list(chosen[at : at + AT_ONCE])
        rows, found = np.asarray(stream.row[numbers]).tolist(), list[bytes]()
        for number, row in zip(numbers, rows, strict=True):
            written = next(islice(lines, row - before - 1, None), None) if row > before else None
            if written is None:
                raise StoreError(f"record {number:,} of {side} is line {row}, which does not follow the one before it, or is not there")
            found.append(written)
            before = row
        sources = [
            read(pair_sample(row_of(line), column)) if plain is None else plain
            for line, plain in zip(found, _plain_sides(found, column), strict=True)
        ]
        yield Examples(numbers, sources, [f"line {row}" for row in rows].__getitem__)


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str


class _Chosen(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str | list[_Message]
    answer: str | list[_Message] = msgspec.field(name="chosen")
    other: msgspec.Raw = msgspec.field(name="rejected")
    margin: Any = None


class _Rejected(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str | list[_Message]
    answer: str | list[_Message] = msgspec.field(name="rejected")
    other: msgspec.Raw = msgspec.field(name="chosen")
    margin: Any = None


_Decoder = msgspec.json.Decoder[_Chosen] | msgspec.json.Decoder[_Rejected]
_DECODERS: dict[str, _Decoder] = {"chosen": msgspec.json.Decoder(_Chosen), "rejected": msgspec.json.Decoder(_Rejected)}


def _plain_sides(lines: Sequence[bytes], side: str) -> list[PlainChat | None]:
    """One side of some lines in columns; `None` where a line is more than a prompt and two answers, each turn one text, or the side more than one answer."""
    try:
        found = _DECODERS[side].decode_lines(b"".join(lines))
    except (msgspec.MsgspecError, ValueError):
        found = []
    if len(found) == len(lines):
        return list(map(_plain_side, found))
    half = len(lines) // 2
    return [None] if len(lines) == 1 else [*_plain_sides(lines[:half], side), *_plain_sides(lines[half:], side)]


def _plain_side(line: _Chosen | _Rejected) -> PlainChat | None:
    prompt, answer = line.prompt, line.answer
    if type(prompt) is str and type(answer) is str:
        return PlainChat((USER, ASSISTANT), (prompt, answer))
    turns = [*([_Message(USER, prompt)] if isinstance(prompt, str) else prompt)]
    turns += [_Message(ASSISTANT, answer)] if isinstance(answer, str) else answer
    if not isinstance(answer, str) and (len(answer) != 1 or answer[0].role != ASSISTANT):
        return None
    return PlainChat(tuple([turn.role for turn in turns]), tuple([turn.content for turn in turns]))


def _pair_reading(store: Store) -> Callable[[Sample], Sample]:
    shown = store.workspace.template(store.workspace.family(Preference)).shows_thinking
    return lambda sample: read_again(sample, store.recipe, shown=shown)


def pair_rules(store: Store) -> Rules:
    """What each side of a pair must have become: its last turn trained, an answer, and nothing else."""
    read = _pair_reading(store)

    def weighed(chat: PlainChat) -> Sample:
        weights = [*(0.0 for _ in chat.texts[1:]), 1.0]
        turns = zip(chat.roles, chat.texts, weights, strict=True)
        return read(Sample(tuple(Turn(role, (Region(TEXT, text, weight),)) for role, text, weight in turns)))

    truncation = Truncation(store.recipe["truncation"], store.recipe["max_seq_len"])
    derivation = answers_derivation(store.workspace.template(store.workspace.family(Preference)))
    return Rules(derivation, truncation, store.vocabulary, weighed)
