"""Rows that were refused, looked at once more, each alone: the reason that the quarantine gives must be found again.

Sizes and lengths are measured by other code. What a schema or a template refuses, only they can say, so they are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets import preferences as preference
from prep_assets.assets import rl_groups
from prep_assets.assets import rl_prompts as rl
from prep_assets.assets import sft_tokens as sft
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.graph import EVERY
from prep_assets.assets.pretrain_tokens import document_text
from prep_assets.assets.reading.domain import Reading
from prep_assets.assets.reading.examples import Item
from prep_assets.assets.reading.reasoning import inline_reasoning, unrendered_reasoning
from prep_assets.assets.reading.source import Source
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import ImageFiles
from prep_assets.assets.writing.masked_documents import POLICY, MaskedDocuments, untemplated
from prep_assets.assets.writing.message_rows import RowForm
from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.config.models import Family, Preference, Pretrain, Rl
from prep_assets.errors import Refused
from prep_assets.proofs.selection import Again
from prep_assets.records.quarantine import Quarantine, Refusal
from prep_assets.samples import Group, Pair, Prompt, Record, Sample
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Published
from prep_assets.tokenization.encode import Encoder

Judge = Callable[[Item], object]
"""Raises `Refused` for an item that the family refuses."""


class Heard(Quarantine):
    """A quarantine that raises what it is told, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path())

    def write(self, refusal: Refusal) -> None:
        """Raise it."""
        raise Refused(refusal.reason, refusal.detail, stage=refusal.stage)


def alone(workspace: Workspace, kind: type[Family], published: Published, second: Second) -> Again:
    """How a refused row of a domain is looked at again."""
    asset = published.manifest.asset
    gives, judge_of = _FAMILIES[asset]
    (raw,) = EVERY[asset].upstream
    made: list[tuple[Reading, Judge]] = []

    def again(file: int, row: int, payload: Mapping[str, Any]) -> str:
        if not made:
            reading = Source.of(workspace, kind, raw, second.name, gives=gives).reading()
            reading.deduplicator = None
            made.append((reading, judge_of(workspace, second, published)))
        [(reading, judge)] = made
        try:
            record = Record(file, row, dict(payload))
            judge(Item(second.files[file], record, reading.example(second.files[file], record)))
        except Refused as refusal:
            return f"{refusal.stage or 'pipeline'}/{refusal.reason}"
        return ""

    return again


def line_alone(workspace: Workspace, published: Published) -> Again:
    """How a refused line of a JSONL store is looked at again."""
    heard, made = Heard(), list[Encoder]()

    def again(file: int, row: int, payload: Mapping[str, Any]) -> str:
        try:
            if published.manifest.asset == "preference_tokens":
                made[:] = made or [preference.pair_encoder(workspace)]
                preference.encode_pairs(workspace, [dict(payload)], row, made[0], heard)
            else:
                made[:] = made or [rl.prompt_encoder(workspace)]
                family = workspace.family(Rl)
                rendered = rl.generation_prompt(workspace.template(family), inline_reasoning(workspace, family), dict(payload))
                for _, fault in made[0].encode([rendered]).refused:
                    raise fault
        except Refused as refusal:
            return f"{refusal.stage}/{refusal.reason}"
        return ""

    return again


def _documents(workspace: Workspace, second: Second, published: Published) -> Judge:
    family = workspace.family(Pretrain)
    if family.image_token is not None or "trained_tokens" in published.manifest.counts:
        return _masked_documents(workspace, second, published)
    options, vocabulary, engine = family.preprocessing, workspace.vocabulary(family), workspace.engines(family).reference
    fim = options.fim

    def judge(item: Item) -> None:
        text = document_text(item.example)
        if not text.strip() or len(text) < options.min_chars:
            raise Refused("too_short", "", stage="pretrain")
        if options.max_chars is not None and len(text) > options.max_chars:
            raise Refused("too_many_chars", "", stage="pretrain")
        if any(token in text for token in ((fim.prefix_token, fim.suffix_token, fim.middle_token) if fim.rate else ())):
            raise Refused("control_token_in_content", "", stage="pretrain")
        ids = engine.encode([text]).ids
        if vocabulary.token_bytes is not None and vocabulary.decode(ids).removeprefix(" ") != text.removeprefix(" "):
            raise Refused("lossy_tokenizer", "", stage="tokenize")
        # the cut parts of a document have three sentinels between them, and may be a few tokens longer than the whole
        if options.max_seq_len is not None and len(ids) + (8 if fim.rate else 0) > options.max_seq_len:
            raise Refused("too_long", "", stage="tokenize")

    return judge


def _masked_documents(workspace: Workspace, second: Second, published: Published) -> Judge:
    family = workspace.family(Pretrain)
    files = ImageFiles(workspace.image_folder(second.domain))
    documents, heard = MaskedDocuments(untemplated(workspace, family), files, family), Heard()
    encoder = Encoder(workspace.vocabulary(family), workspace.engines(family), POLICY, trains=False)

    def judge(item: Item) -> None:
        encoded = encoder.encode(documents.render([item], heard)[1])
        for _, fault in (*encoded.refused, *documents.too_long(encoded.kept, np.diff(encoded.offsets)).items()):
            raise fault

    return judge


def _chats(workspace: Workspace, second: Second, published: Published) -> Judge:
    conversations = sft.conversations_of(workspace, second.domain, Heard())
    return lambda item: conversations.encode([item])


def _pairs(workspace: Workspace, second: Second, published: Published) -> Judge:
    reasoning, form = unrendered_reasoning(workspace.family(Preference)), form_of(published)
    return lambda item: preference_row(reasoning.read(item.example), form)


def _prompts(workspace: Workspace, second: Second, published: Published) -> Judge:
    reasoning, form = unrendered_reasoning(workspace.family(Rl)), form_of(published)
    return lambda item: rl.prompt_row(rl.prompt_of(reasoning.read(item.example)), form)


def form_of(published: Published) -> RowForm:
    """Whether the rows of a store are strings or messages, which its first row says."""
    lines = (line for path in sorted(published.directory.glob("*.jsonl")) for line in open_lines(published.directory, path.stem))
    first = next(lines, None)
    return "text" if first is None or isinstance(first["prompt"], str) else "messages"


def _groups(workspace: Workspace, second: Second, published: Published) -> Judge:
    tokenize, heard = rl_groups.Tokenize(workspace, second.name), Heard()
    return lambda item: list(tokenize([item], heard))


_FAMILIES: Mapping[str, tuple[type, Callable[[Workspace, Second, Published], Judge]]] = {
    "pretrain_tokens": (Sample, _documents),
    "sft_tokens": (Sample, _chats),
    preference.PAIRS: (Pair, _pairs),
    rl.PROMPTS: (Prompt, _prompts),
    rl_groups.GROUPS: (Group, _groups),
}
