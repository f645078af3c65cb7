"""``image_captions``: an image and its caption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prep_assets.samples import COMPLETION, DOCUMENT, PROMPT, TEXT, Region, Sample, Turn
from prep_assets.schemas.fields import needed, text_of, value_at
from prep_assets.schemas.images import image_of
from prep_assets.schemas.registry import Convert, schema

EXAMPLE = {"image": "images/0001.jpg", "caption": "Two dogs on a beach."}


@schema("image_captions", gives=Sample, example=EXAMPLE)
def image_captions(*, image_key: str = "image", caption_key: str = "caption", pretraining: bool = False) -> Convert:
    """The image as the prompt and the caption as its completion, or both as one document.

    Options:
        image_key: field with the path of the image, or an object with ``path`` or ``url``.
        caption_key: field with the caption.
        pretraining: one document of image and caption.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        image = image_of(value_at(row, image_key), image_key)
        text = Region(TEXT, needed(text_of(row, caption_key), "empty_answer", caption_key))
        if pretraining:
            return Sample((Turn(DOCUMENT, (replace(image, loss_weight=0.0), text)),))
        return Sample((Turn(PROMPT, (image,)), Turn(COMPLETION, (text,))))

    return convert


@schema("pretraining_image_captions_hook", gives=Sample, example=EXAMPLE)
def pretraining_image_captions_hook(*, image_key: str = "image", caption_key: str = "caption") -> Convert:
    """Cerebras' hook for captions in pretraining.

    Options:
        image_key: field with the path of the image, or an object with ``path``.
        caption_key: field with the caption.
    """
    return image_captions(image_key=image_key, caption_key=caption_key, pretraining=True)


@schema("finetuning_image_captions_hook", gives=Sample, example=EXAMPLE)
def finetuning_image_captions_hook(*, image_key: str = "image", caption_key: str = "caption") -> Convert:
    """Cerebras' hook for captions in finetuning.

    Options:
        image_key: field with the path of the image, or an object with ``path``.
        caption_key: field with the caption.
    """
    return image_captions(image_key=image_key, caption_key=caption_key)
