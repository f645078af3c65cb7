"""Rows of messages that are read into columns, among all others of a file."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs import second_reading as source_rows
from prep_assets.proofs.second_reading import ALL, Between, MessageRows, read_rows
from prep_assets_tests.proofs.test_message_rows import FIELDS, OTHERS, PLAIN, line


def expanded(found: Any) -> list[tuple[int, Any]]:
    rows: list[tuple[int, Any]] = []
    for some in found:
        if isinstance(some, MessageRows):
            assert len(some) == len(some.numbers)
            rows += zip(some.numbers, some, strict=True)
        else:
            rows.append(some)
    return rows


@given(
    st.lists(st.sampled_from(PLAIN) | st.sampled_from(OTHERS), max_size=12), st.sampled_from([1, 2, 64]), st.sampled_from([1, 99, 1 << 20])
)
def test_whatever_a_file_holds_its_rows_are_the_same(lines: list[bytes], fewest: int, most: int) -> None:
    data = b"\n".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_rows, "FEWEST", fewest)
        patch.setattr(source_rows, "MESSAGE_BYTES", most)
        found = expanded(read_rows(io.BytesIO(data), "jsonl", None, messages=FIELDS))
    assert found == list(read_rows(io.BytesIO(data), "jsonl", None))


def test_a_line_that_is_not_plain_leaves_most_others_in_columns() -> None:
    lines = [line(str(number)) for number in range(1000)]
    lines[100] = line("x", name="n")
    found = list(read_rows(io.BytesIO(b"\n".join(lines)), "jsonl", None, messages=FIELDS))
    assert sum(isinstance(each, MessageRows) for each in found) < 8
    assert sum(len(each) for each in found if isinstance(each, MessageRows)) >= 1000 - source_rows.FEWEST


def numbers(lines: list[bytes], between: Between = ALL, **sizes: int) -> list[list[int] | int]:
    """Those that come together, and each that comes by itself."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(source_rows, name, size)
        found = list(read_rows(io.BytesIO(b"\n".join([*lines, b""])), "jsonl", None, between=between, messages=FIELDS))
    return [list(each.numbers) if isinstance(each, MessageRows) else each[0] for each in found]


PAGE, OTHER = line("a"), line("a", name="n")


def test_lines_are_read_into_columns_up_to_so_many_bytes() -> None:
    assert source_rows.MESSAGE_BYTES == 1 << 20
    size = len(PAGE)
    assert numbers([PAGE] * 7, MESSAGE_BYTES=3 * size) == [[0, 1, 2], [3, 4, 5], [6]]
    assert numbers([PAGE] * 7, MESSAGE_BYTES=3 * size - 1) == [[0, 1], [2, 3], [4, 5], [6]]
    assert numbers([PAGE] * 3, MESSAGE_BYTES=1) == [[0], [1], [2]]
    assert numbers([PAGE] * 3, Between(None, 40), MESSAGE_BYTES=2 * size) == [[40, 41], [42]]
    assert numbers([PAGE] * 3, Between(2 * size + 2, 40, 42)) == [[40, 41]]


def test_a_line_that_is_too_long_stands_between_columns() -> None:
    assert numbers([PAGE, PAGE, line("x" * 99), PAGE, PAGE], LINE_BYTES=len(PAGE)) == [[0, 1], 2, [3, 4]]
    assert numbers([line("x" * 99), PAGE, PAGE, PAGE], LINE_BYTES=len(PAGE), MESSAGE_BYTES=2 * len(PAGE)) == [0, [1, 2], [3]]


def test_lines_of_which_one_cannot_be_read_are_halved() -> None:
    assert numbers([PAGE, PAGE, PAGE, OTHER], FEWEST=1) == [[0, 1], [2], 3]
    assert numbers([PAGE] * 6 + [OTHER], FEWEST=1) == [[0, 1, 2], [3, 4], [5], 6]
    assert numbers([OTHER] + [PAGE] * 6, FEWEST=2) == [0, [1, 2], [3, 4, 5, 6]]
    assert numbers([PAGE, PAGE, OTHER], FEWEST=3) == [0, 1, 2], "so few are read one by one"
    assert numbers([PAGE, PAGE, PAGE, OTHER], FEWEST=3) == [[0, 1], 2, 3]


@pytest.mark.parametrize(("format", "data"), [("txt", b"a\nb\n"), ("csv", b"x\na\nb\n"), ("json", b'[{"x": "a"}, {"x": "b"}]')])
def test_only_lines_of_json_come_in_columns(format: str, data: bytes) -> None:
    name = "text" if format == "txt" else "x"
    assert list(read_rows(io.BytesIO(data), format, None, messages=FIELDS)) == [(0, {name: "a"}), (1, {name: "b"})]
