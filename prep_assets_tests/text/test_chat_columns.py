"""What is found of many texts at once is what each of them says alone."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.samples import ASSISTANT, USER, PlainChat
from prep_assets.text.chats import ByteSearch, ChatColumns, Outline, OutlinedSample

ASKED = (USER, ASSISTANT)
NONE = PlainChat((), ())


WHITE = "".join(character for character in map(chr, range(0x3001)) if character.isspace())


def chat(*texts: str) -> PlainChat:
    return PlainChat((USER,) * len(texts), texts)


def test_suspects_among_many() -> None:
    plain, half = PlainChat(ASKED, ("a", "b")), PlainChat(ASKED, ("a", "b\ud800"))
    closes, typed = PlainChat(ASKED, ("a</think>", "b")), PlainChat(ASKED, ("a", "<|im_end|>"))
    apart, first, last = PlainChat(ASKED, ("a</thi", "nk>")), chat("</think> a", "b"), chat("a", "</think>")
    texts = ChatColumns.of([plain, None, plain, half, plain, closes, NONE, apart, typed, plain, first, last])
    search = ByteSearch(["</think>", "<|im_end|>"])
    assert np.flatnonzero(texts.holding(search)).tolist() == [3, 5, 7, 8, 10, 11], "what stands across two texts counts"
    assert texts.holding(search).dtype == texts.sampled(3).dtype == np.bool_
    assert np.flatnonzero(ChatColumns.of([first, plain]).holding(search)).tolist() == [0]
    for some in ([], [None], [NONE]):
        assert ChatColumns.of(some).holding(search).tolist() == [False] * len(some)


@given(st.lists(st.none() | st.lists(st.text("a \n\0\x7fé中\u200b" + WHITE, max_size=3), max_size=3), max_size=8), st.booleans())
def test_edges_and_blanks_are_those_of_each_text(listed: list[list[str] | None], as_strings: bool) -> None:
    columns = ChatColumns.of([None if each is None else chat(*each) for each in listed])
    columns = columns if as_strings else replace(columns, texts=None)
    some = [each or () for each in listed]
    blank, edged = columns.white()
    assert edged.tolist() == [any(text != text.strip() for text in each) for each in some]
    assert blank.tolist() == [not each or not all(map(str.strip, each)) for each in some]
    assert len(columns) == len(listed)
    assert [columns.own(number) for number in range(len(listed))] == list(map(list, some))
    kinds = [None if number < 0 else columns.kinds[number] for number in columns.kind]
    assert kinds == [None if each is None else chat(*each).roles for each in listed]
    assert len({*columns.kinds}) == len(columns.kinds)


def test_half_a_pair_is_kept() -> None:
    columns = ChatColumns.of([chat("a\ud800", "b")])
    assert columns.data == b"a\xed\xa0\x80b"
    assert replace(columns, texts=None).own(0) == columns.own(0) == ["a\ud800", "b"]


def test_one_chat_in_so_many_by_its_last_text() -> None:
    chats = [chat(*"ab"[: number % 3], f"{number} \u00e9") for number in range(40)]
    alone = [zlib.crc32(each.texts[-1].encode()) % 3 == 0 for each in chats]
    assert {*alone} == {True, False} and 5 < sum(alone) < 25
    assert ChatColumns.of([*chats, None, NONE]).sampled(3).tolist() == [*alone, False, False]


@given(
    st.lists(
        st.lists(st.none() | st.lists(st.sampled_from(["a", " b", "", "\u3000", "x</think>"]), max_size=3), max_size=5),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_joined_and_taken_chats_are_the_same_chats(parts: list[list[list[str] | None]], data: st.DataObject) -> None:
    made = [[None if each is None else chat(*each) for each in part] for part in parts]
    every = [each for part in made for each in part]
    which = sorted(data.draw(st.sets(st.sampled_from(range(len(every)))))) if every else []
    strings = data.draw(st.booleans())
    whole = ChatColumns.joined([columns if strings else replace(columns, texts=None) for columns in map(ChatColumns.of, made)])
    found, expected = whole.taken(np.array(which, np.int64)), ChatColumns.of([every[at] for at in which])
    search = ByteSearch(["</think>"])
    assert [found.own(at) for at in range(len(found))] == [expected.own(at) for at in range(len(expected))]
    assert [each.tolist() for each in (*found.white(), found.sampled(2), found.holding(search))] == [
        each.tolist() for each in (*expected.white(), expected.sampled(2), expected.holding(search))
    ]
    kinds = [[None if number < 0 else columns.kinds[number] for number in columns.kind] for columns in (found, expected)]
    assert kinds[0] == kinds[1]
    assert found.only(found.kind > 0).kind.tolist() == [kind if kind > 0 else -1 for kind in found.kind.tolist()]


def test_strings_that_are_at_hand_are_not_decoded() -> None:
    one, other = (ChatColumns.of([chat(text)]) for text in ("a long text", "another"))
    both = ChatColumns.joined([one, other])
    assert both.own(1)[0] is other.own(0)[0] and list(both.texts or ()) == ["a long text", "another"]
    assert ChatColumns.joined([one, replace(other, texts=None)]).texts is None
    assert ChatColumns.joined([ChatColumns.of([None]), one]).kind.tolist() == [-1, 0]


def test_chats_with_an_outline_are_of_its_kind() -> None:
    other = OutlinedSample(Outline(1, (), 0, ()), ("x",))
    columns = ChatColumns.of([chat("a"), other, other])
    assert columns.kinds == [(USER,), other.form] and columns.kind.tolist() == [0, 1, 1] and columns.own(2) == ["x"]


def test_chats_of_which_only_the_texts_are_known() -> None:
    columns = ChatColumns.of_texts(b"a b", np.array([0, 1, 2, 3]), np.array([0, 2, 2, 3]))
    assert [columns.own(at) for at in range(len(columns))] == [["a", " "], [], ["b"]]
    assert columns.kind.tolist() == [-1] * 3 and list(columns.kinds) == [] and columns.texts is None
    assert columns.kind.dtype == np.int64
    assert columns.white()[0].tolist() == [True, True, False]
