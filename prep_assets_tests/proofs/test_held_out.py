"""Fingerprints and what is held out agree with the first reading, on any values."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data.files import SourceFile
from prep_assets.pipeline.examples import Deduplicator, content_digest, held_out
from prep_assets.proofs.second_reading import canonical_json, fingerprint, is_held_out, sorted_json
from prep_assets.samples import Record

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.sampled_from(["a", "b", "a.b", "c", "é"]), values, max_size=4)


@given(payloads, payloads)
def test_fingerprints_are_equal_where_every_field_is(one: dict[str, Any], two: dict[str, Any]) -> None:
    file = SourceFile("a", "a", 0, "jsonl", None)
    for blocks in ([[one, two]], [[one], [two]]):
        found, rows = Deduplicator(), iter(range(2))
        gone = [found.among(file, [Record(0, next(rows), each) for each in block]) for block in blocks]
        assert (fingerprint(one) == fingerprint(two)) == bool(gone[-1])
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
        exact: Any = Fraction(int.from_bytes(xxhash.xxh3_128_digest(content)[:8], "big"), 2**64)
        assert not is_held_out(content, exact)


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


def test_only_rows_with_null_take_the_slower_writer() -> None:
    """Both write keys in order; the quicker one knows one null for what is not a number and for what is not there."""
    assert sorted_json({"b": [1, 0.5], "a": "é"}) == '{"a":"é","b":[1,0.5]}'.encode()
    assert sorted_json({"b": None, "a": float("nan")}) == b'{"a": NaN, "b": null}'
    assert sorted_json({"b": ["null"], "a": 1}) == b'{"a": 1, "b": ["null"]}'
    assert sorted_json({"b": "null", "a": True}) == b'{"a":true,"b":"null"}', "no value of these types is written as null"
    assert sorted_json({"b": "null", "a": True, "c": 1}) == b'{"a":true,"b":"null","c":1}', "nor of all three"
    assert sorted_json({"a": 1 << 70}) == b'{"a": 1180591620717411303424}', "nor is what the quicker one does not know"
    assert sorted_json(["null"]) == b'["null"]'


def test_ordinary_values_are_not_left_to_the_first_readings_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> bytes:
        raise AssertionError

    monkeypatch.setattr(msgspec.json, "encode", never)
    assert canonical_json({"b": [1, "é", None], "a": {"d": 0.5, "c": True}}) == '{"a":{"c":true,"d":0.5},"b":[1,"é",null]}'.encode()
    for odd in (1e16, float("nan")):
        with pytest.raises(AssertionError):
            canonical_json({"a": odd})
