"""Options of images, audio and video: their control tokens, the rules of processors for the number of tokens, and the folder of the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from prep_assets.config.base import MOST, MOST_PATCHES, Model, Rule, apply_rule
from prep_assets.errors import ConfigError
from prep_assets.samples import AUDIO, IMAGE, VIDEO

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
BY_NAME = {get_args(model.model_fields["rule"].annotation)[0]: model for model in (FromProcessor, *get_args(ImageRule))}


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


class Images(Model):
    """What families have whose records may hold images."""

    image_token: str | None = None
    """Control token that stands for an image. null: records with images are rejected."""
    image_patches: int = Field(default=1, ge=1, le=MOST_PATCHES)
    """Number of these tokens per image."""
    image_tokens: ImageTokens | None = None
    """The processor's rule for the number of tokens, e.g. {rule: processor}, from preprocessor_config.json. null: image_patches."""


class Media(Images):
    """What families have whose records may hold images, audio and video."""

    audio_token: str | None = None
    """Control token that stands for audio. null: records with audio are rejected."""
    audio_tokens: AudioTokens | None = None
    """The processor's rule for the number of its tokens, e.g. {rule: processor}; needed with audio_token."""
    video_token: str | None = None
    """Control token that stands for video. null: records with video are rejected."""
    video_tokens: VideoTokens | None = None
    """The processor's rule for the number of its tokens, e.g. {rule: processor}; needed with video_token."""


class Folder(Model):
    """What a domain has whose rows may name files."""

    image_dir: str | None = None
    """Folder of images, audio and video, relative to this file. null: only URLs of images are accepted."""


MODELS: Mapping[str, type[Model]] = {"pretrain": Images, "sft": Media, "domain": Folder}
"""Family, or domain → the options that it has besides."""


RULES = (
    *(
        Rule(name, lambda family: not _takes_images(family), "records with images are refused. Set image_token")
        for name in ("image_patches", "image_tokens")
    ),
    Rule("audio_tokens", lambda family: family.audio_token is None, "records with audio are refused. Set audio_token"),
    Rule("video_tokens", lambda family: family.video_token is None, "records with video are refused. Set video_token"),
    Rule(
        "image_patches",
        lambda family: family.image_tokens is not None,
        "image_tokens says how many tokens stand for an image. Leave one of the two out",
    ),
)


def faults(family: Any) -> Iterator[str]:
    """The faults of these options in a family's configuration: one line each, beginning with the option's path."""
    for rule in RULES:
        yield from apply_rule(family, rule, family)
    for name, domain in family.domains.items():
        if domain.image_dir is not None and not (_takes_images(family) or any(_has(family, option) for option in AUDIO_AND_VIDEO)):
            remedy = "Set image_token" if isinstance(family, Images) else "Leave it out"
            yield f"domains.{name}.image_dir: has no effect here: records with images are refused. {remedy}"
    for name in AUDIO_AND_VIDEO:
        if _has(family, name) and not _has(family, f"{name}s"):
            yield f"{name}: needs {name}s, the rule for their number, e.g. {name}s: {{rule: processor}}"


AUDIO_AND_VIDEO = ("audio_token", "video_token")


def _has(family: Any, option: str) -> bool:
    return getattr(family, option, None) is not None


def _takes_images(family: Any) -> bool:
    return bool(getattr(family, "image_token", None) or getattr(family, "template_options", {}).get("image_token"))


def image_token(family: Model) -> str | None:
    """The control token of images; `None` if the family rejects images. ``template_options.image_token`` counts as well.

    Raises:
        ConfigError: two different tokens.
    """
    if not isinstance(family, Images):
        return None
    legacy = getattr(family, "template_options", {}).get("image_token")
    if family.image_token and legacy and family.image_token != legacy:
        raise ConfigError(f"image_token is {family.image_token!r}, template_options.image_token {legacy!r}. Leave the second one out")
    return family.image_token or legacy


def media_tokens(family: Model) -> dict[str, str]:
    """Kind → the control token that stands for files of that kind, of those that the family takes."""
    others = ((kind, getattr(family, f"{kind}_token", None)) for kind in (AUDIO, VIDEO))
    return {kind: token for kind, token in ((IMAGE, image_token(family)), *others) if token}


def media_mark(family: Model, kind: str, rule: ImageRule | None) -> str:
    """The text in place of a file: of an image its token, once for each patch, or with a `rule`, which counts the tokens, the single token that the
    template writes. ``""`` if the family rejects the kind."""
    token = media_tokens(family).get(kind, "")
    if rule is not None:
        return rule.mark or token if isinstance(rule, Fixed) else token
    return token * (family.image_patches if isinstance(family, Images) else 1)
