"""The books of a store: each way in which they do not balance, in the words of the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest

from prep_assets.data.quarantine import Refusal
from prep_assets.proofs.accounting import REFUSED_TOGETHER, Fields, Ledger, Refusals, Stored, account, payload_print, places
from prep_assets.proofs.selection import DUPLICATES, Again, Selected
from prep_assets.proofs.verdict import Verdict, Worst
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


@pytest.mark.parametrize(
    ("counts", "more", "says"),
    [
        ({"refused": {"schema/x": 1}}, {}, "the quarantine file lists {'schema/x': 2}, the manifest says {'schema/x': 1}"),
        ({"kept": 4999}, {}, "4,998 records are stored, the manifest says 4,999"),
        ({"read": 5001}, {"available": None}, "5,001 read, but 4,998 kept + 2 refused = 5,000"),
        ({}, {"available": 1000}, "5,000 read, the stage before offers 1,000"),
        ({"held_out": 2000}, {"recounted": {"held_out": 1000}}, "held_out: 1,000 in the store, the manifest says 2,000"),
        ({}, {"recounted": {"held_out": 1000}}, "held_out: 1,000 in the store, the manifest says 0"),
        ({"taken": -1000}, {"uncounted": ["taken", "left"]}, "taken is -1,000"),
        ({"taken": 0, "b": 1, "a": 2}, {"uncounted": ["taken"]}, "the manifest counts what nothing counts again: a, b"),
        ({}, {"metrics": ({"x": 0.25}, {"x": 0.25 + 1e-8})}, "x is 0.25000001, the manifest says 0.25"),
        ({}, {"metrics": ({}, {"x": 1000})}, "x is 1,000, and the manifest does not say it"),
        ({}, {"metrics": ({"z": 1, "x": 1, "y": 2}, {"x": 1})}, "the manifest has metrics that nothing gives: y, z"),
    ],
)
def test_books_that_do_not_balance(counts: dict[str, Any], more: dict[str, Any], says: str) -> None:
    found = verdict(COUNTS | counts, **more)
    assert found == Verdict(False, says, NUMBERS | {"read": counts.get("read", 5000)}, Worst("manifest", says))


def test_a_sentence_is_no_reason() -> None:
    found = account({"read": 1, "kept": 0, "refused": {"schema/no text": 1}}, [refusal("no text")], stored=0, available=2)
    assert found.summary == "'schema/no text' is no name of a reason; 1 read, the stage before offers 2"


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


@pytest.mark.parametrize(
    ("first", "every", "found"),
    [(5, False, [5, 64, 128]), (64, False, [64, 128]), (65, False, [65, 128]), (5, True, [5, 6, 63, 64, 65, 128, 129])],
)
def test_which_rows_are_searched_for_fields_that_the_manifest_does_not_name(first: int, every: bool, found: list[int]) -> None:
    """The first row that reached the schema, and one in 64 by its number; of a field in the manifest that all rows have, no row is."""
    searched = list[int]()

    def passed_over(row: Mapping[str, Any]) -> set[str]:
        searched.append(row["at"])
        return set()

    numbers = [4, 5, 6, 63, 64, 65, 128, 129]
    fields, rows = Fields("d", {"at": 6} if every else {}, [], passed_over, every=every), [{"at": number} for number in numbers]
    for part in (slice(0, 3), slice(3, 8)):
        reached = [at for at, number in enumerate(numbers[part]) if number >= first]
        fields.add(numbers[part], rows[part], reached)
    assert searched == found
    assert fields.found == ({"at": 7} if every else {})


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


def payload_of(row: int, **more: int) -> int:
    text = json.dumps({"row": row, **more})
    return payload_print(text, len(text))


LINE = ("b.jsonl:1", "schema/x")
WRONG_LEDGERS: list[tuple[dict[str, Any], str]] = [
    ({"held": stored((0, 0, False, 0), (0, 3, True, 1))}, "a.jsonl:2 is neither stored nor refused"),
    (
        {"held": stored((0, 0, False, 0), (0, 1, False, 0), (0, 3, True, 1), (1, 0, False, 0)), "refused": []},
        "b.jsonl:1 is stored, though it equals an earlier row in every field",
    ),
    (
        {"held": stored((0, 0, False, 0), (0, 1, False, 1), (0, 3, True, 1))},
        "a.jsonl:2 is stored to train on, and belongs to what is held out",
    ),
    (
        {"held": stored((0, 0, False, 0), (0, 1, False, 0), (0, 3, True, 0))},
        "a.jsonl:4 is stored held out, and belongs to what is to train on",
    ),
    ({"refused": [LINE]}, "b.jsonl:1 is refused for schema/x, but by a second reading it equals an earlier row in every field"),
    ({"fate": "good", "refused": [LINE]}, "b.jsonl:1 is refused for schema/x; looked at alone, nothing is wrong with it"),
    (
        {"fate": "good", "refused": [LINE], "again": always("schema/y: so")},
        "b.jsonl:1 is refused for schema/x; looked at alone, it is refused for schema/y",
    ),
    (
        {"fate": "good", "refused": [(*LINE, 0, payload_print("so"))], "again": always(f"schema/x: {'so' * 200}")},
        f"b.jsonl:1 is in quarantine with another detail than {'so' * 100!r}",
    ),
    (
        {"fate": "good", "refused": [(*LINE, payload_of(0, more=1), 0)], "again": always("schema/x")},
        "b.jsonl:1 is in quarantine with a payload that is not its row",
    ),
    (
        {"fate": "good", "refused": [LINE], "again": always("schema/x"), "proves": lambda why, row: f"{why} of {row}"},
        "b.jsonl:1 is refused for schema/x, which does not hold: schema/x of {'row': 0}",
    ),
    ({"takes": lambda row: "it is odd" if row["row"] == 1 else ""}, "a.jsonl:2 is taken by its schema, but it is odd"),
    ({"held": stored((0, 3, True, 1), (0, 1, False, 0), (0, 0, False, 0), (0, 1, False, 0))}, "a.jsonl:2 is stored twice"),
    (
        {"held": stored((0, 0, False, 0), (0, 1, False, 0), (0, 3, True, 1), *((1, row, False, 0) for row in range(1, 1002)))},
        "the store holds 1,001 records that its sources do not offer, or that are beyond a limit",
    ),
    (
        {"refused": [*REFUSED, *((f"c.jsonl:{row}", "schema/x") for row in range(1, 1002))]},
        "c.jsonl:1 is refused (and 1,000 more are), though it is stored, or no row that is read",
    ),
    ({"rows": [*LEDGER_ROWS, block(2, [4])]}, "file 3:5 is neither stored nor refused"),
    (
        {"held": stored((0, 0, False, 0), (0, 1, False, 0), (0, 3, True, 1), *[(1, 0, False, 0)] * 2), "fate": "good", "refused": []},
        "b.jsonl:1 is stored twice",
    ),
]
"""What is otherwise than in books that balance, and the one fault."""


@pytest.mark.parametrize(("otherwise", "says"), WRONG_LEDGERS)
def test_a_row_that_is_not_where_it_belongs(otherwise: dict[str, Any], says: str) -> None:
    given = {"rows": [LEDGER_ROWS[0], block(1, [0], [otherwise.get("fate", "duplicate")])], "held": HELD, "refused": REFUSED} | otherwise
    rows, held, refused, again = (given.pop(name, NOTHING) for name in ("rows", "held", "refused", "again"))
    given.pop("fate", "")
    ledger = Ledger(Refusals(refused, NAMES), held, (False, False, False), content, again, **given)
    for some in rows:
        ledger.add(some)
    verdict = ledger.verdict()
    assert (verdict.passed, verdict.numbers["faults"], verdict.summary) == (False, 1, f"1 faults; first {says}")
    assert verdict.worst is not None and f"{verdict.worst.where} {verdict.worst.note}" == says


def test_faults_are_counted_and_the_first_is_named() -> None:
    """But for a record that is stored twice, which comes before all others."""
    held = stored((0, 0, True, 0), (0, 1, False, 1), (0, 3, True, 1))
    verdict = gone_through([*LEDGER_ROWS, block(1, [7])], held, REFUSED)
    assert verdict.summary == "3 faults; first a.jsonl:1 is stored held out, and belongs to what is to train on"
    twice = stored((0, 0, True, 0), (0, 1, False, 1), (0, 3, True, 1), (0, 3, True, 1))
    assert gone_through([*LEDGER_ROWS, block(1, [7])], twice, REFUSED).summary == "4 faults; first a.jsonl:4 is stored twice"


@pytest.mark.parametrize(("ruling", "repeated"), [(None, 3), ("", 0)])
def test_rejections_that_only_the_same_code_repeats(ruling: str | None, repeated: int) -> None:
    """A payload and a detail that are as they must be are no fault."""
    refused = [(f"a.jsonl:{row + 1}", "schema/x", payload_of(row), payload_print("so")) for row in range(3)]
    ledger = Ledger(Refusals(refused, NAMES), stored(), (False, False), content, always("schema/x: so"), proves=lambda why, row: ruling)
    ledger.add(block(0, range(3)))
    verdict = ledger.verdict()
    assert verdict.passed and verdict.numbers["rejections_repeated"] == repeated
    assert verdict.summary == "3 rows, read again, are where they belong: 0 stored, 0 of them held out, 3 refused, 0 of them duplicates" + (
        "; 3 rejections repeated by the same code" if repeated else ""
    )


class EveryOther:
    """Chooses rows by their number alone."""

    def takes(self, number: int, row: Mapping[str, Any]) -> bool:
        assert row in ({"row": 2}, {"row": 3}, {"row": 4}, {"row": 5})
        return number % 2 == 0


def test_what_is_told_of_rows_that_reached_their_schema() -> None:
    """All but those that cannot be read, are not wanted, or that the schema refused; of them are judged those that are chosen."""
    fates = ["unreadable", "filtered", "good", "good", "good", "good", "good", "duplicate"]
    reasons = {0: "records/x", 1: "records/forgotten", 3: "tokenize/too_long", 6: "schema/x", 7: DUPLICATES}
    refused = [(f"b.jsonl:{row + 1}", reason) for row, reason in reasons.items()]
    held = stored(*((1, row, False, 0) for row in range(8) if row not in reasons))
    told = list[Any]()
    ledger = Ledger(
        Refusals(refused, NAMES),
        held,
        (False, False),
        content,
        lambda files, rows, payloads: [reasons[row] for row in rows],
        seen=lambda numbers, rows, read: told.append((numbers, rows, read)),
        takes=lambda row: f"it is {row['row']}",
        sampled=EveryOther(),  # type: ignore[arg-type]
    )
    rows = block(1, range(8), fates)
    ledger.add(rows)
    assert told == [([37 + row for row in range(8)], rows.payloads, [2, 3, 4, 5])], "numbers of a second file begin with 37"
    verdict = ledger.verdict()
    assert verdict.summary == "2 faults; first b.jsonl:4 is taken by its schema, but it is 3"


def test_rejected_rows_of_several_blocks_are_judged_together() -> None:
    """Tokenizers have a cost for each call. All are judged in the end."""
    rows, asked = list(range(3 * REFUSED_TOGETHER // 2)), list[int]()

    def again(files: Sequence[int], numbers: Sequence[int], payloads: Sequence[Mapping[str, Any]]) -> list[str]:
        assert [{"row": row} for row in numbers] == [*payloads] and {*files} == {0}
        asked.append(len(numbers))
        return ["" if row == rows[-1] else "schema/x" for row in numbers]

    refused = [(f"a.jsonl:{row + 1}", "schema/x") for row in rows]
    verdict = gone_through([block(0, [row]) for row in rows], stored(), refused, again=again)
    assert asked == [REFUSED_TOGETHER, REFUSED_TOGETHER // 2]
    assert verdict.summary == f"1 faults; first a.jsonl:{len(rows)} is refused for schema/x; looked at alone, nothing is wrong with it"


def test_a_line_that_says_what_its_row_and_its_reason_are() -> None:
    """Both begin the text, and its length counts: a payload is shown as far as 2,000 characters."""
    row = {"row": 0, "text": "é" * 3000}
    whole = json.dumps(row, ensure_ascii=False)
    for shown, length, right in ((whole[:2000], len(whole), True), (whole[:1999], len(whole), False), (whole[:2000], 2000, False)):
        lines = [("a.jsonl:1", "schema/x", payload_print(shown, length), payload_print("why"))]
        assert Refusals(lines, NAMES).shows(0, row) is right
        assert Refusals(lines, NAMES).says(0, "why") and not Refusals(lines, NAMES).says(0, "other")
    assert Refusals([("a.jsonl:1", "records/filtered_by_where", payload_print(""), 0)], NAMES).shows(0, row)
    dated = '{"row": "2026-01-02"}'
    assert Refusals([("a.jsonl:1", "schema/x", payload_print(dated, len(dated)), 0)], NAMES).shows(0, {"row": date(2026, 1, 2)})
    half = '{"row": "\\ud800"}'  # half a surrogate pair is spelled out in the file
    lines = [("a.jsonl:1", "schema/x", payload_print(half, len('{"row": "?"}')), payload_print("no \\udc00"))]
    assert Refusals(lines, NAMES).shows(0, {"row": "\ud800"}) and Refusals(lines, NAMES).says(0, "no \udc00")


def test_names_with_colons() -> None:
    refusals = Refusals([("x:y.jsonl:13", "schema/a"), ("z:3", "schema/b"), ("x:y.jsonl:5", "schema/b")], ["other", "x:y.jsonl"])
    assert refusals.left() == ["x:y.jsonl:13", "z:3", "x:y.jsonl:5"]
    assert [refusals.reason(at) for at in range(3)] == ["schema/a", "schema/b", "schema/b"]
    assert (refusals.place.tolist(), refusals.which.tolist()) == (places([1, 1], [4, 12]).tolist(), [2, 0])
    refusals.claim(np.array([0]))
    assert refusals.left() == ["z:3", "x:y.jsonl:5"] and refusals.duplicates() == set()
    empty = Refusals([], ["x"])
    assert (empty.place.tolist(), empty.which.tolist()) == ([], [])


def test_lines_about_rows_of_a_part() -> None:
    lines = [
        ("a.jsonl:1", "schema/a"),
        ("b.jsonl:1", "schema/b"),
        ("a.jsonl:4", DUPLICATES),
        ("other:2", DUPLICATES),
        ("a.jsonl:9", DUPLICATES),
    ]
    whole = Refusals(lines, NAMES)
    part = whole.within(int(places(0, 3)), int(places(1, 0)))
    assert (part.place.tolist(), part.which.tolist(), part.left()) == ([3, 8], [2, 4], ["a.jsonl:4", "a.jsonl:9"])
    assert (part.duplicates(), whole.duplicates()) == ({3, 8}, {3, 8})
    part.claim(np.array([4]))
    assert part.left() == ["a.jsonl:4"] and whole.left() == [line for line, _ in lines]


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
