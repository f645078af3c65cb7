"""``sharegpt`` and ``sharegpt_pairwise``: conversations of human and gpt, with function calls and observations (LLaMA-Factory, ModelLink)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.samples import ASSISTANT, SYSTEM, TOOL, USER, Pair, Sample, Turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import chat_sample, with_system_of
from prep_assets.schemas.fields import as_mapping, value_at
from prep_assets.schemas.images import Images
from prep_assets.schemas.pairs import pair_of
from prep_assets.schemas.plain_rows import PlainMessages, plain_roles, reads_plain
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_alternation, require_open_end

EXAMPLE = {
    "conversations": [
        {"from": "human", "value": "How warm is it in Oslo?"},
        {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Oslo"}}'},
        {"from": "observation", "value": '{"celsius": 4}'},
        {"from": "gpt", "value": "It is 4 degrees."},
    ],
    "tools": '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]',
}


@schema("sharegpt", gives=Sample, example=EXAMPLE)
def sharegpt(
    *,
    messages_key: str = "conversations",
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
) -> Convert:
    """A chat of (human or observation) and (gpt or function_call) turn by turn, after a system turn or column where there is one.

    A chat in OpenAI's spelling (``role``, ``content``; ``user``, ``assistant``, ``tool``) is read as well where the tags have their defaults.

    Options:
        messages_key: field with the array of messages.
        role_tag: field of a message with its tag.
        content_tag: field of a message with its text.
        user_tag: tag of the user.
        assistant_tag: tag of the assistant.
        observation_tag: tag of a tool's result.
        function_tag: tag of an assistant's tool call; its text is the JSON of one call or of several.
        system_tag: tag of a system message, which may only come first.
        system_key: column with a system prompt; blank is none.
        tools_key: column with the tools on offer, an array or its JSON text.
        images_key: column with the paths of the images that `image_token` places in the text; without one called ``images``, ``image`` is read.
        image_token: the mark of an image in text, read only where the row has the images column.
    """
    tags = {user_tag: USER, assistant_tag: ASSISTANT, observation_tag: TOOL, function_tag: ASSISTANT, system_tag: SYSTEM}
    form = ChatFormat(role_tag, content_tag, tags, function_tag)
    both = form == ChatFormat("from", "value", TAG_ROLES, "function_call")

    def check(turns: Sequence[Turn]) -> None:
        if not any(turn.role == ASSISTANT for turn in turns):
            raise Refused("no_assistant_turn", f"no message of {messages_key!r} has tag {assistant_tag!r} or {function_tag!r}")
        require_alternation(turns, ends_with_answer=True)

    def convert(row: Mapping[str, Any]) -> Sample:
        images = Images(row, images_key, image_token)
        messages = value_at(row, messages_key)
        turns = (ChatFormat() if both and _in_roles(messages) else form).turns(messages, messages_key, images)
        images.require_all_taken()
        turns = with_system_of(row, turns, system_key)
        check(turns)
        return chat_sample(row, turns, tools_key)

    return reads_plain(convert, PlainMessages(messages_key, role_tag, content_tag, plain_roles(tags, function_tag), check))


TAG_ROLES = {"human": USER, "gpt": ASSISTANT, "observation": TOOL, "function_call": ASSISTANT, "system": SYSTEM}


def _in_roles(messages: object) -> bool:
    """Whether a chat is written with ``role`` and ``content``: its first message decides, so that a mixture is refused."""
    first = messages[0] if isinstance(messages, list | tuple) and messages else None
    return isinstance(first, Mapping) and "role" in first and "from" not in first


TAGS = ("role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag")


def sharegpt_options(map_keys: Mapping[str, Any] | None, answers: tuple[str, ...]) -> dict[str, Any]:
    """ModelLink's ``--map-keys`` for ShareGPT rows as options of this schema. Tags that are not listed keep their default.

    Raises:
        ConfigError: a key or a tag that the handler does not have.
    """
    given = dict(map_keys or {})
    tags = given.pop("tags", None) or {}
    allowed = ("messages", "system", "tools", *answers)
    if not isinstance(tags, Mapping):
        raise ConfigError(f"map_keys 'tags' is {tags!r}, needs a mapping of {', '.join(TAGS)}")
    for key, names in [*((key, allowed) for key in given), *((tag, TAGS) for tag in tags)]:
        if key not in names:
            raise ConfigError(f"map_keys has no key {key!r}{nearest(key, names) or '.'} Allowed: tags, {', '.join((*allowed, *TAGS))}")
    return {**{f"{key}_key": column for key, column in given.items()}, **tags}


@schema("SharegptStyleInstructionHandler", gives=Sample, example=EXAMPLE)
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


PAIR_EXAMPLE = {
    "conversations": [{"from": "human", "value": "Name a prime number."}],
    "chosen": {"from": "gpt", "value": "7"},
    "rejected": {"from": "gpt", "value": "9"},
}


@schema("sharegpt_pairwise", gives=Pair, example=PAIR_EXAMPLE, variant_of="sharegpt")
def sharegpt_pairwise(
    *,
    messages_key: str = "conversations",
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
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
) -> Convert:
    """A chat that ends with a human or observation turn, and two messages that may come next.

    Options:
        messages_key: field with the array of messages before the answer.
        chosen_key: field with the better message.
        rejected_key: field with the worse message.
        role_tag: field of a message with its tag.
        content_tag: field of a message with its text.
        user_tag: tag of the user.
        assistant_tag: tag of the assistant.
        observation_tag: tag of a tool's result.
        function_tag: tag of an assistant's tool call.
        system_tag: tag of a system message, which may only come first.
        system_key: column with a system prompt; blank is none.
        tools_key: column with the tools on offer, an array or its JSON text.
        images_key: column with the paths of the images that `image_token` places in the text; without one called ``images``, ``image`` is read.
        image_token: the mark of an image in text, read only where the row has the images column.
    """
    tags = {user_tag: USER, assistant_tag: ASSISTANT, observation_tag: TOOL, function_tag: ASSISTANT, system_tag: SYSTEM}
    form = ChatFormat(role_tag, content_tag, tags, function_tag)

    def convert(row: Mapping[str, Any]) -> Pair:
        images = Images(row, images_key, image_token)
        prompt = form.turns(value_at(row, messages_key), messages_key, images)
        images.require_all_taken()
        prompt = with_system_of(row, prompt, system_key)
        require_open_end(prompt, messages_key)
        require_alternation(prompt, ends_with_answer=False)
        answers = (form.turns([as_mapping(value_at(row, key), key)], key) for key in (chosen_key, rejected_key))
        return pair_of(row, prompt, *answers, tools_key=tools_key)

    return convert


@schema("SharegptStylePairwiseHandler", gives=Pair, example=PAIR_EXAMPLE)
def sharegpt_style_pairwise_handler(*, map_keys: Mapping[str, Any] | None = None) -> Convert:
    """ModelLink's handler: `sharegpt_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, ``chosen``, ``rejected``, and under ``tags`` the names of the tags.
    """
    return sharegpt_pairwise(**sharegpt_options(map_keys, ("chosen", "rejected")))
