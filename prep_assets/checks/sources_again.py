"""The sources of a domain, read a second time: what checks compare stores with, whole or in parts."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import IO, Any, Literal, overload

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.config.family import Domain
from prep_assets.config.models import Pretrain, Sft, image_token
from prep_assets.data.blocks import Unreadable, resolution_of
from prep_assets.data.files import SourceFile, open_stored, record_id
from prep_assets.data.read import read_blocks
from prep_assets.data.stream import seekable
from prep_assets.data.tables import LINES, TABLES
from prep_assets.errors import CheckFailed, Refused, StoreError
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.examples import Stretch, converter, shards_of
from prep_assets.pipeline.images import REMEMBERED, REMOTE
from prep_assets.pipeline.sources import domain_of, pinned
from prep_assets.proofs.accounting import find, places
from prep_assets.proofs.chat_blocks import PlainDerivation
from prep_assets.proofs.derive import MaskOptions, derive, examples_again
from prep_assets.proofs.documents import documents_begin_with
from prep_assets.proofs.image_tokens import Size, counted_again
from prep_assets.proofs.mask import Conversation, Left, Truncation, left_of
from prep_assets.proofs.rows import PAIR_FIELDS
from prep_assets.proofs.second_reading import (
    ALL,
    Between,
    MessageFields,
    MessageRows,
    Messages,
    Unsupported,
    canonical_json,
    decompressed,
    is_held_out,
    read_again,
    read_rows,
)
from prep_assets.proofs.second_reading import Rows as SourceRows
from prep_assets.proofs.selection import Passages, Selected, select
from prep_assets.proofs.selection import Rules as SelectionRules
from prep_assets.proofs.tokenized import left_of_tokenized, tokenized_again
from prep_assets.samples import DOCUMENT, IMAGE, Group, Pair, PlainChat, Prompt, Record, Sample, Turn
from prep_assets.schemas.plain_rows import PlainMessages, plain_rows_of
from prep_assets.schemas.reader import Reader, apply
from prep_assets.stores.arrays import Spool, ahead, at, order, stretches
from prep_assets.stores.lines import Lines, row_of
from prep_assets.stores.segments import Window
from prep_assets.stores.tokens import TokenStore
from prep_assets.text.chats import ChatColumns
from prep_assets.text.conversation import control_pattern, treat
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary
from prep_assets.workers.shards import Shard

# The source files of a domain, opened for a second reading by other code.

# A store in parts: stretches of its sources, each with the records that come from them. The plan depends on the store and its sources alone.
#
# Every record belongs to one part, whatever its store says of where it comes from, and is proven against the rows of that part.

END = 1 << 62
"""After the place of every row."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of a domain.

    Attributes:
        stretches: of its files.
        begin, end: the place of the first of them, see `places`, and of the first one after them; 0 and `END` at the ends of the domain.
    """

    stretches: tuple[Stretch, ...]
    begin: int
    end: int

    def rows_end(self, stretch: Stretch) -> int | None:
        """The number of the row after a stretch that does not go on to the end of its file."""
        return None if stretch.part.stop is None else self.end & ((1 << 40) - 1)

    def records_of(self, stream: TokenStore) -> TokenStore:
        """The records of a stream that come from it, with the images of all. Where they are not in the order of their rows, each is still a record of one
        part."""

        def first(place: int) -> int:
            return bisect_left(range(len(stream)), place, key=lambda at: int(places(stream.file[at], stream.row[at])))

        records = slice(first(self.begin) if self.begin else 0, len(stream) if self.end == END else first(self.end))
        begin, end = (int(stream.ends[record - 1]) if record else 0 for record in (records.start, records.stop))
        arrays = {key: Window(array, begin, end) for key, array in stream.arrays.items()}
        return TokenStore(arrays, stream.ends[records] - begin, stream.file[records], stream.row[records], stream.images, begin)


def parts_of(store: Store) -> list[Shard]:
    """A store of one domain in parts, the tasks of shards; none where how many rows count towards a limit takes a look at all before them."""
    if domain_of(store.family, store.partition).max_items is not None or getattr(store.family, "max_per_source", None) is not None:
        return []
    sources = pinned(store.workspace, type(store.family), store.raw, store.partition)
    shards = shards_of(sources, store.family.cluster.shards)
    first = [int(places(shard.task[0].file, shard.task[0].part.row)) for shard in shards]
    return [replace(shard, task=Part(shard.task, *ends)) for shard, ends in zip(shards, pairwise([0, *first[1:], END]), strict=True)]


class Unsound(Exception):
    """Of a store that is proven in parts one is not as it must be, or they contradict each other. The checks of the whole store say what is wrong."""


@dataclass(frozen=True, slots=True)
class Second:
    """A domain, to be read again: its configuration, its files, whether all of a file is held out, and what reads the passages that no row may hold."""

    name: str
    domain: Domain
    files: tuple[SourceFile, ...]
    held_out: tuple[bool, ...]
    benchmarks: Callable[[], Passages] | None = None
    _open: dict[int, IO[bytes]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, store: Store, name: str) -> Second:
        """The domain `name` of a store that is made from sources, the same for all who ask.

        Raises:
            SourceError: a source changed since it was pinned.
        """
        return store.once(f"domain {name}", partial(cls._of, store, name))

    @classmethod
    def _of(cls, store: Store, name: str) -> Second:
        family = store.family
        sources = pinned(store.workspace, type(family), store.raw, name)
        held_out = (False,) * len(sources.files) + (True,) * len(sources.test_files)

        def passages() -> Passages:
            return Passages.of((row for file in sources.benchmarks for _, row in _rows(file, "line")), family.decontaminate.words)

        benchmarks = passages if sources.benchmarks else None
        return cls(name, domain_of(family, name), (*sources.files, *sources.test_files), held_out, benchmarks)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its files, as record ids have them."""
        return tuple(file.name for file in self.files)

    def rules(self, *, deduplicate: bool, limit: int | None = None, messages: MessageFields | None = None) -> SelectionRules:
        """What its configuration says about its rows, and how those are written that may come in columns."""
        domain = self.domain
        limits = [number for number in (domain.max_items, limit) if number is not None]
        return SelectionRules(
            domain.domain_key,
            domain.value(self.name),
            domain.where,
            min(limits, default=None),
            deduplicate,
            self.benchmarks() if self.benchmarks else None,
            domain.forgotten,
            messages,
        )

    def messages(self, gives: type) -> MessageFields | None:
        """How rows are written that are nothing but messages of a role and a text; `None` where the schema has no such rows."""
        if gives is Pair:
            return PAIR_FIELDS if self.domain.schema_name == "preference" else None
        plain = plain_rows_of(converter(self.domain, gives).convert)
        return MessageFields((plain.messages_key,), plain.role_key, plain.content_key) if isinstance(plain, PlainMessages) else None

    def rows(self, part: Part | None = None, messages: MessageFields | None = None) -> Iterator[tuple[int, bool, SourceRows]]:
        """The rows of each file, or those of a part, of JSON lines as `messages` says in columns; a file is opened when the first of its rows is asked for."""
        if part is not None:
            yield from ((stretch.file, self.held_out[stretch.file], self._stretch(part, stretch, messages)) for stretch in part.stretches)
            return
        for number, file in enumerate(self.files):
            yield number, self.held_out[number], _rows(file, self.domain.txt, messages=messages)

    def _stretch(self, part: Part, stretch: Stretch, messages: MessageFields | None) -> SourceRows:
        """The rows of a stretch."""
        file, within, end = self.files[stretch.file], stretch.part, part.rows_end(stretch)
        if file.format not in LINES or self.domain.txt == "file":
            yield from _rows(file, self.domain.txt, Between(None, within.row, end), messages)
            return
        if stretch.file not in self._open:  # what is compressed is decompressed up to a stretch: the next one goes on where this one ends
            self._open.clear()
            self._open[stretch.file] = decompressed(open_stored(file), file.compression)
        self._open[stretch.file].seek(within.start)
        size = None if within.stop is None else within.stop - within.start
        yield from read_rows(self._open[stretch.file], file.format, None, between=Between(size, within.row, end), messages=messages)


