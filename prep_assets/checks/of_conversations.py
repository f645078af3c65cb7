"""Checks of conversations that became tokens: chats, both sides of preference pairs, scored groups, RL prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_lines import OfLines
from prep_assets.checks.of_stores import IDENTITY, Derivation, Reader, cuts_counted, together
from prep_assets.checks.sources_again import (
    Examples,
    LineByNumber,
    LinesOfRows,
    MessageChats,
    Rows,
    Rules,
    Second,
    Unsound,
    fresh_render,
    sft_blocks,
    sft_rules,
    source_records,
)
from prep_assets.config.models import Preference, Rl
from prep_assets.data.files import record_id
from prep_assets.errors import Refused, StoreError
from prep_assets.pipeline.asset import Check, FromLines, Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.groups import conversation_of, conversations, splits
from prep_assets.pipeline.lines import pair_sample, sample_of, turns_of
from prep_assets.pipeline.pairs import prompt_row
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.chat_blocks import Claims, PlainBlocks, PlainDerivation, answers_derivation
from prep_assets.proofs.derive import MaskOptions
from prep_assets.proofs.groups import Rollout, Scores, check_rewards, check_sampled
from prep_assets.proofs.mask import Conversation, IdentityProof, Left, MaskProof, Row, Truncation, prove_identity, prove_masks
from prep_assets.proofs.rows import CONVERTED, Converted, as_number, check_golds, check_records, second_reading, stands_in, worked_out
from prep_assets.proofs.second_reading import group_again, read_again
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import ASSISTANT, TEXT, USER, Group, PlainChat, Prompt, Region, Sample, Turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Convert
from prep_assets.stores.arrays import at, equals, numbers, where
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines, row_of
from prep_assets.stores.tokens import TokenStore
from prep_assets.text.chats import Chat, ChatColumns, outlined, plain_chat

# Checks of tokenized conversations: chats, and the sides of preference pairs. Both proofs of one come of one reading of its source.

# What checks compare token stores of preference pairs with: their sides, read again, and what they must have become.

AT_ONCE = 64
"""Records of a side that are given together."""


def pair_examples(store: Store, side: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Examples]:
    """The records of one side, some at a time; `only` of some."""
    pairs = store.above("preferences_by_domain", store.partition)
    if pairs.manifest.content_hash != store.recipe["pairs"]:
        command = build_command(store.asset.name, store.partition)
        raise StoreError(f"preferences_by_domain[{store.partition}] was built again since these tokens. Build them again: {command}")
    read, column = _pair_reading(store), side.removeprefix("test/")
    chosen = range(len(stream)) if only is None else sorted(map(int, only))
    lines, before = open_lines(pairs.directory, "preferences_test" if side.startswith("test/") else "preferences").written(), -1
    for at in range(0, len(chosen), AT_ONCE):
        numbers = list(chosen[at : at + AT_ONCE])
        rows, found = np.asarray(stream.row[numbers]).tolist(), list[bytes]()
        for number, row in zip(numbers, rows, strict=True):
            written = next(islice(lines, row - before - 1, None), None) if row > before else None
            if written is None:
                raise StoreError(f"record {number:,} of {side} is line {row}, which does not follow the one before it, or is not there")
            found.append(written)
            before = row
        sources = [
            read(pair_sample(row_of(line), column)) if plain is None else plain
            for line, plain in zip(found, _plain_sides(found, column), strict=True)
        ]
        yield Examples(numbers, sources, [f"line {row}" for row in rows].__getitem__)


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str


class _Chosen(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str | list[_Message]
    answer: str | list[_Message] = msgspec.field(name="chosen")
    other: msgspec.Raw = msgspec.field(name="rejected")
    margin: Any = None


class _Rejected(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str | list[_Message]
    answer: str | list[_Message] = msgspec.field(name="rejected")
    other: msgspec.Raw = msgspec.field(name="chosen")
    margin: Any = None


_Decoder = msgspec.json.Decoder[_Chosen] | msgspec.json.Decoder[_Rejected]
_DECODERS: dict[str, _Decoder] = {"chosen": msgspec.json.Decoder(_Chosen), "rejected": msgspec.json.Decoder(_Rejected)}


def _plain_sides(lines: Sequence[bytes], side: str) -> list[PlainChat | None]:
    """One side of some lines in columns; `None` where a line is more than a prompt and two answers, each turn one text, or the side more than one answer."""
    try:
        found = _DECODERS[side].decode_lines(b"".join(lines))
    except (msgspec.MsgspecError, ValueError):
        found = []
    if len(found) == len(lines):
        return list(map(_plain_side, found))
    half = len(lines) // 2
    return [None] if len(lines) == 1 else [*_plain_sides(lines[:half], side), *_plain_sides(lines[half:], side)]


def _plain_side(line: _Chosen | _Rejected) -> PlainChat | None:
    prompt, answer = line.prompt, line.answer
    if type(prompt) is str and type(answer) is str:
        return PlainChat((USER, ASSISTANT), (prompt, answer))
    turns = [*([_Message(USER, prompt)] if isinstance(prompt, str) else prompt)]
    turns += [_Message(ASSISTANT, answer)] if isinstance(answer, str) else answer
    if not isinstance(answer, str) and (len(answer) != 1 or answer[0].role != ASSISTANT):
        return None
    return PlainChat(tuple([turn.role for turn in turns]), tuple([turn.content for turn in turns]))


def _pair_reading(store: Store) -> Callable[[Sample], Sample]:
    shown = store.workspace.template(store.workspace.family(Preference)).shows_thinking
    return lambda sample: read_again(sample, store.recipe, shown=shown)


def pair_rules(store: Store) -> Rules:
    """What each side of a pair must have become: its last turn trained, an answer, and nothing else."""
    read = _pair_reading(store)

    def weighed(chat: PlainChat) -> Sample:
        weights = [*(0.0 for _ in chat.texts[1:]), 1.0]
        turns = zip(chat.roles, chat.texts, weights, strict=True)
        return read(Sample(tuple(Turn(role, (Region(TEXT, text, weight),)) for role, text, weight in turns)))

    truncation = Truncation(store.recipe["truncation"], store.recipe["max_seq_len"])
    derivation = answers_derivation(store.workspace.template(store.workspace.family(Preference)))
    return Rules(derivation, truncation, store.vocabulary, weighed)


BLOCK_TOKENS = 1 << 20
Proofs = tuple[MaskProof, IdentityProof]
"""Of a stream."""
Counted = tuple[tuple[int, int, frozenset[str], int, int], tuple[int, int, int]]
"""What `MaskProof.proven` and `IdentityProof.proven` count of a stream."""


class Chats(Derivation):
    """What the chats of an SFT store must have become."""

    names = ("mask_alignment", "tokenization_identity")

    def rules(self) -> Rules:
        """How each is derived anew."""
        return sft_rules(self.store)

    def examples(self, name: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Examples]:
        """The records of a stream with their sources; `only` some, and those that come from the same rows."""
        return sft_blocks(self.store, stream, only)

    def rows(self, name: str, only: Sequence[int] | None = None) -> Iterator[tuple[int, Row]]:
        """Number of each such record, and what must be trained of it."""
        stream = self.store.streams()[name]
        for number, identity, left in self._left(name, stream, only):
            yield number, left.row(identity, stream.record(number, "tokens"), stream.weights(number))

    def renders(self, name: str) -> Iterator[Conversation]:
        """Each record with a fresh render of its source."""
        stream = self.store.streams()[name]
        for number, identity, left in self._left(name, stream, None):
            yield left.conversation(identity, stream.record(number, "tokens"))

    def _left(self, name: str, stream: TokenStore, only: Sequence[int] | None) -> Iterator[tuple[int, str, Left]]:
        rules, lengths = self.rules(), stream.lengths
        for some in self.examples(name, stream, only):
            for number, identity, source in some.each():
                yield number, identity, rules.left(source, int(lengths[number]))

    def readers(self) -> Sequence[Reader]:
        """Both proofs of each stream."""
        rules = self.rules()
        return [partial(self._read, stream, rules) for stream in self.store.streams().values()]

    def _read(self, stream: TokenStore, rules: Rules, rows: Iterator[Rows]) -> Proofs:
        return _proven(stream, sft_blocks(self.store, stream, given=rows), rules, self.store.recipe["reasoning_tags"])

    def verdicts(self, found: Sequence[Proofs]) -> Mapping[str, Verdict]:
        """The verdicts of the proofs of all streams."""
        masks, identities = (together(proof.verdict() for proof in listed) for listed in zip(*found, strict=True))
        return dict(zip(self.names, (masks, cuts_counted(self.store, identities)), strict=True))

    def part(self, found: Sequence[Proofs]) -> list[Counted]:
        """Their figures, where all hold."""
        if any(masks.worst or identities.worst for masks, identities in found):
            raise Unsound
        return [
            (
                (masks.checked, masks.trained, frozenset(masks.stops), masks.tagged, masks.unattended),
                (identities.tokenized, identities.typed, identities.taken),
            )
            for masks, identities in found
        ]

    def joined(self, parts: Sequence[Sequence[Counted]]) -> Sequence[Proofs]:
        """The figures of all parts."""
        proofs = [(MaskProof(self.store.vocabulary), IdentityProof(self.store.vocabulary)) for _ in self.store.streams()]
        for part in parts:
            for (masks, identities), (trained, tokenized) in zip(proofs, part, strict=True):
                masks.proven(*trained)
                identities.proven(*tokenized)
        return proofs


class Sides(Chats):
    """What the sides of preference pairs must have become, of the lines that they are from."""

    def rules(self) -> Rules:
        """How each is derived anew."""
        return pair_rules(self.store)

    def examples(self, name: str, stream: TokenStore, only: Sequence[int] | None = None) -> Iterator[Examples]:
        """The records of a side with their lines; `only` some."""
        return pair_examples(self.store, name, stream, only)

    def readers(self) -> Sequence[Reader]:
        """None: rows are not what it reads."""
        return ()

    def verdicts(self, _: Sequence[Proofs]) -> Mapping[str, Verdict]:
        """The verdicts on both sides."""
        rules, tags, streams = self.rules(), self.store.recipe["reasoning_tags"], self.store.streams()
        return super().verdicts([_proven(stream, self.examples(side, stream), rules, tags) for side, stream in streams.items()])


def _proven(stream: TokenStore, examples: Iterable[Examples], rules: Rules, tags: Iterable[Iterable[str]]) -> Proofs:
    """Both proofs of a stream. Chats that hold one of the `tags` of reasoning are proven one by one."""
    vocabulary = rules.vocabulary
    masks, identities = MaskProof(vocabulary), IdentityProof(vocabulary)
    plain = PlainBlocks(rules.derivation, masks, identities, (*vocabulary.control, *(tag for pair in tags for tag in pair)))
    lengths = stream.lengths
    for block in _blocks(lengths, examples):
        first, last = block[0].numbers[0], block[-1].numbers[-1]
        tokens = slice(int(stream.ends[first] - lengths[first]), int(stream.ends[last]))
        ids, mask = np.asarray(stream.arrays["tokens"][tokens]), stream.weights(tokens)
        sizes = lengths[first : last + 1]
        whole = np.fromiter(map(rules.truncation.leaves_whole, sizes.tolist()), bool, len(sizes))
        chats = ChatColumns.joined([_in_columns(each.sources) for each in block]).only(whole)
        proven = plain.prove(chats, Claims(sizes, ids, mask))
        ends, rows, conversations = np.cumsum(sizes).tolist(), list[Row](), list[Conversation]()
        for at in np.flatnonzero(~proven).tolist():
            identity, source = _record(block, at)
            left, own = rules.left(source, int(sizes[at])), slice(ends[at] - int(sizes[at]), ends[at])
            rows.append(left.row(identity, ids[own], mask[own]))
            conversations.append(left.conversation(identity, ids[own]))
        if rows:
            masks.add(rows)
            identities.add(conversations)
    return masks, identities


def _blocks(lengths: npt.NDArray[np.int64], examples: Iterable[Examples]) -> Iterator[list[Examples]]:
    """Consecutive records of at most `BLOCK_TOKENS` tokens, unless some that came together have more."""
    block: list[Examples] = []
    size = 0
    for some in examples:
        more = int(lengths[some.numbers[0] : some.numbers[-1] + 1].sum())
        if block and size + more > BLOCK_TOKENS:
            yield block
            block, size = [], 0
        block.append(some)
        size += more
    if block:
        yield block


def _record(block: Iterable[Examples], at: int) -> tuple[str, Sample | PlainChat]:
    """The id and the source of a record of a block."""
    for some in block:
        if at < len(some.numbers):
            break
        at -= len(some.numbers)
    return some.identity(at), some.sources[at]


def _in_columns(sources: Sequence[Sample | PlainChat]) -> ChatColumns:
    return sources.columns if isinstance(sources, MessageChats) else ChatColumns.of(list(map(_columns, sources)))


def _columns(example: Sample | PlainChat) -> Chat | None:
    """A conversation as its form and its texts; `None` for what has to be proven by itself."""
    if isinstance(example, PlainChat):
        return example
    return plain_chat(example) or outlined(example)


# What checks compare stores of scored groups with: the sources, read again; and the checks of groups.


def _groups(store: Store, stored: GroupStore) -> Iterator[tuple[int, str, Group]]:
    """Number in the store, id and source of each group.

    Raises:
        StoreError: a record of the store gives no group, or is not in its source.
    """
    family = store.workspace.family(Rl)
    shown = store.workspace.template(family).shows_thinking
    for number, name in enumerate(stored.sources):
        domain, mine = domain_of(family, name), where(equals(stored.source, number))
        convert = converter(domain, Group)
        view = TokenStore({}, mine, at(stored.prompts.file, mine), at(stored.prompts.row, mine))
        for place, identity, payload in source_records(store, name, view) if len(mine) else ():
            try:
                group = apply(convert, payload)
            except Refused as refusal:
                raise StoreError(f"the store holds {name}/{identity}, which its schema refuses: {refusal}") from refusal
            if not isinstance(group, Group):
                raise StoreError(f"the store holds {name}/{identity}, which its schema reads as a {type(group).__name__}")
            yield int(mine[place]), f"{name}/{identity}", group_again(group, family.model_dump(), shown=shown)


def _pairs(store: Store, stored: GroupStore) -> Iterator[tuple[int, str, Group, tuple[tuple[int, str, Sample], ...]]]:
    """Number, id and source of each group whose texts were tokenized, and of each of its responses the record number, the id and the
    conversation.

    Raises:
        StoreError: another number of responses than in the source.
    """
    for number, identity, group in _groups(store, stored):
        if group.sampled is not None:
            continue
        try:
            records, samples = stored.responses_of(number), conversations(group)
        except Refused as refusal:
            raise StoreError(f"the store holds {identity}, which cannot be read as a conversation: {refusal}") from refusal
        if len(records) != len(samples):
            raise StoreError(f"{identity}: {len(records)} responses are stored, the source has {len(samples)}")
        listed = zip(records, samples, strict=True)
        yield number, identity, group, tuple((record, f"{identity}, response {i}", sample) for i, (record, sample) in enumerate(listed))


def group_rows(store: Store, folder: Path) -> Iterator[Row]:
    """Each prompt with each of its responses, and what must be trained of them."""
    stored, derivation = open_groups(folder), answers_derivation(store.workspace.template(store.workspace.family(Rl)))
    for number, _, _, responses in _pairs(store, stored):
        for record, identity, sample in responses:
            yield Row(identity, *stored.conversation(number, record), derivation(sample).expected)


def group_conversations(store: Store, folder: Path) -> Iterator[Conversation]:
    """Each prompt with each of its responses, and a fresh render of both."""
    stored, template = open_groups(folder), store.workspace.template(store.workspace.family(Rl))
    for number, _, _, responses in _pairs(store, stored):
        for record, identity, sample in responses:
            yield fresh_render(identity, stored.conversation(number, record)[0], sample, template)


def group_prompts(store: Store, folder: Path) -> Iterator[Conversation]:
    """Each prompt, and a fresh render of it with the generation prompt: where the prompt ends and the response begins."""
    stored, template = open_groups(folder), store.workspace.template(store.workspace.family(Rl))
    derive = PlainDerivation(MaskOptions(), template, typed_controls=False, prompted=True)
    for number, identity, group in _groups(store, stored):
        if group.sampled is not None and group.sampled.prompt is not None:
            continue
        derived = derive(conversation_of(group, group.prompt))
        ids = stored.prompts.record(number, "tokens")
        yield Conversation(f"{identity}, prompt", ids, derived.text, derived.controls, derived.typed)


def group_scores(store: Store, folder: Path) -> Iterator[Scores]:
    """Each group's rewards, and those of its source."""
    stored = open_groups(folder)
    for number, identity, group in _groups(store, stored):
        yield Scores(identity, stored.rewards.record(number, "rewards"), len(stored.responses_of(number)), group.rewards)


