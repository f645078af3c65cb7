"""What every store is checked for: files, accounting, selection, row integrity; and how checks share one reading of the sources."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.checks.sources_again import Rows, Second, Unsound, asked, held_out, readable
from prep_assets.config.models import Preference, Pretrain, Rl
from prep_assets.data.quarantine import Quarantine, Refusal, read_quarantine
from prep_assets.errors import Refused, StoreError
from prep_assets.exports.readable import SIDES, Pairs
from prep_assets.pipeline.asset import Check, FromLines, FromParts, FromRows, Store
from prep_assets.pipeline.conversations import conversations_of
from prep_assets.pipeline.documents import POLICY, MaskedDocuments, document_text, untemplated
from prep_assets.pipeline.examples import Item, Reading, Source, converter
from prep_assets.pipeline.groups import TEST, Tokenize, splits
from prep_assets.pipeline.images import ImageParts, stored_image_id
from prep_assets.pipeline.lines import JudgedContrasts, form_of, preference_row, prompt_of, prompt_row
from prep_assets.pipeline.pairs import PairEncoder, generation_prompt, prompt_encoder
from prep_assets.pipeline.sources import domain_of, inline_reasoning, read_sources, unrendered_reasoning
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.accounting import Fields, Ledger, Refusals, Stored, account, balanced, books, places
from prep_assets.proofs.image_tokens import check_images
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.second_reading import canonical_json, read_rows
from prep_assets.proofs.selection import GOOD, Again, Believed, Rules, Selected, beliefs_hold, select
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import Record
from prep_assets.schemas.fields import NEUTRAL
from prep_assets.schemas.reader import apply
from prep_assets.stores.arrays import Spool, ahead, at, equals, made, where, zeros
from prep_assets.stores.arrays import joined as joined_columns
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.manifest import MANIFEST, build_key, described
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.version_folders import KEY_LENGTH, name_of
from prep_assets.text.documents import sentences_of
from prep_assets.text.encode import Encoder

# What every store is checked for: its files and its recipe; and what the other checks share.

MASKED = "Trained tokens decode to exactly the assistant's texts and their stop token, on every row; derived without the code that made the mask."
IDENTITY = "Every row's tokens decode to a fresh render of its source; its control tokens are those that the template wrote, none typed by anybody."
"""What `mask_alignment` and `tokenization_identity` say of conversations."""


def integrity(store: Store) -> Verdict:
    """The files are those of the manifest, and its recipe is the one that its build key was made of."""
    manifest = store.manifest
    numbers = {"files_checked": len(manifest.files), "bytes_checked": sum(entry["bytes"] for entry in manifest.files.values())}
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
    """A store is what its recipe says, and stands where its manifest says."""
    manifest, directory = store.manifest, store.directory.resolve()
    where = f"{store.directory}/{MANIFEST}"
    if build_key(manifest.recipe) != manifest.build_key:
        raise StoreError(f"{where}: its recipe is not what its build key {manifest.build_key[:KEY_LENGTH]} was made of")
    name = name_of(manifest.build_key, manifest.content_hash)
    if directory.name != name and not directory.name.startswith(f"{name}-"):
        raise StoreError(f"{where}: it is of version {name}, in the folder {directory.name}")
    place = store.workspace.place(manifest.asset, manifest.partition)
    if directory.parent != place.backend.versions.resolve():
        raise StoreError(f"{where}: it is a store of {place.label}, in {directory.parent}")


def cuts_counted(store: Store, proven: Verdict) -> Verdict:
    """A verdict on conversations, which fails where truncation took other tokens than the manifest counts."""
    counted, found = (int(each.get("tokens_cut_away", 0)) for each in (store.manifest.counts, proven.numbers))
    if not proven.passed or counted == found:
        return proven
    detail = f"truncation took {found:,} tokens, the manifest counts {counted:,}"
    return Verdict(False, detail, proven.numbers, Worst("counts", detail))


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Several verdicts as one: the first that fails, else their figures added up."""
    found = list(verdicts)
    numbers = added(verdict.numbers for verdict in found)
    failed = next((verdict for verdict in found if not verdict.passed), None)
    if failed is not None:
        return Verdict(False, failed.summary, numbers, failed.worst)
    return Verdict(True, "; ".join(verdict.summary for verdict in found), numbers)


