"""The rule of a model's processor, from the files that stand beside its tokenizer.

processor_config.json       processor_class, sizes of placeholders; since transformers 5 the image processor too
preprocessor_config.json    the image processor
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prep_assets.config.image_rules import Fixed, Idefics3, ImageRule, InternVL, LlavaNext, Qwen2VL
from prep_assets.errors import ConfigError
from prep_assets.tokenization.beside import read_object

Values = Mapping[str, Any]


def rule_beside(place: Path) -> ImageRule:
    """The rule that the files in a tokenizer's folder say.

    Raises:
        ConfigError: there are none, or they are of a processor whose rule is not known.
    """
    folder = place if place.is_dir() else place.parent
    processor, images = read_object(folder / "processor_config.json"), read_object(folder / "preprocessor_config.json")
    nested = processor.get("image_processor")
    images = nested if isinstance(nested, Mapping) else images
    name = processor.get("processor_class") or images.get("processor_class")
    if not name:
        raise ConfigError(
            f"image_tokens: no processor_config.json or preprocessor_config.json in {folder} names a processor_class. Put the files of the model's "
            "processor there, or write its rule into image_tokens"
        )
    if name not in RULES:
        raise ConfigError(f"image_tokens: how many tokens {name} writes for an image is not known here. Known: {', '.join(RULES)}")
    if not images:
        raise ConfigError(f"image_tokens: {folder} has no preprocessor_config.json, which has the sizes of {name}")
    if images.get("do_resize") is False:
        raise ConfigError(
            f"image_tokens: do_resize is false in {folder}, so {name} counts otherwise than its rule. Set it to true, or write a rule"
        )
    try:
        return RULES[str(name)](images, processor)
    except (LookupError, TypeError, ValidationError) as error:
        lacking = error.args[0] if isinstance(error, KeyError) else f"{error}"[:200]
        raise ConfigError(
            f"image_tokens: the files of {name} in {folder} lack {lacking}, or have another value than expected there"
        ) from error


def _qwen2_vl(images: Values, processor: Values) -> ImageRule:
    size = images.get("size") or {}
    bounds = {name: images[name] if images.get(name) is not None else size[edge] for name, edge in QWEN_BOUNDS}
    return Qwen2VL(rule="qwen2_vl", patch_size=images["patch_size"], merge_size=images["merge_size"], **bounds)


QWEN_BOUNDS = (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))


def _llava(images: Values, processor: Values) -> ImageRule:
    if images.get("do_center_crop") is False:
        raise ConfigError("image_tokens: do_center_crop is false, so LLaVA's images have any shape. Set it to true, or write a rule")
    crop, patch = images["crop_size"], processor["patch_size"]
    if isinstance(crop, int):
        crop = {"height": crop, "width": crop}
    left_out = processor["vision_feature_select_strategy"] == "default"
    tokens = (crop["height"] // patch) * (crop["width"] // patch) + processor.get("num_additional_image_tokens", 0) - left_out
    return Fixed(rule="fixed", tokens=tokens)


def _llava_next(images: Values, processor: Values) -> ImageRule:
    size = images["size"]
    side = size["shortest_edge"] if "shortest_edge" in size else min(size["height"], size["width"])
    return LlavaNext(
        rule="llava_next",
        image_size=side,
        patch_size=processor["patch_size"],
        image_grid_pinpoints=tuple((height, width) for height, width in images["image_grid_pinpoints"]),
        num_additional_image_tokens=processor.get("num_additional_image_tokens", 0),
        vision_feature_select_strategy=processor["vision_feature_select_strategy"],
    )


def _gemma3(images: Values, processor: Values) -> ImageRule:
    if images.get("do_pan_and_scan"):
        raise ConfigError("image_tokens: do_pan_and_scan cuts images into crops, which is not known here. Set it to false, or null")
    length = processor.get("image_seq_length", images.get("image_seq_length", 256))
    return Fixed(rule="fixed", tokens=length, begin="\n\n<start_of_image>", end="<end_of_image>\n\n", mark="<start_of_image>")


def _internvl(images: Values, processor: Values) -> ImageRule:
    # the processor cuts images whatever the file of its image processor says
    size, cuts = images["size"], processor.get("images_kwargs", {}).get("crop_to_patches", True)
    return InternVL(
        rule="internvl",
        image_seq_length=processor["image_seq_length"],
        tile_height=size["height"],
        tile_width=size["width"],
        min_patches=images["min_patches"] if cuts else 1,
        max_patches=images["max_patches"] if cuts else 1,
    )


def _idefics3(images: Values, processor: Values) -> ImageRule:
    return Idefics3(
        rule="idefics3",
        image_seq_len=processor["image_seq_len"],
        longest_edge=images["size"]["longest_edge"],
        tile=images["max_image_size"]["longest_edge"],
        do_image_splitting=images.get("do_image_splitting", True),
    )


RULES: dict[str, Callable[[Values, Values], ImageRule]] = {
    **dict.fromkeys(("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"), _qwen2_vl),
    "LlavaProcessor": _llava,
    "LlavaNextProcessor": _llava_next,
    "Gemma3Processor": _gemma3,
    "InternVLProcessor": _internvl,
    **dict.fromkeys(("Idefics3Processor", "SmolVLMProcessor"), _idefics3),
}
