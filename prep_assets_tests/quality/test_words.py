"""Characters and words in columns, beside the obvious way to cut and to count texts one by one."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.quality import passages, web_pages
from prep_assets.quality.characters import Characters, Parts
from prep_assets.quality.passages import repeated_passages
from prep_assets.quality.steps import Examples
from prep_assets.quality.words import Words
from prep_assets.samples import document

TOP, REPEATED = ((2, 0.2), (3, 0.18), (4, 0.16)), ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
PIECES = st.sampled_from(["a", "b c", "bc", "d", "the end", "…", "#", "naïve", "日本", "a b", "x1", "one two three four five six"])
TEXTS = st.lists(st.tuples(PIECES, st.sampled_from([" ", "\n", ", ", ""]), st.integers(1, 6)), max_size=40).map(
    lambda parts: "".join((piece + end) * times for piece, end, times in parts)
)
ODD = st.text(st.sampled_from("aZé_9'’.…?!-•¡日。ß٣ͅ \t\n\r\v\x1c\x1f\x85\xa0\u2028\x00\ud800😀") | st.characters(), max_size=60)


def words_of(text: str) -> list[str]:
    """Words and runs of punctuation."""
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]+", text)


def cut(characters: Characters, parts: Parts) -> list[list[str]]:
    """The parts of each text."""
    texts = [characters.text[begin:end] for begin, end in zip(parts.begins.tolist(), parts.ends.tolist(), strict=True)]
    until = parts.until.tolist()
    return [texts[begin:end] for begin, end in zip([0, *until], until, strict=False)]


@given(st.lists(ODD | TEXTS, min_size=1, max_size=6))
def test_characters_are_cut_as_python_cuts_them(texts: list[str]) -> None:
    characters = Characters.of(texts)
    assert cut(characters, characters.words) == [words_of(text) for text in texts]
    assert cut(characters, characters.alphanumeric) == [re.findall(r"\w+", text) for text in texts]
    assert cut(characters, characters.unspaced) == [text.split() for text in texts]
    lines = [text.splitlines() for text in texts]
    assert cut(characters, characters.lines) == lines
    stripped, counts = characters.stripped(characters.lines)
    assert cut(characters, stripped) == [[line.strip() for line in part] for part in lines]
    assert counts.tolist() == [len(line.split()) for part in lines for line in part]
    for ending in ("...", "…", "a"):
        assert characters.end_with(stripped, ending).tolist() == [line.strip().endswith(ending) for part in lines for line in part]
    assert characters.lengths.tolist() == [len(text) for text in texts]


LINES = st.lists(
    st.sampled_from(["Mr.", "end.", "U.S.", "Ph.D.", "etc...", "so..", "why?!", "3.", "(x.)", "“Yes!”", "…", "-", "No", "。", " ", "\n"])
)


@given(st.lists(LINES.map(" ".join) | LINES.map("".join) | ODD, min_size=1, max_size=6))
def test_sentences_of_all_lines_are_those_of_each(texts: list[str]) -> None:
    characters = Characters.of(texts)
    lines = characters.stripped(characters.lines)[0]
    expected = [web_pages.sentences(line.strip()) for text in texts for line in text.splitlines()]
    assert web_pages.sentences_of(characters, lines).tolist() == expected


PAGES = [
    "It is one sentence. And two!",
    "No end",
    "[1] is a note.",
    "{",
    "It needs JavaScript.",
    "We use coo\u212aies here.",
    "Lorem ipsum dolor.",
    "a" * 1001,
]


@given(st.lists(st.lists(st.sampled_from(PAGES) | LINES.map(" ".join), max_size=9).map("\n".join), min_size=1, max_size=5))
def test_pages_are_judged_in_columns_as_line_by_line(texts: list[str]) -> None:
    judged = []
    for special in (web_pages._SPECIAL, ""):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(web_pages, "_SPECIAL", special)
            judged.append(web_pages.c4_quality(min_sentences=3).judge(Examples(texts, [document(text) for text in texts])))
    assert judged[0] == judged[1]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=8))
def test_n_grams_are_counted_as_by_plain_strings(texts: list[str]) -> None:
    words, sizes = Words.of(Characters.of(texts)), np.array([*map(len, texts)], np.int64)
    for (n, _), found in zip(TOP, words.most_frequent([n for n, _ in TOP]), strict=True):
        for text, characters in zip(texts, found.tolist(), strict=True):
            split = words_of(text)
            grams = Counter(" ".join(split[at : at + n]) for at in range(len(split) - n + 1))
            gram, count = grams.most_common(1)[0] if grams else ("", 0)
            assert characters == len(gram) * count
    for (n, most), found in zip(REPEATED, words.repeated(sizes, REPEATED), strict=True):
        for text, characters in zip(texts, found.tolist(), strict=True):
            expected = repeated_characters(words_of(text), n)
            assert characters == expected or expected <= characters <= most * len(text)


def repeated_characters(words: list[str], n: int) -> int:
    """Characters of the n-grams that stood before; they do not overlap."""
    seen, at, characters = set[str](), 0, 0
    while at + n <= len(words):
        gram = "".join(words[at : at + n])
        characters += len(gram) * (gram in seen)
        at += n if gram in seen else 1
        seen.add(gram)
    return characters


@given(st.lists(ODD | TEXTS, max_size=5))
def test_words_have_the_same_hash_where_they_are_the_same(texts: list[str]) -> None:
    words, split = Words.of(Characters.of(texts)), [word for text in texts for word in words_of(text)]
    assert len(words.hashes) == len(split) and len({*zip(words.hashes.tolist(), split, strict=True)}) == len({*split}) == len(
        {*words.hashes.tolist()}
    )
    assert words.different(["a", "the", "bc"]).tolist() == [len({"a", "the", "bc"} & {*words_of(text)}) for text in texts]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), st.integers(1, 12))
def test_passages_are_equal_where_their_words_are(texts: list[str], size: int) -> None:
    words = Words.of(Characters.of(texts))
    begins = words.n_grams(size)
    hashes = words.runs(begins, begins + size)
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


def test_a_sequence_of_many_stretches_has_the_hashes_of_its_parts() -> None:
    """Words far apart in a long block, and their runs, are the same as beside each other."""
    words = Words.of(Characters.of([f"{'to be or not ' * 20_000}and to be or not"]))
    begins = np.array([0, 4, 40_000, 79_996, 80_001])
    assert len({*words.runs(begins, begins + 4).tolist()}) == 1
    assert len({*words.hashes.tolist()}) == 5


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages, "_MOST_BITS", block)  # a table that is soon full
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
