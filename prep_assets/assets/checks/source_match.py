"""`source_match`: what the lines of a JSONL store say is what their rows say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from prep_assets.assets.checks.lines_again import LineByNumber, Wanted
from prep_assets.assets.checks.second_source import Second
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
from prep_assets.proofs.lines_match import Line, check_lines
from prep_assets.proofs.plain_reading import pair_lines, plain_contrast, plain_pair, plain_prompt
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast, Pair, Prompt
from prep_assets.schemas.arithmetic import SEED, arithmetic_rows
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.lines import Lines, open_lines

Make = Callable[[Any], Mapping[str, Any]]
"""The line of an example."""
Whole = Callable[[Sequence[Mapping[str, Any]], Domain], Sequence[Mapping[str, Any] | None]]
"""The lines of some rows, read in the most obvious way; `None` where it takes the schema to say."""
ONE_IN = 64
LINES, BYTES = 64, 1 << 18
"""Lines that are looked at together, and about how many bytes of them."""
SIDES = ("prompt", "chosen", "rejected")
Plain = Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, str] | None]


def source_match(matched: Callable[[Store], Iterator[Line]], store: Store) -> Verdict:
    """Compare every line of a store with its row."""
    stored = sum(len(open_lines(store.directory, path.stem)) for path in store.directory.glob("*.jsonl"))
    return check_lines(matched(store), stored=stored)


def matched_pairs(store: Store) -> Iterator[Line]:
    """Each line of a store of preferences with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Preference))

    def whole(payloads: Sequence[Mapping[str, Any]], domain: Domain) -> Sequence[Mapping[str, Any] | None]:
        if domain.weigh is not None or any("." in path or path in SIDES for path in domain.ignore):
            return _unread(payloads, domain)
        ignored = set(domain.ignore)
        rows = [{key: row[key] for key in row if key not in ignored} for row in payloads] if ignored else payloads
        return pair_lines(rows, domain.schema_name, domain.options, form, reasoning.strings)

    return _match(store, Pair, lambda example: preference_row(reasoning.read(example), form), plain_pair, whole)


def matched_prompts(store: Store) -> Iterator[Line]:
    """Each line of a store of prompts with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Rl))
    return _match(store, Prompt, lambda example: prompt_row(prompt_of(reasoning.read(example)), form), plain_prompt)


def matched_contrasts(store: Store) -> Iterator[Line]:
    """Each line of a contrastive store with what its row gives."""
    return _match(store, Contrast, contrast_row, plain_contrast)


def matched_questions(store: Store) -> Iterator[Line]:
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


def _unread(payloads: Sequence[Mapping[str, Any]], domain: Domain) -> Sequence[None]:
    return [None] * len(payloads)


def _match(store: Store, gives: type, make: Make, plain: Plain, whole: Whole = _unread) -> Iterator[Line]:
    files = [open_lines(store.directory, path.stem) for path in sorted(store.directory.glob("*.jsonl"))]
    return chain.from_iterable(_lines_of(store, lines, gives, make, plain, whole) for lines in files)


def _lines_of(store: Store, lines: Lines, gives: type, make: Make, plain: Plain, whole: Whole) -> Iterator[Line]:
    """Each line of a file, in the order of the sources, with what its row gives: by a second reading where that says all of it, by the schema of one
    in `ONE_IN` of these, and of all others."""
    at_line = LineByNumber(lines)
    for number, name in enumerate(lines.sources):
        mine = lines.of(number)
        if not len(mine):
            continue
        second = Second.of(store, name)
        names, domain, convert = second.names, second.domain, converter(second.domain, gives)
        for file, block in _blocks(second, Wanted(at(lines.places, mine), mine), at_line):
            numbers, rows, payloads = zip(*block, strict=True)
            for row, payload, stored, said in zip(rows, payloads, at_line.some(numbers), whole(payloads, domain), strict=True):
                made = said if said is not None and row % ONE_IN else _made(convert, payload, make)
                read = plain(payload, domain.schema_name, domain.options) if made is not None else None
                yield Line(f"{name}/{names[file]}:{row}", stored, made, read)


def _blocks(second: Second, wanted: Wanted, at_line: LineByNumber) -> Iterator[tuple[int, list[tuple[int, int, Mapping[str, Any]]]]]:
    """Files, and some of their rows that lines are made of: the number of the line, the number of the row, and its fields."""
    for file, _, rows in second.rows():
        block, size = list[tuple[int, int, Mapping[str, Any]]](), 0
        for row, payload in rows:
            line = wanted.take(file << 40 | row)
            if line is not None and payload is not None:
                block.append((line, row, payload))
                size += at_line.length(line)
                if len(block) == LINES or size >= BYTES:
                    yield file, block
                    block, size = [], 0
        if block:
            yield file, block


def _made(convert: Convert, payload: Mapping[str, Any], make: Make) -> Mapping[str, Any] | None:
    """A line as JSON gives it back; `None` where there is none."""
    try:
        made: Mapping[str, Any] = json.loads(json.dumps(make(apply(convert, payload))))
    except Refused:
        return None
    return made
