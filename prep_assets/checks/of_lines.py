"""Checks of JSONL stores against their rows, and of merged stores against the stores of the domains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, starmap, zip_longest
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.checks.relations import Compares, Derivation, Judge, is_small
from prep_assets.checks.selection import line_of
from prep_assets.checks.sources_again import StoredRows, StoredStream, domain_source, stored_rows, streams_of
from prep_assets.config.models import Preference, Rl
from prep_assets.errors import Refused, StoreError
from prep_assets.pipeline.asset import Check, FromParts, Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.groups import splits
from prep_assets.pipeline.lines import form_of, prompt_row
from prep_assets.pipeline.sources import unrendered_reasoning
from prep_assets.pipeline.tokens import by_domain
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.merged import Asked, MergedRows, check_merged_lines, check_merged_records
from prep_assets.proofs.plain_reading import RANKINGS, pair_line, plain_texts, questions, ranking_lines
from prep_assets.proofs.rows import (
    CONVERTED,
    Converted,
    Gold,
    Line,
    as_number,
    check_golds,
    check_lines,
    fits_strings,
    is_told,
    lines_verdict,
    second_reading,
    stands_in,
    worked_out,
)
from prep_assets.proofs.verdict import Rule, Tally, Verdict, Worst, combined
from prep_assets.samples import Prompt, Row
from prep_assets.schemas.reader import apply
from prep_assets.stores.arrays import Spool, argsort, compress, concatenate, fill_column, take
from prep_assets.stores.groups import PROMPTS, STREAMS, open_groups
from prep_assets.stores.lines import INDEX_FIELDS, Lines, open_lines
from prep_assets.stores.table import GROUPS
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.version_folders import Published

# Lines of a JSONL store of one domain, joined with their source rows.

ONE_IN = 64
"""One in so many lines that a second reading gives is also converted by the schema; so are the first, and all of a small store."""


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
            if list(file.held.sources) != [store.partition]:
                raise StoreError(f"{file.held.path}: its index has the domains {', '.join(file.held.sources)}, it is of {store.partition}")

    def judges(self) -> Sequence[tuple[StoredStream | None, Judge]]:
        """One judge per file."""
        return [(file, Compares(self.pairs(file), Tally(self.rule))) for file in self.files]

    def pairs(self, file: StoredStream) -> Callable[[StoredRows], Iterator[Any]]:
        """Return what gives what is compared of each line of a file, in source order."""
        raise NotImplementedError

    def with_rows(self, objects: Iterator[Row], rows: StoredRows) -> Iterator[tuple[str, int, Row, Row]]:
        """Yield each line, in source order: the id of its record, the number and the fields of its row, and its object. A row may give several labelled
        answers."""
        for number, (_, identity, payload) in zip(rows.rows.tolist(), rows.records(), strict=True):
            yield f"{self.source.name}/{identity}", number, payload, next(objects)


class LinesMatch(OfLines):
    """Compares the lines of a JSONL store with their rows: `source_match`."""

    rule = check_lines

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._line, self._form, self._is_small = line_of(store), form_of(store.directory), is_small(store)

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The verdict on all files; with form ``auto`` lines are messages where one of them is more than strings hold."""
        verdict = lines_verdict(results, stored=sum(map(len, self.files)))
        refused = self.store.manifest.counts.get("refused", {})  # a row that was rejected for another one may have needed them
        is_open = getattr(self.store.family, "form", "") == "auto" and not any("/contradicting_" in reason for reason in refused)
        if self._form == "messages" and is_open and all(fits_strings(line) for file in self.files for line in file.held):
            detail = "all lines are messages, and strings would hold each of them"
            verdict = Verdict(False, detail, verdict.numbers, Worst("form", detail)) if verdict.passed else verdict
        return {"source_match": verdict}

    def texts(self, row: Row) -> Mapping[str, str] | None:
        """Return the texts of a plain row by column of its line, in a second reading; `None` for any other."""
        return plain_texts(row, self.source.domain.schema_name, self.source.domain.options)

    def whole(self, row: Row, texts: Mapping[str, str] | None) -> Row | list[Row] | None:
        """Return the line of a row from its second reading, or its lines; `None` where only the schema can convert it."""
        return None

    def pairs(self, file: StoredStream) -> Callable[[StoredRows], Iterator[Line]]:
        """Return what gives each line of a file, in source order, with the line its row gives: by a second reading where that is enough, also by the schema for
        one in `ONE_IN` of these, and by the schema for all others."""
        also, objects = True, iter(file.held)

        def lines(rows: StoredRows) -> Iterator[Line]:
            nonlocal also
            for identity, own in groupby(self.with_rows(objects, rows), key=itemgetter(0)):
                _, numbers, payloads, stored = zip(*own, strict=True)
                texts = self.texts(payloads[0])
                whole = self.whole(payloads[0], texts)
                also = also or self._is_small or numbers[0] % ONE_IN == 0
                converted = self._convert_row(payloads[0]) if whole is None or also else whole
                texts, also = {} if texts is None and whole else texts, False
                if whole is not None and converted == (list(stored) if isinstance(converted, list) else stored[0]):
                    converted = whole
                for line, made in zip_longest(stored, converted if isinstance(converted, list) else [converted]):
                    yield Line(identity, line or {}, made, None if made is None else texts)

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


