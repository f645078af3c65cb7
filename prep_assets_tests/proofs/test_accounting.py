"""The books of a store: each way in which they do not balance, in the words of the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from prep_assets.data.quarantine import Refusal
from prep_assets.proofs.accounting import Fields, Ledger, Refusals, Stored, account, places
from prep_assets.proofs.selection import Again, Selected
from prep_assets.proofs.verdict import Verdict
from prep_assets_tests.peak import peak

COUNTS: dict[str, Any] = {"read": 5000, "kept": 4998, "refused": {"schema/x": 2}}
NUMBERS = {"read": 5000, "kept": 4998, "refused": 2}


def refusal(reason: str, stage: str = "schema") -> Refusal:
    return Refusal("a:0", stage, reason, "why", "{}", 2)


def verdict(counts: dict[str, Any] = COUNTS, stored: int = 4998, available: int | None = 5000, **fields: Any) -> Verdict:
    return account(counts, [refusal("x"), refusal("x")], stored=stored, available=available, **fields)


@pytest.mark.parametrize("available", [5000, None])
def test_books_that_balance(available: int | None) -> None:
    assert verdict(available=available) == Verdict(True, "5,000 read = 4,998 kept + 2 refused", NUMBERS)
    assert account({"read": 0, "kept": 0}, [], stored=0, available=0).passed


def test_fields_that_are_passed_over_are_counted() -> None:
    counts = COUNTS | {"fields_passed_over": {"a": {"id": 5000, "messages[].ID": 1}, "b": {"own": 3}}}
    found = verdict(counts, neutral={"id"}, ignored={"b/own"})
    passed_over = {"passed over: a/id": 5000, "passed over: a/messages[].ID": 1, "passed over: b/own": 3}
    assert found == Verdict(
        True,
        "5,000 read = 4,998 kept + 2 refused; fields left unread: a/id in 5,000, a/messages[].ID in 1, b/own in 3",
        NUMBERS | passed_over,
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"a": {"own": 3, "other": 1}}, "unlisted fields were ignored: a/own, a/other"),
        ({"a": {"id": 5001, "x.id": 0}}, "fields were passed over in more rows than were read: id in 5,001, x.id in 0"),
    ],
)
def test_fields_that_may_not_be_passed_over(fields: dict[str, dict[str, int]], says: str) -> None:
    found = verdict(COUNTS | {"fields_passed_over": fields}, neutral={"id"})
    assert not found.passed
    assert found.summary.replace(" a/id in", " id in").replace(" a/x.id", " x.id") == says


ROWS: list[dict[str, Any]] = [
    {"id": "a", "mood": "", "messages": [{"text": "x", "meta": {}}, {"text": "y", "meta": {"n": 0}}]},
    {"id": 0, "mood": None, "messages": [], "a.b": {"c": False}},
    {"id": [], "mood": {}, "turns": {"one": {"at": 1}, "two": {"at": None}}, "a": {"b": {"c": ""}}},
    {"messages": [{"other": None}, {"other": ""}]},
    {"id": [[]], "mood": "so", "turns": {"one": 1}, "a": {"b.c": 1}, "messages": "none"},
]


def reads(*names: str) -> Callable[[Mapping[str, Any]], set[str]]:
    """A schema that passes over all but these fields; it counts no more than that they are there."""
    return lambda row: {name for name, value in row.items() if value not in (None, "", {}, []) and name not in names}


def test_fields_are_counted_again() -> None:
    claimed = {"id": 2, "messages.meta": 1, "turns.*.at": 1, "a.b.c": 2, "messages.text": 1}
    fields = Fields("d", claimed, ["mood"], reads("id", "messages", "turns", "a"))
    fields.add(range(len(ROWS)), ROWS, range(len(ROWS)))
    assert fields.found == {"id": 3, "mood": 1, "messages.meta": 1, "turns.*.at": 1, "a.b.c": 2, "messages.text": 1}


@pytest.mark.parametrize(
    ("claimed", "ignored", "read", "says"),
    [
        ({"id": 3}, [], ["messages"], []),
        ({"id": 4}, [], ["messages"], ["'id' is passed over in 3 rows by a second reading, in 4 as the manifest says"]),
        # a field that is read in some rows
        ({"id": 1}, [], ["messages", "one"], ["'id' is passed over in 2 rows by a second reading, in 1 as the manifest says"]),
        ({"id": 2, "mood": 1}, ["mood"], ["messages", "one"], []),
        ({"id": 2}, ["mood"], ["messages", "one"], ["'mood' is passed over in 1 rows by a second reading, in 0 as the manifest says"]),
        ({"id": 3}, ["messages.meta"], ["messages"], []),
        (
            {"messages.other": 1},
            [],
            ["id", "messages"],
            ["'messages.other' is passed over in 0 rows by a second reading, in 1 as the manifest says"],
        ),
    ],
)
def test_fields_that_are_counted_otherwise(claimed: dict[str, int], ignored: list[str], read: list[str], says: list[str]) -> None:
    def passed_over(row: Mapping[str, Any]) -> set[str]:
        skipped = {
            "turns",
            "a",
            "a.b",
            *(["mood"] if "mood" not in {*claimed, *ignored} else []),
            *(["id"] if "one" in read and row.get("id") == 0 else []),
        }
        return reads(*read, *skipped)(row)

    fields = Fields("d", claimed, ignored, passed_over)
    fields.add(range(len(ROWS)), ROWS, range(len(ROWS)))
    assert fields.faults(lambda: ROWS) == [f"of domain d {each}" for each in says]


@pytest.mark.parametrize(("number", "found"), [(0, True), (1, False), (63, False), (64, True)])
def test_a_field_that_the_manifest_does_not_name_is_found_in_sampled_rows(number: int, found: bool) -> None:
    fields = Fields("d", {}, [], reads("text"))
    rows = [{"text": "x", "source": "y" if at == number else None, "id": "z" if at == number else ""} for at in range(100)]
    fields.add(range(100), rows, range(100))
    says = [f"of domain d {name!r} is passed over, which the manifest does not name" for name in ("id", "source")]
    assert fields.faults(list) == (says if found else [])


# -- The ledger on a store of rows: each row that is not where it belongs, in the words of the verdict ------------------------------------

pytestmark = pytest.mark.usefixtures("short_stretches")
NAMES = ("a.jsonl", "b.jsonl")


def block(file: int, rows: Sequence[int], fates: Sequence[str] | None = None) -> Selected:
    made = ["good"] * len(rows) if fates is None else list(fates)
    return Selected(
        [file] * len(rows), rows, made, [None if fate == "unreadable" else {"row": row} for row, fate in zip(rows, made, strict=True)]
    )


def stored(*records: tuple[int, int, bool, int]) -> Stored:
    """File, row, side, and what the text says of its side."""
    file, row, side, says = zip(*records, strict=True) if records else ((),) * 4
    return Stored.of(places(file, row), np.array(side, bool), np.array(says, np.int8))


def content(payload: Mapping[str, Any]) -> bytes:
    return str(payload["row"]).encode()


def always(reason: str) -> Again:
    return lambda file, rows, payloads: [reason] * len(rows)


NOTHING = always("")


def gone_through(
    blocks: Sequence[Selected],
    held: Stored,
    refused: Sequence[tuple[str, str]] = (),
    fraction: float = 0.0,
    files: Sequence[bool] = (False, False),
    again: Any = NOTHING,
) -> Verdict:
    ledger = Ledger(Refusals(refused, NAMES), held, files, content, again, fraction)
    for some in blocks:
        ledger.add(some)
    return ledger.verdict()


LEDGER_ROWS = [block(0, [0, 1, 3]), block(1, [0], ["duplicate"])]
HELD = stored((0, 0, False, 0), (0, 1, False, 0), (0, 3, True, 1))
REFUSED = [("b.jsonl:1", "deduplicate/duplicate")]
LEDGER_NUMBERS = {
    "rows_read_again": 4,
    "rows_stored": 3,
    "rows_refused": 1,
    "duplicates": 1,
    "rows_held_out": 1,
    "faults": 0,
    "rejections_repeated": 0,
}


def test_every_row_is_where_it_belongs() -> None:
    assert gone_through(LEDGER_ROWS, HELD, REFUSED) == Verdict(
        True, "4 rows, read again, are where they belong: 3 stored, 1 of them held out, 1 refused, 1 of them duplicates", LEDGER_NUMBERS
    )


def test_the_content_decides_the_side_where_nothing_else_does() -> None:
    import xxhash

    fraction = 0.5
    out = [row for row in range(20) if xxhash.xxh3_128_intdigest(str(row).encode()) / (1 << 128) < fraction]
    assert 0 < len(out) < 20
    rows = [block(0, range(20))]
    assert gone_through(rows, stored(*((0, row, row in out, -1) for row in range(20))), fraction=fraction).passed
    wrong = gone_through(rows, stored(*((0, row, row not in out, -1) for row in range(20))), fraction=fraction)
    assert wrong.numbers["faults"] == 20
    assert gone_through(rows, stored(*((0, row, False, -1) for row in range(20)))).passed, "nothing is held out"
    assert gone_through(rows, stored(*((0, row, True, -1) for row in range(20))), fraction=fraction, files=(True, False)).passed
    assert gone_through(rows, stored(*((0, row, False, 0) for row in range(20))), fraction=fraction).passed, "the text itself says so"


def test_names_with_colons() -> None:
    refusals = Refusals([("x:y.jsonl:13", "schema/a"), ("z:3", "schema/b"), ("x:y.jsonl:5", "schema/b")], ["other", "x:y.jsonl"])
    assert refusals.left() == ["x:y.jsonl:13", "z:3", "x:y.jsonl:5"]
    assert [refusals.reason(at) for at in range(3)] == ["schema/a", "schema/b", "schema/b"]
    assert (refusals.place.tolist(), refusals.which.tolist()) == (places([1, 1], [4, 12]).tolist(), [2, 0])
    refusals.claim(np.array([0]))
    assert refusals.left() == ["z:3", "x:y.jsonl:5"]
    empty = Refusals([], ["x"])
    assert (empty.place.tolist(), empty.which.tolist()) == ([], [])


def test_memory_does_not_grow_with_the_number_of_refusals() -> None:
    """Three Python numbers were held for each: a hundred bytes. Short columns are in memory, sorted as well."""

    def listed(count: int) -> None:
        found = Refusals(((f"a.jsonl:{row + 1001}", "schema/x") for row in range(count)), NAMES)
        assert found.reason(count - 1) == "schema/x"

    assert peak(lambda: listed(30_000)) < 2_000_000


def test_rows_of_several_files_in_a_block_belong_where_their_own_file_does() -> None:
    """The first is refused, so that places among all rows and among those that are stored differ."""
    together = Selected([0, 1], [0, 0], ["duplicate", "good"], [{"row": 0}, {"row": 0}])
    refused = [("a.jsonl:1", "deduplicate/duplicate")]
    for side in (True, False):
        verdict = gone_through([together], stored((1, 0, side, 0)), refused, files=(False, True))
        assert verdict.passed == side
