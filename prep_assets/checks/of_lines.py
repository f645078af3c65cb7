"""Checks of JSONL stores against their rows, and of merged stores against the stores of the domains."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_stores import Derivation, Reader, together
from prep_assets.checks.sources_again import LineByNumber, LinesOfRows, Rows, Second
from prep_assets.config.family import Domain
from prep_assets.config.models import Arithmetic, Preference, Rl
from prep_assets.errors import Refused, StoreError
from prep_assets.pipeline.asset import Check, FromParts, Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.groups import splits
from prep_assets.pipeline.lines import contrast_row, form_of, preference_row
from prep_assets.pipeline.pairs import prompt_of, prompt_row
from prep_assets.pipeline.sources import unrendered_reasoning
from prep_assets.pipeline.tokens import by_domain
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.merged import Asked, MergedRows, check_merged_lines, check_merged_records
from prep_assets.proofs.plain_reading import pair_lines, plain_contrast, plain_pair, plain_prompt
from prep_assets.proofs.rows import Alike, Bools, Line, are_lines, check_lines, compared, lines_verdict
from prep_assets.proofs.second_reading import MessageRows, Messages
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast, Pair, Prompt
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.schemas.rewards import SEED, arithmetic_rows
from prep_assets.stores.arrays import Spool, at, joined, made, order, where
from prep_assets.stores.groups import PROMPTS, STREAMS, GroupStore, open_groups
from prep_assets.stores.lines import INDEX_FIELDS, Lines, open_lines
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets.text.chats import ByteSearch

# `source_match`: what the lines of a JSONL store say is what their rows say.

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


# Merged stores against the stores of the domains, each of which is proven by itself.

Column = npt.NDArray[np.int64]
_AT_ONCE = 4096
_ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant", "completion": "assistant"}


@dataclass(frozen=True, slots=True)
class MergedStream:
    """A stream of a merged store, with what it must hold; `source` is the domain of each record, where the stream says it."""

    name: str
    store: TokenStore
    parts: Sequence[TokenStore]
    asked: Asked
    source: npt.NDArray[np.int32] | None = None

    def verdict(self) -> Verdict:
        """What the proof says of it."""
        return check_merged_records(self.name, self.store, self.parts, self.asked, self.source)


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file of a merged store, with the lines of its domains; the seed of its order, `None` where it is that of the domains."""

    name: str
    merged: MergedRows
    parts: MergedRows
    seed: int | None


def merged_lines(store: Store) -> Verdict:
    """Every file of a merged store."""
    return together(check_merged_lines(each.name, each.merged, each.parts, each.seed) for each in merged_files(store))


def merged_records(store: Store) -> Verdict:
    """Every stream of a merged store."""
    return together(each.verdict() for each in merged_streams(store))


MERGED_LINES = Check(
    "merged",
    "Every line of every domain is here once, byte by byte, on its side of the split, in the order that is asked for.",
    merged_lines,
)
MERGED_RECORDS = Check(
    "merged",
    "Every record of every domain is here once, value by value, in order; each is proven in the store of its domain.",
    merged_records,
)


def parts_above(store: Store, asset: str) -> list[Published]:
    """The stores of the domains that a store was merged from.

    Raises:
        StoreError: one of them was built again since.
    """
    found = []
    for name in store.domains:
        part = store.above(asset, name)
        if part.manifest.content_hash != store.recipe["domains"][name]:
            raise StoreError(f"{asset}[{name}] was built again since. Merge it again: {build_command(store.asset.name)}")
        found.append(part)
    return found


def merged_files(store: Store) -> Iterator[MergedFile]:
    """The JSONL files of a merged store."""
    parts = parts_above(store, store.asset.parts)
    for file in store.asset.streams:
        having = [(number, open_lines(part.directory, file)) for number, part in enumerate(parts) if _has(part, file)]
        if not having and not (store.directory / f"{file}.jsonl").exists():
            continue
        merged = open_lines(store.directory, file)
        _check_sources(store, merged.sources)
        origin = _origins(having)
        seed = store.recipe["seed"] if store.recipe.get("shuffle") and not file.endswith("_test") else None
        of_messages = any(not isinstance(row["prompt"], str) for row in merged)
        offered = (line for _, lines in having for line in _lines(lines, of_messages))
        yield MergedFile(file, MergedRows(_origins([(None, merged)]), merged.written()), MergedRows(origin, offered), seed)


def _has(part: Published, file: str) -> bool:
    return (part.directory / f"{file}.jsonl").is_file()


