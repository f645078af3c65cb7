"""`trace`: a row of any store back to the rows of its sources, token by token.

The way back is read from the indexes of the stores. Then each record is read again from its source and made into tokens once more, from that record
alone; so whatever a trace says of a token is what its source gives, and a token that differs is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.graph import holds, one_partition
from prep_assets.assets.reading.pinned import read_sources
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Rl
from prep_assets.errors import Refused, StoreError
from prep_assets.exports.source import SIDES
from prep_assets.lineage import derive
from prep_assets.lineage.opened import DRAFT, Opened
from prep_assets.lineage.rows import Origin, Piece, Place, Row, read_row, stream_of
from prep_assets.lineage.sequence import Sequence as Tokens
from prep_assets.lineage.sources import files_of, nth_row, read_rows
from prep_assets.records.blocks import Unreadable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.remote import file_name
from prep_assets.samples import Record
from prep_assets.schemas.arithmetic import arithmetic_rows
from prep_assets.stores.tokens import TokenStore


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a source.

    Attributes:
        domain, id: of the record, ``gsm8k`` and ``gsm8k.jsonl:17``.
        file, url, sha256: its file: the name within the domain, where it is, and the hash of its bytes.
        row: number of the row in the file, from 0.
        held_out: whether the file is one of the domain's `test_files`.
        payload: the row itself; a text where it cannot be read.
    """

    domain: str
    id: str
    file: str
    url: str
    sha256: str
    row: int
    held_out: bool
    payload: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A piece of a row, with its source.

    Attributes:
        piece: where it stands, and the way to the source.
        source: the row of the source; `None` where it was generated.
        line: the line of the JSONL store on the way, where there is one.
        sequence: the record's tokens, made once more; `None` of what has no tokens.
        differs: places in the row where the store holds another token, or another weight, than the source gives.
    """

    piece: Piece
    source: SourceRow | None
    line: Mapping[str, Any] | None
    sequence: Tokens | None
    differs: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A row of a store, traced.

    Attributes:
        row: the row as it is stored.
        pieces: what it is made of.
        hashes: by store on the way: build key, content, tokenizer and template.
        made_with: the workspace as the build of the store saw it: that of a draft has the options of its run.
    """

    row: Row
    pieces: tuple[Traced, ...]
    hashes: Mapping[str, Mapping[str, Any]]
    made_with: Workspace

    @property
    def differs(self) -> tuple[int, ...]:
        """Places at which the store is not what its sources give."""
        return tuple(place for each in self.pieces for place in each.differs)

    def hashes_of(self, traced: Traced) -> Mapping[str, Mapping[str, Any]]:
        """`hashes` of the stores on the way to one piece."""
        labels = [f"{asset}[{partition}]" if partition else asset for asset, partition in _stores(traced.piece)]
        return {label: hashes for label, hashes in self.hashes.items() if label.removesuffix(DRAFT) in labels}


def trace(
    workspace: Workspace, asset: str, row: int, *, partition: str | None = None, stream: str | None = None, draft: bool = False
) -> Trace:
    """Trace one row.

    Args:
        row: row, record, line or group, counted from 0; of a raw asset over all its files.
        partition: a domain, for an asset that has one store for each.
        stream: which stream, table or file of the store, where it has several.
        draft: the store that a run with options of its own made last, in place of the current one.

    Raises:
        ConfigError: no such asset, partition, stream or row; or an asset that has no rows.
        StoreError: the store is missing, or out of date.
        SourceError: a source changed since it was read.
    """
    tracer = Tracer(workspace, _store_of(workspace, asset, partition) if draft else None)
    place = tracer.place(asset, row, partition, stream)
    return tracer.trace([place])[0]


def _store_of(workspace: Workspace, asset: str, partition: str | None) -> tuple[str, str]:
    found, each = one_partition(workspace, asset, partition)
    return found.name, each


