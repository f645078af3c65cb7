"""Words in columns: n-grams are looked for by numbers, and none that is repeated too often is missed."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.quality.passages import repeated_passages
from prep_assets.quality.steps import Examples
from prep_assets.quality.words import Words, words_of
from prep_assets.samples import document

TOP, REPEATED = ((2, 0.2), (3, 0.18), (4, 0.16)), ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
PIECES = st.sampled_from(["a", "b c", "bc", "d", "the end", "…", "#", "naïve", "日本", "a b", "x1", "one two three four five six"])
TEXTS = st.lists(st.tuples(PIECES, st.sampled_from([" ", "\n", ", ", ""]), st.integers(1, 6)), max_size=40).map(
    lambda parts: "".join((piece + end) * times for piece, end, times in parts)
)


def repeat_too_much(text: str) -> set[int]:
    """The n whose n-grams a text repeats more than is allowed, by plain strings."""
    words, found = words_of(text), set[int]()
    for n, most in TOP:
        grams = Counter(" ".join(words[at : at + n]) for at in range(len(words) - n + 1))
        most_frequent, count = grams.most_common(1)[0] if grams else ("", 0)
        found |= {n} if len(most_frequent) * count > most * len(text) else set()
    for n, most in REPEATED:
        seen, at, characters = set[str](), 0, 0
        while at + n <= len(words):
            gram = "".join(words[at : at + n])
            characters += len(gram) * (gram in seen)
            at += n if gram in seen else 1
            seen.add(gram)
        found |= {n} if characters > most * len(text) else set()
    return found


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=8))
def test_no_text_that_repeats_too_much_is_missed(texts: list[str]) -> None:
    may = Words.of(texts).may_repeat(np.array([*map(len, texts)], np.int64), TOP, REPEATED)
    assert [*may] == [n for n, _ in (*TOP, *REPEATED)]
    for number, text in enumerate(texts):
        assert repeat_too_much(text) <= {n for n, found in may.items() if found[number]}


def test_few_others_are_looked_at() -> None:
    texts = [
        " ".join(f"{word}{number}" for word in ("red", "blue", "green", "north", "south") for number in range(at, at + 20))
        for at in range(50)
    ]
    may = Words.of(texts).may_repeat(np.array([*map(len, texts)], np.int64), TOP, REPEATED)
    assert sum(int(found.sum()) for found in may.values()) == 0


@given(st.lists(TEXTS, max_size=5))
def test_words_are_those_of_each_text(texts: list[str]) -> None:
    words = Words.of(texts)
    split = [[words.known[number] for number in part.tolist()] for part in np.split(words.ids, words.ends[:-1])] if texts else []
    assert split == [words_of(text) for text in texts]
    assert words.total(words.each(len)).tolist() == [sum(map(len, of_text)) for of_text in split]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), st.integers(1, 12))
def test_passages_are_equal_where_their_words_are(texts: list[str], size: int) -> None:
    words = Words.of(texts)
    begins, hashes = words.passages(size)
    expected, at = list[tuple[int, tuple[str, ...]]](), 0
    for text in texts:
        split = words_of(text)
        expected += [(at + first, tuple(split[first : first + size])) for first in range(len(split) - size + 1)]
        at += len(split)
    assert begins.tolist() == [begin for begin, _ in expected]
    numbers: dict[int, tuple[str, ...]] = {}
    for number, (_, passage) in zip(hashes.tolist(), expected, strict=True):
        assert numbers.setdefault(number, passage) == passage
    assert len(numbers) == len({passage for _, passage in expected})


@settings(deadline=None)
@given(
    st.lists(st.tuples(TEXTS, st.sampled_from([True, True, True, False])), max_size=9),
    st.integers(5, 8),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 0.9]),
)
def test_what_stood_before_is_found(rows: list[tuple[str, bool]], size: int, block: int, max_share: float) -> None:
    """Beside a plain set of tuples, whatever the blocks are. What an earlier step drops counts for nothing."""
    step, texts = repeated_passages(words=size, max_share=max_share), [text for text, _ in rows]
    for at in range(0, len(texts), block):
        part = texts[at : at + block]
        step.judge(Examples([str(number) for number in range(len(part))], [document(text) for text in part]))
    judged = step.finish(np.array([kept for _, kept in rows], bool))
    seen, expected = set[tuple[str, ...]](), list[float]()
    for text, kept in rows:
        split, covered = words_of(text), set[int]()
        for first in range(len(split) - size + 1 if kept else 0):
            passage = tuple(split[first : first + size])
            covered |= {*range(first, first + size)} if passage in seen else set()
            seen.add(passage)
        expected.append(len(covered) / max(1, len(split)))
    assert judged.notes["share"] == [round(share, 4) for share in expected]
    assert {number: reason for number, (reason, _) in judged.found.items()} == {
        number: "repeated_passage" for number, share in enumerate(expected) if share > max_share
    }
