"""The images of a packed table: those of its records, at their places in the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from prep_assets.errors import PrepAssetsError
from prep_assets.packing import Mixture, PackPlan
from prep_assets.packing.images import place_runs
from prep_assets.packing.pieces import within
from prep_assets.packing.plan import Ints
from prep_assets.stores.images import Image, ImageBlock, ImageWriter
from prep_assets.stores.tokens import TokenStore

BLOCK = 1 << 14
"""Images whose paths are in memory at a time."""


def write_images(payload: Path, table: str, plan: PackPlan, mixture: Mixture, stores: Sequence[TokenStore]) -> dict[str, int]:
    """Write ``<table>.images`` where the records of the mixture hold images, and count them.

    Raises:
        PrepAssetsError: a row's border goes through an image.
    """
    position, domain, number = _offered(mixture, stores)
    if not len(number):
        return {}
    start, length = (_of_stores([getattr(store.images, field) for store in stores], domain, number) for field in ("start", "length"))
    placed = place_runs(plan, position, start, length)
    if placed.cut.any():
        raise PrepAssetsError(
            f"{table}: the border of a row goes through {int(placed.cut.sum()):,} of {len(number):,} images; the longest image has "
            f"{int(length.max()):,} tokens, a row {plan.row_len:,}. Pack with strategy simple, ffd or bfd, without overlong: truncate or split"
        )
    order = np.lexsort((placed.row_offset, placed.row))
    order = order[placed.row[order] >= 0]
    writer = ImageWriter(payload, table)
    for first in range(0, len(order), BLOCK):
        part = order[first : first + BLOCK]
        writer.append(
            ImageBlock(placed.row[part], placed.row_offset[part], length[part], _references(stores, domain[part], number[part])), first=0
        )
    writer.close()
    return {"images": len(order), "images_left_out": len(number) - len(order)}


def _offered(mixture: Mixture, stores: Sequence[TokenStore]) -> tuple[Ints, Ints, Ints]:
    """Every image of every record of the mixture: the record's position there, its domain, the image's number in the domain's store."""
    found = []
    for index, store in enumerate(stores):
        positions = np.flatnonzero(mixture.domain == index) if len(store.images) else np.empty(0, np.int64)
        low, high = (np.searchsorted(store.images.record, mixture.record[positions], side) for side in ("left", "right"))
        counts = high - low
        numbers = np.repeat(low, counts) + within(counts)
        found.append(np.stack([np.repeat(positions, counts), np.full(len(numbers), index), numbers]))
    position, domain, number = np.concatenate(found, axis=1) if found else np.empty((3, 0), np.int64)
    return position, domain, number


def _of_stores(columns: Sequence[Ints], domain: Ints, number: Ints) -> Ints:
    found = np.empty(len(number), np.int64)
    for index, column in enumerate(columns):
        here = domain == index
        found[here] = np.asarray(column)[number[here]]
    return found


def _references(stores: Sequence[TokenStore], domain: Ints, number: Ints) -> list[Image]:
    found: list[Image] = [Image("", None)] * len(number)
    for index, store in enumerate(stores):
        here = np.flatnonzero(domain == index)
        for place, image in zip(here.tolist(), store.images.references(number[here]), strict=True):
            found[place] = image
    return found
