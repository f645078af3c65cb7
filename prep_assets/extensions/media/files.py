"""Images, audio and video in records: their files, their placeholders, and their places in packed rows."""

from __future__ import annotations

import base64
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.config.family import Chat, Domain, Family
from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError, PrepAssetsError, Refused
from prep_assets.extensions.media.check import CONTENT_NAME, REMEMBERED, REMOTE, counting, of_tables, references
from prep_assets.extensions.media.headers import size_of
from prep_assets.extensions.media.options import Fixed, FromProcessor, ImageRule, media_mark, media_tokens, tokens_around
from prep_assets.extensions.media.proofs.tokens import check_packed_images, check_references
from prep_assets.extensions.media.rules import placeholder_of, rule_beside
from prep_assets.packing import Mixture, PackPlan
from prep_assets.packing.strategies import within
from prep_assets.pipeline.media import RecordFiles, shown_files
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import IMAGE, MEDIA, Region, Sample, Turn, changed
from prep_assets.stores.images import MEASURES, Image, ImageBlock, Images, ImageWriter
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.table import Table
from prep_assets.text.spans import Placed
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, folder_of

# Images, audio and video in records: the ids that stand for them among the tokens, and the content of their files, which are hashed and never decoded.

DURATION = 0.05
"""Seconds by which what a row says of a duration may differ from the file: rows have rounded numbers."""


def media_id(kind: str, token: str, vocabulary: Vocabulary, stop: str = "", written: str = "", rule: ImageRule | None = None) -> int:
    """The id of the token of a kind of files.

    Only a control token will do: whoever types its text in a record does not get its id, so each one in a store stands for a file.

    Args:
        stop: the token that ends turns.
        written: what the build itself writes around the words of records.
        rule: how many tokens a file has.

    Raises:
        ConfigError: the token is none of the tokenizer's control tokens, one that ends texts or turns, or one in `written`. The padding is
            fine.
    """
    if token not in vocabulary.control:
        raise ConfigError(
            f"{kind}_token {token!r} is no control token of tokenizer {vocabulary.name}, which has {', '.join(sorted(vocabulary.control))}. "
            "Name one of these, or add it to the tokenizer as a special token"
        )
    if token in (vocabulary.special.get("eos_token"), stop):
        raise ConfigError(f"{kind}_token {token!r} is the token that ends texts or turns; {kind} needs another one")
    if token in written:
        raise ConfigError(
            f"{kind}_token {token!r} is written by the chat template or as a sentinel of fim, so it could not tell where files stand. "
            "Name another control token, or add one to the tokenizer"
        )
    if missing := [marker for marker in (tokens_around(rule) if rule else ()) if marker not in vocabulary.control]:
        raise ConfigError(
            f"{kind}_tokens: {rule.rule if rule else ''} writes {', '.join(map(repr, missing[:5]))}, no control token of tokenizer {vocabulary.name}. "
            "Take the model's own tokenizer, or name the tokens that it has"
        )
    return vocabulary.control[token]


def _text_around(template: ChatTemplate) -> str:
    """What a template writes around the words of short chats. What it writes beside tools, say, `row_integrity` finds."""
    system, chat = {"role": "system", "content": "0"}, ({"role": "user", "content": "1"}, {"role": "assistant", "content": "2"})
    written = []
    for messages in (chat, (system, *chat)):
        with suppress(Refused):  # a template without system turns, say
            written.append(template.render(messages))
    return "\n".join(written)


_FORMATS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp"}


def embedded(region: Region) -> bytes | None:
    """The bytes of an image that its row holds as a data URL; `None` for a path.

    Raises:
        Refused: ``unreadable_image``, for another URL of this kind than of base64.
    """
    if region.text[:5].lower() != "data:":
        return None
    header, comma, text = region.text.partition(",")
    try:
        if comma and header.endswith(";base64"):
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise Refused("unreadable_image", f"{region.text[:60]!r} is no data URL of base64", stage="render")


def embedded_name(content: bytes) -> str:
    """The path that a store gives an image that its row holds: `CONTENT_NAME`."""
    suffix = next((suffix for begin, suffix in _FORMATS.items() if content.startswith(begin)), "bin")
    return f"{sha256(content).hexdigest()}.{suffix}"


