"""Rows of any store in one form for pages, and both derivations of their masks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct, structs

from prep_assets.checks.of_conversations import conversations_of
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.blends.assets import training_streams
from prep_assets.extensions.blends.store import BLEND, open_blend
from prep_assets.extensions.explain.streams import RowName, row_names, sft_split
from prep_assets.extensions.lines.merged import merged_streams
from prep_assets.graph.graph import EVERY, lines_of, store_of, stream_table
from prep_assets.pipeline.asset import FromParts, Store
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.mask import Conversation, prove_masks, trained_runs
from prep_assets.stores.groups import REWARDS
from prep_assets.stores.table import TOKENS, Table
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import one_line, visible
from prep_assets.text.vocabulary import Vocabulary

# Rows of streams, in one form for every kind of store.

MOST_TOKENS = 4096
"""Most tokens of a row on a page."""


class Origin(Struct, frozen=True):
    """A record of a token store: domain, stream and number in the stream."""

    domain: str
    stream: str
    record: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a row that comes from one record: its first token in the row and in the record, the record, a note, the record's name, and the
    position id of its first token."""

    start: int
    offset: int
    origin: Origin
    note: str = ""
    name: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `ids` and `weights` of at most so many tokens as are asked for (no weights where the store has no mask), and its pieces; or a
    line. `stream` is the index of its stream on the page, `beside` the other side of a pair of tokens."""

    number: int
    ids: Sequence[int] = ()
    weights: Sequence[float] | None = None
    pieces: tuple[Piece, ...] = ()
    line: dict[str, Any] | None = None
    stream: int = 0
    beside: Row | None = None

    @property
    def sides(self) -> tuple[Row, ...]:
        """The row, and the other side of its pair."""
        return (self,) if self.beside is None else (self, self.beside)

    @property
    def pieces_of_sides(self) -> Iterator[Piece]:
        """The pieces of all sides."""
        return (piece for side in self.sides for piece in side.pieces)


Texts = list[tuple[str, str]]
"""(speaker, text) of a field; the speaker is empty where there is none."""


def line_texts(line: Mapping[str, Any]) -> dict[str, Texts]:
    """The texts of each field of a line: of messages by role, of lists by number, of other values as JSON."""
    return {name: list(_texts(value)) for name, value in line.items()}


def _texts(value: Any, number: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield number, value
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) and "role" in each for each in value):
        for message in value:
            rest = {key: part for key, part in message.items() if key not in ("role", "content") and part is not None}
            content = message.get("content")
            texts = [content if isinstance(content, str) else None if content is None else json.dumps(content, ensure_ascii=False)]
            texts += [f"{key}: {part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)}" for key, part in rest.items()]
            yield f"{number} {message['role']}".strip(), "\n".join(text for text in texts if text is not None)
    elif isinstance(value, list) and value and all(isinstance(each, str | list) for each in value):
        for at, each in enumerate(value, 1):
            yield from _texts(each, str(at))
    else:
        yield number, json.dumps(value, ensure_ascii=False)


def read(table: Table, numbers: Sequence[int], most: int = MOST_TOKENS) -> Iterator[Row]:
    """Read the rows with these ascending numbers, of each sequence at most so many tokens."""
    if table.path is not None:
        for number, line in zip(numbers, table.objects(numbers), strict=True):
            yield Row(number, pieces=(Piece(0, 0, _origin(table, number)),), line=line)
        return
    for number in numbers:
        ids, weights, starts = table.joined(number, most)
        yield Row(number, ids.tolist(), None if weights is None else weights.tolist(), tuple(_pieces(table, number, starts, len(ids))))


def _origin(table: Table, record: int) -> Origin:
    return Origin(table.origins.of(record)[0], table.name, record)


def _pieces(table: Table, number: int, starts: Sequence[int], tokens: int) -> Iterator[Piece]:
    """The pieces of a row: of an index, records of other stores; else its sequences, those after a prompt with their rewards."""
    if table.pieces is not None:
        for start, first, source, record in table.pieces.read(table.pieces.of(number), "row_offset", "start", "source", "record"):
            if start < tokens:
                yield Piece(start, first, Origin(table.pieces.domains[source], sft_split(table.name), record))
        return
    origin = _origin(table, number)
    yield Piece(0, 0, origin)
    if len(starts) > 1:
        [rewards], [prompt] = table.columns[REWARDS].arrays(number), table.columns["prompts"].spans(number)
        for at, (start, reward) in enumerate(zip(starts[1:], rewards.tolist(), strict=True)):
            yield Piece(start, 0, origin, f"response {at}, reward {reward:g}", position=prompt.stop - prompt.start)


def title(asset: str, table: Table, row: Row) -> str:
    """What a row is, and where."""
    name, length = f"{table.name} {table.schema.noun} {row.number:,} of {len(table):,}", int(table.lengths[row.number])
    if table.pieces is not None:
        trained = np.count_nonzero(np.asarray(row.weights or ()) > 0)
        return f"{name}: {length:,} of {table.width:,} places used, {trained:,} trained"
    if len(table.has("ids")) > 1:
        [prompt] = table.columns["prompts"].spans(row.number)
        return f"{asset} {name}: a prompt of {prompt.stop - prompt.start:,} tokens, {len(row.pieces) - 1} responses"
    return f"{asset} {name}: {length:,} tokens"


class Blend:
    """The items of a blend: windows of its domains' streams, or their records."""

    def __init__(self, workspace: Workspace, published: Published) -> None:
        self.store = open_blend(published.directory)
        self.streams = training_streams(workspace, EVERY[published.manifest.asset].family)

    def title(self, asset: str, row: Row) -> str:
        """What an item is, and where."""
        domain, number = self._item(row.number)
        item = f"{'window' if self.store.window else 'record'} {number:,}"
        return f"{asset} item {row.number:,} of {len(self.store):,}: {item} of {domain}, {len(row.ids):,} tokens"

    def _item(self, number: int) -> tuple[str, int]:
        return self.store.domains[int(self.store.domain[number])], int(self.store.item[number])

    def read(self, number: int, most: int = MOST_TOKENS) -> Row:
        """Read one item, at most so many tokens of it."""
        domain, item = self._item(number)
        tokens, window = self.streams[domain], self.store.window
        column = tokens.columns["tokens"]
        span = slice(item * window, (item + 1) * window) if window else column.span(slice(item, item + 1))
        span = slice(span.start, min(span.stop, span.start + most))
        first, last = np.searchsorted(column.ends, [span.start, span.stop - 1], "right").tolist()
        begins = {record: column.spans(record)[0].start for record in range(first, last + 1)}
        pieces = tuple(
            Piece(start := max(0, begin - span.start), 0, Origin(domain, "", record), position=span.start + start - begin)
            for record, begin in begins.items()
        )
        weights = tokens.weights("tokens", span)
        return Row(number, np.asarray(column.values[span]).tolist(), None if weights is None else weights.astype(float).tolist(), pieces)


