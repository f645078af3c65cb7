"""The source files of a domain, opened for a second reading by other code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Literal

from prep_assets.assets.checks.parts import Part
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.pinned import domain_of, pinned
from prep_assets.assets.reading.stretches import Stretch
from prep_assets.assets.stage import Store
from prep_assets.config.models import Domain
from prep_assets.proofs.contamination import Passages
from prep_assets.proofs.message_rows import MessageFields
from prep_assets.proofs.pair_columns import PAIR_FIELDS
from prep_assets.proofs.selection import Rules
from prep_assets.proofs.source_rows import ALL, Between, Rows, Unsupported, decompressed, read_rows
from prep_assets.records.blocks import Unreadable
from prep_assets.records.cuts import LINES, TABLES
from prep_assets.records.files import SourceFile, open_stored
from prep_assets.records.read import read_blocks
from prep_assets.records.stream import seekable
from prep_assets.samples import Pair, Record
from prep_assets.schemas.plain_rows import PlainMessages, plain_rows_of


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

    def rules(self, *, deduplicate: bool, limit: int | None = None, messages: MessageFields | None = None) -> Rules:
        """What its configuration says about its rows, and how those are written that may come in columns."""
        domain = self.domain
        limits = [number for number in (domain.max_items, limit) if number is not None]
        return Rules(
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

    def rows(self, part: Part | None = None, messages: MessageFields | None = None) -> Iterator[tuple[int, bool, Rows]]:
        """The rows of each file, or those of a part, of JSON lines as `messages` says in columns; a file is opened when the first of its rows is asked for."""
        if part is not None:
            yield from ((stretch.file, self.held_out[stretch.file], self._stretch(part, stretch, messages)) for stretch in part.stretches)
            return
        for number, file in enumerate(self.files):
            yield number, self.held_out[number], _rows(file, self.domain.txt, messages=messages)

    def _stretch(self, part: Part, stretch: Stretch, messages: MessageFields | None) -> Rows:
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


def _rows(file: SourceFile, txt: Literal["line", "file"], between: Between = ALL, messages: MessageFields | None = None) -> Rows:
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
