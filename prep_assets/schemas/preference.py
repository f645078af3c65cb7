"""``preference``: pairs with an explicit prompt, or with the prompt inside both sides; strings or messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Pair, PlainChat, Turn, turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import with_system
from prep_assets.schemas.fields import as_text, text_of, texts_of, value_at, wrong_type
from prep_assets.schemas.hh import ASSISTANT_MARK, HUMAN_MARK, split_marked
from prep_assets.schemas.hh import EXAMPLE as HH_EXAMPLE
from prep_assets.schemas.pairs import common_prompt, content_of, pair_of, turns_of
from prep_assets.schemas.plain_rows import PlainPairs, plain_chat, plain_roles, reads_plain
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import OPENAI_ROLES, require_open_end

ASSISTANT_ROLE = "assistant:"
LLAMA_FACTORY_V1 = ("chosen_messages", "rejected_messages")
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
) -> Callable[[Mapping[str, Any]], Pair]:
    """Two answers to one prompt.

    Without a prompt column the prompt is the longest common beginning of both sides, in whole turns. Rows that have no ``chosen`` but
    ``chosen_messages`` and ``rejected_messages`` (LLaMA-Factory v1) are read from these.

    Options:
        prompt_key: field with the prompt, a string or an array of messages; null, or absent from the row, for an implicit prompt.
        chosen_key: field with the better answer, a string, a message or an array of messages.
        rejected_key: field with the worse answer.
        template: strings become user and assistant turns; false gives `PROMPT` and `COMPLETION`, tokenized as they stand.
        user_mark: what stands before a user's turn in sides that are strings without a prompt column.
        assistant_mark: what stands before an assistant's turn there.
        tools_key: column with the tools on offer.
        system_key: column with a system prompt, which begins the prompt; absent or blank gives no system turn; null where there is none.
    """
    marks = {user_mark: USER, assistant_mark: ASSISTANT}
    default = (chosen_key, rejected_key) == ("chosen", "rejected")

    def convert(row: Mapping[str, Any]) -> Pair:
        return _with_system_of(row, system_key, _pair(row))

    def _pair(row: Mapping[str, Any]) -> Pair:
        prompt = None if prompt_key is None else row.get(prompt_key)
        keys = LLAMA_FACTORY_V1 if default and "chosen" not in row and LLAMA_FACTORY_V1[0] in row else (chosen_key, rejected_key)
        chosen, rejected = (value_at(row, key) for key in keys)
        if isinstance(chosen, str) != isinstance(rejected, str):
            wrong_type(rejected, keys[1], f"the same form as {keys[0]!r}")
        if prompt is not None:
            before = _prompt(prompt, str(prompt_key), template)
            return pair_of(row, before, *(_answer(row[key], key, before) for key in keys), tools_key=tools_key)
        if isinstance(chosen, str):
            return pair_of(row, *common_prompt(*(turns_of(split_marked(row[key], marks, key)) for key in keys)), tools_key=tools_key)
        return pair_of(row, *common_prompt(*(_messages(row[key], key) for key in keys)), tools_key=tools_key)

    def split(row: Mapping[str, Any]) -> tuple[PlainChat | None, object, object]:
        prompt, chosen, rejected = row[str(prompt_key)], row[chosen_key], row[rejected_key]
        if isinstance(prompt, str):
            before = PlainChat((USER,), (prompt,)) if prompt.strip() else None
        else:
            before = plain_chat(prompt, "role", "content", _PLAIN_TAGS)
        strings = isinstance(chosen, str) and isinstance(rejected, str)
        return (before, chosen, rejected) if strings else (before, _one_answer(chosen), _one_answer(rejected))

    return (
        convert
        if prompt_key is None or not template
        else reads_plain(convert, PlainPairs(frozenset([prompt_key, chosen_key, rejected_key]), split))
    )


_PLAIN_TAGS = plain_roles(OPENAI_ROLES)


def _one_answer(messages: object) -> str | None:
    """The text of a list of one message of an assistant that is nothing but a text."""
    chat = plain_chat(messages, "role", "content", _PLAIN_TAGS)
    return chat.texts[0] if chat is not None and chat.roles == (ASSISTANT,) else None


def _with_system_of(row: Mapping[str, Any], key: str | None, example: Pair) -> Pair:
    """`example` with the row's own system prompt in front. Text without a template has no place for one."""
    system = "" if key is None else text_of(row, key, required=False)
    if system.strip() and example.prompt[0].role == PROMPT:
        raise Refused("unsupported_column", f"the record has {key!r}, and a prompt without a chat template has no system turn")
    return replace(example, prompt=with_system(example.prompt, system)) if system.strip() else example


def _prompt(prompt: object, key: str, template: bool) -> tuple[Turn, ...]:
    if isinstance(prompt, str):
        return (turn(USER if template else PROMPT, prompt),)
    turns = _messages(prompt, key)
    require_open_end(turns, key)
    return turns


def _answer(answer: object, key: str, prompt: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The turns of one side. A side may repeat the prompt before its answer; it is then taken away."""
    if isinstance(answer, str):
        return (turn(COMPLETION if prompt[0].role == PROMPT else ASSISTANT, answer),)
    turns = _messages(answer, key)
    return turns[len(prompt) :] if content_of(turns[: len(prompt)]) == content_of(prompt) else turns


def _messages(value: object, key: str) -> tuple[Turn, ...]:
    return ChatFormat().turns([value] if isinstance(value, Mapping) else value, key)


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

    def convert(row: Mapping[str, Any]) -> Pair:
        if not all(isinstance(row.get(key), str) for key in (chosen_key, rejected_key)):
            return read(row)
        chosen, rejected = texts_of(row, chosen_key, rejected_key)
        if prompt_key is not None:
            prompt = as_text(value_at(row, prompt_key), prompt_key)
        else:
            prompt, chosen, rejected = _cut(chosen, rejected, assistant_role)
        sides = pair_of(row, *((turn(role, text.strip()),) for role, text in ((USER, prompt), (ASSISTANT, chosen), (ASSISTANT, rejected))))
        return _with_system_of(row, "system", sides)

    return convert


def _cut(chosen: str, rejected: str, mark: str) -> tuple[str, str, str]:
    marks = list(re.finditer(re.escape(mark), chosen, re.IGNORECASE))
    if not marks:
        raise Refused("no_assistant_turn", f"chosen has no {mark!r}; it ends {chosen[-50:]!r}")
    end = marks[-1].end()
    if rejected[:end] != chosen[:end]:
        raise Refused(
            "prompts_differ", f"the prompts, up to the last {mark!r} of chosen, end {chosen[:end][-50:]!r} and {rejected[:end][-50:]!r}"
        )
    return chosen[:end], chosen[end:], rejected[end:]
