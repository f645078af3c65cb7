"""`source_match`: what the lines of a JSONL store say is what their rows say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, zip_longest
from typing import Any, ClassVar

import numpy as np

from prep_assets.assets.checks.lines_again import LineByNumber, LinesOfRows
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.stored_rows import Rows
from prep_assets.assets.checks.verification import Derivation, Reader
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.reasoning import unrendered_reasoning
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.contrast_rows import contrast_row
from prep_assets.assets.writing.message_rows import form_of
from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.assets.writing.prompts import prompt_of, prompt_row
from prep_assets.config.models import Arithmetic, Domain, Preference, Rl
from prep_assets.errors import Refused, StoreError
from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.lines_match import Alike, Line, check_lines, compared, lines_verdict
from prep_assets.proofs.message_rows import MessageRows, Messages
from prep_assets.proofs.pair_columns import Bools, are_lines
from prep_assets.proofs.plain_reading import pair_lines, plain_contrast, plain_pair, plain_prompt
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast, Pair, Prompt
from prep_assets.schemas.arithmetic import SEED, arithmetic_rows
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.lines import Lines, open_lines

ONE_IN = 64
SIDES = ("prompt", "chosen", "rejected")
Row = Mapping[str, Any]
Payloads = Sequence[Row]
Same = Callable[[MessageRows, MessageRows, Domain], Bools]


class OfLines(Derivation):
    """A check of the lines of a JSONL store of one domain, file by file."""

    def readers(self) -> Sequence[Reader]:
        """One for each file."""
        return [partial(self.read, lines) for lines in self.files()]

    def files(self) -> list[Lines]:
        """The files of the store."""
        files = [open_lines(self.store.directory, path.stem) for path in sorted(self.store.directory.glob("*.jsonl"))]
        for lines in files:
            if list(lines.sources) != [self.store.partition]:
                raise StoreError(f"{lines.path}: its index has the domains {', '.join(lines.sources)}, it is of {self.store.partition}")
        return files

    def read(self, lines: Lines, rows: Iterator[Rows]) -> Any:
        """What is found of a file."""
        raise NotImplementedError


class LinesMatch(OfLines):
    """What the lines of a JSONL store must say; a kind says how its rows are read again.

    Attributes:
        gives: what their schema makes of them.
    """

    names = ("source_match",)
    gives: ClassVar[type]

    def make(self, example: Any) -> Mapping[str, Any]:
        """The line of an example."""
        raise NotImplementedError

    def plain(self, row: Row, schema: str, options: Mapping[str, Any]) -> dict[str, str] | None:
        """What a row says, text by text, see `Line`."""
        raise NotImplementedError

    def whole(self, payloads: Payloads, domain: Domain) -> Sequence[Mapping[str, Any] | None]:
        """The lines of some rows, read in the most obvious way; `None` where it takes the schema to say."""
        return [None] * len(payloads)

    def same(self, rows: MessageRows, lines: MessageRows, domain: Domain) -> Bools:
        """Which rows in columns are lines in columns for certain."""
        return np.zeros(len(rows), bool)

    def read(self, lines: Lines, rows: Iterator[Rows]) -> Any:
        """What was found of a file."""
        return compared(self.lines(lines, rows))

    def verdicts(self, found: Sequence[Any]) -> Mapping[str, Verdict]:
        """The verdict on all files."""
        return {"source_match": lines_verdict(found, stored=sum(map(len, self.files())))}

    def lines(self, lines: Lines, rows: Iterable[Rows]) -> Iterator[Line | Alike]:
        """Each line of a file, in the order of the sources, with what its row gives: by a second reading where that says all of it, by the schema of
        one in `ONE_IN` of these, and of all others. Rows in columns that are lines as they stand are compared with theirs all at once."""
        of_rows = LinesOfRows(lines)
        if not len(of_rows):
            return
        second, at_line = Second.of(self.store, self.store.partition), LineByNumber(lines)
        names, domain, convert = second.names, second.domain, converter(second.domain, self.gives)
        for block in rows:
            found = of_rows.of(block)
            if isinstance(block.payloads, MessageRows):
                alike = _alike(block.payloads, found, at_line, domain, self.same)
                yield Alike(sum(alike), not isinstance(block.payloads.lists[0], Messages))
                found = [each for each, is_alike in zip(found, alike, strict=True) if not is_alike]
            payloads = [block.payloads[which] for _, which in found]
            objects, said = at_line.some([line for line, _ in found]), self.whole(payloads, domain)
            for (_, which), payload, stored, whole in zip(found, payloads, objects, said, strict=True):
                row = block.rows[which]
                made = whole if whole is not None and row % ONE_IN else _made(convert, payload, self.make)
                plain = self.plain(payload, domain.schema_name, domain.options) if made is not None else None
                yield Line(f"{self.store.partition}/{names[block.file]}:{row}", stored, made, plain)

    def first_lines(self, most: int) -> list[Line]:
        """The first lines of the store that are compared one by one."""
        matched = (line for lines in self.files() for line in self.lines(lines, self.source_rows()))
        return list(islice((line for line in matched if isinstance(line, Line)), most))


class PairsMatch(LinesMatch):
    """Lines of preferences."""

    gives = Pair

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._form, self._reasoning = form_of(store.directory), unrendered_reasoning(store.workspace.family(Preference))
        self._searched = ByteSearch(self._reasoning.strings)

    def make(self, example: Any) -> Mapping[str, Any]:
        """A pair, or an answer with a label."""
        return preference_row(self._reasoning.read(example), self._form)

    def plain(self, row: Row, schema: str, options: Mapping[str, Any]) -> dict[str, str] | None:
        """See `plain_pair`."""
        return plain_pair(row, schema, options)

    def whole(self, payloads: Payloads, domain: Domain) -> Sequence[Mapping[str, Any] | None]:
        """As the schema `preference` and its like have it."""
        if domain.weigh is not None or domain.speaker_names != "keep" or any("." in path or path in SIDES for path in domain.ignore):
            return super().whole(payloads, domain)
        ignored = set(domain.ignore)
        rows = [{key: row[key] for key in row if key not in ignored} for row in payloads] if ignored else payloads
        return pair_lines(rows, domain.schema_name, domain.options, self._form, self._reasoning.strings)

    def same(self, rows: MessageRows, lines: MessageRows, domain: Domain) -> Bools:
        """Where the schema changes nothing."""
        in_form = isinstance(lines.lists[0], Messages) is (self._form == "messages")
        plain = in_form and domain.schema_name == "preference" and not domain.options and domain.weigh is None and not domain.ignore
        return are_lines(rows, lines, self._searched) if plain else super().same(rows, lines, domain)


class PromptsMatch(LinesMatch):
    """Lines of prompts."""

    gives = Prompt

    def plain(self, row: Row, schema: str, options: Mapping[str, Any]) -> dict[str, str] | None:
        """See `plain_prompt`."""
        return plain_prompt(row, schema, options)

    def make(self, example: Any) -> Mapping[str, Any]:
        """A prompt with its gold."""
        reasoning = unrendered_reasoning(self.store.workspace.family(Rl))
        return prompt_row(prompt_of(reasoning.read(example)), form_of(self.store.directory))


class ContrastsMatch(LinesMatch):
    """Lines of contrastive stores."""

    gives = Contrast

    def plain(self, row: Row, schema: str, options: Mapping[str, Any]) -> dict[str, str] | None:
        """See `plain_contrast`."""
        return plain_contrast(row, schema, options)

    def make(self, example: Any) -> Row:
        """See `contrast_row`."""
        return contrast_row(example)


def questions_match(store: Store) -> Verdict:
    """Compare generated questions."""
    return check_lines(matched_questions(store), stored=len(open_lines(store.directory, store.asset.name)))


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


def _alike(
    rows: MessageRows,
    found: Sequence[tuple[int, int]],
    at_line: LineByNumber,
    domain: Domain,
    same: Callable[[MessageRows, MessageRows, Domain], Bools],
) -> list[bool]:
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
