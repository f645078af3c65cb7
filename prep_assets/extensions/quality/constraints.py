"""Constraints on a text that code can verify, by their names in IFEval (Zhou et al., 2023), as Google's code verifies them.

Those that want the sentences or words of nltk's models, or langdetect's languages, are left out: both fetch or guess. So are the names that
open-instruct and IFBench add.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from inspect import signature

from prep_assets.errors import Refused
from prep_assets.extensions.rl.verifiers import BAD, Constraint

_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {"less than": operator.lt, "at least": operator.ge}


def _paragraphs(text: str, num_paragraphs: int) -> bool:
    parts = re.split(r"\s?\*\*\*\s?", text)
    return all(part.strip() for part in parts[1:-1]) and sum(bool(part.strip()) for part in parts) == num_paragraphs


def _nth_paragraph(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = text.split("\n\n")
    written = sum(bool(each.strip()) for each in paragraphs)
    if written != num_paragraphs or nth_paragraph > written or not (words := paragraphs[nth_paragraph - 1].split()):
        return False
    word = words[0].lstrip("'").lstrip('"')
    return re.split(r"[.,?!'\"]", word)[0].lower() == first_word.lower()


def _postscript(text: str, postscript_marker: str) -> bool:
    known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(known.get(postscript_marker, postscript_marker.lower()), text.lower()) is not None


def _bullets(text: str, num_bullets: int) -> bool:
    return sum(len(re.findall(mark, text, re.MULTILINE)) for mark in (r"^\s*\*[^\*].*$", r"^\s*-.*$")) == num_bullets


def _highlights(text: str, num_highlights: int) -> bool:
    marked = [*re.findall(r"\*[^\n\*]*\*", text), *re.findall(r"\*\*[^\n\*]*\*\*", text)]
    return sum(bool(each.strip("*").strip()) for each in marked) >= num_highlights


def _json(text: str) -> bool:
    text = re.sub(r"^```(?:json|Json|JSON)?", "", text.strip()).removesuffix("```").strip()
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _two_responses(text: str) -> bool:
    parts = text.split("******")
    answers = [part.strip() for part in parts if part.strip()]
    return all(part.strip() for part in parts[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


CONSTRAINTS: Mapping[str, Callable[..., bool]] = {
    "keywords:existence": lambda text, keywords: all(re.search(each, text, re.IGNORECASE) for each in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation: _RELATIONS[relation](
        len(re.findall(keyword, text, re.IGNORECASE)), frequency
    ),
    "keywords:forbidden_words": lambda text, forbidden_words: (
        not any(re.search(rf"\b{each}\b", text, re.IGNORECASE) for each in forbidden_words)
    ),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation: _RELATIONS[let_relation](
        text.lower().count(letter.lower()), let_frequency
    ),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": lambda text, num_words, relation: _RELATIONS[relation](len(re.findall(r"\w+", text)), num_words),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "detectable_content:number_placeholders": lambda text, num_placeholders: len(re.findall(r"\[.*?\]", text)) >= num_placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": lambda text: any(f"My answer is {each}." in text for each in ("yes", "no", "maybe")),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections: (
        len(re.findall(rf"\s?{section_spliter}\s?\d+\s?", text)) >= num_sections
    ),
    "detectable_format:json_format": _json,
    "detectable_format:title": lambda text: any(title.strip("<>").strip() for title in re.findall(r"<<[^\n]+>>", text)),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, prompt_to_repeat: text.strip().lower().startswith(prompt_to_repeat.strip().lower()),
    "startend:end_checker": lambda text, end_phrase: text.strip().strip('"').lower().endswith(end_phrase.strip().lower()),
    "startend:quotation": lambda text: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
    "punctuation:no_comma": lambda text: "," not in text,
}
"""Name → what tells whether a text keeps it, given its arguments by name."""


def keeps(text: str, constraint: Constraint) -> bool:
    """Whether a text keeps a constraint.

    Raises:
        Refused: ``bad_arguments`` where its arguments are others, of another type, or no regular expression. Google's code draws a missing one at random.
    """
    holds = CONSTRAINTS[constraint.name]
    try:
        signature(holds).bind(text, **constraint.kwargs)
        return holds(text, **constraint.kwargs)
    except (TypeError, AttributeError, KeyError, re.error) as error:
        why = f": {error}" if isinstance(error, TypeError) else ""
        raise Refused(BAD, f"{constraint.name} cannot be verified: {type(error).__name__}{why}") from error
