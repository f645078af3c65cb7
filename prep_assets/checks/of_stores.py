"""Checks of every store: files, accounting, selection, row integrity; and how derived checks share one reading of the sources."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Array
from prep_assets.checks.counts import UNCOUNTED, metrics_again, recounted, stored_records
from prep_assets.checks.rejections import kept_rows, rulings
from prep_assets.checks.sources_again import (
    DomainSource,
    Unsound,
    by_fields,
    domain_source,
    held_out,
    prompt_of_line,
    references,
    source_of,
)
from prep_assets.config.family import PrivateKind
from prep_assets.config.models import Pretrain, media_tokens
from prep_assets.data.files import record_id
from prep_assets.data.quarantine import Quarantine, Refusal, read_quarantine
from prep_assets.errors import Refused, StoreError
from prep_assets.pipeline.asset import Check, FromLines, FromParts, FromRows, LineEncoder, LineOf, Reasons, Store
from prep_assets.pipeline.conversations import conversations_of
from prep_assets.pipeline.documents import MaskedDocuments, document_text
from prep_assets.pipeline.examples import Item, Reading, Source, converter
from prep_assets.pipeline.groups import TEST, Tokenize, splits
from prep_assets.pipeline.images import media_ids
from prep_assets.pipeline.lines import UNPAIRED, form_of
from prep_assets.pipeline.sources import domain_of, read_sources, strings_in
from prep_assets.pipeline.teachers import encode_of
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.accounting import Fields, Ledger, Refusals, Stored, account, payload_print, places
from prep_assets.proofs.image_tokens import check_images, check_references
from prep_assets.proofs.private_data import private_data_left
from prep_assets.proofs.rows import check_records, claim
from prep_assets.proofs.sampled import Sampled
from prep_assets.proofs.selection import GOOD, Again, Believed, Rules, Selected, beliefs_hold, select
from prep_assets.proofs.verdict import Verdict, Worst, combined, merged
from prep_assets.samples import Record
from prep_assets.schemas.fields import NEUTRAL
from prep_assets.schemas.reader import apply
from prep_assets.stores.arrays import Spool, compress, concatenate, equals, equals_previous, prefetch, stretches, take, zeros
from prep_assets.stores.groups import open_groups
from prep_assets.stores.lines import open_lines
from prep_assets.stores.manifest import MANIFEST, build_key, described
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.table import GROUPS, LINES, PAIRS, SIDES
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.version_folders import KEY_LENGTH, name_of
from prep_assets.text.documents import sentences_of

# Files and recipe of every store.


def integrity(store: Store) -> Verdict:
    """Check that the files are those of the manifest, and that the build key is the hash of its recipe."""
    manifest = store.manifest
    numbers = {"files_checked": len(manifest.files), "bytes_checked": store.published.bytes}
    try:
        store.published.verify()
        _check_place(store)
    except StoreError as error:
        remedy = f"Build it again: {build_command(manifest.asset, manifest.partition)}"
        return Verdict(False, f"{error}\n{remedy}", numbers, Worst("files", str(error)))
    signed = f", which is {described(manifest.signature)}" if manifest.signature else ""
    return Verdict(True, f"{len(manifest.files):,} files have the size and sha256 of the manifest{signed}", numbers)


INTEGRITY = Check(
    "file_hashes", "Every file of the store has the size and sha256 that its manifest says, and there is no other.", integrity
)


def _check_place(store: Store) -> None:
    """Check that a store has the build key of its recipe, says of its checks what a build says, and stands where its manifest says."""
    manifest, directory = store.manifest, store.directory.resolve()
    where = f"{store.directory}/{MANIFEST}"
    if build_key(manifest.recipe) != manifest.build_key:
        raise StoreError(f"{where}: its recipe is not what its build key {manifest.build_key[:KEY_LENGTH]} was made of")
    if manifest.checks != store.asset.promises:
        raise StoreError(f"{where}: it says of its checks {[*manifest.checks]}, and a build says {[*store.asset.promises]}")
    name = name_of(manifest.build_key, manifest.content_hash)
    if directory.name != name and not directory.name.startswith(f"{name}-"):
        raise StoreError(f"{where}: it is of version {name}, in the folder {directory.name}")
    place = store.workspace.place(manifest.asset, manifest.partition)
    if directory.parent != place.backend.versions.resolve():
        raise StoreError(f"{where}: it is a store of {place.label}, in {directory.parent}")


# Accounting: every record that was read is kept, or rejected with a reason.


def accounting(store: Store) -> Verdict:
    """Check the counts of a store whose records come from rows or lines."""
    ignored = [f"{name}/{path}" for name, domain in store.family.domains.items() for path in domain.ignore]
    for name, fields in store.manifest.counts.get("fields_passed_over", {}).items():
        if store.family.domains[name].speaker_names == "leave_out":
            ignored += [f"{name}/{path}" for path in fields if path.endswith(".name")]
    verdict = account(
        store.manifest.counts,
        _refusals(store),
        stored=stored_records(store),
        available=_available(store),
        neutral=NEUTRAL,
        ignored=ignored,
        recounted=recounted(store),
        uncounted=UNCOUNTED,
        metrics=(store.manifest.metrics, metrics_again(store)),
    )
    domain = domain_of(store.family, store.partition) if store.partition else None
    if domain and domain.redact and verdict.passed:
        verdict = combined([verdict, redaction_holds(stored_texts(store), domain.redact, domain.countries)])
    return verdict


def stored_texts(store: Store) -> Iterator[tuple[str, str]]:
    """Yield what a store holds, decoded: the name of a record or a line, and its text or the texts of its fields."""
    for lines in store.lines().values():
        for number, line in enumerate(lines):
            yield f"line {number:,} of {lines.path.name}", "\n\n".join(strings_in(line))
    streams = dict(store.streams())
    if store.holds(GROUPS):
        for split, folder in splits(store.directory).items():
            groups = open_groups(folder)
            streams |= {f"{split} prompts": groups.prompts, f"{split} responses": groups.responses}
    for name, stream in streams.items():
        vocabulary = store.workspace.vocabulary(store.family)
        for records, _ in stream.blocks():
            texts = vocabulary.decode_batch([ids.tolist() for ids in stream.records(records, "tokens")])
            yield from ((f"record {number:,} of {name}", text) for number, text in enumerate(texts, records.start))


def redaction_holds(texts: Iterable[tuple[str, str]], kinds: Collection[PrivateKind], countries: Sequence[str] | None = None) -> Verdict:
    """Search decoded texts for private data that was to be replaced, whatever replaced it, and count the placeholders.

    Args:
        texts: the name and the text of each record.
        countries: see `private_data_left`.
    """
    searched, left, worst = 0, Counter[str](), ""
    from prep_assets.quality.private_data import FORMS, PLACEHOLDERS

    placeholders = {kind: 0 for kind in FORMS if kind in kinds}
    for name, text in texts:
        searched += 1
        for kind in placeholders:
            placeholders[kind] += text.count(PLACEHOLDERS[kind])
        values = Counter(private_data_left(text, tuple(placeholders), countries))
        left += values
        worst = worst or (name if values else "")
    numbers = {"texts_searched": searched, **{f"redacted_{kind}": count for kind, count in placeholders.items()}}
    if left:
        found = ", ".join(f"{count:,} × {kind}" for kind, count in left.items())
        fault = (
            f"private data of {searched:,} texts are left: {found}, the first in {worst}. The value comes together from several fields or keys, "
            "or from token ids, which redact cannot see: leave the row out by `where`, or the field by `ignore`. If it is a phone number without a prefix in a "
            "row of two languages, name its `countries`"
        )
        return Verdict(False, fault, numbers, Worst(worst, found))
    counts = ", ".join(f"{count:,} × {PLACEHOLDERS[kind]}" for kind, count in placeholders.items())
    return Verdict(True, f"no private data in {searched:,} texts, but {counts}", numbers)


def raw_accounting(store: Store) -> Verdict:
    """Check the counts of a store of source files."""
    sources = read_sources(store.published)
    files = [entry for kind in ("files", "test_files") for entry in sources[kind]]
    rows, again = sum(entry["rows"] for entry in files), {"files": len(files), "bytes": sum(entry["size"] for entry in files)}
    refused = sum(1 for _ in _refusals(store))
    return account(
        store.manifest.counts,
        _refusals(store),
        stored=rows - refused,
        available=rows,
        recounted=again,
        metrics=(store.manifest.metrics, {}),
    )


def _refusals(store: Store) -> Iterable[Refusal]:
    return read_quarantine(store.published.quarantine) if store.published.quarantine else ()


def _available(store: Store) -> int | None:
    """Count the records that the previous stage offers; `None` where the configuration reads only some of them."""
    source = store.asset.source
    if isinstance(source, FromLines):
        return sum(len(open_lines(store.above(asset, store.partition).directory, name)) for asset, name in source.files.values())
    if isinstance(source, FromParts):
        parts = [store.above(source.assets[0], name) for name in store.domains]
        return sum(int(part.manifest.counts["kept"]) for part in (*parts, *map(store.above, source.assets[1:])))
    names, family = store.domains, store.family
    if any(domain_of(family, name).max_items for name in names) or getattr(family, "max_per_source", None):
        return None
    return sum(int(store.above(store.raw, name).manifest.counts["read"]) for name in names)


ACCOUNTING = Check(
    "accounting", "Records read = records kept + records refused, and each refused one is in quarantine with its reason.", accounting
)
RAW_ACCOUNTING = Check("accounting", "Rows read = readable rows + rows in quarantine, over all source files.", raw_accounting)


# Rejected rows, judged a second time, apart from those that were kept: the reason in the quarantine must come out again.
#
# Sizes and lengths are measured by other code. What a schema or a template rejects only they can say, so they run again.

Judge = Callable[[Item], object]
"""Raises `Refused` for an item that the family rejects."""


class Heard(Quarantine):
    """A quarantine that raises each rejection and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())

    def write(self, refusal: Refusal) -> None:
        """Raise the rejection."""
        raise Refused(refusal.reason, refusal.detail, stage=refusal.stage)


