"""The rows of a store's streams, all of one form, whatever the store holds."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

MOST_TOKENS = 4096
"""Tokens of a row that a page holds."""
MOST_CHARACTERS = 20_000
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
                text = json.dumps(content, indent=1, ensure_ascii=False)[:MOST_CHARACTERS]
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
