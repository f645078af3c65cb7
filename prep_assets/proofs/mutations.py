"""Mutations: corruptions of masks, tokens, lines, sources, merged stores and groups that checks must catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.documents import MaskedDocument
from prep_assets.proofs.groups import Rollout, Scores
from prep_assets.proofs.mask import Row
from prep_assets.proofs.merged import MergedRows
from prep_assets.proofs.rows import Line
from prep_assets.proofs.selection import DUPLICATE, FILTERED, UNREADABLE, Selected
from prep_assets.stores.tokens import signed, unsigned
from prep_assets.text.vocabulary import Vocabulary

# Mutations: what goes wrong in training data, done on purpose to a copy, to see that the check made for it notices.
#
# Each mutation names the check that must catch it. It changes one record (or two) of a copy of the user's own rows.

Change = Callable[[Sequence[Row], int, Vocabulary], list[Row] | None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to corrupt a store.

    Attributes:
        name: what was done.
        caught_by: the check that must fail.
        change: what is corrupted (rows, lines, a table), the number of the one in it to corrupt, and what else the table of mutations says → the corrupted
            copy, or `None` where that one does not lend itself to it.
    """

    name: str
    caught_by: str
    change: Callable[..., Any]


def _with(rows: Sequence[Row], at: int, *, ids: npt.NDArray[Any] | None = None, mask: npt.NDArray[Any] | None = None) -> list[Row]:
    changed = list(rows)
    row = rows[at]
    changed[at] = replace(row, ids=row.ids if ids is None else ids, mask=row.mask if mask is None else mask)
    return changed


def _first_run(mask: npt.NDArray[np.generic]) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(mask != 0, prepend=False, append=False))
    return int(edges[0]), int(edges[1])


def _shift(by: int) -> Change:
    def change(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        mask = np.roll(rows[at].mask, by)
        mask[0 if by > 0 else -1] = 0
        return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)

    return change


