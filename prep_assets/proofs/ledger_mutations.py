"""Mutations of what a store holds of its sources: rows lost, refused for nothing, kept for nothing, on the wrong side (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.selection import DUPLICATE, FILTERED, UNREADABLE, Selected

SELECTION = "selection"
_NOWHERE = 1 << 39
"""A row that no file has."""


@dataclass(frozen=True, slots=True)
class Shelf:
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


def _gone(shelf: Shelf, at: int) -> Shelf:
    return replace(shelf, stored=(*shelf.stored[:at], *shelf.stored[at + 1 :]))


def _refused(reason: str) -> Callable[[Shelf, int], Shelf]:
    return lambda shelf, at: replace(_gone(shelf, at), refused=(*shelf.refused, (shelf.stored[at][0], reason)))


def _twice(shelf: Shelf, at: int) -> Shelf:
    return replace(shelf, stored=(*shelf.stored, shelf.stored[at]))


def _both(shelf: Shelf, at: int) -> Shelf:
    return replace(shelf, refused=(*shelf.refused, (shelf.stored[at][0], "schema/empty_answer")))


def _moved(held_out: bool) -> Callable[[Shelf, int], Shelf | None]:
    def change(shelf: Shelf, at: int) -> Shelf | None:
        row, held, belongs = shelf.stored[at]
        return None if held != held_out else replace(shelf, stored=(*shelf.stored[:at], (row, not held, belongs), *shelf.stored[at + 1 :]))

    return change


def _kept(fate: str) -> Callable[[Shelf, int], Shelf]:
    """The row that a record is from is of another fate than it seemed, and the record is there all the same."""

    def change(shelf: Shelf, at: int) -> Shelf:
        here = list(shelf.block.rows).index(shelf.stored[at][0])
        fates = [fate if number == here else each for number, each in enumerate(shelf.block.fates)]
        return replace(shelf, block=replace(shelf.block, fates=fates))

    return change


def _beyond(shelf: Shelf, at: int) -> Shelf:
    return replace(shelf, stored=(*shelf.stored, (_NOWHERE, *shelf.stored[at][1:])))


SHELF_MUTATIONS: tuple[Mutation, ...] = (
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
