"""What checks compare token stores of preference pairs with: their sides, read again, and what they must have become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prep_assets.assets.checks.expected import Example, Rules
from prep_assets.assets.commands import build_command
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.preference_rows import pair_sample
from prep_assets.config.models import Preference
from prep_assets.errors import StoreError
from prep_assets.proofs.identity import Conversation
from prep_assets.proofs.inline_reasoning import read_again
from prep_assets.proofs.mask import Row
from prep_assets.proofs.plain_forms import answers_derivation
from prep_assets.proofs.truncated import Left, Truncation
from prep_assets.samples import ASSISTANT, TEXT, USER, PlainChat, Region, Sample, Turn
from prep_assets.stores.lines import open_lines
from prep_assets.stores.tokens import TokenStore


def pair_examples(store: Store, side: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Example]:
    """Each record of one side."""
    pairs = store.above("preferences_by_domain", store.partition)
    if pairs.manifest.content_hash != store.recipe["pairs"]:
        command = build_command(store.asset.name, store.partition)
        raise StoreError(f"preferences_by_domain[{store.partition}] was built again since these tokens. Build them again: {command}")
    read, column = _pair_reading(store), side.removeprefix("test/")
    numbered = iter(range(len(stream)) if only is None else sorted(map(int, only)))
    number = next(numbered, None)
    for line, content in enumerate(open_lines(pairs.directory, "preferences_test" if side.startswith("test/") else "preferences")):
        if number is not None and stream.row[number] == line:
            plain = _plain_side(content, column)
            yield number, f"line {line}", read(pair_sample(content, column)) if plain is None else plain
            number = next(numbered, None)
    if number is not None:
        raise StoreError(
            f"record {number:,} of {side} is line {int(stream.row[number])}, which does not follow the one before it, or is not there"
        )


def _plain_side(row: Mapping[str, Any], side: str) -> PlainChat | None:
    """One side in columns; `None` where it is more than a prompt and one answer, each turn one text."""
    if row.keys() - {"prompt", "chosen", "rejected", "margin"}:
        return None
    messages = [
        message
        for key, role in (("prompt", USER), (side, ASSISTANT))
        for message in ([{"role": role, "content": row[key]}] if isinstance(row[key], str) else row[key])
    ]
    roles, texts = zip(*((message["role"], message["content"]) for message in messages), strict=True)
    answers = 1 if isinstance(row[side], str) else len(row[side])
    if answers != 1 or roles[-1] != ASSISTANT or any(len(message) != 2 for message in messages) or {*map(type, texts)} != {str}:
        return None
    return PlainChat(roles, texts)


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


def _pairs_left(store: Store, side: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[tuple[int, str, Left]]:
    """Number in the stream and id of each record of one side, and what it must be."""
    return pair_rules(store).each(stream, pair_examples(store, side, stream, only))


def preference_rows(store: Store, side: str) -> Iterator[Row]:
    """Each record of one side of the tokenized pairs with the answer that must be trained."""
    return (row for _, row in numbered_preference_rows(store, side))


def numbered_preference_rows(store: Store, side: str, only: Sequence[int] | None = None) -> Iterator[tuple[int, Row]]:
    """The same with the number of each record in the stream; `only` of some."""
    stream = store.streams()[side]
    for number, identity, left in _pairs_left(store, side, stream, only):
        yield number, left.row(identity, stream.record(number, "tokens"), stream.record(number, "loss_mask"))


def preference_conversations(store: Store, side: str) -> Iterator[Conversation]:
    """Each record of one side of the tokenized pairs with a fresh render of its pair."""
    stream = store.streams()[side]
    for number, identity, left in _pairs_left(store, side, stream):
        yield left.conversation(identity, stream.record(number, "tokens"))
