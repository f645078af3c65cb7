"""Render and tokenize conversations, block by block."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress
from typing import Any
from weakref import proxy

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.config.family import Domain
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Sft
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused
from prep_assets.pipeline.documents import TokenizedRows
from prep_assets.pipeline.examples import Item
from prep_assets.pipeline.media import RecordFiles, record_files, shown_files
from prep_assets.pipeline.rendering import BlockRenderer, RenderedChats, block_renderer, check_mask
from prep_assets.pipeline.sources import inline_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.samples import MEDIA, Sample
from prep_assets.stores.lists import Entries, lists_of
from prep_assets.stores.writer import TableWriter
from prep_assets.text.conversation import SpecialInContent, control_pattern, treat
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.render import InlineReasoning, one_per_answer, render
from prep_assets.text.spans import Placed, Rendered, bounds, check_attention, check_stops, rounds, without_oldest_rounds
from prep_assets.text.template import ChatTemplate

# Parts of a block, tokenized separately: chats in columns, chats rendered one by one, and rows that bring their tokens.


def in_order(parts: Sequence[tuple[Ints, Encoded]], without: Ints | None = None) -> Encoded:
    """Merge batches into one, in the order of the examples.

    Args:
        parts: positions of a batch's examples, and the batch.
        without: positions to leave out.
    """
    at = np.concatenate([places[encoded.kept] for places, encoded in parts])
    order = np.argsort(at, kind="stable")
    if without is not None:
        order = order[~np.isin(at[order], without)]
    elif len(parts) == 1 and np.array_equal(parts[0][0], np.arange(len(parts[0][0]))):
        return parts[0][1]
    lengths = np.concatenate([np.diff(encoded.offsets) for _, encoded in parts])
    offsets = bounds(lengths[order])
    tokens = np.repeat(bounds(lengths)[:-1][order] - offsets[:-1], lengths[order]) + np.arange(offsets[-1])
    ids, loss, taken = (np.concatenate([getattr(encoded, name) for _, encoded in parts]) for name in ("ids", "loss", "taken"))
    faults = [(int(places[number]), fault) for places, encoded in parts for number, fault in encoded.refused]
    number, images = np.full(len(at), -1), [encoded.images for _, encoded in parts]
    number[order] = np.arange(len(order))
    first = bounds([len(encoded.kept) for _, encoded in parts]).tolist()
    record = np.concatenate([number[located.record + before] for located, before in zip(images, first, strict=False)])
    shown = np.argsort(record, kind="stable")
    shown = shown[record[shown] >= 0]
    start, length = (np.concatenate([getattr(located, name) for located in images])[shown] for name in ("start", "length"))
    regions = [region for located in images for region in located.regions]
    placed = Placed(record[shown], start, length, tuple([regions[image] for image in shown.tolist()]))
    rejections = tuple(sorted(faults, key=lambda fault: fault[0]))
    return Encoded(ids[tokens], loss[tokens], offsets, at[order], rejections, placed, taken[order])


@dataclass
class Block:
    """Examples in the order of their records.

    Attributes:
        at: their items.
        renders: position → render, of the examples that are not in columns.
        columns: the examples in columns, if any.
        shortened: position → what truncation left of a chat that was too long, of which `renders` has the render.
    """

    at: list[Item] = field(default_factory=list)
    renders: dict[int, Rendered] = field(default_factory=dict)
    columns: RenderedChats | None = None
    shortened: dict[int, Sample] = field(default_factory=dict)

    def kept(self, encoded: Encoded) -> list[Item]:
        """The items that tokenization kept."""
        if len(encoded.kept) == len(self.at):
            return self.at
        return [self.at[number] for number in encoded.kept.tolist()]

    def encoded(self, encoder: Encoder) -> Encoded:
        """Tokenize all examples."""
        parts = [] if self.columns is None else [(self.columns.rows, encoder.encode_block(self.columns.block))]
        if self.renders or not parts:
            parts.append((np.array(list(self.renders), np.int64), encoder.encode(list(self.renders.values()))))
        return in_order(parts)

    def lost(self, kept: Ints, of: Callable[[Sample, Rendered], tuple[int, int]]) -> tuple[int, int]:
        """What `BlockRenderer.lost` counts in the kept examples, of what truncation left of them."""
        alone = [number for number in kept.tolist() if number in self.renders]
        chats = ((self.shortened.get(number, self.at[number].content), self.renders[number]) for number in alone)
        counts = [of(example, rendered) for example, rendered in chats if isinstance(example, Sample) and example.tokenized is None]
        if (columns := self.columns) is not None:
            whole = np.isin(columns.rows, kept) & ~np.isin(columns.rows, alone)
            counts.append((int(columns.left_out[whole].sum()), int(columns.unserved[whole].sum())))
        return sum(left_out for left_out, _ in counts), sum(unserved for _, unserved in counts)


def firsts(items: Sequence[Item]) -> npt.NDArray[np.bool_]:
    """The examples that come first in their record: bool[n]."""
    return np.array([number == 0 or item.record is not items[number - 1].record for number, item in enumerate(items)], bool)


# Truncation by turns: a conversation that is too long is rendered again without its oldest rounds.


def without_rounds_that_overflow(
    sample: Sample, whole: Rendered, render: Callable[[Sample], Rendered], encoder: Encoder
) -> tuple[Sample, Rendered]:
    """Drop the fewest oldest rounds that make the render fit; return the sample and `whole` if none do."""
    few, many = 1, len(rounds(sample)) - 1
    shortest = sample, whole
    while few <= many:
        count = (few + many) // 2
        left = without_oldest_rounds(sample, count)
        try:
            shorter = render(left)
        except Refused:
            return sample, whole
        if not any(refusal.reason == "too_long" for _, refusal in encoder.encode([shorter]).refused):
            shortest, many = (left, shorter), count - 1
        else:
            few = count + 1
    return shortest


# Samples → rendered → encoded, block by block; rejected records go to quarantine.


class Conversations(Struct, dict=True, weakref=True):
    """Renders and tokenizes blocks of samples.

    Attributes:
        template, encoder: the chat template, and the tokenizer with its mask policy.
        reasoning: how reasoning in the text of answers is read.
        special_in_content: what happens to control tokens that are typed in content.
        files: the files in records.
        quarantine: where rejected records go.
        made_by: the tokenizer that made the ids that rows bring, from the domain's configuration; `None` if it names none.
        expand: whether a record becomes one example per answer if the template would drop reasoning from history, or write another than a server's prompt
            before an answer.
        reasoning_left_out: turns of kept records that lost their reasoning so far.
        unserved_prompts: trained answers of kept records behind a prompt that no server sends so far.
        control_tokens: control tokens found in contents so far.
        images_cut_away: images that truncation took from kept records so far.
    """

    template: ChatTemplate
    encoder: Encoder
    reasoning: InlineReasoning
    special_in_content: SpecialInContent
    files: RecordFiles
    quarantine: Quarantine
    made_by: str | None = None
    expand: bool = False
    control_tokens: int = 0
    reasoning_left_out: int = 0
    unserved_prompts: int = 0
    images_cut_away: int = 0

    @cached_property
    def tokenized(self) -> TokenizedRows:
        """The proof of rows that bring their ids."""
        this = proxy(self)  # what is kept here does not hold the tokenizer when this goes
        render, sample = partial(Conversations._render_messages, this), partial(Conversations._sample, this)
        return TokenizedRows(self.encoder, render, sample, self.quarantine, self.made_by, tuple(self.files.ids().values()))

    def encode(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items of a block and their tokens; rejected ones are in quarantine."""
        ready = [item for item in items if isinstance(item.content, Sample) and item.content.tokenized is not None]
        if len(ready) == len(items) > 0:
            return self.tokenized.of(ready)
        brought_ids = set(map(id, ready))
        block, encoded = self._encoded([item for item in items if id(item) not in brought_ids])
        texts = block.kept(encoded), encoded
        if not ready:
            return texts
        brought_rows, numbers = self.tokenized.of(ready), {id(item.record): number for number, item in enumerate(items)}
        parts = [
            (
                np.array([numbers[id(item.record)] for item in kept_items], np.int64),
                replace(tokens, kept=np.arange(len(kept_items)), refused=()),
            )
            for kept_items, tokens in (texts, brought_rows)
        ]
        items = sorted([*texts[0], *brought_rows[0]], key=lambda item: numbers[id(item.record)])
        return items, replace(in_order(parts), kept=np.arange(len(items)))

    def _render_messages(self, sample: Sample) -> Rendered:
        """Render the messages of a row that brings its ids."""
        return self._render(treat(sample, self._pattern, self.special_in_content)[0])

    def examples(self, items: Sequence[Item]) -> tuple[list[Item], list[Rendered], Encoded]:
        """As `encode`, with the render of each kept item."""
        block, encoded = self._encoded(items, by_form=False)
        return block.kept(encoded), [block.renders[position] for position in encoded.kept.tolist()], encoded

    def _encoded(self, items: Sequence[Item], *, by_form: bool = True) -> tuple[Block, Encoded]:
        """The examples of a block, and the tokens of the kept ones. Examples that are not in columns have renders."""
        examples = self._examples(items, by_form and self.special_in_content != "allow")
        encoded = examples.encoded(self.encoder)
        too_long = [position for position, refusal in encoded.refused if refusal.reason == "too_long"]
        if self.encoder.truncation == "turns" and too_long:
            lengths = np.zeros(len(examples.at), np.int64)
            for position in too_long:
                item = examples.at[position]
                assert isinstance(item.example, Sample)
                whole = examples.renders.get(position) or self._render(item.example)
                lengths[position] = self.encoder.length(whole)
                left, examples.renders[position] = without_rounds_that_overflow(item.example, whole, self._render, self.encoder)
                examples.shortened[position] = left
            shorter = self.encoder.encode([examples.renders[position] for position in too_long])
            rest = replace(encoded, refused=tuple(rejection for rejection in encoded.refused if rejection[0] not in too_long))
            encoded = in_order([(np.arange(len(examples.at)), rest), (np.array(too_long), shorter)])
            whole_rounds, now = lengths[encoded.kept], np.diff(encoded.offsets)
            encoded = replace(encoded, taken=np.where(whole_rounds, whole_rounds - now, 0))
        rejected = self._quarantine_rejected(examples.at, encoded)
        if self.expand and rejected:
            encoded = in_order([(np.arange(len(examples.at)), encoded)], np.array(rejected))
        if self.template.marks:
            shown = sum(len(shown_files(item.example.turns)) for item in examples.kept(encoded) if isinstance(item.example, Sample))
            self.images_cut_away += shown - len(encoded.images)
        lost, unserved = examples.lost(encoded.kept, self._renderer.lost)
        self.reasoning_left_out += 0 if self.expand else lost
        self.unserved_prompts += unserved
        return examples, encoded

    def _examples(self, items: Sequence[Item], by_form: bool) -> Block:
        """The examples of a block: in columns if their form is known, else rendered one by one."""
        # with `expand`, chats that become several examples are rendered
        columns = self._renderer.render_block([item.content for item in items], whole=self.expand) if by_form else None
        if columns is not None and len(columns.rows) == len(items):
            return Block(list(items), {}, columns)
        examples, known = Block(), set[int]() if columns is None else set(columns.rows.tolist())
        places: list[int] = []
        for number, item in enumerate(items):
            if number in known:
                places.append(len(examples.at))
                examples.at.append(item)
                continue
            try:
                renders = self._renders(item)
            except Refused as refusal:
                item.reject(self.quarantine, refusal)
            else:
                for sample, rendered in renders:
                    examples.renders[len(examples.at)] = rendered
                    examples.at.append(Item(item.file, item.record, sample))
        examples.columns = columns and replace(columns, rows=np.array(places, np.int64))
        return examples

    @cached_property
    def _renderer(self) -> BlockRenderer:
        return block_renderer(self.template, self.encoder, self._options, (*self.encoder.vocabulary.control, *self.reasoning.strings))

    def _renders(self, item: Item) -> list[tuple[Sample, Rendered]]:
        """The examples of a record, with their renders: one, or with `expand` one per answer if the template drops reasoning."""
        sample, count = treat(self._sample(item), self._pattern, self.special_in_content)
        self.control_tokens += count
        if self.expand and any(self._renderer.lost(sample, self._marked(sample))):
            return [(part, self._render(part)) for part in one_per_answer(sample, self.encoder.policy.weight)]
        return [(sample, self._render(sample))]

    def _quarantine_rejected(self, at: Sequence[Item], encoded: Encoded) -> list[int]:
        """Put the record of each rejected example into quarantine, once. Return the positions of all examples of these records."""
        faults: dict[int, Refused] = {}
        for position, fault in encoded.refused:
            if faults.setdefault(id(at[position].record), fault) is fault:
                at[position].reject(self.quarantine, fault)
        return [position for position, item in enumerate(at) if id(item.record) in faults] if faults else []

    def _sample(self, item: Item) -> Sample:
        example = item.example
        if not isinstance(example, Sample):
            raise Refused("not_a_sample", f"the schema gives {type(example).__name__}, SFT needs a Sample", stage="render")
        if example.label is False:
            why = "its label says that the answer is a bad one; SFT would teach it. Read such rows as preferences, or leave them out"
            raise Refused("undesirable", why, stage="render")
        # without their tokens, rendering rejects the record, whatever its files are
        return self.reasoning.read(self.files.ready(example) if self.template.marks else example)

    def _marked(self, sample: Sample) -> Rendered:
        return render(sample, self.template) if self.special_in_content == "allow" else self._renderer.render(sample)

    def _render(self, sample: Sample) -> Rendered:
        rendered = self._marked(sample)
        check_attention(self.encoder.policy, rendered)
        check_stops(self.encoder.policy, rendered)
        if self.special_in_content == "allow":
            self._reject_typed_images(sample)
        check_mask(rendered, self.encoder, lambda: derive(sample, self._options, self.template, rendered=rendered.text))
        return replace(rendered, content=()) if self.special_in_content == "allow" else rendered

    def _reject_typed_images(self, sample: Sample) -> None:
        """Reject typed image tokens. With control tokens allowed, they would count as images that do not exist."""
        tokens = {*self.template.marks.values(), *self.files.tokens.values()}
        for region in (region for turn in sample.turns for region in turn.regions if region.kind not in MEDIA):
            if typed := sorted(token for token in tokens if token in region.text):
                raise Refused("image_token_in_content", f"{typed[0]!r} stands for images, and is typed in a text", stage="render")

    @cached_property
    def _options(self) -> MaskOptions:
        return MaskOptions.of(self.encoder.policy.model_dump())

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.encoder.vocabulary.control)


