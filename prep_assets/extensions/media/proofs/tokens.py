"""Tokens of images, audio and video derived a second time: how many each file has, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil, floor, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import CheckFailed
from prep_assets.extensions.media.options import (
    Fixed,
    Idefics3,
    ImageRule,
    InternVL,
    LlavaNext,
    MelFrames,
    Qwen2VL,
    Qwen2VLVideo,
    Qwen3VLVideo,
    tokens_around,
)
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import IMAGE, Region, Sample, changed
from prep_assets.stores.images import Image, Images
from prep_assets.stores.table import Table

# Number of tokens of an image, derived a second time: follows in pixels how each processor resizes, cuts and pads the picture.

Size = tuple[int, int]
Measures = tuple[float, ...]
"""Width and height in pixels; samples of audio and their rate; frames of a video, their rate, width and height."""
ANY_SIZE: Size = (1, 1)
"""Size for rules that need none."""
LARGEST = 4096
"""Idefics 3 resizes no image beyond this edge."""
ONE_TILE = (0, 0)
_DIGITS = 7


def counted_again(
    sample: Sample, rules: Mapping[str, ImageRule], tokens: Mapping[str, str], size_of: Callable[[str, str], Measures | None]
) -> Sample:
    """Return the sample with the placeholder of each shown file.

    Args:
        rules, tokens: by kind.
        size_of: kind and path → size of the file; `None` where only the row has it.

    Raises:
        CheckFailed: the size is unknown, or the processor rejects it.
    """
    if not rules:
        return sample

    def with_placeholder(region: Region) -> Region:
        if region.kind not in rules or region.drop:
            return region
        rule = rules[region.kind]
        of_any_size = isinstance(rule, Fixed) and region.kind == IMAGE
        size = None if of_any_size else size_of(region.kind, region.text) or _stated(region)
        if size is None and not of_any_size:
            raise CheckFailed(f"nothing says the size of {region.text[:200]!r}")
        if size is not None and region.kind == IMAGE and region.size not in (None, size):
            raise CheckFailed(f"{region.text[:200]!r} has {size} pixels, its row says {region.size}")
        if (
            size is not None
            and region.kind != IMAGE
            and region.size is not None
            and abs(size[0] - region.size[0] * size[1]) > size[1] / 20 + 1
        ):
            raise CheckFailed(
                f"{region.text[:200]!r} has {size[0]:,} samples or frames, {size[1]:,} per second, its row says {region.size[0]:g} seconds"
            )
        return changed(region, size=size, placeholder=expected_text(rule, tokens[region.kind], size or ANY_SIZE))

    return changed(sample, turns=tuple(changed(turn, regions=tuple(map(with_placeholder, turn.regions))) for turn in sample.turns))


def _stated(region: Region) -> Size | None:
    """The resolution of an image that its row has."""
    if region.kind != IMAGE or region.size is None:
        return None
    return int(region.size[0]), int(region.size[1])


def expected_text(rule: ImageRule, token: str, size: Measures) -> str:
    """Return the placeholder of a file of this size."""
    match rule:
        case Qwen3VLVideo():
            return "".join(f"<{second} seconds>{rule.begin}{token * count}{rule.end}" for second, count in _watched(rule, *size))
        case Qwen2VLVideo():
            return "".join(token * count for _, count in _watched(rule, *size))
    width, height = map(int, size)
    match rule:
        case Fixed():
            return "".join((rule.begin, *[token] * rule.tokens, rule.end))
        case Qwen2VL():
            return token * _grid(rule, width, height, rule.max_pixels)
        case LlavaNext():
            return token * _features(rule, width, height)
        case InternVL():
            return "".join((rule.begin, *[token] * rule.image_seq_length * _pictures(rule, width, height), rule.end))
        case Idefics3():
            return _listed(rule, token, *_cut(rule, width, height))
        case MelFrames():
            return token * _heard(rule, width, height)


def _heard(rule: MelFrames, samples: int, rate: int) -> int:
    """Count frames that begin before the end of the audio, then two convolutions of stride 2: the first padded, of width 3, the second a pooling."""
    seconds = Fraction(samples, rate)
    resampled = ceil(seconds * rule.sampling_rate)
    if resampled > rule.chunk_length * rule.sampling_rate:
        raise CheckFailed(f"{float(seconds):g} seconds are more than the {rule.chunk_length} that the processor hears")
    frames = len(range(0, resampled, rule.hop_length))
    convolved = len(range(0, frames, 2))
    pooled = convolved // 2
    if not pooled:
        raise CheckFailed(f"{float(seconds):g} seconds are too short to be heard")
    return pooled


def _watched(rule: Qwen2VLVideo, frames: float, rate: float, width: float, height: float) -> list[tuple[str, int]]:
    """Return the time of each group of merged frames, its middle, and its number of tokens."""
    shown, unit, together = np.arange(frames), rule.patch_size * rule.merge_size, rule.temporal_patch_size
    wanted = np.inf if rule.fps is None else min(max(frames / rate * rule.fps, rule.min_frames), rule.max_frames, frames)
    wide, high, most, of_all = int(width), int(height), rule.max_pixels, 1
    if isinstance(rule, Qwen3VLVideo):
        shown = np.round(np.linspace(0, frames - 1, int(wanted)))
        if len(shown) < together:
            raise CheckFailed(f"{len(shown)} frames are too few for the processor")
        enlarge = max(1.0, unit / wide, unit / high)
        wide, high, of_all = int(wide * enlarge), int(high * enlarge), len(shown)
        if rule.max_video_tokens is not None:
            per_frame = min(rule.max_video_tokens * unit**2, most // of_all)
            most = of_all * max(per_frame, int(rule.min_pixels * 1.05))
    else:
        if rule.fps is not None:
            if not (groups := int(wanted) // together):
                raise CheckFailed(f"{frames:g} frames are too few for the processor")
            shown = np.arange(0, frames, frames / (groups * together))
        if rule.max_video_tokens is not None:
            of_each = int(rule.max_video_tokens * unit**2 * 0.9) * together // len(shown)
            most = max(int(rule.min_pixels * 1.05), min(most, of_each))
    groups_of = np.pad(shown, (0, -len(shown) % together), mode="edge").reshape(-1, together)
    count = _grid(rule, wide, high, most, of_all, together if of_all > 1 else 1)
    return [(f"{(first / rate + last / rate) / 2:.1f}", count) for first, last in groups_of[:, [0, -1]].tolist()]


def _grid(rule: Qwen2VL | Qwen2VLVideo, width: int, height: int, most: int, frames: int = 1, together: int = 1) -> int:
    """Resize to multiples of a merged patch, all of `frames` alike, then count the merged patches of one."""
    low, high = sorted((width, height))
    if high / low > 200:
        raise CheckFailed(f"{width} x {height} pixels are refused by the processor")
    unit = rule.patch_size * rule.merge_size
    even = together * round(frames / together)
    sides = [round(side / unit) * unit for side in (height, width)]
    if sides[0] * sides[1] * even > most:
        shrink = sqrt(frames * height * width / most)
        sides = [max(unit, floor(side / shrink / unit) * unit) for side in (height, width)]
    elif sides[0] * sides[1] * even < rule.min_pixels:
        grow = sqrt(rule.min_pixels / (frames * height * width))
        sides = [ceil(side * grow / unit) * unit for side in (height, width)]
    patches = (sides[0] // rule.patch_size) * (sides[1] // rule.patch_size)
    return patches // rule.merge_size**2


def _features(rule: LlavaNext, width: int, height: int) -> int:
    """Choose the canvas, and subtract the rows and columns of patches that are padding."""

    def shown(canvas: Size) -> Size:
        scale = min(canvas[1] / width, canvas[0] / height)
        return min(int(width * scale) * int(height * scale), width * height), -canvas[0] * canvas[1]

    per_tile = rule.image_size // rule.patch_size
    down, across = (per_tile * (side // rule.image_size) for side in max(rule.image_grid_pinpoints, key=shown))
    above = (down - int(round(height * (across / width), _DIGITS))) // 2
    left = (across - int(round(width * (down / height), _DIGITS))) // 2
    down, across = down - 2 * max(0, above), across - 2 * max(0, left)
    ends_of_lines = down
    features = per_tile**2 + rule.num_additional_image_tokens + down * across + ends_of_lines
    return features - 1 if rule.vision_feature_select_strategy == "default" else features


def _pictures(rule: InternVL, width: int, height: int) -> int:
    """Return the tiles of the grid with the nearest aspect ratio, plus the whole picture where there are several."""
    grids = [(x, y) for x in range(1, rule.max_patches + 1) for y in range(1, rule.max_patches // x + 1) if x * y >= rule.min_patches]
    off = {(x, y): abs(width / height - x / y) for x, y in grids}
    nearest = [x * y for x, y in grids if off[x, y] == min(off.values())]
    enough = [tiles for tiles in nearest if Fraction(tiles * rule.tile_height * rule.tile_width, 2) < width * height]
    tiles = max([min(nearest), *enough])
    return tiles if tiles == 1 else tiles + 1


def _cut(rule: Idefics3, width: int, height: int) -> tuple[int, int]:
    """Return rows and columns of tiles, after both resizes; `ONE_TILE` where the picture is one tile."""
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


# Images: each has its untrained run of the image token, which occurs nowhere else; a packed table has the images of its records.

ONE = "\0"
"""A one-character token, for counting."""
Place = tuple[int, int, int]
"""Row, index of the first token in it, number of tokens."""


def check_images(table: Table, ids: Mapping[str, int], rules: Mapping[str, ImageRule] = {}) -> Verdict:
    """Check the images, audio and video of a table with one column of tokens against all of its tokens.

    Args:
        ids: kind → id of its token.
        rules: kind → how many tokens a file has; without one: trust the store.
    """
    token, mixed = tuple(ids.values()), any(map(tokens_around, rules.values()))
    images, used = table.images, table.lengths
    starts = table.columns["tokens"].starts_of(slice(0, len(table)))
    arrays = {
        key: _WithoutPadding(column.values, table.width, used) if table.width else column.values for key, column in table.columns.items()
    }
    fault = image_fault(images, arrays, starts, used, *token, mixed=mixed)
    if fault is None and (rules or len(ids) > 1) and len(images):
        fault = _miscounted(images, arrays["tokens"], starts, ids, rules)
    numbers = {"images": len(images)}
    if fault is not None:
        return Verdict(False, fault, numbers, Worst("images", fault))
    return Verdict(True, f"{len(images):,} images stand where the image token does, untrained", numbers)


def image_fault(
    images: Images, arrays: Any, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], *token: int, mixed: bool = False
) -> str | None:
    """Return what is wrong with the images of a stream, or `None`. Each must be inside its record, cover image tokens only and be masked, and there must be
    no other image tokens.

    Args:
        arrays: ``tokens`` and optionally ``loss_mask`` of the whole stream.
        starts, lengths: int64[n], of its records.
        token: ids of the tokens of images, audio and video.
        mixed: allow other tokens between those of one image.
    """
    record, start, length = (np.asarray(values) for values in (images.record, images.start, images.length))
    if len(images):
        inside = (record >= 0) & (record < len(starts)) & (start >= 0) & (length > 0)
        if not inside.all() or (start + length > lengths[np.where(inside, record, 0)]).any():
            return "an image does not stand inside its record"
        begin = starts[record] + start
        if (np.diff(begin) < length[:-1]).any():
            return "images overlap or are not in order"
    else:
        begin = np.empty(0, np.int64)
    total = int((starts[-1] + lengths[-1]) if len(starts) else 0)
    return _token_fault(arrays, begin, length, total, token, mixed)


def _token_fault(
    arrays: Any,
    begin: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    total: int,
    token: tuple[int, ...],
    mixed: bool,
    block: int = 1 << 22,
) -> str | None:
    for first in range(0, total, block):
        stop = min(first + block, total)
        expected = np.zeros(stop - first + 1, np.int64)
        low, high = np.searchsorted(begin + length, first, "right"), np.searchsorted(begin, stop)
        np.add.at(expected, np.maximum(begin[low:high], first) - first, 1)
        np.add.at(expected, np.minimum(begin[low:high] + length[low:high], stop) - first, -1)
        covered = np.cumsum(expected[:-1]) > 0
        is_image = np.isin(np.asarray(arrays["tokens"][first:stop]), token)
        if (wrong := np.flatnonzero(is_image & ~covered if mixed else is_image != covered)).size:
            at = int(wrong[0])
            return f"token {first + at:,} " + (
                "is the image token, and no image stands there" if is_image[at] else "of an image is another token"
            )
        if "loss_mask" in arrays and (np.asarray(arrays["loss_mask"][first:stop])[covered] != 0).any():
            return "a token of an image is trained"
    return None


def _miscounted(
    images: Images, tokens: Any, starts: Any, ids: Mapping[str, int], rules: Mapping[str, ImageRule], block: int = 1 << 12
) -> str | None:
    """Return the fault of the first file whose number of tokens of its kind does not fit its size, or is 0."""
    known: dict[Any, int] = {}
    begins = starts[np.asarray(images.record)] + np.asarray(images.start)
    ends = begins + np.asarray(images.length)
    for first in range(0, len(images), block):
        numbers = np.arange(first, min(first + block, len(images)))
        low = int(begins[first])
        part = np.asarray(tokens[low : int(ends[numbers[-1]])])
        counts = {}
        for kind, token in ids.items():
            before = np.concatenate([[0], np.cumsum(part == token)])
            counts[kind] = before[ends[numbers] - low] - before[begins[numbers] - low]
        for at, image in enumerate(images.references(numbers)):
            if image.kind not in ids or not (count := int(counts[image.kind][at])):
                return f"image {first + at:,}, {image.path[:100]!r}, is {image.kind}, and has no token of that kind"
            if (rule := rules.get(image.kind)) is None:
                continue
            if image.size is None and not isinstance(rule, Fixed):
                return f"image {first + at:,}, {image.path[:100]!r}, has no {'resolution' if image.kind == IMAGE else 'length'}"
            key = image.kind, image.size
            if key not in known:
                known[key] = expected_text(rule, ONE, image.size or ANY_SIZE).count(ONE)
            if count != known[key]:
                named = "resolution" if image.kind == IMAGE else "length"
                return f"image {first + at:,}, {image.path[:100]!r}, has {count:,} tokens; its {named} {image.size} gives {known[key]:,}"
    return None


def check_references(references: Iterable[tuple[Image, Image]]) -> Verdict:
    """Compare stored references with the same, read again from their files: hash, and resolution or length where tokens are counted by it."""
    count = 0
    for count, (stored, found) in enumerate(references, 1):
        if stored != found:
            problem = (
                f"{stored.kind} {count - 1:,} is stored as {stored.line().decode().strip()}, its file is {found.line().decode().strip()}"
            )
            return Verdict(False, problem, {"files": count}, Worst(stored.path, problem))
    return Verdict(True, f"{count:,} references are those of their files", {"files": count})


class _WithoutPadding:
    """Values of a packed table, read in slices; NaN in the padding, which may be the image token."""

    def __init__(self, values: Any, width: int, used: npt.NDArray[np.int64]) -> None:
        self._values, self._used, self._width = values, used, width

    def __getitem__(self, part: slice) -> Any:
        row, place = np.divmod(np.arange(part.start, part.stop), self._width)
        return np.where(place < self._used[row], np.asarray(self._values[part]), np.nan)


def check_packed_images(packed: Table, tables: Mapping[str, Table]) -> Verdict:
    """Compare the images of a packed table with those of its records: places, paths and digests."""
    expected, packed_images = list(_record_images(packed, tables)), list(_packed_images(packed.images))
    numbers = {"packed_images": len(packed_images)}
    if len(expected) != len(packed_images):
        problem = f"{len(packed_images):,} images, the records have {len(expected):,} in the pieces that are packed"
        return Verdict(False, problem, numbers, Worst("images", problem))
    for wanted, got in zip(expected, packed_images, strict=True):
        if wanted != got:
            problem = f"an image at {got}, the records have {wanted}"
            return Verdict(False, problem, numbers, Worst(f"row {got[0][0]:,}", problem))
    return Verdict(True, f"{len(packed_images):,} packed images are those of their records", numbers)


def _packed_images(images: Images) -> Iterator[tuple[Place, Image]]:
    places = zip(images.record.tolist(), images.start.tolist(), images.length.tolist(), strict=True)
    yield from zip(places, images.references(np.arange(len(images))), strict=True)


def _record_images(packed: Table, tables: Mapping[str, Table]) -> Iterator[tuple[Place, Image]]:
    """Yield the images of each piece, piece by piece."""
    assert packed.pieces is not None
    fields = ("row", "row_offset", "length", "source", "record", "start")
    for row, offset, length, source, record, start in packed.pieces.read(slice(None), *fields):
        images = tables[packed.pieces.domains[source]].images
        part = images.of(record, record + 1)
        for number in range(part.start, part.stop):
            begin, size = int(images.start[number]), int(images.length[number])
            if start <= begin < start + length:
                yield (row, offset + begin - start, size), images.references(np.array([number]))[0]
