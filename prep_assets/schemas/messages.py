"""Chats as messages: ``prompt_completion``, ``messages``, ``kto``, ``sharegpt`` and ``sharegpt_pairwise``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, SYSTEM, TOOL, USER, Pair, Row, Sample, Turn, changed, turn
from prep_assets.schemas.fields import SYSTEM_PROMPT, TOOLS, as_mapping, needed, texts_of, value_at, weighted, wrong_type
from prep_assets.schemas.reader import PlainMessages, plain_roles, reads_plain
from prep_assets.schemas.registry import Convert, options_of, schema
from prep_assets.schemas.turns import (
    AGENT_ROLES,
    CALL_TAGS,
    ChatFormat,
    Images,
    chat_format,
    chat_sample,
    pair_of,
    plain_sample,
    require_alternation,
    require_answer,
    require_open_end,
    separated,
    tools_of,
    with_system_of,
)

# ``prompt_completion``: TRL's prompt-completion form, and Cerebras' hooks of that kind.

EXAMPLE = {"prompt": "The sky is", "completion": " blue."}


@schema("prompt_completion", gives=Sample, example=EXAMPLE)
def prompt_completion(
    *,
    prompt_key: str = "prompt",
    completion_key: str = "completion",
    template: bool = False,
    strip: bool = False,
    separator: str | None = "",
    tools_key: str = "tools",
) -> Callable[[Row], Sample]:
    """A prompt and its completion, both strings or both arrays of messages.

    Strings become `PROMPT` and `COMPLETION`. Messages become the turns of one chat, whose assistant turns inside the prompt weigh 0.

    Options:
        prompt_key: the prompt.
        completion_key: the completion.
        template: render string prompts as a user turn and string completions as an assistant turn.
        strip: strip strings.
        separator: text or control token between a string prompt and its completion, never trained; null: the tokenizer's `sep_token`, else `<|sep|>`.
        tools_key: the tools on offer.
    """
    if separator != "" and template:
        raise ConfigError("separator stands between texts without a chat template, and template is true. Leave one of the two out")

    def convert(row: Row) -> Sample:
        prompt, completion = value_at(row, prompt_key), value_at(row, completion_key)
        if isinstance(prompt, str) and isinstance(completion, str):
            needed(prompt, "empty_prompt", prompt_key)
            needed(completion, "empty_answer", completion_key)
            if strip:
                prompt, completion = prompt.strip(), completion.strip()
            turns = (turn(USER if template else PROMPT, prompt), turn(ASSISTANT if template else COMPLETION, completion))
            return chat_sample(row, with_system_of(row, turns), tools_key) if template else plain_sample(row, separated(turns, separator))
        if isinstance(prompt, str) != isinstance(completion, str):
            mismatched = completion if isinstance(prompt, str) else prompt
            wrong_type(mismatched, completion_key if isinstance(prompt, str) else prompt_key, "a string, as the other side is one")
        if separator != "":
            wrong_type(prompt, prompt_key, "a string, because the option separator stands between texts")
        return chat_sample(row, with_system_of(row, _chat(row, prompt_key, completion_key)), tools_key)

    return convert


def _chat(row: Row, prompt_key: str, completion_key: str) -> tuple[Turn, ...]:
    images = Images(row, "images", "<image>")
    form = ChatFormat()
    prompt, completion = (form.turns(row[key], key, images) for key in (prompt_key, completion_key))
    images.require_all_taken()
    require_open_end(prompt, prompt_key)
    require_answer(completion)
    return (*(weighted(turn, 0.0) if turn.role == ASSISTANT else turn for turn in prompt), *completion)


@schema("instruction", gives=Sample, example={"prompt": "Question: 2 + 2?\nAnswer: ", "response": "4"})
def instruction(*, prompt_key: str = "prompt", response_key: str = "response") -> Convert:
    """A prompt and its response, tokenized as they stand: a `PROMPT` and a `COMPLETION` turn.

    Options:
        prompt_key: the prompt.
        response_key: the response.
    """

    def convert(row: Row) -> Sample:
        prompt, response = texts_of(row, prompt_key, response_key)
        needed(prompt, "empty_prompt", prompt_key)
        needed(response, "empty_answer", response_key)
        return plain_sample(row, (turn(PROMPT, prompt), turn(COMPLETION, response)))

    return convert


# ``messages``: chats as OpenAI, LLaMA-Factory v1, TRL, verl and AstrAI write them; ``kto``: one with a label that says whether it is desirable.

Tools = tuple[Mapping[str, Any], ...]
NO_TOOLS = (None, "", "[]")

MESSAGES_EXAMPLE = {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]}


@schema("messages", gives=Sample, example=MESSAGES_EXAMPLE, aliases=("OpenAIInstructionHandler",))
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
    system_key: str | None = SYSTEM_PROMPT,
) -> Callable[[Row], Sample]:
    """A chat of OpenAI messages, with tool calls, reasoning, content parts, images and loss weights where a row has them.

    Options:
        messages_key: array of messages.
        role_key: field of a message with its role.
        content_key: field of a message with its content: a string, an array of parts, or null with tool calls.
        roles: further role tags, such as `{"human": "user"}`; they may replace those that are known.
        tools_key: tools, an array or its JSON text.
        images_key: paths of images; default `images`, else `image`.
        image_token: mark of an image in text, if the row has images.
        order: `any`, or `alternate`: only system?, (user or tool, assistant)+.
        system_key: a system prompt beside the messages, if any; null: none.
    """
    form = chat_format(role_key, content_key, roles)

    def check(turns: Sequence[Turn]) -> None:
        require_answer(turns)
        if order == "alternate":
            require_alternation(turns, ends_with_answer=True)

    def convert(row: Row) -> Sample:
        images = Images(row, images_key, image_token)
        if messages_key not in row and isinstance(row.get(role_key), str):
            detail = (
                f"needs {messages_key!r}; the row is one message of a chat: join the rows of each into one, as docs/add-a-data-set.md shows"
            )
            raise Refused("missing_field", detail)
        turns = with_system_of(row, form.turns(value_at(row, messages_key), messages_key, images), system_key)
        images.require_all_taken()
        check(turns)
        sample = chat_sample(row, turns, tools_key)
        tools = _tools_with_messages(row[messages_key], sample.tools, messages_key)
        return sample if tools is sample.tools else changed(sample, tools=tools)

    beside = {**({} if system_key is None else {system_key: (None, "")}), tools_key: NO_TOOLS}
    return reads_plain(convert, PlainMessages(messages_key, role_key, content_key, plain_roles(form.roles, form.call_tags), check, beside))


def _tools_with_messages(messages: Sequence[Mapping[str, Any]], tools: Tools, where: str) -> Tools:
    """The row's `tools`, or those in its messages (OLMo's system messages have ``functions``). Different lists are rejected."""
    tool_lists = [
        message_tools for message in messages if any(map(message.__contains__, TOOLS)) and (message_tools := tools_of(message, TOOLS[0]))
    ]
    if tool_lists and any(message_tools != (tools or tool_lists[0]) for message_tools in tool_lists):
        raise Refused("conflicting_tools", f"{where!r} offers other tools in one place than in another")
    return tools or (tool_lists[0] if tool_lists else ())


LABELLED = {"messages": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "7"}], "label": True}


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
        messages_key: array of messages; where it is absent, prompt and completion are read.
        prompt_key: the prompt, a string or messages.
        completion_key: the completion, a string or messages.
        label_key: the label: true (desirable) or false.
        role_key: field of a message with its role.
        content_key: field of a message with its content.
        roles: further role tags, such as `{"human": "user", "gpt": "assistant"}`.
        template: string prompts and completions become user and assistant turns.
    """
    chat = messages(messages_key=messages_key, role_key=role_key, content_key=content_key, roles=roles)
    plain = prompt_completion(prompt_key=prompt_key, completion_key=completion_key, template=template)

    def convert(row: Row) -> Sample:
        label = value_at(row, label_key)
        if not isinstance(label, bool):
            wrong_type(label, label_key, "true or false")
        is_chat = row.get(messages_key) is not None
        sample = chat(row) if is_chat else plain(row)
        if is_chat and sample.turns[-1].role != ASSISTANT:
            raise Refused("role_order", f"the label is about the last turn, which is of role {sample.turns[-1].role}")
        return changed(sample, label=label)

    return convert


