"""How many tokens stand for an image, derived a second time: each processor's way is followed in pixels, as it resizes, cuts and pads the picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor, sqrt

from prep_assets.config.image_rules import Fixed, Idefics3, ImageRule, InternVL, LlavaNext, Qwen2VL
from prep_assets.errors import CheckFailed
from prep_assets.samples import IMAGE, Region, Sample

Size = tuple[int, int]
"""Width and height in pixels."""
ANY_SIZE: Size = (1, 1)
"""Where the rule asks for none."""
LARGEST = 4096
"""Idefics 3 resizes no image beyond it."""
ONE_TILE = (0, 0)
_DIGITS = 7


def counted_again(sample: Sample, rule: ImageRule | None, token: str, size_of: Callable[[str], Size | None]) -> Sample:
    """The sample with what must stand for each image that is shown.

    Args:
        size_of: resolution of the image at a path; `None` where only the row can say it.

    Raises:
        CheckFailed: the resolution is not known, or the processor refuses it.
    """
    if rule is None:
        return sample

    def again(region: Region) -> Region:
        if region.kind != IMAGE or region.drop:
            return region
        size = None if isinstance(rule, Fixed) else size_of(region.text) or region.size
        if size is None and not isinstance(rule, Fixed):
            raise CheckFailed(f"nothing says the resolution of {region.text[:200]!r}")
        if size is not None and region.size not in (None, size):
            raise CheckFailed(f"{region.text[:200]!r} has {size} pixels, its row says {region.size}")
        return replace(region, size=size, placeholder=expected_text(rule, token, size or ANY_SIZE))

    return replace(sample, turns=tuple(replace(turn, regions=tuple(map(again, turn.regions))) for turn in sample.turns))


def expected_text(rule: ImageRule, token: str, size: Size) -> str:
    """What must stand for an image of this size."""
    width, height = size
    match rule:
        case Fixed():
            return "".join((rule.begin, *[token] * rule.tokens, rule.end))
        case Qwen2VL():
            return token * _grid(rule, width, height)
        case LlavaNext():
            return token * _features(rule, width, height)
        case InternVL():
            return "".join((rule.begin, *[token] * rule.image_seq_length * _pictures(rule, width, height), rule.end))
        case Idefics3():
            return _listed(rule, token, *_cut(rule, width, height))


def _grid(rule: Qwen2VL, width: int, height: int) -> int:
    """Resize to whole factors, then divide into merged patches."""
    low, high = sorted((width, height))
    if high / low > 200:
        raise CheckFailed(f"{width} x {height} pixels are refused by the processor")
    unit = rule.patch_size * rule.merge_size
    sides = [round(side / unit) * unit for side in (height, width)]
    if sides[0] * sides[1] > rule.max_pixels:
        shrink = sqrt(height * width / rule.max_pixels)
        sides = [max(unit, floor(side / shrink / unit) * unit) for side in (height, width)]
    elif sides[0] * sides[1] < rule.min_pixels:
        grow = sqrt(rule.min_pixels / (height * width))
        sides = [ceil(side * grow / unit) * unit for side in (height, width)]
    patches = (sides[0] // rule.patch_size) * (sides[1] // rule.patch_size)
    return patches // rule.merge_size**2


def _features(rule: LlavaNext, width: int, height: int) -> int:
    """Choose the canvas, and take off the lines of patches that are padding."""

    def shown(canvas: Size) -> Size:
        scale = min(canvas[1] / width, canvas[0] / height)
        return min(int(width * scale) * int(height * scale), width * height), -canvas[0] * canvas[1]

    per_tile = rule.image_size // rule.patch_size
    down, across = (per_tile * (side // rule.image_size) for side in max(rule.image_grid_pinpoints, key=shown))
    above = (down - int(round(height * (across / width), _DIGITS))) // 2
    beside = (across - int(round(width * (down / height), _DIGITS))) // 2
    down, across = down - 2 * max(0, above), across - 2 * max(0, beside)
    ends_of_lines = down
    features = per_tile**2 + rule.num_additional_image_tokens + down * across + ends_of_lines
    return features - 1 if rule.vision_feature_select_strategy == "default" else features


def _pictures(rule: InternVL, width: int, height: int) -> int:
    """The tiles of the grid that is nearest in shape, and the whole picture where there are several."""
    grids = [(x, y) for x in range(1, rule.max_patches + 1) for y in range(1, rule.max_patches // x + 1) if x * y >= rule.min_patches]
    off = {(x, y): abs(width / height - x / y) for x, y in grids}
    nearest = [x * y for x, y in grids if off[x, y] == min(off.values())]
    enough = [tiles for tiles in nearest if Fraction(tiles * rule.tile_height * rule.tile_width, 2) < width * height]
    tiles = max([min(nearest), *enough])
    return tiles if tiles == 1 else tiles + 1


def _cut(rule: Idefics3, width: int, height: int) -> tuple[int, int]:
    """Rows and columns of tiles, after both resizes; none where the picture is one tile."""
    if not rule.do_image_splitting:
        return ONE_TILE
    for most, even in ((rule.longest_edge, True), (LARGEST, False)):
        if even or max(width, height) > most:
            width, height = _with_longest(width, height, most, even=even)
    shape, tile = width / height, rule.tile
    if width >= height:
        width = ceil(width / tile) * tile
        height = ceil(int(width / shape) / tile) * tile
    else:
        height = ceil(height / tile) * tile
        width = ceil(int(height * shape) / tile) * tile
    if width <= tile and height <= tile:
        return ONE_TILE
    return height // tile, width // tile


def _with_longest(width: int, height: int, most: int, *, even: bool) -> Size:
    shape = width / height
    shorter = int(most / shape) if width >= height else int(most * shape)
    shorter = max(1, shorter + (shorter % 2 if even else 0))
    return (most, shorter) if width >= height else (shorter, most)


def _listed(rule: Idefics3, token: str, rows: int, columns: int) -> str:
    picture = token * rule.image_seq_len
    written = []
    for row in range(1, rows + 1):
        written += [f"{rule.fake_image_token}<row_{row}_col_{column}>{picture}" for column in range(1, columns + 1)] + ["\n"]
    if written:
        written.append("\n")
    return "".join([*written, rule.fake_image_token, rule.global_image_token, picture, rule.fake_image_token])
