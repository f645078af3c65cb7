"""What stands for an image, and the rules that processors' files say, compared with transformers' own processors."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError, Refused
from prep_assets.extensions.media.headers import ORIENTATION, resolution_of
from prep_assets.extensions.media.options import (
    Fixed,
    Idefics3,
    InternVL,
    LlavaNext,
    MelFrames,
    Qwen2VL,
    Qwen2VLVideo,
    Qwen3VLVideo,
    media_mark,
    tokens_around,
)
from prep_assets.extensions.media.proofs.tokens import expected_text
from prep_assets.extensions.media.rules import AUDIO_RULES, RULES, VIDEO_RULES, placeholder_of, rule_beside
from prep_assets_tests.effort import examples
from prep_assets_tests.extensions.exports.readers import stand_in
from prep_assets_tests.graph.pictures import png

pytest.importorskip("PIL")
TOKEN = "<image>"
sides = st.one_of(st.integers(1, 40), st.integers(1, 3000), st.sampled_from([14, 28, 336, 364, 448, 512, 672, 1456, 4096, 12_000]))


def stub(**more: Any) -> Any:
    """What processors ask of a tokenizer when they write placeholders."""
    return SimpleNamespace(image_token=TOKEN, image_token_id=1, convert_tokens_to_ids=lambda _: 1, **more)


def bare_processor(kind: str, image_processor: Any, tokenizer: Any, **more: Any) -> Any:
    """A bare_processor without the checks of its tokenizer's class."""
    import transformers

    made = object.__new__(getattr(transformers, kind))
    vars(made).update(image_processor=image_processor, tokenizer=tokenizer, image_token=TOKEN, **more)
    return made


@cache
def image_processor(name: str, **options: Any) -> Any:
    from importlib import import_module

    folder = {"Qwen2VL": "qwen2_vl", "LlavaNext": "llava_next", "GotOcr2": "got_ocr2", "Idefics3": "idefics3", "SmolVLM": "smolvlm"}[name]
    module = import_module(f"transformers.models.{folder}.image_processing_pil_{folder}")
    return getattr(module, f"{name}ImageProcessorPil")(
        **{key: dict(value) if isinstance(value, tuple) else value for key, value in options.items()}
    )


QWEN = [
    Qwen2VL(rule="qwen2_vl", patch_size=14, merge_size=2, min_pixels=3136, max_pixels=12_845_056),
    Qwen2VL(rule="qwen2_vl", patch_size=16, merge_size=2, min_pixels=65_536, max_pixels=200_000),
    Qwen2VL(rule="qwen2_vl", patch_size=14, merge_size=3, min_pixels=1, max_pixels=2000),
]


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(QWEN), sides, sides)
def test_qwen2_vl(rule: Qwen2VL, width: int, height: int) -> None:
    size = (("shortest_edge", rule.min_pixels), ("longest_edge", rule.max_pixels))
    theirs = image_processor("Qwen2VL", patch_size=rule.patch_size, merge_size=rule.merge_size, size=size)
    try:
        patches = theirs.get_number_of_image_patches(height, width)
    except ValueError as error:
        assert "200" in str(error)
        with pytest.raises(Refused, match=f"image_resolution: {width} x {height} pixels"):
            placeholder_of(rule, TOKEN, width, height)
        return
    for kind in ("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"):
        side = SimpleNamespace(prod=lambda: patches)
        written = bare_processor(kind, theirs, stub()).replace_image_token({"image_grid_thw": [side]}, 0)
        assert placeholder_of(rule, TOKEN, width, height) == written


PINPOINTS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


