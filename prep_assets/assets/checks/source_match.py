"""`source_match`: what the lines of a JSONL store say is what their rows say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

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
from prep_assets.proofs.lines_match import Line, check_lines
from prep_assets.proofs.plain_reading import pair_lines, plain_contrast, plain_pair, plain_prompt
from prep_assets.proofs.selection import Rules, Selected, select
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
SIDES = ("prompt", "chosen", "rejected")
Given = Iterable[Selected] | None
"""The rows of the one domain of a store, where somebody reads them already."""
Plain = Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, str] | None]


def source_match(matched: Callable[[Store, Given], Iterator[Line]], store: Store) -> Verdict:
    """Compare every line of a store with its row. Where `selection` is asked for as well, both come of one reading of the sources; what is not sound by
    that is looked at file by file."""
    stored = sum(len(open_lines(store.directory, path.stem)) for path in store.directory.glob("*.jsonl"))
    # whatever stops the shared reading is met and told again by the one below, which reads for itself
    with suppress(Exception), rows_beside_selection(store) as given:
        if given is not None and (verdict := check_lines(matched(store, given), stored=stored)).passed:
            return verdict
    return check_lines(matched(store, None), stored=stored)


def matched_pairs(store: Store, given: Given = None) -> Iterator[Line]:
    """Each line of a store of preferences with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Preference))

    def whole(payloads: Sequence[Mapping[str, Any]], domain: Domain) -> Sequence[Mapping[str, Any] | None]:
        if domain.weigh is not None or any("." in path or path in SIDES for path in domain.ignore):
            return _unread(payloads, domain)
        ignored = set(domain.ignore)
        rows = [{key: row[key] for key in row if key not in ignored} for row in payloads] if ignored else payloads
        return pair_lines(rows, domain.schema_name, domain.options, form, reasoning.strings)

    return _match(store, given, Pair, lambda example: preference_row(reasoning.read(example), form), plain_pair, whole)


def matched_prompts(store: Store, given: Given = None) -> Iterator[Line]:
    """Each line of a store of prompts with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Rl))
    return _match(store, given, Prompt, lambda example: prompt_row(prompt_of(reasoning.read(example)), form), plain_prompt)


def matched_contrasts(store: Store, given: Given = None) -> Iterator[Line]:
    """Each line of a contrastive store with what its row gives."""
    return _match(store, given, Contrast, contrast_row, plain_contrast)


def matched_questions(store: Store, _: Given = None) -> Iterator[Line]:
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


def _match(store: Store, given: Given, gives: type, make: Make, plain: Plain, whole: Whole = _unread) -> Iterator[Line]:
    files = [open_lines(store.directory, path.stem) for path in sorted(store.directory.glob("*.jsonl"))]
    if given is not None and all(list(lines.sources) == list(store.domains) for lines in files):
        return _lines_of(store, files, given, gives, make, plain, whole)
    return chain.from_iterable(_lines_of(store, [lines], None, gives, make, plain, whole) for lines in files)


def _lines_of(store: Store, files: Sequence[Lines], given: Given, gives: type, make: Make, plain: Plain, whole: Whole) -> Iterator[Line]:
    """Each line of some files, in the order of the sources, with what its row gives: by a second reading where that says all of it, by the schema of
    one in `ONE_IN` of these, and of all others."""
    by_number = [LineByNumber(lines) for lines in files]
    for number, name in enumerate(files[0].sources if files else ()):
        mine = [lines.of(number) for lines in files]
        wanted = [(Wanted(at(lines.places, own), own), each) for lines, each, own in zip(files, by_number, mine, strict=True) if len(own)]
        if not wanted:
            continue
        second = Second.of(store, name)
        names, domain, convert = second.names, second.domain, converter(second.domain, gives)
        for block in select(second.rows(), Rules(deduplicate=False)) if given is None else given:
            for own, at_line in wanted:
                found = [
                    (line, row, payload)
                    for row, payload in zip(block.rows, block.payloads, strict=True)
                    if (line := own.take(block.file << 40 | row)) is not None and payload is not None
                ]
                objects, said = at_line.some([line for line, *_ in found]), whole([payload for *_, payload in found], domain)
                for (_, row, payload), stored, whole_line in zip(found, objects, said, strict=True):
                    made = whole_line if whole_line is not None and row % ONE_IN else _made(convert, payload, make)
                    read = plain(payload, domain.schema_name, domain.options) if made is not None else None
                    yield Line(f"{name}/{names[block.file]}:{row}", stored, made, read)


def _made(convert: Convert, payload: Mapping[str, Any], make: Make) -> Mapping[str, Any] | None:
    """A line as JSON gives it back; `None` where there is none."""
    try:
        made: Mapping[str, Any] = json.loads(json.dumps(make(apply(convert, payload))))
    except Refused:
        return None
    return made
