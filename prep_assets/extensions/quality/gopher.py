"""The quality and repetition rules of Gopher (Rae et al., 2021, appendix A1.1) for whole texts, with the numbers of table A1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from prep_assets.extensions.quality.characters import LETTER, SPACE, WORD
from prep_assets.extensions.quality.steps import Examples, Finding, Step, quality_step
from prep_assets.extensions.quality.words import Rules, above, below, by_rules, characters_of, may_repeat, words_of
from prep_assets.samples import document

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=10**9)]
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
TOP_N_GRAMS = ((2, 0.2), (3, 0.18), (4, 0.16))
DUPLICATE_N_GRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
"""n → the largest share of a text's characters that its most frequent n-gram, or its repeated n-grams, may have."""


@quality_step("gopher_quality", source="Rae et al., 2021, appendix A1.1", corrupted=((document("# " * 200),), "gopher_short_doc"))
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

    def rules(examples: Examples) -> Rules:
        characters, words = characters_of(examples), words_of(examples).parts
        kinds, lines = words_of(examples).kinds, characters.lines
        most_words, most_lines = np.maximum(words.counts, 1), np.maximum(lines.counts, 1)
        is_word = kinds & WORD > 0
        count = words.total(is_word)
        yield below("gopher_short_doc", count, min_words, "{:,} words, min_words is {:,}")
        yield above("gopher_long_doc", count, max_words, "{:,} words, max_words is {:,}")
        mean, allowed = words.total(is_word * words.lengths) / np.maximum(count, 1), f"{min_word_length} to {max_word_length}"
        is_odd = (mean < min_word_length) | (mean > max_word_length)
        yield is_odd, lambda at: ("gopher_word_length", f"words of {mean[at]:.1f} characters on average, allowed are {allowed}")
        counts = [max(text.count("#"), text.count("...") + text.count("…")) for text in examples.said]
        symbols = np.array(counts) / most_words
        yield above("gopher_symbols", symbols, max_symbols, "{:.2f} hash signs or ellipses per word, max_symbols is {}")
        begun = characters.codes[lines.begins]
        bullets = lines.total((lines.lengths > 0) & ((begun == ord("•")) | (begun == ord("-")))) / most_lines
        yield above("gopher_bullets", bullets, max_bullets, "{:.0%} of the lines begin with a bullet, max_bullets is {:.0%}")
        ellipses = lines.total(lines.ellipses) / most_lines
        yield above("gopher_ellipses", ellipses, max_ellipses, "{:.0%} of the lines end with an ellipsis, max_ellipses is {:.0%}")
        letters = words.total(kinds & LETTER > 0) / most_words
        yield below("gopher_alphabetic", letters, min_alphabetic, "{:.0%} of the words have a letter, min_alphabetic is {:.0%}")
        stops = words_of(examples).different(STOP_WORDS)
        yield below("gopher_stop_words", stops, min_stop_words, "{} different stop words, min_stop_words is {}")

    return by_rules(rules)


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

    def in_lines(text: str) -> Finding | None:
        for what, between, whole, most in (("paragraphs", r"\n{2,}", text.strip(), max_paragraphs), ("lines", r"\n+", text, max_lines)):
            parts = re.split(between, whole)
            again = repeated(parts)
            if len(again) > most * len(parts):
                return f"gopher_{what}", f"{len(again):,} of {len(parts):,} {what} stood before, at most {most:.0%} may"
            if (characters := sum(map(len, again)) / len(text)) > max_characters:
                share = f"{characters:.0%} of the characters, at most {max_characters:.0%} may"
                return f"gopher_{what}", f"{what} that stood before have {share}"
        return None

    def rules(examples: Examples) -> Rules:
        characters = characters_of(examples)
        yield characters.lengths == 0, lambda at: ("gopher_empty", "0 characters")
        # of different lines none stood before; what stands at the ends may be the same without white space
        at_ends = characters.kinds[characters.ends - characters.lengths] | characters.kinds[characters.ends - 1]
        yield may_repeat(examples) | (at_ends & SPACE > 0), lambda at: in_lines(examples.said[at])
        said = words_of(examples).repetitions(TOP_N_GRAMS[-1][0], DUPLICATE_N_GRAMS[-1][0])
        shares, may = (said / np.maximum(characters.lengths, 1)[:, None]).T, "{:.0%} of the characters, at most {:.0%} may"
        for (size, most), share in zip(TOP_N_GRAMS, shares, strict=False):
            yield above("gopher_top_n_gram", share, most, f"one {size}-gram has {may}")
        for (size, most), share in zip(DUPLICATE_N_GRAMS, shares[len(TOP_N_GRAMS) :], strict=True):
            yield above("gopher_n_grams", share, most, f"{size}-grams that stood before have {may}")

    return by_rules(rules)


def repeated(parts: Sequence[str]) -> list[str]:
    """The parts that stood before."""
    seen: set[str] = set()
    return [part for part in parts if part in seen or seen.add(part)]  # type: ignore[func-returns-value]