@settings(max_examples=examples(150), deadline=None)
@given(sides, sides, st.sampled_from(["default", "full"]), st.integers(0, 1), st.permutations(PINPOINTS))
def test_llava_next(width: int, height: int, strategy: Any, extra: int, pinpoints: Any) -> None:
    rule = LlavaNext(
        rule="llava_next",
        image_size=336,
        patch_size=14,
        image_grid_pinpoints=tuple(pinpoints),
        num_additional_image_tokens=extra,
        vision_feature_select_strategy=strategy,
    )
    theirs = bare_processor(
        "LlavaNextProcessor",
        SimpleNamespace(image_grid_pinpoints=[list(each) for each in pinpoints]),
        stub(),
        patch_size=14,
        num_additional_image_tokens=extra,
        vision_feature_select_strategy=strategy,
    )
    inputs = {"image_sizes": [(height, width)], "pixel_values": [[np.empty((3, 336, 336))]]}
    assert placeholder_of(rule, TOKEN, width, height) == theirs.replace_image_token(inputs, 0)


@settings(max_examples=examples(150), deadline=None)
@given(sides, sides, st.sampled_from([(448, 448), (384, 200)]), st.integers(1, 3), st.integers(1, 12))
def test_internvl(width: int, height: int, tile: tuple[int, int], least: int, most: int) -> None:
    least = min(least, most)
    rule = InternVL(rule="internvl", image_seq_length=4, tile_height=tile[0], tile_width=tile[1], min_patches=least, max_patches=most)
    size = (("height", tile[0]), ("width", tile[1]))
    theirs = image_processor("GotOcr2", size=size, min_patches=least, max_patches=most, crop_to_patches=True)
    written = bare_processor(
        "InternVLProcessor", theirs, stub(), image_seq_length=4, start_image_token="<img>", end_image_token="</img>"
    ).replace_image_token({"num_patches": [theirs.get_number_of_image_patches(height, width)]}, 0)
    assert placeholder_of(rule, TOKEN, width, height) == written


def rows_and_columns(theirs: Any, width: int, height: int) -> tuple[int, int]:
    """What an image bare_processor does to a blank picture, whose pixels are never there."""

    def blank(image: Any, size: Any, **_: Any) -> Any:
        from transformers.models.idefics3.image_processing_pil_idefics3 import get_resize_output_image_size

        high, wide = get_resize_output_image_size(image, size.longest_edge) if size.longest_edge else (size.height, size.width)
        return np.broadcast_to(np.float32(0), (3, high, wide))

    theirs.resize = blank
    from transformers.image_utils import SizeDict

    split = theirs._preprocess(
        [[np.broadcast_to(np.float32(0), (3, height, width))]],
        do_resize=True,
        size=SizeDict(**theirs.size) if isinstance(theirs.size, dict) else theirs.size,
        resample=None,
        do_rescale=False,
        rescale_factor=1.0,
        do_normalize=False,
        image_mean=None,
        image_std=None,
        do_pad=False,
        do_image_splitting=theirs.do_image_splitting,
        max_image_size=theirs.max_image_size,
        return_row_col_info=True,
        return_tensors=None,
    )
    return split["rows"][0][0], split["cols"][0][0]


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(["Idefics3", "SmolVLM"]), sides, sides, st.sampled_from([(1456, 364), (2048, 512), (5000, 1000)]), st.booleans())
def test_idefics3(kind: str, width: int, height: int, sizes: tuple[int, int], splits: bool) -> None:
    longest, tile = sizes
    rule = Idefics3(rule="idefics3", image_seq_len=3, longest_edge=longest, tile=tile, do_image_splitting=splits)
    theirs = image_processor(kind, size=(("longest_edge", longest),), max_image_size=(("longest_edge", tile),), do_image_splitting=splits)
    rows, columns = rows_and_columns(theirs, width, height)
    module = __import__("transformers.models.smolvlm.processing_smolvlm", fromlist=["x"])
    expected = module.get_image_prompt_string(rows, columns, 3, "<fake_token_around_image>", TOKEN, "<global-img>")
    found = placeholder_of(rule, TOKEN, width, height)
    assert found == expected
    known = {TOKEN, *tokens_around(rule)}
    assert {f"{piece}>" for piece in found.replace("\n", "").split(">") if piece} <= known


HEARD = {"sampling_rate": 16_000, "hop_length": 160, "chunk_length": 2}
MEL = MelFrames(rule="mel_frames", **HEARD)


