"""Preferences: ``preference``, ``ultrafeedback`` and ``contrastive``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Contrast, Pair, PlainChat, Row, Turn, changed, turn
from prep_assets.schemas.dialogues import ASSISTANT_MARK, HUMAN_MARK, answer_alone, split_marked
from prep_assets.schemas.dialogues import EXAMPLE as HH_EXAMPLE
from prep_assets.schemas.fields import (
    as_list,
    as_mapping,
    as_number,
    as_text,
    has_content,
    needed,
    objects,
    text_of,
    texts_of,
    value_at,
    wrong_type,
)
from prep_assets.schemas.reader import PlainPairs, plain_chats, plain_roles, reads_plain
from prep_assets.schemas.registry import Convert, schema, text_to_embed
from prep_assets.schemas.turns import (
    chat_format,
    common_prompt,
    content_of,
    pair_of,
    require_open_end,
    turns_of,
    with_system_of,
)

# ``preference``: pairs with an explicit prompt, or with the prompt at the start of both sides; strings or messages.

ASSISTANT_ROLE = "assistant:"
RESPONSE = "rejected_response"
LAYOUTS = (("chosen_messages", "rejected_messages"), ("messages", "rejected_messages"), ("messages", RESPONSE))
"""Columns of both answers in rows without ``chosen``: LLaMA-Factory v1, and ms-swift."""
EXAMPLE = {"prompt": "What is the capital of Peru?", "chosen": "Lima.", "rejected": "Cusco."}


@schema("preference", gives=Pair, example=EXAMPLE)
def preference(
    *,
    prompt_key: str | None = "prompt",
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    template: bool = True,
    user_mark: str = HUMAN_MARK,
    assistant_mark: str = ASSISTANT_MARK,
    tools_key: str = "tools",
    system_key: str | None = "system",
    roles: Mapping[str, str] | None = None,
) -> Callable[[Row], Pair]:
    """Two answers to one prompt.

    Without a prompt column the prompt is the longest common beginning of both sides, in whole turns. Rows that have no ``chosen`` are read from
    ``chosen_messages`` and ``rejected_messages`` (LLaMA-Factory v1), or from ``messages``, which end with the better answer, and ``rejected_messages`` or
    ``rejected_response`` (ms-swift).

    Options:
        prompt_key: the prompt, a string or messages; null or absent: implicit prompt.
        chosen_key: the better answer, a string, a message or an array of messages.
        rejected_key: the worse answer.
        template: strings become user and assistant turns; false gives `PROMPT` and `COMPLETION`, tokenized as they stand.
        user_mark: mark before a user's turn in text sides without a prompt column.
        assistant_mark: mark before an assistant's turn there.
        tools_key: the tools on offer.
        system_key: the system prompt, if any; null: none.
        roles: further role tags of messages, such as `{"Human": "user"}`.
    """
    form = chat_format(roles=roles)
    tags = plain_roles(form.roles, form.call_tags)

    def as_turns(value: object, key: str) -> tuple[Turn, ...]:
        return form.turns([value] if isinstance(value, Mapping) else value, key)

    marks = {user_mark: USER, assistant_mark: ASSISTANT}
    default = (chosen_key, rejected_key) == ("chosen", "rejected")

    def answer_turns(answer: object, key: str, prompt: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """The turns of one side, without the prompt where the side repeats it."""
        if isinstance(answer, str):
            return (turn(COMPLETION if prompt[0].role == PROMPT else ASSISTANT, answer),)
        turns = as_turns(answer, key)
        return turns[len(prompt) :] if content_of(turns[: len(prompt)]) == content_of(prompt) else turns

    def convert(row: Row) -> Pair:
        return _with_system_of(row, system_key, _pair(row))

    def _pair(row: Row) -> Pair:
        prompt = None if prompt_key is None else row.get(prompt_key)
        keys: tuple[str, str] = (chosen_key, rejected_key)
        if default and row.get("chosen") is None:
            keys = next((found for found in LAYOUTS if all(has_content(row.get(key)) for key in found)), keys)
        chosen, rejected = (value_at(row, key) for key in keys)
        if keys[1] == RESPONSE:
            rejected = _with_other_answer(as_list(chosen, keys[0]), rejected, keys[1])
        if isinstance(chosen, str) != isinstance(rejected, str):
            wrong_type(rejected, keys[1], f"the same form as {keys[0]!r}")
        sides = ((chosen, keys[0]), (rejected, keys[1]))
        if prompt is not None:
            if isinstance(prompt, str):
                prompt_turns: tuple[Turn, ...] = (turn(USER if template else PROMPT, prompt),)
            else:
                require_open_end(prompt_turns := as_turns(prompt, str(prompt_key)), str(prompt_key))
            return pair_of(row, prompt_turns, *(answer_turns(side, key, prompt_turns) for side, key in sides), tools_key=tools_key)
        if isinstance(chosen, str):
            return pair_of(row, *common_prompt(*(turns_of(split_marked(side, marks, key)) for side, key in sides)), tools_key=tools_key)
        return pair_of(row, *common_prompt(*(as_turns(side, key) for side, key in sides)), tools_key=tools_key)

    def split(row: Row) -> tuple[PlainChat | None, object, object]:
        prompt, chosen, rejected = row[str(prompt_key)], row[chosen_key], row[rejected_key]
        if isinstance(prompt, str):
            prompt_chat = PlainChat((USER,), (prompt,)) if prompt.strip() else None
        else:
            [prompt_chat] = plain_chats([prompt], "role", "content", tags)
        strings = isinstance(chosen, str) and isinstance(rejected, str)
        return (prompt_chat, chosen, rejected) if strings else (prompt_chat, _single_answer(chosen), _single_answer(rejected))

    return (
        convert
        if prompt_key is None or not template
        else reads_plain(convert, PlainPairs(frozenset([prompt_key, chosen_key, rejected_key]), split))
    )


def _single_answer(messages: object) -> object:
    """The content of `messages` where they are one assistant message of nothing else; `None` otherwise."""
    message = messages[0] if type(messages) is list and len(messages) == 1 else None
    return message.get("content") if type(message) is dict and len(message) == 2 and message.get("role") == ASSISTANT else None


def _with_system_of(row: Row, key: str | None, example: Pair) -> Pair:
    """`example` with the row's system prompt in front. Text without a template has no place for one."""
    prompt = with_system_of(row, example.prompt, key)
    if prompt != example.prompt and example.prompt[0].role == PROMPT:
        raise Refused("unsupported_column", f"the record has {key!r}, and a prompt without a chat template has no system turn")
    return changed(example, prompt=prompt)


