"""Instructions: ``alpaca`` and ``alpaca_pairwise``."""

from __future__ import annotations

from collections.abc import Sequence

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, TEXT, USER, Pair, Region, Row, Sample, Turn, turn
from prep_assets.schemas.fields import as_list, as_text, needed, text_of, texts_of
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import chat_sample, pair_of, reasoning_regions, with_system

# ``alpaca`` and ``alpaca_pairwise``: instruction, input, output, and where a row has them system and history.

JOIN = "\n\n"
EXAMPLE = {"instruction": "Translate into French.", "input": "Good morning", "output": "Bonjour"}


@schema("alpaca", gives=Sample, example=EXAMPLE)
def alpaca(
    *,
    prompt_key: str = "instruction",
    query_key: str | None = "input",
    response_key: str = "output",
    system_key: str | None = "system",
    history_key: str | None = "history",
    join: str = JOIN,
    strip: bool = True,
) -> Convert:
    """An instruction with its answer: [system], [history], user, assistant, who may reason first (``thinking``, ``Complex_CoT`` …).

    Options:
        prompt_key: the instruction.
        query_key: the input, if any; null: none.
        response_key: the answer.
        system_key: the system prompt, if any; null: none.
        history_key: earlier `[question, answer]` pairs; null: none.
        join: separator of instruction and input: a blank line (train-llm-from-scratch), or a line break (LLaMA-Factory, ModelLink).
        strip: strip every text.
    """
    require_joined(join != JOIN, query_key)

    def convert(row: Row) -> Sample:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        answer = needed(text_of(row, response_key), "empty_answer", response_key)
        answer_region = Region(TEXT, answer.strip() if strip else answer)
        return chat_sample(row, (*prompt, Turn(ASSISTANT, (*reasoning_regions(row, "", None), answer_region))))

    return convert


def require_joined(is_set: bool, query_key: str | None) -> None:
    """Raise where `join` is set (`is_set`) and there is no second field to join."""
    if is_set and query_key is None:
        raise ConfigError(
            "join stands between the instruction and a second field, which null ignores here. Name the field, or leave join out"
        )


def alpaca_prompt(
    row: Row, prompt_key: str, query_key: str | None, system_key: str | None, history_key: str | None, join: str, strip: bool
) -> tuple[Turn, ...]:
    """The turns before the answer of an Alpaca row: [system], [history], user."""

    def normalize(text: str) -> str:
        return text.strip() if strip else text

    instruction = text_of(row, prompt_key)
    question = join.join(normalize(text) for text in (instruction, _optional(row, query_key)) if text.strip())
    needed(question, "empty_prompt", prompt_key)
    system = normalize(_optional(row, system_key))
    history = _history(row, history_key)
    history_turns = (turn(role, normalize(text)) for pair in history for role, text in zip((USER, ASSISTANT), pair, strict=True))
    return with_system((*history_turns, turn(USER, question)), system)


def _optional(row: Row, key: str | None) -> str:
    return "" if key is None else text_of(row, key, required=False)


def _history(row: Row, key: str | None) -> list[tuple[str, str]]:
    value = None if key is None else row.get(key)
    if value is None:
        return []
    pairs = []
    for number, pair in enumerate(as_list(value, str(key))):
        where = f"{key}[{number}]"
        if len(texts := as_list(pair, where)) != 2:
            raise Refused("wrong_type", f"{where!r} has {len(texts)} elements, needs a question and an answer")
        question, answer = (as_text(text, where) for text in texts)
        pairs.append((needed(question, "empty_prompt", where), needed(answer, "empty_answer", where)))
    return pairs


PAIR_JOIN = "\n"
PAIR_EXAMPLE = {"instruction": "Name a prime number.", "input": "", "chosen": "7", "rejected": "9"}


@schema("alpaca_pairwise", gives=Pair, example=PAIR_EXAMPLE, variant_of="alpaca")
def alpaca_pairwise(
    *,
    prompt_key: str = "instruction",
    query_key: str | None = "input",
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    system_key: str | None = "system",
    history_key: str | None = "history",
    join: str = PAIR_JOIN,
    strip: bool = False,
) -> Convert:
    """The prompt of an Alpaca row and two answers to it; of a row without ``chosen``, those of its ``output``, an array of the better and the worse one.

    Options:
        prompt_key: the instruction.
        query_key: the input, if any; null: none.
        chosen_key: the better answer.
        rejected_key: the worse answer.
        system_key: the system prompt; null: none.
        history_key: earlier `[question, answer]` pairs; null: none.
        join: separator of instruction and input.
        strip: strip every text.
    """
    require_joined(join != PAIR_JOIN, query_key)

    def convert(row: Row) -> Pair:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        both = _ranked_output(row) if row.get(chosen_key) is None and row.get("output") is not None else None
        answers = (text.strip() if strip else text for text in both or texts_of(row, chosen_key, rejected_key))
        return pair_of(row, prompt, *((turn(ASSISTANT, text),) for text in answers))

    return convert


def _ranked_output(row: Row) -> Sequence[str]:
    """The two answers under ``output``, the better one first (LLaMA-Factory's older layout)."""
    if len(answers := as_list(row["output"], "output", "an array of the better and the worse answer")) != 2:
        raise Refused("several_answers", f"'output' has {len(answers)} answers, a pair has two. Rank more of them with group_list")
    return [as_text(answer, "output") for answer in answers]