@cache
def listener(kind: str) -> Any:
    """A processor of audio that hears two seconds."""
    import transformers

    extractor = transformers.WhisperFeatureExtractor(feature_size=4, **HEARD)
    return bare_processor(kind, None, stub(audio_token=TOKEN), feature_extractor=extractor, audio_token=TOKEN)


@pytest.mark.parametrize("kind", AUDIO_RULES)
@settings(max_examples=examples(40), deadline=None)
@given(
    st.one_of(st.integers(1, 34_000), st.integers(0, 210).map(lambda frames: frames * 160 + 1), st.sampled_from([320, 321, 32_000, 32_001]))
)
def test_mel_frames(kind: str, samples: int) -> None:
    """The processor drops what it does not hear; here such audio is refused."""
    _, [written] = listener(kind)._process_audio([np.zeros(samples, np.float32)], sampling_rate=16_000, return_attention_mask=True)
    if samples > 32_000 or not written:
        with pytest.raises(Refused, match="audio_length"):
            placeholder_of(MEL, TOKEN, samples, 16_000)
        with pytest.raises(CheckFailed, match="hear"):
            expected_text(MEL, TOKEN, (samples, 16_000))
    else:
        assert placeholder_of(MEL, TOKEN, samples, 16_000) == written == expected_text(MEL, TOKEN, (samples, 16_000))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 100_000), st.sampled_from([8000, 11_025, 16_000, 22_050, 44_100, 48_000]))
def test_audio_of_another_rate_has_the_tokens_of_what_it_becomes(samples: int, rate: int) -> None:
    """As librosa and torchaudio say: ceil(samples * new / old)."""
    resampled = -(-samples * 16_000 // rate)
    for derived in (lambda *size: placeholder_of(MEL, TOKEN, *size), lambda *size: expected_text(MEL, TOKEN, size)):
        outcomes = []
        for size in ((samples, rate), (resampled, 16_000)):
            try:
                outcomes.append(derived(*size))
            except (Refused, CheckFailed):
                outcomes.append("")
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("kind", AUDIO_RULES)
def test_a_rule_of_audio_is_what_the_files_say(kind: str, nested: bool, tmp_path: Path) -> None:
    features = json.loads(listener(kind).feature_extractor.to_json_string())
    name = "processor_config.json" if nested else "preprocessor_config.json"
    (tmp_path / name).write_text(json.dumps({"processor_class": kind, **({"feature_extractor": features} if nested else features)}))
    assert rule_beside(tmp_path, "audio") == MEL
    with pytest.raises(ConfigError, match=f"image_tokens: how many tokens {kind} writes is not known here"):
        rule_beside(tmp_path)


QWEN2_FILM = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 100_352, "max_pixels": 602_112}
QWEN3_FILM = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 4096, "max_pixels": 25_165_824}
SAMPLED = {"fps": 2.0, "max_video_tokens": 20_000}


@cache
def video_processor(kind: str, **options: Any) -> Any:
    """A processor of video whose resizing only notes the size, so that it needs nothing of torchvision."""
    import transformers  # before the stand-ins, as it asks whether torchvision is there

    assert transformers.__version__
    folder = "qwen3_vl" if kind == "Qwen3VLProcessor" else "qwen2_vl"
    before = {*sys.modules}
    stand_in(*(parts := [".".join(TORCHVISION[: count + 1]) for count in range(len(TORCHVISION))]))
    for outer, inner in pairwise(parts):
        setattr(sys.modules[outer], inner.rpartition(".")[2], sys.modules[inner])
    module = import_module(f"transformers.models.{folder}.video_processing_{folder}")
    for name in {*parts} - before:
        del sys.modules[name]
    made = getattr(module, f"{folder[:5].capitalize()}VLVideoProcessor")
    sized = type("Sized", (made.__mro__[1],), {"resize": lambda self, image, size, resample: size})
    return type(made.__name__, (made, sized), {})(
        **{key: dict(value) if isinstance(value, tuple) else value for key, value in options.items()}
    )


TORCHVISION = ("torchvision", "transforms", "v2", "functional")


