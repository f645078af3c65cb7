"""The rows of a store in one form for pages, with both derivations of their masks, and a page's data."""

from __future__ import annotations

import base64
import gzip
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise, zip_longest
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_conversations import Chats, Sides
from prep_assets.checks.of_lines import merged_streams
from prep_assets.errors import PrepAssetsError
from prep_assets.explain.streams import (
    AnyStream,
    Int64s,
    RowName,
    group_sequences,
    open_stream,
    row_names,
    sft_split,
    source_rows,
    tokens_and_weights,
)
from prep_assets.explain.streams import streams as names_of_streams
from prep_assets.explain.visible import one_line, visible
from prep_assets.graph.graph import EVERY, lines_of, store_of
from prep_assets.graph.previews import token_texts
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.mask import Row as MaskRow
from prep_assets.proofs.mask import prove_masks, trained_runs
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.version_folders import Published
from prep_assets.text.vocabulary import Vocabulary

# The rows of a store's streams, all of one form, whatever the store holds.

MOST_TOKENS = 4096
"""Tokens of a row that a page holds."""
MOST_LINE_CHARACTERS = 20_000
"""Characters of a line that a page holds."""
BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Origin:
    """A record of a token store: the domain, the stream and the number there."""

    domain: str
    stream: str
    record: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a row that comes from one record: its first token in the row, its first token in the record, which record that is, and its name."""

    start: int
    offset: int
    origin: Origin
    note: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `ids` and `weights` of at most `MOST_TOKENS` tokens (no weights where the store has no mask), and its pieces; or the text of a
    line. `stream` is the number of its stream on a page."""

    number: int
    ids: Sequence[int] = ()
    weights: Sequence[float] | None = None
    pieces: tuple[Piece, ...] = ()
    text: str = ""
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """What one domain has in a stream: the length of each of its documents, and how many tokens of each are trained."""

    domain: str
    lengths: Int64s
    trained: Int64s | None


def parts_by_domain(domains: Sequence[str], domain: npt.NDArray[Any], lengths: Int64s, trained: Int64s | None) -> list[Part]:
    """The documents of each domain; `domain` has the number of each document's."""
    chosen = [np.asarray(domain) == number for number in range(len(domains))]
    return [Part(name, lengths[its], None if trained is None else trained[its]) for name, its in zip(domains, chosen, strict=True)]


