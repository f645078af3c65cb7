"""`selection`: every row of the sources is stored where it belongs, or rejected for a reason that holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Array
from prep_assets.checks.of_stores import refusals_of
from prep_assets.checks.rejections import kept_rows, rulings
from prep_assets.checks.relations import SMALL, Derivation, Judge, derived, is_small, require
from prep_assets.checks.sources_again import DomainSource, by_fields, domain_source, held_out, prompt_of_line, source_of, streams_of
from prep_assets.config.models import Pretrain
from prep_assets.data.quarantine import Quarantine, Refusal
from prep_assets.errors import Refused
from prep_assets.pipeline.asset import FromLines, FromRows, LineEncoder, Reasons, Store
from prep_assets.pipeline.conversations import conversations_of, encode_of
from prep_assets.pipeline.documents import MaskedDocuments, document_text
from prep_assets.pipeline.examples import Item, Reading, Source, converter
from prep_assets.pipeline.media import record_files
from prep_assets.pipeline.sources import domain_of
from prep_assets.proofs.accounting import Fields, Ledger, Refusals, Stored, payload_print, places
from prep_assets.proofs.sampled import Sampled
from prep_assets.proofs.selection import GOOD, Again, Believed, Rules, Selected, beliefs_hold, select
from prep_assets.proofs.verdict import Verdict, Worst, merged
from prep_assets.samples import Record
from prep_assets.schemas.reader import apply
from prep_assets.stores.arrays import Spool, compress, concatenate, equals, equals_previous, fill_column, stretches, take
from prep_assets.stores.groups import TEST
from prep_assets.text.documents import sentences_of


class SelectionResult(Struct, frozen=True):
    """The result of `selection` on a store, or on a part of one.

    Attributes:
        verdict: on where the rows are.
        found, unnamed: see `Fields`: rows per field that holds something, and passed-over fields that the manifest does not name.
        quarantine: number of quarantine lines of the whole store.
        digests, came: of a part, see `Believed`.
    """

    verdict: Verdict
    found: Counter[str]
    unnamed: set[str]
    quarantine: int
    digests: bytes = b""
    came: bytes = b""


def _compared(line: Refusal) -> tuple[str, str, int, int]:
    return line.id, f"{line.stage}/{line.reason}", payload_print(line.payload, line.payload_length), payload_print(line.detail)


class Selection(Derivation):
    """Derives where each source row of a store of one domain, or of a part of it, must be."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.origin, part, source = source_of(store), store.part, store.asset.source
        lines: Refusals = store.once("refusals", lambda: Refusals(map(_compared, refusals_of(store)), self.origin.names))
        refusals = lines if part is None else lines.within(part.begin, part.end)
        self._lines, self._believed = len(lines), None if part is None else Believed(refusals.duplicates())
        self._digests, self._came = Spool(np.uint64), Spool(bool)
        self._fields: Fields | None = None
        self.rules = Rules(deduplicate=False)
        fraction, content = 0.0, by_fields(store)
        if isinstance(source, FromRows):
            self.rules = store.once("rules", self._rules)
            content = store.once("content", lambda: source.content(store))
            again = store.once("again", lambda: refused_rows(store, source))
            proves, takes = store.once("proves", lambda: (rulings(store), kept_rows(store)))
            self._fields, fraction = self._passed_over(), store.family.of_some("test_fraction")
        else:
            assert isinstance(source, FromLines)
            again, proves, takes = refused_lines(source.encoder(store.workspace)), rulings(store), None
        seen = None if self._fields is None else self._fields.add
        self.ledger = Ledger(
            refusals, stored_of(store), self.origin.held_out, content, again, fraction, seen, proves, takes, Sampled(every=is_small(store))
        )

    def _rules(self) -> Rules:
        family = self.store.family
        return domain_source(self.store).rules(family.preprocessing.deduplicate, family.most_rows)

    def _passed_over(self) -> Fields:
        """Return a counter of the fields that the schema passes over; a row that it rejects has none."""
        source, store = domain_source(self.store), self.store
        reader = converter(source.domain, source.gives)

        def passed_over(row: Mapping[str, Any]) -> Set[str]:
            reader.account.counts.clear()
            with suppress(Refused):
                apply(reader, row)
            return set(reader.account.counts)

        claimed = store.manifest.counts.get("fields_passed_over", {}).get(store.partition, {})
        return Fields(store.partition, claimed, source.domain.ignore, passed_over, every=store.manifest.counts["read"] < SMALL)

    def blocks(self) -> Iterator[Selected]:
        """Yield the rows with their fates."""
        return select(self.origin.rows(self.store.part), self.rules, self._believed)

    def judges(self) -> Sequence[tuple[None, Judge]]:
        """It judges the rows of the sources itself."""
        return [(None, self)]

    def add(self, rows: Selected) -> None:
        """See `Judge`."""
        self.ledger.add(rows)

    def result(self) -> SelectionResult:
        """See `Judge`."""
        fields, believed = self._fields, self._believed
        counts, unnamed = (Counter[str](), set[str]()) if fields is None else (fields.found, fields.unnamed)
        digests, came = (b"", b"") if believed is None else (bytes(believed.digests), bytes(believed.came))
        return SelectionResult(self.ledger.verdict(), counts, unnamed, self._lines, digests, came)

    def verdicts(self, results: Sequence[SelectionResult]) -> Mapping[str, Verdict]:
        """The verdict on a whole store: where its rows are, and which fields its manifest says were passed over."""
        [judged] = results
        verdict, fields = judged.verdict, self._fields
        if verdict.passed and isinstance(self.origin, DomainSource) and self.rules.key is None:
            all_read = self.rules.limit is None
            rows = int(verdict.numbers["rows_read_again"]) if all_read else sum(1 for _, _, rows in self.origin.rows() for _ in rows)
            if rows != self.origin.rows_pinned:
                detail = f"the files have {rows:,} rows, and {self.origin.rows_pinned:,} where they were pinned"
                return {"selection": Verdict(False, detail, verdict.numbers, Worst("counts", detail))}
        if not verdict.passed or fields is None:
            return {"selection": verdict}
        fields.found, fields.unnamed = judged.found, judged.unnamed
        faults = fields.faults(self._good)
        failed = Verdict(False, "; ".join(faults), verdict.numbers, Worst("manifest", faults[0])) if faults else None
        return {"selection": failed or verdict}

    def _good(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows that reach the schema."""
        for block in select(self.origin.rows(), self.rules):
            yield from (payload for payload, fate in zip(block.payloads, block.fates, strict=True) if payload is not None and fate == GOOD)

    def add_part(self, results: Sequence[SelectionResult]) -> None:
        """See `Derivation.add_part`. Row digests are spooled to disk."""
        [judged] = results
        require(judged.verdict.passed)
        self._digests.append(np.frombuffer(judged.digests, np.uint64))
        self._came.append(np.frombuffer(judged.came, bool))
        self._parts.append([judged.verdict, judged.found, judged.unnamed, judged.quarantine])

    def merged(self) -> Sequence[SelectionResult]:
        """See `Derivation.merged`.

        Raises:
            Unsound: parts contradict each other.
        """
        verdicts, rows, unnamed, quarantine = zip(*self._parts, strict=True)
        verdict = merged(verdicts)
        require({*quarantine} == {verdict.numbers["rows_refused"]})
        require(beliefs_hold(self._digests.array().reshape(-1, 2), self._came.array()))
        return [SelectionResult(verdict, sum(rows, Counter()), set().union(*unnamed), quarantine[0])]


SELECTION = derived(
    "selection",
    "Every row of the sources, read again by other code, is stored once on its side of the split, or refused once for a reason that holds.",
    Selection,
)
LINE_SELECTION = derived(
    "selection", "Every line that these tokens are made from is there once, or refused once for a reason that holds.", Selection
)


def stored_of(store: Store) -> Stored:
    """Return the records of a store of one domain, over all its streams."""
    source, fraction = store.asset.source, store.family.of_some("test_fraction")
    place, held, belonging = list[Array](), list[Array](), list[Array]()
    for stream in streams_of(store):
        file, row, belongs = stream.origins.file, stream.origins.row, np.broadcast_to(np.int8(-1), len(stream))
        if isinstance(source, FromLines):
            if stream.name not in source.files:  # the other side of the same pairs
                continue
            claimed = store.streams()[stream.name].origins.file
            if any(np.any(claimed[part]) for part in stretches(len(stream))):
                file = np.broadcast_to(len(source.files), len(stream))  # a stream has the rows of one file
        if isinstance(source, FromRows) and stream.path is not None:
            prompts = map(prompt_of_line, stream.written())
            says = (held_out(column, fraction, source.plain) for column in prompts) if fraction else (0 for _ in range(len(stream)))
            belongs = np.fromiter(says, np.int8)
        found = fill_column(len(stream), partial(_places, file, row))
        own = compress(equals(stream.origins.domain, 0))
        found, belongs = take(found, own), take(belongs, own)
        if stream.origins.several:
            first = ~equals_previous(found)
            found, belongs = compress(first, found), compress(first, belongs)
        place.append(found)
        held.append(np.full(len(found), isinstance(source, FromRows) and (stream.name == TEST or stream.name.endswith(("_test", "dev")))))
        belonging.append(belongs)
    return Stored.of(concatenate(place), concatenate(held, bool), concatenate(belonging, np.int8))


def _places(file: Array, row: Array, part: slice) -> Array:
    return places(file[part], row[part])


# Rejected rows, judged a second time, apart from those that were kept: the reason in the quarantine must come out again.
#
# Sizes and lengths are measured by other code. What a schema or a template rejects only they can say, so they run again.


class RaisingQuarantine(Quarantine):
    """Raises each rejection and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())

    def write(self, rejection: Refusal) -> None:
        """Raise the rejection."""
        raise Refused(rejection.reason, rejection.detail, stage=rejection.stage)