class Noted(Quarantine):
    """A quarantine that keeps reason and detail of each record, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.reasons: dict[str, str] = {}

    def add(self, id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> None:
        """Note the first reason of a record."""
        self.reasons.setdefault(id, f"{stage}/{reason}: {detail}")

    def write(self, refusal: Refusal) -> None:
        """Note the reason of a rejection."""
        self.add(refusal.id, refusal.stage, refusal.reason, refusal.detail, refusal.payload)


def _reason(judge: Judge, item: Item) -> str:
    """Return why `judge` rejects an item; ``""`` where it does not."""
    try:
        judge(item)
    except Refused as refusal:
        return _why(refusal)
    return ""


def _why(refusal: Refused) -> str:
    return f"{refusal.stage or 'pipeline'}/{refusal.reason}: {refusal.detail}"


def _one_by_one(judge: Judge) -> Reasons:
    return lambda items: [_reason(judge, item) for item in items]


def _as_built(built: Callable[[Quarantine], Callable[[Sequence[Item]], object]]) -> Reasons:
    """Return the reasons that a build notes for items; `built`: quarantine → what does with items as a build does."""
    noted = Noted()
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

    def again(file: int, rows: Sequence[int], payloads: Sequence[Mapping[str, Any]]) -> list[str]:
        reasons, items = [""] * len(rows), {}
        reading, judge = build()
        records = [Record(file, row, dict(payload)) for row, payload in zip(rows, payloads, strict=True)]
        faults = reading.rejections(origin.files[file], records)
        examples = reading.reader.rows([record.payload for record in records])
        for index, (record, example) in enumerate(zip(records, examples, strict=True)):
            fault = faults.get(record.row) or example
            if isinstance(fault, Refused):
                reasons[index] = _why(fault)
            else:
                items[index] = Item(origin.files[file], record, fault)
        for index, reason in zip(items, judge(list(items.values())), strict=True):
            reasons[index] = reason
        return reasons

    return again


def refused_lines(encoder: LineEncoder) -> Again:
    """Return a function that judges rejected lines again, by tokenizing them."""

    def again(_: int, rows: Sequence[int], payloads: Sequence[Mapping[str, Any]]) -> list[str]:
        noted = Noted()
        encoder.encode(list(map(dict, payloads)), 0, noted, name="")
        return [noted.reasons.get(f".jsonl:{at + 1}", "") for at in range(len(rows))]

    return again


def documents(store: Store) -> Reasons:
    """Return a function that judges rejected documents again."""
    workspace, family = store.workspace, store.workspace.family(Pretrain)
    if media_tokens(family) or "trained_tokens" in store.manifest.counts:
        masked = MaskedDocuments(workspace, family, domain_of(family, store.partition))
        return _as_built(lambda quarantine: partial(masked.encode, quarantine=quarantine))
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

    return _one_by_one(judge)


def chats(store: Store) -> Reasons:
    """Return a function that judges rejected chats again."""
    domain = domain_of(store.family, store.partition)
    return _as_built(lambda quarantine: partial(encode_of, conversations_of(store.workspace, domain, quarantine), domain))


def groups(store: Store) -> Reasons:
    """Return a function that judges rejected groups again."""
    tokenize = Tokenize(store.workspace, store.partition)
    return _as_built(lambda quarantine: lambda items: deque(tokenize(items, quarantine), 0))


def lines(store: Store) -> Reasons:
    """Return a function that judges the rejected rows of a store of lines again."""
    form, line, convert = form_of(store.directory), line_of(store), refused_rows_of(store)

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
            stage, reason = ("pair", "contradicting_labels") if "label" in row else ("prompt", "contradicting_golds")
            if (said := claim(row)) is not None and len(values(f"{stage}/{reason}").get(said[0], ())) > 1:
                raise Refused(reason, "", stage=stage)

    return _one_by_one(judge)


def refused_rows_of(store: Store) -> Callable[[str], Iterator[Item]]:
    """Return a function that yields the rows of a domain that are rejected for one reason, read again."""
    source = store.asset.source
    assert isinstance(source, FromRows)
    gives, origin = source.gives, domain_source(store)

    def items(reason: str) -> Iterator[Item]:
        rejected = {line.id for line in _refusals(store) if f"{line.stage}/{line.reason}" == reason}
        reader = Source.of(store.workspace, type(store.family), store.partition, gives=gives).reading().reader
        for block in blocks_of(store) if rejected else ():
            for row, payload in zip(block.rows, block.payloads, strict=True):
                if payload is None or record_id(origin.files[block.file], row) not in rejected:
                    continue
                [example] = reader.rows([payload])
                if not isinstance(example, Refused):
                    yield Item(origin.files[block.file], Record(block.file, row, dict(payload)), example)

    return items


def line_of(store: Store) -> LineOf:
    """Return what makes lines of the examples of a store."""
    source = store.asset.source
    assert isinstance(source, FromRows) and source.line is not None
    return source.line(store.workspace)


# Row integrity of token streams of any family.


def token_rows(store: Store) -> Verdict:
    """Check the rows of every stream, and their images; both sides of pairs must hold the same records.

    Raises:
        StoreError: they do not.
    """
    streams, size = store.streams(), store.vocabulary.size
    for name, stream in streams.items() if store.holds(PAIRS) else ():
        other = streams[name.removesuffix(SIDES[0]) + SIDES[1]] if name.endswith(SIDES[0]) else stream
        if not np.array_equal(stream.row, other.row):
            raise StoreError(f"{name} and {SIDES[1]} do not hold the same pairs")
    types = ids_type(store)
    if isinstance(store.asset.source, FromRows) and all("loss_mask" in stream.arrays for stream in streams.values()):
        types |= {"loss_mask": "float32" if any(map(_has_fractions, streams.values())) else "uint8"}
    longest = store.family.preprocessing.max_seq_len if store.asset.name == "sft_tokens" else None
    records = (check_records(stream, vocabulary_size=size, types=types, longest=longest) for stream in streams.values())
    return combined(chain(records, image_verdicts(store, streams.values())))


def ids_type(store: Store) -> dict[str, str]:
    """Return the type that the options give token ids."""
    asked, size = store.family.output.dtype, store.family.pad_vocab_to or store.vocabulary.size
    return {"tokens": ("uint32" if size > 65_536 else "uint16") if asked == "auto" else asked}


def _has_fractions(stream: TokenStore) -> bool:
    mask = stream.arrays["loss_mask"]
    return mask.dtype.kind == "f" and any(bool(((mask[tokens] != 0) & (mask[tokens] != 1)).any()) for _, tokens in stream.blocks())


PLAIN_ROWS = Check("row_integrity", "Ids are inside the vocabulary.", token_rows)


def image_verdicts(store: Store, streams: Iterable[TokenStore | PackedStore]) -> Iterator[Verdict]:
    """Yield verdicts on whether images and audio stand where their tokens do, and are their files; none for a family without them."""
    ids, rules = media_ids(store.workspace, store.family), store.workspace.media_rules(store.family)
    for stream in streams if ids else ():
        verdict = check_images(stream, ids, rules)
        remedy = "Where the chat template writes the image token by itself, name another control token as image_token"
        yield verdict if verdict.passed else replace(verdict, summary=f"{verdict.summary}. {remedy}")
        if isinstance(stream, TokenStore) and len(stream.images):
            yield check_references(references(store, stream))


# Checks that derive a store a second time from its source. One reading, whole or in parts, serves all of them.

T = TypeVar("T")
Reader = Callable[[Iterator[Selected]], Any]
"""Reads the rows of a store's source once, in order, and returns its result, usually a verdict. It may stop early."""
Outcome = Verdict | Exception