def conversations_of(workspace: Workspace, domain: Domain, quarantine: Quarantine) -> Conversations:
    """The renderer and tokenizer of a domain's samples."""
    family = workspace.family(Sft)
    encoder = Encoder(
        workspace.vocabulary(family),
        workspace.engines(family),
        MaskPolicy.of(dict(family)),
        family.preprocessing.max_seq_len,
        truncation=family.truncation,
        keep_stop=family.truncation_keeps_stop,
        keeps=family.truncation_keeps,
    )
    template, reasoning = workspace.template(family), inline_reasoning(workspace, family)
    if domain.tokenized_by is not None:
        workspace.check_tokenized_by(family, domain.tokenized_by)
    return Conversations(
        template,
        encoder,
        reasoning,
        family.special_in_content,
        record_files()(workspace, family, domain),
        quarantine,
        domain.tokenized_by,
        family.expand == "turns",
    )


def encode_of(conversations: Conversations, domain: Domain, items: Sequence[Item]) -> tuple[list[Item], Encoded, Mapping[str, Entries]]:
    """The kept items of a block, their tokens, and lists beside these, by name; rejected items are in quarantine."""
    if (lists := lists_of(domain.schema_name)) is None:
        return *conversations.encode(items), {}
    kept, encoded, entries = lists.encode(conversations, items)
    return kept, encoded, {lists.name: entries}


def write_records(
    writer: TableWriter,
    encoded: Encoded,
    items: Sequence[Item],
    chosen: npt.NDArray[np.bool_],
    arrays: dict[str, npt.NDArray[Any]],
    files: RecordFiles,
    lists: Mapping[str, Entries],
) -> None:
    """Write the chosen records of a batch to a stream, with their images and lists."""
    lengths, block, origin = np.diff(encoded.offsets), arrays, items
    if not chosen.all():
        tokens = np.repeat(chosen, lengths)
        block = {key: array[tokens] for key, array in arrays.items()}
        origin = list(compress(items, chosen.tolist()))
    images = files.block(encoded.images.of(chosen)) if len(encoded.images) else None
    numbers, rows = [item.record.file for item in origin], [item.record.row for item in origin]
    kept = {name: entries.only(chosen, lengths) for name, entries in lists.items()}
    writer.append(block, lengths[chosen], numbers, rows, images=images, lists=kept)
