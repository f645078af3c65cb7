"""The quality and repetition rules of Gopher (Rae et al., 2021, appendix A1.1) for whole texts, with the numbers of table A1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from prep_assets.extensions.quality.characters import LETTER, WORD
from prep_assets.extensions.quality.steps import Examples, Finding, Step, quality_step
from prep_assets.extensions.quality.words import by_text, characters_of, words_of
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

    def rule(text: str, count: int, mean: float, words: int, bullets: float, ellipses: float, letters: float, stops: int) -> Finding | None:
        if count < min_words:
            return "gopher_short_doc", f"{count:,} words, min_words is {min_words:,}"
        if count > max_words:
            return "gopher_long_doc", f"{count:,} words, max_words is {max_words:,}"
        if not min_word_length <= mean <= max_word_length:
            return "gopher_word_length", f"words of {mean:.1f} characters on average, allowed are {min_word_length} to {max_word_length}"
        symbols = max(text.count("#"), text.count("...") + text.count("…")) / max(1, words)
        if symbols > max_symbols:
            return "gopher_symbols", f"{symbols:.2f} hash signs or ellipses per word, max_symbols is {max_symbols}"
        if bullets > max_bullets:
            return "gopher_bullets", f"{bullets:.0%} of the lines begin with a bullet, max_bullets is {max_bullets:.0%}"
        if ellipses > max_ellipses:
            return "gopher_ellipses", f"{ellipses:.0%} of the lines end with an ellipsis, max_ellipses is {max_ellipses:.0%}"
        if letters < min_alphabetic:
            return "gopher_alphabetic", f"{letters:.0%} of the words have a letter, min_alphabetic is {min_alphabetic:.0%}"
        if stops < min_stop_words:
            return "gopher_stop_words", f"{stops} different stop words, min_stop_words is {min_stop_words}"
        return None

    def columns(examples: Examples) -> Iterable[npt.NDArray[Any]]:
        characters, words = characters_of(examples), words_of(examples).parts
        lines, _ = characters.stripped_lines
        is_word, with_letters = words_of(examples).kinds & WORD > 0, words_of(examples).kinds & LETTER > 0
        bullets = (lines.lengths > 0) & np.isin(characters.codes[lines.begins], [ord("•"), ord("-")])
        ellipses = characters.end_with(lines, "...") | characters.end_with(lines, "…")
        count, most_words, most_lines = words.total(is_word), np.maximum(words.counts, 1), np.maximum(lines.counts, 1)
        return [
            count,
            words.total(is_word * words.lengths) / np.maximum(count, 1),
            words.counts,
            lines.total(bullets) / most_lines,
            lines.total(ellipses) / most_lines,
            words.total(with_letters) / most_words,
            words_of(examples).different(STOP_WORDS),
        ]

    return by_text(rule, columns)


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

    n_grams = (*TOP_N_GRAMS, *DUPLICATE_N_GRAMS)

    def rule(text: str, too_many: int, share: float) -> Finding | None:
        if not text:
            return "gopher_empty", "0 characters"
        # of different lines none stood before; what stands at the ends may be the same without white space
        written = [*filter(None, text.split("\n"))]
        twice = len({*written}) < len(written) or text[0].isspace() or text[-1].isspace()
        split = (("paragraphs", r"\n{2,}", text.strip(), max_paragraphs), ("lines", r"\n+", text, max_lines))
        for what, between, whole, most in split if twice else ():
            parts = re.split(between, whole)
            again = repeated(parts)
            if len(again) > most * len(parts):
                return f"gopher_{what}", f"{len(again):,} of {len(parts):,} {what} stood before, at most {most:.0%} may"
            if (characters := sum(map(len, again)) / len(text)) > max_characters:
                return (
                    f"gopher_{what}",
                    f"{what} that stood before have {characters:.0%} of the characters, at most {max_characters:.0%} may",
                )
        size, most = n_grams[too_many]
        if share > most and size <= TOP_N_GRAMS[-1][0]:
            return "gopher_top_n_gram", f"one {size}-gram has {share:.0%} of the characters, at most {most:.0%} may"
        if share > most:
            return "gopher_n_grams", f"{size}-grams that stood before have {share:.0%} of the characters, at most {most:.0%} may"
        return None

    def columns(examples: Examples) -> Iterable[npt.NDArray[Any]]:
        said = words_of(examples).repetitions(TOP_N_GRAMS[-1][0], DUPLICATE_N_GRAMS[-1][0])
        shares = said / np.maximum(characters_of(examples).lengths, 1)[:, None]
        too_many = np.argmax(shares > [most for _, most in n_grams], axis=1)  # the first
        return [too_many, shares[np.arange(len(shares)), too_many]]

    return by_text(rule, columns)


def repeated(parts: Sequence[str]) -> list[str]:
    """The parts that stood before."""
    seen: set[str] = set()
    return [part for part in parts if part in seen or seen.add(part)]  # type: ignore[func-returns-value]