class ImageFiles(Struct, frozen=True, dict=True):
    """The images of a domain.

    Attributes:
        folder: what their paths are relative to; `None`: local ones are refused.
    """

    folder: Path | None

    def digest(self, path: str) -> str | None:
        """sha256 (hex) of an image's bytes; `None` for a URL, which is not opened.

        Raises:
            Refused: ``unknown_image_scheme``, ``no_image_dir``, ``image_outside_folder``, ``missing_image``, ``unreadable_image``.
        """
        if REMOTE.match(path):
            return None
        if "://" in path:
            raise Refused(
                "unknown_image_scheme",
                f"{path[:200]!r} is no address of http, https, s3, gs, gcs, hf, az, abfs, abfss or oss; "
                "write a local file as a path relative to image_dir",
                stage="render",
            )
        file = self._place(path)
        try:
            mode = 0
            with suppress(FileNotFoundError, NotADirectoryError):  # other errors are of files that are there
                mode = file.stat().st_mode
            if not stat.S_ISREG(mode):
                raise Refused("missing_image", f"no file {str(file)[:400]}", stage="render")
            self._reject_escape(file)
            return self._digest(file)
        except (OSError, ValueError) as error:
            raise Refused("unreadable_image", f"{str(file)[:400]}: {str(error)[:100]}", stage="render") from error

    def stored_digest(self, path: str) -> str | None:
        """`digest` of a path that a store has; the name of an image that its row held is its digest."""
        named = CONTENT_NAME.fullmatch(path)
        return named[1] if named and (self.folder is None or not (self.folder / path).exists()) else self.digest(path)

    def size(self, region: Region) -> tuple[float, ...] | None:
        """The `MEASURES` of a file, from its header; `None` for a URL.

        Raises:
            Refused: ``unreadable_image``, ``unreadable_audio``, ``unreadable_video``, ``video_frames``; else as `digest`.
        """
        return None if REMOTE.match(region.text) else self._size(region.kind, self._place(region.text))

    def block(self, placed: Placed) -> ImageBlock:
        """What is stored of images, audio and video: where they stand, their paths and digests."""
        images = [
            Image(region.text, self.stored_digest(region.text), region.size if region.placeholder else None, region.kind)
            for region in placed.regions
        ]
        return ImageBlock(placed.record, placed.start, placed.length, images)

    def _place(self, path: str) -> Path:
        if self.folder is None:
            raise Refused("no_image_dir", f"{path[:200]!r} is a local file; set image_dir of the domain to its folder", stage="render")
        folder = os.path.normpath(self.folder)
        file = os.path.normpath(Path(folder) / path)
        if not file.startswith(f"{folder}{os.sep}"):
            raise Refused("image_outside_folder", f"{path[:200]!r} is not below image_dir {folder}", stage="render")
        return Path(file)

    def _reject_escape(self, file: Path) -> None:
        """A linked folder is somebody's data disk; a linked file that leaves the folder could be any file of this machine."""
        if self.folder is not None and file.is_symlink() and not file.resolve().is_relative_to(self.folder.resolve()):
            raise Refused(
                "image_outside_folder",
                f"{str(file)[:200]} is a link to {str(file.resolve())[:200]}, outside image_dir; put the file itself there",
                stage="render",
            )

    @cached_property
    def _digest(self) -> Callable[[Path], str]:
        # of one build only: a process that runs for days must notice another image
        return lru_cache(REMEMBERED)(file_hash)

    @cached_property
    def _size(self) -> Callable[[str, Path], tuple[float, ...]]:
        return lru_cache(REMEMBERED)(size_of)


# The images of a packed table: those of its records, at their places in the rows.

BLOCK = 1 << 14
"""Images whose paths are in memory at a time."""


def write_images(payload: Path, table: str, plan: PackPlan, mixture: Mixture, stores: Sequence[Table]) -> dict[str, int]:
    """Write ``<table>.images`` where the records of the mixture hold images, and count them.

    Raises:
        PrepAssetsError: a row's border goes through an image.
    """
    position, domain, number, start, length = _images_of_mixture(mixture, stores)
    if not len(number):
        return {}
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


def _images_of_mixture(mixture: Mixture, stores: Sequence[Table]) -> Ints:
    """Every image of every record of the mixture, int64[5, images]: the record's position there, its domain, and the image's number, start and length in the
    domain's store."""
    columns = []
    for index, store in enumerate(stores):
        positions = np.flatnonzero(mixture.domain == index) if len(store.images) else np.empty(0, np.int64)
        low, high = (np.searchsorted(store.images.record, mixture.record[positions], side) for side in ("left", "right"))
        counts = high - low
        numbers = np.repeat(low, counts) + within(counts)
        spans = (np.asarray(column)[numbers].astype(np.int64) for column in (store.images.start, store.images.length))
        columns.append(np.stack([np.repeat(positions, counts), np.full(len(numbers), index), numbers, *spans]))
    return np.concatenate(columns, axis=1) if columns else np.empty((5, 0), np.int64)