def group_samples(store: Store, folder: Path) -> Iterator[Rollout]:
    """Each group whose source has the sampled ids, with what is stored of it."""
    stored = open_groups(folder)
    for number, identity, group in _groups(store, stored):
        if group.sampled is None:
            continue
        keys, records = tuple(stored.responses.arrays), stored.responses_of(number)
        rollout = [{key: stored.responses.record(record, key).tolist() for key in keys} for record in records]
        yield Rollout(identity, stored.prompts.record(number, "tokens").tolist(), rollout, group.sampled)


def group_integrity(store: Store) -> Verdict:
    """The rows of prompts and responses."""
    size, groups = store.vocabulary.size, [open_groups(folder) for folder in splits(store.directory).values()]
    return together(check_records(stream, vocabulary_size=size) for each in groups for stream in (each.prompts, each.responses))


GROUP_ROWS = Check("row_integrity", "Ids are inside the vocabulary, and every response trains something.", group_integrity)


def group_mask(store: Store) -> Verdict:
    """The masks of responses."""
    return together(prove_masks(group_rows(store, folder), store.vocabulary) for folder in splits(store.directory).values())


def group_identity(store: Store) -> Verdict:
    """The tokens of prompts and responses against fresh renders."""
    evidence = (found(store, folder) for folder in splits(store.directory).values() for found in (group_conversations, group_prompts))
    return together(prove_identity(each, store.vocabulary) for each in evidence)