def _with_other_answer(messages: Sequence[Any], answer: object, key: str) -> list[Any]:
    """`messages` with another answer to their last prompt: a text, an array of one text, or messages."""
    if isinstance(answer, list) and {*map(type, answer)} == {str}:
        if len(answer) > 1:
            raise Refused("several_answers", f"{key!r} has {len(answer)} answers, a pair has one. Write a row for each")
        [answer] = answer
    if isinstance(answer, str):
        return [*messages[:-1], {"role": ASSISTANT, "content": answer}]
    end = max((at + 1 for at, message in enumerate(messages) if as_mapping(message, "messages").get("role") != ASSISTANT), default=0)
    return [*messages[:end], *as_list(answer, key, "a string or an array")]


@schema("dpo_read_hook", gives=Pair, example=HH_EXAMPLE)
def dpo_read_hook(
    *, chosen_key: str = "chosen", rejected_key: str = "rejected", prompt_key: str | None = None, assistant_role: str = ASSISTANT_ROLE
) -> Convert:
    """Cerebras' DPO hook: strings with a prompt, strings that begin with the prompt, or messages.

    Options:
        chosen_key: field with the better answer.
        rejected_key: field with the worse answer.
        prompt_key: field with the prompt; null for none.
        assistant_role: the mark after which the answer begins where there is no prompt field, in upper or lower case.
    """
    if prompt_key is not None and assistant_role != ASSISTANT_ROLE:
        raise ConfigError(f"assistant_role is where the prompt ends, and the prompt is in {prompt_key!r}. Leave one of the two out")
    read = preference(chosen_key=chosen_key, rejected_key=rejected_key, prompt_key=prompt_key)

    def convert(row: Row) -> Pair:
        if not all(isinstance(row.get(key), str) for key in (chosen_key, rejected_key)):
            return read(row)
        chosen, rejected = texts_of(row, chosen_key, rejected_key)
        if prompt_key is not None:
            prompt = as_text(value_at(row, prompt_key), prompt_key)
        else:
            prompt, chosen, rejected = _cut_at_mark(chosen, rejected, assistant_role)
        pair = pair_of(row, *((turn(role, text.strip()),) for role, text in ((USER, prompt), (ASSISTANT, chosen), (ASSISTANT, rejected))))
        return _with_system_of(row, "system", pair)

    return convert


