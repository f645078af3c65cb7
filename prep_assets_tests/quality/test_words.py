"""Characters and words in columns, beside the obvious way to cut and to count texts one by one."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError
from prep_assets.extensions.quality import passages, web_pages
from prep_assets.extensions.quality.characters import _ABBREVIATIONS, SPACE, WORD, Characters, Parts, _cut, _lines
from prep_assets.extensions.quality.compiled import compiled
from prep_assets.extensions.quality.language import _features
from prep_assets.extensions.quality.passages import _covered, repeated_passages
from prep_assets.extensions.quality.private_places import _chains
from prep_assets.extensions.quality.steps import Examples
from prep_assets.extensions.quality.units import UNSPACED
from prep_assets.extensions.quality.words import Words, _n_grams, _repetitions, lines_of, may_repeat
from prep_assets.samples import document
from prep_assets_tests.corpus.words import ODD, TEXTS, sentences, words_of


def cut(characters: Characters, parts: Parts) -> list[list[str]]:
    """The parts of each text."""
    texts = [characters.text[begin:end] for begin, end in zip(parts.begins.tolist(), parts.ends.tolist(), strict=True)]
    until = parts.until.tolist()
    return [texts[begin:end] for begin, end in zip([0, *until], until, strict=False)]


@given(st.lists(ODD | TEXTS, min_size=1, max_size=6))
def test_characters_are_cut_as_python_cuts_them(texts: list[str]) -> None:
    characters = Characters.of(texts)
    assert cut(characters, Words.of(characters).parts) == [words_of(text) for text in texts]
    assert cut(characters, Words.alphanumeric(characters).parts) == [
        re.findall(rf"(?=\w)[{UNSPACED}]|[^\W{UNSPACED}]+", text) for text in texts
    ]
    lines = [text.splitlines() for text in texts]
    assert cut(characters, characters.lines) == [[line.strip() for line in part] for part in lines]
    assert characters.lines.words.tolist() == [len(line.split()) for part in lines for line in part]
    assert characters.lines.longest.tolist() == [max(map(len, line.split()), default=0) for part in lines for line in part]
    assert cut(characters, characters.fed) == [text.split("\n") for text in texts]
    assert characters.lines.ellipses.tolist() == [line.strip().endswith(("...", "…")) for part in lines for line in part]
    assert characters.lengths.tolist() == [len(text) for text in texts]


@given(st.lists(ODD | TEXTS | st.lists(st.sampled_from(["a", "a b", "b  a", ".", "", " ", "\t"])).map("\n".join), min_size=1, max_size=6))
def test_lines_that_are_written_and_those_that_stand_twice(texts: list[str]) -> None:
    examples = Examples([*map(str, range(len(texts)))], [document(text) for text in texts])
    assert cut(Characters.of(texts), lines_of(examples)) == [[line for line in text.split("\n") if line.strip()] for text in texts]
    counts = [Counter(filter(None, text.split("\n"))) for text in texts]
    assert may_repeat(examples).tolist() == [max(lines.values(), default=0) > 1 for lines in counts]


SAID = [
    "Mr.",
    "Sept.",
    "Septa.",
    "o’b.",
    "end.",
    "U.S.",
    "Ph.D.",
    "etc...",
    "so..",
    "why?!",
    "3.",
    "(x.)",
    "“Yes!”",
    "…",
    "-",
    "No",
    "。",
    " ",
    "\n",
]
LINES = st.lists(st.sampled_from(SAID))


@given(st.lists(LINES.map(" ".join) | LINES.map("".join) | ODD, min_size=1, max_size=6))
def test_sentences_of_all_lines_are_those_of_each(texts: list[str]) -> None:
    expected = [sentences(line.strip()) for text in texts for line in text.splitlines()]
    assert Characters.of(texts).lines.sentences.tolist() == expected


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
@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_n_grams_are_counted_as_by_plain_strings(texts: list[str]) -> None:
    said = Words.of(Characters.of(texts)).repetitions(4, 10)
    for text, found in zip(texts, said, strict=True):
        split, expected = words_of(text), []
        for n in range(2, 5):
            grams = Counter(" ".join(split[at : at + n]) for at in range(len(split) - n + 1))
            gram, count = grams.most_common(1)[0] if grams else ("", 0)
            expected.append(len(gram) * count)
        assert found.tolist() == expected + [repeated_characters(split, n) for n in range(5, 11)]


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
@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 12), st.booleans())
def test_passages_are_equal_where_their_words_are(texts: list[str], size: int, short: bool) -> None:
    words = Words.of(Characters.of(texts))
    hashes, until = words.n_grams(size, short)
    expected, ends = list[tuple[str, ...]](), []
    for text in texts:
        split = words_of(text)
        expected += [tuple(split[first : first + size]) for first in range(len(split) - size + 1)]
        expected += [tuple(split)] if short and 0 < len(split) < size else []
        ends.append(len(expected))
    assert until.tolist() == ends
    numbers: dict[int, tuple[str, ...]] = {}
    for number, passage in zip(hashes.tolist(), expected, strict=True):
        assert numbers.setdefault(number, passage) == passage
    assert len(numbers) == len({*expected})


@settings(deadline=None)
@given(st.lists(ODD | TEXTS | st.text("0149 +-./=aA"), min_size=1, max_size=4))
def test_compiled_loops_do_what_they_do_as_python(texts: list[str]) -> None:
    """Which, unlike machine code, notices a place outside of an array."""
    characters, words = Characters.of(texts), Words.of(Characters.of(texts))
    stream = "".join(f"{text}\xff" for text in texts).encode("latin-1", "replace")
    ends = np.flatnonzero(np.frombuffer(stream, np.uint8) == 255) + 1
    plain = np.frombuffer(bytes(8) + "".join(texts).encode("ascii", "replace") + bytes(8), np.uint8)
    automaton = (
        np.arange(3 * 256, dtype=np.uint32) % 5,
        np.array([0, 256, 512, 0, 256], np.uint32),
        np.array([-1, 0, 1, -1, 2], np.int32),
        3,
    )
    loops: list[tuple[Any, tuple[Any, ...]]] = [
        (_cut, (characters.codes, characters.kinds, characters.ends, WORD | SPACE, SPACE, True)),
        (_lines, (characters.codes, characters.kinds, characters.ends, _ABBREVIATIONS)),
        (_n_grams, (words.hashes, words.parts.until, 3, True)),
        (_repetitions, (words.hashes, words.letters, words.powers, words.parts.lengths, words.parts.until, 4, 10)),
        (_features, (np.frombuffer(stream, np.uint8), ends, *automaton)),
        (_chains, (plain, np.append(np.flatnonzero(plain - ord("0") < 10), len(plain)))),
        (_covered, (words.n_grams(2)[0] % 2 == 0, words.parts.counts, 2)),
    ]
    for loop, arguments in loops:
        with np.errstate(over="ignore"):
            expected = loop.__wrapped__(*arguments)
        for left, right in zip(*((said if isinstance(said, tuple) else (said,)) for said in (expected, loop(*arguments))), strict=True):
            assert left.dtype == right.dtype and left.tolist() == right.tolist()


def test_a_loop_is_compiled_without_the_cache_where_that_is_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user.py").write_text("def twice(number):\n    return 2 * number\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    twice = importlib.import_module("of_a_user").twice
    assert compiled(twice)(2) == 4
    kept = [*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")]
    assert len(kept) == 2
    for file in kept:
        file.write_bytes(file.read_bytes()[:-9])
    assert compiled(twice)(3) == 6
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ConfigError, match=r"pip install 'prep-assets\[quality\]'"):
        compiled(twice)(2)


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
        split, covered = re.findall(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+|[^\w\s]+", text), set[int]()
        for first in range(len(split) - size + 1 if kept else 0):
            passage = tuple(split[first : first + size])
            covered |= {*range(first, first + size)} if passage in seen else set()
            seen.add(passage)
        expected.append(len(covered) / max(1, len(split)))
    assert judged.notes["share"] == [round(share, 4) for share in expected]
    assert {number: reason for number, (reason, _) in judged.found.items()} == {
        number: "repeated_passage" for number, share in enumerate(expected) if share > max_share
    }
