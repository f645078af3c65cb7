"""Checks of tokenized conversations: chats, both sides of preference pairs, scored groups, RL prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from prep_assets.checks.of_stores import ids_type
from prep_assets.checks.relations import Derivation, Judge, Pairs, has_few_tokens, is_small, relation
from prep_assets.checks.selection import chats as chats_again
from prep_assets.checks.sources_again import (
    StoredRows,
    StoredStream,
    as_example,
    domain_source,
    example_of,
    images_again,
    require_current,
    stored_rows,
    streams_of,
)
from prep_assets.config.models import Preference, Rl, Sft
from prep_assets.errors import CheckFailed, Refused, StoreError
from prep_assets.pipeline.asset import Check, FromLines, Reasons, Store
from prep_assets.pipeline.examples import Item, converter
from prep_assets.pipeline.groups import conversation_of, conversations, splits
from prep_assets.pipeline.lines import pair_sample, sample_of, turns_of, weighted
from prep_assets.proofs.certificate import writes_unserved
from prep_assets.proofs.chat_blocks import Claims, PlainBlocks, PlainDerivation, answers_derivation
from prep_assets.proofs.derive import Derived, MaskOptions, derive, examples_again
from prep_assets.proofs.groups import (
    Margin,
    Rollout,
    RunRow,
    Runs,
    Scores,
    Stepwise,
    calls_of_steps,
    calls_of_trace,
    check_margins,
    check_rewards,
    check_runs,
    check_sampled,
    check_steps,
)
from prep_assets.proofs.mask import (
    Conversation,
    IdentityProof,
    Left,
    MaskProof,
    MaskRow,
    Truncation,
    ids_of,
    left_of,
    straddled,
)
from prep_assets.proofs.plain_reading import PLAIN_PAIR, plain_turns, turns_of_rows
from prep_assets.proofs.rebuilt import render_again
from prep_assets.proofs.second_reading import group_again, read_again, shown_by
from prep_assets.proofs.tables import check_rows
from prep_assets.proofs.tokenized import left_of_tokenized, splits_character, tokenized_again
from prep_assets.proofs.verdict import Tally, Verdict, Worst, combined
from prep_assets.samples import ASSISTANT, MEDIA, USER, Group, PlainChat, Sample, changed
from prep_assets.schemas.reader import PlainMessages, rows_by_columns
from prep_assets.stores.groups import LOGPROBS, OF_RUNS, PROMPTS, RESPONSES, STEP_ENDS, STEP_REWARDS, GroupStore
from prep_assets.stores.table import open_stream
from prep_assets.text.chats import plain_chat
from prep_assets.text.conversation import control_pattern, treat
from prep_assets.text.template import ChatTemplate

MASKED = "Trained tokens decode to exactly the assistant's texts and their stop token, on every row; derived without the code that made the mask."
IDENTITY = "Every row's tokens decode to a fresh render of its source; its control tokens are those that the template wrote, none typed by anybody."
"""Descriptions of `mask_alignment` and `tokenization_identity` for conversations."""

# Chats, and the sides of preference pairs. One reading of the source serves both proofs.

T = TypeVar("T")
BLOCK_TOKENS = 1 << 20
Source = Sample | PlainChat
"""A conversation ready to render, or in columns as in its row, not yet processed."""
Proven = tuple[Verdict, frozenset[str], Verdict]
"""Of a stream: the verdict on its masks, its stop tokens, the verdict on its ids."""


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

    def sourced(self, name: str, rows: StoredRows) -> Iterator[Sourced]:
        """Yield the records of some rows of a stream with their sources."""
        identity = partial(self.identity, rows)
        for at, source in enumerate(self.read(name.rpartition("/")[2], rows.payloads, identity)):
            yield Sourced(rows.first + at, identity(at), source)

    def examples(self, name: str, only: Sequence[int] | None = None) -> Iterator[Sourced]:
        """Yield the records of a stream; `only` some, with all records of the same rows."""
        [stream] = (each for each in streams_of(self.store) if each.name == name)
        chosen: Sequence[int] | npt.NDArray[np.int64] = range(len(stream))
        if only is not None:
            rows = np.cumsum(stream.held.begins_row)
            chosen = np.flatnonzero(np.isin(rows, rows[np.asarray(only, np.int64)]))
            stream = structs.replace(stream, ends=stream.ends[chosen], file=stream.file[chosen], row=stream.row[chosen])
        for joined in stored_rows(self.store, stream):
            for number, identity, source in self.sourced(name, joined):
                yield Sourced(int(chosen[number]), identity, source)

    def left(self, source: Source, length: int) -> Left:
        """Return what a record must be, given its source and its length in tokens."""
        sample = self.sample(source) if isinstance(source, PlainChat) else source
        if sample.tokenized is not None:
            return left_of_tokenized(sample, self.truncation, self.derivation, self.vocabulary)
        return left_of(sample, length, self.truncation, self.derivation, self.vocabulary)

    def records(self, name: str, only: Sequence[int] | None = None) -> Iterator[tuple[int, str, Left]]:
        """Yield number, id and expected content of each record, or of `only` some."""
        lengths = self.store.streams()[name].lengths
        for number, identity, source in self.examples(name, only):
            yield number, identity, self.left(source, int(lengths[number]))

    def rows(self, name: str, only: Sequence[int] | None = None) -> Iterator[tuple[int, MaskRow]]:
        """Yield the number of each record, and the row that proves its mask."""
        stream = self.store.streams()[name]
        for number, identity, left in self.records(name, only):
            yield number, left.row(identity, stream.record(number, "tokens"), stream.weights(number))

    def renders(self, name: str) -> Iterator[Conversation]:
        """Yield each record with a fresh render of its source."""
        stream = self.store.streams()[name]
        for number, identity, left in self.records(name):
            yield left.conversation(identity, stream.record(number, "tokens"))

    def judges(self) -> Sequence[tuple[StoredStream | None, Judge]]:
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
        return {"mask_alignment": mask, "tokenization_identity": identity}

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

    def __init__(self, conversations: Conversations, stream: StoredStream) -> None:
        vocabulary, store = conversations.vocabulary, conversations.store
        self._of, self._name, self._stream, self._lengths = conversations, stream.name, stream.held, stream.held.lengths
        self._masks, self._identities = MaskProof(vocabulary), IdentityProof(vocabulary, whole=has_few_tokens(store))
        tags = [*(tag for pair in store.recipe["reasoning_tags"] for tag in pair), "<tool_call>", "<tool_response>"]
        self._plain = PlainBlocks(conversations.derivation, self._masks, self._identities, (*vocabulary.control, *tags))
        self._block, self._tokens = list[Sourced](), 0

    def add(self, rows: StoredRows) -> None:
        """See `Judge`."""
        tokens = int(self._lengths[rows.first : rows.first + len(rows.rows)].sum())
        if self._block and self._tokens + tokens > BLOCK_TOKENS:
            self._prove()
        self._block += self._of.sourced(self._name, rows)
        self._tokens += tokens

    def result(self) -> Proven:
        """See `Judge`."""
        if self._block:
            self._prove()
        return self._masks.verdict(), frozenset(self._masks.stops), self._identities.verdict()

    def _prove(self) -> None:
        block, stream, of = self._block, self._stream, self._of
        self._block, self._tokens = [], 0
        first, last = block[0].number, block[-1].number
        sizes = self._lengths[first : last + 1]
        tokens = slice(int(stream.ends[first]) - int(sizes[0]), int(stream.ends[last]))
        ids, mask = np.asarray(stream.arrays["tokens"][tokens]), stream.weights(tokens)
        whole = map(of.truncation.leaves_whole, sizes.tolist())
        sources = [source if is_whole else None for is_whole, (_, _, source) in zip(whole, block, strict=True)]
        proven = self._plain.prove(sources, Claims(sizes, ids, mask))
        ends, lefts = np.cumsum(sizes).tolist(), list[tuple[str, Left, slice]]()
        for at in np.flatnonzero(~proven).tolist():
            lefts.append((block[at].id, of.left(block[at].source, int(sizes[at])), slice(ends[at] - int(sizes[at]), ends[at])))
        self._masks.add(left.row(identity, ids[span], mask[span]) for identity, left, span in lefts)
        self._identities.add(left.conversation(identity, ids[span]) for identity, left, span in lefts)


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
        self._convert, self._images = converter(self._domain, Sample), images_again(store)
        self._stripped = control_pattern(self.vocabulary.control) if recipe["special_in_content"] == "strip" else None

    def sample(self, chat: PlainChat) -> Sample:
        """Split off reasoning, and strip control tokens where the configuration does."""
        return self.treated(chat.sample())

    def treated(self, sample: Sample) -> Sample:
        """Return the example of a row as a build renders it."""
        again = read_again(self._images(sample), self.store.recipe, **shown_by(self.template))
        return again if self._stripped is None else treat(again, self._stripped, "strip")[0]

    def read(self, side: str, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> Sequence[Source]:
        """Convert the rows with their schema, apart from those that hold plain messages and nothing else."""
        plain = self._plain_rows(payloads)
        converted = iter(self._convert.rows([payload for payload, chat in zip(payloads, plain, strict=True) if chat is None]))
        return [chat or self._source(next(converted), payloads[at], identity(at)) for at, chat in enumerate(plain)]

    def contradicts(self, reason: str, example: object) -> bool:
        """Whether the second derivation shows that a reason for rejecting an example does not hold."""
        if reason == SPLIT and isinstance(example, Sample) and example.tokenized is not None:
            ids, weights = map(np.array, (example.tokenized.ids, example.tokenized.weights))
            return not splits_character(ids, weights, self.vocabulary)
        if reason not in {*UNDERIVABLE, NOTHING_TO_TRAIN, LOSSY, BORDER} or not isinstance(example, Sample | PlainChat):
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
        chats: list[PlainChat | None] = [None] * len(payloads)
        for numbers in rows_by_columns(payloads).values():
            plain = self._convert.plain(payloads[numbers[0]])
            if not isinstance(plain, PlainMessages):
                continue
            read = turns_of_rows([payloads[number][plain.messages_key] for number in numbers], plain.role_key, plain.content_key)
            known = {tags: tuple([plain.roles.get(tag, "") for tag in tags]) for tags in {turns[0] for turns in read if turns}}
            accepted = {tags: roles for tags, roles in known.items() if all(roles) and plain.accepts(roles)}
            for number, turns in zip(numbers, read, strict=True):
                if turns and turns[0] in accepted:
                    chats[number] = PlainChat(accepted[turns[0]], turns[1])
        return chats

    def _tokenized_again(self, sample: Sample, payload: Mapping[str, Any]) -> Sample:
        """Return a sample ready to render; a pretokenized one gets the ids of a second reading of its row."""
        again = tokenized_again(self._domain.schema_name, payload, self._domain.options) if sample.tokenized is not None else None
        if sample.tokenized is not None and again is not None:
            sample = changed(sample, tokenized=changed(sample.tokenized, ids=tuple(again[0]), weights=tuple(again[1])))
        return self.treated(sample)

    def sourced(self, name: str, rows: StoredRows) -> Iterator[Sourced]:
        """See `Conversations.sourced`; with ``expand: turns`` a row may give several records."""
        if self.store.recipe["expand"] != "turns":
            yield from super().sourced(name, rows)
            return
        for identity, listed in groupby(rows.records(), key=itemgetter(1)):
            numbers, _, payloads = zip(*listed, strict=True)
            sample = self._tokenized_again(example_of(self._convert, payloads[0], identity, Sample), payloads[0])
            again = partial(derive, options=MaskOptions(), template=self.template, prompts=True)
            samples = examples_again(sample, self.store.recipe, again) if sample.tokenized is None else [sample]
            if len(samples) != len(numbers):
                raise StoreError(f"{identity} is {len(numbers)} records of the store, and must be {len(samples)}")
            answers = [f"{identity}, answer {part + 1} of {len(samples)}" for part in range(len(samples))]
            yield from map(Sourced, numbers, [identity] if len(samples) == 1 else answers, samples)


# Rejected chats, judged by the second derivation as well: only the build's own code says the same twice.

NOTHING_TO_TRAIN, LOSSY, REWRITTEN = "tokenize/nothing_to_train", "tokenize/lossy_tokenizer", "render/template_rewrites_content"
BORDER, SPLIT = "tokenize/mask_border_inside_token", "tokenize/mask_splits_character"
UNDERIVABLE = {
    REWRITTEN,
    "render/template_refuses",
    "render/generation_prompt_not_found",
    "render/stop_token_not_found",
    "render/mask_not_provable",
}
"""Reasons of records that no derivation can follow. Where the second one can, they do not hold."""


TOO_LONG = "tokenize/too_long"


def _fits(chats: Chats, item: Item) -> bool:
    """Whether a render of a chat by transformers, tokenized by the reference, is no longer than `max_seq_len`, or what truncation must leave of it; false where
    it has files, ids, typed control tokens or texts without attention."""
    sample, limit = item.example, chats.store.recipe["preprocessing"]["max_seq_len"]
    assert isinstance(sample, Sample)
    regions = [region for turn in sample.turns for region in turn.regions]
    if sample.tokenized is not None or any(region.kind in MEDIA or not region.attend for region in regions):
        return False
    typed = control_pattern(chats.vocabulary.control)
    if typed is not None and any(typed.search(region.text) for region in regions):
        return False
    treated = chats.treated(sample)
    try:
        if len(chats.vocabulary.backend.encode(render_again(treated, chats.template), add_special_tokens=False).ids) <= limit:
            return True
        if chats.truncation.mode == "drop":
            return False
        left = left_of(treated, limit, chats.truncation, chats.derivation, chats.vocabulary)
    except CheckFailed:
        return False
    return left.ids is not None and len(left.ids) <= limit


def rejected_chats(store: Store) -> Reasons:
    """Return a function that judges rejected chats again, by the build and by the second derivation; a reason that the latter contradicts is ``""``."""
    again = chats_again(store)
    derived = store.once("derived rejections", lambda: Chats(store))
    measured = store.recipe["expand"] != "turns"

    def reasons(items: Sequence[Item]) -> list[str]:
        found = [*again(items)]
        for at, (item, reason) in enumerate(zip(items, found, strict=True)):
            why = reason.partition(": ")[0]
            if derived.contradicts(why, item.content) or (measured and why == TOO_LONG and _fits(derived, item)):
                found[at] = ""
        return found

    return reasons


class Sides(Conversations):
    """What the sides of preference pairs must have become, derived from their lines."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._template = store.workspace.template(store.workspace.family(Preference))
        self.derivation = answers_derivation(self._template, alone=is_small(store))
        self.truncation = Truncation(store.recipe["truncation"], store.recipe["max_seq_len"])
        require_current(store, "pairs", f"preferences_by_domain[{store.partition}]")

    def read(self, side: str, payloads: Sequence[Mapping[str, Any]], identity: Callable[[int], str]) -> Sequence[Source]:
        """A prompt and one answer to it."""
        return [_plain_side(payload, side) or self._again(pair_sample(payload, side)) for payload in payloads]

    def sample(self, chat: PlainChat) -> Sample:
        """Only the answer, the last turn, is trained."""
        *prompt, answer = chat.sample().turns
        return self._again(Sample((*(weighted(turn, 0.0) for turn in prompt), weighted(answer, 1.0))))

    def _again(self, sample: Sample) -> Sample:
        return read_again(sample, self.store.recipe, **shown_by(self._template))

    def identity(self, stored: StoredRows, at: int) -> str:
        """Records are named by their lines."""
        return f"line {stored.rows[at] + 1}"


