"""Rules of processors: the placeholder that a processor writes for an image, audio or video, and its number of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.media.options import (
    LARGEST_SIDE,
    Fixed,
    Idefics3,
    ImageRule,
    InternVL,
    LlavaNext,
    MelFrames,
    Qwen2VL,
    Qwen2VLVideo,
    Qwen3VLVideo,
)
from prep_assets.samples import AUDIO, IMAGE, VIDEO
from prep_assets.text.tokenizer_files import read_object

# The rule of a processor, from the files next to its tokenizer.
#
# processor_config.json       processor_class, sizes of placeholders; since transformers 5 the image processor too
# preprocessor_config.json    the image processor; video_preprocessor_config.json that of video, if it has its own

Values = Mapping[str, Any]


def rule_beside(location: Path, kind: str = IMAGE) -> ImageRule:
    """The rule for a kind of files of the processor in the folder of a tokenizer.

    Raises:
        ConfigError: no files of a processor, or the rule of the processor is not known.
    """
    folder = location if location.is_dir() else location.parent
    option, processor = f"{kind}_tokens", read_object(folder / "processor_config.json")
    part, files, known = PROCESSORS[kind]
    nested = processor.get(part)
    images = nested if isinstance(nested, Mapping) else next(filter(None, (read_object(folder / file) for file in files)), {})
    name = processor.get("processor_class") or images.get("processor_class")
    if not name:
        raise ConfigError(
            f"{option}: no processor_config.json or preprocessor_config.json in {folder} names a processor_class. Put the files of the model's "
            f"processor there, or write its rule into {option}"
        )
    if name not in known:
        raise ConfigError(f"{option}: how many tokens {name} writes is not known here. Known: {', '.join(known)}")
    if not images:
        raise ConfigError(f"{option}: {folder} has no preprocessor_config.json, which has the sizes of {name}")
    if images.get("do_resize") is False:
        raise ConfigError(
            f"{option}: do_resize is false in {folder}, so {name} counts otherwise than its rule. Set it to true, or write a rule"
        )
    try:
        return known[str(name)](images, processor)
    except (LookupError, TypeError, ValidationError) as error:
        problem = error.args[0] if isinstance(error, KeyError) else f"{error}"[:200]
        raise ConfigError(f"{option}: the files of {name} in {folder} lack {problem}, or have another value than expected there") from error


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
    without_class_token = processor["vision_feature_select_strategy"] == "default"
    tokens = (crop["height"] // patch) * (crop["width"] // patch) + processor.get("num_additional_image_tokens", 0) - without_class_token
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
    # the processor splits images regardless of the image processor's file
    size, splits = images["size"], processor.get("images_kwargs", {}).get("crop_to_patches", True)
    return InternVL(
        rule="internvl",
        image_seq_length=processor["image_seq_length"],
        tile_height=size["height"],
        tile_width=size["width"],
        min_patches=images["min_patches"] if splits else 1,
        max_patches=images["max_patches"] if splits else 1,
    )


def _idefics3(images: Values, processor: Values) -> ImageRule:
    return Idefics3(
        rule="idefics3",
        image_seq_len=processor["image_seq_len"],
        longest_edge=images["size"]["longest_edge"],
        tile=images["max_image_size"]["longest_edge"],
        do_image_splitting=images.get("do_image_splitting", True),
    )


def _mel_frames(audio: Values, processor: Values) -> ImageRule:
    names = ("sampling_rate", "hop_length", "chunk_length")
    return MelFrames(rule="mel_frames", **{name: audio[name] for name in names})


def _qwen2_video(video: Values, processor: Values) -> ImageRule:
    size = video.get("size") or {"shortest_edge": 128 * 28 * 28, "longest_edge": 768 * 28 * 28}
    bounds = {name: video[name] if video.get(name) is not None else size[edge] for name, edge in QWEN_BOUNDS}
    fps = video["fps"] if video.get("do_sample_frames") else None
    return Qwen2VLVideo(rule="qwen2_vl_video", **bounds, fps=fps, **_video_numbers(video, 14, 128_000))


def _qwen3_video(video: Values, processor: Values) -> ImageRule:
    if video.get("do_sample_frames") is False:
        raise ConfigError("video_tokens: do_sample_frames is false, so the times of frames are not known. Set it to true, or write a rule")
    size = video.get("size") or {"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32}
    bounds = {name: size[edge] for name, edge in QWEN_BOUNDS}
    return Qwen3VLVideo(rule="qwen3_vl_video", **bounds, fps=video.get("fps", 2), **_video_numbers(video, 16, 768))


def _video_numbers(video: Values, patch_size: int, tokens: int) -> dict[str, Any]:
    """Numbers that both generations have, with the defaults of their processors."""
    if video.get("num_frames") is not None:
        raise ConfigError("video_tokens: num_frames is set, so fps has no effect. Set fps to null, or write a rule")
    defaults = {"patch_size": patch_size, "merge_size": 2, "temporal_patch_size": 2, "min_frames": 4, "max_frames": 768}
    cap = video.get("max_video_tokens", tokens) if video.get("cap_pixels_per_frame") else None
    return {**{name: video.get(name, default) for name, default in defaults.items()}, "max_video_tokens": cap}


AUDIO_RULES = dict.fromkeys(("Qwen2AudioProcessor", "Qwen2_5OmniProcessor"), _mel_frames)
VIDEO_RULES = {**dict.fromkeys(("Qwen2VLProcessor", "Qwen2_5_VLProcessor"), _qwen2_video), "Qwen3VLProcessor": _qwen3_video}
RULES: dict[str, Callable[[Values, Values], ImageRule]] = {
    **dict.fromkeys(("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"), _qwen2_vl),
    "LlavaProcessor": _llava,
    "LlavaNextProcessor": _llava_next,
    "Gemma3Processor": _gemma3,
    "InternVLProcessor": _internvl,
    **dict.fromkeys(("Idefics3Processor", "SmolVLMProcessor"), _idefics3),
}
PROCESSORS: dict[str, tuple[str, tuple[str, ...], Mapping[str, Callable[[Values, Values], ImageRule]]]] = {
    IMAGE: ("image_processor", ("preprocessor_config.json",), RULES),
    AUDIO: ("feature_extractor", ("preprocessor_config.json",), AUDIO_RULES),
    VIDEO: ("video_processor", ("video_preprocessor_config.json", "preprocessor_config.json"), VIDEO_RULES),
}
"""Kind of files → its part of processor_config.json, files of its own, the first that is there, and its rules by processor."""


# The placeholder of an image by its resolution, of audio by its length, of video by both: its tokens, and the tokens around them.
#
# Each rule computes as its processor does, in the same order of operations, since another rounding could give another grid.


def placeholder_of(rule: ImageRule, token: str, *size: float) -> str:
    """The placeholder of an image of this width and height, of audio of so many samples at a rate, or of video of so many frames at a rate, of a width
    and height; `token` is that of the kind.

    Raises:
        Refused: ``image_resolution``, if the processor rejects it; ``audio_length``, if it hears a part only, or nothing; ``video_length``, if there are
            too few frames.
    """
    if isinstance(rule, Fixed):
        return rule.begin + token * rule.tokens + rule.end
    if isinstance(rule, Qwen2VLVideo):
        return _timed_frames(rule, token, *size) if isinstance(rule, Qwen3VLVideo) else token * _merged_frames(rule, *size)
    width, height = map(int, size)
    if isinstance(rule, MelFrames):
        return token * _halved_frames(rule, width, height)
    if isinstance(rule, Qwen2VL):
        return token * _merged_patches(rule, width, height, rule.max_pixels)
    if isinstance(rule, LlavaNext):
        return token * _anyres_features(rule, width, height)
    if isinstance(rule, InternVL):
        return rule.begin + token * (rule.image_seq_length * _tiles(rule, width, height)) + rule.end
    return _rows_of_tiles(rule, token, *_rows_and_columns(rule, width, height))


def _merged_patches(rule: Qwen2VL | Qwen2VLVideo, width: int, height: int, max_pixels: int, frames: int = 1, step: int = 1) -> int:
    """Merged patches of an image, or of one of so many frames, whose pixels are bounded together."""
    if max(height, width) / min(height, width) > 200:
        detail = f"{width} x {height} pixels: one side is more than 200 times the other, which the processor refuses"
        raise Refused("image_resolution", detail, stage="render")
    factor = rule.patch_size * rule.merge_size
    rows, columns = round(height / factor), round(width / factor)
    pixels = rows * columns * factor * factor * round(frames / step) * step
    if pixels > max_pixels:
        beta = math.sqrt((frames * height * width) / max_pixels)
        rows, columns = (max(1, math.floor(side / beta / factor)) for side in (height, width))
    elif pixels < rule.min_pixels:
        beta = math.sqrt(rule.min_pixels / (frames * height * width))
        rows, columns = (math.ceil(side * beta / factor) for side in (height, width))
    return rows * columns


def _merged_frames(rule: Qwen2VLVideo, total: float, rate: float, width: float, height: float) -> int:
    step, frames, factor = rule.temporal_patch_size, int(total), rule.patch_size * rule.merge_size
    if rule.fps is not None:
        most = min(rule.max_frames, frames) // step * step
        wanted = min(max(total / rate * rule.fps, rule.min_frames), most) // step * step
        frames = math.ceil(total / (total / wanted)) if wanted else 0  # as torch.arange counts them
    if not frames:
        raise _too_short(total, step)
    max_pixels = rule.max_pixels
    if rule.max_video_tokens is not None:
        share = int(rule.max_video_tokens * factor * factor * 0.9) * step // frames
        max_pixels = max(min(max_pixels, share), int(rule.min_pixels * 1.05))
    return -(-frames // step) * _merged_patches(rule, int(width), int(height), max_pixels)


def _timed_frames(rule: Qwen3VLVideo, token: str, total: float, rate: float, width: float, height: float) -> str:
    step, factor = rule.temporal_patch_size, rule.patch_size * rule.merge_size
    frames = min(max(int(total / rate * rule.fps), rule.min_frames), rule.max_frames, int(total))
    if frames < step:
        raise _too_short(total, step)
    if min(width, height) < factor:
        scale = max(factor / height, factor / width)
        width, height = int(width * scale), int(height * scale)
    max_pixels = rule.max_pixels
    if rule.max_video_tokens is not None:
        share = min(rule.max_video_tokens * factor * factor, max_pixels // frames)
        max_pixels = max(share, int(rule.min_pixels * 1.05)) * frames
    tokens = token * _merged_patches(rule, int(width), int(height), max_pixels, frames, step)
    seconds = [int(index) / rate for index in np.linspace(0, int(total) - 1, frames).round()]
    seconds += seconds[-1:] * (-frames % step)
    times = ((seconds[first] + seconds[first + step - 1]) / 2 for first in range(0, len(seconds), step))
    return "".join(f"<{time:.1f} seconds>{rule.begin}{tokens}{rule.end}" for time in times)


def _too_short(frames: float, least: int) -> Refused:
    return Refused("video_length", f"{int(frames):,} frames; the processor merges {least}", stage="render")


def _halved_frames(rule: MelFrames, samples: int, rate: int) -> int:
    heard = -(-samples * rule.sampling_rate // rate)  # resampling rounds up
    frames = -(-heard // rule.hop_length)
    if not 3 <= frames <= rule.chunk_length * rule.sampling_rate // rule.hop_length:
        detail = f"{samples / rate:g} seconds are {frames:,} frames; the processor hears from 3 frames to {rule.chunk_length} seconds"
        raise Refused("audio_length", detail, stage="render")
    return ((frames - 1) // 2 - 1) // 2 + 1


def _anyres_features(rule: LlavaNext, width: int, height: int) -> int:
    grid_height, grid_width = max(rule.image_grid_pinpoints, key=lambda grid: _fit(grid, width, height))
    side = rule.image_size // rule.patch_size
    rows, columns = side * (grid_height // rule.image_size), side * (grid_width // rule.image_size)
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    features = rows * columns + rows
    thumbnail = side * side + rule.num_additional_image_tokens
    return features + thumbnail - (rule.vision_feature_select_strategy == "default")


def _fit(grid: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """Sort key for how well a grid fits an image: more used pixels first, then fewer unused ones."""
    scale = min(grid[1] / width, grid[0] / height)
    used = min(int(width * scale) * int(height * scale), width * height)
    return used, used - grid[0] * grid[1]


def _tiles(rule: InternVL, width: int, height: int) -> int:
    if rule.max_patches == 1:
        return 1
    grids = [
        (columns, rows)
        for columns in range(1, rule.max_patches + 1)
        for rows in range(1, rule.max_patches + 1)
        if rule.min_patches <= columns * rows <= rule.max_patches
    ]
    smallest, tiles = math.inf, 1
    for columns, rows in sorted(grids, key=math.prod):
        difference = abs(width / height - columns / rows)
        # of grids with one ratio take the larger, if the image has more than half of its pixels
        is_larger = difference == smallest and width * height > 0.5 * rule.tile_height * rule.tile_width * columns * rows
        if difference < smallest or is_larger:
            smallest, tiles = difference, columns * rows
    return tiles if tiles == 1 else tiles + 1


def _rows_and_columns(rule: Idefics3, width: int, height: int) -> tuple[int, int]:
    if not rule.do_image_splitting:
        return 0, 0
    ratio = width / height
    if width >= height:  # the longer side as configured, the other one even
        width, height = rule.longest_edge, int(rule.longest_edge / ratio)
        height = max(1, height + height % 2)
    else:
        width, height = int(rule.longest_edge * ratio), rule.longest_edge
        width = max(1, width + width % 2)
    if max(width, height) > LARGEST_SIDE:
        ratio, is_wide = width / height, width >= height
        width, height = (LARGEST_SIDE, max(1, int(LARGEST_SIDE / ratio))) if is_wide else (max(1, int(LARGEST_SIDE * ratio)), LARGEST_SIDE)
    ratio, tile = width / height, rule.tile
    if width >= height:
        columns = math.ceil(width / tile)
        rows = math.ceil(int(columns * tile / ratio) / tile)
    else:
        rows = math.ceil(height / tile)
        columns = math.ceil(int(rows * tile * ratio) / tile)
    return (rows, columns) if rows > 1 or columns > 1 else (0, 0)


def _rows_of_tiles(rule: Idefics3, token: str, rows: int, columns: int) -> str:
    tile = token * rule.image_seq_len
    tile_rows = [
        "".join(f"{rule.fake_image_token}<row_{row + 1}_col_{column + 1}>{tile}" for column in range(columns)) + "\n" for row in range(rows)
    ]
    global_tile = f"{rule.fake_image_token}{rule.global_image_token}{tile}{rule.fake_image_token}"
    return "".join(tile_rows) + ("\n" if rows else "") + global_tile
