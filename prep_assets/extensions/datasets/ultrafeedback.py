"""``ultrafeedback``: HuggingFaceH4/ultrafeedback_binarized, and the rows with all completions of openbmb/UltraFeedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, USER, Pair, PlainChat, Row, turn
from prep_assets.schemas.fields import as_mapping, as_number, objects, text_of, texts_of, value_at, wrong_type
from prep_assets.schemas.reader import PlainPairs, plain_chats, reads_plain
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import pair_of, with_system_of

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
        prompt_key: the prompt.
        chosen_key: messages that end with the better answer.
        rejected_key: messages that end with the worse answer.
        prompt_check: `strict` rejects a side whose messages are not the prompt and one answer; `column` does not.
        min_margin: reject pairs with a smaller `score_chosen - score_rejected`; null keeps ties.
        completions_key: completions with their scores and ratings, in place of two sides.
    """

    def convert(row: Row) -> Pair:
        completions = rated(row, completions_key)
        if completions and row.get(chosen_key) is None:
            prompt = text_of(row, prompt_key if row.get(prompt_key) is not None else "instruction").strip()
            answers = _best_and_worst(completions, min_margin)
        else:
            prompt = text_of(row, prompt_key).strip()
            answers = [_last_answer(row, key, prompt if prompt_check == "strict" else None) for key in (chosen_key, rejected_key)]
            _require_margin(row, min_margin)
            _require_scores(row, dict(completions), answers)
        return pair_of(row, with_system_of(row, (turn(USER, prompt),)), *((turn(ASSISTANT, answer),) for answer in answers))

    def split(row: Row) -> tuple[PlainChat | None, object, object] | None:
        chats = plain_chats([row[chosen_key], row[rejected_key]], "role", "content", _ANSWER_TAGS)
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


_ANSWER_TAGS = {"user": USER, "assistant": ASSISTANT}
_LARGE = 1e15


def _last_answer(row: Row, key: str, prompt: str | None) -> str:
    """The text of the last message of a side, which is the assistant's. `prompt`, unless `None`, must be the only message before it."""
    messages = list(objects(value_at(row, key), key))
    if not messages:
        raise Refused("empty_answer", f"{key!r} has no messages")
    *earlier, (role, answer) = [texts_of(message, "role", "content") for _, message in messages]
    if prompt is not None and [(asker, text.strip()) for asker, text in earlier] != [("user", prompt)]:
        raise Refused("prompts_differ", f"{key!r} has {len(earlier)} messages before its answer; they are not the prompt")
    if role != "assistant":
        raise Refused("no_assistant_turn", f"{key!r} ends with a message of {role!r}")
    return answer.strip()


def _require_margin(row: Row, margin: float | None) -> None:
    if margin is None and all(row.get(key) is None for key in SCORES):
        return
    chosen, rejected = (as_number(value_at(row, key), key) for key in SCORES)
    if chosen < rejected:
        raise Refused("score_contradicts", f"the chosen answer scores {chosen:g}, the rejected one {rejected:g}")
    if margin is not None and chosen - rejected < margin:
        raise Refused("small_margin", f"the scores are {chosen:g} and {rejected:g}; min_margin is {margin:g}")


def _best_and_worst(completions: Sequence[tuple[str, float]], margin: float | None) -> list[str]:
    (best, highest), (worst, lowest) = (choose(completions, key=itemgetter(1)) for choose in (max, min))
    if highest - lowest < (margin or 0) or highest == lowest:
        limit = "no two differ" if margin is None else f"min_margin is {margin:g}"
        raise Refused("small_margin", f"the {len(completions)} completions score {lowest:g} to {highest:g}; {limit}")
    return [best, worst]


def _require_scores(row: Row, scores: Mapping[str, float], answers: Sequence[str]) -> None:
    """Check the scores of a row that also lists its completions: each side has its completion's score, and chosen scores no less than rejected."""
    chosen, rejected = (scores.get(answer) for answer in answers)
    for key, score in zip(SCORES, (chosen, rejected), strict=True):
        value = row.get(key)
        if score is not None and value is not None and as_number(value, key) != score:
            raise Refused("score_contradicts", f"{key!r} is {value}, and the completion with this text scores {score:g}")
    if chosen is not None and rejected is not None and chosen < rejected:
        raise Refused("score_contradicts", f"the chosen answer scores {chosen:g}, the rejected one {rejected:g}")


def rated(row: Row, key: str) -> list[tuple[str, float]]:
    """The completions of a row, each its text and its overall score, 1 to 10; empty where the row has none.

    A bug of 2023 (``> 1`` for ``>= 1``) wrote the overall score 1 of about 2,000 answers as 10. Their ratings of four aspects, 1 to 5, are right and
    reveal them.

    Raises:
        Refused: ``score_contradicts``, where a completion has the best score and bad ratings.
    """
    completions = []
    for where, completion in objects([] if row.get(key) is None else row[key], key):
        score = as_number(value_at(completion, "overall_score", where), f"{where}.overall_score")
        ratings, fine = _ratings_of(completion, where), completion.get("fine-grained_score")
        mean = as_number(fine, f"{where}.fine-grained_score") if fine is not None else sum(ratings) / len(ratings) if ratings else None
        if mean is not None and score >= BEST_SCORE and mean <= BAD_RATING:
            detail = f"{where} scores {score:g} over all and {mean:g} in its ratings: a score of 1 that was written as 10"
            raise Refused("score_contradicts", detail)
        completions.append((text_of(completion, "response").strip(), score))
    return completions


def _ratings_of(completion: Row, where: str) -> list[float]:
    """The ratings of the aspects, written as numbers or as text; ``N/A`` is left out."""
    ratings = []
    aspects = completion.get("annotations")
    for name, annotation in as_mapping(aspects, f"{where}.annotations").items() if aspects is not None else ():
        place = f"{where}.annotations.{name}"
        rating = as_mapping(annotation, place).get("Rating")
        if rating not in (None, "", "N/A"):
            try:
                ratings.append(as_number(float(rating) if isinstance(rating, str) else rating, f"{place}.Rating"))
            except ValueError:
                wrong_type(rating, f"{place}.Rating", "a number, as text or as itself, or N/A")
    return ratings
