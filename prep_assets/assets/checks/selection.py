"""`selection`: every row of the sources is stored where it belongs, or refused for a reason that holds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.alone import alone
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.sides import asked, held_out
from prep_assets.assets.checks.stored_rows import Rows
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.pinned import domain_of
from prep_assets.assets.stage import ASKED, Check, FromLines, FromRows, Store
from prep_assets.assets.writing.groups import TEST, splits
from prep_assets.config.domain import Domain
from prep_assets.disk.ahead import ahead
from prep_assets.disk.columns import at, equals, joined, made, where, zeros
from prep_assets.errors import Refused
from prep_assets.proofs.accounting import Fields, books
from prep_assets.proofs.held_out import canonical_json
from prep_assets.proofs.ledger import Ledger, Refusals, Stored, places
from prep_assets.proofs.message_rows import MessageRows
from prep_assets.proofs.selection import GOOD, Again, Believed, Rules, Selected, select
from prep_assets.proofs.source_rows import read_rows
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.records.quarantine import read_quarantine
from prep_assets.schemas.reader import apply
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.tokens import TokenStore

Column = npt.NDArray[Any]
Proven = TypeVar("Proven")
_Side = tuple[bool, Any, Any, Any, Any]
"""A part of a store: whether it is held out; domain number, file and row of its records, and what `Stored.belongs` is (or `None`)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of the rows that a store, or a part of one, is made from.

    Attributes:
        verdict: of where they are.
        fields: of each domain, see `Fields`: in how many of its rows fields hold something, and which of those that are passed over have no name.
        quarantine: lines of the quarantine of the whole store.
        digests, came: of a part, see `Believed`.
    """

    verdict: Verdict
    fields: tuple[tuple[Counter[str], set[str]], ...]
    quarantine: int
    digests: bytes = b""
    came: bytes = b""


def selection(store: Store) -> Verdict:
    """Go through every domain of a store that is made from sources."""
    return whole_verdict(store, judged(store))


def judged(store: Store) -> Judged:
    """What is found of all rows of a store or a part, where no other check of this run has been given them."""
    if (known := _known(store)) is not None:
        return known
    found = list[Judged]()
    deque(_selected(store, found.append), 0)
    return found[0]


def _known(store: Store) -> Judged | None:
    return (store.published.evidence or {}).get(SELECTION.name)


def largest_beside_selection(
    store: Store, prove: Callable[[TokenStore, Iterator[Rows] | None], Proven], *, in_columns: bool = False
) -> Iterator[Proven]:
    """What `prove` finds of each stream of a domain. Where `selection` is asked for as well, it is given the rows for the largest of them as that check
    reads them, so that both come of one reading; else nothing, and reads for itself. `in_columns`: some may come as `MessageRows`."""
    streams, shared = store.streams().values(), store.published.evidence or {}
    together = _known(store) is None and SELECTION.name in shared.get(ASKED, ())
    largest = max(streams, key=len, default=None) if together else None
    for stream in streams:
        if stream is not largest:
            yield prove(stream, None)
            continue
        with closing(ahead(_selected(store, partial(shared.__setitem__, SELECTION.name), in_columns))) as blocks:
            try:
                found = prove(stream, map(_readable, blocks))
            except Exception:
                deque(blocks, 0)  # the verdict needs all rows, whatever `prove` has looked at
                raise
            deque(blocks, 0)
        yield found


@contextmanager
def rows_beside_selection(store: Store) -> Iterator[Iterator[Selected] | None]:
    """The rows of a store of one domain as `selection` reads them, where that is asked for as well, so that both come of one reading; else nothing."""
    shared = store.published.evidence or {}
    if _known(store) is not None or SELECTION.name not in shared.get(ASKED, ()) or len(store.domains) > 1:
        yield None
        return
    blocks = _selected(store, partial(shared.__setitem__, SELECTION.name), in_columns=True)
    try:
        yield blocks
    finally:
        deque(blocks, 0)  # the verdict needs all rows, whatever has been looked at


def _readable(block: Selected) -> Rows:
    """The rows of a block that can be read."""
    if isinstance(block.payloads, MessageRows):
        return Rows(block.file, block.rows, block.payloads)
    kept = [(row, payload) for row, payload in zip(block.rows, block.payloads, strict=True) if payload is not None]
    return Rows(block.file, [row for row, _ in kept], [payload for _, payload in kept])


def _selected(store: Store, said: Callable[[Judged], None], in_columns: bool = False) -> Iterator[Selected]:
    """The rows of every domain, or of a part of one, read a second time and judged; `said` is told what was found of them after the last."""
    listed, refusals = list(_parts(store)), store.once("refusals", partial(refusals_of, store))
    lines, part, believed, fields = len(refusals), store.part, Believed(set()), list[Fields]()
    if part is not None:
        names = _domain(store, store.partition).second.names
        refusals = refusals.within(names, part.begin, part.end)
        believed = Believed(refusals.duplicates(names))
    ledger = Ledger(refusals, getattr(store.family, "test_fraction", 0.0))
    for number, name in enumerate(store.domains):
        domain = _domain(store, name)
        second, fields = domain.second, [*fields, _fields(store, name)]
        messages = domain.rules.messages if in_columns and domain.rules.every else None
        blocks = select(second.rows(part, messages), domain.rules, None if part is None else believed)
        stored = _stored(listed, number)
        yield from ledger.judged(blocks, stored, second.names, second.held_out, domain.content, domain.again, fields[-1].add_rows)
    found = tuple((each.found, each.unnamed) for each in fields)
    said(Judged(ledger.verdict(), found, lines, bytes(believed.digests), bytes(believed.came)))


class _Domain(NamedTuple):
    """A domain as it is read again, and how its rows are looked at."""

    second: Second
    rules: Rules
    content: Callable[[Mapping[str, Any]], bytes]
    again: Again


def _domain(store: Store, name: str) -> _Domain:
    def made() -> _Domain:
        source, family, second = rows_of(store), store.family, Second.of(store, name)
        limit, messages = getattr(family, "max_per_source", None), second.messages(source.gives)
        rules = second.rules(deduplicate=family.preprocessing.deduplicate, limit=limit, messages=messages)
        return _Domain(second, rules, source.content(store, second), alone(store, source, second))

    return store.once(f"domain {name}", made)


def _fields(store: Store, name: str) -> Fields:
    domain, claimed = domain_of(store.family, name), store.manifest.counts.get("fields_passed_over", {}).get(name, {})
    return Fields(name, claimed, domain.ignore, _passed_over(domain, rows_of(store).gives))


def whole_verdict(store: Store, found: Judged) -> Verdict:
    """The verdict on a whole store: of where its rows are, and of what its manifest counts."""
    if not found.verdict.passed:
        return found.verdict
    faults = books(store.manifest.counts, found.verdict.numbers)
    for name, (rows, unnamed) in zip(store.domains, found.fields, strict=True):
        fields = replace(_fields(store, name), found=rows, unnamed=unnamed)
        faults += fields.faults(partial(_good, store, name))
    return Verdict(False, "; ".join(faults), found.verdict.numbers, Worst("manifest", faults[0])) if faults else found.verdict


def _passed_over(domain: Domain, gives: type) -> Callable[[Mapping[str, Any]], Set[str]]:
    """Paths of the fields of a row that its schema passes over, asked again; none of a row that it refuses."""
    reader = converter(domain, gives)

    def paths(row: Mapping[str, Any]) -> Set[str]:
        reader.account.counts.clear()
        with suppress(Refused):
            apply(reader, row)
        return set(reader.account.counts)

    return paths


def _good(store: Store, name: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a domain that its schema is given."""
    domain = _domain(store, name)
    for block in select(domain.second.rows(), domain.rules):
        yield from (payload for payload, fate in zip(block.payloads, block.fates, strict=True) if payload is not None and fate == GOOD)


