"""The rows of a store in one form for pages, with both derivations of their masks, and a page's data."""

from __future__ import annotations

import base64
import gzip
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_conversations import Chats, Sides
from prep_assets.checks.of_lines import merged_streams
from prep_assets.errors import PrepAssetsError
from prep_assets.explain.streams import open_stream, source_rows
from prep_assets.explain.visible import one_line, visible
from prep_assets.graph.graph import EVERY, holds, lines_of, store_of
from prep_assets.graph.previews import token_texts
from prep_assets.pipeline.asset import Store, token_streams
from prep_assets.pipeline.groups import splits
from prep_assets.pipeline.sources import read_sources
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.mask import Row as MaskRow
from prep_assets.proofs.mask import prove_masks, trained_runs
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.version_folders import Published
from prep_assets.text.vocabulary import Vocabulary

# The streams of rows in a store, and the names of the records that they are made of.

# The rows of a store's streams, all of one form, whatever the store holds.

MOST_TOKENS = 4096
"""Tokens of a row that a page holds."""
MOST_LINE_CHARACTERS = 20_000
"""Characters of a line that a page holds."""
BLOCK = 1 << 22

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Origin:
    """A record of a token store: the domain, the stream and the number there."""

    domain: str
    stream: str
    record: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a row that comes from one record: its first token in the row, its first token in the record, and which record that is."""

    start: int
    offset: int
    origin: Origin
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `ids` and `weights` of at most `MOST_TOKENS` tokens (no weights where the store has no mask), and its pieces; or the text of a
    line."""

    number: int
    ids: Sequence[int] = ()
    weights: Sequence[float] | None = None
    pieces: tuple[Piece, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What one domain has in a stream: the length of each of its documents, and how many tokens of each are trained."""

    domain: str
    lengths: Int64s
    trained: Int64s | None


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

    def _by_domain(self, sources: Sequence[str], source: npt.NDArray[Any]) -> list[Part]:
        """The parts, where each row is of one domain: the number of which is in `source`."""
        chosen = [np.asarray(source) == number for number in range(len(sources))]
        return [
            Part(name, self.lengths[own], None if self.trained is None else self.trained[own])
            for name, own in zip(sources, chosen, strict=True)
        ]


class TokenRows(Stream):
    """A ragged token stream of one domain, or of one whose records are lines of several."""

    def __init__(self, name: str, domain: str, store: TokenStore) -> None:
        self.domain, self.store = domain, store
        super().__init__(name, np.diff(store.ends, prepend=0), trained_tokens(store))

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        for number in numbers:
            ids, weights = _beginning(self.store, number)
            yield Row(number, ids, weights, (Piece(0, 0, Origin(self.domain, self.name, number)),))

    def parts(self) -> list[Part]:
        return [Part(self.domain or self.name, self.lengths, self.trained)]


class PackedRows(Stream):
    """A packed table, made of the records of one stream of every domain."""

    def __init__(self, name: str, stream: str, store: PackedStore) -> None:
        self.stream, self.store = stream, store
        lengths = np.bincount(store.documents["row"], store.documents["length"], len(store)).astype(np.int64)
        counts = [np.count_nonzero(mask, axis=1) for _, _, mask in store.blocks()]
        super().__init__(name, lengths, np.concatenate([np.zeros(0, np.int64), *counts]))

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        documents = self.store.documents
        for number in numbers:
            used = min(int(self.lengths[number]), MOST_TOKENS)
            pieces = []
            for at in range(*self.store.pieces(number).indices(len(documents["row"]))):
                start, offset, record, source = (int(documents[key][at]) for key in ("row_offset", "start", "record", "source"))
                if start < used:
                    pieces.append(Piece(start, offset, Origin(self.store.sources[source], self.stream, record)))
            ids, weights = self.store.tokens[number][:used], self.store.weights(number)[:used]
            yield Row(number, ids.tolist(), weights.astype(float).tolist(), tuple(pieces))

    def parts(self) -> list[Part]:
        documents = {key: np.asarray(values) for key, values in self.store.documents.items()}
        trained = np.zeros(len(documents["row"]), np.int64)
        for first, _, mask in self.store.blocks():
            low, high = np.searchsorted(documents["row"], [first, first + len(mask)])
            so_far = _so_far(mask.reshape(-1))
            start = (documents["row"][low:high] - first) * self.store.row_len + documents["row_offset"][low:high]
            trained[low:high] = so_far[start + documents["length"][low:high]] - so_far[start]
        chosen = [documents["source"] == number for number in range(len(self.store.sources))]
        return [Part(name, documents["length"][own], trained[own]) for name, own in zip(self.store.sources, chosen, strict=True)]


class GroupRows(Stream):
    """Scored groups: a row is a prompt with its responses, one after another."""

    def __init__(self, name: str, store: GroupStore) -> None:
        self.store = store
        responses = trained_tokens(store.responses)
        lengths = np.diff(store.prompts.ends, prepend=0) + self._added_up(np.diff(store.responses.ends, prepend=0))
        super().__init__(name, lengths, None if responses is None else self._added_up(responses))

    def _added_up(self, of_responses: Int64s) -> Int64s:
        so_far = np.concatenate([np.zeros(1, np.int64), np.cumsum(of_responses)])
        return np.diff(so_far[self.store.rewards.ends], prepend=0)

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        for number in numbers:
            domain = self.store.sources[int(self.store.source[number])]
            ids, _ = _beginning(self.store.prompts, number)
            ids, weights = list(ids), [0.0] * len(ids)
            pieces = [Piece(0, 0, Origin(domain, self.name, number))]
            rewards = self.store.rewards.record(number, "rewards").tolist()
            for each, reward in zip(self.store.responses_of(number), rewards, strict=True):
                pieces.append(Piece(len(ids), 0, Origin(domain, self.name, number), f"response {len(pieces)}, reward {reward:g}"))
                more, its_weights = _beginning(self.store.responses, each)
                ids, weights = [*ids, *more], [*weights, *(its_weights or [1.0] * len(more))]
            yield Row(number, ids, weights, tuple(pieces))

    def parts(self) -> list[Part]:
        return self._by_domain(self.store.sources, self.store.source)


class LineRows(Stream):
    """A JSONL file."""

    unit = "bytes"

    def __init__(self, name: str, lines: Lines) -> None:
        self.lines = lines
        with lines.path.open("rb") as file:
            super().__init__(name, np.fromiter(map(len, file), np.int64, len(lines)), None)

    def rows(self, numbers: Sequence[int]) -> Iterator[Row]:
        wanted, index = set(numbers), self.lines.index
        for number, content in enumerate(self.lines):
            if number in wanted:
                text = json.dumps(content, indent=1, ensure_ascii=False)[:MOST_LINE_CHARACTERS]
                domain = self.lines.sources[int(index["source"][number])]
                yield Row(number, pieces=(Piece(0, 0, Origin(domain, self.name, number)),), text=text)

    def parts(self) -> list[Part]:
        return self._by_domain(self.lines.sources, self.lines.index["source"])


def weight_runs(weights: Sequence[float]) -> list[tuple[int, int, float]]:
    """Start, end and weight of each run of tokens of one weight."""
    values = np.asarray(weights, np.float64)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
    return [(start, end, float(values[start])) for start, end in pairwise(edges)]


def trained_tokens(store: TokenStore) -> Int64s | None:
    """How many tokens of each record are trained: int64[n]; `None` where the store has no mask."""
    if "loss_mask" not in store.arrays:
        return None
    counts, starts, low = np.zeros(len(store), np.int64), store.starts, 0
    while low < len(store):
        begin = int(starts[low])
        high = max(low + 1, int(np.searchsorted(store.ends, begin + BLOCK, "right")))
        so_far = _so_far(np.asarray(store.arrays["loss_mask"][begin : int(store.ends[high - 1])]))
        counts[low:high] = so_far[store.ends[low:high] - begin] - so_far[starts[low:high] - begin]
        low = high
    return counts


def _so_far(mask: npt.NDArray[Any]) -> Int64s:
    """How many tokens are trained before each: int64[n + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(mask != 0)])


