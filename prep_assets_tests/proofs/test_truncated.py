"""What truncation must have left, on a tokenizer of single characters; an ``é`` has two tokens, as a part of a character has everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs import mask as module
from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.mask import Left, Truncation, left_of
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, turn
from prep_assets.text.ids import Flat

CONTROL = {"<s>": 1, "<e>": 2, "e>": 3}
VOCABULARY: Any = SimpleNamespace(control=CONTROL)


class Characters:
    """A reference tokenizer. What begins a conversation has a token of nothing in front of it."""

    def encode_utf8(self, texts: Sequence[bytes], first: Any) -> Flat:
        rows = [[5] * bool(begins) + self.ids(text.decode()) for text, begins in zip(texts, first, strict=True)]
        return Flat(np.array([each for row in rows for each in row], np.uint32), np.cumsum([0, *map(len, rows)]))

    def ids(self, text: str) -> list[int]:
        return [each for char in text for each in ([ord(char)] * (1 + (char == "é")))]

    def char_spans(self, text: str, *, first: bool) -> list[tuple[int, int]]:
        spans = [(at, at + 1) for at, char in enumerate(text) for _ in range(1 + (char == "é"))]
        return [(0, 0)] * first + spans


@pytest.fixture(autouse=True)
def characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "reference_ids", _reference)


def _reference(vocabulary: Any) -> Characters:
    assert vocabulary is VOCABULARY
    return Characters()


def derive(sample: Sample) -> Derived:
    """``<s>``, the first letter of the role, the text, ``<e>``. Answers are trained; ``_`` in them is not."""
    text, expected, controls, shortenable = "", list[Expected](), list[tuple[int, int]](), list[tuple[int, int, str]]()
    for each in sample.turns:
        start = len(text) + 4
        end = start + len(each.text)
        text += f"<s>{each.role[0]}{each.text}<e>"
        controls += [(start - 4, start - 1), (end, end + 3)]
        if each.role != ASSISTANT:
            shortenable.append((start, end, each.role))
            continue
        at = start
        for part in each.text.split("_"):
            stop = end + 3 if at + len(part) == end else at + len(part)
            expected.append(Expected(text[at:stop], 1.0, "<e>" if stop > end else "", at, stop))
            at += len(part) + 1
    return Derived(text, tuple(expected), tuple(controls), 7, tuple(shortenable))


def chat(*texts: str, system: str = "") -> Sample:
    roles = (USER, ASSISTANT)
    turns = [turn(roles[at % 2], text) for at, text in enumerate(texts)]
    return Sample((*([turn(SYSTEM, system)] if system else []), *turns))


def shown(left: Left) -> tuple[str | None, list[str], str, int]:
    """Its ids as text, what must be trained of it, where it is cut, and how many tokens are gone."""
    names = {number: token for token, number in CONTROL.items()}
    ids = None if left.ids is None else "".join(names.get(each) or chr(each) for each in left.ids.tolist())
    for each in left.expected:
        assert each.text.endswith(each.stop)
        assert left.derived.text[each.start : each.end] in (each.text, each.text.removesuffix(each.stop))
    return ids, [f"{each.text}{'' if each.stop else '…'}" for each in left.expected], left.cut, left.taken


def left(sample: Sample, length: int, truncation: Truncation) -> tuple[str | None, list[str], str, int]:
    found = left_of(sample, length, truncation, derive, VOCABULARY)
    assert found.derived == derive(sample) or truncation.mode == "turns"
    return shown(found)


CHAT = chat("abc", "def", "gh", "ij")
WHOLE = "<s>uabc<e><s>adef<e><s>ugh<e><s>aij<e>"
"""22 tokens."""


@pytest.mark.parametrize("mode", ["drop", "end", "start", "prompt", "turns"])
def test_a_record_that_is_shorter_than_the_limit_is_whole(mode: str) -> None:
    """Without looking at ids, but for rounds that were taken, which leave it shorter as well."""
    assert left(CHAT, 22, Truncation(mode)) == (None, ["def<e>", "ij<e>"], "none", 0)
    ids = WHOLE if mode == "turns" else None
    assert left(CHAT, 22, Truncation(mode, 23)) == (ids, ["def<e>", "ij<e>"], "none", 0)
    assert left(CHAT, 22, Truncation(mode, 22)) == (None if mode == "drop" else WHOLE, ["def<e>", "ij<e>"], "none", 0)
    assert Truncation() == Truncation("drop", None, False, {})


@pytest.mark.parametrize(
    ("limit", "ids", "trained"), [(9, "<s>uabc<e><s>ad", ["d…"]), (12, "<s>uabc<e><s>adef<e>", ["def<e>"]), (1, "<s>", [])]
)
def test_the_beginning(limit: int, ids: str, trained: list[str]) -> None:
    assert left(CHAT, limit, Truncation("end", limit)) == (ids, trained, "end", 22 - limit)


@pytest.mark.parametrize(
    ("limit", "ids", "trained"),
    [
        (8, "<s>uabc<e><s>a", []),
        (9, "<s>uabc<e><s>a<e>", ["<e>"]),
        (11, "<s>uabc<e><s>ade<e>", ["de<e>"]),
        (13, "<s>uabc<e><s>adef<e><s>", ["def<e>"]),
        (20, "<s>uabc<e><s>adef<e><s>ugh<e><s>a<e>", ["def<e>", "<e>"]),
    ],
)
def test_the_beginning_with_a_stop_token(limit: int, ids: str, trained: list[str]) -> None:
    assert left(CHAT, limit, Truncation("end", limit, keeps_stop=True)) == (ids, trained, "end", 22 - limit)


def test_a_stop_token_is_that_of_the_stretch_that_is_cut() -> None:
    """Stretches of other weights that follow without a gap belong to it; after a gap there is none."""
    parts = (Expected("ab", 0.5, "", 4, 6), Expected("cd<e>", 1.0, "<e>", 6, 11))
    joined = replace(derive(chat("x")), text="<s>aabcd<e>", expected=parts, controls=((0, 3), (8, 11)))

    def cut(derived: Derived, limit: int) -> Any:
        return shown(left_of(chat("x"), limit, Truncation("end", limit, True), lambda _: derived, VOCABULARY))

    assert cut(joined, 4) == ("<s>aa<e>", ["a<e>"], "end", 3)
    assert cut(joined, 6) == ("<s>aabc<e>", ["ab…", "c<e>"], "end", 1)
    gap = replace(joined, expected=(Expected("a", 0.5, "", 4, 5), parts[1]))
    assert cut(gap, 3) == ("<s>aa", ["a…"], "end", 4)
    assert cut(gap, 5) == ("<s>aab<e>", ["a…", "<e>"], "end", 2)
    last = replace(joined, expected=(parts[0],))
    assert cut(last, 4) == ("<s>aab", ["ab…"], "end", 3)
    assert module._last_stop(parts, None, VOCABULARY) is None


def test_a_text_at_the_very_beginning() -> None:
    """The tokenizer begins with a token of nothing."""
    bare = Derived("ab<e>", (Expected("ab<e>", 1.0, "<e>", 0, 5),), ((2, 5),), 0, ())
    for keeps_stop, trained in ((False, "ab…"), (True, "a<e>")):
        found = left_of(chat("x"), 3, Truncation("end", 3, keeps_stop), lambda _: bare, VOCABULARY)
        assert shown(found)[1] == [trained]


def test_a_stretch_that_begins_within_the_last_token() -> None:
    """It is behind the stop token that takes the place of this token."""
    both = (Expected("a<", 0.5, "", 4, 6), Expected("e>b<e>", 1.0, "<e>", 6, 12))
    split = Derived("<s>aa<e>b<e>", both, ((0, 3), (5, 8), (9, 12)), 0, ())
    assert shown(left_of(chat("x"), 4, Truncation("end", 4, True), lambda _: split, VOCABULARY))[:2] == ("<s>aa<e>", ["a<e>"])


def test_the_beginning_amid_a_character() -> None:
    sample = chat("a", "éb")
    assert left(sample, 7, Truncation("end", 7)) == ("<s>ua<e><s>aé", ["…"], "end", 3)
    assert left(sample, 8, Truncation("end", 8)) == ("<s>ua<e><s>aéé", ["é…"], "end", 2)
    assert left(sample, 7, Truncation("end", 7, True)) == ("<s>ua<e><s>a<e>", ["<e>"], "end", 3)
    assert left(sample, 8, Truncation("end", 8, True)) == ("<s>ua<e><s>aé<e>", ["<e>"], "end", 2)
    asked = chat("é", "b")
    assert left(asked, 3, Truncation("end", 3)) == ("<s>ué", [], "end", 6)


@pytest.mark.parametrize(
    ("limit", "ids", "trained"),
    [
        (1, "<e>", ["<e>"]),
        (3, "ij<e>", ["ij<e>"]),
        (10, "<s>ugh<e><s>aij<e>", ["ij<e>"]),
        (12, "f<e><s>ugh<e><s>aij<e>", ["f<e>", "ij<e>"]),
        (15, "adef<e><s>ugh<e><s>aij<e>", ["def<e>", "ij<e>"]),
    ],
)
def test_the_end(limit: int, ids: str, trained: list[str]) -> None:
    assert left(CHAT, limit, Truncation("start", limit)) == (ids, trained, "start", 22 - limit)


@pytest.mark.parametrize(
    ("limit", "keeps", "gone"),
    [
        (21, {}, ("abc", "ab")),
        (20, {}, ("abc", "a")),
        (20, {USER: {"part": "end"}}, ("abc", "c")),
        (20, {USER: {"least": 2}}, None),
        (20, {USER: {"least": 0, "part": "end"}}, ("abc", "c")),
        (18, {USER: {"least": 0}}, ("abc", "", "gh", "g")),
        (20, {"user": {"least": 5}}, None),
        (16, {USER: {"least": 0}}, None),
    ],
)
def test_shortened_texts(limit: int, keeps: Any, gone: tuple[str, ...] | None) -> None:
    """The longest first, each as far as its role allows it."""
    truncation = Truncation("prompt", limit, keeps=keeps)
    if gone is None:
        with pytest.raises(CheckFailed) as raised:
            left(CHAT, limit, truncation)
        assert str(raised.value) == f"22 tokens, which no shortening of untrained texts makes {limit}"
        return
    ids = WHOLE
    for text, stays in zip(gone[::2], gone[1::2], strict=True):
        ids = ids.replace(f"u{text}<", f"u{stays}<")
    assert left(CHAT, limit, truncation) == (ids, ["def<e>", "ij<e>"], "none", 22 - limit)


def test_each_role_has_its_own_rule() -> None:
    sample = chat("abc", "d", system="vwxyz")
    keeps = {SYSTEM: {"part": "end", "least": 3}}
    assert left(sample, 15, Truncation("prompt", 15, keeps=keeps))[0] == "<s>sxyz<e><s>uab<e><s>ad<e>"
    with pytest.raises(CheckFailed, match="1,008 tokens, which no shortening of untrained texts makes 1,004"):
        left(chat("ab", "x" * 1000), 1004, Truncation("prompt", 1004))


@pytest.mark.parametrize(("limit", "first"), [(60, 0), (54, 0), (53, 1), (44, 1), (43, 2), (34, 2), (33, 3), (24, 3), (23, 4), (14, 4)])
def test_the_newest_rounds(limit: int, first: int) -> None:
    """10 tokens each, and 4 of the system turn."""
    rounds = [each for at in range(5) for each in (f"{at}u", f"{at}a")]
    sample, kept = chat(*rounds, system="!"), derive(chat(*rounds[2 * first :], system="!"))
    found = left_of(sample, 0, Truncation("turns", limit), derive, VOCABULARY)
    assert (found.derived.text, found.cut) == (kept.text, "none")
    assert found.ids is not None and found.ids.tolist() == module.ids_of(kept, VOCABULARY).tolist()
    assert found.taken == 10 * first and found.expected == kept.expected


def test_no_round_fits() -> None:
    for sample in (CHAT, Sample((turn(SYSTEM, "x" * 2000), turn(USER, "a"), turn(USER, "b"), turn(ASSISTANT, "c")))):
        limit = 9 if sample is CHAT else 1500
        with pytest.raises(CheckFailed, match=f"not even its last round fits in {limit:,} tokens"):
            left(sample, limit, Truncation("turns", limit))
    with pytest.raises(CheckFailed, match="not even"):
        left(Sample((turn(ASSISTANT, "abcdef"),)), 3, Truncation("turns", 3))


def test_what_a_round_is() -> None:
    """It begins with the first of several questions; system turns before it stay, all else before it goes."""
    turns = [
        turn(SYSTEM, "s"),
        turn(ASSISTANT, "hi"),
        turn(USER, "a"),
        turn(USER, "b"),
        turn(ASSISTANT, "c"),
        turn(USER, "d"),
        turn(SYSTEM, "t"),
        turn(ASSISTANT, "e"),
    ]
    assert left(Sample(tuple(turns)), 20, Truncation("turns", 20))[0] == "<s>ss<e><s>ud<e><s>st<e><s>ae<e>"
    two = [*turns[2:5], turn(USER, "d"), turn(USER, "f"), turn(ASSISTANT, "e")]
    for limit in (15, 20):
        assert left(Sample(tuple(two)), limit, Truncation("turns", limit))[0] == "<s>ud<e><s>uf<e><s>ae<e>"
    asked = Sample((*two, turn(USER, "g")))
    assert left(asked, 16, Truncation("turns", 16))[0] == "<s>ud<e><s>uf<e><s>ae<e><s>ug<e>", "the last question is a round as well"


def test_a_stretch_of_which_half_a_character_is_left() -> None:
    """It has no text any more, and a trained token."""
    assert left(chat("a", "é_b"), 16, Truncation("start", 4)) == ("é_b<e>", ["…", "b<e>"], "start", 7)