def _references(stores: Sequence[Table], domain: Ints, number: Ints) -> list[Image]:
    references: list[Image] = [Image("", None)] * len(number)
    for index, store in enumerate(stores):
        positions = np.flatnonzero(domain == index)
        for place, image in zip(positions.tolist(), store.images.references(number[positions]), strict=True):
            references[place] = image
    return references


# What the kernel asks for.


class FilesOfRecords(RecordFiles):
    """The images, audio and video in records of a family, or of one of its domains."""

    def __init__(self, workspace: Any, family: Family, domain: Domain | None = None) -> None:
        super().__init__(workspace, family, domain)
        self.tokens = media_tokens(family)

    @cached_property
    def rules(self) -> Mapping[str, ImageRule]:
        """Kind of files → the rule for the number of their tokens; without images if `image_patches` sets it.

        Raises:
            ConfigError: the named processor's files do not tell the rule.
        """
        family, rules = self.family, dict[str, ImageRule]()
        for kind in self.tokens:
            rule: ImageRule | FromProcessor | None = getattr(family, f"{kind}_tokens", None)
            if isinstance(rule, FromProcessor):
                rule = rule_beside(folder_of(family.tokenizer, base=self.workspace.configs, revision=family.tokenizer_revision), kind)
            if rule is not None:
                rules[kind] = rule
        return rules

    def recipe(self) -> dict[str, Any]:
        """See `RecordFiles.recipe`."""
        return {f"{kind}_rule": rule.model_dump() for kind, rule in self.rules.items()}

    def marks(self) -> dict[str, Any]:
        """See `RecordFiles.marks`: of an image as many tokens as it has, or with a rule the single token that the template writes."""
        return {kind: media_mark(self.family, kind, self.rules.get(kind)) for kind in self.tokens}

    def ids(self) -> dict[str, int]:
        """See `RecordFiles.ids`, and `media_id`."""
        if not (tokens := self.tokens):
            return {}
        if len({*tokens.values()}) < len(tokens):
            twice = [kind for kind in tokens if list(tokens.values()).count(tokens[kind]) > 1]
            named = " and ".join(f"{kind}_token" for kind in twice)
            raise ConfigError(f"{named} are both {tokens[twice[0]]!r}, which could not tell which stands where. Name two")
        stop, written, family = "", "", self.family
        if isinstance(family, Chat):
            template = self.workspace.template(family)
            stop, written = template.stop_token, _text_around(template)
        elif isinstance(family, Pretrain) and (fim := family.preprocessing.fim).rate:
            written = "\n".join((fim.prefix_token, fim.suffix_token, fim.middle_token))
        vocabulary = self.workspace.vocabulary(family)
        return {kind: media_id(kind, token, vocabulary, stop, written, self.rules.get(kind)) for kind, token in tokens.items()}

    def all_ids(self) -> list[int]:
        """See `RecordFiles.all_ids`."""
        around = chain.from_iterable(map(tokens_around, self.rules.values()))
        return [*self.ids().values(), *(self.workspace.vocabulary(self.family).control[token] for token in around)]

    @staticmethod
    def folder(configs: Path, domain: Domain) -> Path | None:
        """See `RecordFiles.folder`."""
        folder = getattr(domain, "image_dir", None)
        return None if folder is None else configs / folder

    @cached_property
    def files(self) -> ImageFiles:
        """The files of the domain."""
        return ImageFiles(None if self.domain is None else self.folder(self.workspace.configs, self.domain))

    # Placeholders: each file is there, and has the placeholder that its processor writes for its size.

    def ready(self, sample: Sample) -> Sample:
        """See `RecordFiles.ready`; no file is decoded.

        Raises:
            Refused: an image that is not there (see `ImageFiles.digest`), or whose resolution is not known, contradicted, or refused by the rule.
        """
        if not shown_files(sample.turns):
            return sample
        turns = [changed(turn, regions=self._regions(turn)) for turn in sample.turns]
        return changed(sample, turns=tuple(turns))

    def _regions(self, turn: Turn) -> tuple[Region, ...]:
        return tuple(self._ready(region) if region.kind in MEDIA and not region.drop else region for region in turn.regions)

    def _ready(self, region: Region) -> Region:
        content = embedded(region)
        if content is None:
            self.files.digest(region.text)  # one that is not there would be trained on as if it were
        else:
            region = changed(region, text=embedded_name(content))
        rule, token = self.rules.get(region.kind), self.tokens.get(region.kind, "")
        if rule is None:
            return region
        if isinstance(rule, Fixed) and region.kind == IMAGE:
            return changed(region, size=None, placeholder=placeholder_of(rule, token, 1, 1))
        size = self._size(region, content)
        try:
            return changed(region, size=size, placeholder=placeholder_of(rule, token, *size))
        except Refused as refusal:
            raise Refused(refusal.reason, f"{region.text[:200]!r}: {refusal.detail}", stage="render") from refusal

    def _size(self, region: Region, content: bytes | None) -> tuple[float, ...]:
        resolution = self.files.size(region) if content is None else size_of(region.kind, io.BytesIO(content))
        if region.kind != IMAGE:
            return self._length(region, resolution)
        if resolution is None and region.size is None:
            detail = f"{region.text[:200]!r} is a URL, which is not opened; state its width and height in the row, or store the file below image_dir"
            raise Refused("no_resolution", detail, stage="render")
        if resolution is not None and region.size is not None and resolution != region.size:
            stated, read = (" x ".join(map(str, size)) for size in (region.size, resolution))
            raise Refused("resolution_differs", f"{region.text[:200]!r} has {read} pixels, its row says {stated}", stage="render")
        width, height = resolution or region.size or ()
        return int(width), int(height)

    def _length(self, region: Region, length: tuple[float, ...] | None) -> tuple[float, ...]:
        if length is None:
            raise Refused(
                "no_length", f"{region.text[:200]!r} is a URL, which is not opened; store the file below image_dir", stage="render"
            )
        seconds = length[0] / length[1]
        if region.size is not None and abs(region.size[0] - seconds) > DURATION + 1 / length[1]:
            detail = (
                f"{region.text[:200]!r} has {length[0]:,} {MEASURES[region.kind][0]}, {length[1]:,} per second, {seconds:.3f} s; its row says "
                f"{region.size[0]:g} s"
            )
            raise Refused("duration_differs", detail, stage="render")
        return length

    def block(self, placed: Placed) -> ImageBlock:
        """See `RecordFiles.block`."""
        return self.files.block(placed)

    @cached_property
    def _counted_again(self) -> Callable[[Sample], Sample]:
        return counting(self.files.folder, self.rules, self.tokens)

    def ready_again(self, sample: Sample) -> Sample:
        """See `RecordFiles.ready_again`."""
        return self._counted_again(sample)

    def verdicts(self, tables: Iterable[Table]) -> Iterator[Verdict]:
        """See `RecordFiles.verdicts`."""
        return of_tables(tables, ids, self.rules, self.files.folder) if (ids := self.ids()) else iter(())

    def read_again(self, images: Images) -> Iterator[tuple[Image, Image]]:
        """See `RecordFiles.read_again`; without a hash where the file is not there."""
        return references(images, self.files.folder)

    compare, check_packed = staticmethod(check_references), staticmethod(check_packed_images)
    write_packed = staticmethod(write_images)


