"""SFT tokens: instructions and chats → token ids with a loss mask, one store per domain."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.checks import alone
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.conversations import Chats
from prep_assets.assets.checks.every_store import IDENTITY, INTEGRITY, MASKED
from prep_assets.assets.checks.sides import by_fields
from prep_assets.assets.checks.token_rows import token_rows
from prep_assets.assets.checks.verification import SELECTION, derived
from prep_assets.assets.columns import MASKED_TOKENS as COLUMNS
from prep_assets.assets.options import IMAGES, REASONING, TEMPLATE
from prep_assets.assets.previews import record_preview
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import attention_recipe, content_digest, held_out, reading_recipe
from prep_assets.assets.reading.pinned import domain_of
from prep_assets.assets.reading.reasoning import reasoning_recipe
from prep_assets.assets.reading.source import Source
from prep_assets.assets.sft_template import check_policy
from prep_assets.assets.stage import Asset, Check, FromRows, Stream
from prep_assets.assets.versions import SFT as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.block import firsts
from prep_assets.assets.writing.conversations import conversations_of, write_records
from prep_assets.assets.writing.domain_in_shards import encode_domain
from prep_assets.assets.writing.images import stored_image_id
from prep_assets.assets.writing.in_shards import Streams
from prep_assets.assets.writing.tokens import NeedsColumns, audit_stream, ids_dtype, mask_columns, tokenizer_recipe
from prep_assets.config.models import Sft
from prep_assets.errors import StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Sample
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import RecordWriter, TokenStore, record_writer

RAW = "sft_raw"
MASK = (
    "mask",
    "mask_default",
    "train_on_eos",
    "train_turns",
    "train_thinking",
    "train_tool_calls",
    "train_headers",
    "special_in_content",
    "truncation",
    "truncation_keeps_stop",
    "truncation_keeps",
)
"""Options that decide the loss mask."""


def splits(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Streams of a domain's token store: ``train``, and ``dev`` where anything is held out."""
    family = workspace.family(Sft)
    return ("train", "dev") if family.test_fraction > 0 or domain_of(family, name).test_files else ("train",)


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's SFT tokens depend on."""
    family = workspace.family(Sft)
    return {
        "domain": name,
        "raw": workspace.content(RAW, name),
        "schema": reading_recipe(domain_of(family, name)),
        **attention_recipe(domain_of(family, name)),
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **({"image_rule": rule.model_dump()} if (rule := workspace.image_rule(family)) else {}),
        **reasoning_recipe(family),
        "preprocessing": family.preprocessing.model_dump(),
        "test_fraction": family.test_fraction,
        **family.model_dump(include=set(MASK)),
        "expand": family.expand,
        "output": family.output.model_dump(include={"dtype", "max_tokens_per_shard"}),
    }


def _write(workspace: Workspace, name: str, payload: Path, quarantine: Path) -> Draft:
    """Render, tokenize and mask one domain. The store is always `bin`: the canonical, memory-mapped one that packs and exports read."""
    check_policy(workspace)
    stored_image_id(workspace, workspace.family(Sft))  # an image token that cannot be one is refused before a record is read
    masks: Mapping[str, str] = {"loss_mask": "uint8"}
    while True:
        try:
            return _write_streams(workspace, name, payload, quarantine, masks)
        except NeedsColumns as needed:
            masks = {**masks, **needed.dtypes}
            for leftover in payload.iterdir():
                shutil.rmtree(leftover)


def _audit(workspace: Workspace, name: str, payload: Path) -> None:
    family = workspace.family(Sft)
    vocabulary, image = workspace.vocabulary(family), stored_image_id(workspace, family)
    for stream in splits(workspace, name):
        store = audit_stream(payload, stream, vocabulary, image, workspace.image_rule(family))
        for records, tokens in store.blocks():
            mask, starts = np.asarray(store.arrays["loss_mask"][tokens]), store.starts_of(records) - tokens.start
            if not np.logical_or.reduceat(mask != 0, starts).all():
                raise StoreError(f"{name}/{stream}: a record has no trained token")


