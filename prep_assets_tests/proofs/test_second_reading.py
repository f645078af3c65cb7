"""The second readers agree with the first ones, on rows as hostile as they come: sources, conditions, fingerprints, what is held out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.assets.reading.examples import Deduplicator, content_digest, held_out
from prep_assets.errors import Refused
from prep_assets.proofs.conditions import belongs, matches
from prep_assets.proofs.held_out import canonical_json, fingerprint, is_held_out
from prep_assets.proofs.plain_reading import as_text, plain_pair, plain_prompt
from prep_assets.proofs.source_rows import Unsupported, read_rows
from prep_assets.records.files import SourceFile
from prep_assets.records.read import read_blocks
from prep_assets.records.where import WrongType, conditions
from prep_assets.samples import Record

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.sampled_from(["a", "b", "a.b", "c", "é"]), values, max_size=4)


def by_project(folder: Path, data: bytes, format: str, txt: Any = "line") -> list[tuple[int, Any]]:
    path = folder / "x"
    path.write_bytes(data)
    rows: list[tuple[int, Any]] = []
    for block in read_blocks(SourceFile("x", str(path), len(data), format, None), 0, txt=txt):
        rows += [(record.row, record.payload) for record in block.records] + [(bad.row, None) for bad in block.unreadable]
    return sorted(rows, key=lambda row: row[0])


HOSTILE = [
    *(
        b'{"a": 1}',
        b"",
        b"  ",
        b"\t",
        b"[1]",
        b'"x"',
        b"null",
        b"{broken",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
    ),
    *(
        b'{"a": "\\ud800"}',
        b'{"a": "\\ud83d\\ude00"}',
        b'{"a": "\xff"}',
        b'{"a": 1, "a": 2}',
        b' {"a": 1} ',
        b'{"a": 1}\r',
        b"\x0b",
        b'{"a": 1} x',
    ),
    *(b'{"a": "\x01"}', b'{"a": 12345678901234567890123}', b'{"a": -0.0}', b'{"\\ud800": 1}', b'{"a": 01}', b'{"a": .5}', b"[" * 100_000),
]


@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf"])
def test_hostile_lines(tmp_path: Path, first: bytes) -> None:
    for ending in (b"", b"\n"):
        data = first + b"\n".join(HOSTILE) + ending
        assert list(read_rows(io.BytesIO(data), "jsonl", None)) == by_project(tmp_path, data, "jsonl")
        assert list(read_rows(io.BytesIO(data), "txt", None)) == by_project(tmp_path, data, "txt")
        assert list(read_rows(io.BytesIO(data), "txt", None, whole_file=True)) == by_project(tmp_path, data, "txt", "file")


CSVS = [
    "a,b\n1,2\n",
    "a,b\n\n1,2\n3\n4,5,6\n",
    'a,b\n"x\ny",2\n',
    'a,b\n"x""y",\r\n1,2\r\n',
    'a,b\n1,"2"x\n3,4\n',
    "a\n\n\n",
    "\ufeffa,b\né,ü\n",
    "a\nx\ry\nz\n",
]


@pytest.mark.parametrize("text", CSVS)
def test_hostile_tables(tmp_path: Path, text: str) -> None:
    for data in (text.encode(), text.encode() + b"\xff,1\n"):
        assert list(read_rows(io.BytesIO(data), "csv", None)) == by_project(tmp_path, data, "csv")
        tabs = data.replace(b",", b"\t")
        assert list(read_rows(io.BytesIO(tabs), "tsv", None)) == by_project(tmp_path, tabs, "tsv")


@pytest.mark.parametrize("text", ['[{"a": 1}, 2, {"b": []}, null]', '{"a": 1}', "[]", '\ufeff [{"a": "\\u00e9"}]\n'])
def test_lists(tmp_path: Path, text: str) -> None:
    assert list(read_rows(io.BytesIO(text.encode()), "json", None)) == by_project(tmp_path, text.encode(), "json")


@pytest.mark.parametrize("text", ['[{"a": NaN}, {"a": 1}]', '[{"a": "\\ud800"}]', '[{"a": 1e999}]'])
def test_a_damaged_list_is_left_to_the_first_reader(text: str) -> None:
    with pytest.raises(Unsupported):
        read_rows(io.BytesIO(text.encode()), "json", None)


def test_a_table_without_a_header_or_end_is_left_to_the_first_reader() -> None:
    for data in (b"", b'a,b\n"x,1\n'):
        with pytest.raises(Unsupported):
            list(read_rows(io.BytesIO(data), "csv", None))


@given(payloads, payloads)
def test_fingerprints_are_equal_where_every_field_is(one: dict[str, Any], two: dict[str, Any]) -> None:
    found = Deduplicator()
    found.check(Record(0, 0, one), "one")
    try:
        found.check(Record(0, 1, two), "two")
        equal = False
    except Refused:
        equal = True
    assert (fingerprint(one) == fingerprint(two)) == equal
    assert fingerprint(one) == fingerprint(dict(reversed(one.items())))
    assert len(fingerprint(one)) == 16


@given(payloads, st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.999]))
def test_the_held_out_share(payload: dict[str, Any], fraction: float) -> None:
    content = canonical_json(payload)
    assert content == msgspec.json.encode(payload, order="sorted")
    assert is_held_out(content, fraction) == held_out(content_digest(Record(0, 0, payload)), fraction)


def test_the_border_of_the_held_out_share() -> None:
    for number in range(200):
        content = str(number).encode()
        share = int.from_bytes(xxhash.xxh3_128_digest(content)[:8], "big") / 2**64
        assert not is_held_out(content, share * (1 - 1e-9)) and is_held_out(content, share * (1 + 1e-9))


def test_values_that_json_does_not_have() -> None:
    import datetime

    day, path = datetime.date(2024, 1, 2), Path("2024-01-02")
    assert canonical_json({"a": day}) == b'{"a":"2024-01-02"}'
    assert fingerprint({"a": day}) != fingerprint({"a": "2024-01-02"})
    assert fingerprint({"a": float("nan")}) != fingerprint({"a": None})
    assert fingerprint({"a": day}) not in (fingerprint({"a": datetime.date(2024, 1, 3)}), fingerprint({"a": None}))
    assert fingerprint({"a": day}) != fingerprint({"a": path}) and fingerprint({"a": path}) == fingerprint({"a": Path(str(day))})
    assert canonical_json({"a": float("nan"), "é": [1, 2]}) == '{"a":null,"é":[1,2]}'.encode()
    assert canonical_json({"b": 1e16, "a": "1e5"}) == b'{"a":"1e5","b":1e16}'


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
    *(
        {"n": {"==": 2}},
        {"n": {"!=": 3}},
        {"t": {"!=": 1}},
        {"s": {"!=": 2}},
        {"gone": {"!=": 2}},
        {"n": {"in": [1, 2]}},
        {"n": {"not_in": [1, True]}},
    ),
    *({"n": {">": 1}}, {"n": {">=": 2}}, {"n": {"<": 3}}, {"n": {"<=": 2}}, {"f": {">": 1, "<": 3}}, {"s": {">": "a", "<=": "b"}}),
    *(
        {"n": {"exists": True}},
        {"none": {"exists": True}},
        {"gone": {"exists": False}},
        {"o.p": {"exists": True}},
        {"o.p.q.r": {"exists": False}},
    ),
    *({"gone": {"not_in": [1]}}, {"n": 2, "s": "b"}, {"n": {">": 1}, "s": {"in": ["b"]}}),
]
MISS: list[dict[str, Any]] = [
    *(
        {"n": 3},
        {"n": "2"},
        {"n": True},
        {"t": 1},
        {"s": "c"},
        {"none": 0},
        {"a.b": 5},
        {"o.p.q": 4},
        {"o.q": 3},
        {"gone": None},
        {"o p q": 3},
    ),
    *(
        {"n": {"==": 3}},
        {"n": {"!=": 2}},
        {"n": {"in": [1, 3]}},
        {"n": {"in": ["2"]}},
        {"t": {"in": [1]}},
        {"n": {"not_in": [2]}},
        {"gone": {"in": [1]}},
    ),
    *(
        {"n": {">": 2}},
        {"n": {">=": 3}},
        {"n": {"<": 2}},
        {"n": {"<=": 1}},
        {"f": {">": 1, "<": 2}},
        {"s": {">": "b"}},
        {"s": {">": 1}},
        {"gone": {">": 1}},
    ),
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


def test_plain_rows() -> None:
    dialogue = {"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c \n\nAssistant: d ", "rejected": "\n\nHuman: c\n\nAssistant: e"}
    assert plain_pair(dialogue, "hh", {}) == {"prompt": "Human: a\n\nAssistant: b\n\nHuman: c", "chosen": "d", "rejected": "e"}
    message = {"role": "assistant", "content": " 7 "}
    rated = {"prompt": " p ", "chosen": [{}, message], "rejected": [{}, {**message, "content": "9"}]}
    assert plain_pair(rated, "ultrafeedback", {}) == {"prompt": "p", "chosen": "7", "rejected": "9"}
    assert plain_pair({**rated, "rejected": [{**message, "thinking": "x"}]}, "ultrafeedback", {}) is None
    plain = {"prompt": " p", "chosen": "c ", "rejected": "r"}
    assert plain_pair(plain, "preference", {}) == plain
    for other in ({**plain, "system": "s"}, {**plain, "tools": [{}]}, {**plain, "chosen": [message]}, {"chosen": "c", "rejected": "r"}):
        assert plain_pair(other, "preference", {}) is None
    assert plain_pair(plain, "preference", {"template": False}) is None and plain_pair(plain, "kto", {}) is None
    assert plain_prompt({"question": " q "}, "gsm8k", {}) == {"prompt": "q"} == plain_prompt({"prompt": "q"}, "rl_prompt", {})
    for row, schema, options in (
        ({"prompt": [message]}, "rl_prompt", {}),
        ({"prompt": "q", "tools": [1]}, "rl_prompt", {}),
        ({"prompt": "q"}, "rl_prompt", {"system": "s"}),
    ):
        assert plain_prompt(row, schema, options) is None
    assert as_text("x") == "x" == as_text([{"role": "user", "content": "x"}])
    for value in ([], [{"role": "user"}], [{"role": "user", "content": "x"}] * 2, 1):
        assert as_text(value) is None
