"""Images and texts: ``interleaved``, captions and ``llava``, and Cerebras' hooks for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, PROMPT, SYSTEM, TEXT, USER, Region, Row, Sample, Turn, changed
from prep_assets.schemas.fields import as_list, as_mapping, as_text, needed, text_of, value_at
from prep_assets.schemas.registry import Convert, options_of, schema
from prep_assets.schemas.turns import Images, chat_sample, image_of, plain_sample, require_answer, role_at, with_system_of

# ``interleaved`` and the captions of Cerebras: texts and images in order.

EXAMPLE = {"images": [None, "https://example.org/cat.jpg", None], "texts": ["This is my cat:", None, "It sleeps a lot."]}


@schema("interleaved", gives=Sample, example=EXAMPLE)
def interleaved(*, images_key: str = "images", texts_key: str = "texts", image_dir: str | None = None) -> Convert:
    """One document, in the order of two parallel arrays; at each position exactly one of them has a value.

    Options:
        images_key: array with paths or URLs of images, null at texts.
        texts_key: array with texts, null at images.
        image_dir: folder of images named as by Cerebras' OBELICS hook; null keeps the source's URL or path.
    """

    def convert(row: Row) -> Sample:
        images, texts = (as_list(value_at(row, key), key) for key in (images_key, texts_key))
        if len(images) != len(texts):
            raise Refused("length_mismatch", f"{images_key!r} has {len(images)} entries, {texts_key!r} has {len(texts)}")
        regions = []
        for position, (image, text) in enumerate(zip(images, texts, strict=True)):
            if (image is None) == (text is None):
                presence = "neither" if image is None else "both"
                raise Refused("interleaving", f"position {position} has {presence} of image and text, needs exactly one")
            regions.append(
                _image(image, f"{images_key}[{position}]") if text is None else Region(TEXT, as_text(text, f"{texts_key}[{position}]"))
            )
        if not any(region.text.strip() for region in regions):
            raise Refused("empty_text", f"{images_key!r} and {texts_key!r} are empty")
        return Sample((Turn(DOCUMENT, tuple(regions)),))

    def _image(value: object, where: str) -> Region:
        image = image_of(value, where)
        path = image.text if image_dir is None else f"{image_dir}/{downloaded_name(image.text, where)}"
        return changed(image, text=path, loss_weight=0.0)

    return convert


def downloaded_name(url: str, where: str) -> str:
    """The file name under which Cerebras' OBELICS hook stores the image of `url`: ten hex digits of the SHA-256 of its own file name."""
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError as error:
        raise Refused("missing_image", f"{where!r} is no URL: {error}") from error
    if name in ("", ".png"):
        raise Refused("missing_image", f"{where!r} has no file name: {url!r}")
    return f"{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:10]}.png"


@schema("obelics_hook", gives=Sample, example={"image": EXAMPLE["images"], "caption": EXAMPLE["texts"]})
def obelics_hook(*, image_key: str = "image", caption_key: str = "caption", image_dir: str | None = None) -> Convert:
    """Cerebras' hook for OBELICS; nothing is downloaded here.

    Options:
        image_key: array with URLs of images.
        caption_key: array with texts.
        image_dir: folder of the downloaded images; null keeps the URLs.
    """
    return interleaved(images_key=image_key, texts_key=caption_key, image_dir=image_dir)


CAPTION_EXAMPLE = {"image": "images/0001.jpg", "caption": "Two dogs on a beach."}


@schema("image_captions", gives=Sample, example=CAPTION_EXAMPLE)
def image_captions(*, image_key: str = "image", caption_key: str = "caption", pretraining: bool = False) -> Convert:
    """The image as the prompt and the caption as its completion, or both as one document.

    Options:
        image_key: the path of the image, or an object with `path` or `url`.
        caption_key: the caption.
        pretraining: one document of image and caption.
    """

    def convert(row: Row) -> Sample:
        image = image_of(value_at(row, image_key), image_key)
        text = Region(TEXT, needed(text_of(row, caption_key), "empty_answer", caption_key))
        if pretraining:
            return Sample((Turn(DOCUMENT, (changed(image, loss_weight=0.0), text)),))
        return Sample((Turn(PROMPT, (image,)), Turn(COMPLETION, (text,))))

    return convert


@schema("pretraining_image_captions_hook", gives=Sample, example="image_captions")
def pretraining_image_captions_hook(*, image_key: str = "image", caption_key: str = "caption") -> Convert:
    """Cerebras' hook for captions in pretraining.

    Options:
        image_key: field with the path of the image, or an object with ``path``.
        caption_key: field with the caption.
    """
    return image_captions(image_key=image_key, caption_key=caption_key, pretraining=True)


@schema("finetuning_image_captions_hook", gives=Sample, example="image_captions")
def finetuning_image_captions_hook(*, image_key: str = "image", caption_key: str = "caption") -> Convert:
    """Cerebras' hook for captions in finetuning.

    Options:
        image_key: field with the path of the image, or an object with ``path``.
        caption_key: field with the caption.
    """
    return image_captions(image_key=image_key, caption_key=caption_key)