def added(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Figures of several parts as those of the whole."""
    numbers: dict[str, float] = {}
    for each in figures:
        for key, value in each.items():
            numbers[key] = numbers.get(key, 0) + value
    return numbers


# The books: every record that was read is kept, or refused with a reason.


def accounting(store: Store) -> Verdict:
    """The counts of a store whose records come from rows or lines."""
    ignored = [f"{name}/{path}" for name, domain in store.family.domains.items() for path in domain.ignore]
    for name, found in store.manifest.counts.get("fields_passed_over", {}).items():
        if store.family.domains[name].speaker_names == "leave_out":
            ignored += [f"{name}/{path}" for path in found if path.endswith(".name")]
    return account(
        store.manifest.counts,
        _refusals(store),
        stored=_stored(store),
        available=_available(store),
        neutral=NEUTRAL,
        ignored=ignored,
        recounted=_tokens(store),
    )


def raw_accounting(store: Store) -> Verdict:
    """The counts of a store of source files."""
    sources = read_sources(store.published)
    rows = sum(entry["rows"] for which in ("files", "test_files") for entry in sources[which])
    refused = sum(1 for _ in _refusals(store))
    return account(store.manifest.counts, _refusals(store), stored=rows - refused, available=rows)


def _refusals(store: Store) -> Iterable[Refusal]:
    return read_quarantine(store.published.quarantine) if store.published.quarantine else ()


def _stored(store: Store) -> int:
    """Records that are really in a store."""
    lines = sorted(store.directory.glob("*.jsonl"))
    if lines:
        return sum(len(open_lines(store.directory, path.stem)) for path in lines)
    if store.holds(GroupStore):
        return sum(len(open_groups(folder)) for folder in splits(store.directory).values())
    streams = store.streams()
    if store.holds(Pairs):
        return sum(len(stream) for name, stream in streams.items() if name.endswith(SIDES[0]))
    if store.recipe.get("expand") == "turns":
        return sum(int(stream.begins_row.sum()) for stream in streams.values())
    return sum(len(stream) for stream in streams.values())


def _tokens(store: Store) -> dict[str, int]:
    """Tokens, trained tokens and held-out records that are really in a store, where it has streams of tokens."""
    streams = store.streams()
    if not streams:
        return {}
    found = {"tokens": sum(len(stream.arrays["tokens"]) for stream in streams.values())}
    if all("loss_mask" in stream.arrays for stream in streams.values()):
        found["trained_tokens"] = sum(_trained(stream) for stream in streams.values())
    return found | {"kept_dev": sum(int(stream.begins_row.sum()) for name, stream in streams.items() if name == "dev")}


def _trained(stream: TokenStore) -> int:
    return sum(int(np.count_nonzero(stream.arrays["loss_mask"][tokens])) for _, tokens in stream.blocks())


def _available(store: Store) -> int | None:
    """Records that the stage before offers; `None` where the configuration reads only some of them."""
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


# Rows that were refused, looked at once more, each alone: the reason that the quarantine gives must be found again.
#
# Sizes and lengths are measured by other code. What a schema or a template refuses, only they can say, so they are asked again.

Judge = Callable[[Item], object]
"""Raises `Refused` for an item that the family refuses."""
Reasons = Callable[[Sequence[Item]], Sequence[str]]
"""Why the family refuses each of some items, ``stage/reason``; ``""`` where it does not."""


class Heard(Quarantine):
    """A quarantine that raises each refusal and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())

    def write(self, refusal: Refusal) -> None:
        """Raise it."""
        raise Refused(refusal.reason, refusal.detail, stage=refusal.stage)


