"""Rows that were refused, looked at once more, each alone: the reason that the quarantine gives must be found again.

Sizes and lengths are measured by other code. What a schema or a template refuses, only they can say, so they are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.reading.domain import Reading
from prep_assets.assets.reading.examples import Item
from prep_assets.assets.reading.reasoning import inline_reasoning, unrendered_reasoning
from prep_assets.assets.reading.source import Source
from prep_assets.assets.stage import FromRows, Store
from prep_assets.assets.writing.contrast_rows import Judged
from prep_assets.assets.writing.conversations import conversations_of
from prep_assets.assets.writing.documents import document_text
from prep_assets.assets.writing.groups import Tokenize
from prep_assets.assets.writing.image_parts import ImageParts
from prep_assets.assets.writing.masked_documents import POLICY, MaskedDocuments, untemplated
from prep_assets.assets.writing.message_rows import form_of
from prep_assets.assets.writing.pairs import PairEncoder
from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.assets.writing.prompts import generation_prompt, prompt_encoder, prompt_of, prompt_row
from prep_assets.config.models import Preference, Pretrain, Rl
from prep_assets.errors import Refused
from prep_assets.proofs.selection import Again
from prep_assets.records.quarantine import Quarantine, Refusal
from prep_assets.samples import Record
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.sentences import sentences_of

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
            reading = Source.of(store.workspace, type(store.family), store.raw, second.name, gives=source.gives).reading()
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
    judged = Judged(store.workspace)
    return _one_by_one(lambda item: judged.row(item.example))


def prompts(store: Store, second: Second) -> Reasons:
    """How prompts are looked at again."""
    reasoning, form = unrendered_reasoning(store.workspace.family(Rl)), form_of(store.directory)
    return _one_by_one(lambda item: prompt_row(prompt_of(reasoning.read(item.example)), form))


def groups(store: Store, second: Second) -> Reasons:
    """How groups are looked at again."""
    tokenize, heard = Tokenize(store.workspace, second.name), Heard()
    return _one_by_one(lambda item: list(tokenize([item], heard)))