def _plain_side(row: Mapping[str, Any], side: str) -> PlainChat | None:
    """A prompt with an answer of one turn of an assistant, by a second reading; `None` for any other row."""
    prompt = plain_turns(row["prompt"], role=USER) if row.keys() <= PLAIN_PAIR else None
    answer = plain_turns(row[side], role=ASSISTANT) if prompt else None
    if prompt is None or answer is None or answer[0] != (ASSISTANT,):
        return None
    return PlainChat(prompt[0] + answer[0], prompt[1] + answer[1])


def margins(store: Store, stream: StoredStream) -> Callable[[StoredRows], Iterator[Margin]] | None:
    """Return what gives the margin of each pair, and that of its line; `None` for the rejected sides."""

    def pairs(rows: StoredRows) -> Iterator[Margin]:
        for number, identity, line in rows.records():
            stored = np.nan if stream.held.margins is None else float(stream.held.margins[number])
            yield Margin(f"line {identity.rpartition(':')[2]}", None if np.isnan(stored) else stored, line.get("margin"))

    return pairs if stream.name.endswith("chosen") else None


MARGINS = relation("margins", "The margin of every pair is that of its line, as float32.", (margins, lambda store: Tally(check_margins)))


def fresh_render(identity: str, ids: Any, sample: Sample, template: ChatTemplate, *, allowed: bool = False) -> Conversation:
    """Return a record with a fresh render of its source.

    Args:
        allowed: control tokens typed in the content count as control tokens.
    """
    derived = derive(sample, MaskOptions(), template, typed_controls=allowed)
    return Conversation(identity, ids, derived.text, derived.controls, derived.typed)


