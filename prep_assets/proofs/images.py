"""Images: each stands on its run of the image token, untrained, that token stands nowhere else, and a packed table has those of its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.image_rules import Fixed, ImageRule, tokens_around
from prep_assets.proofs.image_tokens import ANY_SIZE, expected_text
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.images import Image, Images, image_fault
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

ONE = "\0"
"""A token of one character, to count them."""
Place = tuple[int, int, int]
"""Row, place of the first token in it, number of tokens."""


def check_images(store: TokenStore | PackedStore, token: int, rule: ImageRule | None = None) -> Verdict:
    """The images of a token stream or of a packed table, over all of its tokens.

    Args:
        token: id of the image token.
        rule: how many tokens an image has; `None`: as many as the store says.
    """
    mixed = rule is not None and bool(tokens_around(rule))
    if isinstance(store, TokenStore):
        arrays, starts = store.arrays, store.starts
        fault = image_fault(store.images, arrays, starts, np.diff(store.ends, prepend=0), token, mixed=mixed)
    else:
        starts = np.arange(len(store)) * store.row_len
        used = np.zeros_like(starts)
        np.maximum.at(used, store.documents["row"], np.asarray(store.documents["row_offset"]) + np.asarray(store.documents["length"]))
        arrays = {"tokens": _EndToEnd(store.tokens, used), "loss_mask": _EndToEnd(store.loss_mask, used)}
        fault = image_fault(store.images, arrays, starts, used, token, mixed=mixed)
    if fault is None and rule is not None and len(store.images):
        fault = _miscounted(store.images, arrays["tokens"], starts, token, rule)
    numbers = {"images": len(store.images)}
    if fault is not None:
        return Verdict(False, fault, numbers, Worst("images", fault))
    return Verdict(True, f"{len(store.images):,} images stand where the image token does, untrained", numbers)


def _miscounted(images: Images, tokens: Any, starts: Any, token: int, rule: ImageRule, block: int = 1 << 12) -> str | None:
    """The first image that has another number of image tokens than its resolution gives."""
    known: dict[Any, int] = {}
    begins = starts[np.asarray(images.record)] + np.asarray(images.start)
    ends = begins + np.asarray(images.length)
    for first in range(0, len(images), block):
        numbers = np.arange(first, min(first + block, len(images)))
        low = int(begins[first])
        before = np.concatenate([[0], np.cumsum(np.asarray(tokens[low : int(ends[numbers[-1]])]) == token)])
        found = before[ends[numbers] - low] - before[begins[numbers] - low]
        for number, image, count in zip(numbers.tolist(), images.references(numbers), found.tolist(), strict=True):
            if image.size is None and not isinstance(rule, Fixed):
                return f"image {number:,}, {image.path[:100]!r}, has no resolution"
            if image.size not in known:
                known[image.size] = expected_text(rule, ONE, image.size or ANY_SIZE).count(ONE)
            if count != known[image.size]:
                return (
                    f"image {number:,}, {image.path[:100]!r}, has {count:,} tokens; its resolution {image.size} gives {known[image.size]:,}"
                )
    return None


class _EndToEnd:
    """The rows of a table as one array, read in slices; NaN in the padding, which may be of the image token."""

    def __init__(self, rows: Any, used: npt.NDArray[np.int64]) -> None:
        self._rows, self._used, self._width = rows, used, int(rows.shape[1])

    def __getitem__(self, part: slice) -> Any:
        first, stop = part.start // self._width, -(-part.stop // self._width)
        rows = np.asarray(self._rows[first:stop])
        flat = np.where(np.arange(self._width) < self._used[first:stop, None], rows, np.nan).ravel()
        return flat[part.start - first * self._width : part.stop - first * self._width]


def check_packed_images(packed: PackedStore, tokens: Mapping[str, TokenStore]) -> Verdict:
    """Compare a packed table's images with those of the records that its pieces are made of: places, paths and digests."""
    expected, found = list(_expected(packed, tokens)), list(_found(packed.images))
    numbers = {"packed_images": len(found)}
    if len(expected) != len(found):
        problem = f"{len(found):,} images, the records have {len(expected):,} in the pieces that are packed"
        return Verdict(False, problem, numbers, Worst("images", problem))
    for wanted, got in zip(expected, found, strict=True):
        if wanted != got:
            problem = f"an image at {got}, the records have {wanted}"
            return Verdict(False, problem, numbers, Worst(f"row {got[0][0]:,}", problem))
    return Verdict(True, f"{len(found):,} packed images are those of their records", numbers)


def _found(images: Images) -> Iterator[tuple[Place, Image]]:
    places = zip(images.record.tolist(), images.start.tolist(), images.length.tolist(), strict=True)
    yield from zip(places, images.references(np.arange(len(images))), strict=True)


def _expected(packed: PackedStore, tokens: Mapping[str, TokenStore]) -> Iterator[tuple[Place, Image]]:
    """The images of each piece, one piece after the other."""
    documents = {field: np.asarray(values) for field, values in packed.documents.items()}
    for piece in range(len(documents["row"])):
        row, offset, length, source, record, start = (int(documents[field][piece]) for field in documents)
        images = tokens[packed.sources[source]].images
        part = images.of(record, record + 1)
        for number in range(part.start, part.stop):
            begin, size = int(images.start[number]), int(images.length[number])
            if start <= begin < start + length:
                yield (row, offset + begin - start, size), images.references(np.array([number]))[0]
