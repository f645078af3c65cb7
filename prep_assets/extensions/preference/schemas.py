"""Preferences: ``preference``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Pair, PlainChat, Row, Turn, changed, turn
from prep_assets.schemas.fields import as_list, as_mapping, has_content, value_at, wrong_type
from prep_assets.schemas.reader import PlainPairs, plain_chats, plain_roles, reads_plain
from prep_assets.schemas.registry import schema
from prep_assets.schemas.turns import chat_format, common_prompt, content_of, pair_of, require_open_end, turns_of, with_system_of

# Chats written as one text, with a mark before each turn.

HUMAN_MARK = "\n\nHuman:"
ASSISTANT_MARK = "\n\nAssistant:"
MARKS = {HUMAN_MARK: USER, ASSISTANT_MARK: ASSISTANT}


def answer_alone(answer: str, human_mark: str, where: str) -> str:
    """`answer`, rejected (``role_order``) where it holds a human's turn: the dialogue does not end with the assistant."""
    if human_mark in answer:
        raise Refused("role_order", f"{where!r} ends with a human's turn: {answer[answer.rindex(human_mark) :][:60]!r}")
    return answer


def split_marked(text: str, marks: Mapping[str, str], where: str) -> list[tuple[str, str]]:
    """Split `text` at `marks` (mark to role) into ``(role, text)`` of each turn; texts are stripped.

    Raises:
        Refused: ``leading_text`` where text comes before the first mark.
    """
    pattern = re.compile("|".join(re.escape(mark) for mark in marks))
    matches = list(pattern.finditer(text))
    leading = text[: matches[0].start()] if matches else text
    if leading.strip():
        raise Refused("leading_text", f"{where!r} begins {leading[:60]!r}, before the first of {', '.join(map(repr, marks))}")
    ends = [match.start() for match in matches[1:]] + [len(text)] * bool(matches)
    return [(marks[match[0]], text[match.end() : end].strip()) for match, end in zip(matches, ends, strict=True)]


# ``preference``: pairs with an explicit prompt, or with the prompt at the start of both sides; strings or messages.

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
        return pair_with_system_of(row, system_key, _pair(row))

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


def pair_with_system_of(row: Row, key: str | None, example: Pair) -> Pair:
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