class PairsMatch(LinesMatch):
    """Checks lines of preferences."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        domain = self.source.domain
        self._reasoning, self._ignored = unrendered_reasoning(store.workspace.family(Preference)), {*domain.ignore}
        fields = domain.weigh is None and domain.speaker_names == "keep" and not any("." in path for path in domain.ignore)
        self._by_texts = fields and self._ignored.isdisjoint(("prompt", "chosen", "rejected"))

    def whole(self, row: Row, texts: Mapping[str, str] | None) -> Row | list[Row] | None:
        """For schemas like `preference`, and for rankings."""
        domain, tags = self.source.domain, self._reasoning.strings
        if not self._by_texts:
            return None
        row = {key: row[key] for key in row if key not in self._ignored} if self._ignored else row
        if domain.schema_name in RANKINGS:
            return ranking_lines(row, domain.schema_name, domain.options, self._form, tags)
        return None if texts is None else pair_line(row, texts, domain.schema_name, self._form, tags)


class Golds(OfLines):
    """Checks every gold against a second reading of its row."""

    rule = check_golds

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The verdict on all files."""
        return {"gold_answers": combined(results)}

    def pairs(self, file: StoredStream) -> Callable[[StoredRows], Iterator[Gold]]:
        """The gold of each line."""
        objects = iter(file.held)
        return lambda rows: (Gold(name, *self._second_gold(row, line)) for name, _, row, line in self.with_rows(objects, rows))

    def _second_gold(self, payload: Row, content: Row) -> tuple[str, object, Fraction | Converted | None]:
        prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
        gold = content["gold"] if content.get("verifier", "number") == "number" else as_number(content["gold"])
        if "arguments" not in content or is_told(content["arguments"], payload):
            answers = [value for value in payload.values() if isinstance(value, str) and "####" in value]
            if answers:
                return prompt, gold, second_reading(answers[0])
            arithmetic = worked_out(prompt)
            if arithmetic is not None:
                return prompt, gold, arithmetic
            if stands_in(content["gold"], payload):
                return prompt, 1, Fraction(1)
        # the user's own schema computes it: the only check left is that it gives the same gold and arguments again
        try:
            example = apply(self.convert, payload)
        except Refused:
            return prompt, content["gold"], None
        made = prompt_row(example, "messages") if isinstance(example, Prompt) else {}
        same = all(made.get(name) == content.get(name) for name in ("gold", "arguments"))
        return prompt, content["gold"], CONVERTED if same else None


# The generated arithmetic curriculum.


def arithmetic_golds(store: Store) -> Verdict:
    """Check every gold against the value of its question."""
    rows = enumerate(store.lines_of(store.asset.name))
    return check_golds(Gold(f"line {number + 1}", row["prompt"], row["gold"], worked_out(row["prompt"])) for number, row in rows)