class PlacedRuns(Struct, frozen=True, eq=False):
    """K runs, in the order in which they were given.

    Attributes:
        row: int64[K], its row, -1 where its tokens are in none.
        row_offset: int64[K], place of its first token in the row.
        cut: bool[K], whether the border of a row or of what is left out goes through it.
    """

    row: Ints
    row_offset: Ints
    cut: npt.NDArray[np.bool_]


def place_runs(plan: PackPlan, record: Ints, start: Ints, length: Ints) -> PlacedRuns:
    """Find runs of tokens in a plan.

    Every token of every record is in one member or one dropped piece, so with the records laid end to end a run stands in the last piece that
    begins at or before it.

    Args:
        record, start, length: int64[K]: tokens ``start … start + length - 1`` of the record at that position in the lengths that were packed.
    """
    pieces = np.concatenate([np.stack([plan.record, plan.start, plan.length], axis=1), plan.dropped])
    nowhere = np.full(len(plan.dropped), -1)
    row, offset = np.concatenate([plan.row, nowhere]), np.concatenate([plan.row_offset, nowhere])
    sizes = np.zeros(int(pieces[:, 0].max(initial=-1)) + 1, np.int64)
    np.add.at(sizes, pieces[:, 0], pieces[:, 2])
    base = np.cumsum(sizes) - sizes
    begins = base[pieces[:, 0]] + pieces[:, 1]
    order = np.argsort(begins)
    at = base[record] + start
    piece = order[np.searchsorted(begins[order], at, "right") - 1]
    into = at - begins[piece]
    gone = row[piece] < 0
    return PlacedRuns(row[piece], np.where(gone, -1, offset[piece] + into), into + length > pieces[piece, 2])