class Tracer:
    """Traces many rows of a workspace; each store is opened once, and each source file is read once for all rows asked for together.

    Args:
        draft: asset and partition of a store whose draft is traced.
    """

    def __init__(self, workspace: Workspace, draft: tuple[str, str] | None = None) -> None:
        self.opened = Opened(workspace, draft)
        self.workspace = self.opened.workspace
        self._makers: dict[tuple[str, str], Any] = {}

    def place(self, asset: str, row: int, partition: str | None, stream: str | None) -> Place:
        """The row that is meant.

        Raises:
            ConfigError, StoreError: as `trace`.
        """
        store = _store_of(self.workspace, asset, partition)
        return Place(*store, stream_of(self.opened.published(*store), stream), row)

    def trace(self, places: Sequence[Place]) -> list[Trace]:
        """Trace rows, in the order given."""
        rows = [self.row(place) for place in places]
        wanted: dict[tuple[str, str], set[tuple[int, int]]] = {}
        for origin in (piece.origin for row in rows for piece in row.pieces if piece.origin):
            wanted.setdefault((origin.raw, origin.domain), set()).add((origin.file, origin.row))
        read = {key: read_rows(self.workspace, *key, numbers) for key, numbers in wanted.items()}
        sources = {key: files_of(self.workspace, *key) for key in wanted}
        found = []
        for row in rows:
            pieces = [self._piece(row, piece, read, sources) for piece in row.pieces]
            made_with = self.opened.made_with(row.place.asset, row.place.partition)
            found.append(Trace(row, tuple(pieces), self._hashes(row), made_with))
        return found

    def row(self, place: Place) -> Row:
        """A row as it is stored, and what it is made of."""
        if place.asset.endswith("_raw"):
            origin, count = nth_row(self.workspace, place.asset, place.partition, place.row)
            return Row(place, count, np.zeros(0, np.int64), None, (Piece(0, 0, 0, 0, (place,), origin),))
        return read_row(self.opened, place)

    # -- one piece ----------------------------------------------------------------------------------------------------------------------

    def _piece(self, row: Row, piece: Piece, read: Mapping[Any, Any], sources: Mapping[Any, tuple[SourceFile, ...]]) -> Traced:
        origin = piece.origin
        record = file = source = None
        if origin is not None:
            record = read[origin.raw, origin.domain][origin.file, origin.row]
            file = sources[origin.raw, origin.domain][origin.file]
            source = self._source(origin, file, record)
        if piece.path[-1].asset.endswith("_raw"):
            return Traced(piece, source, None, None, ())
        try:
            line, sequence = self._made(piece, file, record)
        except Refused as refusal:
            raise StoreError(
                f"{piece.path[0].asset} holds {source.id if source else 'a record'}, which its source no longer gives: {refusal}. Verify the store:\n"
                f"  prep-assets verify {piece.path[0].asset}"
            ) from refusal
        return Traced(piece, source, line, sequence, () if sequence is None else _differs(row, piece, sequence))

    def _source(self, origin: Origin, file: SourceFile, record: Record | Unreadable) -> SourceRow:
        listed = read_sources(self.opened.published(origin.raw, origin.domain))
        training = len(listed["files"])
        entry = [*listed["files"], *listed["test_files"]][origin.file]
        identity = record_id(file, origin.row)
        return SourceRow(
            origin.domain, identity, file.name, file_name(file.url), entry["sha256"], origin.row, origin.file >= training, record.payload
        )

    def _made(self, piece: Piece, file: SourceFile | None, record: Record | None) -> tuple[Mapping[str, Any] | None, Tokens | None]:
        """The line and the tokens that the record gives, from the record alone."""
        last = piece.path[-1]
        if last.asset in _SEQUENCES:
            assert file is not None
            assert record is not None
            return None, self._maker(last.asset, piece)(file, record)[piece.part]
        if last.asset == "arithmetic_prompts":
            line = _arithmetic(self.opened.made_with(last.asset), last.row)
        else:
            line = self._maker(last.asset, piece)(record)
        if len(piece.path) == 1 or (tokens := _tokens_place(piece.path)) is None:
            return line, None
        workspace = self.opened.made_with(tokens.asset, tokens.partition)
        if tokens.stream.rpartition("/")[2] in SIDES:
            return line, derive.pair_sequence(workspace, line, tokens.stream)
        return line, derive.prompt_sequence(workspace, line)

    def _maker(self, asset: str, piece: Piece) -> Any:
        """What makes sequences, or a line, of a record of this domain."""
        assert piece.origin is not None
        key = (asset, piece.origin.domain)
        if key not in self._makers:
            made_with = self.opened.made_with(*key), key[1]
            lines = (*made_with, self.opened.published(*key).directory) if asset in _LINES else None
            self._makers[key] = _LINES[asset](*lines) if lines else _SEQUENCES[asset](*made_with)
        return self._makers[key]

    def _hashes(self, row: Row) -> Mapping[str, Mapping[str, Any]]:
        stores = [(row.place.asset, row.place.partition), *(store for piece in row.pieces for store in _stores(piece))]
        return {self.opened.label(*store): self.opened.hashes(*store) for store in dict.fromkeys(stores)}


def _stores(piece: Piece) -> list[tuple[str, str]]:
    """The stores on the way from a row to its source."""
    found = [(place.asset, place.partition) for place in piece.path]
    return found if piece.origin is None else [*found, (piece.origin.raw, piece.origin.domain)]


_SEQUENCES: Mapping[str, Callable[[Workspace, str], derive.Derive]] = {
    "sft_tokens": derive.conversations,
    "pretrain_tokens": derive.documents,
    "rl_groups_by_domain": derive.groups,
}
_LINES: Mapping[str, Callable[[Workspace, str, Path], Callable[[Record], Mapping[str, Any]]]] = {
    "preferences_by_domain": derive.pairs,
    "rl_prompts_by_domain": derive.prompts,
    "contrastive": lambda workspace, name, _: derive.contrasts(workspace, name),
}


def _tokens_place(path: Sequence[Place]) -> Place | None:
    """The store in which a record was tokenized: of those on the way, the one next to its source."""
    return next((place for place in reversed(path) if holds(place.asset, TokenStore)), None)


def _arithmetic(workspace: Workspace, number: int) -> Mapping[str, Any]:
    """A generated question, generated once more."""
    options = workspace.family(Rl).arithmetic
    chosen = {} if options.levels is None else {"levels": options.levels}
    for at, row in enumerate(arithmetic_rows(options.n, options.largest, options.seed, unique=options.unique, **chosen)):
        if at == number:
            return {"prompt": row["prompt"]}
    raise StoreError(f"arithmetic_prompts has a line {number:,}, and {options.n:,} are generated. Build it again")


def _differs(row: Row, piece: Piece, sequence: Tokens) -> tuple[int, ...]:
    count = piece.end - piece.start
    stretch = slice(piece.first, piece.first + count)
    ids, loss = sequence.ids[stretch], sequence.loss[stretch]
    common = min(count, len(ids))
    here = slice(piece.start, piece.start + common)
    wrong = row.ids[here] != ids[:common]
    if row.weights is not None:
        wrong = wrong | (row.weights[here] != loss[:common])
    return (*(piece.start + np.flatnonzero(wrong)).tolist(), *range(piece.start + common, piece.end))
