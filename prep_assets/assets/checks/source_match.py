"""`source_match`: what the lines of a JSONL store say is what their rows say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from prep_assets.assets.checks.lines_again import LineByNumber, Wanted
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.selection import rows_beside_selection
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.reasoning import unrendered_reasoning
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.contrast_rows import contrast_row
from prep_assets.assets.writing.message_rows import form_of
from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.assets.writing.prompts import prompt_of, prompt_row
from prep_assets.config.models import Arithmetic, Domain, Preference, Rl
from prep_assets.disk.columns import at
from prep_assets.errors import Refused
from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.lines_match import Alike, Line, check_lines
from prep_assets.proofs.message_rows import MessageRows, Messages
from prep_assets.proofs.pair_columns import Bools, are_lines
from prep_assets.proofs.plain_reading import pair_lines, plain_contrast, plain_pair, plain_prompt
from prep_assets.proofs.selection import Rules, Selected, select
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast, Pair, Prompt
from prep_assets.schemas.arithmetic import SEED, arithmetic_rows
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.lines import Lines, open_lines

Whole = Callable[[Sequence[Mapping[str, Any]], Domain], Sequence[Mapping[str, Any] | None]]
Same = Callable[[MessageRows, MessageRows, Domain], Bools]
ONE_IN = 64
SIDES = ("prompt", "chosen", "rejected")
Given = Iterable[Selected] | None
"""The rows of the one domain of a store, where somebody reads them already."""


def _unread(payloads: Sequence[Mapping[str, Any]], domain: Domain) -> Sequence[None]:
    return [None] * len(payloads)


def _none(rows: MessageRows, lines: MessageRows, domain: Domain) -> Bools:
    return np.zeros(len(rows), bool)


@dataclass(frozen=True, slots=True)
class Read:
    """How the rows of a store are read again.

    Attributes:
        gives: what their schema makes of them.
        make: the line of an example.
        plain: what a row says, text by text, see `Line`.
        whole: the lines of some rows, read in the most obvious way; `None` where it takes the schema to say.
        same: which rows in columns are lines in columns for certain.
    """

    gives: type
    make: Callable[[Any], Mapping[str, Any]]
    plain: Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, str] | None]
    whole: Whole = _unread
    same: Same = _none


def source_match(matched: Callable[[Store, Given], Iterator[Line | Alike]], store: Store) -> Verdict:
    """Compare every line of a store with its row. Where `selection` is asked for as well, both come of one reading of the sources; what is not sound by
    that is looked at file by file."""
    stored = sum(len(open_lines(store.directory, path.stem)) for path in store.directory.glob("*.jsonl"))
    # whatever stops the shared reading is met and told again by the one below, which reads for itself
    with suppress(Exception), rows_beside_selection(store) as given:
        if given is not None and (verdict := check_lines(matched(store, given), stored=stored)).passed:
            return verdict
    return check_lines(matched(store, None), stored=stored)


def matched_pairs(store: Store, given: Given = None) -> Iterator[Line | Alike]:
    """Each line of a store of preferences with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Preference))

    def whole(payloads: Sequence[Mapping[str, Any]], domain: Domain) -> Sequence[Mapping[str, Any] | None]:
        if domain.weigh is not None or domain.speaker_names != "keep" or any("." in path or path in SIDES for path in domain.ignore):
            return _unread(payloads, domain)
        ignored = set(domain.ignore)
        rows = [{key: row[key] for key in row if key not in ignored} for row in payloads] if ignored else payloads
        return pair_lines(rows, domain.schema_name, domain.options, form, reasoning.strings)

    searched = ByteSearch(reasoning.strings)

    def same(rows: MessageRows, lines: MessageRows, domain: Domain) -> Bools:
        in_form = isinstance(lines.lists[0], Messages) is (form == "messages")
        plain = in_form and domain.schema_name == "preference" and not domain.options and domain.weigh is None and not domain.ignore
        return are_lines(rows, lines, searched) if plain else np.zeros(len(rows), bool)

    return _match(store, given, Read(Pair, lambda example: preference_row(reasoning.read(example), form), plain_pair, whole, same))


