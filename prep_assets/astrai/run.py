"""Records on their way from files to shards, in batches and in order."""

from __future__ import annotations

import hashlib
import shlex
import unicodedata
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prep_assets.assets.build import all_refused
from prep_assets.assets.reading.examples import Deduplicator
from prep_assets.astrai.built import Batch
from prep_assets.astrai.columns import Row
from prep_assets.astrai.shards import ShardWriter
from prep_assets.astrai.task import Task
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.records.files import record_id
from prep_assets.records.quarantine import Quarantine, read_quarantine
from prep_assets.samples import Record
from prep_assets.schemas.reader import Account

DEFAULT = "__default__"
"""AstrAI's folder for records without a domain."""
EMPTY = "%empty"
LONGEST = 200
"""Bytes of a folder's name; file systems take 255."""
_RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10))}


def folder_of(value: str) -> str:
    """The folder of a domain value; different values have different folders, and every folder can be read back.

    No value leaves the output directory or nests in it: it is written as it is where it is letters, digits, ``_``, ``-``, inner dots and inner
    spaces; anything else as the percent code of its UTF-8 bytes, as in a URL. ``domains.json`` says which folder is which value.
    """
    last = len(value) - 1
    coded = "".join(char if _is_plain(char, i in (0, last)) else _percent(char) for i, char in enumerate(value))
    if value == DEFAULT or coded.split(".")[0].casefold() in _RESERVED:
        coded = _percent(coded[0]) + coded[1:]
    raw = coded.encode()
    if len(raw) > LONGEST:
        kept = raw[: LONGEST - 40].decode(errors="ignore")
        coded = f"{kept}%sha{hashlib.sha256(value.encode()).hexdigest()[:32]}"
    return coded or EMPTY


def _is_plain(char: str, at_end: bool) -> bool:
    return char.isalnum() or char in "_-" or (char in ". " and not at_end)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


@dataclass(slots=True)
class Domains:
    """The domain values seen so far.

    Attributes:
        values: value of each folder, in the order in which they came up; `None` for records without one.
    """

    values: dict[str, str | None] = field(default_factory=dict)
    _by_name: dict[str, str] = field(default_factory=dict)

    def folder(self, value: object) -> str:
        """The folder of a record whose domain key holds `value`; only a string names a domain.

        Raises:
            PrepAssetsError: another value has a folder that some file systems take for the same (they ignore case, or compose accents).
        """
        text = value if isinstance(value, str) else None
        folder = DEFAULT if text is None else folder_of(text)
        if folder not in self.values:
            same = self._by_name.setdefault(unicodedata.normalize("NFC", folder).casefold(), folder)
            if same != folder:
                raise PrepAssetsError(
                    f"domains {self.values[same]!r} and {text!r} become folders {same!r} and {folder!r}, which are one folder where file "
                    "systems ignore case or compose accents. Spell the domain alike in the data"
                )
            self.values[folder] = text
        return folder


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


Log = Callable[[Counts], None]
"""Is told the counts so far."""


@dataclass(slots=True)
class Run:
    """One pass over the input files: what is kept goes to the writer, what is refused to quarantine, and all of it is counted."""

    task: Task
    writer: ShardWriter
    quarantine: Quarantine
    account: Account
    deduplicator: Deduplicator | None = None
    log: Log = lambda counts: None
    log_interval: int | None = None
    counts: Counts = field(default_factory=Counts)
    domains: Domains = field(default_factory=Domains)

    def over(self, batches: Generator[Batch, None, None]) -> None:
        """All records, in order, until ``max_items`` are kept."""
        if self.task.has_mask:
            self.counts.trained = 0
        with closing(batches):  # workers are ended where not all of them are wanted
            for batch in batches:
                is_last = self._batch(batch)
                self.account.check("the pipeline", _to_ignore)
                if is_last:
                    break
        self.counts.refused = self.quarantine.counts

    def _batch(self, batch: Batch) -> bool:
        """Take over a batch; whether ``max_items`` is reached. Records after the last kept one count as never read."""
        records = {place: row for place, row in enumerate(batch.rows) if isinstance(row, Record)}
        gone = self.deduplicator.among(batch.file, list(records.values())) if self.deduplicator is not None else {}
        duplicates = {place: gone[row.row] for place, row in records.items() if row.row in gone}
        built = iter(batch.build([place for place in records if place not in duplicates]))
        for place, row in enumerate(batch.rows):
            self.counts.read += 1
            result = None
            if not isinstance(row, Record):
                self.quarantine.add_unreadable(batch.file, [row])
            elif isinstance(result := duplicates.get(place) or self._accounted(next(built)), Row):
                self._keep(row.payload, result)
            else:
                self.quarantine.add(record_id(batch.file, row.row), result.stage, result.reason, result.detail, row.payload)
            if self.log_interval and self.counts.read % self.log_interval == 0:
                self.log(self.counts)
            if isinstance(result, Row) and self.counts.kept == self.task.pipeline.preprocessing.max_items:
                return True
        return False

    def _accounted(self, result: Row | Refused) -> Row | Refused:
        """What a record becomes: nothing, where it has a decisive field that nothing reads."""
        if isinstance(result, Row) and (result.unread or result.dropped):
            try:
                self.account.note(result.dropped, result.unread)
            except Refused as refused:
                return refused
        return result

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


def _to_ignore(account: Account) -> str:
    options = " ".join(f"--ignore {shlex.quote(path)}" for path in sorted(account.unknown))
    return f"Name a section for them. If nothing is lost without them, add to the command:\n  {options}"