def questions_match(store: Store) -> Verdict:
    """Check generated questions against their seed."""
    return lines_verdict([check_lines(matched_questions(store))], stored=len(store.lines_of(store.asset.name)))


def matched_questions(store: Store) -> Iterator[Line]:
    """Yield the stored questions with those drawn again."""
    options = store.workspace.family(Rl).arithmetic
    drawn = questions(options.n, options.largest, options.seed, options.levels or ("seed",), unique=options.unique)
    for number, (stored, question) in enumerate(zip_longest(store.lines_of(store.asset.name), drawn), 1):
        if question is None:
            yield Line(f"line {number}", stored or {}, None, None)
            continue
        text, value, level = question
        made = {"prompt": text, "gold": float(value), **({} if options.levels is None else {"level": level})}
        yield Line(f"line {number}", stored or {}, made, {"prompt": text})


# Merged stores against the stores of their domains, each of which has its own proofs.

_AT_ONCE = 4096
_ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant", "completion": "assistant"}


@dataclass(frozen=True, slots=True)
class MergedStream:
    """A stream of a merged store, with what it must hold; `source`: the domain of each record, where the stream stores it."""

    name: str
    store: TokenStore
    parts: Sequence[TokenStore]
    asked: Asked
    source: npt.NDArray[np.int32] | None = None

    def verdict_of(self, records: TokenStore) -> Verdict:
        """Return the verdict on other records in the place of its own."""
        return check_merged_records(self.name, records, self.parts, self.asked)

    def verdict(self) -> Verdict:
        """Return the verdict on the stream."""
        return check_merged_records(self.name, self.store, self.parts, self.asked, self.source)


MERGED_LINES = Check(
    "merged",
    "Every line of every domain is here once, byte by byte, on its side of the split, in the order that is asked for.",
    lambda store: combined(starmap(check_merged_lines, merged_files(store))),
)
MERGED_RECORDS = Check(
    "merged",
    "Every record of every domain is here once, value by value, in order; each is proven in the store of its domain.",
    lambda store: combined(stream.verdict() for stream in merged_streams(store)),
)


def parts_above(store: Store, asset: str) -> list[Published]:
    """Return the stores of the domains that a store was merged from.

    Raises:
        StoreError: one of them was rebuilt since.
    """
    parts = []
    for name in store.domains:
        part = store.above(asset, name)
        if part.manifest.content_hash != store.recipe["domains"][name]:
            raise StoreError(f"{asset}[{name}] was built again since. Merge it again: {build_command(store.asset.name)}")
        parts.append(part)
    return parts


def merged_files(store: Store) -> Iterator[tuple[str, MergedRows, MergedRows, int | None]]:
    """Yield the JSONL files of a merged store as `check_merged_lines` takes them: name, lines, the lines of its domains, and seed."""
    parts = parts_above(store, store.asset.parts)
    for file in store.asset.streams:
        numbered = [(number, open_lines(part.directory, file)) for number, part in enumerate(parts) if _has_file(part, file)]
        if not numbered and file not in store.lines():
            continue
        merged = store.lines_of(file)
        _check_sources(store, merged.sources)
        origin = _origins(numbered)
        seed = store.recipe["seed"] if store.recipe.get("shuffle") and not file.endswith("_test") else None
        of_messages = any(not isinstance(row["prompt"], str) for row in merged)
        offered = (line for _, lines in numbered for line in _lines(lines, of_messages))
        yield file, MergedRows(_origins([(None, merged)]), merged.written()), MergedRows(origin, offered), seed


def _has_file(part: Published, file: str) -> bool:
    return (part.directory / f"{file}.jsonl").is_file()


def _origins(numbered: Sequence[tuple[int | None, Lines]]) -> npt.NDArray[np.int64]:
    """int64[n, 3]: domain, file and row of each line of the files, end to end. The domain is the given number, or `None`: as in the index."""
    spool = Spool(np.int64)
    for number, lines in numbered:
        for first in range(0, len(lines), _AT_ONCE):
            source, file, row = (lines.index[column][first : first + _AT_ONCE] for column in INDEX_FIELDS)
            spool.append(np.stack([source if number is None else np.full(len(row), number), file, row], axis=1))
    return spool.array().reshape(-1, 3)


