"""``messages``: chats as OpenAI, LLaMA-Factory v1, TRL, verl and AstrAI write them; ``kto``: one with a label that says whether it is desirable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, Turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import chat_sample, tools_of, with_system_of
from prep_assets.schemas.field_names import TOOLS
from prep_assets.schemas.fields import value_at, wrong_type
from prep_assets.schemas.images import Images
from prep_assets.schemas.plain_rows import PlainMessages, plain_roles, reads_plain
from prep_assets.schemas.prompt_completion import prompt_completion
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import OPENAI_ROLES, require_alternation, require_answer

Tools = tuple[Mapping[str, Any], ...]

EXAMPLE = {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]}


@schema("messages", gives=Sample, example=EXAMPLE, aliases=("OpenAIInstructionHandler",))
def messages(
    *,
    messages_key: str = "messages",
    role_key: str = "role",
    content_key: str = "content",
    roles: Mapping[str, str] | None = None,
    tools_key: str = "tools",
    images_key: str = "images",
    image_token: str = "<image>",
    order: Literal["any", "alternate"] = "any",
) -> Callable[[Mapping[str, Any]], Sample]:
    """A chat of OpenAI messages, with tool calls, reasoning, content parts, images and loss weights where a row has them.

    Options:
        messages_key: field with the array of messages.
        role_key: field of a message with its role.
        content_key: field of a message with its content: a string, an array of parts, or null beside tool calls.
        roles: further role tags, such as ``{"human": "user"}``; they come on top of OpenAI's and may replace them.
        tools_key: column with the tools on offer, an array or its JSON text.
        images_key: column with the paths of the images that `image_token` or image parts place in the text; without one called ``images``, ``image`` is read.
        image_token: the mark of an image in text, read only where the row has the images column.
        order: ``any``, or ``alternate`` to refuse what is not system?, (user or tool, assistant)+.
    """
    form = ChatFormat(role_key, content_key, {**OPENAI_ROLES, **(roles or {})})

    def check(turns: Sequence[Turn]) -> None:
        require_answer(turns)
        if order == "alternate":
            require_alternation(turns, ends_with_answer=True)

    def convert(row: Mapping[str, Any]) -> Sample:
        images = Images(row, images_key, image_token)
        turns = with_system_of(row, form.turns(value_at(row, messages_key), messages_key, images))
        images.require_all_taken()
        check(turns)
        sample = chat_sample(row, turns, tools_key)
        tools = _with_own_tools(row[messages_key], sample.tools, messages_key)
        return sample if tools is sample.tools else replace(sample, tools=tools)

    return reads_plain(convert, PlainMessages(messages_key, role_key, content_key, plain_roles(form.roles), check))


def _with_own_tools(messages: Sequence[Mapping[str, Any]], tools: Tools, where: str) -> Tools:
    """The tools that a message offers itself, as OLMo's system messages do under ``functions``, where the row has none."""
    own = [found for message in messages if any(map(message.__contains__, TOOLS)) and (found := tools_of(message, TOOLS[0]))]
    if own and any(found != (tools or own[0]) for found in own):
        raise Refused("conflicting_tools", f"{where!r} offers other tools in one place than in another")
    return tools or (own[0] if own else ())


@schema("chat_read_hook", gives=Sample, example=EXAMPLE)
def chat_read_hook(
    *, multi_turn_key: str = "messages", multi_turn_role_key: str = "role", multi_turn_content_key: str = "content"
) -> Convert:
    """Cerebras' hook for chats: user and assistant in pairs, their text stripped, an empty system turn left out.

    Options:
        multi_turn_key: field with the array of messages.
        multi_turn_role_key: field of a message with its role.
        multi_turn_content_key: field of a message with its content.
    """
    read = messages(messages_key=multi_turn_key, role_key=multi_turn_role_key, content_key=multi_turn_content_key, order="alternate")

    def convert(row: Mapping[str, Any]) -> Sample:
        sample = read(row)
        turns = tuple(_stripped(turn) for turn in sample.turns if turn.role != SYSTEM or turn.text.strip())
        return replace(sample, turns=turns)

    return convert


def _stripped(turn: Turn) -> Turn:
    if turn.role not in (USER, ASSISTANT):
        return turn
    return replace(turn, regions=tuple(replace(region, text=region.text.strip()) for region in turn.regions))


LABELLED = {
    "messages": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "7"}],
    "label": True,
}


@schema("kto", gives=Sample, example=LABELLED, labels=True)
def kto(
    *,
    messages_key: str = "messages",
    prompt_key: str = "prompt",
    completion_key: str = "completion",
    label_key: str = "label",
    role_key: str = "role",
    content_key: str = "content",
    roles: Mapping[str, str] | None = None,
    template: bool = True,
) -> Convert:
    """A chat that ends with the labelled answer (LLaMA-Factory), or a prompt and a completion (TRL).

    Options:
        messages_key: field with the array of messages; where it is absent, prompt and completion are read.
        prompt_key: field with the prompt, a string or messages.
        completion_key: field with the completion, a string or messages.
        label_key: field with true (desirable) or false.
        role_key: field of a message with its role.
        content_key: field of a message with its content.
        roles: further role tags, such as ``{"human": "user", "gpt": "assistant"}``.
        template: string prompts and completions become user and assistant turns.
    """
    chat = messages(messages_key=messages_key, role_key=role_key, content_key=content_key, roles=roles)
    plain = prompt_completion(prompt_key=prompt_key, completion_key=completion_key, template=template)

    def convert(row: Mapping[str, Any]) -> Sample:
        label = value_at(row, label_key)
        if not isinstance(label, bool):
            wrong_type(label, label_key, "true or false")
        is_chat = row.get(messages_key) is not None
        sample = chat(row) if is_chat else plain(row)
        if is_chat and sample.turns[-1].role != ASSISTANT:
            raise Refused("role_order", f"the label is about the last turn, which is of role {sample.turns[-1].role}")
        return replace(sample, label=label)

    return convert