SMALL = 2000
"""Of a store of fewer records every one is derived the slow way; of others a sample is, and the first of each kind."""


FEW_TOKENS = 1 << 18
"""The reference tokenizes all texts of a small store whole if they have no more tokens: it takes half a second for so many."""


def is_small(store: Store) -> bool:
    """Whether a store has fewer than `SMALL` records."""
    return int(store.manifest.counts["kept"]) < SMALL


def has_few_tokens(store: Store) -> bool:
    """Whether a store is small and has no more than `FEW_TOKENS`."""
    return is_small(store) and int(store.manifest.counts["tokens"]) <= FEW_TOKENS


class Derivation:
    """A second derivation of a store, which gives the verdicts of one or several checks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._parts: list[Sequence[Any]] = []

    def readers(self) -> Sequence[Reader]:
        """The readers of the source rows; each runs in a thread of its own."""
        raise NotImplementedError

    def verdicts(self, results: Sequence[Any]) -> Mapping[str, Verdict]:
        """Return the verdict of each check, by name, from the results of the readers on the whole store."""
        raise NotImplementedError

    def add(self, results: Sequence[Any]) -> None:
        """Add the results of the readers on the next part of a store.

        Raises:
            Unsound: the part fails.
        """
        require(self.sound(results))
        self._parts.append(results)

    def sound(self, results: Sequence[Any]) -> bool:
        """Whether a part holds."""
        return all(verdict.passed for verdict in results)

    def merged(self) -> Sequence[Any]:
        """The results on the whole store, merged from those on its parts."""
        return [merged(verdicts) for verdicts in zip(*self._parts, strict=True)]


Kind = Callable[[Store], Derivation]


class Proof(Derivation):
    """A check whose readers return verdicts."""

    def __init__(self, store: Store, name: str, readers: Callable[[Store], Sequence[Reader]]) -> None:
        super().__init__(store)
        self._name, self._readers = name, readers

    def readers(self) -> Sequence[Reader]:
        """The readers for this store."""
        return self._readers(self.store)

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The combined verdict."""
        return {self._name: combined(results)}