def group_rewards(store: Store) -> Verdict:
    """The rewards against those of the source."""
    return together(check_rewards(group_scores(store, folder)) for folder in splits(store.directory).values())


def group_sampled(store: Store) -> Verdict:
    """Sampled ids and log-probabilities against those of the source."""
    return together(check_sampled(group_samples(store, folder)) for folder in splits(store.directory).values())


# Checks of RL prompts and of the arithmetic curriculum.

Gold = tuple[str, str, object, Fraction | Converted | None]
"""What `check_golds` takes of each prompt."""


class Golds(OfLines):
    """Every gold against a second reading of its row."""

    names = ("gold_answers",)

    def files(self) -> list[Lines]:
        """The files of the store, in the order of its streams."""
        order = [stream.stem for stream in self.store.asset.streams.values()]
        return sorted(super().files(), key=lambda lines: order.index(lines.path.stem))

    def read(self, lines: Lines, rows: Iterator[Rows]) -> Verdict:
        """The verdict on a file."""
        return check_golds(self._golds(lines, rows))

    def _golds(self, lines: Lines, rows: Iterator[Rows]) -> Iterator[Gold]:
        """Every prompt of a file with its gold and a second reading of its source row."""
        second, of_rows, at_line = Second.of(self.store, self.store.partition), LinesOfRows(lines), LineByNumber(lines)
        convert = converter(second.domain, Prompt)
        for block in rows:
            for line, which in of_rows.of(block):
                identity = f"{second.name}/{record_id(second.files[block.file], block.rows[which])}"
                yield _second(block.payloads[which], convert, at_line(line), identity)
        for line in of_rows.missed():
            file, row = (int(lines.index[column][line]) for column in ("file", "row"))
            yield f"{second.name}/{file}:{row}", "", at_line(line)["gold"], None