def record_names(workspace: Workspace, published: Published) -> Callable[[Origin], str]:
    """Return a function that names records, ``<domain>/<file>:<row>``; by number, where their source store is gone."""
    asset, partition = EVERY.get(published.manifest.asset), published.manifest.partition

    def row_names_of(domain: str) -> RowName:
        assert asset is not None
        raw = workspace.published(f"{asset.family}_raw", domain)
        if raw is None:  # generated, so there is no raw store
            return lambda file, row: f"{domain}:{row + 1}"
        name = row_names(raw)
        return lambda file, row: f"{domain}/{name(file, row)}"

    def lines_named(name: str, file: str) -> Table:
        store = workspace.published(name, partition)
        if store is None:
            raise LookupError(file)
        return stream_table(store, file)

    def table_of_records(domain: str, stream: str) -> Table:
        if asset is not None and asset.stage == BLEND:
            found = training_streams(workspace, asset.family)[domain]
            return replace(found, origins=structs.replace(found.origins, domains=(domain,)))
        of_records = tokens_of(workspace, published, domain) if published.manifest.asset == "sft_packed" else published
        return stream_table(of_records, stream)

    # caches that live as long as the returned function
    naming, open_lines_of, open_records = cache(row_names_of), cache(lines_named), cache(table_of_records)

    def named(origin: Origin) -> str:
        assert asset is not None
        table, record, answer = open_records(origin.domain, origin.stream), origin.record, ""
        if (line_stream := lines_of(asset.name, origin.stream)) is not None and table.path is None:
            record = int(table.origins.row[record])
            table = open_lines_of(*line_stream)
        elif table.schema.fits(TOKENS) and (part := table.origins.part(record))[1] > 1:
            answer = ", answer {} of {}".format(*part)
        domain, file, row = table.origins.of(record)
        return naming(domain)(file, row) + answer

    def name(origin: Origin) -> str:
        try:
            return named(origin)
        except (PrepAssetsError, LookupError, OSError):
            return f"{origin.domain or origin.stream} record {origin.record:,}"

    return name


