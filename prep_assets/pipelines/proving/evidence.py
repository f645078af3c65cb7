"""What checks compare stores with: the sources, read again, and what they must have become."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from prep_assets.config.image_token import image_placeholder
from prep_assets.config.models import Family, Preference, Pretrain, Sft
from prep_assets.errors import Refused, StoreError
from prep_assets.pipelines.ahead import ahead
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.examples import converter
from prep_assets.pipelines.families import preference
from prep_assets.pipelines.families.preference_rows import pair_sample
from prep_assets.pipelines.sources import domain_of, pinned
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.identity import Conversation
from prep_assets.quality.inline_reasoning import read_again
from prep_assets.quality.mask import Cut, Row
from prep_assets.quality.trained_texts import MaskOptions, expected_texts
from prep_assets.records.files import record_id
from prep_assets.records.read import read_blocks
from prep_assets.samples import DOCUMENT, IMAGE, Record, Sample, Turn
from prep_assets.schemas.registry import Convert, apply
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Published, open_published
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.control_text import control_pattern, treat
from prep_assets.templates.conversation import messages, pieces
from prep_assets.templates.rendering import UNTEMPLATED
from prep_assets.tokenization.vocabulary import Vocabulary


def source_records(workspace: Workspace, kind: type[Family], raw: str, name: str, store: TokenStore) -> Iterator[tuple[int, str, Record]]:
    """Each record of a store, read from its source again: its number in the store, its id, and the raw row.

    Raises:
        StoreError: a record of the store is not in its source, or not in the order of the source.
        SourceError: a source changed since it was pinned.
    """
    domain, sources = domain_of(workspace.family(kind), name), pinned(workspace, kind, raw, name)
    files = (*sources.files, *sources.test_files)
    at = 0
    for index, file in enumerate(files):
        others = np.flatnonzero(store.file[at:] != index)
        wanted = iter(store.row[at : at + int(others[0]) if len(others) else None].tolist())
        row = next(wanted, None)
        if row is None:
            continue
        with closing(ahead(read_blocks(file, index, block_bytes=4 << 20, txt=domain.txt))) as blocks:
            for record in (record for block in blocks for record in block.records):
                if record.row == row:
                    yield at, record_id(file, record.row), record
                    at, row = at + 1, next(wanted, None)
    if at != len(store):
        raise StoreError(
            f"record {at:,} of the store is row {int(store.row[at])} of file {int(store.file[at])}, which is not in the source"
        )


def sample_of(convert: Convert, record: Record, identity: str) -> Sample:
    """The sample that a record of a store came from.

    Raises:
        StoreError: the schema gives none, so this record cannot be what the store was made from.
    """
    try:
        sample = apply(convert, record.payload)
    except Refused as refusal:
        raise StoreError(f"the store holds {identity}, which its schema refuses: {refusal}") from refusal
    if not isinstance(sample, Sample):
        raise StoreError(f"the store holds {identity}, of which its schema makes a {type(sample).__name__}")
    return sample


# -- documents with images --------------------------------------------------------------------------------------------------------------


def document_conversations(workspace: Workspace, name: str, store: TokenStore) -> Iterator[Conversation]:
    """Each document of a pretraining stream with images, with a fresh render of its source, ended by the end-of-text token."""
    family = workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, name), workspace.vocabulary(family)
    convert = converter(domain, Sample)
    special = {"eos_token": vocabulary.special["eos_token"]}
    template = ChatTemplate("none", "", special, control=tuple(sorted(vocabulary.control)), image=image_placeholder(family))
    for number, identity, record in source_records(workspace, Pretrain, "pretrain_raw", name, store):
        turns = sample_of(convert, record, identity).turns
        document = Sample((Turn(DOCUMENT, tuple(region for turn in turns for region in turn.regions)),))
        yield fresh_render(identity, store.record(number, "tokens"), document, template, vocabulary)


# -- SFT --------------------------------------------------------------------------------------------------------------------------------


def _sft_samples(workspace: Workspace, published: Published, stream: str) -> Iterator[tuple[int, str, Sample]]:
    """Number in the store, id and source of each record, control tokens taken out where the store was made so."""
    name = published.manifest.partition
    domain = domain_of(workspace.family(Sft), name)
    convert = converter(domain, Sample)
    shown = workspace.template(workspace.family(Sft)).shows_thinking
    stripped = published.manifest.recipe["special_in_content"] == "strip"
    pattern = control_pattern(workspace.vocabulary(workspace.family(Sft)).control) if stripped else None
    for number, identity, record in source_records(workspace, Sft, "sft_raw", name, open_tokens(published.directory, stream)):
        sample = read_again(sample_of(convert, record, identity), published.manifest.recipe, shown=shown)
        yield number, identity, treat(sample, pattern, "strip")[0]


def sft_rows(workspace: Workspace, published: Published, stream: str) -> Iterator[Row]:
    """Each record of an SFT token stream with what must be trained of it."""
    recipe, store = published.manifest.recipe, open_tokens(published.directory, stream)
    options = MaskOptions(**{key: recipe[key] for key in MaskOptions.__dataclass_fields__})
    template = workspace.template(workspace.family(Sft))
    for number, identity, sample in _sft_samples(workspace, published, stream):
        ids = store.record(number, "tokens")
        yield Row(identity, ids, store.record(number, "loss_mask"), expected_texts(sample, options, template), _cut(recipe, len(ids)))


def _cut(recipe: Mapping[str, Any], length: int) -> Cut:
    """What truncation may have taken from a record of so many tokens."""
    mode, limit = recipe["truncation"], recipe["preprocessing"]["max_seq_len"]
    if mode == "turns":
        return "turns"
    return mode if mode in ("start", "end") and length == limit else "none"


def sft_conversations(workspace: Workspace, published: Published, stream: str) -> Iterator[Conversation]:
    """Each record of an SFT token stream with a fresh render of its source."""
    recipe, store, family = published.manifest.recipe, open_tokens(published.directory, stream), workspace.family(Sft)
    template, vocabulary = workspace.template(family), workspace.vocabulary(family)
    limit = recipe["preprocessing"]["max_seq_len"]
    for number, identity, sample in _sft_samples(workspace, published, stream):
        ids = store.record(number, "tokens")
        # what truncation may have shortened is not compared; it reaches the limit, or is missing its oldest rounds
        whole = recipe["truncation"] == "drop" or (recipe["truncation"] != "turns" and (limit is None or len(ids) < limit))
        yield fresh_render(identity, ids, sample, template, vocabulary, allowed=recipe["special_in_content"] == "allow", whole=whole)


def fresh_render(
    identity: str,
    ids: Any,
    sample: Sample,
    template: ChatTemplate,
    vocabulary: Vocabulary,
    *,
    allowed: bool = False,
    whole: bool = True,
    generation_prompt: bool = False,
) -> Conversation:
    """A record's render without marks, and how many of the control tokens in it are the template's.

    Those are counted in a render of contents from which every control token's text is taken out. What stands for images is the template's.
    """
    pattern = control_pattern(vocabulary.control)
    shown = sum(region.kind == IMAGE and not region.drop for turn in sample.turns for region in turn.regions)
    placeholders = shown * _count(pattern, template.image)
    if all(turn.role in UNTEMPLATED for turn in sample.turns):
        eos = template.special.get("eos_token", "")
        text = "".join(shown_text(turn, template.image) + ("" if turn.role == "prompt" else eos) for turn in sample.turns)
        ends = sum(turn.role != "prompt" for turn in sample.turns)
        controls = placeholders + (ends if pattern is not None and pattern.fullmatch(eos) else 0)
    else:
        listed = messages(sample, pieces(sample, image=template.image))
        text = template.render(listed, tools=sample.tools, generation_prompt=generation_prompt)
        innocent = [_without_control(message, pattern) for message in listed]
        if innocent != listed:
            innocent_text = template.render(innocent, tools=sample.tools, generation_prompt=generation_prompt)
        controls = placeholders + _count(pattern, text if innocent == listed else innocent_text)
    total = _count(pattern, text)
    return Conversation(identity, ids, text, total if allowed else controls, 0 if allowed else max(0, total - controls), whole)


def shown_text(turn: Turn, image: str) -> str:
    """The text of a turn as it is trained on, with `image` for each of its images."""
    return "".join(image if region.kind == IMAGE else region.text for region in turn.regions if not region.drop)


def _count(pattern: re.Pattern[str] | None, text: str) -> int:
    return sum(1 for _ in pattern.finditer(text)) if pattern is not None else 0


def _without_control(value: Any, pattern: re.Pattern[str] | None) -> Any:
    """A message or a part of it, with a dot for each control token that is typed in it."""
    if isinstance(value, str):
        return pattern.sub("·", value) if pattern is not None else value
    if isinstance(value, dict):
        return {key: _without_control(inner, pattern) for key, inner in value.items()}
    return [_without_control(inner, pattern) for inner in value] if isinstance(value, list) else value


# -- preferences ------------------------------------------------------------------------------------------------------------------------


def preference_rows(workspace: Workspace, published: Published, side: str) -> Iterator[Row]:
    """Each record of one side of the tokenized pairs with the answer that must be trained."""
    pairs = open_published(workspace.stores, preference.PAIRS)
    if pairs.manifest.content_hash != published.manifest.recipe["pairs"]:
        raise StoreError(f"preferences was built again since these tokens. Build them again: {materialize_command('preference_tokens')}")
    template = workspace.template(workspace.family(Preference))
    for number, line, content in _pair_lines(pairs, open_tokens(published.directory, side)):
        store = open_tokens(published.directory, side)
        # the answers carry weights of their own, so no role is trained
        sample = read_again(pair_sample(dict(content), side), published.manifest.recipe, shown=template.shows_thinking)
        expected = expected_texts(sample, MaskOptions(mask={}), template)
        yield Row(f"line {line}", store.record(number, "tokens"), store.record(number, "loss_mask"), expected)


def _pair_lines(pairs: Published, store: TokenStore) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    wanted = {int(row): number for number, row in enumerate(store.row)}
    for line, content in enumerate(open_lines(pairs.directory, preference.TRAIN)):
        if line in wanted:
            yield wanted[line], line, content


def preference_conversations(workspace: Workspace, published: Published, side: str) -> Iterator[Conversation]:
    """Each record of one side of the tokenized pairs with a fresh render of its pair."""
    family = workspace.family(Preference)
    template, vocabulary = workspace.template(family), workspace.vocabulary(family)
    store = open_tokens(published.directory, side)
    for number, line, content in _pair_lines(open_published(workspace.stores, preference.PAIRS), store):
        sample = read_again(pair_sample(dict(content), side), published.manifest.recipe, shown=template.shows_thinking)
        yield fresh_render(f"line {line}", store.record(number, "tokens"), sample, template, vocabulary)
