"""What truncation leaves of a conversation, at every limit, against its tokens counted off one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.mask import Left, Truncation, _last_stop, left_of
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, Turn, turn
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, load

START, END = "<|im_start|>", "<|im_end|>"


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    return load(CONFIGS / "tokenizer").vocabulary


def rendered(sample: Sample) -> Derived:
    """ChatML, of which answers are trained with their stop, and texts of users may be shortened."""
    text, expected, controls, shortenable = "", list[Expected](), list[tuple[int, int]](), list[tuple[int, int, str]]()
    for each in sample.turns:
        said = each.regions[0].text
        controls.append((len(text), len(text) + len(START)))
        text += f"{START}{each.role}\n"
        begins = len(text)
        text += f"{said}{END}"
        controls.append((len(text) - len(END), len(text)))
        if each.role == ASSISTANT:
            expected.append(Expected(f"{said}{END}", 1.0, END, begins, len(text)))
        else:
            shortenable.append((begins, begins + len(said), each.role))
        text += "\n"
    return Derived(text, tuple(expected), tuple(controls), 0, tuple(shortenable))


class Token(NamedTuple):
    id: int
    start: int
    end: int


def tokens_of(derived: Derived, words: Vocabulary) -> list[Token]:
    """Each control token is one, and what stands between them is tokenized by the library."""
    found, last = list[Token](), 0
    for start, end in (*derived.controls, (len(derived.text),) * 2):
        encoded = words.backend.encode(derived.text[last:start], add_special_tokens=False)
        found += [Token(id, last + low, last + high) for id, (low, high) in zip(encoded.ids, encoded.offsets, strict=True)]
        found += [Token(words.control[derived.text[start:end]], start, end)] if end > start else []
        last = end
    return found


def trained_in(derived: Derived, kept: list[Token], words: Vocabulary) -> list[str]:
    """The trained texts of which some tokens are left: the characters of which none is gone."""
    gone = set[int]()
    for token in tokens_of(derived, words):
        gone |= set() if token in kept else {*range(token.start, token.end)}
    touched = [each for each in derived.expected if any(token.start < each.end and token.end > each.start for token in kept)]
    return ["".join(derived.text[at] for at in range(each.start, each.end) if at not in gone) for each in touched]


TALK = Sample((turn(USER, "Ten red apples and ten green pears?"), turn(ASSISTANT, "They are in one basket.")))
SIGNS = Sample((turn(ASSISTANT, "\U0001f600 caf\u00e9 \u732b"), turn(USER, "\u732b?"), turn(ASSISTANT, "\u732b\U0001f600")))
LONGER = Sample(
    (
        turn(SYSTEM, "Be brief."),
        turn(USER, "Where?"),
        turn(USER, "Say it."),
        turn(ASSISTANT, "Here and there."),
        *TALK.turns,
        turn(USER, "And now?"),
        turn(ASSISTANT, "Gone."),
    )
)


def left(sample: Sample, words: Vocabulary, limit: int, mode: str, *, length: int | None = None, **more: Any) -> Left:
    return left_of(sample, limit if length is None else length, Truncation(mode, limit, **more), rendered, words)


@pytest.mark.parametrize("sample", [TALK, LONGER, SIGNS])
@pytest.mark.parametrize(
    ("mode", "kept"), [("end", lambda tokens, limit: tokens[:limit]), ("start", lambda tokens, limit: tokens[-limit:])]
)
def test_an_end_is_cut_off(sample: Sample, mode: str, kept: Callable[[list[Token], int], list[Token]], words: Vocabulary) -> None:
    derived = rendered(sample)
    tokens = tokens_of(derived, words)
    for limit in range(1, len(tokens)):
        found, stays = left(sample, words, limit, mode), kept(tokens, limit)
        assert found.ids is not None and found.ids.tolist() == [token.id for token in stays]
        assert (found.derived, found.cut, found.taken, found.weights) == (derived, mode, len(tokens) - limit, None)
        assert [each.text for each in found.expected] == trained_in(derived, stays, words)
        assert [each.stop for each in found.expected] == [END * text.endswith(END) for text in trained_in(derived, stays, words)]
        assert {each.weight for each in found.expected} <= {1.0}


@pytest.mark.parametrize("sample", [TALK, LONGER, SIGNS])
def test_an_answer_that_is_cut_ends_with_its_stop(sample: Sample, words: Vocabulary) -> None:
    derived = rendered(sample)
    tokens = tokens_of(derived, words)
    for limit in range(1, len(tokens)):
        found, last = left(sample, words, limit, "end", keeps_stop=True), tokens[limit - 1]
        stays, amid = tokens[:limit], any(each.start <= last.start < each.end for each in derived.expected)
        texts = trained_in(derived, stays, words)
        if amid:
            kept = derived.text[max(each.start for each in derived.expected if each.start <= last.start) : last.start]
            stays = [*stays[:-1], Token(words.control[END], 0, 0)]
            texts = [*(each.text for each in derived.expected if each.end <= last.start), f"{kept}{END}"]
        assert found.ids is not None and found.ids.tolist() == [token.id for token in stays]
        assert (found.derived, found.cut, found.taken) == (derived, "end", len(tokens) - limit)
        assert [each.text for each in found.expected] == texts
        assert [each.stop for each in found.expected] == [END] * len(texts)


@pytest.mark.parametrize(("weight", "gap", "stops"), [(0.5, 0, True), (2.0, 0, True), (-1.0, 0, False), (1.0, 1, False)])
def test_the_stop_of_an_answer_in_parts_is_that_of_its_last(weight: float, gap: int, stops: bool, words: Vocabulary) -> None:
    """As far as trained texts follow each other, whatever they weigh."""
    derived = rendered(TALK)
    text, (whole,), tokens = derived.text, derived.expected, tokens_of(derived, words)
    begins, middle, limit = whole.start, whole.start + len("They are"), next(at for at in range(99) if tokens[at].start == whole.start) + 1
    rest = Expected(text[middle + gap : whole.end], weight, END, middle + gap, whole.end)
    parts = (Expected(text[begins:middle], 1.0, "", begins, middle), rest)
    found = left_of(TALK, limit, Truncation("end", limit, keeps_stop=True), lambda _: replace(derived, expected=parts), words)
    kept = [token.id for token in tokens[:limit]]
    assert found.ids is not None and found.ids.tolist() == ([*kept[:-1], words.control[END]] if stops else kept)
    assert [each.text for each in found.expected] == [END if stops else text[begins : tokens[limit - 1].end]]


def test_of_a_token_in_two_texts_only_the_first_is_left(words: Vocabulary) -> None:
    derived = rendered(TALK)
    text, (whole,), tokens = derived.text, derived.expected, tokens_of(derived, words)
    last = next(token for token in tokens if token.start > whole.start)
    edges = (whole.start, last.start + 2, whole.end)
    parts = tuple(
        Expected(text[start:end], weight, "", start, end) for start, end, weight in zip(edges, edges[1:], (1.0, 0.5), strict=False)
    )
    limit = tokens.index(last) + 1
    found = left_of(TALK, limit, Truncation("end", limit, keeps_stop=True), lambda _: replace(derived, expected=parts), words)
    assert [each.text for each in found.expected] == [f"{text[whole.start : last.start]}{END}"]


def test_of_stops_that_end_alike_the_longest_counts() -> None:
    answer = Expected("Hi<e>", 1.0, "", 0, 5)
    assert _last_stop([answer], answer, Mock(control={"e>": 0, "<e>": 1, ">": 2})) == "<e>"
    assert _last_stop([answer], answer, Mock(control={"<s>": 0})) is None


@pytest.mark.parametrize(
    ("keeps", "first"),
    [({}, True), ({USER: {"part": "end"}}, False), ({USER: {"part": "start", "least": 4}}, True), ({USER: {"least": 1}}, True)],
)
def test_a_prompt_is_shortened(keeps: dict[str, dict[str, Any]], first: bool, words: Vocabulary) -> None:
    """Nothing else is: its beginning stays, or its end, and one token at the least, or more."""
    derived = rendered(TALK)
    tokens, (begins, ends, _) = tokens_of(derived, words), derived.shortenable[0]
    prompt = [at for at, token in enumerate(tokens) if begins <= token.start and token.end <= ends]
    least = keeps.get(USER, {}).get("least", 1)
    for limit in range(len(tokens) - len(prompt), len(tokens)):
        stays = limit - len(tokens) + len(prompt)
        if stays < least:
            with pytest.raises(CheckFailed) as raised:
                left(TALK, words, limit, "prompt", keeps=keeps)
            assert str(raised.value) == f"{len(tokens)} tokens, which no shortening of untrained texts makes {limit}"
            continue
        gone = {*(prompt[stays:] if first else prompt[: len(prompt) - stays])}
        found = left(TALK, words, limit, "prompt", keeps=keeps)
        assert found.ids is not None and found.ids.tolist() == [token.id for at, token in enumerate(tokens) if at not in gone]
        assert (found.expected, found.cut, found.taken) == (derived.expected, "none", len(tokens) - limit)


def test_the_longest_prompt_is_shortened_first(words: Vocabulary) -> None:
    derived = rendered(LONGER)
    tokens = tokens_of(derived, words)
    texts = [[token.id for token in tokens if start <= token.start and token.end <= end] for start, end, _ in derived.shortenable]
    found = left(LONGER, words, len(tokens) - len(texts[3]), "prompt")
    kept = found.ids.tolist() if found.ids is not None else []
    assert len(texts[3]) == max(map(len, texts)) and len(kept) == len(tokens) - len(texts[3])
    # all of the longest but one token, and one more of the next
    second = max((text for at, text in enumerate(texts) if at != 3), key=len)
    begins = next(at for at in range(len(kept)) if kept[at : at + len(second) - 1] == second[:-1])
    assert kept[begins : begins + len(second)] != second and texts[3][0] in kept


@pytest.mark.parametrize("head", [LONGER.turns[:1], ()])
def test_the_newest_rounds_stay(head: tuple[Turn, ...], words: Vocabulary) -> None:
    """With the system turns before the first; a round begins with the first of several questions in a row."""
    whole, *rounds = [Sample((*head, *LONGER.turns[at:])) for at in (1, 6, 4)]
    sizes = [len(tokens_of(rendered(each), words)) for each in (*rounds, whole)]
    assert sizes == sorted(sizes)
    for limit in range(1, sizes[-1]):
        if limit < sizes[0]:
            with pytest.raises(CheckFailed) as raised:
                left(whole, words, limit, "turns")
            assert str(raised.value) == f"not even its last round fits in {limit} tokens"
            continue
        kept = rounds[limit >= sizes[1]]
        found = left(whole, words, limit, "turns")
        assert found.ids is not None and found.ids.tolist() == [token.id for token in tokens_of(rendered(kept), words)]
        assert (found.derived, found.expected, found.cut) == (rendered(kept), rendered(kept).expected, "none")
        assert found.taken == sizes[-1] - len(found.ids)


def test_a_chat_without_a_question_has_no_round(words: Vocabulary) -> None:
    with pytest.raises(CheckFailed, match=r"^not even its last round fits in 5 tokens$"):
        left(Sample((LONGER.turns[0], LONGER.turns[3])), words, 5, "turns")


def test_what_fits_is_whole(words: Vocabulary) -> None:
    derived = rendered(TALK)
    size = len(tokens_of(derived, words))
    for mode in ("drop", "start", "end", "prompt", "turns"):
        for limit, length, is_whole in ((size, size, True), (size + 1, size, True), (9, 9, mode == "drop"), (9, 8, mode not in ("turns",))):
            if mode in ("turns", "prompt") and not is_whole:
                with pytest.raises(CheckFailed):
                    left(TALK, words, limit, mode, length=length)
                continue
            found = left(TALK, words, limit, mode, length=length)
            assert (found.derived, found.expected == derived.expected, found.taken == 0) == (derived, is_whole, is_whole)
            assert (found.ids is None) == (mode == "drop" or (length < limit and mode != "turns"))
    assert left_of(TALK, size, Truncation("end"), rendered, words) == Left(derived, derived.expected)
