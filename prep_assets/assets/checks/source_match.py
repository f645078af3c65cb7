"""`source_match`: what the lines of a JSONL store say is what their rows say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
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
from prep_assets.proofs.plain_reading import pair_line, plain_contrast, plain_pair, plain_prompt
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast, Pair, Prompt
from prep_assets.schemas.arithmetic import SEED, arithmetic_rows
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.lines import Lines, open_lines

Make = Callable[[Any], Mapping[str, Any]]
"""The line of an example."""
Whole = Callable[[Mapping[str, Any], Domain], Mapping[str, Any] | None]
"""The line of a row, read in the most obvious way; `None` where it takes the schema to say."""
ONE_IN = 64
SIDES = ("prompt", "chosen", "rejected")
Plain = Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, str] | None]


def source_match(matched: Callable[[Store], Iterator[Line]], store: Store) -> Verdict:
    """Compare every line of a store with its row."""
    stored = sum(len(open_lines(store.directory, path.stem)) for path in store.directory.glob("*.jsonl"))
    return check_lines(matched(store), stored=stored)


def matched_pairs(store: Store) -> Iterator[Line]:
    """Each line of a store of preferences with what its row gives."""
    form, reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Preference))

    def whole(payload: Mapping[str, Any], domain: Domain) -> Mapping[str, Any] | None:
        if domain.weigh is not None or any("." in path or path in SIDES for path in domain.ignore):
            return None
        row = {key: value for key, value in payload.items() if key not in domain.ignore} if domain.ignore else payload
        return pair_line(row, domain.schema_name, domain.options, form, reasoning.strings)

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


def _match(store: Store, gives: type, make: Make, plain: Plain, whole: Whole = lambda payload, domain: None) -> Iterator[Line]:
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
        wanted = Wanted(at(lines.places, mine), mine)
        second = Second.of(store, name)
        convert = converter(second.domain, gives)
        for file, _, rows in second.rows():
            for row, payload in rows:
                line = wanted.take(file << 40 | row)
                if line is not None and payload is not None:
                    made = whole(payload, second.domain) if row % ONE_IN else None
                    made = _made(convert, payload, make) if made is None else made
                    read = plain(payload, second.domain.schema_name, second.domain.options) if made is not None else None
                    yield Line(f"{name}/{second.names[file]}:{row}", at_line(line), made, read)


def _made(convert: Convert, payload: Mapping[str, Any], make: Make) -> Mapping[str, Any] | None:
    """A line as JSON gives it back; `None` where there is none."""
    try:
        made: Mapping[str, Any] = json.loads(json.dumps(make(apply(convert, payload))))
    except Refused:
        return None
    return made
