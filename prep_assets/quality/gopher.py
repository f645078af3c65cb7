"""The quality and repetition rules of Gopher (Rae et al., 2021, appendix A1.1) for whole texts, with the numbers of table A1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from typing import Annotated

import numpy as np
from pydantic import Field

from prep_assets.quality.steps import Examples, Finding, Judged, Step, by_block, quality_step
from prep_assets.quality.words import words_of
from prep_assets.samples import document

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=10**9)]
STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
TOP_N_GRAMS = ((2, 0.2), (3, 0.18), (4, 0.16))
DUPLICATE_N_GRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
"""n → the largest share of a text's characters that its most frequent n-gram, or its repeated n-grams, may have."""


@quality_step(
    "gopher_quality",
    source="Rae et al., 2021, appendix A1.1",
    corrupted=((document("# " * 200),), "gopher_short_doc"),
)
def gopher_quality(
    *,
    min_words: Count = 50,
    max_words: Count = 100_000,
    min_word_length: float = 3,
    max_word_length: float = 10,
    max_symbols: Share = 0.1,
    max_bullets: Share = 0.9,
    max_ellipses: Share = 0.3,
    min_alphabetic: Share = 0.8,
    min_stop_words: Count = 2,
) -> Step:
    """Texts with too few, too many, too short or too long words, too many symbols, bullets or ellipses, too few letters or stop words of English.

    Args:
        min_words, max_words: number of words that are not punctuation.
        min_word_length, max_word_length: their mean length in characters.
        max_symbols: hash signs, and ellipses, per word.
        max_bullets, max_ellipses: share of lines that begin with a bullet, or end with an ellipsis.
        min_alphabetic: share of words with a letter.
        min_stop_words: how many different ones of the, be, to, of, and, that, have, with.
    """

    def rule(text: str, count: int, characters: int, words: int, alphabetic: int, stops: int) -> Finding | None:
        if count < min_words:
            return "gopher_short_doc", f"{count:,} words, min_words is {min_words:,}"
        if count > max_words:
            return "gopher_long_doc", f"{count:,} words, max_words is {max_words:,}"
        mean = characters / max(1, count)
        if not min_word_length <= mean <= max_word_length:
            return "gopher_word_length", f"words of {mean:.1f} characters on average, allowed are {min_word_length} to {max_word_length}"
        symbols = max(text.count("#"), text.count("...") + text.count("…")) / max(1, words)
        if symbols > max_symbols:
            return "gopher_symbols", f"{symbols:.2f} hash signs or ellipses per word, max_symbols is {max_symbols}"
        lines = text.splitlines() or [""]
        bullets = sum(line.lstrip().startswith(("•", "-")) for line in lines) / len(lines)
        if bullets > max_bullets:
            return "gopher_bullets", f"{bullets:.0%} of the lines begin with a bullet, max_bullets is {max_bullets:.0%}"
        ellipses = sum(line.rstrip().endswith(("...", "…")) for line in lines) / len(lines)
        if ellipses > max_ellipses:
            return "gopher_ellipses", f"{ellipses:.0%} of the lines end with an ellipsis, max_ellipses is {max_ellipses:.0%}"
        if (letters := alphabetic / max(1, words)) < min_alphabetic:
            return "gopher_alphabetic", f"{letters:.0%} of the words have a letter, min_alphabetic is {min_alphabetic:.0%}"
        if stops < min_stop_words:
            return "gopher_stop_words", f"{stops} different stop words, min_stop_words is {min_stop_words}"
        return None

    def judge(examples: Examples) -> Judged:
        words = examples.words
        is_word = words.each(lambda word: word[0].isalnum() or word[0] == "_")
        stop_words = (words.total(words.ids == number) > 0 for number, word in enumerate(words.known) if word in STOP_WORDS)
        counted = (
            words.total(is_word),
            words.total(is_word * words.each(len)),
            np.diff(words.ends, prepend=0),
            words.total(words.each(lambda word: any(map(str.isalpha, word)))),
            sum(stop_words, np.zeros(len(examples), np.int64)),
        )
        numbers = zip(*(column.tolist() for column in counted), strict=True)
        found = ((at, rule(text, *of_text)) for at, (text, of_text) in enumerate(zip(examples.texts, numbers, strict=True)))
        return Judged({at: finding for at, finding in found if finding is not None})

    return by_block(judge)


@quality_step(
    "gopher_repetition",
    source="Rae et al., 2021, table A1",
    corrupted=((document("\n".join(["The same line, over and over."] * 9)),), "gopher_lines"),
)
def gopher_repetition(*, max_lines: Share = 0.3, max_paragraphs: Share = 0.3, max_characters: Share = 0.2) -> Step:
    """Texts that repeat lines, paragraphs or n-grams of words.

    Args:
        max_lines, max_paragraphs: share of lines, and of paragraphs, that stood before.
        max_characters: share of characters in them. The shares for n-grams are those of the table.
    """

    def rule(text: str, sizes: Set[int]) -> Finding | None:
        if not text:
            return "gopher_empty", "0 characters"
        for what, parts, most in (
            ("paragraphs", re.split(r"\n{2,}", text.strip()), max_paragraphs),
            ("lines", re.split(r"\n+", text), max_lines),
        ):
            again = repeated(parts)
            if len(again) > most * len(parts):
                return f"gopher_{what}", f"{len(again):,} of {len(parts):,} {what} stood before, at most {most:.0%} may"
            if (characters := sum(map(len, again)) / len(text)) > max_characters:
                return (
                    f"gopher_{what}",
                    f"{what} that stood before have {characters:.0%} of the characters, at most {max_characters:.0%} may",
                )
        words = words_of(text) if sizes else []
        for size, most in TOP_N_GRAMS:
            if size not in sizes:
                continue
            grams = Counter(" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
            top, count = grams.most_common(1)[0] if grams else ("", 0)
            if (share := len(top) * count / len(text)) > most:
                return "gopher_top_n_gram", f"one {size}-gram has {share:.0%} of the characters, at most {most:.0%} may"
        for size, most in DUPLICATE_N_GRAMS:
            if size in sizes and (share := _repeated_characters(words, size) / len(text)) > most:
                return "gopher_n_grams", f"{size}-grams that stood before have {share:.0%} of the characters, at most {most:.0%} may"
        return None

    def judge(examples: Examples) -> Judged:
        characters = np.array([*map(len, examples.texts)], np.int64)
        may_repeat = examples.words.may_repeat(characters, TOP_N_GRAMS, DUPLICATE_N_GRAMS)
        sizes = [set[int]() for _ in examples.texts]
        for size, texts in may_repeat.items():
            for at in np.flatnonzero(texts).tolist():
                sizes[at].add(size)
        found = ((at, rule(text, sizes[at])) for at, text in enumerate(examples.texts))
        return Judged({at: finding for at, finding in found if finding is not None})

    return by_block(judge)


def repeated(parts: Sequence[str]) -> list[str]:
    """The parts that stood before."""
    seen: set[str] = set()
    return [part for part in parts if part in seen or seen.add(part)]  # type: ignore[func-returns-value]


def _repeated_characters(words: Sequence[str], size: int) -> int:
    """Characters of the n-grams that stood before; they do not overlap."""
    seen, characters, at = set[str](), 0, 0
    while at <= len(words) - size:
        gram = "".join(words[at : at + size])
        if gram in seen:
            characters += len(gram)
            at += size
        else:
            seen.add(gram)
            at += 1
    return characters
