"""UltraFeedback's completions, as its authors publish them: an overall score of 1 to 10, and a rating of 1 to 5 for each of four aspects.

A fault of 2023 (``> 1`` for ``>= 1``) wrote the overall score 1 of about 2,000 answers as 10. Their ratings stayed, so they tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import Refused
from prep_assets.schemas.fields import as_list, as_mapping, as_number, text_of, value_at, wrong_type

BEST_SCORE, BAD_RATING = 10.0, 2.0


@dataclass(frozen=True, slots=True)
class Rated:
    """One completion: its text, stripped, and its overall score."""

    response: str
    score: float


def rated(row: Mapping[str, Any], key: str) -> list[Rated]:
    """The completions of a row; none where it has none.

    Raises:
        Refused: ``score_contradicts``, where one with the best score has the ratings of a bad one.
    """
    listed: Sequence[Any] = [] if row.get(key) is None else as_list(row[key], key)
    return [_rated(as_mapping(each, f"{key}[{number}]"), f"{key}[{number}]") for number, each in enumerate(listed)]


def _rated(completion: Mapping[str, Any], where: str) -> Rated:
    score = as_number(value_at(completion, "overall_score", where), f"{where}.overall_score")
    ratings = _ratings(completion, where)
    fine = completion.get("fine-grained_score")
    mean = as_number(fine, f"{where}.fine-grained_score") if fine is not None else sum(ratings) / len(ratings) if ratings else None
    if mean is not None and score >= BEST_SCORE and mean <= BAD_RATING:
        detail = f"{where} scores {score:g} over all and {mean:g} in its ratings: a score of 1 that was written as 10"
        raise Refused("score_contradicts", detail)
    return Rated(text_of(completion, "response").strip(), score)


def _ratings(completion: Mapping[str, Any], where: str) -> list[float]:
    """The ratings of the aspects, numbers as text; ``N/A`` is none."""
    found = []
    aspects = completion.get("annotations")
    for name, annotation in as_mapping(aspects, f"{where}.annotations").items() if aspects is not None else ():
        rating = as_mapping(annotation, f"{where}.annotations.{name}").get("Rating")
        if rating not in (None, "", "N/A"):
            found.append(_number(rating, f"{where}.annotations.{name}.Rating"))
    return found


def _number(value: Any, where: str) -> float:
    try:
        return as_number(float(value) if isinstance(value, str) else value, where)
    except ValueError:
        return wrong_type(value, where, "a number, as text or as itself, or N/A")
