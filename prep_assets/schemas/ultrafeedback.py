"""``ultrafeedback``: HuggingFaceH4/ultrafeedback_binarized, and the rows with all completions of openbmb/UltraFeedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, USER, Pair, PlainChat, turn
from prep_assets.schemas.columns import with_system_of
from prep_assets.schemas.fields import as_list, as_mapping, as_number, text_of, texts_of, value_at, wrong_type
from prep_assets.schemas.pairs import pair_of
from prep_assets.schemas.plain_rows import PlainPairs, plain_chat, reads_plain
from prep_assets.schemas.registry import Convert, schema

SCORES = ("score_chosen", "score_rejected")
EXAMPLE = {
    "prompt": "Name a prime number.",
    "chosen": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "7"}],
    "rejected": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "9"}],
    "score_chosen": 9.0,
    "score_rejected": 2.0,
}
BEST_SCORE, BAD_RATING = 10.0, 2.0


@schema("ultrafeedback", gives=Pair, example=EXAMPLE)
def ultrafeedback(
    *,
    prompt_key: str = "prompt",
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    prompt_check: Literal["strict", "column"] = "strict",
    min_margin: float | None = None,
    completions_key: str = "completions",
) -> Convert:
    """The prompt column as a user turn, and the last message of each side as its answer; all stripped. Of a row with completions in place of sides,
    the one that scores most and the one that scores least.

    Options:
        prompt_key: field with the prompt.
        chosen_key: field with the messages that end with the better answer.
        rejected_key: field with the messages that end with the worse answer.
        prompt_check: ``strict`` refuses a side whose messages are not the prompt and one answer; ``column`` does not look at them.
        min_margin: refuse pairs with ``score_chosen - score_rejected`` below this; null asks only that the better answer scores no less.
        completions_key: field with completions, their scores and ratings; a score that contradicts its ratings refuses the row.
    """

    def convert(row: Mapping[str, Any]) -> Pair:
        completions = rated(row, completions_key)
        if completions and row.get(chosen_key) is None:
            question = text_of(row, prompt_key if row.get(prompt_key) is not None else "instruction").strip()
            return _best_and_worst(row, question, completions, min_margin)
        prompt = text_of(row, prompt_key).strip()
        answers = []
        for key in (chosen_key, rejected_key):
            *before, answer = _contents(row, key)
            if prompt_check == "strict" and before != [("user", prompt)]:
                raise Refused("prompts_differ", f"{key!r} has {len(before)} messages before its answer; they are not the prompt")
            if answer[0] != "assistant":
                raise Refused("no_assistant_turn", f"{key!r} ends with a message of {answer[0]!r}")
            answers.append((turn(ASSISTANT, answer[1]),))
        _require_margin(row, min_margin)
        _require_scores(row, {each.response: each.score for each in completions}, [answer.text for (answer,) in answers])
        return pair_of(row, with_system_of(row, (turn(USER, prompt),)), *answers)

    def split(row: Mapping[str, Any]) -> tuple[PlainChat | None, object, object] | None:
        chats = [plain_chat(row[key], "role", "content", _PLAIN_TAGS) for key in (chosen_key, rejected_key)]
        better, worse = (row[key] for key in SCORES)
        numbers = {type(better), type(worse)} <= {int, float} and abs(better) < _LARGE and abs(worse) < _LARGE
        if not isinstance(row[prompt_key], str) or not numbers or better < worse or better - worse < (min_margin or 0):
            return None
        prompt = row[prompt_key].strip()
        if any(chat is None or chat.roles != (USER, ASSISTANT) or chat.texts[0].strip() != prompt for chat in chats):
            return None
        chosen, rejected = (chat.texts[1].strip() for chat in chats if chat is not None)
        return PlainChat((USER,), (prompt,)), chosen, rejected

    read = PlainPairs(frozenset([prompt_key, chosen_key, rejected_key, *SCORES]), split)
    return reads_plain(convert, read) if prompt_check == "strict" else convert


_PLAIN_TAGS = {"user": USER, "assistant": ASSISTANT}
_LARGE = 1e15


def _contents(row: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    messages = [as_mapping(message, f"{key}[{i}]") for i, message in enumerate(as_list(value_at(row, key), key))]
    if not messages:
        raise Refused("empty_answer", f"{key!r} has no messages")
    pairs = (texts_of(message, "role", "content") for message in messages)
    return [(role, content.strip()) for role, content in pairs]


def _require_margin(row: Mapping[str, Any], margin: float | None) -> None:
    if margin is None and all(row.get(key) is None for key in SCORES):
        return
    chosen, rejected = (as_number(value_at(row, key), key) for key in SCORES)
    if chosen < rejected:
        raise Refused("score_contradicts", f"the chosen answer scores {chosen:g}, the rejected one {rejected:g}")
    if margin is not None and chosen - rejected < margin:
        raise Refused("small_margin", f"the scores are {chosen:g} and {rejected:g}; min_margin is {margin:g}")


def _best_and_worst(row: Mapping[str, Any], question: str, completions: Sequence[Rated], margin: float | None) -> Pair:
    best, worst = (chosen(completions, key=lambda each: each.score) for chosen in (max, min))
    if best.score - worst.score < (margin or 0) or best.score == worst.score:
        limit = "no two differ" if margin is None else f"min_margin is {margin:g}"
        raise Refused("small_margin", f"the {len(completions)} completions score {worst.score:g} to {best.score:g}; {limit}")
    answers = [(turn(ASSISTANT, each.response),) for each in (best, worst)]
    return pair_of(row, with_system_of(row, (turn(USER, question),)), *answers)


def _require_scores(row: Mapping[str, Any], scores: Mapping[str, float], answers: Sequence[str]) -> None:
    """Where the completions stand beside the sides, each side has its own completion's score, and the chosen one no less than the other."""
    own = [scores.get(answer) for answer in answers]
    for key, score in zip(SCORES, own, strict=True):
        value = row.get(key)
        if score is not None and value is not None and as_number(value, key) != score:
            raise Refused("score_contradicts", f"{key!r} is {value}, and the completion with this text scores {score:g}")
    if own[0] is not None and own[1] is not None and own[0] < own[1]:
        raise Refused("score_contradicts", f"the chosen answer scores {own[0]:g}, the rejected one {own[1]:g}")


@dataclass(frozen=True, slots=True)
class Rated:
    """One completion: its text, stripped, and its overall score."""

    response: str
    score: float


def rated(row: Mapping[str, Any], key: str) -> list[Rated]:
    """The completions of a row, each with an overall score of 1 to 10 and a rating of 1 to 5 for each of four aspects; none where it has none.

    A fault of 2023 (``> 1`` for ``>= 1``) wrote the overall score 1 of about 2,000 answers as 10. Their ratings stayed, so they tell.

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
    """The ratings of the aspects, numbers as text; ``N/A`` is left out."""
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
