"""Handlers of ModelLink and MindSpeed-LLM, with their keyword arguments: schemas by other names, and rows that no other schema reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prep_assets.errors import ConfigError, nearest, require_known
from prep_assets.extensions.rl.schemas import JUDGED, NUMBER, plain_number
from prep_assets.samples import ASSISTANT, Pair, Prompt, Row, Sample, document
from prep_assets.schemas.fields import as_list, as_mapping, needed, text_of, value_at
from prep_assets.schemas.instructions import alpaca, alpaca_pairwise, alpaca_prompt
from prep_assets.schemas.messages import sharegpt, sharegpt_pairwise
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import offered


def alpaca_keys(map_keys: Mapping[str, str] | None, answers: tuple[str, ...]) -> dict[str, Any]:
    """ModelLink's ``--map-keys`` for Alpaca rows as options of `alpaca`.

    Raises:
        ConfigError: a key that the handler does not have.
    """
    allowed = ("prompt", "query", "system", "history", *answers)
    for key in map_keys or {}:
        require_known("map_keys has no key", key, allowed, "Allowed")
    return {f"{key}_key": column for key, column in (map_keys or {}).items()}


@schema("AlpacaStyleInstructionHandler", gives=Sample, example="alpaca")
def alpaca_style_instruction_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca` with a line break between instruction and input, nothing stripped.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
    """
    return alpaca(**alpaca_keys(map_keys, ("response",)), join="\n", strip=False)


@schema("GeneralInstructionHandler", gives=Sample, example="alpaca")
def general_instruction_handler() -> Convert:
    """ModelLink's handler: `alpaca` with a line break between instruction and input, nothing stripped, without system and history."""
    return alpaca(system_key=None, history_key=None, join="\n", strip=False)


@schema("AlpacaStylePairwiseHandler", gives=Pair, example="alpaca_pairwise")
def alpaca_style_pairwise_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``, ``chosen``, ``rejected``.
    """
    return alpaca_pairwise(**alpaca_keys(map_keys, ("chosen", "rejected")))


# ModelLink's handlers whose rows no other schema reads: texts for pretraining, and prompts with reference answers.

_ALPACA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
    "user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the request."
    "\n\n### Instruction:\n{instruction}\n\n{given}### Response: ASSISTANT: {response}"
)
_STACK_OVERFLOW = "In python, {title}\n### Question:\n{question}\n### Response:\n{answer}\n"
_ALPACA_KEYS = {"prompt_key": "instruction", "query_key": "input", "system_key": "system", "history_key": "history"}
REFERENCE = "reference"
"""The verifier of handlers that store a reference answer and leave the comparison to the trainer."""


@schema("AlpacaPretrainHandler", gives=Sample, example={"instruction": "Add 2 and 2.", "input": "", "output": "4"})
def alpaca_pretrain_handler() -> Convert:
    """ModelLink's handler: an Alpaca row as one text. Without an input there is no input section; ModelLink writes ``###None`` there."""

    def convert(row: Row) -> Sample:
        instruction, response = (needed(text_of(row, key), "empty_text", key) for key in ("instruction", "output"))
        query = text_of(row, "input", required=False)
        section = f"### Input:\n{query}\n\n" if query else ""
        return document(_ALPACA.format(instruction=instruction, given=section, response=response))

    return convert


@schema(
    "StackOverflowPythonPretrainHandler",
    gives=Sample,
    example={"title": "Sort a list", "question_body": "How do I sort a list?", "answer_body": "Call sorted."},
)
def stack_overflow_python_pretrain_handler() -> Convert:
    """ModelLink's handler: title, question and answer as one text. ModelLink's own writes nothing."""

    def convert(row: Row) -> Sample:
        title, question, answer = (needed(text_of(row, key), "empty_text", key) for key in ("title", "question_body", "answer_body"))
        return document(_STACK_OVERFLOW.format(title=title, question=question, answer=answer))

    return convert


@schema(
    "SharegptPretrainHandler",
    gives=Sample,
    example={"conversations": [{"from": "human", "value": "Hi. "}, {"from": "gpt", "value": "Hello!"}]},
)
def sharegpt_pretrain_handler() -> Convert:
    """MindSpeed-LLM's handler: the values of all messages, one directly after the other."""

    def convert(row: Row) -> Sample:
        texts = []
        for number, message in enumerate(as_list(value_at(row, "conversations"), "conversations")):
            fields = as_mapping(message, f"conversations[{number}]")
            for key in ("from", "role"):
                fields.get(key)  # every message is part of the text, whoever speaks
            texts.append(text_of(fields, "value" if fields.get("value") is not None else "content"))
        return document(needed("".join(texts), "empty_text", "conversations"))

    return convert