def _rows(file: SourceFile, txt: Literal["line", "file"], between: Between = ALL, messages: MessageFields | None = None) -> SourceRows:
    with ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(seekable(file) if file.format in TABLES else open_stored(file))
        try:
            yield from read_rows(stream, file.format, file.compression, whole_file=txt == "file", between=between, messages=messages)
        except Unsupported:  # before the first row: what is left of a damaged list, only the project's own reader says
            yield from _own_rows(file, txt)


def _own_rows(file: SourceFile, txt: Literal["line", "file"]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    for block in read_blocks(file, 0, txt=txt):
        rows: list[Record | Unreadable] = sorted([*block.records, *block.unreadable], key=lambda row: row.row)
        yield from ((row.row, dict(row.payload) if isinstance(row, Record) else None) for row in rows)


# The rows that the records of a stream come from, read from their sources again, by the block.

TOKENS_AT_ONCE = 1 << 19
"""About how many tokens the records have whose rows are given together."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file, in its order.

    Attributes:
        file: number of the file.
        rows: their numbers.
        payloads: their fields.
    """

    file: int
    rows: Sequence[int]
    payloads: Sequence[Mapping[str, Any]]


def readable(block: Selected) -> Rows:
    """The rows of a block that can be read."""
    if isinstance(block.payloads, MessageRows):
        return Rows(block.file, block.rows, block.payloads)
    kept = [(row, payload) for row, payload in zip(block.rows, block.payloads, strict=True) if payload is not None]
    return Rows(block.file, [row for row, _ in kept], [payload for _, payload in kept])


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Consecutive records of a stream, which come from one file.

    Attributes:
        first: number of the first of them in the stream.
        file: the file.
        rows: int64[n], the row of each.
        payloads: its fields.
    """

    first: int
    file: SourceFile
    rows: npt.NDArray[np.int64]
    payloads: Sequence[Mapping[str, Any]]

    def identity(self, at: int) -> str:
        """The id of one of them."""
        return record_id(self.file, int(self.rows[at]))


def stored_rows(
    store: Store, name: str, stream: TokenStore, *, several: bool = False, given: Iterator[Rows] | None = None
) -> Iterator[StoredRows]:
    """The records of a stream of the domain `name`, in order, each with its row.

    Args:
        several: whether neighbours in the store may come from one row.
        given: the rows of the domain, where somebody reads them already.

    Raises:
        StoreError: a record of the store is not in its source, or not in the order of the source.
        SourceError: a source changed since it was pinned.
    """
    second, at = Second.of(store, name), 0
    with closing(ahead(_rows_of_store(second, stream))) if given is None else nullcontext(given) as blocks:
        for block in blocks:
            offered, before = np.asarray(block.rows, np.int64), -1
            while len(found := _found(offered, block.file, stream, at, before, several)):
                yield StoredRows(at, second.files[block.file], offered[found], _those(block.payloads, found, several))
                at, before = at + len(found), int(offered[found[-1]])
    if at != len(stream):
        raise StoreError(
            f"record {at:,} of the store is row {int(stream.row[at])} of file {int(stream.file[at])}, which is not in the source"
        )


def _rows_of_store(second: Second, stream: TokenStore) -> Iterator[Rows]:
    """The rows of the files that a stream has records of."""
    files = (each for each in second.rows() if any((stream.file[part] == each[0]).any() for part in stretches(len(stream))))
    return map(readable, select(files, SelectionRules(deduplicate=False)))


def source_records(
    store: Store, name: str, stream: TokenStore, *, several: bool = False, given: Iterator[Rows] | None = None
) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """The same one by one: number in the stream, id, and the fields of the row."""
    for some in stored_rows(store, name, stream, several=several, given=given):
        for at, payload in enumerate(some.payloads):
            yield some.first + at, some.identity(at), payload


def _those(payloads: Sequence[Mapping[str, Any]], which: npt.NDArray[np.int64], several: bool) -> Sequence[Mapping[str, Any]]:
    """Copies, so that who keeps a few rows does not keep those beside them."""
    if isinstance(payloads, MessageRows) and not several:
        return payloads.taken(which)
    return [payloads[number] for number in which.tolist()]


def _found(offered: npt.NDArray[np.int64], file: int, stream: TokenStore, first: int, before: int, several: bool) -> npt.NDArray[np.int64]:
    """Of the next records of a stream, as far as they come from rows of a file in their order, the places of their rows among those offered.

    Args:
        offered: the numbers of some rows, ascending.
        before: the row of the record before; -1 where that is none of these.
    """
    part = slice(first, first + len(offered))
    ends, rows = np.asarray(stream.ends[part]), np.asarray(stream.row[part])
    begin = int(ends[0] - 1) if len(ends) else 0
    most = max(1, int(np.searchsorted(ends, begin + TOKENS_AT_ONCE)))
    rows = rows[:most]
    found = np.searchsorted(offered, rows)
    steps = np.diff(rows, prepend=before)
    fits = (np.asarray(stream.file[part])[:most] == file) & ((steps >= 0) if several else (steps > 0))
    fits[fits] = offered[np.minimum(found[fits], len(offered) - 1)] == rows[fits]
    return found if fits.all() else found[: int(np.argmin(fits))]


# Lines of a JSONL store by the rows that they come from, and by number, without all of them in memory.


class LinesOfRows:
    """Which line of a file of one domain each row of its sources is; of two lines of one row the first."""

    def __init__(self, lines: Lines) -> None:
        own = lines.of(0)
        place = at(lines.places, own)
        ordered = order(place)
        self._place, self._line = at(place, ordered), at(own, ordered)
        self._missed = np.ones(len(own), bool)

    def __len__(self) -> int:
        return len(self._line)

    def of(self, rows: Rows) -> list[tuple[int, int]]:
        """The line of each row that is one, with the place of the row among these."""
        found, there = find(self._place, places(rows.file, rows.rows))
        self._missed[found[there]] = False
        return list(zip(self._line[found[there]].tolist(), np.flatnonzero(there).tolist(), strict=True))

    def missed(self) -> list[int]:
        """The lines that were no row's so far."""
        found: list[int] = self._line[self._missed].tolist()
        return found


class LineByNumber:
    """Lines of a file by number, read from disk when they are asked for."""

    def __init__(self, lines: Lines) -> None:
        starts, begin = Spool(np.int64), 0
        with lines.guards.open(lines.path) as file:
            for some in iter(lambda: file.readlines(1 << 16), []):
                ends = begin + np.cumsum([len(line) for line in some])
                starts.append(np.concatenate([[begin], ends[:-1]]))
                begin = int(ends[-1])
        starts.append([begin])
        self._starts, self._file = starts.array(), lines.guards.open(lines.path)

    def __call__(self, number: int) -> Mapping[str, Any]:
        """The object on a line."""
        [found] = self.some([number])
        return found

    def some(self, numbers: Sequence[int]) -> list[Mapping[str, Any]]:
        """The objects on some lines."""
        return list(map(row_of, self.written(numbers)))

    def written(self, numbers: Sequence[int]) -> list[bytes]:
        """Some lines as they are written, each with its line break; those that stand one after the other are read together."""
        found: list[bytes] = []
        at = np.asarray(numbers, np.int64)
        for run in np.split(at, np.flatnonzero(np.diff(at) != 1) + 1) if numbers else ():
            bounds = self._starts[run[0] : run[-1] + 2]
            self._file.seek(int(bounds[0]))
            data = self._file.read(int(bounds[-1] - bounds[0]))
            found += [data[begin:end] for begin, end in pairwise((bounds - bounds[0]).tolist())]
        return found


# The images of a source row with what must stand for each, counted a second time.


def images_again(store: Store) -> Callable[[Sample], Sample]:
    """What gives the images of a sample of the store's domain their placeholders."""
    folder = store.workspace.image_folder(domain_of(store.family, store.partition))
    rule, token = store.workspace.image_rule(store.family), image_token(store.family) or ""

    @lru_cache(REMEMBERED)
    def size_of(path: str) -> Size | None:
        if folder is None or REMOTE.match(path):
            return None
        try:
            return resolution_of(folder / path)
        except Refused as refusal:
            raise CheckFailed(str(refusal)) from refusal

    return lambda sample: counted_again(sample, rule, token, size_of)


# Chats of rows that were read into columns, as what checks compare stores with.

ReadRows = Callable[[Sequence[Mapping[str, Any]], Callable[[int], str]], list[Sample | PlainChat]]
"""Fields of some rows, and what gives the id of each → what of them is to be rendered."""


@dataclass(frozen=True, slots=True)
class MessageChats(Sequence[Sample | PlainChat]):
    """Such chats.

    Attributes:
        columns: all of them; a row that is no plain chat, or that the schema may refuse, has no kind.
        rows: what they were read from.
        identity: gives the id of one.
        read: reads those that have no kind, and those that are proven by themselves.
    """

    columns: ChatColumns
    rows: MessageRows
    identity: Callable[[int], str]
    read: ReadRows

    @classmethod
    def of(cls, reader: Reader, rows: MessageRows, identity: Callable[[int], str], read: ReadRows) -> MessageChats | None:
        """Those of some rows; `None` where their schema reads more of them than the texts."""
        plain = reader.plain(rows[0]) if len(rows) else None
        if not isinstance(plain, PlainMessages):
            return None
        [messages] = rows.lists
        assert isinstance(messages, Messages)
        tags = messages.roles.dictionary_encode()
        roles = [plain.roles.get(tag) for tag in tags.dictionary.to_pylist()]
        codes, borders = np.asarray(tags.indices, np.int32).tobytes(), (4 * messages.first).tolist()
        numbers: dict[bytes, int] = {}
        kinds: list[tuple[str, ...]] = []
        kind = np.empty(len(rows), np.int64)
        for at, (low, high) in enumerate(pairwise(borders)):
            pattern = codes[low:high]
            if pattern not in numbers:
                own = tuple(roles[code] or "" for code in np.frombuffer(pattern, np.int32).tolist())
                accepted = bool(own) and all(own) and plain.accepts(own)
                numbers[pattern] = len(kinds) if accepted else -1
                kinds += [own] if accepted else []
            kind[at] = numbers[pattern]
        columns = ChatColumns(kinds, kind, *messages.contents, messages.first[:-1], np.diff(messages.first))
        return cls(columns, rows, identity, read)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Sample | PlainChat: ...
    @overload
    def __getitem__(self, at: slice) -> list[Sample | PlainChat]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        [found] = self.read([self.rows[at]], lambda _: self.identity(at))
        return found


# What checks compare stores with: the sources, read again, and what they must have become.

Example = tuple[int, str, Sample | PlainChat]
"""Number in the stream, id, and source of a record: as it is rendered, or in columns as its row has it, which is yet to be read."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Some records of a stream.

    Attributes:
        numbers: of each in the stream, ascending.
        sources: as of an `Example`.
        identity: gives the id of one of them.
    """

    numbers: Sequence[int]
    sources: Sequence[Sample | PlainChat]
    identity: Callable[[int], str]

    def each(self) -> Iterator[Example]:
        """One by one."""
        return zip(self.numbers, map(self.identity, range(len(self.numbers))), self.sources, strict=True)


def sample_of(convert: Reader, payload: Mapping[str, Any], identity: str) -> Sample:
    """The sample that a record of a store came from.

    Raises:
        StoreError: the schema gives none, so this record cannot be what the store was made from.
    """
    [found] = chats_of(convert, [payload], lambda _: identity)
    return found.sample() if isinstance(found, PlainChat) else found


def chats_of(convert: Reader, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> list[Sample | PlainChat]:
    """The same of several, in columns where a row is nothing but messages of a role and a text; `identity` gives the id of each."""
    found = convert.rows(payloads)
    return [each if type(each) is PlainChat else _sample_or_fault(each, identity(at)) for at, each in enumerate(found)]


def _sample_or_fault(found: object, identity: str) -> Sample | PlainChat:
    if isinstance(found, Refused):
        raise StoreError(f"the store holds {identity}, which its schema refuses: {found}") from found
    if not isinstance(found, Sample | PlainChat):
        raise StoreError(f"the store holds {identity}, which its schema reads as a {type(found).__name__}")
    return found


@dataclass(frozen=True, slots=True)
class Rules:
    """How records of conversations are derived anew.

    Attributes:
        derivation: what each must have become, before truncation.
        truncation: how long they are cut.
        read: what a build makes of a chat in columns before it renders it.
    """

    derivation: PlainDerivation
    truncation: Truncation
    vocabulary: Vocabulary
    read: Callable[[PlainChat], Sample]

    def left(self, example: Sample | PlainChat, length: int) -> Left:
        """What a record must be, of its source and of how many tokens it has."""
        sample = self.read(example) if isinstance(example, PlainChat) else example
        if sample.tokenized is not None:
            return left_of_tokenized(sample, self.truncation, self.derivation, self.vocabulary)
        return left_of(sample, length, self.truncation, self.derivation, self.vocabulary)


# -- documents with images --------------------------------------------------------------------------------------------------------------


def document_conversations(store: Store, stream: TokenStore, given: Iterator[Rows] | None = None) -> Iterator[Conversation]:
    """Each document of a pretraining stream with images, with a fresh render of its source, ended as `append_eod` says. The begin-of-text
    token, which `row_integrity` checks, is left out."""
    family = store.workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, store.partition), store.vocabulary
    convert = converter(domain, Sample)
    special = {"eos_token": vocabulary.special["eos_token"]} if family.append_eod else {}
    again, image = images_again(store), store.workspace.image_placeholder(family)
    template = ChatTemplate("none", "", special, control=tuple(sorted(vocabulary.control)), image=image)
    begin = int(documents_begin_with(vocabulary, family.bos) is not None)
    for number, identity, payload in source_records(store, store.partition, stream, given=given):
        turns = again(sample_of(convert, payload, identity)).turns
        document = Sample((Turn(DOCUMENT, tuple(region for turn in turns for region in turn.regions)),))
        yield fresh_render(identity, stream.record(number, "tokens")[begin:], document, template)


# -- SFT --------------------------------------------------------------------------------------------------------------------------------


def sft_reading(store: Store) -> Callable[[Sample | PlainChat], Sample]:
    """What a build makes of the example of a row before it renders it: reasoning told apart, control tokens taken out where they are."""
    recipe, shown = store.recipe, store.workspace.template(store.workspace.family(Sft)).shows_thinking
    pattern = control_pattern(store.vocabulary.control) if recipe["special_in_content"] == "strip" else None
    again = images_again(store)

    def read(example: Sample | PlainChat) -> Sample:
        whole = example.sample() if isinstance(example, PlainChat) else example
        return treat(read_again(again(whole), recipe, shown=shown), pattern, "strip")[0]

    return read


def sft_blocks(
    store: Store, stream: TokenStore, only: Sequence[int] | None = None, given: Iterator[Rows] | None = None
) -> Iterator[Examples]:
    """The records of an SFT stream by the block; `only` some, and those that come from the same rows of the source; `given` as in `stored_rows`."""
    chosen: Sequence[int] | npt.NDArray[np.int64] = range(len(stream))
    wanted = stream
    if only is not None:
        chosen = _with_siblings(stream, only)
        wanted = replace(stream, ends=stream.ends[chosen], file=stream.file[chosen], row=stream.row[chosen])
    domain = domain_of(store.family, store.partition)
    convert, read = converter(domain, Sample), sft_reading(store)
    if store.recipe["expand"] == "turns":
        yield from _expanded(store, convert, source_records(store, store.partition, wanted, several=True, given=given), chosen)
        return

    def read_all(payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> list[Sample | PlainChat]:
        return [
            each if isinstance(each, PlainChat) else read(_tokenized_again(each, domain, payload))
            for each, payload in zip(chats_of(convert, payloads, identity), payloads, strict=True)
        ]

    for some in stored_rows(store, store.partition, wanted, given=given):
        found = MessageChats.of(convert, some.payloads, some.identity, read_all) if isinstance(some.payloads, MessageRows) else None
        sources = read_all(some.payloads, some.identity) if found is None else found
        yield Examples(list(map(int, chosen[some.first : some.first + len(sources)])), sources, some.identity)


def _expanded(
    store: Store, convert: Reader, rows: Iterator[tuple[int, str, Mapping[str, Any]]], chosen: Sequence[int] | npt.NDArray[np.int64]
) -> Iterator[Examples]:
    """The records of each row, of which each answer may be one."""
    recipe, template, read = store.recipe, store.workspace.template(store.workspace.family(Sft)), sft_reading(store)
    domain = domain_of(store.family, store.partition)
    for identity, listed in groupby(rows, key=itemgetter(1)):
        numbers, _, payloads = zip(*listed, strict=True)
        sample = read(_tokenized_again(sample_of(convert, payloads[0], identity), domain, payloads[0]))
        plain = partial(plain_render, template=template)
        samples = examples_again(sample, recipe, plain) if sample.tokenized is None else [sample]
        if len(samples) != len(numbers):
            raise StoreError(f"{identity} is {len(numbers)} records of the store, and must be {len(samples)}")
        names = [identity] if len(samples) == 1 else [f"{identity}, answer {part + 1} of {len(samples)}" for part in range(len(samples))]
        yield Examples([int(chosen[number]) for number in numbers], samples, names.__getitem__)


def _tokenized_again(sample: Sample, domain: Domain, payload: Mapping[str, Any]) -> Sample:
    """A sample that brings its ids, with those that a second reading of its row gives."""
    again = tokenized_again(domain.schema_name, payload, domain.options) if sample.tokenized is not None else ()
    if sample.tokenized is None or not again:
        return sample
    return replace(sample, tokenized=replace(sample.tokenized, ids=tuple(again[0]), weights=tuple(again[1])))


def _with_siblings(stream: TokenStore, only: Sequence[int]) -> npt.NDArray[np.int64]:
    """Records, and all others that come from their source rows."""
    rows = np.cumsum(stream.begins_row)
    return np.flatnonzero(np.isin(rows, rows[np.asarray(only, np.int64)]))


def plain_render(sample: Sample, template: ChatTemplate) -> str:
    """The text of a conversation."""
    return derive(sample, MaskOptions(), template).text


def sft_rules(store: Store) -> Rules:
    """What each conversation of an SFT store must have become."""
    recipe, template = store.recipe, store.workspace.template(store.workspace.family(Sft))
    options = MaskOptions(**{key: recipe[key] for key in MaskOptions.__dataclass_fields__})
    derivation = PlainDerivation(options, template, typed_controls=recipe["special_in_content"] == "allow")
    limit = recipe["preprocessing"]["max_seq_len"]
    truncation = Truncation(recipe["truncation"], limit, recipe["truncation_keeps_stop"], recipe["truncation_keeps"])
    return Rules(derivation, truncation, store.vocabulary, sft_reading(store))


def fresh_render(identity: str, ids: Any, sample: Sample, template: ChatTemplate, *, allowed: bool = False) -> Conversation:
    """A record with a fresh render of its source.

    Args:
        allowed: control tokens that are typed in the content are control tokens.
    """
    derived = derive(sample, MaskOptions(), template, typed_controls=allowed)
    return Conversation(identity, ids, derived.text, derived.controls, derived.typed)


def shown_text(turn: Turn, image: str) -> str:
    """The text of a turn as it is trained on, with `image` for each of its images that has no placeholder of its own."""
    return "".join(region.placeholder or image if region.kind == IMAGE else region.text for region in turn.regions if not region.drop)


# What decides on which side of a split a row belongs, worked out a second time.

_ALONE = ("user", "assistant", "prompt", "completion")
"""Roles of a turn that may stand as a string."""


def held_out(prompt: Any, fraction: float, plain: bool) -> int:
    """What `Stored.belongs` is. Prompts are known by their plain form, whatever the form of the file."""
    if plain and not isinstance(prompt, str):
        if any(message.keys() != {"role", "content"} for message in prompt):
            return -1
        prompt = prompt[0]["content"] if len(prompt) == 1 and prompt[0]["role"] in _ALONE else prompt
    return int(fraction > 0 and is_held_out(prompt_json(prompt), fraction))


class _Asked(msgspec.Struct):
    prompt: Any = msgspec.UNSET
    query: Any = msgspec.UNSET


_asked = msgspec.json.Decoder(_Asked).decode


def asked(line: bytes) -> Any:
    """The query of a line, or its prompt. Nothing else of it is made an object."""
    try:
        found = _asked(line)
    except (msgspec.MsgspecError, ValueError):
        found = _Asked(**{key: value for key, value in row_of(line).items() if key in ("prompt", "query")})
    if found.query is not msgspec.UNSET:
        return found.query
    if found.prompt is msgspec.UNSET:
        raise KeyError("prompt")
    return found.prompt


def prompt_json(prompt: Any) -> bytes:
    """What decides whether a prompt is held out: its JSON, keys in the order in which they stand."""
    return _AS_IT_STANDS(prompt).encode()


_AS_IT_STANDS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def by_fields(store: Store, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
    """All of a row's fields decide whether it is held out."""
    return canonical_json


def by_prompt(gives: type) -> Callable[[Store, Second], Callable[[Mapping[str, Any]], bytes]]:
    """The prompt of what the schema makes of a row decides whether it is held out."""

    def content(store: Store, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
        convert = converter(second.domain, gives)
        return lambda payload: prompt_json(_prompt_of(apply(convert, payload)))

    return content


def by_text(store: Store, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
    """The text of a document decides whether it is held out."""
    convert, image = converter(second.domain, Sample), store.workspace.image_placeholder(store.family)
    again = images_again(store)

    def text(payload: Mapping[str, Any]) -> bytes:
        document = apply(convert, payload)
        with suppress(CheckFailed):  # a refused record, which is on no side
            document = again(document) if isinstance(document, Sample) else document
        return _text_of(document, image).encode()

    return text


def _prompt_of(example: object) -> Any:
    assert isinstance(example, Group | Prompt | Pair | Sample)
    turns = example.turns[:-1] if isinstance(example, Sample) else example.prompt
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    return messages[0]["content"] if len(turns) == 1 and turns[0].role in _ALONE else messages


def _text_of(document: object, image: str) -> str:
    assert isinstance(document, Sample)
    return "".join(shown_text(turn, image) for turn in document.turns)