def film_tokens(kind: str, rule: Qwen2VLVideo, total: int, rate: float, width: int, height: int) -> str:
    """What transformers writes for a video."""
    import torch
    from transformers.video_utils import VideoMetadata

    capped = rule.max_video_tokens is not None
    more = {"max_video_tokens": rule.max_video_tokens} if capped else {}
    numbers = {name: getattr(rule, name) for name in ("patch_size", "merge_size", "temporal_patch_size", "fps", "min_frames", "max_frames")}
    size = (("shortest_edge", rule.min_pixels), ("longest_edge", rule.max_pixels))
    theirs = video_processor(kind, size=size, cap_pixels_per_frame=capped, **numbers, **more)
    about = VideoMetadata(total_num_frames=total, fps=rate)
    about.frames_indices = [*map(int, theirs.sample_frames(about, fps=rule.fps) if rule.fps else range(total))]
    frames = torch.empty((1, len(about.frames_indices), 3, height, width), device="meta")
    factor, step = rule.patch_size * rule.merge_size, rule.temporal_patch_size
    resized = theirs.resize(frames, theirs.size, None, factor=factor, temporal_factor=step, cap_pixels_per_frame=capped)
    grid = [-(-len(about.frames_indices) // step), resized.height // rule.patch_size, resized.width // rule.patch_size]
    around = {"vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"}
    made = bare_processor(kind, None, None, video_processor=theirs, video_token=TOKEN, **around)
    return str(made.replace_video_token({"video_grid_thw": torch.tensor([grid]), "video_metadata": [about]}, 0))


films = st.tuples(
    st.one_of(st.integers(1, 100), st.integers(1, 3000)),
    st.one_of(st.sampled_from([1.0, 23.976023976, 24.0, 25.0, 29.97002997, 30.0]), st.floats(0.2, 120)),
    sides,
    sides,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from([*VIDEO_RULES]),
    st.fixed_dictionaries(
        {
            "patch_size": st.sampled_from([14, 16]),
            "merge_size": st.integers(1, 3),
            "temporal_patch_size": st.integers(1, 3),
            "min_pixels": st.sampled_from([1, 3136, 100_352]),
            "max_pixels": st.sampled_from([100_352, 602_112, 25_165_824]),
            "fps": st.sampled_from([None, 0.5, 1, 2, 3.7, 30]),
            "min_frames": st.sampled_from([1, 4, 8]),
            "max_frames": st.sampled_from([4, 16, 768]),
            "max_video_tokens": st.sampled_from([None, 100, 768, 128_000]),
        }
    ),
    films,
)
def test_video_is_what_transformers_writes(kind: str, numbers: dict[str, Any], size: tuple[int, float, int, int]) -> None:
    if kind == "Qwen3VLProcessor":
        rule: Qwen2VLVideo = Qwen3VLVideo(rule="qwen3_vl_video", **{**numbers, "fps": numbers["fps"] or 2})
    else:
        rule = Qwen2VLVideo(rule="qwen2_vl_video", **numbers)
    try:
        written = film_tokens(kind, rule, *size)
    except (ValueError, ZeroDivisionError, RuntimeError):
        with pytest.raises(Refused, match=r"image_resolution|video_length"):
            placeholder_of(rule, TOKEN, *size)
        with pytest.raises(CheckFailed):
            expected_text(rule, TOKEN, size)
        return
    assert placeholder_of(rule, TOKEN, *size) == written == expected_text(rule, TOKEN, size)


SPARSE = {"processor_class": "Qwen3VLProcessor", "video_processor_type": "Qwen3VLVideoProcessor"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"preprocessor_config": {"processor_class": "Qwen2_5_VLProcessor", "min_pixels": 3136, "max_pixels": 12_845_056, "patch_size": 14}},
         QWEN2_FILM | {"min_pixels": 3136, "max_pixels": 12_845_056}),
        ({"preprocessor_config": {"processor_class": "Qwen2VLProcessor"},
          "video_preprocessor_config": {"processor_class": "Qwen2VLProcessor", "size": {"shortest_edge": 100_352, "longest_edge": 602_112},
                                        "do_sample_frames": True, "fps": 2.0, "cap_pixels_per_frame": True, "max_video_tokens": 20_000}},
         QWEN2_FILM | SAMPLED),
        ({"processor_config": {"processor_class": "Qwen3VLProcessor",
                               "video_processor": {"size": {"shortest_edge": 4096, "longest_edge": 25_165_824}, "patch_size": 16}}},
         QWEN3_FILM),
        ({"video_preprocessor_config": SPARSE}, QWEN3_FILM | {"min_pixels": 131_072, "max_pixels": 786_432}),
        ({"video_preprocessor_config": SPARSE | {"do_sample_frames": False}}, "do_sample_frames is false, so the times of frames are not known"),
        ({"video_preprocessor_config": SPARSE | {"num_frames": 8}}, "num_frames is set, so fps has no effect"),
        ({"video_preprocessor_config": SPARSE | {"do_resize": False}}, "video_tokens: do_resize is false"),
        ({"video_preprocessor_config": {"processor_class": "Qwen2VLProcessor", "do_sample_frames": True}}, "lack fps"),
        ({"preprocessor_config": {"processor_class": "LlavaProcessor"}}, "video_tokens: how many tokens LlavaProcessor writes is not known here"),
    ],
)  # fmt: skip
def test_a_rule_of_video_is_what_the_files_say(files: dict[str, Any], expected: Any, tmp_path: Path) -> None:
    for name, values in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            rule_beside(tmp_path, "video")
    else:
        rule = rule_beside(tmp_path, "video")
        assert {name: getattr(rule, name) for name in expected} == expected