def _beginning(store: TokenStore, number: int) -> tuple[list[int], list[float] | None]:
    start = int(store.ends[number - 1]) if number else 0
    here = slice(start, min(int(store.ends[number]), start + MOST_TOKENS))
    ids = np.asarray(store.arrays["tokens"][here]).tolist()
    has_mask = "loss_mask" in store.arrays
    return ids, store.weights(here).astype(float).tolist() if has_mask else None


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


PACKED = {"sft_packed": "train", "sft_dev_packed": "dev"}
"""Packed table → stream of the token stores that it is made of."""


def streams(published: Published) -> list[Stream]:
    """The streams of rows in a store, those held out last; none in a store of sources, of a certificate, or of a trainer's files.

    Raises:
        StoreError: the payload cannot be read.
    """
    directory, manifest = published.directory, published.manifest
    if holds(manifest.asset, GroupStore):
        return [GroupRows(name, open_groups(folder)) for name, folder in splits(published.directory).items()]
    packed = [name for name in PACKED if (directory / f"{name}.documents").is_dir()]
    if packed:
        return [PackedRows(name, PACKED[name], open_packed(directory, name)) for name in packed]
    found = token_streams(EVERY[manifest.asset], published) if manifest.asset in EVERY else {}
    if found:
        return [TokenRows(name, manifest.partition, stream) for name, stream in found.items()]
    if not holds(manifest.asset, Lines):
        return []
    files = sorted((path.stem for path in directory.glob("*.jsonl")), key=lambda name: ("_test" in name, name))
    return [LineRows(name, open_lines(directory, name)) for name in files]


