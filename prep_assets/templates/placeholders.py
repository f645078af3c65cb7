"""What a model's processor writes for an image, from its resolution: counts of image tokens, and the tokens that stand around them.

Each rule computes as its processor does, in the same order of operations: a number that floating point rounds otherwise would be another grid.
"""

from __future__ import annotations

import math

from prep_assets.config.image_rules import LARGEST_SIDE, Fixed, Idefics3, ImageRule, InternVL, LlavaNext, Qwen2VL
from prep_assets.errors import Refused


def placeholder_of(rule: ImageRule, token: str, width: int, height: int) -> str:
    """What stands for an image of this resolution; `token` is the image token.

    Raises:
        Refused: ``image_resolution``, where the processor refuses it.
    """
    if isinstance(rule, Fixed):
        return rule.begin + token * rule.tokens + rule.end
    if isinstance(rule, Qwen2VL):
        return token * _merged_patches(rule, width, height)
    if isinstance(rule, LlavaNext):
        return token * _anyres_features(rule, width, height)
    if isinstance(rule, InternVL):
        return rule.begin + token * (rule.image_seq_length * _tiles(rule, width, height)) + rule.end
    return _rows_of_tiles(rule, token, *_rows_and_columns(rule, width, height))


def _merged_patches(rule: Qwen2VL, width: int, height: int) -> int:
    if max(height, width) / min(height, width) > 200:
        detail = f"{width} x {height} pixels: one side is more than 200 times the other, which the processor refuses"
        raise Refused("image_resolution", detail, stage="render")
    factor = rule.patch_size * rule.merge_size
    rows, columns = round(height / factor), round(width / factor)
    if rows * columns * factor * factor > rule.max_pixels:
        beta = math.sqrt((height * width) / rule.max_pixels)
        rows, columns = (max(1, math.floor(side / beta / factor)) for side in (height, width))
    elif rows * columns * factor * factor < rule.min_pixels:
        beta = math.sqrt(rule.min_pixels / (height * width))
        rows, columns = (math.ceil(side * beta / factor) for side in (height, width))
    return rows * columns


def _anyres_features(rule: LlavaNext, width: int, height: int) -> int:
    grid_height, grid_width = max(rule.image_grid_pinpoints, key=lambda grid: _fit(grid, width, height))
    side = rule.image_size // rule.patch_size
    rows, columns = side * (grid_height // rule.image_size), side * (grid_width // rule.image_size)
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    lines = rows * columns + rows
    whole = side * side + rule.num_additional_image_tokens
    return lines + whole - (rule.vision_feature_select_strategy == "default")


def _fit(grid: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """How well a grid takes an image: pixels that are used, then pixels that are not, fewer first."""
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
    nearest, best = math.inf, 1
    for columns, rows in sorted(grids, key=math.prod):
        off = abs(width / height - columns / rows)
        # of grids of one shape the larger, while the image has more than half of its pixels
        larger = off == nearest and width * height > 0.5 * rule.tile_height * rule.tile_width * columns * rows
        if off < nearest or larger:
            nearest, best = off, columns * rows
    return best if best == 1 else best + 1


def _rows_and_columns(rule: Idefics3, width: int, height: int) -> tuple[int, int]:
    if not rule.do_image_splitting:
        return 0, 0
    width, height = _scaled(width, height, rule.longest_edge)
    if max(width, height) > LARGEST_SIDE:
        width, height = _bounded(width, height)
    ratio, tile = width / height, rule.tile
    if width >= height:
        columns = math.ceil(width / tile)
        rows = math.ceil(int(columns * tile / ratio) / tile)
    else:
        rows = math.ceil(height / tile)
        columns = math.ceil(int(rows * tile * ratio) / tile)
    return (rows, columns) if rows > 1 or columns > 1 else (0, 0)


def _scaled(width: int, height: int, longest: int) -> tuple[int, int]:
    """The longer side at `longest`, the other one even."""
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    return max(width, 1), max(height, 1)


def _bounded(width: int, height: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height:
        return LARGEST_SIDE, max(1, int(LARGEST_SIDE / ratio))
    return max(1, int(LARGEST_SIDE * ratio)), LARGEST_SIDE


def _rows_of_tiles(rule: Idefics3, token: str, rows: int, columns: int) -> str:
    tile = token * rule.image_seq_len
    cells = [
        "".join(f"{rule.fake_image_token}<row_{row + 1}_col_{column + 1}>{tile}" for column in range(columns)) + "\n" for row in range(rows)
    ]
    whole = f"{rule.fake_image_token}{rule.global_image_token}{tile}{rule.fake_image_token}"
    return "".join(cells) + ("\n" if rows else "") + whole