class Noted(Quarantine):
    """A quarantine that keeps the reason of each record, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.reasons: dict[str, str] = {}

    def add(self, id: str, stage: str, reason: str, detail: str, payload: Any, *, length: int | None = None) -> None:
        """Note it."""
        self.reasons.setdefault(id, f"{stage}/{reason}")

    def write(self, refusal: Refusal) -> None:
        """The same of one that was made already."""
        self.add(refusal.id, refusal.stage, refusal.reason, refusal.detail, refusal.payload)


def _reason(refusal: Refused) -> str:
    return f"{refusal.stage or 'pipeline'}/{refusal.reason}"


def _one_by_one(judge: Judge) -> Reasons:
    def reason(item: Item) -> str:
        try:
            judge(item)
        except Refused as refusal:
            return _reason(refusal)
        return ""

    return lambda items: list(map(reason, items))


def alone(store: Store, source: FromRows, second: Second) -> Again:
    """How refused rows of a domain are looked at again."""
    made: list[tuple[Reading, Reasons]] = []

    def again(file: int, rows: Sequence[int], payloads: Sequence[Mapping[str, Any]]) -> list[str]:
        if not made:
            reading = Source.of(store.workspace, type(store.family), second.name, gives=source.gives).reading()
            reading.deduplicator = None
            made.append((reading, source.judge(store, second)))
        [(reading, judge)] = made
        reasons, items = [""] * len(rows), {}
        records = [Record(file, row, dict(payload)) for row, payload in zip(rows, payloads, strict=True)]
        faults = reading.refused(second.files[file], records)
        for at, (record, given) in enumerate(zip(records, reading.reader.rows([each.payload for each in records]), strict=True)):
            fault = faults.get(record.row) or given
            if isinstance(fault, Refused):
                reasons[at] = _reason(fault)
            else:
                items[at] = Item(second.files[file], record, fault)
        for at, reason in zip(items, judge(list(items.values())), strict=True):
            reasons[at] = reason
        return reasons

    return again


def _line_alone(look: Callable[[Mapping[str, Any], int], object]) -> Again:
    """How refused lines of a JSONL store are looked at again."""

    def reason(row: int, payload: Mapping[str, Any]) -> str:
        try:
            look(payload, row)
        except Refused as refusal:
            return f"{refusal.stage}/{refusal.reason}"
        return ""

    return lambda file, rows, payloads: list(map(reason, rows, payloads))


def pair_lines(store: Store) -> Again:
    """How a line of pairs is tokenized again."""
    heard, encoder = Heard(), PairEncoder(store.workspace)
    return _line_alone(lambda payload, row: encoder.encode([dict(payload)], row, heard))


def prompt_lines(store: Store) -> Again:
    """How a line of prompts is tokenized again."""
    workspace, family = store.workspace, store.workspace.family(Rl)
    template, reasoning, encoder = workspace.template(family), inline_reasoning(workspace, family), prompt_encoder(workspace)

    def look(payload: Mapping[str, Any], row: int) -> None:
        for _, fault in encoder.encode([generation_prompt(template, reasoning, dict(payload))]).refused:
            raise fault

    return _line_alone(look)


def documents(store: Store, second: Second) -> Reasons:
    """How documents are looked at again."""
    workspace, family = store.workspace, store.workspace.family(Pretrain)
    if family.image_token is not None or "trained_tokens" in store.manifest.counts:
        return _one_by_one(_masked_documents(store, second))
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
        # the cut parts of a document have three sentinels between them, and may be a few tokens longer than the whole
        if options.max_seq_len is not None and len(ids) + (8 if fim.rate else 0) > options.max_seq_len:
            raise Refused("too_long", "", stage="tokenize")

    return _one_by_one(judge)


def _masked_documents(store: Store, second: Second) -> Judge:
    workspace, family = store.workspace, store.workspace.family(Pretrain)
    images = ImageParts.of_domain(workspace, family, second.domain)
    documents, heard = MaskedDocuments(untemplated(workspace, family), images, family), Heard()
    encoder = Encoder(workspace.vocabulary(family), workspace.engines(family), POLICY, trains=False)

    def judge(item: Item) -> None:
        encoded = encoder.encode(documents.render([item], heard)[1])
        for _, fault in (*encoded.refused, *documents.too_long(encoded.kept, np.diff(encoded.offsets)).items()):
            raise fault

    return judge


def chats(store: Store, second: Second) -> Reasons:
    """How chats are looked at again."""
    noted = Noted()
    conversations = conversations_of(store.workspace, second.domain, noted)

    def reasons(items: Sequence[Item]) -> list[str]:
        noted.reasons.clear()
        conversations.encode(items)
        return [noted.reasons.get(item.id, "") for item in items]

    return reasons


def pairs(store: Store, second: Second) -> Reasons:
    """How pairs are looked at again."""
    reasoning, form = unrendered_reasoning(store.workspace.family(Preference)), form_of(store.directory)
    return _one_by_one(lambda item: preference_row(reasoning.read(item.example), form))


def contrasts(store: Store, second: Second) -> Reasons:
    """How contrastive rows are looked at again."""
    judged = JudgedContrasts(store.workspace)
    return _one_by_one(lambda item: judged.row(item.example))


def prompts(store: Store, second: Second) -> Reasons:
    """How prompts are looked at again."""
    reasoning, form = unrendered_reasoning(store.workspace.family(Rl)), form_of(store.directory)
    return _one_by_one(lambda item: prompt_row(prompt_of(reasoning.read(item.example)), form))


def groups(store: Store, second: Second) -> Reasons:
    """How groups are looked at again."""
    tokenize, heard = Tokenize(store.workspace, second.name), Heard()
    return _one_by_one(lambda item: list(tokenize([item], heard)))


# `selection`: every row of the sources is stored where it belongs, or refused for a reason that holds.

Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of the rows that a store, or a part of one, is made from.

    Attributes:
        verdict: of where they are.
        found, unnamed: see `Fields`: in how many rows fields hold something, and which of those that are passed over have no name.
        quarantine: lines of the quarantine of the whole store.
        digests, came: of a part, see `Believed`.
    """

    verdict: Verdict
    found: Counter[str]
    unnamed: set[str]
    quarantine: int
    digests: bytes = b""
    came: bytes = b""