@dataclass
class Names:
    """Names of records: ``<domain>/<file>:<row>``."""

    workspace: Workspace
    published: Published
    _files: dict[str, list[str]] = field(default_factory=dict)
    _opened: dict[tuple[str, str], Any] = field(default_factory=dict)

    def name(self, origin: Origin) -> str:
        """The name of a record; its number, where what it was made from is not there any more."""
        try:
            return self._named(origin)
        except (PrepAssetsError, LookupError, OSError):
            return f"{origin.domain or origin.stream} record {origin.record:,}"

    def _named(self, origin: Origin) -> str:
        store, record, answer = self._open(origin), origin.record, ""
        if isinstance(store, TokenStore) and (made_of := lines_of(self.published.manifest.asset, origin.stream)) is not None:
            store, record = self._remembered(made_of, lambda: self._lines(*made_of)), int(store.row[record])
        elif isinstance(store, TokenStore) and (part := store.part(record))[1] > 1:
            answer = ", answer {} of {}".format(*part)
        return self._row(*source_rows(store, origin.domain).of(record)) + answer

    def _row(self, domain: str, file: int, row: int) -> str:
        names = self._files.get(domain)
        if names is None:
            raw = self.workspace.published(f"{EVERY[self.published.manifest.asset].family}_raw", domain)
            listed = read_sources(raw) if raw else {"files": (), "test_files": ()}
            names = self._files[domain] = [entry["name"] for which in ("files", "test_files") for entry in listed[which]]
        if not names:  # questions that are made, not read
            return f"{domain}:{row}"
        return f"{domain}/{names[file] if file < len(names) else f'file {file}'}:{row}"

    def _open(self, origin: Origin) -> Any:
        return self._remembered((origin.stream, origin.domain), lambda: self._opening(origin))

    def _remembered(self, key: tuple[str, str], opening: Any) -> Any:
        if key not in self._opened:
            self._opened[key] = opening()
        return self._opened[key]

    def _opening(self, origin: Origin) -> Any:
        is_packed = self.published.manifest.asset == "sft_packed"
        return open_stream(tokens_of(self.workspace, self.published, origin.domain) if is_packed else self.published, origin.stream)

    def _lines(self, asset: str, file: str) -> Lines:
        found = self.workspace.published(asset, self.published.manifest.partition)
        if found is None:
            raise LookupError(file)
        return open_lines(found.directory, file)


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


@dataclass(frozen=True, slots=True)
class Stretch:
    """One trained stretch of a record, by both derivations.

    Attributes:
        start, end: its tokens in the record; -1 where the store trains none.
        first: what the trained tokens of the store decode to, with their weight.
        second: what the source says must be trained, with its weight.
    """

    start: int
    end: int
    first: tuple[str, float] | None
    second: tuple[str, float] | None


@dataclass(frozen=True, slots=True)
class Proof:
    """Both derivations of one record. `fault` says how they differ, and is empty where they agree."""

    stretches: tuple[Stretch, ...]
    fault: str


def proofs(
    workspace: Workspace, published: Published, origins: Iterable[Origin], vocabulary: Vocabulary
) -> tuple[dict[Origin, Proof], list[str]]:
    """The proofs of records, and why some have none: a source changed, say. Sources are read again for them."""
    found: dict[Origin, Proof] = {}
    missing: list[str] = []
    for (domain, stream), records in sorted(_grouped(origins).items()):
        try:
            for number, row in _rows(workspace, published, domain, stream, records):
                found[Origin(domain, stream, number)] = prove(row, vocabulary)
        except (PrepAssetsError, LookupError, OSError) as error:
            missing.append(f"{domain or stream}: {error}")
    return found, missing


def _grouped(origins: Iterable[Origin]) -> dict[tuple[str, str], list[int]]:
    grouped: dict[tuple[str, str], set[int]] = {}
    for origin in origins:
        grouped.setdefault((origin.domain, origin.stream), set()).add(origin.record)
    return {key: sorted(records) for key, records in grouped.items()}


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
        first = None if run is None else (text[:MOST_CHARACTERS], float(row.mask[run[0]]))
        second = None if expected is None else (expected.text[:MOST_CHARACTERS], expected.weight)
        stretches.append(Stretch(run[0] if run else -1, run[1] if run else -1, first, second))
    verdict = prove_masks([row], vocabulary)
    return Proof(tuple(stretches), verdict.worst.note if verdict.worst else "")