def _lines(lines: Lines, of_messages: bool) -> Iterator[bytes]:
    """Yield lines in the form of the merged file: in a file of messages a string becomes a single message."""
    for line in lines.written():
        row = json.loads(line) if of_messages else {}
        if isinstance(row.get("prompt"), str):
            row |= {key: [{"role": role, "content": row[key]}] for key, role in _ROLES.items() if key in row}
            if "responses" in row:
                row["responses"] = [[{"role": "assistant", "content": answer}] for answer in row["responses"]]
            yield json.dumps(row).encode() + b"\n"
        else:
            yield line


def merged_streams(store: Store) -> Iterator[MergedStream]:
    """Yield the token streams of a merged store."""
    source = store.asset.source
    assert isinstance(source, FromParts)
    if store.holds(GROUPS):
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
    """Yield the three group streams of each split, domain by domain."""
    parts = [splits(part.directory) for part in parts_above(store, store.asset.parts)]
    for split, folder in splits(store.directory).items():
        merged = open_groups(folder)
        _check_sources(store, merged.sources)
        numbered = [(number, open_groups(folders[split])) for number, folders in enumerate(parts) if split in folders]
        for name in STREAMS:
            streams: list[TokenStore] = [getattr(groups, name) for _, groups in numbered]
            asked, numbers = _end_to_end(streams), np.array([number for number, _ in numbered], np.int64)
            source = np.searchsorted(numbers, merged.source).astype(np.int32) if name == PROMPTS else None
            yield MergedStream(f"{split}/{name}", getattr(merged, name), streams, asked, source)


def _end_to_end(streams: Sequence[TokenStore]) -> Asked:
    """Return all records of several streams, end to end."""
    part = concatenate([np.broadcast_to(number, len(stream)) for number, stream in enumerate(streams)])
    record = concatenate([_counted(len(stream)) for stream in streams])
    return Asked(part, record, concatenate([stream.file for stream in streams]), concatenate([stream.row for stream in streams]))


def _counted(count: int) -> npt.NDArray[np.int64]:
    return fill_column(count, lambda part: np.arange(part.start, part.stop))


def _check_sources(store: Store, sources: Sequence[str]) -> None:
    if list(sources) != list(store.domains):
        raise StoreError(f"its index has the domains {', '.join(sources)}, and it is merged from {', '.join(store.domains)}")


def _in_order_of(store: Store, asset: str, file: str, tokens: Mapping[str, TokenStore]) -> Asked:
    """Return the records of all domains in the order of their merged lines."""
    merged, parts, records, lines = open_lines(store.above(asset).directory, file), list[Ints](), list[Ints](), list[Ints]()
    for number, (name, stream) in enumerate(tokens.items()):
        if not len(stream):
            continue
        merged_lines = merged.of(store.domains.index(name))
        of_record = take(open_lines(store.above(by_domain(asset), name).directory, file).places, stream.row)
        record, is_stored = _places_in(of_record, take(merged.places, merged_lines))
        records.append(compress(is_stored, record))
        lines.append(compress(is_stored, merged_lines))
        parts.append(np.broadcast_to(number, len(lines[-1])))
    line = concatenate(lines)
    ordered = argsort(line)
    return Asked(take(concatenate(parts), ordered), take(concatenate(records), ordered), np.broadcast_to(0, len(line)), take(line, ordered))


def _places_in(column: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the index of each wanted value in a column, and whether it is there."""
    ordered = argsort(column)
    ascending = take(column, ordered)
    indices = fill_column(len(wanted), lambda part: ordered[np.minimum(np.searchsorted(ascending, wanted[part]), len(column) - 1)])
    return indices, fill_column(len(wanted), lambda part: column[indices[part]] == wanted[part], bool)