def _header(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    mask = rows[at].mask.copy()
    mask[max(0, start - 3) : start] = 1
    return _with(rows, at, mask=mask) if start else None


def _no_eos(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    _, end = _first_run(rows[at].mask)
    if int(rows[at].ids[end - 1]) not in vocabulary.control.values():
        return None
    mask = rows[at].mask.copy()
    mask[end - 1] = 0
    return _with(rows, at, mask=mask)


def _filled(value: int) -> Change:
    def change(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        mask = np.full_like(rows[at].mask, value)
        return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)

    return change


def _swapped(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    other = (at + 1) % len(rows)
    mine, theirs = rows[at], rows[other]
    if np.array_equal(mine.mask, theirs.mask):
        return None
    changed = list(rows)
    changed[at] = replace(mine, mask=np.resize(theirs.mask, len(mine.mask)))
    changed[other] = replace(theirs, mask=np.resize(mine.mask, len(theirs.mask)))
    return changed


def _user_trained(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    mask = rows[at].mask.copy()
    mask[start // 4 : start // 2] = 1
    return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)


def _zero_filled(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    """A mask that was left out for a record and later filled up with zeros: what follows is right, this record is not."""
    mask = rows[at].mask.copy()
    mask[len(mask) // 2 :] = 0
    return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)


def _replaced(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    ids = rows[at].ids.copy()
    ids[start] = next(token for token in range(vocabulary.size) if token != ids[start] and token not in vocabulary.control.values())
    return _with(rows, at, ids=ids)


def _prompt_replaced(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    if start < 2:
        return None
    ids = rows[at].ids.copy()
    ids[start // 2] = next(
        token for token in range(vocabulary.size) if token != ids[start // 2] and token not in vocabulary.control.values()
    )
    return _with(rows, at, ids=ids)


def _doubled_bos(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    control = next((token for token in rows[at].ids.tolist() if token in vocabulary.control.values()), None)
    if control is None:
        return None
    return _with(
        rows, at, ids=np.concatenate([[control], rows[at].ids]).astype(rows[at].ids.dtype), mask=np.concatenate([[0], rows[at].mask])
    )


def _tail_cut(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    _, end = _first_run(rows[at].mask)
    keep = max(1, end - 2)
    return _with(rows, at, ids=rows[at].ids[:keep], mask=rows[at].mask[:keep])


def _longest_placeholder(row: Row, vocabulary: Vocabulary) -> int | None:
    """Where the longest run of one untrained control token stands, of two or more: most likely an image."""
    control = set(vocabulary.control.values())
    found, longest, start = None, 1, 0
    for (token, is_trained), run in groupby(zip(row.ids.tolist(), (row.mask != 0).tolist(), strict=True)):
        count = len(list(run))
        if count > longest and token in control and not is_trained:
            found, longest = start, count
        start += count
    return found


def _placeholder(by: int) -> Change:
    def change(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        start = _longest_placeholder(rows[at], vocabulary)
        if start is None:
            return None
        count = np.ones(len(rows[at].ids), np.int64)
        count[start] += by
        return _with(rows, at, ids=np.repeat(rows[at].ids, count), mask=np.repeat(rows[at].mask, count))

    return change


def _attention(
    change: Callable[[npt.NDArray[np.bool_], npt.NDArray[Any]], npt.NDArray[np.bool_]],
) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    """What of the weights of a row another attention makes; `change`: whether each token is attended, and its loss weight → attended."""

    def changed(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        loss, attended = unsigned(weights)
        return signed(loss, change(attended, loss))

    return changed


ATTENTION_CHANGES: Mapping[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "attention lost": _attention(lambda attended, loss: np.ones_like(attended)),
    "attention turned round": _attention(lambda attended, loss: ~attended),
    "attention shifted by +1": _attention(lambda attended, loss: np.append(True, attended[:-1])),
    "attention shifted by -1": _attention(lambda attended, loss: np.append(attended[1:], True)),
    "trained tokens not attended": _attention(lambda attended, loss: attended & (loss == 0)),
}
"""Corruptions of an attention mask: what was done → weights, as `TokenStore.weights` has them, → those of the corrupted row."""


def _unattended(change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Change:
    def changed(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        return _with(rows, at, mask=change(rows[at].mask)) if (rows[at].mask < 0).any() else None

    return changed


ATTENTION_MUTATIONS = (
    *(Mutation(name, "mask_alignment", _unattended(change)) for name, change in ATTENTION_CHANGES.items()),
    Mutation("a trained token not attended", "row_integrity", _unattended(ATTENTION_CHANGES["trained tokens not attended"])),
)
"""Those that only rows with tokens that are not attended can have."""
IMAGE_MUTATIONS = (
    Mutation("an image has a token too many", "tokenization_identity", _placeholder(1)),
    Mutation("an image has a token too few", "tokenization_identity", _placeholder(-1)),
)
"""Those of them that only rows with images can have."""
MUTATIONS: tuple[Mutation, ...] = (
    Mutation("mask shifted by +1", "mask_alignment", _shift(1)),
    Mutation("mask shifted by -1", "mask_alignment", _shift(-1)),
    Mutation("role header trained", "mask_alignment", _header),
    Mutation("stop token not trained", "mask_alignment", _no_eos),
    Mutation("mask all ones", "mask_alignment", _filled(1)),
    Mutation("mask all zeros", "row_integrity", _filled(0)),
    Mutation("masks of two records swapped", "mask_alignment", _swapped),
    Mutation("a user turn trained", "mask_alignment", _user_trained),
    Mutation("missing mask filled with zeros", "mask_alignment", _zero_filled),
    Mutation("a trained token replaced", "mask_alignment", _replaced),
    Mutation("a token of the prompt replaced", "tokenization_identity", _prompt_replaced),
    Mutation("first control token doubled", "tokenization_identity", _doubled_bos),
    Mutation("tail of a record cut off", "mask_alignment", _tail_cut),
    *IMAGE_MUTATIONS,
)
"""Corruptions of token stores, each with the check that must catch it."""


# Mutations of plain token rows, documents and prompts.

Ids = npt.NDArray[Any]


ChangeOfIds = Callable[[Sequence[Ids], int, int, int], list[Ids] | None]
"""All rows, the number of one, the end-of-text id, the size of the vocabulary → the rows with that one corrupted."""


def _with_ids(rows: Sequence[Ids], at: int, ids: Ids) -> list[Ids]:
    return [*rows[:at], ids, *rows[at + 1 :]]


def _put(place: int, value: Callable[[int, int, int], int]) -> ChangeOfIds:
    def change(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
        if len(rows[at]) <= abs(place) + 1:
            return None
        ids = rows[at].astype(np.int64)
        ids[place] = value(int(ids[place]), eos, size)
        return _with_ids(rows, at, ids)

    return change


def _two_tokens_swapped(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
    places = np.flatnonzero(np.diff(rows[at][:-1]))
    if not len(places):
        return None
    ids, place = rows[at].copy(), int(places[0])
    ids[[place, place + 1]] = ids[[place + 1, place]]
    return _with_ids(rows, at, ids)


def _of_the_next(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
    other = rows[(at + 1) % len(rows)]
    return None if np.array_equal(other, rows[at]) else _with_ids(rows, at, other)


def _random(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids]:
    return _with_ids(rows, at, np.random.default_rng(0).integers(0, size, len(rows[at])))


def _shorter(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
    return _with_ids(rows, at, np.delete(rows[at], len(rows[at]) // 2)) if len(rows[at]) > 2 else None


def _other(token: int, eos: int, size: int) -> int:
    return next(number for number in ((token + step) % size for step in range(1, size)) if number != eos)


def _other_mask(change: Callable[[Ids], Ids]) -> Callable[[Sequence[MaskedDocument], int], list[MaskedDocument] | None]:
    """The document with another mask, alone."""

    def changed(documents: Sequence[MaskedDocument], at: int) -> list[MaskedDocument] | None:
        mask = documents[at].mask
        other = change(mask).astype(mask.dtype)
        return None if np.array_equal(other, mask) else [replace(documents[at], mask=other)]

    return changed


def _half(mask: Ids) -> Ids:
    """Fractions need floats; in a mask of whole numbers nothing changes."""
    return mask * 0.5 if mask.dtype.kind == "f" else mask


IDENTITY, ROWS, MASK = "tokenization_identity", "row_integrity", "mask_alignment"
MASK_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a document's mask lost", MASK, _other_mask(np.ones_like)),
    Mutation("nothing of a document trained", MASK, _other_mask(np.zeros_like)),
    Mutation("a document's mask turned round", MASK, _other_mask(lambda mask: mask == 0)),
    Mutation("the end of a document weighed otherwise", MASK, _other_mask(lambda mask: np.append(mask[:-1], mask[-1] == 0))),
    Mutation("a document's weights halved", MASK, _other_mask(_half)),
)
"""Corruptions of the masks of documents. A border moved by one token is not among them: the token may hold white space only."""
ATTENTION_MASK_MUTATIONS = tuple(
    Mutation(name, MASK, _other_mask(change)) for name, change in ATTENTION_CHANGES.items() if "shifted" not in name
)
"""Those that only documents with tokens that are not attended can have."""

PROMPT_TOKEN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("random tokens", IDENTITY, _random),
    Mutation("a token replaced", IDENTITY, _put(1, _other)),
    Mutation("two tokens swapped", IDENTITY, _two_tokens_swapped),
    Mutation("a token lost", IDENTITY, _shorter),
    Mutation("tokens of the next row", IDENTITY, _of_the_next),
    Mutation("an id outside the vocabulary", ROWS, _put(1, lambda token, eos, size: size)),
    Mutation("a negative id", ROWS, _put(1, lambda token, eos, size: -100)),
)
"""Corruptions of tokenized prompts."""

UNENDED_MUTATIONS: tuple[Mutation, ...] = (
    *PROMPT_TOKEN_MUTATIONS,
    Mutation("an end-of-text token in the middle", ROWS, _put(1, lambda token, eos, size: eos)),
)
"""Corruptions of documents that nothing ends."""

DOCUMENT_MUTATIONS: tuple[Mutation, ...] = (
    *UNENDED_MUTATIONS,
    Mutation("no end-of-text token", ROWS, _put(-1, _other)),
)
"""Corruptions of documents, each ended by the end-of-text token."""


# Mutations of JSONL stores: what goes wrong with pairs, prompts and golds, done on purpose to copies of lines.

ChangeOfLines = Callable[[Sequence[Line], int], list[Line] | None]


def _with_line(lines: Sequence[Line], at: int, changes: Mapping[str, Any]) -> list[Line] | None:
    stored = {**lines[at].stored, **changes}
    if stored == lines[at].stored and all(type(stored[key]) is type(lines[at].stored[key]) for key in changes):
        return None
    return [*lines[:at], replace(lines[at], stored=stored), *lines[at + 1 :]]


def _field(name: str, value: Callable[[Any], Any]) -> ChangeOfLines:
    """One field of one line becomes something else; only lines that have it."""
    return lambda lines, at: _with_line(lines, at, {name: value(lines[at].stored[name])}) if name in lines[at].stored else None


def _answers_swapped(lines: Sequence[Line], at: int) -> list[Line] | None:
    stored = lines[at].stored
    return _with_line(lines, at, {"chosen": stored["rejected"], "rejected": stored["chosen"]}) if "chosen" in stored else None


def _all_swapped(lines: Sequence[Line], at: int) -> list[Line] | None:
    changed = [(_answers_swapped([line], 0) or [line])[0] for line in lines]
    return None if changed == list(lines) else changed


def _taken_from_next_line(name: str) -> ChangeOfLines:
    """Every line has the field of the next one."""

    def change(lines: Sequence[Line], at: int) -> list[Line] | None:
        values = [line.stored.get(name) for line in lines]
        if len(lines) < 2 or len({str(value) for value in values}) < 2:
            return None
        shifted = zip(lines, [*values[1:], values[0]], strict=True)
        return [line if value is None else replace(line, stored={**line.stored, name: value}) for line, value in shifted]

    return change


def _last(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """`change` of a text, of the last of some messages, or of the last part of its content; what has no text, as a lone tool call, stays."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        key = next((key for key in ("text", "content") if value[-1].get(key)), None)
        return value if key is None else [*value[:-1], {**value[-1], key: changed(value[-1][key])}]

    return changed


_half_as_long = _last(lambda text: text[: len(text) // 2] or text + text)
_longer = _last(lambda text: text + " Hurry.")


def _blank(value: Any) -> Any:
    return " " if isinstance(value, str) else [{**value[-1], "content": " "}]


def _reweighed(change: Callable[[float], float | None]) -> ChangeOfLines:
    """The better answer with other loss weights in its parts; only answers that have such parts."""

    def part(value: Mapping[str, Any]) -> dict[str, Any]:
        weight = change(value["loss_weight"]) if "loss_weight" in value else None
        others = {key: other for key, other in value.items() if key != "loss_weight"}
        return others if weight is None else {**others, "loss_weight": weight}

    def message(value: Mapping[str, Any]) -> Mapping[str, Any]:
        content = value.get("content")
        return {**value, "content": [part(each) for each in content]} if isinstance(content, list) else value

    def changed(lines: Sequence[Line], at: int) -> list[Line] | None:
        answer = lines[at].stored.get("chosen")
        return _with_line(lines, at, {"chosen": [message(each) for each in answer]}) if isinstance(answer, list) else None

    return changed


def _equal(lines: Sequence[Line], at: int) -> list[Line] | None:
    stored = lines[at].stored
    return _with_line(lines, at, {"chosen": stored["rejected"]}) if "chosen" in stored else None


def _without(name: str) -> ChangeOfLines:
    def change(lines: Sequence[Line], at: int) -> list[Line] | None:
        stored = {key: value for key, value in lines[at].stored.items() if key != name}
        return [*lines[:at], replace(lines[at], stored=stored), *lines[at + 1 :]] if name in lines[at].stored else None

    return change


def _lost(lines: Sequence[Line], at: int) -> list[Line]:
    """Its row gives nothing any more."""
    return [*lines[:at], replace(lines[at], made=None), *lines[at + 1 :]]


def _number(change: Callable[[float], Any]) -> Callable[[Any], Any]:
    return lambda gold: change(gold) if isinstance(gold, float) else gold


MATCH, SANITY, GOLD = "source_match", "pair_sanity", "gold_answers"

PAIR_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("one pair swapped", MATCH, _answers_swapped),
    Mutation("all pairs swapped", MATCH, _all_swapped),
    Mutation("prompts of the next pair", MATCH, _taken_from_next_line("prompt")),
    Mutation("a prompt altered", MATCH, _field("prompt", _longer)),
    Mutation("a better answer truncated", MATCH, _field("chosen", _half_as_long)),
    Mutation("a worse answer truncated", MATCH, _field("rejected", _half_as_long)),
    Mutation("a label turned round", MATCH, _field("label", lambda label: not label)),
    Mutation("a pair that nobody wrote", MATCH, _lost),
    Mutation("loss weights of an answer lost", MATCH, _reweighed(lambda weight: None)),
    Mutation("loss weights of an answer turned round", MATCH, _reweighed(lambda weight: 1.0 - weight)),
    Mutation("an empty prompt", SANITY, _field("prompt", _blank)),
    Mutation("an empty answer", SANITY, _field("chosen", _blank)),
    Mutation("both answers the same", SANITY, _equal),
    Mutation("a worse answer lost", SANITY, _without("rejected")),
)
"""Corruptions of preference pairs and labelled answers."""

PROMPT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a prompt altered", MATCH, _field("prompt", _longer)),
    Mutation("prompts shifted against golds", MATCH, _taken_from_next_line("prompt")),
    Mutation("golds shifted against prompts", MATCH, _taken_from_next_line("gold")),
    Mutation("a prompt truncated", MATCH, _field("prompt", _half_as_long)),
    Mutation("a prompt that nobody wrote", MATCH, _lost),
    Mutation("a gold as a whole number", MATCH, _field("gold", _number(lambda gold: int(gold) if gold.is_integer() else gold))),
    Mutation("a gold as text", GOLD, _field("gold", _number(str))),
    Mutation("a gold off by one", GOLD, _field("gold", _number(lambda gold: gold + 1))),
    Mutation("a gold of the other sign", GOLD, _field("gold", _number(lambda gold: -gold))),
    Mutation("a gold tenfold", GOLD, _field("gold", _number(lambda gold: gold * 10))),
    Mutation("a gold that is no number", GOLD, _field("gold", _number(lambda gold: float("nan")))),
)
"""Corruptions of RL prompts and of generated questions."""


def _side(name: str, change: Callable[[list[str], Mapping[str, Any]], list[str]]) -> ChangeOfLines:
    """One side of a contrastive row becomes other texts; only rows that have it."""

    def changed(lines: Sequence[Line], at: int) -> list[Line] | None:
        stored = lines[at].stored
        return _with_line(lines, at, {name: change(stored[name], stored)}) if stored.get(name) else None

    return changed


CONTRASTS = "contrast_sanity"
CONTRAST_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a query altered", MATCH, _field("query", _longer)),
    Mutation("queries of the next row", MATCH, _taken_from_next_line("query")),
    Mutation("positives of the next row", MATCH, _taken_from_next_line("positives")),
    Mutation("negatives of the next row", MATCH, _taken_from_next_line("negatives")),
    Mutation("a negative lost", MATCH, _side("negatives", lambda texts, row: texts[:-1])),
    Mutation("a positive truncated", MATCH, _side("positives", lambda texts, row: [_half_as_long(texts[0]), *texts[1:]])),
    Mutation("a row that nobody wrote", MATCH, _lost),
    Mutation("an empty query", CONTRASTS, _field("query", _blank)),
    Mutation("an empty positive", CONTRASTS, _side("positives", lambda texts, row: [" ", *texts[1:]])),
    Mutation("no positive", CONTRASTS, _side("positives", lambda texts, row: [])),
    Mutation("a positive among the negatives", CONTRASTS, _side("negatives", lambda texts, row: [*texts, row["positives"][0]])),
    Mutation("a negative twice", CONTRASTS, _side("negatives", lambda texts, row: [*texts, texts[0]])),
    Mutation("the query among the positives", CONTRASTS, _side("positives", lambda texts, row: [*texts, row["query"]])),
)
"""Corruptions of contrastive rows."""


# Mutations of what a store holds of its sources: rows lost, refused for nothing, kept for nothing, on the wrong side.

SELECTION = "selection"
_NOWHERE = 1 << 39
"""A row that no file has."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of a domain, and what a store has of them.

    Attributes:
        names: of its files.
        block: the rows, all of one file.
        stored: row, whether it is held out, and what `Stored.belongs` is, of each record.
        refused: row and ``stage/reason`` of each refusal.
    """

    names: tuple[str, ...]
    block: Selected
    stored: tuple[tuple[int, bool, int], ...]
    refused: tuple[tuple[int, str], ...]


def _gone(store: StoredRows, at: int) -> StoredRows:
    return replace(store, stored=(*store.stored[:at], *store.stored[at + 1 :]))


def _refused(reason: str) -> Callable[[StoredRows, int], StoredRows]:
    return lambda store, at: replace(_gone(store, at), refused=(*store.refused, (store.stored[at][0], reason)))


def _twice(store: StoredRows, at: int) -> StoredRows:
    return replace(store, stored=(*store.stored, store.stored[at]))


def _both(store: StoredRows, at: int) -> StoredRows:
    return replace(store, refused=(*store.refused, (store.stored[at][0], "schema/empty_answer")))


def _moved(held_out: bool) -> Callable[[StoredRows, int], StoredRows | None]:
    def change(store: StoredRows, at: int) -> StoredRows | None:
        row, held, belongs = store.stored[at]
        return None if held != held_out else replace(store, stored=(*store.stored[:at], (row, not held, belongs), *store.stored[at + 1 :]))

    return change


def _kept(fate: str) -> Callable[[StoredRows, int], StoredRows]:
    """The row that a record is from is of another fate than it seemed, and the record is there all the same."""

    def change(store: StoredRows, at: int) -> StoredRows:
        here = list(store.block.rows).index(store.stored[at][0])
        fates = [fate if number == here else each for number, each in enumerate(store.block.fates)]
        return replace(store, block=replace(store.block, fates=fates))

    return change


def _beyond(store: StoredRows, at: int) -> StoredRows:
    return replace(store, stored=(*store.stored, (_NOWHERE, *store.stored[at][1:])))


SELECTION_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a row vanished", SELECTION, _gone),
    Mutation("a row refused as a duplicate that is none", SELECTION, _refused("deduplicate/duplicate")),
    Mutation("a row refused as unreadable that can be read", SELECTION, _refused("records/invalid_json")),
    Mutation("a row refused by `where` that matches", SELECTION, _refused("records/filtered_by_where")),
    Mutation("a short row refused for its length", SELECTION, _refused("tokenize/too_long")),
    Mutation("a good row refused by its schema", SELECTION, _refused("schema/empty_answer")),
    Mutation("a duplicate kept", SELECTION, _kept(DUPLICATE)),
    Mutation("a row that misses `where` kept", SELECTION, _kept(FILTERED)),
    Mutation("a row that cannot be read kept", SELECTION, _kept(UNREADABLE)),
    Mutation("a row stored twice", SELECTION, _twice),
    Mutation("a row stored and refused", SELECTION, _both),
    Mutation("a held-out row in the training part", SELECTION, _moved(True)),
    Mutation("a training row in the held-out part", SELECTION, _moved(False)),
    Mutation("a row that is not read", SELECTION, _beyond),
)
"""Corruptions of what is stored and refused; the check `selection` must catch each."""


# Mutations of merged stores: what goes wrong where stores are put together, done on purpose to copies.


@dataclass(frozen=True, slots=True)
class Records:
    """A stream in memory: its arrays by key, where each record ends, and the file and row of each."""

    arrays: Mapping[str, npt.NDArray[Any]]
    ends: npt.NDArray[np.int64]
    file: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]


NAME = "merged"


def _lines(store: MergedRows, order: Sequence[int]) -> MergedRows:
    lines = list(store.lines)
    return MergedRows(store.origin[list(order)], [lines[at] for at in order])


def _line_lost(store: MergedRows, at: int) -> MergedRows:
    return _lines(store, [each for each in range(len(store.origin)) if each != at])


def _line_twice(store: MergedRows, at: int) -> MergedRows:
    return _lines(store, [*range(len(store.origin)), at])


def _lines_exchanged(store: MergedRows, at: int) -> MergedRows | None:
    """With the index they had, so that only their content tells."""
    lines, other = list(store.lines), (at + 1) % len(store.origin)
    return None if lines[at] == lines[other] else replace(_lines(store, _exchanged(len(lines), at, other)), origin=store.origin)


def _order_exchanged(store: MergedRows, at: int) -> MergedRows | None:
    count = len(store.origin)
    return None if count < 2 else _lines(store, _exchanged(count, at, (at + 1) % count))


def _exchanged(count: int, one: int, other: int) -> list[int]:
    order = list(range(count))
    order[one], order[other] = other, one
    return order


def _line_altered(store: MergedRows, at: int) -> MergedRows:
    lines = list(store.lines)
    lines[at] = lines[at].replace(b"}", b" }", 1)
    return MergedRows(store.origin, lines)


def _another_domain(store: MergedRows, at: int) -> MergedRows:
    origin = store.origin.copy()
    origin[at, 0] += 1
    return replace(store, origin=origin)


LINE_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a line lost", NAME, _line_lost),
    Mutation("a line twice", NAME, _line_twice),
    Mutation("two lines exchanged", NAME, _lines_exchanged),
    Mutation("another order", NAME, _order_exchanged),
    Mutation("a space more in a line", NAME, _line_altered),
    Mutation("a line of another domain", NAME, _another_domain),
)
"""Corruptions of merged lines."""


def _records(found: Records, order: list[int]) -> Records:
    starts = np.concatenate([[0], found.ends[:-1]])
    spans = [slice(int(starts[at]), int(found.ends[at])) for at in order]
    arrays = {key: np.concatenate([array[:0], *(array[span] for span in spans)]) for key, array in found.arrays.items()}
    return Records(arrays, np.cumsum((found.ends - starts)[order]), found.file[order], found.row[order])


def _record_lost(found: Records, at: int) -> Records:
    return _records(found, [each for each in range(len(found.ends)) if each != at])


def _record_twice(found: Records, at: int) -> Records:
    return _records(found, [*range(len(found.ends)), at])


def _records_exchanged(found: Records, at: int) -> Records | None:
    """With the rows they had, so that only their content tells."""
    count = len(found.ends)
    changed = replace(_records(found, _exchanged(count, at, (at + 1) % count)), file=found.file, row=found.row)
    return None if all(np.array_equal(array, found.arrays[key]) for key, array in changed.arrays.items()) else changed


def _row_moved(found: Records, at: int) -> Records:
    row = found.row.copy()
    row[at] += 1
    return replace(found, row=row)


def _value(key: str) -> Callable[[Records, int], Records | None]:
    """The last value of a record is another."""

    def change(found: Records, at: int) -> Records | None:
        if key not in found.arrays:
            return None
        array = found.arrays[key].copy()
        array[found.ends[at] - 1] = not array[found.ends[at] - 1] if key == "loss_mask" else array[found.ends[at] - 1] + 1
        return replace(found, arrays={**found.arrays, key: array})

    return change


def _border_moved(found: Records, at: int) -> Records | None:
    if at + 1 == len(found.ends):
        return None
    ends = found.ends.copy()
    ends[at] -= 1
    return replace(found, ends=ends)


RECORD_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a record lost", NAME, _record_lost),
    Mutation("a record twice", NAME, _record_twice),
    Mutation("two records exchanged", NAME, _records_exchanged),
    Mutation("a record of another line", NAME, _row_moved),
    Mutation("another token", NAME, _value("tokens")),
    Mutation("a loss mask turned round", NAME, _value("loss_mask")),
    Mutation("another reward", NAME, _value("rewards")),
    Mutation("another log-probability", NAME, _value("logprobs")),
    Mutation("a border moved", NAME, _border_moved),
)
"""Corruptions of merged records."""


# Mutations of scored groups: what goes wrong with rewards and with sampled ids, done on purpose to copies of them.

NAN, INFINITY = np.float32("nan"), np.float32("inf")
T = TypeVar("T")


def _alone(change: Callable[[T], T | None]) -> Callable[[Sequence[T], int], list[T] | None]:
    """The corrupted group, alone."""

    def changed(groups: Sequence[T], at: int) -> list[T] | None:
        return None if (other := change(groups[at])) is None else [other]

    return changed


def _no_number(group: Scores) -> Scores:
    return replace(group, rewards=np.append(group.rewards[:-1], NAN))


def _infinite(group: Scores) -> Scores:
    return replace(group, rewards=np.append(INFINITY, group.rewards[1:]))


def _reward_lost(group: Scores) -> Scores:
    return replace(group, rewards=group.rewards[:-1])


def _shifted(group: Scores) -> Scores | None:
    """As where an empty response was dropped, and its reward was not."""
    rewards = np.roll(group.rewards, 1)
    return None if np.array_equal(rewards, group.rewards) else replace(group, rewards=rewards)


def _truncated(group: Scores) -> Scores | None:
    """As in a store of int32."""
    rewards = np.trunc(group.rewards)
    return None if np.array_equal(rewards, group.rewards) else replace(group, rewards=rewards)


def _sign(group: Scores) -> Scores | None:
    return replace(group, rewards=-group.rewards) if group.rewards.any() else None


def _other_response(group: Scores) -> Scores:
    """A response of the next group counts as this one's, with its reward."""
    return replace(group, rewards=np.append(group.rewards, group.rewards[-1]), responses=group.responses + 1)


REWARD_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a reward that is no number", "rewards", _alone(_no_number)),
    Mutation("an infinite reward", "rewards", _alone(_infinite)),
    Mutation("a reward lost", "rewards", _alone(_reward_lost)),
    Mutation("rewards of a group shifted", "rewards", _alone(_shifted)),
    Mutation("rewards cut to whole numbers", "rewards", _alone(_truncated)),
    Mutation("rewards negated", "rewards", _alone(_sign)),
    Mutation("a response of another group", "rewards", _alone(_other_response)),
)
"""Corruptions of rewards; the check `rewards` must catch each."""


def _first(key: str, value: Callable[[Sequence[Any]], list[Any]]) -> Callable[[Rollout], Rollout | None]:
    """One array of the first response becomes something else; only groups whose responses have it."""

    def change(group: Rollout) -> Rollout | None:
        stored = group.responses[0]
        if key not in stored or (other := value(stored[key])) == list(stored[key]):
            return None
        return replace(group, responses=({**stored, key: other}, *group.responses[1:]))

    return change


def _lost_response(group: Rollout) -> Rollout:
    return replace(group, responses=group.responses[:-1])


def _turned_round(group: Rollout) -> Rollout | None:
    turned = tuple(reversed(group.responses))
    return None if turned == tuple(group.responses) else replace(group, responses=turned)


def _without_logprobs(group: Rollout) -> Rollout | None:
    if group.source.logprobs is None:
        return None
    return replace(group, responses=tuple({key: each[key] for key in each if key != "logprobs"} for each in group.responses))


def _other_prompt(group: Rollout) -> Rollout | None:
    return None if group.source.prompt is None else replace(group, prompt=[*group.prompt, 0])


ROLLOUT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a sampled id replaced", "sampled_ids", _alone(_first("tokens", lambda ids: [*ids[:-1], ids[-1] + 1]))),
    Mutation("a sampled id lost", "sampled_ids", _alone(_first("tokens", lambda ids: list(ids[1:])))),
    Mutation("a sampled token not trained", "sampled_ids", _alone(_first("loss_mask", lambda mask: [0, *mask[1:]]))),
    Mutation("log-probabilities shifted by one token", "sampled_ids", _alone(_first("logprobs", lambda values: [*values[1:], values[0]]))),
    Mutation(
        "log-probabilities as probabilities", "sampled_ids", _alone(_first("logprobs", lambda values: [2.0**value for value in values]))
    ),
    Mutation("log-probabilities lost", "sampled_ids", _alone(_without_logprobs)),
    Mutation("a response lost", "sampled_ids", _alone(_lost_response)),
    Mutation("responses in another order", "sampled_ids", _alone(_turned_round)),
    Mutation("another prompt than was sampled from", "sampled_ids", _alone(_other_prompt)),
)
"""Corruptions of sampled ids; the check `sampled_ids` must catch each."""