def tokens_of(workspace: Workspace, packed: Published, domain: str) -> Published:
    """The token store of a domain that a packed table was made from.

    Raises:
        LookupError: it is gone or was built again.
    """
    tokens = workspace.published("sft_tokens", domain)
    content_hashes: Mapping[str, str] = packed.manifest.recipe["tokens"]
    if tokens is None or tokens.manifest.content_hash != content_hashes.get(domain):
        raise LookupError(f"sft_tokens[{domain}] was built again since this table")
    return tokens


# Both derivations of a record's mask, stretch by stretch: what the store trains, and what its source says must be trained.

MOST_CHARACTERS = 2000
"""Most characters of a stretch on a page."""
Proof = list[Any]
"""Both derivations of a record as JSON: a note, empty where they agree; and a list of trained stretches ``[start, end, stored, derived]``: tokens of the
record, -1 where the store trains none; their text and weight; and text and weight that the source says must be trained."""


def proofs(
    workspace: Workspace, published: Published, origins: Iterable[Origin], vocabulary: Vocabulary
) -> tuple[dict[Origin, Proof], list[str]]:
    """The proofs of records, from their sources read again; and reasons why some have none."""
    by_origin: dict[Origin, Proof] = {}
    missing: list[str] = []
    sorted_origins = sorted(set(origins), key=attrgetter("domain", "stream", "record"))
    for (domain, stream), records in groupby(sorted_origins, key=attrgetter("domain", "stream")):
        try:
            for number, row in _mask_rows(workspace, published, domain, stream, [origin.record for origin in records]):
                by_origin[Origin(domain, stream, number)] = prove(row, vocabulary)
                if workspace.progress:
                    workspace.progress(f"derive masks of {published.manifest.label}", len(by_origin), len(sorted_origins))
        except (PrepAssetsError, LookupError, OSError) as error:
            missing.append(f"{domain or stream}: {error}")
    return by_origin, missing


def _mask_rows(
    workspace: Workspace, published: Published, domain: str, stream: str, records: Sequence[int]
) -> Iterator[tuple[int, Conversation]]:
    packed = published.manifest.asset == "sft_packed"
    store = store_of(workspace, tokens_of(workspace, published, domain) if packed else published)
    if isinstance(store.asset.source, FromParts):
        return _merged_rows(store, stream, records)
    conversations = conversations_of(store)
    return iter(()) if conversations is None else conversations.rows(stream, records)


def _merged_rows(store: Store, stream: str, records: Sequence[int]) -> Iterator[tuple[int, Conversation]]:
    """Records of a merged store, with the expected answers from the stores of their domains."""
    parts = [store_of(store.workspace, store.above(store.asset.parts, name)) for name in store.domains]
    opened = list(filter(None, map(conversations_of, parts)))
    if not opened:
        return
    [merged] = (candidate for candidate in merged_streams(store) if candidate.name == stream)
    for number, conversations in enumerate(opened):
        wanted = {int(merged.copies.record[record]): record for record in records if merged.copies.part[record] == number}
        for at, row in conversations.rows(stream, list(wanted)) if wanted else ():
            [ids], [mask] = (merged.table.columns[key].arrays(wanted[at]) for key in ("tokens", "loss_mask"))
            yield wanted[at], replace(row, ids=ids, mask=mask)


def prove(row: Conversation, vocabulary: Vocabulary) -> Proof:
    """Both derivations of one record, and the check's note on them."""
    runs = trained_runs(row, vocabulary)
    texts = vocabulary.decode_batch([row.ids[start:end].tolist() for start, end in runs])
    stretches = []
    for run, text, expected in zip_longest(runs, texts, row.left.expected):
        stored = None if run is None else [visible(text[:MOST_CHARACTERS]), float(row.mask[run[0]])]
        derived = None if expected is None else [visible(expected.text[:MOST_CHARACTERS]), expected.weight]
        stretches.append([*(run or (-1, -1)), stored, derived])
    worst = prove_masks([row], vocabulary).worst
    return [one_line(worst.note) if worst else "", stretches]