def rows_of(store: Store) -> FromRows:
    """How the rows that a store is made from are read again."""
    assert isinstance(store.asset.source, FromRows)
    return store.asset.source


def line_selection(store: Store) -> Verdict:
    """Go through the lines that a store's tokens are made from."""
    ledger, streams, source = Ledger(refusals_of(store), 0.0), store.streams(), store.asset.source
    assert isinstance(source, FromLines)
    for stream, (asset, name) in source.files.items():
        path = store.above(asset, store.partition).directory / f"{name}.jsonl"
        with path.open("rb") as file:
            blocks = select([(0, False, read_rows(file, "jsonl", None, messages=source.columns))], Rules(deduplicate=False))
            # a file without lines has no stream
            rows = streams[stream].row if stream in streams else np.zeros(0, np.int64)
            stored = Stored.of(rows, np.zeros(len(rows), bool))
            deque(ledger.judged(blocks, stored, [path.name], [False], canonical_json, source.again(store)), 0)
    return ledger.verdict()


SELECTION = Check(
    "selection",
    "Every row of the sources, read again by other code, is stored once on its side of the split, or refused once for a reason that holds.",
    selection,
)
LINE_SELECTION = Check(
    "selection", "Every line that these tokens are made from is there once, or refused once for a reason that holds.", line_selection
)


def refusals_of(store: Store) -> Refusals:
    """The quarantine of a store, in columns."""
    lines = read_quarantine(store.published.quarantine) if store.published.quarantine else ()
    return Refusals((line.id, f"{line.stage}/{line.reason}") for line in lines)


def _parts(store: Store) -> Iterator[_Side]:
    if store.holds(GroupStore):
        for split, folder in splits(store.directory).items():
            groups = open_groups(folder)
            yield split == TEST, groups.source, groups.prompts.file, groups.prompts.row, None
    elif store.holds(Lines):
        fraction, plain = getattr(store.family, "test_fraction", 0.0), rows_of(store).plain
        for path in sorted(store.directory.glob("*.jsonl")):
            lines = open_lines(store.directory, path.stem)
            prompts = map(asked, lines.written())
            held = np.fromiter((held_out(each, fraction, plain) for each in prompts) if fraction else repeat(0, len(lines)), np.int8)
            yield path.stem.endswith("_test"), lines.index["source"], lines.index["file"], lines.index["row"], held
    else:
        for name, stream in store.streams().items():
            several = store.recipe.get("expand") == "turns"
            file, row = (where(stream.begins_row, each) if several else each for each in (stream.file, stream.row))
            yield name.endswith("dev"), zeros(len(row), np.int8), file, row, None


def stored_of(store: Store, number: int) -> Stored:
    """The records of one domain of a store."""
    return _stored(list(_parts(store)), number)


def _stored(parts: Sequence[_Side], number: int) -> Stored:
    """The records of one domain, over all parts of a store."""
    place, held_out, belonging = list[Column](), list[Column](), list[Column]()
    for held, source, file, row, belongs in parts:
        mine = where(equals(source, number))
        place.append(_places(at(file, mine), at(row, mine)))
        held_out.append(np.full(len(mine), held))
        belonging.append(np.full(len(mine), -1, np.int8) if belongs is None else at(belongs, mine))
    return Stored.of(joined(place), joined(held_out, bool), joined(belonging, np.int8))


def _places(file: Column, row: Column) -> Column:
    return made(len(row), lambda part: places(file[part], row[part]))
