"""Strings are found exactly where `bytes.find` finds them, whatever bytes are rare."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.text.chats import ByteSearch

CHARACTERS = "<|>a/\0é中\u0fff\ud7ff"


def places_of(strings: list[str], data: bytes) -> list[int]:
    return sorted({*ByteSearch(strings).places(data).tolist()})


def by_hand(strings: list[str], data: bytes) -> list[int]:
    """All places, those that overlap as well, of the strings that hold no other."""
    some = [each.encode() for each in strings]
    least = [each for each in some if not any(other in each and other != each for other in some)]
    return sorted({found.start() for each in least for found in re.finditer(b"(?=" + re.escape(each) + b")", data)})


@given(
    st.lists(st.text(CHARACTERS, min_size=1, max_size=4), max_size=5),
    st.lists(st.text(CHARACTERS, max_size=6), max_size=30),
    st.integers(0, 70),
)
def test_places_are_those_of_a_regular_expression(strings: list[str], parts: list[str], repeated: int) -> None:
    data = ("".join(parts) * repeated).encode()
    assert places_of(strings, data) == by_hand(strings, data)


@pytest.mark.parametrize(
    ("strings", "data", "places"),
    [
        (["<e>"], b"<e><e><e", [0, 3]),
        (["<e>", "<e>>"], b"<e>>", [0]),
        (["b<"], b"<b<", [1]),
        (["ab", "b<"], b"ab<b", [0, 1]),
        (["aa"], b"aaa", [0, 1]),
        (["abc"], b"bc ab", []),
        (["abc"], b"c ab", []),
        (["a"], b"", []),
        ([], b"abc", []),
    ],
)
def test_places_by_hand(strings: list[str], data: bytes, places: list[int]) -> None:
    assert places_of(strings, data) == places


@pytest.mark.parametrize("text", ["\ud800", "\udbff", "\udc00", "\udfff"])
def test_half_a_surrogate_pair(text: str) -> None:
    assert places_of(["x"], f"é{text}".encode("utf-8", "surrogatepass")) == [2]
    assert places_of(["x"], f"{text}\0x".encode("utf-8", "surrogatepass")) == [0, 4]


def test_what_borders_on_surrogates_is_none() -> None:
    assert places_of([], "\ud7ff\ue000 í中".encode()) == []
    assert places_of([], b"\xed") == [] and places_of([], b"\xed\x9f") == []
    assert places_of([], b"\xed\xa0") == [0], "it begins as half of a pair does"


def test_the_rarest_byte_is_looked_at_first() -> None:
    """Whatever stands often in the data costs no more than any other byte."""
    assert places_of(["<|x|>"], b"<" * 1000 + b"<|x|>" + b"|" * 2000) == [1000]
    assert places_of(["<|x|>"], b"|" * 1000 + b"<|x|>" + b"x" * 2000) == [1000]
