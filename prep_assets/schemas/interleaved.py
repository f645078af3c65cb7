"""``interleaved`` and the captions of Cerebras: texts and images in order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from prep_assets.errors import Refused
from prep_assets.samples import COMPLETION, DOCUMENT, PROMPT, TEXT, Region, Sample, Turn
from prep_assets.schemas.fields import as_list, as_text, needed, text_of, value_at
from prep_assets.schemas.images import image_of
from prep_assets.schemas.registry import Convert, schema

EXAMPLE = {"images": [None, "https://example.org/cat.jpg", None], "texts": ["This is my cat:", None, "It sleeps a lot."]}


@schema("interleaved", gives=Sample, example=EXAMPLE)
def interleaved(*, images_key: str = "images", texts_key: str = "texts", image_dir: str | None = None) -> Convert:
    """One document, in the order of two parallel arrays; at each position exactly one of them has a value.

    Options:
        images_key: array with paths or URLs of images, null where the text stands.
        texts_key: array with texts, null where an image stands.
        image_dir: folder of images that were downloaded under the names of Cerebras' OBELICS hook; null keeps the source's own URL or path.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        images, texts = (as_list(value_at(row, key), key) for key in (images_key, texts_key))
        if len(images) != len(texts):
            raise Refused("length_mismatch", f"{images_key!r} has {len(images)} entries, {texts_key!r} has {len(texts)}")
        regions = []
        for position, (image, text) in enumerate(zip(images, texts, strict=True)):
            if (image is None) == (text is None):
                given = "neither" if image is None else "both"
                raise Refused("interleaving", f"position {position} has {given} of image and text, needs exactly one")
            regions.append(
                _image(image, f"{images_key}[{position}]") if text is None else Region(TEXT, as_text(text, f"{texts_key}[{position}]"))
            )
        if not any(region.text.strip() for region in regions):
            raise Refused("empty_text", f"{images_key!r} and {texts_key!r} are empty")
        return Sample((Turn(DOCUMENT, tuple(regions)),))

    def _image(value: object, where: str) -> Region:
        image = image_of(value, where)
        path = image.text if image_dir is None else f"{image_dir}/{downloaded_name(image.text, where)}"
        return replace(image, text=path, loss_weight=0.0)

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


@schema("pretraining_image_captions_hook", gives=Sample, example=CAPTION_EXAMPLE)
def pretraining_image_captions_hook(*, image_key: str = "image", caption_key: str = "caption") -> Convert:
    """Cerebras' hook for captions in pretraining.

    Options:
        image_key: field with the path of the image, or an object with ``path``.
        caption_key: field with the caption.
    """
    return image_captions(image_key=image_key, caption_key=caption_key, pretraining=True)


@schema("finetuning_image_captions_hook", gives=Sample, example=CAPTION_EXAMPLE)
def finetuning_image_captions_hook(*, image_key: str = "image", caption_key: str = "caption") -> Convert:
    """Cerebras' hook for captions in finetuning.

    Options:
        image_key: field with the path of the image, or an object with ``path``.
        caption_key: field with the caption.
    """
    return image_captions(image_key=image_key, caption_key=caption_key)