def _origins(having: Sequence[tuple[int | None, Lines]]) -> npt.NDArray[np.int64]:
    """int64[n, 3], domain, file and row of each line of some files, end to end; of the number of a domain, or as the index says."""
    spool = Spool(np.int64)
    for number, lines in having:
        for first in range(0, len(lines), _AT_ONCE):
            source, file, row = (lines.index[column][first : first + _AT_ONCE] for column in INDEX_FIELDS)
            spool.append(np.stack([source if number is None else np.full(len(row), number), file, row], axis=1))
    return spool.array().reshape(-1, 3)


def _lines(lines: Lines, of_messages: bool) -> Iterator[bytes]:
    """Lines as the merged file must have them: where it is of messages, strings are the only message of a user or an assistant."""
    for line in lines.written():
        row = json.loads(line) if of_messages else {}
        if isinstance(row.get("prompt"), str):
            row |= {key: [{"role": role, "content": row[key]}] for key, role in _ROLES.items() if key in row}
            yield json.dumps(row).encode() + b"\n"
        else:
            yield line


def merged_streams(store: Store) -> Iterator[MergedStream]:
    """The token streams of a merged store."""
    source = store.asset.source
    assert isinstance(source, FromParts)
    if store.holds(GroupStore):
        yield from _merged_groups(store)
        return
    for name, stream in store.streams().items():
        if name not in source.lines:
            whole = open_tokens(store.above(source.assets[1]).directory, name)
            yield MergedStream(name, stream, [whole], _end_to_end([whole]))
            continue
        parts = zip(store.domains, parts_above(store, source.assets[0]), strict=True)
        tokens = {domain: open_tokens(part.directory, name) for domain, part in parts if (part.directory / f"{name}.index").is_dir()}
        yield MergedStream(name, stream, list(tokens.values()), _in_order_of(store, *source.lines[name], tokens))


def _merged_groups(store: Store) -> Iterator[MergedStream]:
    """The three streams of the groups of each split, domain by domain."""
    parts = [splits(part.directory) for part in parts_above(store, store.asset.parts)]
    for split, folder in splits(store.directory).items():
        merged = open_groups(folder)
        _check_sources(store, merged.sources)
        having = [(number, open_groups(found[split])) for number, found in enumerate(parts) if split in found]
        for name in STREAMS:
            streams: list[TokenStore] = [getattr(groups, name) for _, groups in having]
            asked, numbers = _end_to_end(streams), np.array([number for number, _ in having], np.int64)
            source = np.searchsorted(numbers, merged.source).astype(np.int32) if name == PROMPTS else None
            yield MergedStream(f"{split}/{name}", getattr(merged, name), streams, asked, source)


def _end_to_end(streams: Sequence[TokenStore]) -> Asked:
    """All records of several streams, one after another."""
    part = joined([np.broadcast_to(number, len(each)) for number, each in enumerate(streams)])
    record = joined([_counted(len(each)) for each in streams])
    return Asked(part, record, joined([each.file for each in streams]), joined([each.row for each in streams]))


def _counted(count: int) -> npt.NDArray[np.int64]:
    return made(count, lambda part: np.arange(part.start, part.stop))


def _check_sources(store: Store, sources: Sequence[str]) -> None:
    if list(sources) != list(store.domains):
        raise StoreError(f"its index has the domains {', '.join(sources)}, and it is merged from {', '.join(store.domains)}")


def _in_order_of(store: Store, asset: str, file: str, tokens: Mapping[str, TokenStore]) -> Asked:
    """The records of the tokens of all domains, in the order of the merged lines that they are of."""
    merged, parts, records, lines = open_lines(store.above(asset).directory, file), list[Column](), list[Column](), list[Column]()
    for number, (name, stream) in enumerate(tokens.items()):
        if not len(stream):
            continue
        places = merged.of(store.domains.index(name))
        of_record = at(open_lines(store.above(by_domain(asset), name).directory, file).places, stream.row)
        record, there = _places_in(of_record, at(merged.places, places))
        records.append(where(there, record))
        lines.append(where(there, places))
        parts.append(np.broadcast_to(number, len(lines[-1])))
    line = joined(lines)
    ordered = order(line)
    return Asked(at(joined(parts), ordered), at(joined(records), ordered), np.broadcast_to(0, len(line)), at(line, ordered))


def _places_in(column: Column, wanted: Column) -> tuple[Column, npt.NDArray[np.bool_]]:
    """Of each that is wanted, where it stands in a column, and whether it does."""
    ordered = order(column)
    ascending = at(column, ordered)
    found = made(len(wanted), lambda part: ordered[np.minimum(np.searchsorted(ascending, wanted[part]), len(column) - 1)])
    return found, made(len(wanted), lambda part: column[found[part]] == wanted[part], bool)