# Scored groups.


class StoredGroup(Struct, frozen=True):
    """A group of a store with its source, and what its proofs compare.

    Attributes:
        number: its number in the store.
        id: its record id.
        source: the group that its row gives.
        payload: the row.
    """

    store: Store
    stored: GroupStore
    number: int
    id: str
    source: Group
    payload: Mapping[str, Any]

    @property
    def records(self) -> Sequence[int]:
        """The numbers of its responses."""
        return self.stored.responses_of(self.number)

    def _responses(self) -> Iterator[tuple[str, Sample, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Yield id, conversation, ids and mask of each response with its prompt; none where ids were sampled.

        Raises:
            StoreError: another number of responses than in the source.
        """
        if self.source.sampled is not None:
            return
        try:
            samples = conversations(self.source)
        except Refused as refusal:
            raise StoreError(f"the store holds {self.id}, which cannot be read as a conversation: {refusal}") from refusal
        if len(self.records) != len(samples):
            raise StoreError(f"{self.id}: {len(self.records)} responses are stored, the source has {len(samples)}")
        for number, (record, sample) in enumerate(zip(self.records, samples, strict=True)):
            yield f"{self.id}, response {number}", sample, *self.stored.conversation(self.number, record)

    def rows(self) -> Iterator[MaskRow]:
        """Yield each response with its prompt, and what must be trained."""
        expected = self.store.once("answers", lambda: answers_derivation(_template(self.store), alone=is_small(self.store)))
        return (MaskRow(identity, ids, mask, expected(sample).expected) for identity, sample, ids, mask in self._responses())

    def renders(self) -> Iterator[Conversation]:
        """Yield each response with its prompt, and a fresh render of both."""
        return (fresh_render(identity, ids, sample, _template(self.store)) for identity, sample, ids, _ in self._responses())

    def prompts(self) -> Iterator[Conversation]:
        """Yield the prompt with a fresh render that ends with the generation prompt, where the response begins; nothing where its ids were sampled."""
        if self.source.sampled is None or self.source.sampled.prompt is None:
            ids = self.stored.prompts.record(self.number, "tokens")
            yield _prompted(self.store, f"{self.id}, prompt", ids, conversation_of(self.source, self.source.prompt))

    def scores(self) -> Iterator[Scores]:
        """Yield its rewards, and those of its source."""
        yield Scores(self.id, self.stored.rewards.record(self.number, "rewards"), len(self.records), self.source.rewards)

    def rollouts(self) -> Iterator[Rollout]:
        """Yield its rollouts where the source has sampled ids."""
        if self.source.sampled is not None:
            responses = self.stored.responses
            rollout = [{key: responses.record(record, key).tolist() for key in responses.arrays} for record in self.records]
            yield Rollout(self.id, self.stored.prompts.record(self.number, "tokens").tolist(), rollout, self.source.sampled)

    def runs(self) -> Iterator[Runs]:
        """Yield its rows where they are of runs of agents, with the calls of its row."""
        of_runs = self.stored.rewards.arrays.keys() & {*OF_RUNS}
        if not of_runs:
            return
        domain, rows = domain_source(self.store).domain, list[RunRow]()
        calls_of = calls_of_trace if domain.schema_name == "verifiers_trace" else calls_of_steps
        numbers = (self.stored.rewards.record(self.number, name).tolist() for name in OF_RUNS)
        for record, run, turn in zip(self.records, *numbers, strict=True):
            ids, mask = self.stored.conversation(self.number, record)
            has_logprobs = LOGPROBS in self.stored.responses.arrays
            logprobs = self.stored.responses.record(record, LOGPROBS).tolist() if has_logprobs else []
            rows.append(RunRow(run, turn, ids.tolist(), mask.tolist(), [0.0] * (len(ids) - len(logprobs)) + logprobs if logprobs else []))
        yield Runs(self.id, rows, calls_of(self.payload, domain.options))

    def stepwise(self) -> Iterator[Stepwise]:
        """Yield each response that is judged step by step, with what stands at the ends of its steps."""
        for number, (record, steps) in enumerate(zip(self.records, self.source.steps, strict=False)):
            ids, ends, rewards = (self.stored.responses.record(record, key) for key in ("tokens", STEP_ENDS, STEP_REWARDS))
            marked = np.flatnonzero(ends)
            texts = [self.store.vocabulary.decode(ids[: end + 1]) for end in marked]
            follows = [self.store.vocabulary.decode(ids[end + 1 : end + 2]) for end in marked[:-1]]
            elsewhere, sampled, places = int(np.count_nonzero(rewards[ends == 0])), self.source.sampled, None
            if sampled is not None and sampled.masks is not None:
                edges = pairwise([*sampled.masks[number], 0])
                places = marked.tolist(), [token for token, pair in enumerate(edges) if pair == (1, 0)]
            yield Stepwise(f"{self.id}, response {number}", texts, rewards[marked].tolist(), elsewhere, steps, places, [*follows, ""])


def groups_of(store: Store, stream: StoredStream) -> Callable[[StoredRows], Sequence[StoredGroup]]:
    """Return what gives the groups of a split with their sources; all checks take the same.

    Raises:
        StoreError: groups of another domain; later: a record of the store gives no group.
    """
    stored, family, name = stream.held, store.workspace.family(Rl), store.partition
    if list(stored.sources) != [name]:
        raise StoreError(f"its index has the domains {', '.join(stored.sources)}, it is of {name}")
    shown, convert = shown_by(_template(store)), converter(domain_source(store).domain, Group)

    @lru_cache(1)
    def groups(rows: StoredRows) -> list[StoredGroup]:
        found = list[StoredGroup]()
        for number, identity, payload in rows.records():
            group = example_of(convert, payload, f"{name}/{identity}", Group)
            found.append(
                StoredGroup(store, stored, number, f"{name}/{identity}", group_again(group, family.model_dump(), **shown), payload)
            )
        return found

    return groups


def _template(store: Store) -> ChatTemplate:
    return store.once("template", lambda: store.workspace.template(store.workspace.family(Rl)))


def _prompted(store: Store, identity: str, ids: Any, sample: Sample) -> Conversation:
    """A prompt with a fresh render that ends with the generation prompt."""

    def make() -> PlainDerivation:
        return PlainDerivation(MaskOptions(), _template(store), typed_controls=False, prompted=True, alone=is_small(store))

    derived = store.once("prompted", make)(sample)
    return Conversation(identity, ids, derived.text, derived.controls, derived.typed)


def _group_integrity(store: Store) -> Verdict:
    """Check the rows of prompts and responses."""
    size, types, folders = store.vocabulary.size, ids_type(store), splits(store.directory).values()
    tables = (open_stream(folder, name) for folder in folders for name in (PROMPTS, RESPONSES))
    return combined(check_rows(table, vocabulary_size=size, types=types) for table in tables)


GROUP_ROWS = Check("row_integrity", "Ids are inside the vocabulary, and every response trains something.", _group_integrity)


def of_groups(of_group: Callable[[StoredGroup], Iterable[T]]) -> Pairs:
    """What is compared of each group."""

    def pairs(store: Store, stream: StoredStream) -> Callable[[StoredRows], Iterable[T]]:
        groups = store.once(f"groups of {stream.name}", lambda: groups_of(store, stream))
        return lambda rows: chain.from_iterable(map(of_group, groups(rows)))

    return pairs


def _identity(store: Store) -> IdentityProof:
    return IdentityProof(store.vocabulary, whole=has_few_tokens(store))


GROUP_CHECKS = (
    relation(
        "mask_alignment",
        "Trained tokens of every prompt with each of its responses decode to exactly the answer and its stop token.",
        (of_groups(StoredGroup.rows), lambda store: MaskProof(store.vocabulary)),
    ),
    relation("tokenization_identity", IDENTITY, (of_groups(StoredGroup.renders), _identity), (of_groups(StoredGroup.prompts), _identity)),
    relation(
        "rewards",
        "Every reward is finite, each response of a group has one, and they are those of the source.",
        (of_groups(StoredGroup.scores), lambda store: Tally(check_rewards)),
    ),
    relation(
        "sampled_ids",
        "Ids and log-probabilities that the source has as sampled are stored as they are, every sampled token is trained, and no other.",
        (of_groups(StoredGroup.rollouts), lambda store: Tally(check_sampled)),
    ),
    relation(
        "step_rewards",
        "Where responses are judged step by step, each reward stands at the token with which the text of its step ends.",
        (of_groups(StoredGroup.stepwise), lambda store: Tally(check_steps)),
    ),
    relation(
        "runs",
        "Rows of agents' runs are those that the calls of their sources give: joined where a prompt begins with all tokens before, else begun anew.",
        (of_groups(StoredGroup.runs), lambda store: Tally(check_runs)),
    ),
)


# RL prompts.


def prompt_renders(store: Store, stream: StoredStream) -> Callable[[StoredRows], Iterator[Conversation]]:
    """Return what gives each record of a stream of prompts with a fresh render of its line, generation prompt included."""
    assert isinstance(store.asset.source, FromLines)
    asset, file = store.asset.source.files[stream.name]
    require_current(store, "prompts", asset)
    shown = shown_by(_template(store))

    def pairs(rows: StoredRows) -> Iterator[Conversation]:
        for line, (number, _, payload) in zip(rows.rows.tolist(), rows.records(), strict=True):
            sample = read_again(sample_of(payload, turns_of(payload["prompt"], USER)), store.recipe, **shown)
            yield _prompted(store, f"{file} line {line + 1}", stream.held.record(number, "tokens"), sample)

    return pairs


PROMPT_IDENTITY = relation("tokenization_identity", IDENTITY, (prompt_renders, _identity))
