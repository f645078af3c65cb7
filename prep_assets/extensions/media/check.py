"""Files in records and in stores, looked at again: their sizes, their hashes, and where their tokens stand."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import file_digest
from io import BytesIO
from pathlib import Path

import numpy as np

from prep_assets.errors import CheckFailed, Refused
from prep_assets.extensions.media.headers import size_of
from prep_assets.extensions.media.options import ImageRule
from prep_assets.extensions.media.proofs.tokens import Measures, check_images, check_references, counted_again
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Sample
from prep_assets.stores.arrays import stretches
from prep_assets.stores.images import Image, Images
from prep_assets.stores.table import Table

REMOTE = re.compile("(https?|s3|gs|gcs|hf|az|abfss?|oss)://", re.IGNORECASE)
"""What an image's address begins with that is not a file of this machine."""

REMEMBERED = 1 << 16
"""Images whose digests are kept, so that one that many records share is hashed once."""

CONTENT_NAME = re.compile(r"([0-9a-f]{64})\.\w+")
"""The path in a store of an image that its row held: its sha256 and format."""


def counting(folder: Path | None, rules: Mapping[str, ImageRule], tokens: Mapping[str, str]) -> Callable[[Sample], Sample]:
    """Return what gives the files in a sample their placeholders, counted a second time."""

    def size_again(kind: str, path: str) -> Measures | None:
        if path.startswith("data:"):
            return size_of(kind, BytesIO(b64decode(path.partition(",")[2])))
        return size_of_file(kind, path)

    @lru_cache(REMEMBERED)
    def size_of_file(kind: str, path: str) -> Measures | None:
        if folder is None or REMOTE.match(path):
            return None
        try:
            return size_of(kind, folder / path)
        except Refused as refusal:
            raise CheckFailed(str(refusal)) from refusal

    return lambda sample: counted_again(sample, rules, tokens, size_again)


def of_tables(tables: Iterable[Table], ids: Mapping[str, int], rules: Mapping[str, ImageRule], folder: Path | None) -> Iterator[Verdict]:
    """Yield verdicts on whether images and audio stand where their tokens do, and are their files."""
    for table in tables:
        verdict = check_images(table, ids, rules)
        remedy = "Where the chat template writes the image token by itself, name another control token as image_token"
        yield verdict if verdict.passed else replace(verdict, summary=f"{verdict.summary}. {remedy}")
        if table.pieces is None and len(table.images):
            yield check_references(references(table.images, folder))


def references(images: Images, folder: Path | None) -> Iterator[tuple[Image, Image]]:
    """Yield each reference to a file, and the same read again from the file; without a hash where the file is not there."""

    @lru_cache(REMEMBERED)
    def again(image: Image) -> Image:
        held = CONTENT_NAME.fullmatch(image.path)  # by its row, which has no other name for it
        if REMOTE.match(image.path) or (folder is None and not held):
            return image
        if folder is not None:
            with suppress(OSError, Refused), (folder / image.path).open("rb") as file:
                sha256 = file_digest(file, "sha256").hexdigest()
                return Image(image.path, sha256, image.size and size_of(image.kind, folder / image.path), image.kind)
        return Image(image.path, held[1] if held else None, image.size if held else None, image.kind)

    for part in stretches(len(images), REMEMBERED):
        yield from ((image, again(image)) for image in images.references(np.arange(part.start, part.stop)))