def matched_prompts(store: Store, given: Given = None) -> Iterator[Line | Alike]:
    """Each line of a store of prompts with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Rl))
    return _match(store, given, Read(Prompt, lambda example: prompt_row(prompt_of(reasoning.read(example)), form), plain_prompt))


def matched_contrasts(store: Store, given: Given = None) -> Iterator[Line | Alike]:
    """Each line of a contrastive store with what its row gives."""
    return _match(store, given, Read(Contrast, contrast_row, plain_contrast))


def matched_questions(store: Store, _: Given = None) -> Iterator[Line | Alike]:
    """Generated questions, generated once more; those of the one level of train-llm-from-scratch by other code as well."""
    options = store.workspace.family(Rl).arithmetic
    chosen = {} if options.levels is None else {"levels": options.levels}
    rows = arithmetic_rows(options.n, options.largest, options.seed, unique=options.unique, **chosen)
    made = (
        {"prompt": row["prompt"], "gold": float(row["gold"]), **({} if options.levels is None else {"level": row["level"]})} for row in rows
    )
    plain = _seed_level(options) if options.levels in (None, (SEED,)) and not options.unique else [None] * options.n
    lines = zip_longest(open_lines(store.directory, store.asset.name), made, plain)
    for number, (stored, row, second) in enumerate(lines, 1):
        yield Line(f"line {number}", stored or {}, row, second if stored else None)


def _seed_level(options: Arithmetic) -> list[dict[str, str] | None]:
    draw = random.Random(options.seed)
    found: list[dict[str, str] | None] = []
    for _ in range(options.n):
        left, right = draw.randint(0, options.largest), draw.randint(0, options.largest)
        found.append({"prompt": f"What is {left} {draw.choice('+-*')} {right}?"})
    return found


def _match(store: Store, given: Given, read: Read) -> Iterator[Line | Alike]:
    files = [open_lines(store.directory, path.stem) for path in sorted(store.directory.glob("*.jsonl"))]
    if given is not None and all(list(lines.sources) == list(store.domains) for lines in files):
        return _lines_of(store, files, given, read)
    return chain.from_iterable(_lines_of(store, [lines], None, read) for lines in files)


def _lines_of(store: Store, files: Sequence[Lines], given: Given, read: Read) -> Iterator[Line | Alike]:
    """Each line of some files, in the order of the sources, with what its row gives: by a second reading where that says all of it, by the schema of
    one in `ONE_IN` of these, and of all others. Rows in columns that are lines as they stand are compared with theirs all at once."""
    by_number = [LineByNumber(lines) for lines in files]
    for number, name in enumerate(files[0].sources if files else ()):
        mine = [lines.of(number) for lines in files]
        wanted = [(Wanted(at(lines.places, own), own), each) for lines, each, own in zip(files, by_number, mine, strict=True) if len(own)]
        if not wanted:
            continue
        second = Second.of(store, name)
        names, domain, convert = second.names, second.domain, converter(second.domain, read.gives)
        for block in select(second.rows(), Rules(deduplicate=False)) if given is None else given:
            rows = block.payloads
            for own, at_line in wanted:
                places = [(own.take(block.file << 40 | row), which) for which, row in enumerate(block.rows)]
                found = [(line, which) for line, which in places if line is not None]
                if isinstance(rows, MessageRows):
                    alike = _alike(rows, found, at_line, domain, read.same)
                    yield Alike(sum(alike), not isinstance(rows.lists[0], Messages))
                    found = [each for each, is_alike in zip(found, alike, strict=True) if not is_alike]
                readable = [(line, block.rows[which], payload) for line, which in found if (payload := rows[which]) is not None]
                objects, said = at_line.some([line for line, *_ in readable]), read.whole([payload for *_, payload in readable], domain)
                for (_, row, payload), stored, whole_line in zip(readable, objects, said, strict=True):
                    made = whole_line if whole_line is not None and row % ONE_IN else _made(convert, payload, read.make)
                    plain = read.plain(payload, domain.schema_name, domain.options) if made is not None else None
                    yield Line(f"{name}/{names[block.file]}:{row}", stored, made, plain)


def _alike(rows: MessageRows, found: Sequence[tuple[int, int]], at_line: LineByNumber, domain: Domain, same: Same) -> list[bool]:
    """Of which lines the row, given by its place, is the line for certain."""
    some = rows.taken(np.array([which for _, which in found], np.int64))
    stored = rows.fields.read(some.numbers, [line.removesuffix(b"\n") for line in at_line.written([line for line, _ in found])])
    if stored is None:
        return [False] * len(found)
    sure: list[bool] = (same(some, stored, domain) & (np.asarray(some.numbers) % ONE_IN != 0)).tolist()
    return sure


def _made(convert: Convert, payload: Mapping[str, Any], make: Callable[[Any], Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """A line as JSON gives it back; `None` where there is none."""
    try:
        made: Mapping[str, Any] = json.loads(json.dumps(make(apply(convert, payload))))
    except Refused:
        return None
    return made
