"""Tokenize the lines of a JSONL store, whole or in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from prep_assets.config.family import Family
from prep_assets.config.mask import MaskPolicy
from prep_assets.data.files import Part
from prep_assets.data.quarantine import Quarantine
from prep_assets.data.tables import LineCuts, parts, shard_size
from prep_assets.errors import Refused
from prep_assets.pipeline.asset import FromLines, LineEncoder, Target
from prep_assets.pipeline.tokens import add, encode_in_shards, writers_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.files import row_of
from prep_assets.stores.guards import Guards
from prep_assets.stores.published import Draft
from prep_assets.stores.remote import backend_of, remote_of
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import version_of
from prep_assets.stores.writer import TableWriter
from prep_assets.workers.shards import Runner, Shard

BATCH = 512
"""Lines that are encoded at a time. It changes nothing in a store."""
_READ = 1 << 20
Batch = tuple[int, list[dict[str, Any]]]
"""Number of the first line, and the lines."""


def tokenize_lines(target: Target, quarantine: Quarantine, *, what: str) -> Draft:
    """Tokenize the lines that an asset is made from into its token streams, folder by folder.

    Args:
        what: what the lines are, for progress.
    """
    asset, workspace, counts = target.asset, target.workspace, dict[str, Any]()
    assert isinstance(asset.source, FromLines)
    masked = any(stream.masked for stream in asset.streams.values())
    for first, (above, name) in asset.source.files.items():
        folder, lines = first.rpartition("/")[0], open_stream(workspace.built(above, target.partition).directory, name)
        if folder and not len(lines):
            continue
        assert lines.path is not None
        doing = f"tokenize {what} of {target.partition}" if target.partition else f"tokenize {what}"
        stems = [stem for stem in target.stems if stem.rpartition("/")[0] == folder]
        with writers_of(target, stems, {"loss_mask": "uint8"} if masked else {}) as writers:
            source, encode = (
                LineFile(workspace, target.family, doing, lines.path, len(lines)),
                partial(_encode_lines, encoder=asset.source.encoder, name=name, masked=masked),
            )
            encoded = encode_in_shards(source, encode, writers, quarantine, target.payload)
        add(counts, {**encoded, **({"kept_test": encoded["kept"]} if folder else {})})
    return Draft(counts, {})


def _encode_lines(
    workspace: Workspace,
    batches: Iterator[Batch],
    writers: Sequence[TableWriter],
    quarantine: Quarantine,
    *,
    encoder: Callable[[Workspace], LineEncoder],
    name: str,
    masked: bool,
) -> dict[str, Any]:
    lines = encoder(workspace)
    counts = {"read": 0, "kept": 0, "tokens": 0, **({"trained_tokens": 0} if masked else {})}
    for first, batch in batches:
        kept, streams = lines.encode(batch, first, quarantine, name=name)
        rows = [first + number for number in kept]
        add(counts, {"read": len(batch), "kept": len(rows)})
        for writer, (arrays, lengths, taken) in zip(writers, streams, strict=True):
            writer.append(arrays, lengths, [0] * len(rows), rows)
            add(counts, {"tokens": len(arrays["tokens"]), **({"trained_tokens": int(arrays["loss_mask"].sum())} if masked else {})})
            add(counts, {"tokens_cut_away": taken} if taken else {})
    return counts


def answer_policy() -> MaskPolicy:
    """Loss on a region that says so itself, on nothing else: the answers carry weight 1, the prompt weight 0."""
    return MaskPolicy(mask={}, mask_default="mask")


def reject_lines(batch: Sequence[Mapping[str, Any]], first: int, refused: Mapping[int, Refused], quarantine: Quarantine, name: str) -> None:
    """Put lines of the file `name` into quarantine, in their order."""
    for number, fault in sorted(refused.items()):
        quarantine.add(f"{name}.jsonl:{first + number + 1}", fault.stage, fault.reason, fault.detail, batch[number])


@dataclass(frozen=True)
class LineFile:
    """A file of lines.

    Attributes:
        workspace, family: where it belongs.
        doing: label of the progress.
        path: of the file; `count`: its lines.
        version: path of its store version below the store root if the stores are in a bucket; workers fetch it.
    """

    workspace: Workspace
    family: Family
    doing: str
    path: Path
    count: int
    version: Path | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def whole(self) -> Iterator[Batch]:
        """All lines."""
        for first, batch in _batches(self.path, Part()):
            yield first, batch
            if self.workspace.progress:
                self.workspace.progress(self.doing, first + len(batch), self.count)

    def part(self, task: Part) -> Iterator[Batch]:
        """The lines of a shard."""
        if self.version is None:
            return _batches(self.path, task)
        published = backend_of(self.workspace.stores / self.version.parent.parent).published(self.version.name)
        return _batches(published.directory / self.path.name, task)

    def shards(self, count: int | Literal["auto"]) -> list[Shard]:
        """Cut the file into shards, like source files."""
        path, watch = self.path, LineCuts(shard_size(self.size, count))
        with Guards().open(path) as file:
            while data := file.read(_READ):
                watch(data)
        return [
            Shard(number, f"{path.name} from line {part.row + 1:,}", (part.stop or watch.seen) - part.start, part)
            for number, part in enumerate(parts(watch.cuts))
        ]

    def travelling(self, runner: Runner) -> LineFile:
        """A copy to send to another process."""
        root = self.workspace.stores.resolve()
        version = version_of(self.path) if runner.elsewhere and remote_of(root) else None
        return replace(
            self,
            workspace=self.workspace.travelling(type(self.family)),
            version=version.relative_to(root) if version else None,
        )


def _batches(path: Path, part: Part) -> Iterator[Batch]:
    rows = rows_between(path, Guards(), part.start, part.stop)
    first = part.row
    while batch := list(islice(rows, BATCH)):
        yield first, batch
        first += len(batch)


def rows_between(path: Path, guards: Guards, start: int, stop: int | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of the lines of a file from byte `start` to byte `stop`, at both of which a line begins; to the end without `stop`."""
    with guards.open(path) as file:
        file.seek(start)
        for line in file:
            yield row_of(line)
            start += len(line)
            if start == stop:
                return