def _cut_at_mark(chosen: str, rejected: str, mark: str) -> tuple[str, str, str]:
    marks = list(re.finditer(re.escape(mark), chosen, re.IGNORECASE))
    if not marks:
        raise Refused("no_assistant_turn", f"chosen has no {mark!r}; it ends {chosen[-50:]!r}")
    end = marks[-1].end()
    if rejected[:end] != chosen[:end]:
        raise Refused(
            "prompts_differ", f"the prompts, up to the last {mark!r} of chosen, end {chosen[:end][-50:]!r} and {rejected[:end][-50:]!r}"
        )
    return chosen[:end], answer_alone(chosen[end:], HUMAN_MARK, "chosen"), answer_alone(rejected[end:], HUMAN_MARK, "rejected")


# ``ultrafeedback``: HuggingFaceH4/ultrafeedback_binarized, and the rows with all completions of openbmb/UltraFeedback.

SCORES = ("score_chosen", "score_rejected")
ULTRAFEEDBACK_EXAMPLE = {
    "prompt": "Name a prime number.",
    "chosen": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "7"}],
    "rejected": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "9"}],
    "score_chosen": 9.0,
    "score_rejected": 2.0,
}
BEST_SCORE, BAD_RATING = 10.0, 2.0


@schema("ultrafeedback", gives=Pair, example=ULTRAFEEDBACK_EXAMPLE)
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


# ``contrastive``: a query with its positive and negative texts, as sentence-transformers, FlagEmbedding, DPR and Cerebras write them.

QUERIES = ("query", "anchor", "question", "ques")
POSITIVES = ("positive", "positives", "pos", "context_positive", "positive_passages", "positive_ctxs")
NEGATIVES = (
    "negative",
    "negatives",
    "neg",
    "context_negative",
    "hard_negatives",
    "negative_passages",
    "negative_ctxs",
    "hard_negative_ctxs",
)
NUMBERED = re.compile(r"negative_\d+")


