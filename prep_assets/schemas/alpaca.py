"""``alpaca``, ``alpaca_pairwise`` and ``dolly``: instruction, input, output, and where a row has them system and history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.samples import ASSISTANT, TEXT, USER, Pair, Region, Sample, Turn, turn
from prep_assets.schemas.columns import chat_sample, with_system
from prep_assets.schemas.content import reasoning_regions
from prep_assets.schemas.fields import as_list, as_text, needed, text_of, texts_of
from prep_assets.schemas.pairs import pair_of
from prep_assets.schemas.registry import Convert, schema

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
        prompt_key: field with the instruction.
        query_key: field with the input, which may be absent or blank; null where there is none.
        response_key: field with the answer.
        system_key: field with a system prompt; absent or blank gives no system turn; null where there is none.
        history_key: field with earlier ``[question, answer]`` pairs; null where there is none.
        join: what stands between instruction and input: a blank line (train-llm-from-scratch), or a line break (LLaMA-Factory, ModelLink).
        strip: remove whitespace at both ends of every text.
    """
    require_joined(join != JOIN, query_key)

    def convert(row: Mapping[str, Any]) -> Sample:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        answer = needed(text_of(row, response_key), "empty_answer", response_key)
        said = Region(TEXT, answer.strip() if strip else answer)
        return chat_sample(row, (*prompt, Turn(ASSISTANT, (*reasoning_regions(row, "", None), said))))

    return convert


def require_joined(is_other: bool, query_key: str | None) -> None:
    """Stop where a `join` is asked for and nothing is joined."""
    if is_other and query_key is None:
        raise ConfigError(
            "join stands between the instruction and a second field, which null ignores here. Name the field, or leave join out"
        )


def alpaca_prompt(
    row: Mapping[str, Any], prompt_key: str, query_key: str | None, system_key: str | None, history_key: str | None, join: str, strip: bool
) -> tuple[Turn, ...]:
    """The turns before the answer."""

    def tidy(text: str) -> str:
        return text.strip() if strip else text

    instruction = text_of(row, prompt_key)
    question = join.join(tidy(text) for text in (instruction, _optional(row, query_key)) if text.strip())
    needed(question, "empty_prompt", prompt_key)
    system = tidy(_optional(row, system_key))
    history = _history(row, history_key)
    past = (turn(role, tidy(text)) for pair in history for role, text in zip((USER, ASSISTANT), pair, strict=True))
    return with_system((*past, turn(USER, question)), system)


def _optional(row: Mapping[str, Any], key: str | None) -> str:
    return "" if key is None else text_of(row, key, required=False)


def _history(row: Mapping[str, Any], key: str | None) -> list[tuple[str, str]]:
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


def alpaca_keys(map_keys: Mapping[str, str] | None, answers: tuple[str, ...]) -> dict[str, Any]:
    """ModelLink's ``--map-keys`` for Alpaca rows as option names of this schema.

    Raises:
        ConfigError: a key that the handler does not have.
    """
    allowed = ("prompt", "query", "system", "history", *answers)
    for key in map_keys or {}:
        if key not in allowed:
            raise ConfigError(f"map_keys has no key {key!r}{nearest(key, allowed) or '.'} Allowed: {', '.join(allowed)}")
    return {f"{key}_key": column for key, column in (map_keys or {}).items()}


@schema("AlpacaStyleInstructionHandler", gives=Sample, example=EXAMPLE)
def alpaca_style_instruction_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca` with a line break between instruction and input, nothing stripped.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
    """
    return alpaca(**alpaca_keys(map_keys, ("response",)), join="\n", strip=False)


@schema("GeneralInstructionHandler", gives=Sample, example=EXAMPLE)
def general_instruction_handler() -> Convert:
    """ModelLink's handler: `alpaca` with a line break between instruction and input, nothing stripped, without system and history."""
    return alpaca(system_key=None, history_key=None, join="\n", strip=False)


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
    """The prompt of an Alpaca row and two answers to it.

    Options:
        prompt_key: field with the instruction.
        query_key: field with the input, which may be absent or blank; null where there is none.
        chosen_key: field with the better answer.
        rejected_key: field with the worse answer.
        system_key: field with a system prompt; null where there is none.
        history_key: field with earlier ``[question, answer]`` pairs; null where there is none.
        join: what stands between instruction and input.
        strip: remove whitespace at both ends of every text.
    """
    require_joined(join != PAIR_JOIN, query_key)

    def convert(row: Mapping[str, Any]) -> Pair:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        answers = (text.strip() if strip else text for text in texts_of(row, chosen_key, rejected_key))
        return pair_of(row, prompt, *((turn(ASSISTANT, text),) for text in answers))

    return convert


@schema("AlpacaStylePairwiseHandler", gives=Pair, example=PAIR_EXAMPLE)
def alpaca_style_pairwise_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``, ``chosen``, ``rejected``.
    """
    return alpaca_pairwise(**alpaca_keys(map_keys, ("chosen", "rejected")))


DOLLY = {
    "instruction": "When did Virgin Australia start operating?",
    "context": "Virgin Australia commenced services on 31 August 2000 as Virgin Blue.",
    "response": "On 31 August 2000.",
    "category": "closed_qa",
}


@schema("dolly", gives=Sample, example=DOLLY)
def dolly(
    *, instruction_key: str = "instruction", context_key: str | None = "context", response_key: str = "response", join: str = JOIN
) -> Convert:
    """An instruction, with its context after a blank line where it has one, and the response; all stripped.

    Options:
        instruction_key: field with the instruction.
        context_key: field with the context, which may be absent or blank; null where there is none.
        response_key: field with the response.
        join: what stands between instruction and context.
    """
    return alpaca(
        prompt_key=instruction_key, query_key=context_key, response_key=response_key, system_key=None, history_key=None, join=join
    )