def proof(name: str, readers: Callable[[Store], Sequence[Reader]]) -> Kind:
    """Return the second derivation of one check; `readers`: store → readers of its source rows."""
    return partial(Proof, name=name, readers=readers)


def require(sound: bool) -> None:
    """Raises:
    Unsound: `sound` is false, for a part of a store.
    """
    if not sound:
        raise Unsound


def derived(name: str, description: str, kind: Kind) -> Check:
    """Return a check by second derivation. All such checks of a run share one reading of the source."""
    return Check(name, description, partial(_verdict_of, name=name), kind)


def _verdict_of(store: Store, *, name: str) -> Verdict:
    known: dict[str, Outcome | None] = {} if store.published.evidence is None else store.published.evidence
    if known.get(name) is None:
        known |= outcomes(store, {name, *known})
    if isinstance(outcome := known[name], Verdict):
        return outcome
    assert outcome is not None
    raise outcome


def _kinds(store: Store, names: Collection[str] | None = None) -> dict[Kind, list[str]]:
    """Return the second derivations of a store with the names of their checks; only for `names`, where given."""
    kinds: dict[Kind, list[str]] = {}
    for check in store.asset.checks:
        if check.derived is not None and (names is None or check.name in names):
            kinds.setdefault(check.derived, []).append(check.name)
    return kinds