@schema("contrastive", gives=Contrast, example={"query": "What is 2 + 2?", "pos": ["It is 4."], "neg": ["It is 5.", "Blue."]})
def contrastive(
    *, query_key: str | None = None, positive_key: str | None = None, negative_key: str | None = None, instruction_key: str = "prompt"
) -> Convert:
    """A query, texts that answer it, and texts that do not; each side is one text, or an array of texts or of passages with a title.

    Options:
        query_key: the query; null: any of its spellings.
        positive_key: texts that answer it; null: likewise.
        negative_key: texts that do not, if any; null: likewise.
        instruction_key: the instruction that FlagEmbedding puts before queries.
    """
    if len({query_key, positive_key, negative_key} - {None}) != sum(key is not None for key in (query_key, positive_key, negative_key)):
        raise ConfigError("query_key, positive_key and negative_key name one field twice")

    def convert(row: Row) -> Contrast:
        _, query = _only_field(row, [query_key] if query_key else QUERIES)
        positive, positives = _only_field(row, [positive_key] if positive_key else POSITIVES)
        texts = _as_texts(positives, positive)
        if not texts:
            raise Refused("empty_positive", f"{positive!r} has no text")
        negatives = tuple(text for key in _negative_keys(row, negative_key) for text in _as_texts(row[key], key))
        instruction = None if row.get(instruction_key) is None else as_text(row[instruction_key], instruction_key)
        scores = (_scores(row, "pos_scores", len(texts)), _scores(row, "neg_scores", len(negatives)))
        return Contrast(needed(as_text(query, "query"), "empty_query", "query"), texts, negatives, None, instruction or None, *scores)

    return convert


def _only_field(row: Row, keys: Sequence[str]) -> tuple[str, Any]:
    """The one of `keys` that a row has, and its value. A row with two of them is rejected: it does not say which is meant."""
    present = [key for key in keys if key in row and row[key] is not None]
    if len(present) > 1:
        raise Refused("conflicting_fields", f"both {present[0]!r} and {present[1]!r} are there; name one of them in the options")
    key = present[0] if present else keys[0]
    return key, value_at(row, key)


def _negative_keys(row: Row, key: str | None) -> list[str]:
    if key is not None:
        return [key] if row.get(key) is not None else []
    named = [column for column in NEGATIVES if column in row and row[column] is not None]
    numbered = sorted((column for column in row if NUMBERED.fullmatch(column)), key=lambda column: int(column.rpartition("_")[2]))
    return [*named, *(column for column in numbered if row[column] is not None)]


def _as_texts(value: object, where: str) -> tuple[str, ...]:
    values: Sequence[Any] = as_list(value, where) if isinstance(value, list | tuple) else [value]
    texts = []
    for index, text in enumerate(values):
        place = f"{where}[{index}]"
        if isinstance(text, Mapping):
            text = _passage_text(text, place)
        texts.append(needed(as_text(text, place), "empty_text", place))
    return tuple(texts)


def _passage_text(value: Mapping[str, Any], where: str) -> str:
    """The text of a passage of DPR or Tevatron: its title, a line break, its text."""
    title, text = as_mapping(value, where).get("title"), value_at(value, "text", where)
    for key in ("docid", "passage_id", "psg_id"):
        value.get(key)  # names the passage
    return f"{as_text(title, where)}\n{as_text(text, where)}" if title else as_text(text, where)


def _scores(row: Row, key: str, texts: int) -> tuple[float, ...]:
    if row.get(key) is None:
        return ()
    scores = tuple(as_number(score, f"{key}[{number}]") for number, score in enumerate(as_list(row[key], key)))
    if len(scores) != texts:
        raise Refused("length_mismatch", f"{key!r} has {len(scores)} scores for {texts} texts")
    return scores


@schema("ques_embed_gen_hook", gives=Contrast, example={"question": "What is 2 + 2?", "id": 7})
def ques_embed_gen_hook(*, question_key: str = "question") -> Convert:
    """Cerebras' hook of RAFT for questions to be embedded, each with its ``id``.

    Options:
        question_key: field with the question.
    """
    return lambda row: text_to_embed(value_at(row, question_key), value_at(row, "id"))


@schema("ctx_embed_gen_hook", gives=Contrast, example={"context": "Two and two are four.", "id": 7})
def ctx_embed_gen_hook(*, context_key: str = "context") -> Convert:
    """Cerebras' hook of RAFT for contexts to be embedded, each with its ``id``.

    Options:
        context_key: field with the context.
    """
    return lambda row: text_to_embed(value_at(row, context_key), value_at(row, "id"))