def _second(payload: Mapping[str, Any], convert: Convert, content: Mapping[str, Any], identity: str) -> Gold:
    prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
    gold = content["gold"] if "verifier" not in content else as_number(content["gold"])
    answers = [value for value in payload.values() if isinstance(value, str) and "####" in value]
    if answers:
        return identity, prompt, gold, second_reading(answers[0])
    arithmetic = worked_out(prompt)
    if arithmetic is not None:
        return identity, prompt, gold, arithmetic
    if stands_in(content["gold"], payload):
        return identity, prompt, 1, Fraction(1)
    # a schema of the user's own works it out: the only check left is that it gives the same again
    try:
        example = apply(convert, payload)
    except Refused:
        return identity, prompt, content["gold"], None
    same = isinstance(example, Prompt) and prompt_row(example, "messages")["gold"] == content["gold"]
    return identity, prompt, content["gold"], CONVERTED if same else None


def arithmetic_golds(store: Store) -> Verdict:
    """Every gold against its question, worked out."""
    rows = enumerate(open_lines(store.directory, store.asset.name))
    return check_golds((f"line {number + 1}", row["prompt"], row["gold"], worked_out(row["prompt"])) for number, row in rows)


def prompt_identity(store: Store) -> Verdict:
    """The tokens of every prompt against a fresh render of its line, up to where a model continues."""
    return together(prove_identity(prompt_conversations(store, name), store.vocabulary) for name in store.streams())


