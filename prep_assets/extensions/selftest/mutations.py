"""Mutations: corruptions of masks, tokens, lines, sources, merged stores and groups that checks must catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import structs

from prep_assets.array_types import Array
from prep_assets.proofs.mask import Conversation
from prep_assets.proofs.mutations import Change, Mutation, mutate_alone, mutate_field, mutate_one
from prep_assets.proofs.selection import DUPLICATE, FILTERED, UNREADABLE, Selected
from prep_assets.proofs.source_texts import TEXT, Said
from prep_assets.stores.images import Image
from prep_assets.stores.shards import signed, unsigned
from prep_assets.text.vocabulary import Vocabulary

# Errors of training data, made on purpose in a copy, to see that the check for them fails.

T = TypeVar("T")


MASK, IDENTITY, ROWS, MATCH, SELECTION, TEXTS, NAME = (
    "mask_alignment",
    "tokenization_identity",
    "row_integrity",
    "source_match",
    "selection",
    "source_texts",
    "merged",
)
"""The checks that catch most mutations."""

# Conversations: masks and tokens.


def _first_run(mask: Array) -> tuple[int, int]:
    """Return start and end of the first run of trained tokens."""
    edges = np.flatnonzero(np.diff(mask != 0, prepend=False, append=False))
    return int(edges[0]), int(edges[1])


def _fill_range(array: Array, low: int, high: int, value: Any) -> Array:
    changed = array.copy()
    changed[low:high] = value
    return changed


def _mask(change: Callable[[Array, int, int], Array]) -> Change:
    """Mutate the mask of a record; `change`: mask, start and end of its first trained run → mutated mask."""
    return mutate_one(mutate_field("mask", lambda mask: change(mask, *_first_run(mask))))


def _stop_untrained(row: Conversation, vocabulary: Vocabulary) -> Conversation | None:
    _, end = _first_run(row.mask)
    is_control = int(row.ids[end - 1]) in vocabulary.control.values()
    return replace(row, mask=_fill_range(row.mask, end - 1, end, 0)) if is_control else None


def _masks_swapped(rows: Sequence[Conversation], at: int, vocabulary: Vocabulary) -> list[Conversation] | None:
    other = (at + 1) % len(rows)
    row, other_row = rows[at], rows[other]
    mask, other_mask = np.resize(other_row.mask, len(row.mask)), np.resize(row.mask, len(other_row.mask))
    if np.array_equal(mask, row.mask) and np.array_equal(other_mask, other_row.mask):
        return None
    changed = list(rows)
    changed[at], changed[other] = replace(row, mask=mask), replace(other_row, mask=other_mask)
    return changed


def _replaced(row: Conversation, place: int, vocabulary: Vocabulary) -> Conversation:
    """Replace a token by another one that is no control token."""
    control = set(vocabulary.control.values())
    token = next(token for token in range(vocabulary.size) if token != row.ids[place] and token not in control)
    return replace(row, ids=_fill_range(row.ids, place, place + 1, token))


def _trained_replaced(row: Conversation, vocabulary: Vocabulary) -> Conversation:
    return _replaced(row, _first_run(row.mask)[0], vocabulary)


def _prompt_replaced(row: Conversation, vocabulary: Vocabulary) -> Conversation | None:
    start, _ = _first_run(row.mask)
    return _replaced(row, start // 2, vocabulary) if start >= 2 else None


def _control_doubled(row: Conversation, vocabulary: Vocabulary) -> Conversation | None:
    control = next((token for token in row.ids.tolist() if token in vocabulary.control.values()), None)
    if control is None:
        return None
    return replace(row, ids=np.append(control, row.ids).astype(row.ids.dtype), mask=np.append(0, row.mask))


def _tail_cut(row: Conversation, vocabulary: Vocabulary) -> Conversation | None:
    keep = max(1, _first_run(row.mask)[1] - 2)
    # of a record that truncation cut, white space at the end is looked at by `tokenization_identity`
    return replace(row, ids=row.ids[:keep], mask=row.mask[:keep]) if vocabulary.decode(row.ids[keep:]).strip() else None


def _longest_placeholder(row: Conversation, vocabulary: Vocabulary) -> int | None:
    """Return the start of the longest run (two or more) of one untrained control token: most likely an image."""
    control = set(vocabulary.control.values())
    longest_start, longest_count, start = None, 1, 0
    for (token, is_trained), run in groupby(zip(row.ids.tolist(), (row.mask != 0).tolist(), strict=True)):
        count = len(list(run))
        if count > longest_count and token in control and not is_trained:
            longest_start, longest_count = start, count
        start += count
    return longest_start


def _placeholder(by: int) -> Change:
    """Add so many tokens to an image."""

    def changed(row: Conversation, vocabulary: Vocabulary) -> Conversation | None:
        start = _longest_placeholder(row, vocabulary)
        if start is None:
            return None
        count = np.ones(len(row.ids), np.int64)
        count[start] += by
        return replace(row, ids=np.repeat(row.ids, count), mask=np.repeat(row.mask, count))

    return mutate_one(changed)


def _attention(change: Callable[[npt.NDArray[np.bool_], Array], npt.NDArray[np.bool_]]) -> Callable[[Array], Array]:
    """Mutate the attention in the weights of a row; `change`: whether each token is attended, and its loss weight → attended."""

    def changed(weights: Array) -> Array:
        loss, attended = unsigned(weights)
        return signed(loss, change(attended, loss))

    return changed


ATTENTION_CHANGES: Mapping[str, Callable[[Array], Array]] = {
    "attention lost": _attention(lambda attended, loss: np.ones_like(attended)),
    "attention inverted": _attention(lambda attended, loss: ~attended),
    "attention shifted by +1": _attention(lambda attended, loss: np.append(True, attended[:-1])),
    "attention shifted by -1": _attention(lambda attended, loss: np.append(attended[1:], True)),
    "trained tokens not attended": _attention(lambda attended, loss: attended & (loss == 0)),
}
"""Corruptions of an attention mask, by name: weights, as in `Table.weights`, → weights of the corrupted row."""


def _unattended(change: Callable[[Array], Array]) -> Change:
    """Mutate the attention of a row with unattended tokens."""
    return mutate_one(lambda row, vocabulary: replace(row, mask=change(row.mask)) if (row.mask < 0).any() else None)


ATTENTION_MUTATIONS = (
    *(Mutation(name, MASK, _unattended(change)) for name, change in ATTENTION_CHANGES.items()),
    Mutation("a trained token not attended", ROWS, _unattended(ATTENTION_CHANGES["trained tokens not attended"])),
)
"""Mutations of rows with unattended tokens."""
IMAGE_MUTATIONS = (
    Mutation("an image has a token too many", IDENTITY, _placeholder(1)),
    Mutation("an image has a token too few", IDENTITY, _placeholder(-1)),
)
"""Mutations of rows with images."""
File = tuple[Image, Image]
"""A stored reference, and the same read again from its file."""


def _resized_file(file: File) -> File | None:
    stored, found = file
    return None if stored.size is None else (structs.replace(stored, size=(stored.size[0] + 1, *stored.size[1:])), found)


FILE_MUTATIONS = (
    Mutation("another file under the same name", ROWS, mutate_one(lambda file: (file[0], structs.replace(file[1], sha256="0" * 64)))),
    Mutation("a file of another resolution or duration", ROWS, mutate_one(_resized_file)),
)
"""Mutations of references to images and audio."""
MUTATIONS: tuple[Mutation, ...] = (
    Mutation("mask shifted by +1", MASK, _mask(lambda mask, start, end: np.append(0, mask[:-1]))),
    Mutation("mask shifted by -1", MASK, _mask(lambda mask, start, end: np.append(mask[1:], 0))),
    Mutation("role header trained", MASK, _mask(lambda mask, start, end: _fill_range(mask, max(0, start - 3), start, 1))),
    Mutation("stop token not trained", MASK, mutate_one(_stop_untrained)),
    Mutation("mask all ones", MASK, _mask(lambda mask, start, end: np.ones_like(mask))),
    Mutation("mask all zeros", ROWS, _mask(lambda mask, start, end: np.zeros_like(mask))),
    Mutation("masks of two records swapped", MASK, _masks_swapped),
    Mutation("a user turn trained", MASK, _mask(lambda mask, start, end: _fill_range(mask, start // 4, start // 2, 1))),
    Mutation("missing mask filled with zeros", MASK, _mask(lambda mask, start, end: _fill_range(mask, len(mask) // 2, len(mask), 0))),
    Mutation("a trained token replaced", MASK, mutate_one(_trained_replaced)),
    Mutation("a token of the prompt replaced", IDENTITY, mutate_one(_prompt_replaced)),
    Mutation("first control token doubled", IDENTITY, mutate_one(_control_doubled)),
    Mutation("tail of a record cut off", MASK, mutate_one(_tail_cut)),
    *IMAGE_MUTATIONS,
)
"""Corruptions of conversations in token stores."""


# Documents and prompts, by their ids alone: ids of a row, end-of-text id, vocabulary size.


def _token(place: int, value: Callable[[int, int, int], int]) -> Change:
    def changed(row: Array, eos: int, size: int) -> Array | None:
        if len(row) <= abs(place) + 1:
            return None
        ids = row.astype(np.int64)
        ids[place] = value(int(ids[place]), eos, size)
        return ids

    return mutate_one(changed)


def _two_tokens_swapped(row: Array, eos: int, size: int) -> Array | None:
    places = np.flatnonzero(np.diff(row[:-1]))
    return _fill_range(row, places[0], places[0] + 2, row[[places[0] + 1, places[0]]]) if len(places) else None


def _of_the_next(rows: Sequence[Array], at: int, eos: int, size: int) -> list[Array] | None:
    next_row = rows[(at + 1) % len(rows)]
    return None if np.array_equal(next_row, rows[at]) else [*rows[:at], next_row, *rows[at + 1 :]]


def _other(token: int, eos: int, size: int) -> int:
    return next(number for number in ((token + step) % size for step in range(1, size)) if number != eos)


PROMPT_TOKEN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("random tokens", IDENTITY, mutate_one(lambda row, eos, size: np.random.default_rng(0).integers(0, size, len(row)))),
    Mutation("a token replaced", IDENTITY, _token(1, _other)),
    Mutation("two tokens swapped", IDENTITY, mutate_one(_two_tokens_swapped)),
    Mutation("a token lost", IDENTITY, mutate_one(lambda row, eos, size: np.delete(row, len(row) // 2) if len(row) > 2 else None)),
    Mutation("tokens of the next row", IDENTITY, _of_the_next),
    Mutation("an id outside the vocabulary", ROWS, _token(1, lambda token, eos, size: size)),
    Mutation("a negative id", ROWS, _token(1, lambda token, eos, size: -100)),
)
"""Corruptions of tokenized prompts."""

UNENDED_MUTATIONS: tuple[Mutation, ...] = (
    *PROMPT_TOKEN_MUTATIONS,
    Mutation("an end-of-text token in the middle", ROWS, _token(1, lambda token, eos, size: eos)),
)
"""Corruptions of documents without an end-of-text token."""

DOCUMENT_MUTATIONS: tuple[Mutation, ...] = (*UNENDED_MUTATIONS, Mutation("no end-of-text token", ROWS, _token(-1, _other)))
"""Corruptions of documents, each ended by the end-of-text token."""


def _other_mask(change: Callable[[Array], Array]) -> Change:
    """Mutate the mask of a document."""
    return mutate_alone(mutate_field("mask", change))


MASK_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a document's mask lost", MASK, _other_mask(np.ones_like)),
    Mutation("nothing of a document trained", MASK, _other_mask(np.zeros_like)),
    Mutation("a document's mask inverted", MASK, _other_mask(lambda mask: mask == 0)),
    Mutation("the end of a document weighed otherwise", MASK, _other_mask(lambda mask: np.append(mask[:-1], mask[-1] == 0))),
    # fractions need floats; in a mask of whole numbers nothing changes
    Mutation("a document's weights halved", MASK, _other_mask(lambda mask: mask * 0.5 if mask.dtype.kind == "f" else mask)),
)
"""Corruptions of the masks of documents. None moves a border by one token, which may be white space only."""
ATTENTION_MASK_MUTATIONS = tuple(
    Mutation(name, MASK, _other_mask(change)) for name, change in ATTENTION_CHANGES.items() if "shifted" not in name
)
"""Mutations of documents with unattended tokens."""


# Selection: rows lost, wrongly rejected, wrongly stored, or on the wrong side of the split.

_NOWHERE = 1 << 39
"""A row that no file has."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of a domain, and their records and rejections in a store.

    Attributes:
        names: names of its files.
        block: the rows, all of one file.
        stored: row, held-out flag and `Stored.belongs` of each record.
        refused: row and ``stage/reason`` of each rejection.
    """

    names: tuple[str, ...]
    block: Selected
    stored: tuple[tuple[int, bool, int], ...]
    refused: tuple[tuple[int, str], ...]

    @property
    def file(self) -> int:
        """Number of their file."""
        return self.block.files[0]


def _replace_record(store: StoredRows, at: int, *records: tuple[int, bool, int]) -> StoredRows:
    """Replace a record by other records, or by none."""
    return replace(store, stored=(*store.stored[:at], *records, *store.stored[at + 1 :]))


def _refused(reason: str) -> Change:
    return lambda store, at: replace(_replace_record(store, at), refused=(*store.refused, (store.stored[at][0], reason)))


def _move_to_other_side(held_out: bool) -> Change:
    def changed(store: StoredRows, at: int) -> StoredRows | None:
        row, held, belongs = store.stored[at]
        return _replace_record(store, at, (row, not held, belongs)) if held == held_out else None

    return changed


def _keep_despite_fate(fate: str) -> Change:
    """Change the fate of a record's row, and keep the record."""

    def changed(store: StoredRows, at: int) -> StoredRows:
        fates = [
            fate if row == store.stored[at][0] else row_fate for row, row_fate in zip(store.block.rows, store.block.fates, strict=True)
        ]
        return replace(store, block=replace(store.block, fates=fates))

    return changed