class Selection:
    """The check of a store that is made from the rows of one domain, or of a part of it: its rows go by while other checks look at them as well."""

    def __init__(self, store: Store) -> None:
        self.store, part = store, store.part
        self.second = Second.of(store, store.partition)
        lines: Refusals = store.once("refusals", partial(refusals_of, store, self.second.names))
        refusals = lines if part is None else lines.within(part.begin, part.end)
        self._lines, self._believed = len(lines), Believed(set() if part is None else refusals.duplicates())
        source, domain, claimed = rows_of(store), self.second.domain, store.manifest.counts.get("fields_passed_over", {})
        self._fields = Fields(store.partition, claimed.get(store.partition, {}), domain.ignore, self._passed_over)
        self._reader = converter(domain, source.gives)
        self.rules: Rules = store.once("rules", self._made_rules)
        looks: tuple[Callable[[Mapping[str, Any]], bytes], Again] = store.once(
            "looks", lambda: (source.content(store, self.second), alone(store, source, self.second))
        )
        fraction = getattr(store.family, "test_fraction", 0.0)
        self.ledger = Ledger(refusals, stored_of(store), self.second.held_out, *looks, fraction, self._fields.add_rows)

    def _made_rules(self) -> Rules:
        family, messages = self.store.family, self.second.messages(rows_of(self.store).gives)
        limit = getattr(family, "max_per_source", None)
        return self.second.rules(deduplicate=family.preprocessing.deduplicate, limit=limit, messages=messages)

    def _passed_over(self, row: Mapping[str, Any]) -> Set[str]:
        """Paths of the fields of a row that its schema passes over, asked again; none of a row that it refuses."""
        self._reader.account.counts.clear()
        with suppress(Refused):
            apply(self._reader, row)
        return set(self._reader.account.counts)

    def blocks(self) -> Iterator[Selected]:
        """The rows, each block once it has been judged."""
        part, messages = self.store.part, self.rules.messages if self.rules.every else None
        yield from self.ledger.judged(select(self.second.rows(part, messages), self.rules, None if part is None else self._believed))

    def judged(self) -> Judged:
        """What was found, once all rows have gone by."""
        believed, fields = self._believed, self._fields
        return Judged(self.ledger.verdict(), fields.found, fields.unnamed, self._lines, bytes(believed.digests), bytes(believed.came))

    def verdict(self, found: Judged) -> Verdict:
        """The verdict on a whole store: of where its rows are, and of what its manifest counts."""
        if not found.verdict.passed:
            return found.verdict
        self._fields.found, self._fields.unnamed = found.found, found.unnamed
        faults = books(self.store.manifest.counts, found.verdict.numbers) + self._fields.faults(self._good)
        return Verdict(False, "; ".join(faults), found.verdict.numbers, Worst("manifest", faults[0])) if faults else found.verdict

    def _good(self) -> Iterator[Mapping[str, Any]]:
        """The rows that the schema is given."""
        for block in select(self.second.rows(), self.rules):
            yield from (payload for payload, fate in zip(block.payloads, block.fates, strict=True) if payload is not None and fate == GOOD)

    def of_parts(self, parts: Iterable[Judged]) -> Verdict:
        """The verdict on a whole store, of what was found of its parts, in order.

        Raises:
            Unsound: a part is not as it must be, or they contradict each other.
        """
        numbers, rows, unnamed = Counter[str](), Counter[str](), set[str]()
        digests, came, quarantine = Spool(np.uint64), Spool(bool), set[int]()
        for part in parts:
            if not part.verdict.passed:
                raise Unsound
            numbers.update(part.verdict.numbers)
            rows += part.found
            unnamed |= part.unnamed
            digests.append(np.frombuffer(part.digests, np.uint64))
            came.append(np.frombuffer(part.came, bool))
            quarantine.add(part.quarantine)
        if quarantine != {numbers["rows_refused"]} or not beliefs_hold(digests.array().reshape(-1, 2), came.array()):
            raise Unsound
        return self.verdict(Judged(balanced(self.ledger.numbers | numbers), rows, unnamed, numbers["rows_refused"]))