# The data of a page: JSON, compressed, in pieces that a browser unpacks when it needs them.
#
# Everything that comes from a data set gets into a page here or through the template, and nowhere else. What is packed here is base64: no character of it
# means anything to HTML. Texts of tokens and names are made visible first (see `explain/visible.py`).

ROWS_A_CHUNK = 500
TOKENS_A_CHUNK = 200_000
ROWS_READ_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row, ready for a page: the number of its stream, the row, and the names of its pieces."""

    stream: int
    row: Row
    names: tuple[str, ...]


def packed(value: Any) -> str:
    """A JSON value, compressed. The same value gives the same text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()


def row_chunks(rows: Iterable[NamedRow], proofs: Mapping[Origin, Proof]) -> Iterator[list[Any]]:
    """Rows in lists of at most `ROWS_A_CHUNK`, with about `TOKENS_A_CHUNK` tokens."""
    chunk: list[Any] = []
    tokens = 0
    for shown in rows:
        chunk.append(_row(shown, proofs))
        tokens += len(shown.row.ids)
        if len(chunk) == ROWS_A_CHUNK or tokens >= TOKENS_A_CHUNK:
            yield chunk
            chunk, tokens = [], 0
    if chunk:
        yield chunk


def _row(shown: NamedRow, proofs: Mapping[Origin, Proof]) -> dict[str, Any]:
    row = shown.row
    found: dict[str, Any] = {"i": list(row.ids)}
    if row.weights is not None:
        found["w"] = [[end - start, weight] for start, end, weight in weight_runs(row.weights)]
    if row.text:
        found["t"] = visible(row.text)
    found["p"] = [
        [
            piece.start,
            one_line(name),
            piece.offset,
            one_line(piece.note),
            *([_proof(proofs[piece.origin])] if piece.origin in proofs else []),
        ]
        for piece, name in zip(row.pieces, shown.names, strict=True)
    ]
    return found


def _proof(proof: Proof) -> list[Any]:
    stretches = [[each.start, each.end, _side(each.first), _side(each.second)] for each in proof.stretches]
    return [one_line(proof.fault), stretches]


def _side(side: tuple[str, float] | None) -> list[Any] | None:
    return None if side is None else [visible(side[0]), side[1]]


def index(rows: Sequence[NamedRow], trained: Sequence[int | None], lengths: Sequence[int]) -> dict[str, Any]:
    """What the list of rows shows, by column."""
    domains = sorted({piece.origin.domain for shown in rows for piece in shown.row.pieces})
    numbers = {domain: number for number, domain in enumerate(domains)}
    return {
        "domains": [one_line(domain) for domain in domains],
        "stream": [shown.stream for shown in rows],
        "number": [shown.row.number for shown in rows],
        "length": list(lengths),
        "trained": list(trained),
        "domain": [sorted({numbers[piece.origin.domain] for piece in shown.row.pieces}) for shown in rows],
        "name": [one_line(shown.names[0]) if shown.names else "" for shown in rows],
        "pieces": [len(shown.row.pieces) for shown in rows],
    }


def vocabulary_of(rows: Iterable[NamedRow], vocabulary: Vocabulary | None) -> dict[str, str]:
    """The text of every id in the rows; of one outside the vocabulary, as in a damaged store, its number."""
    used = sorted({token for shown in rows for token in shown.row.ids})
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


def matching(
    streams: Sequence[Stream],
    wanted: Filter,
    most: int,
    named: Callable[[int, Iterable[Row]], Iterator[NamedRow]],
    text: Callable[[Sequence[int]], str],
) -> Iterator[NamedRow]:
    """The first `most` rows of all streams that fit.

    Args:
        named: rows of the stream with this number, with the names of their records.
        text: ids as text.
    """
    needle, found = wanted.find.casefold(), 0
    for number, stream in enumerate(streams):
        for low in range(0, len(stream.lengths), ROWS_READ_AT_ONCE):
            for shown in named(number, stream.rows(range(low, min(low + ROWS_READ_AT_ONCE, len(stream.lengths))))):
                row = shown.row
                if wanted.domain and all(piece.origin.domain != wanted.domain for piece in row.pieces):
                    continue
                if needle:
                    held = "\n".join(shown.names) if wanted.where == "id" else row.text or text(row.ids)
                    if needle not in held.casefold():
                        continue
                yield shown
                found += 1
                if found == most:
                    return
