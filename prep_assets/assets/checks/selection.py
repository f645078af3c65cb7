"""`selection`: every row of the sources is stored where it belongs, or refused for a reason that holds."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.alone import alone
from prep_assets.assets.checks.expected import shown_text
from prep_assets.assets.checks.images_again import images_again
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.stored_rows import Rows
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.stage import ASKED, Check, FromLines, FromRows, Store
from prep_assets.assets.writing.groups import TEST, splits
from prep_assets.config.domain import Domain
from prep_assets.disk.ahead import ahead
from prep_assets.disk.columns import at, equals, joined, made, where, zeros
from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.accounting import Fields, books
from prep_assets.proofs.held_out import canonical_json, is_held_out
from prep_assets.proofs.ledger import Ledger, Refusals, Stored, places
from prep_assets.proofs.selection import GOOD, Rules, Selected, select
from prep_assets.proofs.source_rows import read_rows
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.records.quarantine import read_quarantine
from prep_assets.samples import Group, Pair, Prompt, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.tokens import TokenStore

Column = npt.NDArray[Any]
Proven = TypeVar("Proven")
Part = tuple[bool, Any, Any, Any, Any]
"""A part of a store: whether it is held out; domain number, file and row of its records, and what `Stored.belongs` is (or `None`)."""


def selection(store: Store) -> Verdict:
    """Go through every domain of a store that is made from sources."""
    known: Verdict | None = (store.published.evidence or {}).get(SELECTION.name)
    if known is not None:
        return known
    found = list[Verdict]()
    deque(_selected(store, found.append), 0)
    return found[0]


def largest_beside_selection(store: Store, prove: Callable[[TokenStore, Iterator[Rows] | None], Proven]) -> Iterator[Proven]:
    """What `prove` finds of each stream of a domain. Where `selection` is asked for as well, it is given the rows for the largest of them as that check
    reads them, so that both come of one reading; else nothing, and reads for itself."""
    streams, shared = store.streams().values(), store.published.evidence or {}
    together = SELECTION.name not in shared and SELECTION.name in shared.get(ASKED, ())
    largest = max(streams, key=len, default=None) if together else None
    for stream in streams:
        if stream is not largest:
            yield prove(stream, None)
            continue
        with closing(ahead(_selected(store, partial(shared.__setitem__, SELECTION.name)))) as blocks:
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
    if SELECTION.name in shared or SELECTION.name not in shared.get(ASKED, ()) or len(store.domains) > 1:
        yield None
        return
    blocks = _selected(store, partial(shared.__setitem__, SELECTION.name))
    try:
        yield blocks
    finally:
        deque(blocks, 0)  # the verdict needs all rows, whatever has been looked at


def _readable(block: Selected) -> Rows:
    """The rows of a block that can be read."""
    kept = [(row, payload) for row, payload in zip(block.rows, block.payloads, strict=True) if payload is not None]
    return Rows(block.file, [row for row, _ in kept], [payload for _, payload in kept])


def _selected(store: Store, said: Callable[[Verdict], None]) -> Iterator[Selected]:
    """The rows of every domain, read a second time and judged; `said` is told the verdict after the last."""
    source, family, listed = rows_of(store), store.family, list(_parts(store))
    ledger, fields, counts = Ledger(refusals_of(store), getattr(family, "test_fraction", 0.0)), list[Fields](), store.manifest.counts
    rows: list[Callable[[], Iterator[Mapping[str, Any]]]] = []
    for number, name in enumerate(store.domains):
        second = Second.of(store, name)
        rules = second.rules(deduplicate=family.preprocessing.deduplicate, limit=getattr(family, "max_per_source", None))
        blocks, again, content = select(second.rows(), rules), alone(store, source, second), source.content(store, second)
        claimed = counts.get("fields_passed_over", {}).get(name, {})
        fields.append(Fields(name, claimed, second.domain.ignore, _passed_over(second.domain, source.gives)))
        rows.append(partial(_good, second, rules))
        yield from ledger.judged(blocks, _stored(listed, number), second.names, second.held_out, content, again, fields[-1].add)
    verdict = ledger.verdict()
    wrong = (fault for each, good in zip(fields, rows, strict=True) for fault in each.faults(good))
    faults = [*books(counts, ledger.numbers), *wrong] if verdict.passed else []
    said(Verdict(False, "; ".join(faults), verdict.numbers, Worst("manifest", faults[0])) if faults else verdict)


def _passed_over(domain: Domain, gives: type) -> Callable[[Mapping[str, Any]], Set[str]]:
    """Paths of the fields of a row that its schema passes over, asked again; none of a row that it refuses."""
    reader = converter(domain, gives)

    def paths(row: Mapping[str, Any]) -> Set[str]:
        reader.account.counts.clear()
        with suppress(Refused):
            apply(reader, row)
        return set(reader.account.counts)

    return paths


def _good(second: Second, rules: Rules) -> Iterator[Mapping[str, Any]]:
    """The rows of a domain that its schema is given."""
    for block in select(second.rows(), rules):
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
            blocks = select([(0, False, read_rows(file, "jsonl", None))], Rules(deduplicate=False))
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


def _parts(store: Store) -> Iterator[Part]:
    if store.holds(GroupStore):
        for split, folder in splits(store.directory).items():
            groups = open_groups(folder)
            yield split == TEST, groups.source, groups.prompts.file, groups.prompts.row, None
    elif store.holds(Lines):
        fraction, plain = getattr(store.family, "test_fraction", 0.0), rows_of(store).plain
        for path in sorted(store.directory.glob("*.jsonl")):
            lines = open_lines(store.directory, path.stem)
            prompts = (line["query"] if "query" in line else line["prompt"] for line in lines)
            held = np.fromiter((_held_out(each, fraction, plain) for each in prompts) if fraction else repeat(0, len(lines)), np.int8)
            yield path.stem.endswith("_test"), lines.index["source"], lines.index["file"], lines.index["row"], held
    else:
        for name, stream in store.streams().items():
            several = store.recipe.get("expand") == "turns"
            file, row = (where(stream.begins_row, each) if several else each for each in (stream.file, stream.row))
            yield name.endswith("dev"), zeros(len(row), np.int8), file, row, None


def stored_of(store: Store, number: int) -> Stored:
    """The records of one domain of a store."""
    return _stored(list(_parts(store)), number)


def _stored(parts: Sequence[Part], number: int) -> Stored:
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


_ALONE = ("user", "assistant", "prompt", "completion")
"""Roles of a turn that may stand as a string."""


def _held_out(prompt: Any, fraction: float, plain: bool) -> int:
    """What `Stored.belongs` is. Prompts are known by their plain form, whatever the form of the file."""
    if plain and not isinstance(prompt, str):
        if any(message.keys() != {"role", "content"} for message in prompt):
            return -1
        prompt = prompt[0]["content"] if len(prompt) == 1 and prompt[0]["role"] in _ALONE else prompt
    return int(fraction > 0 and is_held_out(prompt_json(prompt), fraction))


def prompt_json(prompt: Any) -> bytes:
    """What decides whether a prompt is held out: its JSON, keys in the order in which they stand."""
    return json.dumps(prompt, ensure_ascii=False, separators=(",", ":")).encode()


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
