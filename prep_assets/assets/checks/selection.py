"""`selection`: every row of the sources is stored where it belongs, or refused for a reason that holds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.alone import alone
from prep_assets.assets.checks.parts import Unsound
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.sides import asked, held_out
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.stage import Check, FromLines, FromRows, Store
from prep_assets.assets.writing.groups import TEST, splits
from prep_assets.disk.arrays import Spool
from prep_assets.disk.columns import at, equals, joined, made, where, zeros
from prep_assets.errors import Refused
from prep_assets.proofs.accounting import Fields, books
from prep_assets.proofs.held_out import canonical_json
from prep_assets.proofs.ledger import Ledger, Refusals, Stored, balanced, places
from prep_assets.proofs.selection import GOOD, Again, Believed, Rules, Selected, beliefs_hold, select
from prep_assets.proofs.source_rows import read_rows
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.records.quarantine import read_quarantine
from prep_assets.schemas.reader import apply
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines

Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of the rows that a store, or a part of one, is made from.

    Attributes:
        verdict: of where they are.
        found, unnamed: see `Fields`: in how many rows fields hold something, and which of those that are passed over have no name.
        quarantine: lines of the quarantine of the whole store.
        digests, came: of a part, see `Believed`.
    """

    verdict: Verdict
    found: Counter[str]
    unnamed: set[str]
    quarantine: int
    digests: bytes = b""
    came: bytes = b""


class Selection:
    """The check of a store that is made from the rows of one domain, or of a part of it: its rows go by while other checks look at them as well."""

    def __init__(self, store: Store) -> None:
        self.store, part = store, store.part
        self.second = Second.of(store, store.partition)
        lines: Refusals = store.once("refusals", partial(refusals_of, store, self.second.names))
        refusals = lines if part is None else lines.within(part.begin, part.end)
        self._lines, self._believed = len(lines), Believed(set() if part is None else refusals.duplicates())
        source, domain, claimed = rows_of(store), self.second.domain, store.manifest.counts.get("fields_passed_over", {})
        self._fields = Fields(store.partition, claimed.get(store.partition, {}), domain.ignore, self._passed_over)
        self._reader = converter(domain, source.gives)
        self.rules: Rules = store.once("rules", self._made_rules)
        looks: tuple[Callable[[Mapping[str, Any]], bytes], Again] = store.once(
            "looks", lambda: (source.content(store, self.second), alone(store, source, self.second))
        )
        fraction = getattr(store.family, "test_fraction", 0.0)
        self.ledger = Ledger(refusals, stored_of(store), self.second.held_out, *looks, fraction, self._fields.add_rows)

    def _made_rules(self) -> Rules:
        family, messages = self.store.family, self.second.messages(rows_of(self.store).gives)
        limit = getattr(family, "max_per_source", None)
        return self.second.rules(deduplicate=family.preprocessing.deduplicate, limit=limit, messages=messages)

    def _passed_over(self, row: Mapping[str, Any]) -> Set[str]:
        """Paths of the fields of a row that its schema passes over, asked again; none of a row that it refuses."""
        self._reader.account.counts.clear()
        with suppress(Refused):
            apply(self._reader, row)
        return set(self._reader.account.counts)

    def blocks(self) -> Iterator[Selected]:
        """The rows, each block once it has been judged."""
        part, messages = self.store.part, self.rules.messages if self.rules.every else None
        yield from self.ledger.judged(select(self.second.rows(part, messages), self.rules, None if part is None else self._believed))

    def judged(self) -> Judged:
        """What was found, once all rows have gone by."""
        believed, fields = self._believed, self._fields
        return Judged(self.ledger.verdict(), fields.found, fields.unnamed, self._lines, bytes(believed.digests), bytes(believed.came))

    def verdict(self, found: Judged) -> Verdict:
        """The verdict on a whole store: of where its rows are, and of what its manifest counts."""
        if not found.verdict.passed:
            return found.verdict
        self._fields.found, self._fields.unnamed = found.found, found.unnamed
        faults = books(self.store.manifest.counts, found.verdict.numbers) + self._fields.faults(self._good)
        return Verdict(False, "; ".join(faults), found.verdict.numbers, Worst("manifest", faults[0])) if faults else found.verdict

    def _good(self) -> Iterator[Mapping[str, Any]]:
        """The rows that the schema is given."""
        for block in select(self.second.rows(), self.rules):
            yield from (payload for payload, fate in zip(block.payloads, block.fates, strict=True) if payload is not None and fate == GOOD)

    def of_parts(self, parts: Iterable[Judged]) -> Verdict:
        """The verdict on a whole store, of what was found of its parts, in order.

        Raises:
            Unsound: a part is not as it must be, or they contradict each other.
        """
        numbers, rows, unnamed = Counter[str](), Counter[str](), set[str]()
        digests, came, quarantine = Spool(np.uint64), Spool(bool), set[int]()
        for part in parts:
            if not part.verdict.passed:
                raise Unsound
            numbers.update(part.verdict.numbers)
            rows += part.found
            unnamed |= part.unnamed
            digests.append(np.frombuffer(part.digests, np.uint64))
            came.append(np.frombuffer(part.came, bool))
            quarantine.add(part.quarantine)
        if quarantine != {numbers["rows_refused"]} or not beliefs_hold(digests.array().reshape(-1, 2), came.array()):
            raise Unsound
        return self.verdict(Judged(balanced(self.ledger.numbers | numbers), rows, unnamed, numbers["rows_refused"]))