def outcomes(store: Store, names: Collection[str]) -> dict[str, Outcome]:
    """Return the verdict of each check on a whole store, or the exception that a damaged store made a reader raise."""
    verdicts: dict[str, Outcome] = {}
    ready: list[tuple[list[str], Derivation, Sequence[Reader]]] = []
    for kind, check_names in _kinds(store, names).items():
        try:
            derivation = kind(store)
            ready.append((check_names, derivation, derivation.readers()))
        except Exception as error:
            verdicts |= dict.fromkeys(check_names, error)
    read_results = _read(store, [(derivation, readers) for _, derivation, readers in ready])
    for (check_names, derivation, _), results in zip(ready, read_results, strict=True):
        try:
            verdicts |= derivation.verdicts(_returned(results))
        except Exception as error:
            verdicts |= dict.fromkeys(check_names, error)
    fault, others = verdicts.get("selection"), {*verdicts} - {"selection"}
    if isinstance(fault, Exception) and any(verdicts[name] is fault for name in others):
        # an error that keeps rows from being judged is the fault of `selection` alone
        return outcomes(store, others) | {"selection": fault}
    return verdicts


def _returned(results: Sequence[Any]) -> Sequence[Any]:
    """Return what readers returned; re-raise the first exception among the results."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _read(store: Store, derivations: Sequence[tuple[Derivation, Sequence[Reader]]]) -> list[list[Any]]:
    """Return what the readers of each derivation return or raise."""
    readers = [reader for _, derivation_readers in derivations for reader in derivation_readers]
    selection = next((derivation for derivation, _ in derivations if isinstance(derivation, Selection)), None)
    results = iter(())
    if readers:
        sizes = source_of(store).sizes
        results = iter(read_by(blocks_of(store) if selection is None else selection.blocks(), readers, lambda block: sizes[block.file]))
    return [[next(results) for _ in derivation_readers] for _, derivation_readers in derivations]


def blocks_of(store: Store) -> Iterator[Selected]:
    """Yield the rows of a store's source, unjudged."""
    return select(source_of(store).rows(store.part), Rules(deduplicate=False))