class Stream(ABC):
    """Rows of one kind.

    Attributes:
        name: as its store calls it.
        lengths, trained: of all rows: int64[n]; tokens, or what `unit` says. `trained` is `None` where there is no mask.
    """

    unit = "tokens"

    def __init__(self, name: str, lengths: Int64s, trained: Int64s | None) -> None:
        self.name, self.lengths, self.trained = name, lengths, trained

    @abstractmethod
    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        """The rows with these numbers, which ascend."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """The stream by domain."""


class TokenRows(Stream):
    """A ragged token stream of one domain, or of one whose records are lines of several."""

    def __init__(self, name: str, domain: str, store: TokenStore) -> None:
        self.domain, self.store = domain, store
        super().__init__(name, store.lengths, trained_tokens(store))

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        for number in numbers:
            ids, weights = tokens_and_weights(self.store, number, MOST_TOKENS)
            origin = Origin(self.domain, self.name, number)
            yield Row(number, ids.tolist(), None if weights is None else weights.tolist(), (Piece(0, 0, origin),))

    def parts(self) -> list[Part]:
        return [Part(self.domain or self.name, self.lengths, self.trained)]


class PackedRows(Stream):
    """A packed table, made of the records of one stream of every domain."""

    def __init__(self, name: str, store: PackedStore) -> None:
        self.store, self.documents = store, {key: np.asarray(values) for key, values in store.documents.items()}
        lengths = np.bincount(self.documents["row"], self.documents["length"], len(store)).astype(np.int64)
        counts = [np.count_nonzero(mask, axis=1) for _, _, mask in store.blocks()]
        super().__init__(name, lengths, np.concatenate([np.zeros(0, np.int64), *counts]))

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        for number in numbers:
            used, entries = min(int(self.lengths[number]), MOST_TOKENS), self.store.pieces(number)
            columns = (self.documents[key][entries].tolist() for key in ("row_offset", "start", "source", "record"))
            pieces = tuple(
                Piece(start, offset, Origin(self.store.sources[source], sft_split(self.name), record))
                for start, offset, source, record in zip(*columns, strict=True)
                if start < used
            )
            ids, weights = self.store.tokens[number][:used], self.store.weights(number)[:used]
            yield Row(number, ids.tolist(), weights.astype(float).tolist(), pieces)

    def parts(self) -> list[Part]:
        rows, lengths = self.documents["row"], self.documents["length"]
        trained = np.zeros(len(rows), np.int64)
        for first, _, mask in self.store.blocks():
            low, high = np.searchsorted(rows, [first, first + len(mask)])
            so_far = _so_far(mask.reshape(-1))
            start = (rows[low:high] - first) * self.store.row_len + self.documents["row_offset"][low:high]
            trained[low:high] = so_far[start + lengths[low:high]] - so_far[start]
        return parts_by_domain(self.store.sources, self.documents["source"], lengths, trained)


class GroupRows(Stream):
    """Scored groups: a row is a prompt with its responses, one after another."""

    def __init__(self, name: str, store: GroupStore) -> None:
        self.store = store
        trained = trained_tokens(store.responses)
        lengths = store.prompts.lengths + self._added_up(store.responses.lengths)
        super().__init__(name, lengths, None if trained is None else self._added_up(trained))

    def _added_up(self, of_responses: Int64s) -> Int64s:
        so_far = np.concatenate([np.zeros(1, np.int64), np.cumsum(of_responses)])
        return np.diff(so_far[self.store.rewards.ends], prepend=0)

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        for number in numbers:
            origin = Origin(self.store.sources[int(self.store.source[number])], self.name, number)
            rewards = self.store.rewards.record(number, "rewards").tolist()
            notes = ["", *(f"response {at}, reward {reward:g}" for at, reward in enumerate(rewards, 1))]
            ids, weights = zip(*group_sequences(self.store, number, MOST_TOKENS), strict=True)
            starts = np.cumsum([0, *map(len, ids)]).tolist()[:-1]
            pieces = tuple(Piece(start, 0, origin, note) for start, note in zip(starts, notes, strict=True))
            yield Row(number, np.concatenate(ids).tolist(), np.concatenate(weights).tolist(), pieces)

    def parts(self) -> list[Part]:
        return parts_by_domain(self.store.sources, self.store.source, self.lengths, self.trained)


class LineRows(Stream):
    """A JSONL file."""

    unit = "bytes"

    def __init__(self, name: str, lines: Lines) -> None:
        self.lines = lines
        with lines.path.open("rb") as file:
            super().__init__(name, np.fromiter(map(len, file), np.int64, len(lines)), None)

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        wanted, source = set(numbers), self.lines.index["source"]
        for number, content in enumerate(self.lines):
            if number in wanted:
                text = json.dumps(content, indent=1, ensure_ascii=False)[:MOST_LINE_CHARACTERS]
                origin = Origin(self.lines.sources[int(source[number])], self.name, number)
                yield Row(number, pieces=(Piece(0, 0, origin),), text=text)

    def parts(self) -> list[Part]:
        return parts_by_domain(self.lines.sources, self.lines.index["source"], self.lengths, None)


def weight_runs(weights: Sequence[float]) -> list[tuple[int, int, float]]:
    """Start, end and weight of each run of tokens of one weight."""
    values = np.asarray(weights, np.float64)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
    return [(start, end, float(values[start])) for start, end in pairwise(edges)]


def trained_tokens(store: TokenStore) -> Int64s | None:
    """How many tokens of each record are trained: int64[n]; `None` where the store has no mask."""
    if "loss_mask" not in store.arrays:
        return None
    counts = np.zeros(len(store), np.int64)
    for records, tokens in store.blocks(BLOCK):
        so_far = _so_far(np.asarray(store.arrays["loss_mask"][tokens]))
        counts[records] = np.diff(so_far[store.ends[records] - tokens.start], prepend=0)
    return counts


def _so_far(mask: npt.NDArray[Any]) -> Int64s:
    """How many tokens are trained before each: int64[n + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(mask != 0)])