def rows_of(store: Store) -> FromRows:
    """How the rows that a store is made from are read again."""
    assert isinstance(store.asset.source, FromRows)
    return store.asset.source


def line_selection(store: Store) -> Verdict:
    """Go through the lines that a store's tokens are made from."""
    streams, source = store.streams(), store.asset.source
    assert isinstance(source, FromLines)
    paths = [store.above(asset, store.partition).directory / f"{name}.jsonl" for asset, name in source.files.values()]
    # a file without lines has no stream
    having = [(number, streams[stream].row) for number, stream in enumerate(source.files) if stream in streams]
    place = joined_columns([_places(np.broadcast_to(number, len(rows)), rows) for number, rows in having])
    refusals = refusals_of(store, [path.name for path in paths])
    ledger = Ledger(refusals, Stored.of(place, zeros(len(place), bool)), [False] * len(paths), canonical_json, source.again(store))

    def rows(path: Any) -> Iterator[Any]:
        with path.open("rb") as file:
            yield from read_rows(file, "jsonl", None, messages=source.columns)

    files = ((number, False, rows(path)) for number, path in enumerate(paths))
    deque(ledger.judged(block for each in files for block in select([each], Rules(deduplicate=False))), 0)
    return ledger.verdict()


LINE_SELECTION = Check(
    "selection", "Every line that these tokens are made from is there once, or refused once for a reason that holds.", line_selection
)


def refusals_of(store: Store, files: tuple[str, ...] | list[str]) -> Refusals:
    """The quarantine of a store, in columns; `files`: the names of what it is made from."""
    lines = read_quarantine(store.published.quarantine) if store.published.quarantine else ()
    return Refusals(((line.id, f"{line.stage}/{line.reason}") for line in lines), files)


def stored_of(store: Store) -> Stored:
    """The records of a store of one domain, over all parts of it."""
    place, held, belonging = list[Column](), list[Column](), list[Column]()
    for is_held_out, file, row, belongs in _parts(store):
        place.append(_places(file, row))
        held.append(np.full(len(row), is_held_out))
        belonging.append(np.full(len(row), -1, np.int8) if belongs is None else belongs)
    return Stored.of(joined_columns(place), joined_columns(held, bool), joined_columns(belonging, np.int8))


def _parts(store: Store) -> Iterator[tuple[bool, Column, Column, Column | None]]:
    """Of each stream: whether it is held out, file and row of its records that are of the one domain, and what `Stored.belongs` is."""
    if store.holds(GroupStore):
        for split, folder in splits(store.directory).items():
            groups = open_groups(folder)
            mine = where(equals(groups.source, 0))
            yield split == TEST, at(groups.prompts.file, mine), at(groups.prompts.row, mine), None
    elif store.holds(Lines):
        fraction, plain = getattr(store.family, "test_fraction", 0.0), rows_of(store).plain
        for path in sorted(store.directory.glob("*.jsonl")):
            lines = open_lines(store.directory, path.stem)
            mine, prompts = where(equals(lines.index["source"], 0)), map(asked, lines.written())
            belongs = np.fromiter((held_out(each, fraction, plain) for each in prompts) if fraction else repeat(0, len(lines)), np.int8)
            yield path.stem.endswith("_test"), at(lines.index["file"], mine), at(lines.index["row"], mine), at(belongs, mine)
    else:
        several = store.recipe.get("expand") == "turns"
        for name, stream in store.streams().items():
            file, row = (where(stream.begins_row, each) if several else each for each in (stream.file, stream.row))
            yield name.endswith("dev"), file, row, None


