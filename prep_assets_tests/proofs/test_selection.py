"""Which rows a store must hold: every fate, limits, blocks, and what a refusal may say of a row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data.blocks import WrongType, conditions
from prep_assets.proofs import selection as module
from prep_assets.proofs.selection import Believed, Passages, Rules, Selected, beliefs_hold, belongs, matches, reason_fault, select
from prep_assets_tests.peak import peak

EIGHT = "one two three four five six seven eight"


def rows(*payloads: Any) -> Iterable[tuple[int, Any]]:
    """Numbered by tens, so that places and numbers differ."""
    return [(10 * at, payload) for at, payload in enumerate(payloads)]


def found(blocks: Iterable[Selected]) -> list[tuple[int, list[int], list[str]]]:
    listed = list(blocks)
    for block in listed:
        assert len(block.payloads) == len(block.rows)
    return [
        (file, [row for _, row, _ in own], [fate for *_, fate in own])
        for block in listed
        for file, rows in groupby(zip(block.files, block.rows, block.fates, strict=True), itemgetter(0))
        for own in [[*rows]]
    ]


def chosen(rules: Rules, *files: tuple[int, bool, Iterable[tuple[int, Any]]]) -> list[tuple[int, list[int], list[str]]]:
    return found(select(files, rules))  # type: ignore[arg-type]


def test_rows_that_are_forgotten() -> None:
    """By the sha256 of their canonical JSON, as somebody asked for it."""
    forgotten = sha256(b'{"n":2,"text":"a"}').hexdigest()
    given = rows({"text": "a", "n": 1}, {"text": "a", "n": 2}, {"n": 3})
    assert chosen(Rules(forgotten=frozenset({forgotten})), (0, False, given)) == [(0, [0, 10, 20], ["good", "filtered", "good"])]


def test_rows_of_another_domain_of_the_source_are_passed_over() -> None:
    """What cannot be read is of every domain."""
    given = rows({"of": "a", "n": 1}, {"of": "b"}, None, {"n": 2}, {"of": None}, {"of": "a", "n": 3})
    assert chosen(Rules(key="of", value="a"), (0, False, given)) == [(0, [0, 20, 50], ["good", "unreadable", "good"])]
    assert chosen(Rules(key="of", value="(missing)"), (0, False, given)) == [(0, [20, 30, 40], ["unreadable", "good", "good"])]


def test_rows_that_hold_a_passage() -> None:
    """Unless they are something else first."""
    given = rows({"n": EIGHT}, {"n": "so"}, {"n": EIGHT}, {"n": EIGHT, "out": 1}, None)
    rules = Rules(passages=Passages.of([EIGHT], 13), where={"out": {"exists": False}})
    fates = ["contaminated", "good", "duplicate", "filtered", "unreadable"]
    assert chosen(rules, (0, False, given)) == [(0, [0, 10, 20, 30, 40], fates)]


def test_rows_that_verdicts_drop() -> None:
    """By file and row; a row with another fate keeps it."""
    given = rows({"n": 1}, {"n": 2}, {"n": 1}, {"n": 3})
    wanted = [(0, [0, 10, 20, 30], ["good", "dropped", "duplicate", "good"]), (1, [0], ["good"])]
    assert chosen(Rules(dropped={(0, 10), (0, 20), (1, 30)}), (0, False, given), (1, False, rows({"n": 4}))) == wanted


@given(st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=5), st.integers(0, 2**63), st.data())
def test_what_parts_believe_of_each_other_holds_where_it_is_so(files: list[list[int]], spread: int, data: st.DataObject) -> None:
    """Files that are read apart, each with what is refused as duplicates, have the fates that they have together; nothing else is believed."""
    listed = [(number, False, rows(*({"n": value * spread} for value in each))) for number, each in enumerate(files)]
    together = chosen(Rules(), *listed)
    came = {file << 40 | row for file, numbers, fates in together for row, fate in zip(numbers, fates, strict=True) if fate == "duplicate"}

    def apart(refused: set[int]) -> tuple[list[Any], bool]:
        each = [Believed({place for place in refused if place >> 40 == number}) for number, *_ in listed]
        blocks = [block for file, one in zip(listed, each, strict=True) for block in select([file], Rules(), one)]  # type: ignore[list-item]
        digests, said = (b"".join(bytes(getattr(one, name)) for one in each) for name in ("digests", "came"))
        return found(blocks), beliefs_hold(np.frombuffer(digests, np.uint64).reshape(-1, 2), np.frombuffer(said, bool))

    assert apart(came) == (together, True)
    if places := [file << 40 | row for file, numbers, _ in together for row in numbers]:
        wrong = came ^ {data.draw(st.sampled_from(places))}
        assert not apart(wrong)[1]


def test_rows_are_equal_where_their_whole_digests_are() -> None:
    digests = np.array([[1, 5], [2, 5], [1, 5], [1, 6], [2, 6]], np.uint64)
    for came in np.ndindex(2, 2, 2, 2, 2):
        assert beliefs_hold(digests, np.array(came, bool)) is (came == (0, 0, 1, 0, 0))


@pytest.mark.parametrize(
    ("fate", "reason", "fault"),
    [
        ("good", "schema/empty_answer", None),
        ("unreadable", "records/invalid_json", None),
        ("filtered", "records/filtered_by_where", None),
        ("filtered", "records/where_wrong_type", None),
        ("duplicate", "deduplicate/duplicate", None),
        ("contaminated", "decontaminate/contaminated", None),
        ("dropped", "quality/own/reason", None),
        ("dropped", "leaks/held_out", None),
        ("dropped", "schema/x", "is dropped by its verdict"),
        ("good", "deduplicate/duplicate", "is readable, wanted and new"),
        ("unreadable", "schema/x", "cannot be read"),
        ("filtered", "records/invalid_json", "misses `where`, or is forgotten"),
        ("duplicate", "records/filtered_by_where", "equals an earlier row in every field"),
        ("contaminated", "schema/x", "holds a passage of a benchmark"),
        ("good", "decontaminate/contaminated", "is readable, wanted and new"),
    ],
)
def test_what_a_refusal_may_say(fate: str, reason: str, fault: str | None) -> None:
    assert reason_fault(fate, reason) == (fault and f"is refused for {reason}, but by a second reading it {fault}")


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """A set of their fingerprints took a hundred bytes for each row."""

    def through(count: int) -> None:
        assert all(
            block.fates == ("good",) * len(block.rows) for block in select([(0, False, ((n, {"n": n}) for n in range(count)))], Rules())
        )

    assert peak(lambda: through(20_000)) < 1_200_000


# -- `where` and `domain_key`: the second evaluation agrees with the first, and with what is spelled out ----------------------------------

tests = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", "c"]),
    st.one_of(
        st.integers(0, 3),
        st.sampled_from(["x", "y", True, False, None, 1.5]),
        st.fixed_dictionaries({"==": st.integers(0, 3) | st.text(max_size=1)}),
        st.fixed_dictionaries({"!=": st.integers(0, 3) | st.booleans()}),
        st.fixed_dictionaries({"in": st.lists(st.integers(0, 3) | st.booleans(), min_size=1, max_size=3)}),
        st.fixed_dictionaries({"not_in": st.lists(st.integers(0, 3) | st.booleans(), min_size=1, max_size=3)}),
        st.fixed_dictionaries({word: st.integers(0, 3) for word in (">", "<=")}),
        st.fixed_dictionaries({word: st.integers(0, 3) | st.sampled_from(["x"]) for word in (">=", "<")}),
        st.fixed_dictionaries({"exists": st.booleans()}),
    ),
    max_size=3,
)
small = (
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y", 1.5, 1.0]) | st.dictionaries(st.just("b"), st.integers(0, 3))
)


@given(st.dictionaries(st.sampled_from(["a", "b", "a.b", "c"]), small), tests)
def test_conditions(row: dict[str, Any], where: dict[str, Any]) -> None:
    def holds() -> bool:
        try:
            return all(test.holds(row) for test in conditions(where))
        except WrongType:
            return False

    assert matches(row, where) == holds()


ROW = {"n": 2, "f": 2.0, "s": "b", "t": True, "none": None, "a.b": 1, "o": {"p": {"q": 3}, "none": None}, "a": {"b": 5, "c": 7}}
HOLD: list[dict[str, Any]] = [
    *({"n": 2}, {"n": 2.0}, {"f": 2}, {"s": "b"}, {"t": True}, {"none": None}, {"a.b": 1}, {"a.c": 7}, {"o.p.q": 3}, {"o.none": None}, {}),
    *({"n": {"==": 2}}, {"n": {"!=": 3}}, {"t": {"!=": 1}}, {"s": {"!=": 2}}, {"gone": {"!=": 2}}, {"n": {"in": [1, 2]}}),
    *({"n": {"not_in": [1, True]}},),
    *({"n": {">": 1}}, {"n": {">=": 2}}, {"n": {"<": 3}}, {"n": {"<=": 2}}, {"f": {">": 1, "<": 3}}, {"s": {">": "a", "<=": "b"}}),
    *({"n": {"exists": True}}, {"none": {"exists": True}}, {"gone": {"exists": False}}, {"o.p": {"exists": True}}),
    *({"o.p.q.r": {"exists": False}},),
    *({"gone": {"not_in": [1]}}, {"n": 2, "s": "b"}, {"n": {">": 1}, "s": {"in": ["b"]}}),
]
MISS: list[dict[str, Any]] = [
    *({"n": 3}, {"n": "2"}, {"n": True}, {"t": 1}, {"s": "c"}, {"none": 0}, {"a.b": 5}, {"o.p.q": 4}, {"o.q": 3}, {"gone": None}),
    *({"o p q": 3},),
    *({"n": {"==": 3}}, {"n": {"!=": 2}}, {"n": {"in": [1, 3]}}, {"n": {"in": ["2"]}}, {"t": {"in": [1]}}),
    *({"n": {"not_in": [2]}}, {"gone": {"in": [1]}}),
    *({"n": {">": 2}}, {"n": {">=": 3}}, {"n": {"<": 2}}, {"n": {"<=": 1}}, {"f": {">": 1, "<": 2}}, {"s": {">": "b"}}),
    *({"s": {">": 1}}, {"gone": {">": 1}}),
    *({"n": {"exists": False}}, {"gone": {"exists": True}}, {"none": {"exists": False}}, {"none": {"<": 1}}, {"t": {">=": 1}}),
    *({"n": 2, "s": "c"}, {"n": 3, "s": "b"}),
]


def test_conditions_one_by_one() -> None:
    assert [where for where in HOLD if not matches(ROW, where)] == []
    assert [where for where in MISS if matches(ROW, where)] == []


def test_rows_of_one_source() -> None:
    assert belongs({}, None, "x") and belongs({"d": "x"}, "d", "x") and belongs({"d": 1}, "d", "1")
    assert not belongs({"d": "y"}, "d", "x") and not belongs({}, "d", "x") and not belongs({"d": None}, "d", "None")
    assert belongs({}, "d", "(missing)")


# -- Passages of benchmarks: what counts as one, and where they are looked for ------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "held"),
    [
        ({"text": f"well, {EIGHT.upper()}!"}, True),
        ({"text": "x", "messages": [{"content": EIGHT.replace(" ", "\n")}]}, True),
        ({"text": EIGHT.replace("five", "fifth")}, False),
        ({"a": "one two three four", "b": "five six seven eight"}, False),
        ({"text": EIGHT.removesuffix(" eight")}, False),
        ({}, False),
    ],
)
def test_a_row_that_holds_a_passage(row: dict[str, Any], held: bool) -> None:
    assert Passages.of([EIGHT], 13).holds(row) is held


def test_a_limit_counts_wanted_rows_of_training_files() -> None:
    files = (0, False, rows({"n": 0}, {"n": 1}, {"n": 2})), (1, True, rows({"n": 3}, {"n": 4})), (2, False, rows({"n": 5}, {"n": 6}))
    wanted = [(0, [0, 10, 20], ["filtered", "good", "good"]), (1, [0, 10], ["good", "good"]), (2, [0], ["good"])]
    more = (3, False, rows({"n": 7})), (4, True, rows({"n": 8}, {"n": 9}))
    assert chosen(Rules(limit=3, where={"n": {">": 0}}), *files, *more) == [*wanted, (4, [0, 10], ["good", "good"])]


def test_rows_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many, fewer where they are long: what is held in memory at a time."""
    monkeypatch.setattr(module, "BLOCK", 3)
    monkeypatch.setattr(module, "MOST", 40)
    sizes = [[3, 3, 3], [20, 20], [20, 19, 3], [41], [39, 3], [3]]
    texts = ["x" * (size - len('""')) for block in sizes for size in block]
    blocks = select([(0, False, rows(*texts))], Rules(deduplicate=False))  # type: ignore[arg-type]
    assert [[len(json.dumps(text)) for text in block.payloads] for block in blocks] == sizes