# ``sharegpt`` and ``sharegpt_pairwise``: conversations of human and gpt, with function calls and observations (LLaMA-Factory, ModelLink).

SHAREGPT_EXAMPLE = {
    "conversations": [
        {"from": "human", "value": "How warm is it in Oslo?"},
        {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Oslo"}}'},
        {"from": "observation", "value": '{"celsius": 4}'},
        {"from": "gpt", "value": "It is 4 degrees."},
    ],
    "tools": '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]',
}


class Conversations(Struct, frozen=True):
    """How ShareGPT rows are read: the form of their messages, the tag of an answer, and the columns beside them."""

    form: ChatFormat
    assistant_tag: str
    system_key: str
    tools_key: str
    images_key: str
    image_token: str
    audios_key: str
    videos_key: str

    def turns(self, row: Row, key: str, form: ChatFormat) -> tuple[Turn, ...]:
        """The turns of the messages under `key`, after the system prompt of the row."""
        images = Images(row, self.images_key, self.image_token, self.audios_key, self.videos_key)
        turns = form.turns(value_at(row, key), key, images)
        images.require_all_taken()
        return with_system_of(row, turns, self.system_key)


def conversations(
    *,
    role_tag: str = "from",
    content_tag: str = "value",
    user_tag: str = "human",
    assistant_tag: str = "gpt",
    observation_tag: str = "observation",
    function_tag: str = "function_call",
    system_tag: str = "system",
    system_key: str = "system",
    tools_key: str = "tools",
    images_key: str = "images",
    image_token: str = "<image>",
    audios_key: str = "audios",
    videos_key: str = "videos",
) -> Conversations:
    """How rows are read.

    Options:
        role_tag: field of a message with its tag.
        content_tag: field of a message with its text.
        user_tag: tag of the user.
        assistant_tag: tag of the assistant.
        observation_tag: tag of a tool's result.
        function_tag: tag of an assistant's tool call; its text is the JSON of one call or of several. Calls one after the other are parallel.
        system_tag: tag of a system message, which may only come first.
        system_key: the system prompt, if any.
        tools_key: tools, an array or its JSON text.
        images_key: paths of images; default `images`, else `image`.
        image_token: mark of an image in text, if the row has images.
        audios_key: paths of audio, with `<audio>` in text; default `audios`, else `audio`.
        videos_key: paths of video, with `<video>` in text; default `videos`, else `video`.
    """
    tags = {user_tag: USER, assistant_tag: ASSISTANT, observation_tag: TOOL, function_tag: ASSISTANT, system_tag: SYSTEM}
    calls = (function_tag, *(tag for tag in CALL_TAGS if tag not in tags))
    remedy = "Name it in one of the options user_tag, assistant_tag, observation_tag, function_tag and system_tag"
    form = ChatFormat(role_tag, content_tag, {**OTHER_TAGS, **tags}, calls, remedy)
    return Conversations(form, assistant_tag, system_key, tools_key, images_key, image_token, audios_key, videos_key)


OTHER_TAGS = {"user": USER, "assistant": ASSISTANT, "tool": TOOL, **AGENT_ROLES}
"""Tags that rows have beside those of the options."""
DEFAULT_FORM = conversations().form


@schema("sharegpt", gives=Sample, example=SHAREGPT_EXAMPLE)
@options_of(conversations)
def sharegpt(read: Conversations, *, messages_key: str = "conversations") -> Convert:
    """A chat of (human or observation) and (gpt or function_call) turn by turn, after a system turn or column where there is one.

    A chat in OpenAI's spelling (``role``, ``content``; ``user``, ``assistant``, ``tool``) is read as well where the tags have their defaults.

    Options:
        messages_key: array of messages.
    """
    form = read.form

    def check(turns: Sequence[Turn]) -> None:
        if not any(turn.role == ASSISTANT for turn in turns):
            raise Refused("no_assistant_turn", f"no message of {messages_key!r} has tag {read.assistant_tag!r} or {form.call_tags[0]!r}")
        require_alternation(turns, ends_with_answer=True)

    def convert(row: Row) -> Sample:
        turns = read.turns(row, messages_key, ChatFormat() if form == DEFAULT_FORM and _has_openai_keys(row.get(messages_key)) else form)
        check(turns)
        return chat_sample(row, turns, read.tools_key)

    beside = {read.system_key: (None, ""), read.tools_key: NO_TOOLS}
    roles = plain_roles(form.roles, form.call_tags)
    return reads_plain(convert, PlainMessages(messages_key, form.role_key, form.content_key, roles, check, beside))


def _has_openai_keys(messages: object) -> bool:
    """Whether a chat uses ``role`` and ``content``. Its first message decides, so that a mixture is rejected."""
    first = messages[0] if isinstance(messages, list | tuple) and messages else None
    return isinstance(first, Mapping) and "role" in first and "from" not in first


PAIR_EXAMPLE = {
    "conversations": [{"from": "human", "value": "Name a prime number."}],
    "chosen": {"from": "gpt", "value": "7"},
    "rejected": {"from": "gpt", "value": "9"},
}


@schema("sharegpt_pairwise", gives=Pair, example=PAIR_EXAMPLE, variant_of="sharegpt")
@options_of(conversations)
def sharegpt_pairwise(
    read: Conversations, *, messages_key: str = "conversations", chosen_key: str = "chosen", rejected_key: str = "rejected"
) -> Convert:
    """A chat that ends with a human or observation turn, and two messages that may come next.

    Options:
        messages_key: array of messages before the answer.
        chosen_key: the better message.
        rejected_key: the worse message.
    """

    def convert(row: Row) -> Pair:
        prompt = read.turns(row, messages_key, read.form)
        require_open_end(prompt, messages_key)
        require_alternation(prompt, ends_with_answer=False)
        answers = (read.form.turns([as_mapping(value_at(row, key), key)], key) for key in (chosen_key, rejected_key))
        return pair_of(row, prompt, *answers, tools_key=read.tools_key)

    return convert
