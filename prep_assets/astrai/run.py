"""Records on their way from files to shards, in batches and in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prep_assets.assets.reading.all_refused import all_refused
from prep_assets.assets.reading.domain import Reading
from prep_assets.astrai.columns import Builder, Row
from prep_assets.astrai.domains import DEFAULT, Domains
from prep_assets.astrai.shards import ShardWriter
from prep_assets.astrai.task import Task
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.records.blocks import Unreadable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine, Refusal, read_quarantine, refusal, unreadable
from prep_assets.samples import Record


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


_Candidate = tuple[str, Any, Refusal | None]
"""The id of a record, its payload, and its refusal where it has one before it is tokenized."""


@dataclass(slots=True)
class Run:
    """One pass over the input files: what is kept goes to the writer, what is refused to quarantine, and all of it is counted."""

    task: Task
    builder: Builder[Any]
    writer: ShardWriter
    quarantine: Quarantine
    counts: Counts = field(default_factory=Counts)
    domains: Domains = field(default_factory=Domains)

    def over(self, reading: Reading) -> None:
        """All records, in order, until ``max_items`` are kept."""
        if self.task.has_mask:
            self.counts.trained = 0
        batch = self.task.pipeline.preprocessing.batch_size
        for block in reading.rows(1 << 20):
            candidates = [_candidate(reading, block.file, row) for row in block.rows]
            if any(self._batch(candidates[at : at + batch]) for at in range(0, len(candidates), batch)):
                reading.progress("preprocess", reading.sources.bytes, reading.sources.bytes)
                break
            reading.advance("preprocess", block.size)
        self.counts.refused = self.quarantine.counts

    def _batch(self, candidates: Sequence[_Candidate]) -> bool:
        """Tokenize and write a batch; whether ``max_items`` is reached. Records after the last kept one count as never read."""
        built = iter(self.builder.build([payload for _, payload, refused in candidates if refused is None]))
        for identity, payload, refused in candidates:
            self.counts.read += 1
            result = refused or next(built)
            if isinstance(result, Row):
                self._keep(payload, result)
                if self.counts.kept == self.task.pipeline.preprocessing.max_items:
                    return True
            elif isinstance(result, Refused):
                self.quarantine.add(identity, result.stage, result.reason, result.detail, payload)
            else:
                self.quarantine.write(result)
        return False

    def _keep(self, payload: Any, row: Row) -> None:
        counts, key = self.counts, self.task.pipeline.output.domain_key
        folder = DEFAULT if key is None else self.domains.folder(payload.get(key))
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
            raise PrepAssetsError(f"nothing is written: {all_refused(counts.read, read_quarantine(quarantine))}")
        if counts.trained == 0:
            raise PrepAssetsError(
                f"none of the {counts.tokens:,} tokens of {counts.kept:,} records is trained, so nothing is written. The configuration's mask is "
                f"{dict(self.task.pipeline.mask)}, its mask_default {self.task.pipeline.mask_default!r}: name a role or field of the data as 'train'"
            )


def _candidate(reading: Reading, file: SourceFile, row: Record | Unreadable) -> _Candidate:
    identity = record_id(file, row.row)
    if not isinstance(row, Record):
        return identity, row.payload, unreadable(file, row)
    try:
        reading.admit(file, row)
    except Refused as refused:
        return identity, row.payload, refusal(identity, refused.stage, refused.reason, refused.detail, row.payload)
    return identity, row.payload, None