# The rule that a processor's files say, compared with what that processor of transformers writes for pictures.

Image = pytest.importorskip("PIL.Image")
PLACES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
CONTROL = [TOKEN, "<img>", "</img>", "<start_of_image>", "<end_of_image>", "<fake_token_around_image>", "<global-img>", "<video>", *PLACES]
BOUNDS = {"min_pixels": 3136, "max_pixels": 50_000}
CROP = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
SMALL_PINPOINTS = {"image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]}
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
    "LlavaNextProcessor": ("llava_next.LlavaNext", {**CROP, **SMALL_PINPOINTS}, LLAVA, {}),
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
    mark = media_mark(family, "image", rule)
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
        ({"preprocessor_config.json": {"processor_class": "LlavaProcessor", "do_center_crop": False}}, "do_center_crop is false"),
        ({"preprocessor_config.json": {"processor_class": "Qwen2VLProcessor", "do_resize": False}}, "do_resize is false"),
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


# The resolution of an image from its header, compared with the picture that transformers loads.


def picture(kind: str, width: int = 7, height: int = 3, orientation: int | None = None) -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    more = {} if kind in ("GIF", "BMP") else {"exif": exif}
    Image.new("RGB", (width, height)).save(file, kind, **more)
    return file.getvalue()


@pytest.mark.parametrize("orientation", [None, *range(1, 9)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_it_is_that_of_the_picture_that_a_processor_gets(kind: str, orientation: int | None, tmp_path: Path) -> None:
    from transformers.image_utils import load_image

    path = tmp_path / "picture"
    path.write_bytes(picture(kind, orientation=orientation))
    assert resolution_of(path) == load_image(str(path)).size


def test_no_pixel_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, photo = tmp_path / "picture", picture("JPEG", orientation=6)
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    for content, size in ((png(9000, 5000, orientation=8), (5000, 9000)), (photo, (3, 7))):
        path.write_bytes(content)
        assert resolution_of(path) == size


@pytest.mark.parametrize("content", [b"", b"no picture", picture("PNG")[:20], picture("TIFF"), png(1 << 30, 1 << 30), png(0, 9)])
def test_what_has_none_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"unreadable_image: .* needs one of PNG, JPEG"):
        resolution_of(path)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP"]), data=st.data())
def test_damaged_headers_are_read_or_refused(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(picture(kind, orientation=6))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "picture"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        width, height = resolution_of(path)
    except Refused as refused:
        assert refused.reason == "unreadable_image"
    else:
        assert width > 0 and height > 0