def _places(file: Column, row: Column) -> Column:
    return made(len(row), lambda part: places(file[part], row[part]))


# Row integrity of token streams, whatever the family.


def token_rows(store: Store) -> Verdict:
    """The rows of every stream, and the images in them."""
    streams, size = store.streams().values(), store.vocabulary.size
    return together(chain((check_records(each, vocabulary_size=size) for each in streams), image_verdicts(store, streams)))


PLAIN_ROWS = Check("row_integrity", "Ids are inside the vocabulary.", token_rows)


def image_verdicts(store: Store, streams: Iterable[TokenStore | PackedStore]) -> Iterator[Verdict]:
    """Whether images stand where the image token does; nothing where the family refuses images."""
    token = stored_image_id(store.workspace, store.family)
    rule = store.workspace.image_rule(store.family)
    yield from () if token is None else (check_images(each, token, rule) for each in streams)


# The checks that derive a store anew from its sources: these are read a second time, once for all of them, whole or in parts.

T = TypeVar("T")
Reader = Callable[[Iterator[Rows]], Any]
"""Is given the rows of a store's sources in order, once, and tells what it found. It may stop before the last."""
Outcome = Verdict | Exception
SELECTION_NAME = "selection"


class Derivation:
    """What a kind of store says of its second derivation; a check that is carried out in parts says as well what travels, and how it is joined.

    Attributes:
        names: of its checks.
    """

    names: ClassVar[tuple[str, ...]]

    def __init__(self, store: Store) -> None:
        self.store = store

    def source_rows(self) -> Iterator[Rows]:
        """The rows of the store's sources, for who wants some of them and no verdict."""
        return map(readable, _blocks(self.store))

    def readers(self) -> Sequence[Reader]:
        """What looks at the rows, each in a thread of its own."""
        raise NotImplementedError

    def verdicts(self, found: Sequence[Any]) -> Mapping[str, Verdict]:
        """What its checks say, given what its readers found of the whole store: where each gives a verdict, all of them as one."""
        return {self.names[0]: together(found)}

    def part(self, found: Sequence[Any]) -> Any:
        """What travels of what was found of a part; or `Unsound`."""
        raise NotImplementedError

    def joined(self, parts: Sequence[Any]) -> Sequence[Any]:
        """What the readers found of the whole store, of that."""
        raise NotImplementedError


def derived(name: str, description: str) -> Check:
    """A check that is carried out with the others of the store that read its sources."""
    return Check(name, description, partial(_said, name=name), derived=True)


def _said(store: Store, *, name: str) -> Verdict:
    """The verdict of one check; those of all that are asked for in one run come of one reading."""
    known: dict[str, Outcome | None] = {} if store.published.evidence is None else store.published.evidence
    if known.get(name) is None:
        known |= outcomes(store, {check.name for check in store.asset.checks if check.derived and check.name in {name, *known}})
    if isinstance(outcome := known[name], Verdict):
        return outcome
    assert outcome is not None
    raise outcome


SELECTION = derived(
    SELECTION_NAME,
    "Every row of the sources, read again by other code, is stored once on its side of the split, or refused once for a reason that holds.",
)


def outcomes(store: Store, names: Collection[str]) -> dict[str, Outcome]:
    """What each of some checks says of a whole store, or raises."""
    found, derivations = dict[str, Outcome](), list[Derivation]()
    selection = _made(found, (SELECTION_NAME,), partial(Selection, store)) if SELECTION_NAME in names else None
    for kind in store.asset.derivations:
        if {*kind.names} & {*names}:
            made = _made(found, kind.names, partial(kind, store))
            derivations += [made] if made is not None else []
    looked, fault = _looked(store, selection, derivations)
    if fault is not None and selection is not None and derivations:
        # what stops the rows from being judged is no fault of what is made from them
        return outcomes(store, {*names} - {SELECTION_NAME}) | {SELECTION_NAME: fault}
    if selection is not None and fault is not None:
        found[SELECTION_NAME] = fault
    elif selection is not None:
        found |= _made(found, (SELECTION_NAME,), lambda: {SELECTION_NAME: selection.verdict(selection.judged())}) or {}
    for each, results in zip(derivations, looked, strict=True):
        if (error := next((result for result in results if isinstance(result, Exception)), None)) is not None:
            found |= dict.fromkeys(each.names, error)
        else:
            found |= _made(found, each.names, partial(each.verdicts, results)) or {}
    return found