SELECTION_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a row vanished", SELECTION, _replace_record),
    Mutation("a row refused as a duplicate that is none", SELECTION, _refused("deduplicate/duplicate")),
    Mutation("a row refused as unreadable that can be read", SELECTION, _refused("records/invalid_json")),
    Mutation("a row refused by `where` that matches", SELECTION, _refused("records/filtered_by_where")),
    Mutation("a short row refused for its length", SELECTION, _refused("tokenize/too_long")),
    Mutation("a good row refused by its schema", SELECTION, _refused("schema/empty_answer")),
    Mutation("a duplicate kept", SELECTION, _keep_despite_fate(DUPLICATE)),
    Mutation("a row that misses `where` kept", SELECTION, _keep_despite_fate(FILTERED)),
    Mutation("a row that cannot be read kept", SELECTION, _keep_despite_fate(UNREADABLE)),
    Mutation("a row stored twice", SELECTION, lambda store, at: replace(store, stored=(*store.stored, store.stored[at]))),
    Mutation(
        "a row stored and refused",
        SELECTION,
        lambda rows, at: replace(rows, refused=(*rows.refused, (rows.stored[at][0], "schema/empty_answer"))),
    ),
    Mutation("a held-out row in the training part", SELECTION, _move_to_other_side(True)),
    Mutation("a training row in the held-out part", SELECTION, _move_to_other_side(False)),
    Mutation("a row that is not read", SELECTION, lambda rows, at: replace(rows, stored=(*rows.stored, (_NOWHERE, *rows.stored[at][1:])))),
)
"""Corruptions of stored and rejected rows; the check `selection` must catch each."""


