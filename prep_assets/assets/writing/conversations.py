"""Samples → rendered → encoded, block by block; what is refused goes to quarantine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.examples import Item
from prep_assets.assets.reading.reasoning import inline_reasoning
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.block import Block, in_order
from prep_assets.assets.writing.image_parts import ImageParts
from prep_assets.assets.writing.images import ImageFiles, shown_images, stored_image_id
from prep_assets.assets.writing.oldest_rounds import without_too_many
from prep_assets.assets.writing.plain_chats import PlainChats, in_columns, plain_chats_of
from prep_assets.assets.writing.tokenized_rows import TokenizedRows
from prep_assets.config.models import Domain, Sft
from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.agreement import disagreement
from prep_assets.proofs.trained_texts import MaskOptions, derive
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import IMAGE, Sample
from prep_assets.stores.tokens import RecordWriter
from prep_assets.templates.answers import left_out, one_per_answer
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.control_text import SpecialInContent, control_pattern, treat
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy


@dataclass
class Conversations:
    """Renders and tokenizes blocks of samples.

    Attributes:
        template, encoder: how.
        reasoning: how reasoning in the text of answers is read.
        special_in_content: what happens to control tokens that are typed in content.
        images: the images of records.
        quarantine: where refused records go.
        made_by: the tokenizer that made the ids that rows bring, as the domain names it; `None` where it names none.
        image: the id that stands for an image; `None` where there can be none.
        expand: whether a record becomes one example for each answer where its reasoning would be left out of history.
        reasoning_left_out: how many turns of the kept records lost their reasoning so far.
        control_tokens: how many control tokens were found in contents so far.
        images_cut_away: how many images truncation took from the kept records so far.
    """

    template: ChatTemplate
    encoder: Encoder
    reasoning: InlineReasoning
    special_in_content: SpecialInContent
    images: ImageParts
    quarantine: Quarantine
    made_by: str | None = None
    image: int | None = None
    expand: bool = False
    control_tokens: int = 0
    reasoning_left_out: int = 0
    images_cut_away: int = 0

    @cached_property
    def tokenized(self) -> TokenizedRows:
        """What takes rows that bring their ids."""
        return TokenizedRows(self.encoder, self._again, self._sample, self.quarantine, self.made_by, self.image)

    def encode(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items of a block and their tokens; the others are in quarantine."""
        ready = [item for item in items if isinstance(item.given, Sample) and item.given.tokenized is not None]
        if not ready:
            return self._texts(items)
        if len(ready) == len(items):
            return self.tokenized.of(ready)
        brought = set(map(id, ready))
        return in_order(items, self._texts([item for item in items if id(item) not in brought]), self.tokenized.of(ready))

    def _texts(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        block, encoded = self._encoded(items)
        return block.kept(encoded), encoded

    def _again(self, sample: Sample) -> Rendered:
        """The render of the messages of a row that brings its ids."""
        return self._render(treat(sample, self._pattern, self.special_in_content)[0])

    def examples(self, items: Sequence[Item]) -> tuple[list[Item], list[Rendered], Encoded]:
        """As `encode`, with the render of each kept item."""
        block, encoded = self._encoded(items, by_form=False)
        return block.kept(encoded), [rendered for position in encoded.kept.tolist() if (rendered := block.renders[position])], encoded

    def _encoded(self, items: Sequence[Item], *, by_form: bool = True) -> tuple[Block, Encoded]:
        """The examples of a block, and the tokens of those that are kept. Those that are not cut by form have renders."""
        examples = self._examples(items, by_form and self.special_in_content != "allow")
        encoded = self.encoder.encode_cuts(examples.cuts(self.encoder.cutter))
        too_long = [position for position, refusal in encoded.refused if refusal.reason == "too_long"]
        lengths: dict[int, int] = {}
        if self.encoder.truncation == "turns" and too_long:
            for position in too_long:
                item = examples.at[position]
                assert isinstance(item.example, Sample)
                whole = examples.renders[position] or self._render(item.example)
                lengths[id(item)] = self.encoder.length(whole)
                examples.put(position, without_too_many(item.example, whole, self._render, self.encoder))
            encoded = self.encoder.encode_cuts(examples.cuts(self.encoder.cutter))
        left = self._refuse_records(examples.at, encoded)
        if len(left) != len(encoded.kept):
            examples = examples.of(left)
            encoded = self.encoder.encode_cuts(examples.cuts(self.encoder.cutter))
        if lengths:
            now = np.diff(encoded.offsets)
            whole_rounds = [lengths.get(id(item), length) for item, length in zip(examples.kept(encoded), now.tolist(), strict=True)]
            encoded = replace(encoded, taken=np.array(whole_rounds, np.int64) - now)
        if self.template.image:
            shown = sum(len(shown_images(item.example.turns)) for item in examples.kept(encoded) if isinstance(item.example, Sample))
            self.images_cut_away += shown - len(encoded.images)
        if not self.expand:
            self.reasoning_left_out += examples.left_out(encoded.kept.tolist())
        return examples, encoded

    def _examples(self, items: Sequence[Item], by_form: bool) -> Block:
        """The examples of a block: by their layouts where these are known, all others rendered one by one."""
        chats = [in_columns(item.given) for item in items] if by_form else []
        # where a chat becomes several if it loses reasoning, those that lose some are rendered
        groups = [group for group in self._plain_chats.cut(chats) if not (self.expand and group[1].form.layout.left_out)]
        if sum(len(numbers) for numbers, _ in groups) == len(items):
            return Block(list(items), [None] * len(items), list(groups))
        by_layout = {number for numbers, _ in groups for number in numbers}
        examples = Block()
        places: dict[int, int] = {}
        for number, item in enumerate(items):
            if number in by_layout:
                places[number] = len(examples.at)
                examples.add(item, None)
                continue
            try:
                renders = self._renders(item)
            except Refused as refusal:
                item.refuse(self.quarantine, refusal)
            else:
                for sample, rendered in renders:
                    examples.add(Item(item.file, item.record, sample), rendered)
        examples.groups = [([places[number] for number in numbers], cut) for numbers, cut in groups]
        return examples

    @cached_property
    def _plain_chats(self) -> PlainChats:
        looked_for = (*self.encoder.vocabulary.control, *self.reasoning.strings)
        return plain_chats_of(self.template, self.encoder, self._options, looked_for)

    def _renders(self, item: Item) -> list[tuple[Sample, Rendered]]:
        """The examples of a record, each with its render: one, or with `expand` one for each answer where the template drops reasoning."""
        sample, count = treat(self._sample(item), self._pattern, self.special_in_content)
        self.control_tokens += count
        if self.expand and left_out(sample, self._marked(sample)):
            return [(part, self._render(part)) for part in one_per_answer(sample, self.encoder.policy.weight)]
        return [(sample, self._render(sample))]

    def _refuse_records(self, at: Sequence[Item], encoded: Encoded) -> list[int]:
        """Put the record of each refused example into quarantine, once, and give the positions of the examples of all other records."""
        faults: dict[int, Refused] = {}
        for position, fault in encoded.refused:
            if faults.setdefault(id(at[position].record), fault) is fault:
                at[position].refuse(self.quarantine, fault)
        if not self.expand:  # one example a record
            kept: list[int] = encoded.kept.tolist()
            return kept
        return [position for position, item in enumerate(at) if id(item.record) not in faults]

    def _sample(self, item: Item) -> Sample:
        example = item.example
        if not isinstance(example, Sample):
            raise Refused("not_a_sample", f"the schema gives {type(example).__name__}, SFT needs a Sample", stage="render")
        if example.label is False:
            why = "its label says that the answer is a bad one; SFT would teach it. Read such rows as preferences, or leave them out"
            raise Refused("undesirable", why, stage="render")
        # without an image token rendering refuses the record, whatever its images are
        return self.reasoning.read(self.images.ready(example) if self.template.image else example)

    def _marked(self, sample: Sample) -> Rendered:
        return render(sample, self.template) if self.special_in_content == "allow" else self._plain_chats.render(sample)

    def _render(self, sample: Sample) -> Rendered:
        rendered = self._marked(sample)
        self.encoder.policy.check_attention(rendered)
        self.encoder.policy.check_stops(rendered)
        if self.special_in_content == "allow":
            self._refuse_typed_images(sample)
        try:
            derived = derive(sample, self._options, self.template, rendered=rendered.text)
        except CheckFailed as error:  # such as a template that treats a text otherwise than another in its place
            raise Refused("mask_not_provable", str(error), stage="render") from error
        rendered = replace(rendered, content=()) if self.special_in_content == "allow" else rendered
        differs = disagreement(derived, rendered.text, self.encoder.trained(rendered))
        if differs is not None:
            raise Refused("mask_not_provable", differs, stage="render")
        return rendered

    def _refuse_typed_images(self, sample: Sample) -> None:
        """Where typed control tokens are let through, one that stands for images would be an image that nobody has."""
        tokens = {self.template.image_token, self.images.token} - {""}
        for region in (region for turn in sample.turns for region in turn.regions if region.kind != IMAGE):
            if typed := sorted(token for token in tokens if token in region.text):
                raise Refused("image_token_in_content", f"{typed[0]!r} stands for images, and is typed in a text", stage="render")

    @cached_property
    def _options(self) -> MaskOptions:
        policy = self.encoder.policy
        return MaskOptions(
            policy.roles,
            policy.default,
            policy.train_on_eos,
            policy.turns,
            train_thinking=policy.thinking,
            train_tool_calls=policy.tool_calls,
            train_headers=policy.headers,
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.encoder.vocabulary.control)


def policy(family: Sft) -> MaskPolicy:
    """The mask policy that the configuration asks for."""
    return MaskPolicy(
        family.mask,
        family.mask_default,
        family.train_on_eos,
        family.train_turns,
        thinking=family.train_thinking,
        tool_calls=family.train_tool_calls,
        headers=family.train_headers,
    )


def conversations_of(workspace: Workspace, domain: Domain, quarantine: Quarantine) -> Conversations:
    """What renders and tokenizes the samples of a domain."""
    family = workspace.family(Sft)
    encoder = Encoder(
        workspace.vocabulary(family),
        workspace.engines(family),
        policy(family),
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
        ImageParts.of_domain(workspace, family, domain),
        quarantine,
        domain.tokenized_by,
        stored_image_id(workspace, family),
        family.expand == "turns",
    )


def write_records(
    writer: RecordWriter,
    encoded: Encoded,
    items: Sequence[Item],
    chosen: npt.NDArray[np.bool_],
    arrays: dict[str, npt.NDArray[Any]],
    files: ImageFiles,
) -> None:
    """Write the chosen records of a batch to a stream, with the images in them."""
    lengths, block, origin = np.diff(encoded.offsets), arrays, items
    if not chosen.all():
        tokens = np.repeat(chosen, lengths)
        block = {key: array[tokens] for key, array in arrays.items()}
        origin = list(compress(items, chosen.tolist()))
    images = files.block(encoded.images.of(chosen)) if len(encoded.images) else None
    numbers, rows = [item.record.file for item in origin], [item.record.row for item in origin]
    writer.append(block, lengths[chosen], numbers, rows, images)