class RecordingQuarantine(Quarantine):
    """Keeps stage, reason and detail of the first rejection of each record, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.reasons: dict[str, str] = {}

    def write(self, rejection: Refusal) -> None:
        """Keep the reason."""
        self.reasons.setdefault(rejection.id, f"{rejection.stage}/{rejection.reason}: {rejection.detail}")


def _reason(judge: Callable[[Item], object], item: Item) -> str:
    """Return why `judge` rejects an item, by raising `Refused`; ``""`` where it does not."""
    try:
        judge(item)
    except Refused as refusal:
        return _why(refusal)
    return ""


def _why(refusal: Refused) -> str:
    return f"{refusal.stage or 'pipeline'}/{refusal.reason}: {refusal.detail}"


def one_by_one(judge: Callable[[Item], object]) -> Reasons:
    return lambda items: [_reason(judge, item) for item in items]


def as_built(built: Callable[[Quarantine], Callable[[Sequence[Item]], object]]) -> Reasons:
    """Return the reasons that a build notes for items; `built`: quarantine → what does with items as a build does."""
    noted = RecordingQuarantine()
    encode = built(noted)

    def reasons(items: Sequence[Item]) -> list[str]:
        noted.reasons.clear()
        encode(items)
        return [noted.reasons.get(item.id, "") for item in items]

    return reasons


def refused_rows(store: Store, source: FromRows) -> Again:
    """Return a function that judges rejected rows of a domain again."""
    origin = domain_source(store)

    @cache
    def build() -> tuple[Reading, Reasons]:
        reading = Source.of(store.workspace, type(store.family), store.partition, gives=source.gives).reading()
        reading.deduplicator = None
        return reading, source.judge(store)

    def again(files: Sequence[int], rows: Sequence[int], payloads: Sequence[Mapping[str, Any]]) -> list[str]:
        reasons, items, faults = [""] * len(rows), dict[int, Item](), dict[tuple[int, int], Refused]()
        reading, judge = build()
        records = [Record(file, row, dict(payload)) for file, row, payload in zip(files, rows, payloads, strict=True)]
        for file, own in groupby(records, attrgetter("file")):
            faults |= {(file, row): fault for row, fault in reading.rejections(origin.files[file], [*own]).items()}
        examples = reading.reader.rows([record.payload for record in records])
        for index, (record, example) in enumerate(zip(records, examples, strict=True)):
            fault = faults.get((record.file, record.row)) or example
            if isinstance(fault, Refused):
                reasons[index] = _why(fault)
            else:
                items[index] = Item(origin.files[record.file], record, fault)
        for index, reason in zip(items, judge(list(items.values())), strict=True):
            reasons[index] = reason
        return reasons

    return again


def refused_lines(encoder: LineEncoder) -> Again:
    """Return a function that judges rejected lines again, by tokenizing them."""

    def again(_: Sequence[int], rows: Sequence[int], payloads: Sequence[Mapping[str, Any]]) -> list[str]:
        noted = RecordingQuarantine()
        encoder.encode(list(map(dict, payloads)), 0, noted, name="")
        return [noted.reasons.get(f".jsonl:{at + 1}", "") for at in range(len(rows))]

    return again


def documents(store: Store) -> Reasons:
    """Return a function that judges rejected documents again."""
    workspace, family = store.workspace, store.workspace.family(Pretrain)
    if record_files()(workspace, family).tokens or "trained_tokens" in store.manifest.counts:
        masked = MaskedDocuments(workspace, family, domain_of(family, store.partition))
        return as_built(lambda quarantine: partial(masked.encode, quarantine=quarantine))
    options, vocabulary, engine = family.preprocessing, workspace.vocabulary(family), workspace.engines(family).reference
    fim, sentences = options.fim, sentences_of(family.split_sentences)

    def judge(item: Item) -> None:
        text = document_text(item.example)
        if not text.strip() or len(text) < options.min_chars:
            raise Refused("too_short", "", stage="pretrain")
        if options.max_chars is not None and len(text) > options.max_chars:
            raise Refused("too_many_chars", "", stage="pretrain")
        if any(token in text for token in ((fim.prefix_token, fim.suffix_token, fim.middle_token) if fim.rate else ())):
            raise Refused("control_token_in_content", "", stage="pretrain")
        ids = engine.encode([text] if sentences is None else sentences.cut(text)).ids
        if vocabulary.token_bytes is not None and vocabulary.decode(ids).removeprefix(" ") != vocabulary.normalized(text).removeprefix(" "):
            raise Refused("lossy_tokenizer", "", stage="tokenize")
        if vocabulary.token_bytes is None and vocabulary.unknown_id in ids:
            raise Refused("lossy_tokenizer", "", stage="tokenize")
        # fill-in-the-middle adds three sentinels, and the cut parts may be a few tokens longer than the whole
        if options.max_seq_len is not None and len(ids) + (8 if fim.rate else 0) > options.max_seq_len:
            raise Refused("too_long", "", stage="tokenize")

    return one_by_one(judge)


def chats(store: Store) -> Reasons:
    """Return a function that judges rejected chats again."""
    domain = domain_of(store.family, store.partition)
    return as_built(lambda quarantine: partial(encode_of, conversations_of(store.workspace, domain, quarantine), domain))
