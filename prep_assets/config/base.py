"""The base of all configuration models, the largest values of numbers, and the rules for image tokens."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from prep_assets.caches import bounded_cache

# The base model, and the largest values of numbers.

MOST, LONGEST = 10**12, 1 << 24
"""The largest value of a count; the largest number of tokens held in memory at a time."""
MOST_WORKERS, MOST_EPOCHS, MOST_PATCHES, MOST_DOMAINS, MOST_SEED = 4096, 10_000, 65_536, 10_000, 2**63 - 1


class Model(BaseModel):
    """Frozen, and strict about keys and numbers. The docstring below a field says what the option means."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value.values() if isinstance(value, Mapping) else (value,)
        if any(isinstance(element, bool) for element in values) and _is_numeric(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("needs a number, not true or false")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, description in descriptions(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = description
        return schema


def younger(default: Any, **limits: Any) -> Any:
    """A field that older recipes lack: dumps leave it out at its default, so that it makes no store stale."""
    return Field(default=default, exclude_if=lambda value: value == default, **limits)


@bounded_cache("descriptions", 128)
def descriptions(model: type[Model]) -> dict[str, str]:
    """What each field of a model means, on one line. It is read from the source, which takes some milliseconds, so only when somebody wants to know."""
    described: dict[str, str] = {}
    for ancestor in reversed(model.__mro__[: model.__mro__.index(Model)]):
        described |= _field_docstrings(inspect.getsource(sys.modules[ancestor.__module__])).get(ancestor.__name__, {})
    return described


@bounded_cache("docstrings of fields", 32)
def _field_docstrings(source: str) -> dict[str, dict[str, str]]:
    """Class of a module → field → the docstring below it, on one line."""
    return {
        definition.name: {
            ast.unparse(field.target): " ".join(str(below.value.value).split())
            for field, below in pairwise(definition.body)
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        }
        for definition in ast.walk(ast.parse(source))
        if isinstance(definition, ast.ClassDef)
    }


def _is_numeric(hint: Any) -> bool:
    """Whether a type hint is a number, a mapping to numbers, or one of these or null."""
    return hint in (int, float) or any(_is_numeric(argument) for argument in get_args(hint))


# The number of tokens of an image: the rules of processors, with the field names and numbers of their files.

Side = Annotated[int, Field(ge=1, le=MOST_PATCHES)]
Count = Annotated[int, Field(ge=1, le=MOST_PATCHES)]
Pixels = Annotated[int, Field(ge=1, le=MOST)]


class FromProcessor(Model):
    """The rule that the processor's files beside the tokenizer say."""

    rule: Literal["processor"]
    """As processor_config.json and preprocessor_config.json in the tokenizer's folder say."""


class Fixed(Model):
    """Every image has the same tokens: LLaVA 1.5, Gemma 3, Llama 3.2."""

    rule: Literal["fixed"]
    """Every image has the same tokens."""
    tokens: Count
    """How many image tokens."""
    begin: str = ""
    """Text before them, e.g. "\\n\\n<start_of_image>"."""
    end: str = ""
    """Text after them, e.g. "<end_of_image>\\n\\n"."""
    mark: str | None = None
    """The token that the template writes for an image; null: the image token."""


class Qwen2VL(Model):
    """Qwen2-VL, 2.5-VL and 3-VL: sides in whole patches, the image between two numbers of pixels."""

    rule: Literal["qwen2_vl"]
    """Patches of the resized image; merge_size squared of them are one token."""
    patch_size: Side
    """Side of a patch in pixels."""
    merge_size: Side
    """Patches merged along each side."""
    min_pixels: Pixels
    """Fewest pixels of the resized image."""
    max_pixels: Pixels
    """Most pixels of the resized image."""

    @model_validator(mode="after")
    def _in_order(self) -> Qwen2VL:
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is above max_pixels {self.max_pixels}")
        return self


class LlavaNext(Model):
    """LLaVA-NeXT (anyres): the whole image once, and again in tiles, with the padding left out and a token at the end of each line."""

    rule: Literal["llava_next"]
    """The image as one tile, and in the grid of tiles that fits it best."""
    image_size: Side
    """Side of a tile in pixels."""
    patch_size: Side
    """Side of a patch in pixels."""
    image_grid_pinpoints: tuple[tuple[Side, Side], ...] = Field(min_length=1, max_length=1024)
    """Height and width of each grid of tiles."""
    num_additional_image_tokens: Annotated[int, Field(ge=0, le=MOST_PATCHES)]
    """Further tokens of the encoder: 1, its CLS."""
    vision_feature_select_strategy: Literal["default", "full"]
    """default drops the first token; full keeps it."""


class InternVL(Model):
    """InternVL: tiles in the grid whose shape is nearest, and the whole image once more."""

    rule: Literal["internvl"]
    """Tiles in the grid whose shape is nearest to the image's."""
    image_seq_length: Count
    """Image tokens of a tile."""
    tile_height: Side
    """Height of a tile in pixels."""
    tile_width: Side
    """Width of a tile in pixels."""
    min_patches: Count
    """Fewest tiles."""
    max_patches: Annotated[int, Field(ge=1, le=256)]
    """Most tiles; 1: images are not cut."""
    begin: str = "<img>"
    """Token before the tiles."""
    end: str = "</img>"
    """Token after them."""

    @model_validator(mode="after")
    def _in_order(self) -> InternVL:
        if self.min_patches > self.max_patches:
            raise ValueError(f"min_patches {self.min_patches} is above max_patches {self.max_patches}")
        return self


class Idefics3(Model):
    """Idefics 3 and SmolVLM: rows of tiles, each with a token that says where it stands, then the whole image."""

    rule: Literal["idefics3"]
    """Rows of tiles, then the whole image."""
    image_seq_len: Count
    """Image tokens of a tile."""
    longest_edge: Annotated[int, Field(ge=1, le=MOST_PATCHES)]
    """Longest side of the resized image in pixels."""
    tile: Side
    """Side of a tile in pixels: max_image_size of the processor."""
    do_image_splitting: bool = True
    """false: every image is one tile."""
    fake_image_token: str = "<fake_token_around_image>"
    """Token before each tile and after the last."""
    global_image_token: str = "<global-img>"
    """Token before the whole image."""


class MelFrames(Model):
    """Qwen2-Audio and Qwen2.5-Omni: frames of Whisper's feature extractor, halved twice by convolutions."""

    rule: Literal["mel_frames"]
    """Frames of the mel spectrogram, halved twice; for audio."""
    sampling_rate: Pixels
    """Samples per second that the processor takes; files are resampled to them."""
    hop_length: Count
    """Samples between two frames."""
    chunk_length: Count
    """Seconds that the processor hears; a record with longer audio is rejected."""


class Qwen2VLVideo(Model):
    """Qwen2-VL and 2.5-VL: frames sampled, resized as images are, and merged in space and time."""

    rule: Literal["qwen2_vl_video"]
    """Patches of the resized frames, merged in space and time; for video."""
    patch_size: Side
    """Side of a patch in pixels."""
    merge_size: Side
    """Patches merged along each side."""
    temporal_patch_size: Count
    """Frames merged into one."""
    min_pixels: Pixels
    """Fewest pixels of a resized frame."""
    max_pixels: Pixels
    """Most pixels of a resized frame."""
    fps: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Frames per second that are sampled; null: all frames are taken."""
    min_frames: Count = 4
    """Fewest frames that are sampled."""
    max_frames: Count = 768
    """Most frames that are sampled."""
    max_video_tokens: Pixels | None = None
    """The processor's number with cap_pixels_per_frame, which gives frames of long videos fewer pixels; null: without the cap."""


class Qwen3VLVideo(Qwen2VLVideo):
    """Qwen3-VL: frames sampled from the first to the last, resized by the pixels of all, each pair with its time and borders of its own."""

    rule: Literal["qwen3_vl_video"]  # type: ignore[assignment]
    """As qwen2_vl_video, with the seconds of each pair of frames; pixels are those of all frames."""
    fps: Annotated[float, Field(gt=0, le=1000)] = 2
    """Frames per second that are sampled."""
    begin: str = Field(default="<|vision_start|>", min_length=1)
    """Token before the tokens of a frame."""
    end: str = Field(default="<|vision_end|>", min_length=1)
    """Token after them."""


LARGEST_SIDE = 4096
"""The longest side to which Idefics 3 resizes an image."""


def tokens_around(rule: ImageRule) -> tuple[str, ...]:
    """The tokens other than the image token that a placeholder may contain, and the mark that a template writes for it."""
    if isinstance(rule, Idefics3):
        most_tiles = -(-min(rule.longest_edge, LARGEST_SIDE) // rule.tile) if rule.do_image_splitting else 0
        tile_tokens = (f"<row_{row + 1}_col_{column + 1}>" for row in range(most_tiles) for column in range(most_tiles))
        return (rule.fake_image_token, rule.global_image_token, *tile_tokens)
    texts = (rule.begin, rule.end) if isinstance(rule, Fixed | InternVL | Qwen3VLVideo) else ()
    mark = rule.mark if isinstance(rule, Fixed) else None
    return tuple(dict.fromkeys(text.strip() for text in (*texts, mark or "") if text.strip()))


ImageRule = Fixed | Qwen2VL | LlavaNext | InternVL | Idefics3 | MelFrames | Qwen2VLVideo | Qwen3VLVideo
RULES = {get_args(model.model_fields["rule"].annotation)[0]: model for model in (FromProcessor, *get_args(ImageRule))}


def _rule_name(value: object) -> object:
    return value.get("rule") if isinstance(value, Mapping) else getattr(value, "rule", None)


def _one_of(*names: str) -> Any:
    return Discriminator(
        _rule_name, custom_error_type="rule", custom_error_message=f"needs a rule, one of processor, fixed, {', '.join(names)}"
    )


_OfAnyKind = Annotated[FromProcessor, Tag("processor")] | Annotated[Fixed, Tag("fixed")]
ImageTokens = Annotated[
    _OfAnyKind
    | Annotated[Qwen2VL, Tag("qwen2_vl")]
    | Annotated[LlavaNext, Tag("llava_next")]
    | Annotated[InternVL, Tag("internvl")]
    | Annotated[Idefics3, Tag("idefics3")],
    _one_of("qwen2_vl", "llava_next", "internvl", "idefics3"),
]
AudioTokens = Annotated[_OfAnyKind | Annotated[MelFrames, Tag("mel_frames")], _one_of("mel_frames")]
VideoTokens = Annotated[
    _OfAnyKind | Annotated[Qwen2VLVideo, Tag("qwen2_vl_video")] | Annotated[Qwen3VLVideo, Tag("qwen3_vl_video")],
    _one_of("qwen2_vl_video", "qwen3_vl_video"),
]


# Options that have no effect.


class Rule(NamedTuple):
    """The path of an option, a test for configurations in which it has no effect, and the reason with the remedy."""

    path: str
    idle: Callable[[Any], bool]
    why: str