def read_by(items: Iterator[T], readers: Sequence[Callable[[Iterator[T]], Any]], size: Callable[[T], int] = lambda _: _TURN) -> list[Any]:
    """Feed all items to several readers, and return what each returns or raises. An exception of `items` is raised in each reader. All items are read, even
    if no reader wants them; the next is prefetched while the readers take turns on the current one, or on several of small `size`, in bytes."""
    queues = [Queue[tuple[T] | Exception | None]() for _ in readers]
    fault: Exception | None = None
    with ThreadPoolExecutor(len(readers), "derives") as pool, closing(prefetch(items)) as prefetched:
        futures = [pool.submit(_listen, reader, queue) for reader, queue in zip(readers, queues, strict=True)]
        try:
            for turn in _turns(prefetched, size):
                for queue in queues:
                    for item in turn:
                        queue.put((item,))
                    queue.join()
        except Exception as error:
            fault = error
        finally:
            for queue, future in zip(queues, futures, strict=True):
                queue.put(fault)
                wait([future])
        return [future.exception() or future.result() for future in futures]


_TURN = 1 << 16
"""Bytes after which a reader's turn ends."""


def _turns(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    turn, total = list[T](), 0
    for item in items:
        turn.append(item)
        total += size(item)
        if total >= _TURN:
            yield turn
            turn, total = [], 0
    yield turn


def _listen(reader: Callable[[Iterator[T]], Any], queue: Queue[tuple[T] | Exception | None]) -> Any:
    def items() -> Iterator[T]:
        while isinstance(item := queue.get(), tuple):
            yield item[0]
            queue.task_done()
        if item is not None:
            raise item

    received = items()
    try:
        return reader(received)
    finally:
        with suppress(Exception):
            deque(received, 0)  # drain what the reader left


def part_of(store: Store) -> list[Sequence[Any]]:
    """Return the results on a part of a store, which travel to the merging process.

    Raises:
        Exception: whatever a damaged store makes a reader raise.
    """
    derivations = [(derivation := kind(store), derivation.readers()) for kind in _kinds(store)]
    return [_returned(results) for results in _read(store, derivations)]


def verdicts_of_parts(store: Store, parts: Iterable[Sequence[Sequence[Any]]]) -> dict[str, Verdict]:
    """Return the verdicts on a whole store from the results on its parts, in order.

    Raises:
        Unsound: a part fails, or parts contradict each other.
    """
    derivations = [kind(store) for kind in _kinds(store)]
    for part in parts:
        for derivation, results in zip(derivations, part, strict=True):
            derivation.add(results)
    verdicts: dict[str, Verdict] = {}
    for derivation in derivations:
        verdicts |= derivation.verdicts(derivation.merged())
    require(all(verdict.passed for verdict in verdicts.values()))
    return verdicts


# `selection`: every row of the sources is stored where it belongs, or rejected for a reason that holds.


class Judged(Struct, frozen=True):
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
        lines: Refusals = store.once("refusals", lambda: Refusals(map(_compared, _refusals(store)), self.origin.names))
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
            self._fields, fraction = self._passed_over(), getattr(store.family, "test_fraction", 0.0)
        else:
            assert isinstance(source, FromLines)
            again, proves, takes = refused_lines(source.encoder(store.workspace)), rulings(store), None
        seen = None if self._fields is None else self._fields.add
        self.ledger = Ledger(
            refusals, stored_of(store), self.origin.held_out, content, again, fraction, seen, proves, takes, Sampled(every=is_small(store))
        )

    def _rules(self) -> Rules:
        family = self.store.family
        return domain_source(self.store).rules(family.preprocessing.deduplicate, getattr(family, "max_per_source", None))

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

    def readers(self) -> Sequence[Reader]:
        """The ledger is the only reader."""
        return [self._judged]

    def _judged(self, blocks: Iterator[Selected]) -> Judged:
        for block in blocks:
            self.ledger.add(block)
        fields, believed = self._fields, self._believed
        counts, unnamed = (Counter[str](), set[str]()) if fields is None else (fields.found, fields.unnamed)
        digests, came = (b"", b"") if believed is None else (bytes(believed.digests), bytes(believed.came))
        return Judged(self.ledger.verdict(), counts, unnamed, self._lines, digests, came)

    def verdicts(self, results: Sequence[Judged]) -> Mapping[str, Verdict]:
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

    def add(self, results: Sequence[Judged]) -> None:
        """See `Derivation.add`. Row digests are spooled to disk."""
        [judged] = results
        require(judged.verdict.passed)
        self._digests.append(np.frombuffer(judged.digests, np.uint64))
        self._came.append(np.frombuffer(judged.came, bool))
        self._parts.append([judged.verdict, judged.found, judged.unnamed, judged.quarantine])

    def merged(self) -> Sequence[Judged]:
        """See `Derivation.merged`.

        Raises:
            Unsound: parts contradict each other.
        """
        verdicts, rows, unnamed, quarantine = zip(*self._parts, strict=True)
        verdict = merged(verdicts)
        require({*quarantine} == {verdict.numbers["rows_refused"]})
        require(beliefs_hold(self._digests.array().reshape(-1, 2), self._came.array()))
        return [Judged(verdict, sum(rows, Counter()), set().union(*unnamed), quarantine[0])]


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
    place, held, belonging = list[Array](), list[Array](), list[Array]()
    for is_held_out, file, row, belongs in _records(store):
        place.append(zeros(len(row)))
        for part in stretches(len(row)):
            place[-1][part] = places(file[part], row[part])
        held.append(np.full(len(row), is_held_out))
        belonging.append(np.full(len(row), -1, np.int8) if belongs is None else belongs)
    return Stored.of(concatenate(place), concatenate(held, bool), concatenate(belonging, np.int8))


def _records(store: Store) -> Iterator[tuple[bool, Array, Array, Array | None]]:
    """Yield for each stream: whether it is held out, file and row of the domain's records, and their `Stored.belongs`."""
    source = store.asset.source
    if isinstance(source, FromLines):
        streams = store.streams()
        for number, stream in ((number, streams[name]) for number, name in enumerate(source.files) if name in streams):
            is_first = not any(np.any(stream.file[part]) for part in stretches(len(stream)))  # a stream has the rows of one file
            yield False, np.broadcast_to(number if is_first else len(source.files), len(stream)), stream.row, None
    elif store.holds(GROUPS):
        for split, folder in splits(store.directory).items():
            groups = open_groups(folder)
            indices = compress(equals(groups.source, 0))
            yield split == TEST, take(groups.prompts.file, indices), take(groups.prompts.row, indices), None
    elif store.holds(LINES):
        assert isinstance(source, FromRows)
        fraction = getattr(store.family, "test_fraction", 0.0)
        for stem, lines in store.lines().items():
            indices, prompts = compress(equals(lines.index["source"], 0)), map(prompt_of_line, lines.written())
            belonging = (held_out(column, fraction, source.plain) for column in prompts) if fraction else (0 for _ in range(len(lines)))
            belongs = np.fromiter(belonging, np.int8)
            if stem.startswith(UNPAIRED):  # the labelled answers of one row are neighbours
                indices = compress(~equals_previous(take(lines.places, indices)), indices)
            yield stem.endswith("_test"), take(lines.index["file"], indices), take(lines.index["row"], indices), take(belongs, indices)
    else:
        several = store.recipe.get("expand") == "turns"
        for name, stream in store.streams().items():
            columns = [compress(stream.begins_row, column) if several else column for column in (stream.file, stream.row)]
            yield name.endswith("dev"), columns[0], columns[1], None
