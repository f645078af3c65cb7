"""Checks of JSONL stores against their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

from prep_assets.checks.of_stores import refusals_of
from prep_assets.checks.rejections import Oracle
from prep_assets.checks.relations import Compares, Derivation, Judge, blocks_of, is_small
from prep_assets.checks.selection import one_by_one
from prep_assets.checks.sources_again import STRING_ROLES, StoredRows, domain_source, prompt_json, reading_of, stored_rows, streams_of
from prep_assets.data.files import record_id
from prep_assets.data.quarantine import Refusal
from prep_assets.errors import Refused, StoreError
from prep_assets.extensions.lines.proofs import Line, check_lines, fits_strings, lines_verdict
from prep_assets.extensions.lines.write import form_of
from prep_assets.pipeline.asset import Content, FromLines, FromRows, LineOf, Reasons, Store
from prep_assets.pipeline.examples import Item, Source, converter
from prep_assets.proofs.verdict import Rule, Tally, Verdict, Worst
from prep_assets.samples import Group, Pair, Prompt, Record, Row, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.table import Table

# Lines of a JSONL store of one domain, joined with their source rows.

ONE_IN = 64
"""One in so many lines that columns give is also converted by the schema; so are the first, and all of a small store."""


class OfLines(Derivation):
    """Checks the lines of a JSONL store of one domain, file by file.

    Attributes:
        rule: what must hold of each.
    """

    rule: Rule[Any]

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.source = domain_source(store)
        self.convert = converter(self.source.domain, self.source.gives)
        stems = [stream.stem for stream in store.asset.streams.values()]
        self.files = sorted(streams_of(store), key=lambda file: [*stems, file.name].index(file.name))
        for file in self.files:
            if list(file.origins.domains) != [store.partition]:
                raise StoreError(f"{file.path}: its index has the domains {', '.join(file.origins.domains)}, it is of {store.partition}")

    def judges(self) -> Sequence[tuple[Table | None, Judge]]:
        """One judge per file."""
        return [(file, Compares(self.pairs(file), Tally(self.rule))) for file in self.files]

    def pairs(self, file: Table) -> Callable[[StoredRows], Iterator[Any]]:
        """Return what gives what is compared of each line of a file, in source order."""
        raise NotImplementedError

    def with_rows(self, objects: Iterator[Row], rows: StoredRows) -> Iterator[tuple[str, int, Row, Row]]:
        """Yield each line, in source order: the id of its record, the number and the fields of its row, and its object. A row may give several labelled
        answers."""
        for number, (_, identity, payload) in zip(rows.numbers, rows.records(), strict=True):
            yield f"{self.source.name}/{identity}", number, payload, next(objects)


class LinesMatch(OfLines):
    """Compares the lines of a JSONL store with their rows: `source_match`."""

    rule = check_lines

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._line, self._form, self._is_small = line_of(store), form_of(store.directory), is_small(store)
        self.reading = reading_of(store)

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The verdict on all files; lines have the form that is configured, and with ``auto`` are messages where one of them is more than strings hold."""
        verdict = lines_verdict(results, stored=sum(map(len, self.files)))
        if verdict.passed and (detail := self._fault_of_form()):
            verdict = Verdict(False, detail, verdict.numbers, Worst("form", detail))
        return {"source_match": verdict}

    def _fault_of_form(self) -> str:
        if (configured := self.store.family.of_some("form")) != "auto":
            return f"the lines are {self._form}; form is {configured}" if any(map(len, self.files)) and self._form != configured else ""
        is_open = self._form == "messages" and not any(map(self._needs_messages, refusals_of(self.store)))
        if is_open and all(fits_strings(line) for file in self.files for line in file):
            return "all lines are messages, and strings would hold each of them"
        return ""

    def _needs_messages(self, refusal: Refusal) -> bool:
        """Whether a row that contradicts another one, and so is not stored, may have needed messages."""
        if not refusal.reason.startswith("contradicting_"):
            return False
        lines = None if len(refusal.payload) < refusal.payload_length else self._convert_row(json.loads(refusal.payload))
        return lines is None or not all(map(fits_strings, lines if isinstance(lines, list) else [lines]))

    def pairs(self, file: Table) -> Callable[[StoredRows], Iterator[Line]]:
        """Return what gives each line of a file, in source order, with the line its row gives: by the schema, and of lines that are the texts of the columns
        of a plain row, and no more, only for one in `ONE_IN`."""
        also, objects = True, iter(file)

        def lines(rows: StoredRows) -> Iterator[Line]:
            nonlocal also
            for identity, own in groupby(self.with_rows(objects, rows), key=itemgetter(0)):
                _, numbers, payloads, stored = zip(*own, strict=True)
                by_columns = self.reading.line(payloads[0], self._form) == stored[0]
                sampled = also or self._is_small or numbers[0] % ONE_IN == 0
                converted = self._convert_row(payloads[0]) if sampled or not by_columns else stored[0]
                also = False
                for line, made in zip_longest(stored, converted if isinstance(converted, list) else [converted]):
                    yield Line(identity, line or {}, made, by_columns)

        return lines

    def _convert_row(self, payload: Row) -> Row | list[Row] | None:
        """Return the line that the schema makes of a row, or its lines, after a JSON round trip; `None` for a rejected row."""
        try:
            line: Row | list[Row] = json.loads(json.dumps(self._line(apply(self.convert, payload))[1](self._form)))
        except Refused:
            return None
        return line

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the store."""
        found = ((self.pairs(file), stored_rows(self.store, file)) for file in self.files)
        return (line for lines, joined in found for rows in joined for line in lines(rows))


# Rejected rows, judged again, and which side of the split rows are on.

Claim = Callable[[Mapping[str, Any]], tuple[str, str] | None]
"""A line → what it is about, and what it says of that; `None` where it says nothing that another line could contradict."""


def rejected_lines(store: Store, *, claim: Claim = lambda row: None) -> Reasons:
    """Return a function that judges the rejected rows of a store of lines again."""
    form, line, convert = form_of(store.directory), line_of(store), refused_rows_of(store)
    assert isinstance(store.asset.source, FromRows)
    contradiction = store.asset.source.contradiction

    def rows_of(item: Item) -> Sequence[Mapping[str, Any]]:
        made = line(item.content)[1](form)
        return made if isinstance(made, list) else [made]

    @lru_cache(64)
    def values(reason: str) -> Mapping[str, Set[str]]:
        """What the rows that are rejected for a contradiction say, by what they are about."""
        found = dict[str, set[str]]()
        for item in convert(reason):
            with suppress(Refused):
                for about, value in filter(None, map(claim, rows_of(item))):
                    found.setdefault(about, set()).add(value)
        return found

    def judge(item: Item) -> None:
        for row in rows_of(item):
            if contradiction is None or (said := claim(row)) is None:
                continue
            rejection = contradiction.rejection(row)
            if len(values(f"{rejection.stage}/{rejection.reason}").get(said[0], ())) > 1:
                raise rejection

    return one_by_one(judge)


def refused_rows_of(store: Store) -> Callable[[str], Iterator[Item]]:
    """Return a function that yields the rows of a domain that are rejected for one reason, read again."""
    source = store.asset.source
    assert isinstance(source, FromRows)
    gives, origin = source.gives, domain_source(store)

    def items(reason: str) -> Iterator[Item]:
        rejected = {line.id for line in refusals_of(store) if f"{line.stage}/{line.reason}" == reason}
        reader = Source.of(store.workspace, type(store.family), store.partition, gives=gives).reading().reader
        for block in blocks_of(store) if rejected else ():
            for file, row, payload in zip(block.files, block.rows, block.payloads, strict=True):
                if payload is None or record_id(origin.files[file], row) not in rejected:
                    continue
                [example] = reader.rows([payload])
                if not isinstance(example, Refused):
                    yield Item(origin.files[file], Record(file, row, dict(payload)), example)

    return items


def line_of(store: Store) -> LineOf:
    """Return what makes lines of the examples of a store."""
    source = store.asset.source
    assert isinstance(source, FromRows) and source.line is not None
    return source.line(store.workspace)


def of_form(store: Store) -> Oracle:
    """Whether a line could hold a row: where the form is open, messages hold what no string holds."""
    is_open = store.family.of_some("form") == "auto"
    return lambda reason, row: "messages can hold what no string holds, and the form is open" if is_open else None


def by_prompt(store: Store) -> Content:
    """Split by the prompt of a row's example."""
    source = domain_source(store)
    convert = converter(source.domain, source.gives)

    def prompt(payload: Mapping[str, Any]) -> bytes:
        example = apply(convert, payload)
        assert isinstance(example, Group | Prompt | Pair | Sample)
        turns = example.turns[:-1] if isinstance(example, Sample) else example.prompt
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        return prompt_json(messages[0]["content"] if len(turns) == 1 and turns[0].role in STRING_ROLES else messages)

    return prompt


def require_current(store: Store, key: str) -> None:
    """Check that the upstream store has not changed since; `key`: of its content hash in the recipe.

    Raises:
        StoreError: it was rebuilt since.
    """
    source = store.asset.source
    assert isinstance(source, FromLines)
    for asset, _ in source.files.values():
        store.above(asset, store.partition, store.recipe[key])
