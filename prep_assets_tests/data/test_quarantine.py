"""The quarantine file: its bytes, its counts, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data.blocks import OPERATORS, conditions, filter_blocks
from prep_assets.data.quarantine import Quarantine, Refusal, _line, read_quarantine, refusal
from prep_assets.data.read import read_blocks
from prep_assets.errors import ConfigError, StoreError
from prep_assets_tests.cells import cells


def test_lines_are_the_refusals_as_they_came(tmp_path: Path) -> None:
    """Files count records from 0, as in every release; people and code from 1."""
    path = tmp_path / "sub" / "q.jsonl"
    with Quarantine(path) as quarantine:
        quarantine.add("a.jsonl:4", "schema", "missing_field", "needs 'text'", {"ü": 1, "when": date(2024, 1, 2)})
        quarantine.add("a.jsonl:2", "schema", "missing_field", "needs 'text'", "half \ud83d pair")
        quarantine.add("b.jsonl:1", "records", "too_long", "…", "x" * 2000, length=50_000)
        assert quarantine.counts == {"records/too_long": 1, "schema/missing_field": 2}
        assert list(quarantine.counts) == sorted(quarantine.counts)
    first, _, third = path.read_bytes().splitlines()
    assert first.decode() == (
        '{"id": "a.jsonl:3", "stage": "schema", "reason": "missing_field", "detail": "needs \'text\'", '
        '"payload": "{\\"ü\\": 1, \\"when\\": \\"2024-01-02\\"}", "payload_length": 30}'
    )
    assert json.loads(third)["payload_length"] == 50_000
    refusals = list(read_quarantine(path))
    assert [refusal.id for refusal in refusals] == ["a.jsonl:4", "a.jsonl:2", "b.jsonl:1"]
    assert refusals[1] == Refusal("a.jsonl:2", "schema", "missing_field", "needs 'text'", r"half \ud83d pair", 11)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.sampled_from(['\x00\x1f\x7f\u2028"\\/', "\udc80", date(2024, 1, 2)]),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_payloads_are_written_as_the_standard_library_writes_them(payload: Any) -> None:
    expected = json.dumps(payload, ensure_ascii=False, default=str) if not isinstance(payload, str) else payload
    found = refusal("a:0", "schema", "wrong_type", "", payload)
    assert found.payload_length == len(expected)
    assert found.payload == expected[:2000].encode(errors="backslashreplace").decode()


@given(
    st.lists(st.text() | st.sampled_from(['\x00\x08\x1f\x7f\x80\u2028"\\/', "\U0010ffff"]), min_size=5, max_size=5), st.integers(0, 2**63)
)
def test_lines_are_written_as_the_standard_library_writes_them(texts: list[str], length: int) -> None:
    expected = json.dumps(dict(zip(Refusal.__struct_fields__, [*texts, length], strict=True)), ensure_ascii=False)
    assert _line(Refusal(*texts, length)).decode() == expected + "\n"


def test_no_file_is_left_where_nothing_was_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("of an earlier run")
    with Quarantine(path) as quarantine:
        assert quarantine.counts == {}
    assert not path.exists()
    assert list(read_quarantine(path)) == []


def test_unreadable_rows_go_in_as_they_are(
    tmp_path: Path, source: Callable[..., Any], read: Callable[..., tuple[list[Any], list[Any]]]
) -> None:
    file = source("a.jsonl", b'{}\n{"a": "caf\xe9' + b"x" * 3000)
    _, (row,) = read(file)
    with Quarantine(tmp_path / "q.jsonl") as quarantine:
        quarantine.add_unreadable(file, [row])
    (refusal,) = read_quarantine(tmp_path / "q.jsonl")
    assert (refusal.id, refusal.stage, refusal.reason) == ("a.jsonl:2", "records", "invalid_utf8")
    assert (refusal.payload, refusal.payload_length) == (r'{"a": "caf\xe9' + "x" * 1986, 3011)


@pytest.mark.parametrize(
    ("reason", "shown", "in_file"),
    [
        ("duplicate", "equals a b:7.jsonl:12", "equals a b:7.jsonl:11"),
        ("contaminated", "holds 'at 5:30 of x' of bench.csv:1", "holds 'at 5:30 of x' of bench.csv:0"),
        (
            "held_out",
            "shares 9 of 12 words with b.jsonl:100 of rl/gsm8k (words)",
            "shares 9 of 12 words with b.jsonl:99 of rl/gsm8k (words)",
        ),
        ("missing_field", "ends with at:12", "ends with at:12"),
    ],
)
def test_details_that_name_a_record_count_it_likewise(tmp_path: Path, reason: str, shown: str, in_file: str) -> None:
    with Quarantine(tmp_path / "q.jsonl") as quarantine:
        quarantine.add("a.jsonl:9", "x", reason, shown, "")
    assert json.loads((tmp_path / "q.jsonl").read_text())["detail"] == in_file
    assert next(read_quarantine(tmp_path / "q.jsonl")).detail == shown


def test_a_file_cut_short_stops(tmp_path: Path) -> None:
    with Quarantine(tmp_path / "q.jsonl") as quarantine:
        quarantine.add("a:0", "schema", "r", "", "")
    path = tmp_path / "q.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "a:')
    with pytest.raises(StoreError, match=r"line 2.*build again"):
        list(read_quarantine(path))


# -- filters: every operator, null and absent fields, nested fields, wrong types, and bad configuration ----------------------------------


Source = Callable[..., Any]


@cells(
    "spec, value, holds",
    [
        ("en", "en", True),
        ("en", "de", False),
        ({"==": 1}, 1.0, True),
        ({"==": 1}, True, False),
        ({"==": None}, None, True),
        ({"!=": "en"}, "de", True),
        ({"!=": "en"}, "en", False),
        ({"!=": 1}, "1", True),
        ({"in": ["en", "de"]}, "de", True),
        ({"in": ["en", "de"]}, "fr", False),
        ({"in": [1]}, True, False),
        ({"not_in": ["en", "de"]}, "fr", True),
        ({"not_in": ["en", "de"]}, "en", False),
        ({">": 3}, 3, False),
        ({">": 3}, 3.5, True),
        ({">=": 3}, 3, True),
        ({"<": 3}, 3, False),
        ({"<=": 3}, 3, True),
        ({">=": "2024-01"}, "2024-06-01", True),
        ({">": 3}, None, False),
        ({">": 1, "<": 3}, 2, True),
        ({">": 1, "<": 3}, 3, False),
        ({"exists": True}, None, True),
        ({"exists": False}, None, False),
    ],
)
def test_operators(spec: Any, value: Any, holds: bool) -> None:
    assert all(test.holds({"field": value, "other": 1}) for test in conditions({"field": spec})) is holds


@pytest.mark.parametrize(
    "spec, holds",
    [
        ("en", False),
        ({"!=": "en"}, True),
        ({"in": ["en"]}, False),
        ({"not_in": ["en"]}, True),
        ({"<": 3}, False),
        ({"exists": False}, True),
    ],
)
def test_a_field_that_is_absent(spec: Any, holds: bool) -> None:
    (test,) = conditions({"field": spec})
    assert test.holds({"other": 1}) is holds


def test_a_point_reaches_into_nested_objects_unless_a_field_has_that_name() -> None:
    (test,) = conditions({"meta.language": "en"})
    assert test.holds({"meta": {"language": "en"}})
    assert not test.holds({"meta": {"language": "de"}})
    assert not test.holds({"meta": "language"})
    assert test.holds({"meta.language": "en", "meta": {"language": "de"}})


def test_rows_that_miss_are_counted_in_file_order_with_the_unreadable_ones(source: Source) -> None:
    data = b'{"n": 1, "l": "en"}\n{"n": 5, "l": "en"}\n{bad\n{"n": 5, "l": "de"}\n{"n": "5", "l": "en"}\n{"n": 9, "l": "en"}\n'
    [block] = filter_blocks(read_blocks(source("a.jsonl", data), 0), conditions({"n": {">=": 3}, "l": "en"}))
    records, refused = block.records, block.unreadable
    assert [r.row for r in records] == [1, 5]
    assert [(u.row, u.reason, u.payload) for u in refused] == [
        (0, "filtered_by_where", ""),
        (2, "invalid_json", "{bad"),
        (3, "filtered_by_where", ""),
        (4, "where_wrong_type", ""),
    ]
    assert refused[0].detail == "n >= 3"
    assert refused[2].detail == "l == 'en'"
    assert refused[3].detail == "n >= 3 needs a number, the record has str '5'"


@pytest.mark.parametrize(
    "where, says",
    [
        ({"a": {"notin": [1]}}, "no operator 'notin'; did you mean 'not_in'"),
        ({"a": {"=<": 1}}, "no operator '=<'"),
        ({"a": {}}, "has no condition"),
        ({"a": {"in": "en"}}, "takes a list"),
        ({"a": {"in": []}}, "at least one value"),
        ({"a": ["en", "de"]}, r"takes one value.*\{in: \[\.\.\.\]\}"),
        ({"a": {"exists": "yes"}}, "true or false"),
        ({"a": {">": None}}, "takes a number or a string"),
        ({"a": {">": True}}, "takes a number or a string"),
    ],
)
def test_bad_configuration_is_named(where: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        conditions(where)


def test_the_operators_are_these() -> None:
    assert sorted(OPERATORS) == ["!=", "<", "<=", "==", ">", ">=", "exists", "in", "not_in"]


def test_a_long_payload_is_cut_and_its_length_stated(tmp_path: Path) -> None:
    with Quarantine(tmp_path / "q.jsonl") as quarantine:
        quarantine.add("a:0", "schema", "wrong_type", "", {"text": "ü" * 5000})
    (refusal,) = read_quarantine(tmp_path / "q.jsonl")
    assert refusal.payload == '{"text": "' + "ü" * 1990
    assert refusal.payload_length == 5012
