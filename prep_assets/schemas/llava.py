"""``llava``: images and a chat about them, in LLaVA's two training phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, IMAGE, PROMPT, SYSTEM, TEXT, USER, Region, Sample, Turn
from prep_assets.schemas.columns import chat_sample, plain_sample, with_system_of
from prep_assets.schemas.fields import as_list, as_mapping, needed, text_of, value_at
from prep_assets.schemas.images import Images, image_of
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_answer, role_at

ROLES = {"human": USER, "user": USER, "gpt": ASSISTANT, "assistant": ASSISTANT, "system": SYSTEM}
EXAMPLE = {
    "image": "coco/000000033471.jpg",
    "conversations": [
        {"from": "human", "value": "<image>\nWhat colour is the bus?"},
        {"from": "gpt", "value": "The bus is white and red."},
    ],
}


@schema("llava", gives=Sample, example=EXAMPLE)
def llava(
    *,
    conversations_key: str = "conversations",
    image_key: str = "image",
    role_key: str = "from",
    content_key: str = "value",
    image_token: str = "<image>",
    phase: Literal[1, 2] = 2,
    template: bool = True,
) -> Callable[[Mapping[str, Any]], Sample]:
    """User turns whose image stands first, whatever its place in the text, and assistant turns. The images of an array stand where the text has them.

    Options:
        conversations_key: field with the array of messages.
        image_key: field with the path of the image, or an array of images; it may be absent where no message places one.
        role_key: field of a message with human, user, gpt, assistant or system.
        content_key: field of a message with its text.
        image_token: the mark of an image; where the images are not an array, at most once in a user turn.
        phase: 1 drops the text beside an image (caption alignment); 2 keeps it.
        template: user and assistant turns; false gives `PROMPT` and `COMPLETION`, without a system turn.
    """

    roles = {USER: USER, ASSISTANT: ASSISTANT, SYSTEM: SYSTEM} if template else {USER: PROMPT, ASSISTANT: COMPLETION}

    def convert(row: Mapping[str, Any]) -> Sample:
        single, images = _images_of(row)
        turns = []
        for number, message in enumerate(as_list(value_at(row, conversations_key), conversations_key)):
            where = f"{conversations_key}[{number}]"
            fields = as_mapping(message, where)
            role = role_at(fields, role_key, ROLES, where)
            turns.append(Turn(role, _regions(role, text_of(fields, content_key), where, single, images)))
        images.require_all_taken()
        if single is not None and not any(region.kind == IMAGE for turn in turns for region in turn.regions):
            raise Refused("image_count", f"{image_key!r} is {single.text!r}, no user turn places it with {image_token!r}")
        require_answer(turns)
        if unfit := [turn.role for turn in turns if turn.role not in roles]:
            raise Refused("unknown_role", f"a {unfit[0]} turn cannot stand without a chat template")
        if not template:
            return plain_sample(row, tuple(Turn(roles[turn.role], turn.regions) for turn in turns))
        return chat_sample(row, with_system_of(row, turns))

    def _images_of(row: Mapping[str, Any]) -> tuple[Region | None, Images]:
        """The one image of a row, or its array of images."""
        value = row.get(image_key)
        if isinstance(value, list | tuple):
            return None, Images({image_key: value}, image_key, image_token)
        return None if value is None else image_of(value, image_key), Images({}, image_key, image_token)

    def _regions(role: str, text: str, where: str, image: Region | None, images: Images) -> tuple[Region, ...]:
        count = text.count(image_token)
        if count and role == USER and images:
            placed = (replace(region, text=region.text.strip()) if region.kind == TEXT else region for region in images.split(text, None))
            return tuple(replace(each, drop=phase == 1 and each.kind == TEXT) for each in placed if each.text)
        if not count:
            return (Region(TEXT, needed(text, "empty_answer" if role == ASSISTANT else "empty_turn", where).strip()),)
        if count > 1 or role != USER:
            raise Refused("image_count", f"{where} of role {role} places {count} images; a user turn may place 1, another turn none")
        if image is None:
            raise Refused("missing_image", f"{where} places an image, {image_key!r} is missing")
        beside = "".join(piece.strip() for piece in text.split(image_token))
        return (image, *((Region(TEXT, beside, drop=phase == 1),) if beside else ()))

    return convert


@schema("finetuning_llava_hook", gives=Sample, example=EXAMPLE)
def finetuning_llava_hook(
    *,
    multi_turn_key: str = "conversations",
    image_key: str = "image",
    multi_turn_role_key: str = "from",
    multi_turn_content_key: str = "value",
    image_token: str = "<image>",
    phase: Literal[1, 2] = 2,
) -> Convert:
    """Cerebras' LLaVA hook with user and assistant turns.

    Options:
        multi_turn_key: field with the array of messages.
        image_key: field with the path of the image.
        multi_turn_role_key: field of a message with its role.
        multi_turn_content_key: field of a message with its text.
        image_token: the mark of the image, at most once in a user turn.
        phase: 1 drops the text beside an image, 2 keeps it.
    """
    return llava(
        conversations_key=multi_turn_key,
        image_key=image_key,
        role_key=multi_turn_role_key,
        content_key=multi_turn_content_key,
        image_token=image_token,
        phase=phase,
    )


@schema("finetuning_llava_hook_prompt_completion", gives=Sample, example=EXAMPLE)
def finetuning_llava_hook_prompt_completion(
    *,
    multi_turn_key: str = "conversations",
    image_key: str = "image",
    multi_turn_role_key: str = "from",
    multi_turn_content_key: str = "value",
    image_token: str = "<image>",
    phase: Literal[1, 2] = 2,
) -> Convert:
    """Cerebras' LLaVA hook with prompts and completions; every row needs its image.

    Options:
        multi_turn_key: field with the array of messages.
        image_key: field with the path of the image.
        multi_turn_role_key: field of a message with its role.
        multi_turn_content_key: field of a message with its text.
        image_token: the mark of the image, at most once in a prompt.
        phase: 1 drops the text beside an image, 2 keeps it.
    """
    read = llava(
        conversations_key=multi_turn_key,
        image_key=image_key,
        role_key=multi_turn_role_key,
        content_key=multi_turn_content_key,
        image_token=image_token,
        phase=phase,
        template=False,
    )

    def convert(row: Mapping[str, Any]) -> Sample:
        value_at(row, image_key)
        return read(row)

    return convert