def _made(found: dict[str, Outcome], names: Iterable[str], make: Callable[[], T]) -> T | None:
    """What is made for some checks; `None` where that fails, which is then what these raise."""
    try:
        return make()
    except Exception as error:  # whatever a damaged store makes a reader raise
        found |= dict.fromkeys(names, error)
        return None


def _looked(store: Store, selection: Selection | None, derivations: Sequence[Derivation]) -> tuple[list[list[Any]], Exception | None]:
    """What the readers of each derivation found, and what stopped the reading."""
    readers = [each.readers() for each in derivations]
    every = [reader for some in readers for reader in some]
    if selection is None and not every:
        return [[] for _ in readers], None
    results, fault = told(map(readable, selection.blocks() if selection is not None else _blocks(store)), every)
    each = iter(results)
    return [[next(each) for _ in some] for some in readers], fault


def _blocks(store: Store) -> Iterator[Any]:
    """The rows of a store, which nobody judges."""
    second = Second.of(store, store.partition)
    return select(second.rows(store.part, second.messages(rows_of(store).gives)), Rules(deduplicate=False))


def told(items: Iterator[T], readers: Sequence[Callable[[Iterator[T]], Any]]) -> tuple[list[Any], Exception | None]:
    """All items to several readers: what each returns or raises, and what `items` raised. All items are read, whether or not a reader wants them; the next
    is made while the readers look at the last one, one of them after the other."""
    fault: Exception | None = None
    with ThreadPoolExecutor(max(1, len(readers)), "derives") as pool, closing(ahead(items)) as made:
        listeners = [_Listener(pool, reader) for reader in readers]
        try:
            for item in made:
                for listener in listeners:
                    listener.tell((item,))
        except Exception as error:
            fault = error
        finally:
            for listener in listeners:
                listener.end(fault)
        return [listener.future.exception() or listener.future.result() for listener in listeners], fault


class _Listener:
    """A reader in a thread of its own, which waits for the next item unless it is told one."""

    def __init__(self, pool: ThreadPoolExecutor, reader: Callable[[Iterator[Any]], Any]) -> None:
        self._asked, self._given = SimpleQueue[None](), SimpleQueue[Any]()
        self.future = pool.submit(reader, self._items())
        self.future.add_done_callback(lambda _: self._asked.put(None))
        self._asked.get()

    def _items(self) -> Iterator[Any]:
        while True:
            self._asked.put(None)
            if not isinstance(item := self._given.get(), tuple):
                break
            yield item[0]
        if item is not None:
            raise item

    def tell(self, item: tuple[Any]) -> None:
        """Return once the reader wants another item, or none any more."""
        if not self.future.done():
            self._given.put(item)
            self._asked.get()

    def end(self, fault: Exception | None) -> None:
        """There are no more, for this reason."""
        self._given.put(fault)
        wait([self.future])


# -- parts ------------------------------------------------------------------------------------------------------------------------------


def part_of(store: Store) -> list[Any]:
    """What is found of a part of a store, which travels to the process that joins.

    Raises:
        Exception: `Unsound`, or whatever a damaged store makes a reader raise.
    """
    selection, derivations = Selection(store), [kind(store) for kind in store.asset.derivations]
    looked, fault = _looked(store, selection, derivations)
    for error in (fault, *(result for results in looked for result in results)):
        if isinstance(error, Exception):
            raise error
    return [selection.judged(), *(each.part(results) for each, results in zip(derivations, looked, strict=True))]


def joined(store: Store, parts: Iterable[list[Any]]) -> dict[str, Verdict]:
    """The verdicts on a whole store, of what was found of all its parts, in order.

    Raises:
        Unsound: a part is not as it must be, or they contradict each other.
    """
    derivations, listed = [kind(store) for kind in store.asset.derivations], list[list[Any]]()

    def rows() -> Iterator[Any]:
        for of_rows, *found in parts:
            listed.append(found)
            yield of_rows

    said = {SELECTION_NAME: Selection(store).of_parts(rows())}
    for number, each in enumerate(derivations):
        said |= each.verdicts(each.joined([found[number] for found in listed]))
    if not all(verdict.passed for verdict in said.values()):
        raise Unsound
    return said
