"""The rule that a processor's files say, compared with what that processor of transformers writes for pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.base import Fixed, Qwen2VL, tokens_around
from prep_assets.config.models import Sft, image_placeholder
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.text.images import RULES, placeholder_of, rule_beside

Image = pytest.importorskip("PIL.Image")
TOKEN = "<image>"
PLACES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
CONTROL = [TOKEN, "<img>", "</img>", "<start_of_image>", "<end_of_image>", "<fake_token_around_image>", "<global-img>", "<video>", *PLACES]
BOUNDS = {"min_pixels": 3136, "max_pixels": 50_000}
CROP = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
PINPOINTS = {"image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]}
LLAVA = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
TILES = {"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 28}}
GEMMA = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": TOKEN}
INTERN = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": TOKEN, "video_token": "<video>"}
KINDS: Mapping[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Qwen2VLProcessor": ("qwen2_vl.Qwen2VL", BOUNDS, {}, {"image_token": TOKEN}),
    "Qwen2_5_VLProcessor": ("qwen2_vl.Qwen2VL", {**BOUNDS, "merge_size": 3}, {}, {"image_token": TOKEN}),
    "Qwen3VLProcessor": (
        "qwen2_vl.Qwen2VL",
        {"patch_size": 16, "size": {"shortest_edge": 4096, "longest_edge": 60_000}},
        {},
        {"image_token": TOKEN, "vision_start_token": "<img>", "vision_end_token": "</img>"},
    ),
    "LlavaProcessor": ("llava.Llava", CROP, LLAVA, {}),
    "LlavaNextProcessor": ("llava_next.LlavaNext", {**CROP, **PINPOINTS}, LLAVA, {}),
    "Gemma3Processor": ("gemma3.Gemma3", {"size": {"height": 28, "width": 28}}, {"image_seq_length": 7}, GEMMA),
    "InternVLProcessor": (
        "got_ocr2.GotOcr2",
        {"size": {"height": 28, "width": 28}, "crop_to_patches": False},
        {"image_seq_length": 4},
        INTERN,
    ),
    "Idefics3Processor": ("idefics3.Idefics3", TILES, {"image_seq_len": 3}, {}),
    "SmolVLMProcessor": ("smolvlm.SmolVLM", {**TILES, "do_image_splitting": False}, {"image_seq_len": 3}, {}),
}
"""Image processor, its options, those of the processor, and names of the tokenizer's tokens. InternVL's published file says that images are not cut,
and its processor cuts them."""


@cache
def processor(kind: str) -> Any:
    """A processor of transformers with a tokenizer of two words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    name, options, own, names = KINDS[kind]
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "Hi": 1}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(CONTROL)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[UNK]", extra_special_tokens=names
    )
    if kind == "SmolVLMProcessor":  # it spells the lengths of videos in words
        import_module("transformers.models.smolvlm.processing_smolvlm").num2words = str
    folder, _, image_kind = name.partition(".")
    module = import_module(f"transformers.models.{folder}.image_processing_pil_{folder}")
    images = getattr(module, f"{image_kind}ImageProcessorPil")(**options)
    lenient = type(kind, (getattr(transformers, kind),), {"check_argument_for_proper_class": lambda self, name, each: type(each)})
    videos = {"video_processor": None} if kind.startswith(("Qwen", "Intern", "Smol")) else {}
    return lenient(image_processor=images, tokenizer=tokenizer, **videos, **own)


def files_of(kind: str, folder: Path, *, nested: bool) -> Path:
    """The files that transformers 5 writes, or those that it and older ones read."""
    own = {**KINDS[kind][2], "processor_class": kind}
    images = json.loads(processor(kind).image_processor.to_json_string())
    if nested:
        (folder / "processor_config.json").write_text(json.dumps({**own, "image_processor": images}))
    else:
        (folder / "processor_config.json").write_text(json.dumps(own))
        (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return folder


def test_every_processor_is_tried() -> None:
    assert set(KINDS) == set(RULES)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_processor_writes_what_its_files_say(kind: str, nested: bool, tmp_path: Path) -> None:
    theirs, rule = processor(kind), rule_beside(files_of(kind, tmp_path, nested=nested))
    family = Sft.model_construct(image_token=TOKEN, template_options={}, image_patches=1)
    mark = image_placeholder(family, rule)
    for size in ((60, 200), (300, 30), (28, 28), (113, 112)):
        ids = theirs(images=[[Image.new("RGB", size)]], text=[f"Hi {mark} Hi"])["input_ids"][0]
        written = placeholder_of(rule, TOKEN, *size)
        tokens = re.findall("|".join(map(re.escape, {TOKEN, *tokens_around(rule)})), written)
        assert theirs.tokenizer.convert_ids_to_tokens(ids) == ["Hi", *tokens, "Hi"], size


def test_files_as_qwen_published_them(tmp_path: Path) -> None:
    published = {"min_pixels": 3136, "max_pixels": 12_845_056, "patch_size": 14, "merge_size": 2, "processor_class": "Qwen2VLProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(published))
    (tmp_path / "tokenizer.json").write_text("{}")
    expected = Qwen2VL(rule="qwen2_vl", patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12_845_056)
    assert rule_beside(tmp_path) == rule_beside(tmp_path / "tokenizer.json") == expected


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "names a processor_class"),
        (
            {"preprocessor_config.json": {"processor_class": "MllamaProcessor"}},
            "how many tokens MllamaProcessor writes .* Known: Qwen2VLProcessor",
        ),
        ({"processor_config.json": {"processor_class": "LlavaProcessor"}}, "has no preprocessor_config.json"),
        ({"preprocessor_config.json": {"processor_class": "Qwen2VLProcessor", "patch_size": 14}}, "lack shortest_edge"),
        ({"preprocessor_config.json": {"processor_class": "Qwen2VLProcessor", "size": 3, "patch_size": 1}}, "another value than expected"),
        (
            {"preprocessor_config.json": {"processor_class": "Gemma3Processor", "do_pan_and_scan": True}},
            "do_pan_and_scan cuts images into crops",
        ),
        (
            {"preprocessor_config.json": {"processor_class": "LlavaProcessor", "do_center_crop": False}},
            "do_center_crop is false",
        ),
        (
            {"preprocessor_config.json": {"processor_class": "Qwen2VLProcessor", "do_resize": False}},
            "do_resize is false",
        ),
        ({"preprocessor_config.json": "text"}, "holds str, needs an object"),
    ],
)
def test_files_that_say_no_rule(files: dict[str, Any], says: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=says):
        rule_beside(tmp_path)


def test_a_rule_of_nothing_but_the_image_token_has_no_tokens_around() -> None:
    assert tokens_around(Fixed(rule="fixed", tokens=3)) == ()
    with pytest.raises(PrepAssetsError):
        rule_beside(Path("/nowhere"))