@schema("R1AlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "What is 12 * 12?", "input": "", "output": "144"})
def r1_alpaca(*, map_keys: Mapping[str, str] | None = None, verifier: str = REFERENCE) -> Callable[[Row], Prompt]:
    """MindSpeed-LLM's handler: system, history and question of an Alpaca row, its output as the reference answer.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``response``, ``history``, ``system``.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    keys = {**_ALPACA_KEYS, "response_key": "output", **alpaca_keys(map_keys, ("response",))}
    answer_key = keys.pop("response_key")

    def convert(row: Row) -> Prompt:
        gold = needed(text_of(row, answer_key), "no_gold", answer_key)
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), _gold(gold, verifier), verifier, **offered(row))

    return convert


@schema("PPOAlpacaStyleInstructionHandler", gives=Prompt, example={"instruction": "Write a haiku.", "input": ""})
def ppo_alpaca(*, map_keys: Mapping[str, str] | None = None) -> Callable[[Row], Prompt]:
    """MindSpeed-LLM's handler of prompts that a reward model judges: system, history and question of an Alpaca row. Its answer is not read.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``.
    """
    keys = {**_ALPACA_KEYS, **alpaca_keys(map_keys, ())}

    def convert(row: Row) -> Prompt:
        return Prompt(alpaca_prompt(row, **keys, join="\n", strip=False), "", JUDGED, **offered(row))

    return convert


MODELLINK_EXAMPLE = {"conversations": [{"from": "human", "value": "What is 12 * 12?"}, {"from": "gpt", "value": "144"}]}


@schema("R1SharegptStyleInstructionHandler", gives=Prompt, example=MODELLINK_EXAMPLE)
def r1_sharegpt(*, map_keys: Mapping[str, Any] | None = None, verifier: str = REFERENCE) -> Callable[[Row], Prompt]:
    """MindSpeed-LLM's handler: a ShareGPT conversation up to its last answer, which is the reference answer.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, and under ``tags`` the names of the tags.
        verifier: what compares an answer with the reference; ``number`` where it is one plain number.
    """
    read = sharegpt(**sharegpt_options(map_keys, ()))

    def convert(row: Row) -> Prompt:
        sample = read(row)
        assert isinstance(sample, Sample) and sample.turns[-1].role == ASSISTANT
        *prompt, answer = sample.turns
        return Prompt(tuple(prompt), _gold(answer.text, verifier), verifier, sample.tools, sample.documents, sample.template_options)

    return convert


def _gold(text: str, verifier: str) -> str:
    return plain_number(text.strip()) if verifier == NUMBER else text


TAGS = ("role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag")


def sharegpt_options(map_keys: Mapping[str, Any] | None, answers: tuple[str, ...]) -> dict[str, Any]:
    """ModelLink's ``--map-keys`` for ShareGPT rows as options of `sharegpt`. Tags that are not listed keep their default.

    Raises:
        ConfigError: a key or a tag that the handler does not have.
    """
    columns = dict(map_keys or {})
    tags = columns.pop("tags", None) or {}
    allowed = ("messages", "system", "tools", *answers)
    if not isinstance(tags, Mapping):
        raise ConfigError(f"map_keys 'tags' is {tags!r}, needs a mapping of {', '.join(TAGS)}")
    for key, names in [*((key, allowed) for key in columns), *((tag, TAGS) for tag in tags)]:
        if key not in names:
            raise ConfigError(f"map_keys has no key {key!r}{nearest(key, names) or '.'} Allowed: tags, {', '.join((*allowed, *TAGS))}")
    return {**{f"{key}_key": column for key, column in columns.items()}, **tags}


@schema("SharegptStyleInstructionHandler", gives=Sample, example="sharegpt")
def sharegpt_style_instruction_handler(*, map_keys: Mapping[str, Any] | None = None) -> Convert:
    """ModelLink's handler: `sharegpt` with its ``--map-keys``.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, and under ``tags`` the names of the tags.
    """
    return sharegpt(**sharegpt_options(map_keys, ()))


@schema(
    "HunyuanInstructionHandler",
    gives=Sample,
    example={"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]},
)
def hunyuan_instruction_handler(*, map_keys: Mapping[str, Any] | None = None) -> Convert:
    """MindSpeed-LLM's handler of Hunyuan-Large's ``messages``, which the tokenizer's own template renders.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, and under ``tags`` the names of the tags.
    """
    defaults = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    return sharegpt(**{"messages_key": "messages", **defaults, **sharegpt_options(map_keys, ())})


@schema("SharegptStylePairwiseHandler", gives=Pair, example="sharegpt_pairwise")
def sharegpt_style_pairwise_handler(*, map_keys: Mapping[str, Any] | None = None) -> Convert:
    """ModelLink's handler: `sharegpt_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, ``chosen``, ``rejected``, and under ``tags`` the names of the tags.
    """
    return sharegpt_pairwise(**sharegpt_options(map_keys, ("chosen", "rejected")))
