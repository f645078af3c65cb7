"""The records of any version of a store, current or not: what each holds, and the name of the row that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.assets.graph import EVERY, lines_of
from prep_assets.assets.reading.pinned import read_sources
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.lineage.opened import WITH_ROWS, AnyStream, open_stream, sft_split, source_rows, streams
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.versions import version_with


@dataclass(frozen=True, slots=True, eq=False)
class StoredRecord:
    """One record of a store.

    Attributes:
        stream, domain: where it is, and what it is of.
        id: of the row that it comes from, ``gsm8k.jsonl:17``; its number where the row is no longer known.
        ids, weights: int64[T], float32[T]: its tokens and their weights in the loss, below 0 where they are not attended; empty of a line.
        line: a line of text; empty of tokens.
    """

    stream: str
    domain: str
    id: str
    ids: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    line: bytes = b""

    @property
    def digest(self) -> bytes:
        """Equal exactly when the content is."""
        found = xxhash.xxh3_128(self.line)
        found.update(self.ids.tobytes())
        found.update(self.weights.tobytes())
        return found.digest()


def contents(workspace: Workspace, published: Published) -> Iterator[StoredRecord]:
    """Every record of a version, held-out ones too, in the order in which it is stored.

    Raises:
        ConfigError: a store without records, such as an export, whose rows are those of the store that it was made from.
    """
    manifest = published.manifest
    if manifest.asset not in WITH_ROWS:
        source = manifest.recipe.get("from")
        hint = f"; compare {source}, which it is made from" if source else ""
        raise ConfigError(f"{manifest.asset} holds no records of its own{hint}")
    for stream in streams(published):
        yield from _contents(workspace, published, stream, open_stream(published, stream))


def has_records(published: Published) -> bool:
    """Whether `contents` can read a store."""
    return published.manifest.asset in WITH_ROWS


Name = Callable[[int, int], str]
"""File and row → id of a record."""


def _names(workspace: Workspace, raw: str, domain: str, content: str | None) -> Name:
    """Ids of records as the raw store named its files that a version was made from; numbers where it is gone."""
    found = version_with(workspace.place(raw, domain), content)
    files = [] if found is None else [entry["name"] for which in ("files", "test_files") for entry in read_sources(found)[which]]
    return lambda file, row: f"{files[file]}:{row}" if file < len(files) else f"file {file}:{row}"


def _names_of(workspace: Workspace, published: Published, domains: Iterable[str]) -> dict[str, Name]:
    """Ids of the records of each domain of a store, by way of the stores that it was merged from."""
    manifest, asset = published.manifest, EVERY[published.manifest.asset]
    found = {}
    for domain in domains:
        part = version_with(workspace.place(asset.parts, domain), manifest.recipe["domains"].get(domain)) if asset.parts else published
        found[domain] = _names(workspace, f"{asset.family}_raw", domain, None if part is None else part.manifest.recipe.get("raw"))
    return found


def _contents(workspace: Workspace, published: Published, stream: str, store: AnyStream) -> Iterator[StoredRecord]:
    partition = published.manifest.partition
    if isinstance(store, PackedStore):
        yield from _packed(workspace, published, stream, store)
    elif isinstance(store, TokenStore) and lines_of(published.manifest.asset, stream):  # its records are called by their lines
        yield from _records(store, stream, partition or stream, lambda file, row: f"line {row}")
    elif isinstance(store, TokenStore):
        yield from _records(store, stream, partition, _names_of(workspace, published, [partition])[partition])
    else:
        rows = source_rows(store, partition)
        names = _names_of(workspace, published, rows.domains)
        for number, content in enumerate(_lines(store) if isinstance(store, Lines) else _groups(store)):
            domain, file, row = rows.of(number)
            yield StoredRecord(stream, domain, names[domain](file, row), *content)


def _records(store: TokenStore, stream: str, domain: str, name: Name) -> Iterator[StoredRecord]:
    first = store.begins_row
    part = 0
    for number in range(len(store)):
        part = 0 if first[number] else part + 1
        yield StoredRecord(stream, domain, _part_name(name, store, number, part), *_arrays(store, number))


def _part_name(name: Name, store: TokenStore, number: int, part: int) -> str:
    return name(int(store.file[number]), int(store.row[number])) + (f", answer {part + 1}" if part else "")


def _arrays(store: TokenStore, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    ids = store.record(number, "tokens").astype(np.int64)
    weights = store.weights(number) if "loss_mask" in store.arrays else np.ones(len(ids))
    return ids, weights.astype(np.float32)


def _packed(workspace: Workspace, published: Published, stream: str, table: PackedStore) -> Iterator[StoredRecord]:
    """The pieces of each record put together again. A record that is in the table several times is so many records."""
    recipe = published.manifest.recipe["tokens"]
    ids = {domain: cache(_record_names(workspace, domain, recipe.get(domain), sft_split(stream))) for domain in table.sources}
    order = np.lexsort([np.asarray(table.documents[field]) for field in ("start", "record", "source")])
    fields = [np.asarray(table.documents[field])[order].tolist() for field in ("source", "record", "start", "length", "row", "row_offset")]
    for _, pieces in groupby(zip(*fields, strict=True), key=itemgetter(0, 1)):
        for copy in _copies(pieces):
            yield _joined(table, copy, stream, ids)


def _copies(pieces: Iterable[Sequence[int]]) -> list[list[Sequence[int]]]:
    """The pieces of one record, ascending by start, as so many copies of it as are in the table; each piece goes on where one of them ends."""
    copies: list[list[Sequence[int]]] = []
    for piece in pieces:
        open_ends = [copy for copy in copies if copy[-1][2] + copy[-1][3] <= piece[2]]
        if open_ends:
            max(open_ends, key=lambda copy: copy[-1][2] + copy[-1][3]).append(piece)
        else:
            copies.append([piece])
    return copies


def _joined(table: PackedStore, pieces: Sequence[Sequence[int]], stream: str, ids: Mapping[str, Callable[[int], str]]) -> StoredRecord:
    domain = table.sources[pieces[0][0]]
    places = [(row, slice(offset, offset + length)) for _, _, _, length, row, offset in pieces]
    tokens = np.concatenate([np.asarray(table.tokens[row])[part] for row, part in places]).astype(np.int64)
    weights = np.concatenate([table.weights(row)[part] for row, part in places]).astype(np.float32)
    return StoredRecord(stream, domain, ids[domain](pieces[0][1]), tokens, weights)


def _record_names(workspace: Workspace, domain: str, content: str | None, split: str) -> Callable[[int], str]:
    tokens = version_with(workspace.place("sft_tokens", domain), content)
    if tokens is None:
        return lambda record: f"record {record}"
    store, name = open_tokens(tokens.directory, split), _names(workspace, "sft_raw", domain, tokens.manifest.recipe.get("raw"))
    return lambda record: _part_name(name, store, record, store.part(record)[0] - 1)


Content = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], bytes]
_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.float32)


def _lines(lines: Lines) -> Iterator[Content]:
    with lines.path.open("rb") as file:
        yield from ((*_NOTHING, line) for line in file)


def _groups(store: GroupStore) -> Iterator[Content]:
    for number in range(len(store)):
        prompt = store.prompts.record(number, "tokens")
        answers = [_arrays(store.responses, each) for each in store.responses_of(number)]
        ids = np.concatenate([prompt, *(each for each, _ in answers)]).astype(np.int64)
        weights = np.concatenate([np.zeros(len(prompt), np.float32), *(each for _, each in answers)])
        yield ids, weights, store.rewards.record(number, "rewards").tobytes()