# ``llava``: images and a chat about them, in LLaVA's two training phases.

ROLES = {"human": USER, "user": USER, "gpt": ASSISTANT, "assistant": ASSISTANT, "system": SYSTEM}
LLAVA_EXAMPLE = {
    "image": "coco/000000033471.jpg",
    "conversations": [
        {"from": "human", "value": "<image>\nWhat colour is the bus?"},
        {"from": "gpt", "value": "The bus is white and red."},
    ],
}


@schema("llava", gives=Sample, example=LLAVA_EXAMPLE)
def llava(
    *,
    conversations_key: str = "conversations",
    image_key: str = "image",
    role_key: str = "from",
    content_key: str = "value",
    image_token: str = "<image>",
    phase: Literal[1, 2] = 2,
    template: bool = True,
) -> Callable[[Row], Sample]:
    """User turns whose image stands first, whatever its place in the text, and assistant turns. The images of an array stand where the text has them.

    Options:
        conversations_key: array of messages.
        image_key: the path of the image, or an array; optional without marks.
        role_key: field of a message with its role: human, user, gpt, assistant or system.
        content_key: field of a message with its text.
        image_token: mark of an image; at most one in a user turn, unless images are an array.
        phase: 1 drops the text beside an image (caption alignment); 2 keeps it.
        template: user and assistant turns; false gives `PROMPT` and `COMPLETION`, without a system turn.
    """

    roles = {USER: USER, ASSISTANT: ASSISTANT, SYSTEM: SYSTEM} if template else {USER: PROMPT, ASSISTANT: COMPLETION}

    def convert(row: Row) -> Sample:
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
        if unsupported := [turn.role for turn in turns if turn.role not in roles]:
            raise Refused("unknown_role", f"a {unsupported[0]} turn cannot stand without a chat template")
        if not template:
            return plain_sample(row, tuple(Turn(roles[turn.role], turn.regions) for turn in turns))
        return chat_sample(row, with_system_of(row, turns))

    def _images_of(row: Row) -> tuple[Region | None, Images]:
        """The row's single image, or its array of images."""
        value = row.get(image_key)
        if isinstance(value, list | tuple):
            return None, Images({image_key: value}, image_key, image_token)
        return None if value is None else image_of(value, image_key), Images({}, image_key, image_token)

    def _regions(role: str, text: str, where: str, image: Region | None, images: Images) -> tuple[Region, ...]:
        count = text.count(image_token)
        if count and role == USER and images:
            stripped_regions = (
                changed(region, text=region.text.strip()) if region.kind == TEXT else region for region in images.split(text, None)
            )
            return tuple(changed(stripped, drop=phase == 1 and stripped.kind == TEXT) for stripped in stripped_regions if stripped.text)
        if not count:
            return (Region(TEXT, needed(text, "empty_answer" if role == ASSISTANT else "empty_turn", where).strip()),)
        if count > 1 or role != USER:
            raise Refused("image_count", f"{where} of role {role} places {count} images; a user turn may place 1, another turn none")
        if image is None:
            raise Refused("missing_image", f"{where} places an image, {image_key!r} is missing")
        caption = "".join(piece.strip() for piece in text.split(image_token))
        return (image, *((Region(TEXT, caption, drop=phase == 1),) if caption else ()))

    return convert


def hook_names(
    *,
    multi_turn_key: str = "conversations",
    image_key: str = "image",
    multi_turn_role_key: str = "from",
    multi_turn_content_key: str = "value",
    image_token: str = "<image>",
    phase: Literal[1, 2] = 2,
) -> dict[str, Any]:
    """The options of `llava`, by Cerebras' names.

    Options:
        multi_turn_key: field with the array of messages.
        image_key: field with the path of the image.
        multi_turn_role_key: field of a message with its role.
        multi_turn_content_key: field of a message with its text.
        image_token: the mark of the image, at most once in a turn of the user.
        phase: 1 drops the text beside an image, 2 keeps it.
    """
    keys = {"conversations_key": multi_turn_key, "role_key": multi_turn_role_key, "content_key": multi_turn_content_key}
    return {**keys, "image_key": image_key, "image_token": image_token, "phase": phase}


@schema("finetuning_llava_hook", gives=Sample, example="llava")
@options_of(hook_names)
def finetuning_llava_hook(names: dict[str, Any]) -> Convert:
    """Cerebras' LLaVA hook with user and assistant turns."""
    return llava(**names)


@schema("finetuning_llava_hook_prompt_completion", gives=Sample, example="llava")
@options_of(hook_names)
def finetuning_llava_hook_prompt_completion(names: dict[str, Any]) -> Convert:
    """Cerebras' LLaVA hook with prompts and completions; every row needs its image."""
    read = llava(**names, template=False)

    def convert(row: Row) -> Sample:
        value_at(row, names["image_key"])
        return read(row)

    return convert
