"""The rules of C4 (Raffel et al., 2020) and FineWeb (Penedo et al., 2024) for pages of the web."""

from __future__ import annotations

import re
from typing import Annotated

import numpy as np
from pydantic import Field

from prep_assets.extensions.quality.characters import TERMINAL, Characters, matching
from prep_assets.extensions.quality.gopher import Share, repeated
from prep_assets.extensions.quality.steps import Examples, Finding, Judged, Step, by_block, quality_step
from prep_assets.extensions.quality.words import Rules, above, below, by_rules, characters_of, lines_of, may_repeat, words_of
from prep_assets.samples import document

_ENDS = (".", "?", "!", '"', "'")
_CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_SPECIAL = rf"(?i){{|\[([^\x00-/:-\x7f]*|edit|citation needed)\]|lorem ipsum|javascript|{'|'.join(_POLICIES)}"
"""A pattern of RE2 for texts of which a line must be looked at for itself."""


@quality_step(
    "c4_quality",
    source="Raffel et al., 2020, section 2.2, and its code",
    corrupted=((document("No sentence ends here\n" * 9),), "c4_too_few_sentences"),
    version=2,
)
def c4_quality(
    *,
    min_sentences: Annotated[int, Field(ge=0, le=1000)] = 5,
    min_words: Annotated[int, Field(ge=0, le=1000)] = 3,
    max_word: Annotated[int, Field(ge=1, le=10**6)] = 1000,
) -> Step:
    """Pages with a curly bracket, with "lorem ipsum", or with too few sentences in lines that end as sentences do.

    The text stays as it is. The lines that C4 takes out of a page are counted in the note `lines_left_out`.

    Args:
        min_sentences: in all lines that are left.
        min_words: of a line that counts.
        max_word: characters of the longest word of a line that counts.
    """

    def special(text: str) -> tuple[Finding | None, int, int]:
        counted, left_out = list[str](), 0
        for line in map(str.strip, text.splitlines()):
            words, line = line.split(), _CITATION.sub("", line)
            low = line.lower()
            counts = line.endswith(_ENDS) and not line.endswith("...") and min_words <= len(words) and max(map(len, words)) <= max_word
            if not counts or ("javascript" in low and "lorem ipsum" not in low):
                left_out += 1
            elif "lorem ipsum" in low:
                return ("c4_lorem_ipsum", "a line has the words lorem ipsum"), 0, left_out
            elif "{" in line:
                return ("c4_curly_bracket", "a line has a curly bracket"), 0, left_out
            elif any(policy in low for policy in _POLICIES):
                left_out += 1
            else:
                counted.append(line)
        return None, int(Characters.of(counted or [""]).lines.sentences.sum()), left_out

    def judge(examples: Examples) -> Judged:
        characters = characters_of(examples)
        lines = characters.lines
        counted = np.isin(characters.codes[lines.ends - 1], [*map(ord, _ENDS)]) & (lines.words >= max(1, min_words)) & ~lines.ellipses
        sentences, left_out = lines.total(lines.sentences * counted), lines.total(~counted)
        are_special = matching(examples.said, _SPECIAL)
        are_special[lines.texts[lines.longest > max_word]] = True
        found: dict[int, Finding] = {}
        for at in np.flatnonzero(are_special).tolist():
            finding, sentences[at], left_out[at] = special(examples.said[at])
            if finding:
                found[at] = finding
        few = "{:,} sentences in lines that count, min_sentences is {:,}"
        for at in np.flatnonzero(sentences < min_sentences).tolist():
            found.setdefault(at, ("c4_too_few_sentences", few.format(sentences[at], min_sentences)))
        return Judged(dict(sorted(found.items())), {"lines_left_out": left_out.tolist()})

    return by_block(judge)


@quality_step(
    "fineweb_quality",
    source="Penedo et al., 2024, section 3.5, by datatrove",
    corrupted=((document("short\n" * 20),), "fineweb_line_punctuation"),
    libraries=("regex",),
    version=2,
)
def fineweb_quality(
    *,
    min_ended_lines: Share = 0.12,
    max_short_lines: Share = 0.67,
    short_line: Annotated[int, Field(ge=0, le=10**6)] = 30,
    max_repeated: Share = 0.01,
    max_lines_per_word: Annotated[float, Field(ge=0, le=1000)] = 0.3,
) -> Step:
    """Pages whose lines seldom end as sentences do, are short, stood before, or are too many for their words: lists and menus.

    Args:
        min_ended_lines: share of lines that end with a mark that ends a sentence, in any script.
        max_short_lines: share of lines with at most `short_line` characters.
        max_repeated: share of characters in lines that stood before.
        max_lines_per_word: line breaks per word.
    """

    def repeats(text: str) -> Finding | None:
        again = sum(map(len, repeated([*filter(str.strip, text.split("\n"))]))) / max(1, len(text.replace("\n", "")))
        detail = f"lines that stood before have {again:.1%} of the characters, max_repeated is {max_repeated:.1%}"
        return ("fineweb_repeated", detail) if again > max_repeated else None

    def rules(examples: Examples) -> Rules:
        lines = lines_of(examples)
        most = np.maximum(lines.counts, 1)
        yield lines.counts == 0, lambda at: ("fineweb_empty", "0 lines with a character")
        ended = lines.total(characters_of(examples).kinds[lines.ends - 1] & TERMINAL > 0) / most
        yield below(
            "fineweb_line_punctuation", ended, min_ended_lines, "{:.0%} of the lines end as sentences do, min_ended_lines is {:.0%}"
        )
        short = lines.total(lines.lengths <= short_line) / most
        yield above("fineweb_short_lines", short, max_short_lines, "{:.0%} of the lines are short, max_short_lines is {:.0%}")
        yield may_repeat(examples), lambda at: repeats(examples.said[at])
        breaks = (characters_of(examples).fed.counts - 1) / np.maximum(words_of(examples).parts.counts, 1)
        yield above("fineweb_list", breaks, max_lines_per_word, "{:.2f} line breaks per word, max_lines_per_word is {}")

    return by_rules(rules)