# Texts of source rows: a row says what the store does not hold, or on another side, or in another order.

TextsOf = Callable[[Mapping[str, Any]], Sequence[Said]]
"""Row → what it says."""


def _with(value: Any, other: Mapping[str, str]) -> Any:
    """A JSON value with other strings in the place of some."""
    if isinstance(value, str):
        return other.get(value, value)
    if isinstance(value, Mapping):
        return {key: _with(inner, other) for key, inner in value.items()}
    return [_with(inner, other) for inner in value] if isinstance(value, list | tuple) else value


def _other_texts(change: Callable[[list[Said]], Mapping[str, str]]) -> Change:
    """Mutate texts that are strings of a row and stand in no other text of it; `change`: these texts → text and what stands in its place."""

    def changed(rows: Sequence[Mapping[str, Any]], at: int, texts_of: TextsOf) -> list[Mapping[str, Any]] | None:
        row, said = rows[at], texts_of(rows[at])
        alone = [each for each in said if each.kind == TEXT and sum(each.text.strip() in other.text for other in said) == 1]
        mutated = _with(row, change([each for each in alone if _with(row, {each.text: ""}) != row]))
        return None if mutated == row else [*rows[:at], mutated, *rows[at + 1 :]]

    return changed


def _exchanged(are: Callable[[Said, Said], bool]) -> Change:
    """Exchange the first two texts of which this is true."""

    def change(said: list[Said]) -> Mapping[str, str]:
        return next(({one.text: two.text, two.text: one.text} for one, two in combinations(said, 2) if are(one, two)), {})

    return _other_texts(change)


TEXT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a text of the source lost", TEXTS, _other_texts(lambda said: {said[-1].text: f"{said[-1].text} zqlostqz"} if said else {})),
    Mutation("texts of two sides exchanged", TEXTS, _exchanged(lambda first, second: first.side != second.side)),
    Mutation("two turns in another order", TEXTS, _exchanged(lambda first, second: first.side == second.side and first.turn < second.turn)),
)
"""Corruptions of what a store holds of a row, made in the row; the check `source_texts` must catch each."""