def rows_of(store: Store) -> FromRows:
    """How the rows that a store is made from are read again."""
    assert isinstance(store.asset.source, FromRows)
    return store.asset.source


def line_selection(store: Store) -> Verdict:
    """Go through the lines that a store's tokens are made from."""
    streams, source = store.streams(), store.asset.source
    assert isinstance(source, FromLines)
    paths = [store.above(asset, store.partition).directory / f"{name}.jsonl" for asset, name in source.files.values()]
    # a file without lines has no stream
    having = [(number, streams[stream].row) for number, stream in enumerate(source.files) if stream in streams]
    place = joined([_places(np.broadcast_to(number, len(rows)), rows) for number, rows in having])
    refusals = refusals_of(store, [path.name for path in paths])
    ledger = Ledger(refusals, Stored.of(place, zeros(len(place), bool)), [False] * len(paths), canonical_json, source.again(store))

    def rows(path: Any) -> Iterator[Any]:
        with path.open("rb") as file:
            yield from read_rows(file, "jsonl", None, messages=source.columns)

    files = ((number, False, rows(path)) for number, path in enumerate(paths))
    deque(ledger.judged(block for each in files for block in select([each], Rules(deduplicate=False))), 0)
    return ledger.verdict()


LINE_SELECTION = Check(
    "selection", "Every line that these tokens are made from is there once, or refused once for a reason that holds.", line_selection
)


def refusals_of(store: Store, files: tuple[str, ...] | list[str]) -> Refusals:
    """The quarantine of a store, in columns; `files`: the names of what it is made from."""
    lines = read_quarantine(store.published.quarantine) if store.published.quarantine else ()
    return Refusals(((line.id, f"{line.stage}/{line.reason}") for line in lines), files)


def stored_of(store: Store) -> Stored:
    """The records of a store of one domain, over all parts of it."""
    place, held, belonging = list[Column](), list[Column](), list[Column]()
    for is_held_out, file, row, belongs in _parts(store):
        place.append(_places(file, row))
        held.append(np.full(len(row), is_held_out))
        belonging.append(np.full(len(row), -1, np.int8) if belongs is None else belongs)
    return Stored.of(joined(place), joined(held, bool), joined(belonging, np.int8))


def _parts(store: Store) -> Iterator[tuple[bool, Column, Column, Column | None]]:
    """Of each stream: whether it is held out, file and row of its records that are of the one domain, and what `Stored.belongs` is."""
    if store.holds(GroupStore):
        for split, folder in splits(store.directory).items():
            groups = open_groups(folder)
            mine = where(equals(groups.source, 0))
            yield split == TEST, at(groups.prompts.file, mine), at(groups.prompts.row, mine), None
    elif store.holds(Lines):
        fraction, plain = getattr(store.family, "test_fraction", 0.0), rows_of(store).plain
        for path in sorted(store.directory.glob("*.jsonl")):
            lines = open_lines(store.directory, path.stem)
            mine, prompts = where(equals(lines.index["source"], 0)), map(asked, lines.written())
            belongs = np.fromiter((held_out(each, fraction, plain) for each in prompts) if fraction else repeat(0, len(lines)), np.int8)
            yield path.stem.endswith("_test"), at(lines.index["file"], mine), at(lines.index["row"], mine), at(belongs, mine)
    else:
        several = store.recipe.get("expand") == "turns"
        for name, stream in store.streams().items():
            file, row = (where(stream.begins_row, each) if several else each for each in (stream.file, stream.row))
            yield name.endswith("dev"), file, row, None


def _places(file: Column, row: Column) -> Column:
    return made(len(row), lambda part: places(file[part], row[part]))