PROMPT_IDENTITY = Check("tokenization_identity", IDENTITY, prompt_identity)


def prompt_conversations(store: Store, stream: str) -> Iterator[Conversation]:
    """Each record of a stream of prompts with a fresh render of its line."""
    assert isinstance(store.asset.source, FromLines)
    asset, name = store.asset.source.files[stream]
    upstream, template, tokens = (
        store.above(asset, store.partition),
        store.workspace.template(store.workspace.family(Rl)),
        store.streams()[stream],
    )
    if upstream.manifest.content_hash != store.recipe["prompts"]:
        command = build_command(store.asset.name, store.partition)
        raise StoreError(f"{asset} was built again since these tokens. Build them again: {command}")
    lines, derive = open_lines(upstream.directory, name), PlainDerivation(MaskOptions(), template, typed_controls=False, prompted=True)
    at_line = LineByNumber(lines)
    for number, line in enumerate(numbers(tokens.row)):
        if not 0 <= line < len(lines):
            raise StoreError(f"record {number:,} is line {line:,} of {name}, which has {len(lines):,}")
        content = at_line(line)
        sample = read_again(sample_of(content, turns_of(content["prompt"], USER)), store.recipe, shown=template.shows_thinking)
        derived = derive(sample)
        yield Conversation(f"{name} line {line + 1}", tokens.record(number, "tokens"), derived.text, derived.controls, derived.typed)