def _write_streams(workspace: Workspace, name: str, payload: Path, quarantine_path: Path, masks: Mapping[str, str]) -> Draft:
    family, names = workspace.family(Sft), splits(workspace, name)
    dtypes = {"tokens": ids_dtype(family, workspace.vocabulary(family)), **masks}
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        shard = family.output.max_tokens_per_shard
        writers = {
            stream: stack.enter_context(record_writer("bin", payload, stream, dtypes, max_tokens_per_shard=shard)) for stream in names
        }
        source = Source.of(workspace, Sft, RAW, name, gives=Sample)
        encode = partial(encode_chats, masks=masks)
        counts = encode_domain(source, encode, Streams(payload, dict.fromkeys(names, dtypes), writers, quarantine))
        counts["refused"] = quarantine.counts
    metrics = {"trained_fraction": counts["trained_tokens"] / max(1, counts["tokens"])}
    return Draft(counts, metrics, ("ids inside the vocabulary", "every record has a trained token"))


def encode_chats(
    workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine, *, masks: Mapping[str, str]
) -> dict[str, Any]:
    """Render, tokenize, mask and write a domain, or a part of one; see `Encode`.

    Args:
        masks: the masks that writers take beside the tokens, and their dtypes.

    Raises:
        NeedsColumns: they cannot hold the weights.
    """
    family = workspace.family(Sft)
    counts = {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0, "kept_dev": 0}
    conversations = conversations_of(workspace, reading.domain, quarantine)
    images = examples = cut_away = 0
    for items, in_test in reading.examples("tokenize", quarantine, plain=True):
        kept, encoded = conversations.encode(items)
        arrays = {"tokens": encoded.ids, **mask_columns(encoded.loss, masks)}
        trained = int(np.count_nonzero(arrays["loss_mask"]))
        to_dev = np.full(len(kept), in_test)
        if family.test_fraction > 0 and not in_test:
            to_dev = np.array([held_out(content_digest(item.record), family.test_fraction) for item in kept], bool)
        for split, writer in enumerate(writers):
            write_records(writer, encoded, kept, to_dev == bool(split), arrays, conversations.images.files)
        first = firsts(kept) if family.expand == "turns" else np.ones(len(kept), bool)
        counts["kept"] += int(np.count_nonzero(first))
        counts["kept_dev"] += int((to_dev & first).sum())
        examples += len(kept)
        counts["tokens"] += len(encoded.ids)
        counts["trained_tokens"] += trained
        images += len(encoded.images)
        cut_away += int(encoded.taken.sum())
    counts["read"] = reading.read
    counts["control_tokens_in_content"] = conversations.control_tokens
    if family.expand == "turns":
        counts["examples"] = examples
    if conversations.reasoning_left_out:
        counts["reasoning_dropped_by_template"] = conversations.reasoning_left_out
    if cut_away:
        counts["tokens_cut_away"] = cut_away
    if images or conversations.images_cut_away:
        counts |= {"images": images, "images_cut_away": conversations.images_cut_away}
    return {**counts, **conversations.tokenized.counts, **passed_over(reading)}


ASSET = Asset(
    name="sft_tokens",
    family="sft",
    description="""Token ids and loss mask of every conversation, one store per domain.

Each conversation is rendered once by the chat template and tokenized once; the mask follows from where its regions stand in the render.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(RAW,),
    options=(
        *TEMPLATE,
        *REASONING,
        "expand",
        *IMAGES,
        *MASK,
        "preprocessing",
        "test_fraction",
        "output.dtype",
        "output.max_tokens_per_shard",
    ),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check(
            "row_integrity",
            "Ids are inside the vocabulary, mask and tokens are equally long, every record trains something.",
            token_rows,
        ),
        derived("mask_alignment", MASKED),
        derived("tokenization_identity", IDENTITY),
        SELECTION,
    ),
    derivations=(Chats,),
    in_parts=True,
    preview=record_preview,
    streams={split: Stream(TokenStore, split, masked=True) for split in ("train", "dev")},
    source=FromRows(Sample, alone.chats, by_fields),
    columns=COLUMNS,
)