def sampled(counts: Mapping[int, int], want: int, seed: int = 0) -> dict[int, list[int]]:
    """Which rows of each stream a page holds: all where they fit, else the first, the last and rows drawn by `seed`, about `want` altogether."""
    total = sum(counts.values())
    if total <= want:
        return {stream: list(range(count)) for stream, count in counts.items()}
    generator, chosen = np.random.Generator(np.random.PCG64(seed)), {}
    for stream, count in counts.items():
        quota = min(count, max(2, want * count // total))
        ends = min(10, quota // 2)
        drawn = generator.choice(count - 2 * ends, quota - 2 * ends, replace=False) + ends
        chosen[stream] = [*range(ends), *sorted(drawn.tolist()), *range(count - ends, count)]
    return chosen


def streams(published: Published) -> list[Stream]:
    """The streams of rows in a store, those held out last; none in a store of sources, of a certificate, or of a trainer's files.

    Raises:
        StoreError: the payload cannot be read.
    """
    partition, asset = published.manifest.partition, EVERY.get(published.manifest.asset)
    if asset is None:
        return []
    declared = [each.stem.format(partition=partition) for each in asset.streams.values() if each.kind is TokenStore and each.stem]
    names = sorted(names_of_streams(published), key=lambda name: declared.index(name) if name in declared else 0)
    return [_opened(name, partition, open_stream(published, name)) for name in names]


def _opened(name: str, partition: str, store: PackedStore | TokenStore | Lines | GroupStore) -> Stream:
    match store:
        case PackedStore():
            return PackedRows(name, store)
        case GroupStore():
            return GroupRows(name, store)
        case Lines():
            return LineRows(name, store)
        case TokenStore():
            return TokenRows(name, partition, store)


def record_names(workspace: Workspace, published: Published) -> Callable[[Origin], str]:
    """Record → its name, ``<domain>/<file>:<row>``; its number, where what it was made from is not there any more."""
    asset, partition = EVERY.get(published.manifest.asset), published.manifest.partition

    def row_names_of(domain: str) -> RowName:
        assert asset is not None
        raw = workspace.published(f"{asset.family}_raw", domain)
        if raw is None:  # questions that are made, not read
            return lambda file, row: f"{domain}:{row}"
        name = row_names(raw)
        return lambda file, row: f"{domain}/{name(file, row)}"

    def lines_named(name: str, file: str) -> Lines:
        found = workspace.published(name, partition)
        if found is None:
            raise LookupError(file)
        return open_lines(found.directory, file)

    def store_of_records(domain: str, stream: str) -> AnyStream:
        return open_stream(tokens_of(workspace, published, domain) if published.manifest.asset == "sft_packed" else published, stream)

    # they go with the page that asks for names
    naming, lines, opened = cache(row_names_of), cache(lines_named), cache(store_of_records)

    def named(origin: Origin) -> str:
        assert asset is not None
        store, answer = opened(origin.domain, origin.stream), ""
        assert not isinstance(store, PackedStore)
        rows, record = source_rows(store, origin.domain), origin.record
        if isinstance(store, TokenStore) and (made_of := lines_of(asset.name, origin.stream)) is not None:
            rows, record = source_rows(lines(*made_of), origin.domain), int(store.row[record])
        elif isinstance(store, TokenStore) and (part := store.part(record))[1] > 1:
            answer = ", answer {} of {}".format(*part)
        domain, file, row = rows.of(record)
        return naming(domain)(file, row) + answer

    def name(origin: Origin) -> str:
        try:
            return named(origin)
        except (PrepAssetsError, LookupError, OSError):
            return f"{origin.domain or origin.stream} record {origin.record:,}"

    return name


def tokens_of(workspace: Workspace, packed: Published, domain: str) -> Published:
    """The very store of a domain's tokens that a packed table was made from.

    Raises:
        LookupError: it is not there, or another one is.
    """
    found = workspace.published("sft_tokens", domain)
    made_from: Mapping[str, str] = packed.manifest.recipe["tokens"]
    if found is None or found.manifest.content_hash != made_from.get(domain):
        raise LookupError(f"sft_tokens[{domain}] was built again since this table")
    return found


# The two derivations of a record's mask, stretch by stretch: what the store trains, and what its source says must be trained.

MOST_CHARACTERS = 2000
"""Characters of a stretch that a page holds."""
Proof = list[Any]
"""Both derivations of a record as the page takes them: how they differ, empty where they agree; and each trained stretch, ``[start, end, stored, derived]``:
its tokens in the record, -1 where the store trains none; what these decode to, with their weight; what the source says must be trained, with its weight."""


def proofs(
    workspace: Workspace, published: Published, origins: Iterable[Origin], vocabulary: Vocabulary
) -> tuple[dict[Origin, Proof], list[str]]:
    """The proofs of records, and why some have none: a source changed, say. Sources are read again for them."""
    found: dict[Origin, Proof] = {}
    missing: list[str] = []
    ordered = sorted(set(origins), key=attrgetter("domain", "stream", "record"))
    for (domain, stream), records in groupby(ordered, key=attrgetter("domain", "stream")):
        try:
            for number, row in _rows(workspace, published, domain, stream, [each.record for each in records]):
                found[Origin(domain, stream, number)] = prove(row, vocabulary)
        except (PrepAssetsError, LookupError, OSError) as error:
            missing.append(f"{domain or stream}: {error}")
    return found, missing


def _rows(workspace: Workspace, published: Published, domain: str, stream: str, records: Sequence[int]) -> Iterator[tuple[int, MaskRow]]:
    asset = published.manifest.asset
    if asset in ("sft_packed", "sft_tokens"):
        tokens = published if asset == "sft_tokens" else tokens_of(workspace, published, domain)
        return Chats(store_of(workspace, tokens)).rows(stream, records)
    if asset == "preference_tokens_by_domain":
        return Sides(store_of(workspace, published)).rows(stream, records)
    return _merged_pairs(store_of(workspace, published), stream, records) if asset == "preference_tokens" else iter(())


def _merged_pairs(store: Store, stream: str, records: Sequence[int]) -> Iterator[tuple[int, MaskRow]]:
    """Records of merged pairs with the answers that must be trained, which the stores of the domains know."""
    [merged] = (each for each in merged_streams(store) if each.name == stream)
    for number, name in enumerate(store.domains):
        wanted = {int(merged.asked.record[each]): each for each in records if merged.asked.part[each] == number}
        part = store_of(store.workspace, store.above(store.asset.parts, name))
        for at, row in Sides(part).rows(stream, list(wanted)) if wanted else ():
            ids, mask = (merged.store.record(wanted[at], key) for key in ("tokens", "loss_mask"))
            yield wanted[at], replace(row, ids=ids, mask=mask)


def prove(row: MaskRow, vocabulary: Vocabulary) -> Proof:
    """Both derivations of one record, and what the check says of them."""
    runs = trained_runs(row, vocabulary)
    texts = vocabulary.decode_batch([row.ids[start:end].tolist() for start, end in runs])
    stretches = []
    for run, text, expected in zip_longest(runs, texts, row.expected):
        stored = None if run is None else [visible(text[:MOST_CHARACTERS]), float(row.mask[run[0]])]
        derived = None if expected is None else [visible(expected.text[:MOST_CHARACTERS]), expected.weight]
        stretches.append([*(run or (-1, -1)), stored, derived])
    worst = prove_masks([row], vocabulary).worst
    return [one_line(worst.note) if worst else "", stretches]


# The data of a page: JSON, compressed, in pieces that a browser unpacks when it needs them.
#
# Everything that comes from a data set gets into a page here or through the template, and nowhere else. What is packed here is base64: no character of it
# means anything to HTML. Texts of tokens and names are made visible first (see `explain/visible.py`).

ROWS_A_CHUNK = 500
TOKENS_A_CHUNK = 200_000
ROWS_READ_AT_ONCE = 512


def packed(value: Any) -> str:
    """A JSON value, compressed. The same value gives the same text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()


def row_chunks(rows: Iterable[Row], proofs: Mapping[Origin, Proof]) -> Iterator[list[Any]]:
    """Rows in lists of at most `ROWS_A_CHUNK`, with about `TOKENS_A_CHUNK` tokens."""
    chunk: list[Any] = []
    tokens = 0
    for row in rows:
        chunk.append(_row(row, proofs))
        tokens += len(row.ids)
        if len(chunk) == ROWS_A_CHUNK or tokens >= TOKENS_A_CHUNK:
            yield chunk
            chunk, tokens = [], 0
    if chunk:
        yield chunk


def _row(row: Row, proofs: Mapping[Origin, Proof]) -> dict[str, Any]:
    found: dict[str, Any] = {"i": list(row.ids)}
    if row.weights is not None:
        found["w"] = [[end - start, weight] for start, end, weight in weight_runs(row.weights)]
    if row.text:
        found["t"] = visible(row.text)
    found["p"] = [[each.start, one_line(each.name), each.offset, one_line(each.note)] for each in row.pieces]
    for piece, shown in zip(row.pieces, found["p"], strict=True):
        if piece.origin in proofs:
            shown.append(proofs[piece.origin])
    return found


def index(rows: Sequence[Row], streams: Sequence[Stream]) -> dict[str, Any]:
    """What the list of rows shows, by column."""
    domains = sorted({piece.origin.domain for row in rows for piece in row.pieces})
    numbers = {domain: number for number, domain in enumerate(domains)}
    trained = [streams[row.stream].trained for row in rows]
    return {
        "domains": [one_line(domain) for domain in domains],
        "stream": [row.stream for row in rows],
        "number": [row.number for row in rows],
        "length": [int(streams[row.stream].lengths[row.number]) for row in rows],
        "trained": [None if counts is None else int(counts[row.number]) for row, counts in zip(rows, trained, strict=True)],
        "domain": [sorted({numbers[piece.origin.domain] for piece in row.pieces}) for row in rows],
        "name": [one_line(row.pieces[0].name) if row.pieces else "" for row in rows],
        "pieces": [len(row.pieces) for row in rows],
    }


def vocabulary_of(rows: Iterable[Row], vocabulary: Vocabulary | None) -> dict[str, str]:
    """The text of every id in the rows; of one outside the vocabulary, as in a damaged store, its number."""
    used = sorted({token for row in rows for token in row.ids})
    if vocabulary is None:
        return {str(token): f"⟨{token}⟩" for token in used}
    inside = [token for token in used if 0 <= token < vocabulary.size]
    texts = dict(zip(inside, token_texts(vocabulary, inside), strict=True))
    return {str(token): visible(texts[token]) if token in texts else f"⟨no token {token}⟩" for token in used}


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows with a document of `domain`, whose text or record ids hold `find`; what is empty asks for nothing. Case does not matter."""

    find: str = ""
    where: str = "text"
    domain: str = ""

    def __bool__(self) -> bool:
        return bool(self.find or self.domain)


def matching(rows: Iterable[Row], wanted: Filter, vocabulary: Vocabulary | None) -> Iterator[Row]:
    """The rows that fit."""
    needle = wanted.find.casefold()
    for row in rows:
        if wanted.domain and all(piece.origin.domain != wanted.domain for piece in row.pieces):
            continue
        if needle and wanted.where == "id":
            held = "\n".join(piece.name for piece in row.pieces)
        elif needle:
            known = [token for token in row.ids if vocabulary is not None and 0 <= token < vocabulary.size]
            held = row.text or ("" if vocabulary is None else vocabulary.decode(known))
        if not needle or needle in held.casefold():
            yield row
