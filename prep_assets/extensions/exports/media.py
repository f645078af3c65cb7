"""Token streams and packed tables with the files of their images, audio and video, in tar shards of WebDataset.

    <split>-000000.tar    00000000.json, 00000000.0.jpg, 00000000.1.png, 00000001.json …
    shards.json           {"shards": [{"url", "samples", "bytes", "sha256"}]}

A sample is one record, or one row of a packed table. ``json`` has its ids, its unshifted labels, the positions of a packed row, and of each image its member
(``0.jpg``), its place among the ids, its path and its sha256.
Members have no time and no owner, so that equal stores give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens, labelled, locate_row, starts_of
from prep_assets.extensions.exports.registry import Count, Folder, Progress, Split, exporter, reads
from prep_assets.proofs.tables import require_filled
from prep_assets.samples import AUDIO, IMAGE, MEDIA, VIDEO
from prep_assets.stores.images import Image, Images
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.table import PACKED, TOKENS, Table
from prep_assets.stores.verification import WrittenFile, write_json

SUFFIXES = {
    IMAGE: (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"),
    AUDIO: (".wav", ".flac", ".mp3", ".ogg", ".opus"),
    VIDEO: (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm"),
}
Placed = tuple[Image, int, int]
"""An image with the place of its first token in its record, and the number of its tokens."""


@exporter(
    "webdataset",
    PACKED,
    TOKENS,
    read_by="WebDataset",
    opens={
        "": (
            "import webdataset",
            'dataset = webdataset.WebDataset("{folder}/{split}-000000.tar", shardshuffle=False).decode("pil")',
            'next(iter(dataset))["json"]["input_ids"]  # labels are unshifted; images are "0.jpg", "1.jpg" …',
        )
    },
    images=MEDIA,
    kind="tar",
)
def webdataset(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    image_dir: Folder | None = None,
    split: Split = "train",
    rows_per_file: Count = 10_000,
) -> None:
    """``<split>-000000.tar`` …, each of `rows_per_file` samples with the bytes of their images, and ``shards.json``.

    `image_dir` is the folder that paths of images are relative to. A file that is not there, or whose sha256 is not that of the store, stops the export.
    """
    require_images(source, image_dir, "webdataset")
    shards: list[dict[str, Any]] = []
    for number, rows in groupby(enumerate(_rows(source, progress)), key=lambda row: row[0] // rows_per_file):
        path, samples = out / f"{split}-{number:06d}.tar", 0
        with WrittenFile(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for row, (fields, images) in rows:
                _add_sample(tar, f"{row:08d}", fields, images, image_dir)
                samples += 1
        shards.append({"url": path.name, "samples": samples, "bytes": path.stat().st_size, "sha256": file_hash(path)})
    write_json(out / "shards.json", {"shards": shards}, indent=2)


def _rows(source: Table, progress: Progress) -> Iterator[tuple[dict[str, Any], list[Placed]]]:
    """Ids and labels of each record, and its images."""
    for block in row_blocks(source, progress):
        first, cuts = block.done - len(block.row_lengths), np.cumsum(block.row_lengths)[:-1]
        images = placed_images(source.images, first, block.done)
        columns = {"input_ids": block.tokens, **({"labels": block.labels} if source.has("weight") else {})}
        columns |= {"position_ids": block.position_ids} if source.width else {}
        parts = {name: np.split(column, cuts) for name, column in columns.items()}
        for at in range(len(block.row_lengths)):
            yield {name: part[at].tolist() for name, part in parts.items()}, images.get(first + at, [])


def placed_images(images: Images, first: int, stop: int) -> dict[int, list[Placed]]:
    """The images of consecutive records, by record."""
    span, placed = images.of(first, stop), dict[int, list[Placed]]()
    places = (np.asarray(column[span]).tolist() for column in (images.record, images.start, images.length))
    for record, start, length, image in zip(*places, images.references(np.arange(span.start, span.stop)), strict=True):
        placed.setdefault(record, []).append((image, start, length))
    return placed


def _add_sample(tar: tarfile.TarFile, key: str, fields: dict[str, Any], images: list[Placed], folder: str | None) -> None:
    listed, members = [], []
    for number, (image, start, length) in enumerate(images):
        data = file_of(image, folder, "webdataset")
        name = f"{number}{PurePosixPath(image.path).suffix.lower()}"
        members.append((f"{key}.{name}", data))
        listed.append({"file": name, "start": start, "length": length, **json.loads(image.line())})
    text = json.dumps({**fields, **({"images": listed} if listed else {})}).encode()
    for name, data in ((f"{key}.json", text), *members):
        member = tarfile.TarInfo(name)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


def require_images(source: Table, folder: str | None, format: str) -> None:
    """Raises:
    ConfigError: a folder of images is given, and the source has none.
    """
    if folder is not None and not len(source.images):
        raise ConfigError(f"export {format!r}, option 'image_dir' = {folder!r} has no effect: the source has no images. Leave it out")


def file_of(image: Image, folder: str | None, format: str) -> bytes:
    """The bytes of an image, which are those that the store was built with.

    Raises:
        ConfigError: an image of an address, one without a known suffix, or one whose file is missing, or another than when the store was built.
    """
    if image.sha256 is None:
        raise ConfigError(
            f"export {format!r}: {image.path!r} is an address, which is not fetched. Store the file below image_dir and build again"
        )
    if folder is None:
        raise ConfigError(f"export {format!r} needs image_dir, the folder that {image.path!r} is relative to")
    if PurePosixPath(image.path).suffix.lower() not in SUFFIXES[image.kind]:
        raise ConfigError(
            f"export {format!r}: {image.path!r} has none of the suffixes {', '.join(SUFFIXES[image.kind])}, by which its readers decode files"
        )
    path = Path(folder) / image.path
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"export {format!r}: {path} cannot be read ({error.strerror}). Set image_dir to the folder of the domain's images"
        ) from error
    if (found := hashlib.sha256(data).hexdigest()) != image.sha256:
        raise ConfigError(
            f"export {format!r}: {path} has the sha256 {found}, the store was built with {image.sha256}. Build the store again"
        )
    return data


@reads("webdataset")
def read_webdataset(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `webdataset` export with code independent of its writer. Every image of a row that is read must have the sha256 of the store.

    Raises:
        StoreError: a shard has another sha256 or another number of samples than the index says, or an image has another sha256.
    """
    shards = json.loads((folder / "shards.json").read_text("utf-8"))["shards"]
    ends = np.cumsum([shard["samples"] for shard in shards])
    require_filled([shard["samples"] for shard in shards], options["rows_per_file"])
    names = [f"{options['split']}-{number:06d}.tar" for number in range(len(shards))]
    if not names == [shard["url"] for shard in shards] == sorted(path.name for path in folder.glob("*.tar")):
        raise StoreError(f"shards.json or the folder names other shards than {names[:3]} …")
    for shard in shards:
        if (folder / shard["url"]).stat().st_size != shard["bytes"]:
            raise StoreError(f"{shard['url']} has another size than shards.json says")
        with (folder / shard["url"]).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard["sha256"]:
                raise StoreError(f"{shard['url']} has another sha256 than shards.json says")
            file.seek(0)
            with tarfile.open(fileobj=file) as tar:
                if sum(name.endswith(".json") for name in tar.getnames()) != shard["samples"]:
                    raise StoreError(f"{shard['url']} has another number of samples than shards.json says")

    @lru_cache(1)  # rows are read in order, and a process may have few files open
    def opened(shard: int) -> tarfile.TarFile:
        return tarfile.open(folder / shards[shard]["url"])

    def row(number: int) -> tuple[Tokens]:
        tar = opened(locate_row(ends, number)[0])

        def member(name: str) -> bytes:
            file = tar.extractfile(f"{number:08d}.{name}")
            assert file is not None
            return file.read()

        fields, images = json.loads(member("json")), source.images
        stored = images.references(np.flatnonzero(np.asarray(images.record) == number))
        listed = fields.get("images", [])
        for image, expected in zip(listed, stored, strict=True):
            if hashlib.sha256(member(image["file"])).hexdigest() != expected.sha256:
                raise StoreError(f"row {number}: {image['file']} is another file than {expected.path!r} of the store")
        ids = np.array(fields["input_ids"])
        if ("position_ids" in fields) != bool(source.width):
            raise StoreError(f"row {number}: it has {', '.join(fields)}; a row has position_ids where it is packed, and only there")
        starts = starts_of(fields["position_ids"]) if source.width else None
        read = labelled(ids, fields["labels"], starts) if "labels" in fields else Tokens(ids)
        places = ((image["path"], tuple(range(image["start"], image["start"] + image["length"]))) for image in listed)
        return (replace(read, images=tuple(places)),)

    return Readable(int(ends[-1]) if len(ends) else 0, row)
