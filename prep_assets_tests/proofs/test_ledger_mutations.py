"""Each corruption of what is stored and refused does what its name says, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prep_assets.proofs import mutations as kit
from prep_assets.proofs.mutations import SELECTION, SELECTION_MUTATIONS, StoredRows
from prep_assets.proofs.selection import Selected

BLOCK = Selected(0, [3, 4, 7], ["good"] * 3, [{}, {}, {}])
STORED = StoredRows(("a",), BLOCK, ((3, False, -1), (4, True, 1), (7, False, 0)), ((5, "x/y"),))
WITHOUT = ((3, False, -1), (7, False, 0))


def fates(*names: str) -> dict[str, Any]:
    return {"block": replace(BLOCK, fates=list(names))}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("a row vanished", {"stored": WITHOUT}),
        ("a row refused as a duplicate that is none", {"stored": WITHOUT, "refused": ((5, "x/y"), (4, "deduplicate/duplicate"))}),
        ("a row refused as unreadable that can be read", {"stored": WITHOUT, "refused": ((5, "x/y"), (4, "records/invalid_json"))}),
        ("a row refused by `where` that matches", {"stored": WITHOUT, "refused": ((5, "x/y"), (4, "records/filtered_by_where"))}),
        ("a short row refused for its length", {"stored": WITHOUT, "refused": ((5, "x/y"), (4, "tokenize/too_long"))}),
        ("a good row refused by its schema", {"stored": WITHOUT, "refused": ((5, "x/y"), (4, "schema/empty_answer"))}),
        ("a duplicate kept", fates("good", "duplicate", "good")),
        ("a row that misses `where` kept", fates("good", "filtered", "good")),
        ("a row that cannot be read kept", fates("good", "unreadable", "good")),
        ("a row stored twice", {"stored": (*STORED.stored, (4, True, 1))}),
        ("a row stored and refused", {"refused": ((5, "x/y"), (4, "schema/empty_answer"))}),
        ("a held-out row in the training part", {"stored": ((3, False, -1), (4, False, 1), (7, False, 0))}),
        ("a training row in the held-out part", None),
        ("a row that is not read", {"stored": (*STORED.stored, (1 << 39, True, 1))}),
    ],
)
def test_each_corruption(name: str, changes: dict[str, Any] | None) -> None:
    [mutation] = [each for each in SELECTION_MUTATIONS if each.name == name]
    assert mutation.change(STORED, 1) == (None if changes is None else replace(STORED, **changes))


def test_the_factories() -> None:
    """They are called when the module is read, so they are called here again."""
    assert SELECTION == "selection" and len(SELECTION_MUTATIONS) == 14
    assert kit._refused("a/b")(STORED, 0) == replace(STORED, stored=STORED.stored[1:], refused=((5, "x/y"), (3, "a/b")))
    moved = ((3, True, -1), *STORED.stored[1:])
    assert kit._moved(False)(STORED, 0) == replace(STORED, stored=moved)
    assert kit._moved(True)(STORED, 0) is None and kit._moved(False)(STORED, 1) is None
    assert kit._moved(False)(STORED, 2) == replace(STORED, stored=(*STORED.stored[:2], (7, True, 0)))
    assert kit._kept("x")(STORED, 2) == replace(STORED, **fates("good", "good", "x"))
