"""Checks of tokenized conversations: chats, and both sides of preference pairs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from prep_assets.checks.relations import Derivation, Judge, has_few_tokens, is_small
from prep_assets.checks.selection import chats as chats_again
from prep_assets.checks.sources_again import StoredRows, as_example, domain_source, example_of, files_of, stored_rows, streams_of
from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed, Refused, StoreError
from prep_assets.pipeline.asset import Reasons, Store
from prep_assets.pipeline.examples import Item, converter
from prep_assets.proofs.certificate import writes_unserved
from prep_assets.proofs.chat_blocks import Claims, PlainBlocks, PlainDerivation
from prep_assets.proofs.derive import Derived, MaskOptions, derive, examples_again
from prep_assets.proofs.mask import (
    UNWEIGHED,
    Conversation,
    IdentityProof,
    Left,
    MaskProof,
    Truncation,
    expected_ids,
    ids_of,
    left_of,
    straddled,
)
from prep_assets.proofs.plain_reading import CallingChats, ReadRows
from prep_assets.proofs.rebuilt import render_again
from prep_assets.proofs.reference_ids import reference_ids
from prep_assets.proofs.second_reading import read_again, shown_by, typed_tokens, untyped
from prep_assets.proofs.tokenized import left_of_tokenized, splits_character, tokenized_again
from prep_assets.proofs.verdict import Verdict, Worst, combined
from prep_assets.proofs.words import joined
from prep_assets.samples import MEDIA, PlainChat, Sample, changed
from prep_assets.schemas.reader import PlainMessages
from prep_assets.stores.table import Table
from prep_assets.text.chats import plain_chat
from prep_assets.text.template import ChatTemplate

MASKED = "Trained tokens decode to exactly the assistant's texts and their stop token, on every row; derived without the code that made the mask."
IDENTITY = "Every row's tokens decode to a fresh render of its source; its control tokens are those that the template wrote, none typed by anybody."
"""Descriptions of `mask_alignment` and `tokenization_identity` for conversations."""

# Chats, and the sides of preference pairs. One reading of the source serves both proofs.

T = TypeVar("T")
MASKS = "mask_alignment"
BLOCK_TOKENS = 1 << 20
Source = Sample | PlainChat
"""A conversation ready to render, or in columns as in its row, not yet processed."""
Proven = tuple[Verdict, frozenset[str], Verdict]
"""Of a stream: the verdict on its masks, its stop tokens, the verdict on its ids."""


Sources = tuple[Sequence[Source], Callable[[int], str]]
"""Of some records: the source of each, and what gives their ids."""


class Sourced(NamedTuple):
    """A record of a stream: its number, its id and its source."""

    number: int
    id: str
    source: Source


class Conversations(Derivation):
    """Derives what conversations must have become; subclasses read their sources.

    Attributes:
        derivation: what a sample must have become, before truncation.
        truncation: how long conversations are cut.
    """

    derivation: PlainDerivation
    truncation: Truncation

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.vocabulary = store.vocabulary

    def read(self, side: str, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> Sequence[Source]:
        """Return the sources of rows, for the stream of a side; `identity` maps an index to an id."""
        raise NotImplementedError

    def sample(self, chat: PlainChat) -> Sample:
        """Return the sample that a build renders for a chat in columns."""
        raise NotImplementedError

    def identity(self, rows: StoredRows, at: int) -> str:
        """Return the id of a record."""
        return rows.identity(at)

    def sources(self, name: str, rows: StoredRows) -> Sources:
        """Return the sources of the records of some rows of a stream."""
        identity = partial(self.identity, rows)
        return self.read(name.rpartition("/")[2], rows.payloads, identity), identity

    def examples(self, name: str, only: Sequence[int] | None = None) -> Iterator[Sourced]:
        """Yield the records of a stream; `only` some, with all records of the same rows."""
        [stream] = (each for each in streams_of(self.store) if each.name == name)
        chosen: Sequence[int] | npt.NDArray[np.int64] = range(len(stream))
        if only is not None:
            rows = np.cumsum(stream.origins.begins_row)
            chosen = np.flatnonzero(np.isin(rows, rows[np.asarray(only, np.int64)]))
            stream = stream.some(chosen)
        for joined in stored_rows(self.store, stream):
            sources, identity = self.sources(name, joined)
            for at, source in enumerate(sources):
                yield Sourced(int(chosen[joined.first + at]), identity(at), source)

    def left(self, source: Source, length: int) -> Left:
        """Return what a record must be, given its source and its length in tokens."""
        sample = self.sample(source) if isinstance(source, PlainChat) else source
        if sample.tokenized is not None:
            return left_of_tokenized(sample, self.truncation, self.derivation, self.vocabulary)
        return left_of(sample, length, self.truncation, self.derivation, self.vocabulary)

    def rows(self, name: str, only: Sequence[int] | None = None) -> Iterator[tuple[int, Conversation]]:
        """Yield the number of each record, or of `only` some, and what both proofs take of it."""
        stream = self.store.streams()[name]
        for number, identity, source in self.examples(name, only):
            ids = stream.record(number, "tokens")
            yield number, Conversation(identity, ids, stream.weights_of(number), self.left(source, len(ids)))

    def judges(self) -> Sequence[tuple[Table | None, Judge]]:
        """Both proofs of each stream."""
        return [(stream, _Blocks(self, stream)) for stream in streams_of(self.store)]

    def verdicts(self, results: Sequence[Proven]) -> Mapping[str, Verdict]:
        """The verdicts on all streams; ids fail where truncation took another number of tokens than the manifest counts."""
        masks, _, identities = zip(*results, strict=True)
        identity = combined(identities)
        counted, taken = (int(counts.get("tokens_cut_away", 0)) for counts in (self.store.manifest.counts, identity.numbers))
        if identity.passed and counted != taken:
            detail = f"truncation took {taken:,} tokens, the manifest counts {counted:,}"
            identity = Verdict(False, detail, identity.numbers, Worst("counts", detail))
        counted, typed = (int(counts.get("control_tokens_in_content", 0)) for counts in (self.store.manifest.counts, identity.numbers))
        refuses = self.store.recipe.get("special_in_content") == "refuse"
        if identity.passed and self.store.asset.family == "sft" and typed > (0 if refuses else counted):
            detail = f"{typed:,} control tokens are typed in stored rows, and the manifest counts {counted:,}"
            identity = Verdict(False, detail, identity.numbers, Worst("counts", detail))
        mask, key = combined(masks), "unserved_prompts"
        counted, unserved = (int(counts.get(key, 0)) for counts in (self.store.manifest.counts, mask.numbers))
        # a build counts by form: it finds none where only words of a text make a prompt another one
        if (
            mask.passed
            and self.store.asset.family == "sft"
            and counted != unserved
            and (counted or writes_unserved(self.derivation.template))
        ):
            detail = f"{unserved:,} trained answers stand behind a prompt that no server sends, the manifest counts {counted:,}"
            mask = Verdict(False, detail, mask.numbers, Worst("counts", detail))
        return {MASKS: mask, "tokenization_identity": identity}

    def sound(self, results: Sequence[Proven]) -> bool:
        """See `Derivation.sound`."""
        return all(masks.passed and identities.passed for masks, _, identities in results)

    def merged(self) -> Sequence[Proven]:
        """See `Derivation.merged`."""
        streams = []
        for parts in zip(*self._parts, strict=True):
            masks, identities = MaskProof(self.vocabulary), IdentityProof(self.vocabulary)
            for mask, stops, identity in parts:
                masks.proven(mask.numbers, stops)
                identities.proven(identity.numbers)
            streams.append((masks.verdict(), frozenset(masks.stops), identities.verdict()))
        return streams


class _Blocks:
    """Proves the masks and ids of a stream in blocks. Chats that hold a tag of reasoning, or of a call, are proven one by one."""

    def __init__(self, conversations: Conversations, stream: Table) -> None:
        vocabulary, store = conversations.vocabulary, conversations.store
        self._of, self._name, self._stream, self._lengths = conversations, stream.name, stream, stream.lengths
        self._masks, self._identities = MaskProof(vocabulary), IdentityProof(vocabulary, whole=has_few_tokens(store))
        tags = [*(tag for pair in store.recipe["reasoning_tags"] for tag in pair), "<tool_call>", "<tool_response>"]
        self._plain = PlainBlocks(conversations.derivation, self._masks, self._identities, (*vocabulary.control, *tags))
        self._block, self._tokens = list[tuple[StoredRows, Sources]](), 0

    def add(self, rows: StoredRows) -> None:
        """See `Judge`."""
        tokens = int(self._lengths[rows.first : rows.first + len(rows)].sum())
        if self._block and self._tokens + tokens > BLOCK_TOKENS:
            self._prove()
        self._block.append((rows, self._of.sources(self._name, rows)))
        self._tokens += tokens

    def result(self) -> Proven:
        """See `Judge`."""
        if self._block:
            self._prove()
        return self._masks.verdict(), frozenset(self._masks.stops), self._identities.verdict()

    def _prove(self) -> None:
        block, stream, of = self._block, self._stream, self._of
        self._block, self._tokens = [], 0
        sources = [source for _, (own, _) in block for source in own]
        records = slice(block[0][0].first, block[0][0].first + len(sources))
        sizes, column = self._lengths[records], stream.columns["tokens"]
        span = column.span(records)
        ids, mask = np.asarray(column.values[span]), stream.weights("tokens", span)
        assert mask is not None
        proven = np.zeros(len(sources), bool)
        spelled = [None if of.derivation.alone else rows.spelled for rows, _ in block]
        if len(known := [*filter(None, spelled)]) == len(block):
            whole = map(of.truncation.leaves_whole, sizes.tolist())
            proven = self._plain.prove(
                [source if is_whole else None for is_whole, source in zip(whole, sources, strict=True)],
                Claims(sizes, ids, mask, joined(known), np.cumsum(sizes) - sizes),
            )
        ends, alone = np.cumsum(sizes).tolist(), list[Conversation]()
        firsts = [rows.first - records.start for rows, _ in block]
        for at in np.flatnonzero(~proven).tolist():
            number, tokens = bisect_right(firsts, at) - 1, slice(ends[at] - int(sizes[at]), ends[at])
            identity = block[number][1][1](at - firsts[number])
            alone.append(Conversation(identity, ids[tokens], mask[tokens], of.left(sources[at], int(sizes[at]))))
        self._masks.add(alone)
        self._identities.add(alone)


class Chats(Conversations):
    """What the chats of an SFT store must have become."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        recipe, self.template = store.recipe, store.workspace.template(store.workspace.family(Sft))
        self._options, self._typed = MaskOptions.of(recipe), recipe["special_in_content"] == "allow"
        self.derivation = PlainDerivation(self._options, self.template, typed_controls=self._typed, prompts=True, alone=is_small(store))
        limit = recipe["preprocessing"]["max_seq_len"]
        self.truncation = Truncation(recipe["truncation"], limit, recipe["truncation_keeps_stop"], recipe["truncation_keeps"])
        self._domain = domain_source(store).domain
        self._convert, self._images = converter(self._domain, Sample), files_of(store).ready_again
        unchanged = self._domain.speaker_names == "keep" and self._domain.weigh is None  # what the schema gives
        self._calling = CallingChats.of(self._domain.schema_name, self._domain.options, self._domain.ignore) if unchanged else None
        self._stripped = typed_tokens(self.vocabulary.control) if recipe["special_in_content"] == "strip" else None

    def sample(self, chat: PlainChat) -> Sample:
        """Split off reasoning, and strip control tokens where the configuration does."""
        return self.treated(chat.sample())

    def treated(self, sample: Sample) -> Sample:
        """Return the example of a row as a build renders it."""
        again = read_again(self._images(sample), self.store.recipe, **shown_by(self.template))
        return again if self._stripped is None else untyped(again, self._stripped)

    def read(self, side: str, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> Sequence[Source]:
        """Convert the rows with their schema, apart from those that hold chats as most write them."""
        read = [self.treated(chat) if isinstance(chat, Sample) else chat for chat in self.said(payloads)]
        converted = iter(self._convert.rows([payload for payload, source in zip(payloads, read, strict=True) if source is None]))
        return [source or self._source(next(converted), payloads[at], identity(at)) for at, source in enumerate(read)]

    def said(self, payloads: Sequence[Mapping[str, Any]]) -> list[Source | None]:
        """Return the chats of rows by a second reading, as a schema gives them; `None` where only the schema can say."""
        plain, calling = self._plain_rows(payloads), self._calling
        if calling is None:
            return [*plain]
        return [calling.read(payload) if chat is None else chat for payload, chat in zip(payloads, plain, strict=True)]

    def contradicts(self, reason: str, example: object) -> bool:
        """Whether the second derivation shows that a reason for rejecting an example does not hold."""
        if reason == SPLIT and isinstance(example, Sample) and example.tokenized is not None:
            ids, weights = map(np.array, (example.tokenized.ids, example.tokenized.weights))
            return not splits_character(ids, weights, self.vocabulary)
        if reason not in {*UNDERIVABLE, NOTHING_TO_TRAIN, NO_STOP, LOSSY, BORDER} or not isinstance(example, Sample | PlainChat):
            return False
        if reason == REFUSED and self.template.renderer is not None:  # of two implementations either may refuse a chat
            return False
        try:
            sample = self.sample(example) if isinstance(example, PlainChat) else self.treated(example)
            # of a text in several regions marks may be lost where a template strips white space that is not ASCII
            if sample.tokenized is not None or (reason == REWRITTEN and plain_chat(sample) is None):
                return False
            again = partial(derive, options=self._options, template=self.template, typed_controls=self._typed)
            expands = self.store.recipe["expand"] == "turns"
            return all(
                self._refutes(reason, again(each)) for each in (examples_again(sample, self.store.recipe, again) if expands else [sample])
            )
        except (CheckFailed, Refused, StoreError):
            return False

    def _refutes(self, reason: str, derived: Derived) -> bool:
        """Whether what an example must become shows that a reason does not hold."""
        if reason == NOTHING_TO_TRAIN:
            whole = self.truncation.limit is None or len(ids_of(derived, self.vocabulary)) <= self.truncation.limit
            return whole and any(stretch.weight > 0 for stretch in derived.expected)
        if reason == NO_STOP:
            return bool(derived.expected) and derived.expected[-1].stop != ""
        if reason == BORDER:
            return not straddled(derived, self.vocabulary)
        if reason == LOSSY:
            exact = self.vocabulary.token_bytes is not None
            return exact and self.vocabulary.decode(ids_of(derived, self.vocabulary)) == derived.text
        return True

    def _source(self, example: object, payload: Mapping[str, Any], identity: str) -> Source:
        return example if isinstance(example, PlainChat) else self._tokenized_again(as_example(example, identity, Sample), payload)

    def _plain_rows(self, payloads: Sequence[Mapping[str, Any]]) -> list[PlainChat | None]:
        """The chats of rows by a second reading; `None` where only the schema can say."""
        rows = payloads if isinstance(payloads, ReadRows) else ReadRows(payloads)
        chats: list[PlainChat | None] = [None] * len(rows)
        for numbers in rows.by_columns.values():
            plain = self._convert.plain(rows[numbers[0]])
            if not isinstance(plain, PlainMessages):
                continue
            read = rows.turns(plain.messages_key, plain.role_key, plain.content_key)
            known = {tags: tuple([plain.roles.get(tag, "") for tag in tags]) for tags in {turns[0] for turns in read if turns}}
            accepted = {tags: roles for tags, roles in known.items() if all(roles) and plain.accepts(roles)}
            for number in numbers:
                if (turns := read[number]) and turns[0] in accepted:
                    chats[number] = PlainChat(accepted[turns[0]], turns[1])
        return chats

    def _tokenized_again(self, sample: Sample, payload: Mapping[str, Any]) -> Sample:
        """Return a sample ready to render; a pretokenized one gets the ids of a second reading of its row."""
        again = tokenized_again(self._domain.schema_name, payload, self._domain.options) if sample.tokenized is not None else None
        if sample.tokenized is not None and again is not None:
            sample = changed(sample, tokenized=changed(sample.tokenized, ids=tuple(again[0]), weights=tuple(again[1])))
        return self.treated(sample)

    def sources(self, name: str, rows: StoredRows) -> Sources:
        """See `Conversations.sources`; with ``expand: turns`` a row may give several records."""
        if self.store.recipe["expand"] != "turns":
            return super().sources(name, rows)
        expanded, identities = list[Sample](), list[str]()
        for identity, listed in groupby(rows.records(), key=itemgetter(1)):
            numbers, _, payloads = zip(*listed, strict=True)
            sample = self._tokenized_again(example_of(self._convert, payloads[0], identity, Sample), payloads[0])
            again = partial(derive, options=MaskOptions(), template=self.template, prompts=True)
            samples = examples_again(sample, self.store.recipe, again) if sample.tokenized is None else [sample]
            if len(samples) != len(numbers):
                raise StoreError(f"{identity} is {len(numbers)} records of the store, and must be {len(samples)}")
            answers = [f"{identity}, answer {part + 1} of {len(samples)}" for part in range(len(samples))]
            expanded += samples
            identities += [identity] if len(samples) == 1 else answers
        return expanded, identities.__getitem__


# Rejected chats, judged by the second derivation as well: only the build's own code says the same twice.

NOTHING_TO_TRAIN, LOSSY, REWRITTEN = "tokenize/nothing_to_train", "tokenize/lossy_tokenizer", "render/template_rewrites_content"
NO_STOP = "render/no_stop_token"
BORDER, SPLIT = "tokenize/mask_border_inside_token", "tokenize/mask_splits_character"
REFUSED = "render/template_refuses"
UNDERIVABLE = {
    REWRITTEN,
    REFUSED,
    "render/generation_prompt_not_found",
    "render/stop_token_not_found",
    "render/mask_not_provable",
}
"""Reasons of records that no derivation can follow. Where the second one can, they do not hold."""


TOO_LONG = "tokenize/too_long"


def _fitting(chats: Chats, items: Sequence[Item]) -> list[bool]:
    """For each chat whether its render by transformers, tokenized by the reference, is no longer than `max_seq_len`, or what truncation must leave of it; false
    where it has files, ids, typed control tokens or texts without attention."""
    limit, typed = chats.store.recipe["preprocessing"]["max_seq_len"], typed_tokens(chats.vocabulary.control)
    fits, renders = [False] * len(items), dict[int, tuple[Sample, Derived]]()
    for at, item in enumerate(items):
        sample = item.example
        assert isinstance(sample, Sample)
        regions = [region for turn in sample.turns for region in turn.regions]
        bare = not any(region.kind in MEDIA or not region.attend or typed.search(region.text) for region in regions)
        if bare and sample.tokenized is None:
            with suppress(CheckFailed):
                text = render_again(treated := chats.treated(sample), chats.template)
                renders[at] = treated, Derived(text, (), tuple([match.span() for match in typed.finditer(text)]), 0, ())
    # most have more ids of known words alone than may be, so that only the others are tokenized
    reference, derived = reference_ids(chats.vocabulary), [each for _, each in renders.values()]
    pieces = [[piece.encode() for piece in typed.split(each.text) if piece] for each in derived]
    ends = np.cumsum([0, *reference.least([*chain.from_iterable(pieces)])])[np.cumsum([0, *map(len, pieces)])]
    may_fit = {at: each for at, each, least in zip(renders, derived, np.diff(ends), strict=True) if least <= limit}
    ids = dict(zip(may_fit, expected_ids([*may_fit.values()], chats.vocabulary, reference), strict=True))
    for at, (treated, _) in renders.items():
        fits[at] = at in ids and len(ids[at]) <= limit
        if not fits[at] and chats.truncation.mode != "drop":
            with suppress(CheckFailed):
                left = left_of(treated, limit, chats.truncation, chats.derivation, chats.vocabulary)
                fits[at] = left.ids is not None and len(left.ids) <= limit
    return fits


def rejected_chats(store: Store) -> Reasons:
    """Return a function that judges rejected chats again, by the build and by the second derivation; a reason that the latter contradicts, or that is one of
    another chat than a second reading of the row gives, is ``""``."""
    again = chats_again(store)
    derived = store.once("derived rejections", lambda: Chats(store))
    measured = store.recipe["expand"] != "turns"

    def reasons(items: Sequence[Item]) -> list[str]:
        said = derived.said([item.record.payload for item in items])
        misread = [
            chat is not None and (chat.sample() if isinstance(chat, PlainChat) else chat) != item.example
            for item, chat in zip(items, said, strict=True)
        ]
        found = ["" if is_wrong else reason for is_wrong, reason in zip(misread, again(items), strict=True)]
        why = [reason.partition(": ")[0] for reason in found]
        long = [at for at, reason in enumerate(why) if measured and reason == TOO_LONG]
        wrong = {at for at, fits in zip(long, _fitting(derived, [items[at] for at in long]), strict=True) if fits}
        return ["" if at in wrong or derived.contradicts(why[at], item.content) else found[at] for at, item in enumerate(items)]

    return reasons


def conversations_of(store: Store) -> Conversations | None:
    """Return what derives the masks of the conversations of a store; `None` where it holds none."""
    found = (check.derived for check in store.asset.checks if check.name == MASKS)
    kind = next((kind for kind in found if isinstance(kind, type) and issubclass(kind, Conversations)), None)
    return None if kind is None else kind(store)


def fresh_render(identity: str, ids: Any, sample: Sample, template: ChatTemplate) -> Conversation:
    """Return a record with a fresh render of its source."""
    derived = derive(sample, MaskOptions(), template)
    return Conversation(identity, ids, UNWEIGHED, Left(derived, ()))
