"""``sharegpt_pairwise``: ShareGPT conversations with a chosen and a rejected last message (LLaMA-Factory, ModelLink)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.samples import ASSISTANT, SYSTEM, TOOL, USER, Pair
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import with_system_of
from prep_assets.schemas.fields import as_mapping, value_at
from prep_assets.schemas.images import Images, no_images
from prep_assets.schemas.pairs import pair_of
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_alternation, require_open_end
from prep_assets.schemas.sharegpt import sharegpt_options

EXAMPLE = {
    "conversations": [{"from": "human", "value": "Name a prime number."}],
    "chosen": {"from": "gpt", "value": "7"},
    "rejected": {"from": "gpt", "value": "9"},
}


@schema("sharegpt_pairwise", gives=Pair, example=EXAMPLE, variant_of="sharegpt")
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
        answers = (form.turns([as_mapping(value_at(row, key), key)], key, no_images()) for key in (chosen_key, rejected_key))
        return pair_of(row, prompt, *answers, tools_key=tools_key)

    return convert


@schema("SharegptStylePairwiseHandler", gives=Pair, example=EXAMPLE)
def sharegpt_style_pairwise_handler(*, map_keys: Mapping[str, Any] | None = None) -> Convert:
    """ModelLink's handler: `sharegpt_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``messages``, ``system``, ``tools``, ``chosen``, ``rejected``, and under ``tags`` the names of the tags.
    """
    return sharegpt_pairwise(**sharegpt_options(map_keys, ("chosen", "rejected")))
