"""Records on their way from files to shards, in batches and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prep_assets.astrai.columns import Builder, Row
from prep_assets.astrai.dedup import Duplicates
from prep_assets.astrai.domains import DEFAULT, Domains
from prep_assets.astrai.shards import ShardWriter
from prep_assets.astrai.task import Task
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine, read_quarantine
from prep_assets.records.read import read_blocks
from prep_assets.samples import Record

Progress = Callable[[int, int], None]
"""Is told how many bytes of how many have been read."""


@dataclass(slots=True)
class Counts:
    """Records and tokens, from reading to disk. ``read = kept + the sum of refused`` always holds.

    Attributes:
        refused: by ``stage/reason``.
        tokens, trained: of all tokenized outputs of kept records, before packing; `trained` where there are masks.
        untrained: kept records without any trained token.
        cut: records that ``max_seq_len`` cut, and the tokens it cut off.
        domains: records by folder.
    """

    read: int = 0
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    trained: int | None = None
    untrained: int = 0
    cut_records: int = 0
    cut_tokens: int = 0
    domains: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A record on its way; `refusal` where it has been refused before it is tokenized."""

    id: str
    payload: Any
    refusal: Refused | None = None
    length: int | None = None


@dataclass(slots=True)
class Run:
    """One pass over the input files: what is kept goes to the writer, what is refused to quarantine, and all of it is counted."""

    task: Task
    builder: Builder
    writer: ShardWriter
    quarantine: Quarantine
    duplicates: Duplicates
    counts: Counts = field(default_factory=Counts)
    domains: Domains = field(default_factory=Domains)

    def over(self, files: Sequence[SourceFile], progress: Progress) -> None:
        """All records, in order, until ``max_items`` are kept."""
        if self.task.has_mask:
            self.counts.trained = 0
        total, batch, done = sum(file.size for file in files), self.task.pipeline.preprocessing.batch_size, 0
        for index, file in enumerate(files):
            for block in read_blocks(file, index, block_bytes=1 << 20):
                candidates = list(self._candidates(file, [*block.records, *block.unreadable]))
                for at in range(0, len(candidates), batch):
                    if self._batch(candidates[at : at + batch]):
                        progress(total, total)
                        self.counts.refused = self.quarantine.counts
                        return
                progress(done + block.bytes_read, total)
            done += file.size
        self.counts.refused = self.quarantine.counts

    def _candidates(self, file: SourceFile, rows: list[Any]) -> Iterator[_Candidate]:
        for row in sorted(rows, key=lambda row: row.row):
            identity = record_id(file, row.row)
            if not isinstance(row, Record):
                yield _Candidate(identity, row.payload, Refused(row.reason, row.detail, stage="records"), row.length)
                continue
            try:
                self.duplicates.check(row, identity)
                yield _Candidate(identity, row.payload)
            except Refused as refusal:
                yield _Candidate(identity, row.payload, refusal)

    def _batch(self, candidates: Sequence[_Candidate]) -> bool:
        """Tokenize and write a batch; whether ``max_items`` is reached. Records after the last kept one count as never read."""
        built = iter(self.builder.build([candidate.payload for candidate in candidates if candidate.refusal is None]))
        limit = self.task.pipeline.preprocessing.max_items
        for candidate in candidates:
            self.counts.read += 1
            result = candidate.refusal or next(built)
            if isinstance(result, Refused):
                self.quarantine.add(candidate.id, result.stage, result.reason, result.detail, candidate.payload, length=candidate.length)
                continue
            self._keep(candidate, result)
            if self.counts.kept == limit:
                return True
        return False

    def _keep(self, candidate: _Candidate, row: Row) -> None:
        counts, key = self.counts, self.task.pipeline.output.domain_key
        folder = DEFAULT if key is None else self.domains.folder(candidate.payload.get(key))
        self.writer.append(folder, row)
        counts.kept += 1
        counts.domains[folder] = counts.domains.get(folder, 0) + 1
        counts.cut_records += row.cut > 0
        counts.cut_tokens += row.cut
        counts.tokens += sum(len(cells.values) for name, cells in row.cells.items() if self.task.columns[name].kind == "ids")
        if counts.trained is not None:
            masks = [cells.values for name, cells in row.cells.items() if self.task.columns[name].kind == "mask"]
            # a text that goes into bins has a mask only there, where the padding needs one
            trained = sum(int(mask.sum()) for mask in masks)
            counts.trained += trained
            counts.untrained += trained == 0

    def require_result(self, quarantine: Path) -> None:
        """Stop where the output would be empty, or would train nothing."""
        counts = self.counts
        if not counts.read:
            raise PrepAssetsError("the input files hold no record: nothing is written")
        if not counts.kept:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.refused.items())
            first = next(read_quarantine(quarantine))
            raise PrepAssetsError(
                f"all {counts.read:,} records were refused ({reasons}), so nothing is written. The first one, {first.id}: {first.detail}"
            )
        if counts.trained == 0:
            raise PrepAssetsError(
                f"none of the {counts.tokens:,} tokens of {counts.kept:,} records is trained, so nothing is written. The configuration's mask is "
                f"{dict(self.task.pipeline.mask)}, its mask_default {self.task.pipeline.mask_default!r}: name a role or field of the data as 'train'"
            )
