"""SFT tokens: instructions and chats → token ids with a loss mask, one store per domain; and the certificate of the chat template."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.build import Build
from prep_assets.assets.graph import MASK
from prep_assets.assets.raw import domain_of
from prep_assets.assets.reading.domain import Reading, passed_over
from prep_assets.assets.reading.examples import Item, content_digest, held_out, reading_recipe
from prep_assets.assets.reading.reasoning import inline_reasoning, reasoning_recipe
from prep_assets.assets.reading.source import Source
from prep_assets.assets.versions import SFT as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.conversations import Conversations
from prep_assets.assets.writing.images import ImageFiles, stored_image_id
from prep_assets.assets.writing.in_shards import Streams, encode_domain
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Chat, Domain, Sft
from prep_assets.errors import StoreError, TemplateError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Sample
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import RecordWriter, record_writer
from prep_assets.templates.certify import Certificate, certify
from prep_assets.tokenization.encode import Encoded, Encoder
from prep_assets.tokenization.policy import MaskPolicy

RAW = "sft_raw"
TOKENS = "sft_tokens"
CERTIFICATE = "sft_template"


class _FractionalWeights(Exception):
    """A loss weight is neither 0 nor 1, so the mask needs float32."""


def splits(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Streams of a domain's token store: ``train``, and ``dev`` where anything is held out."""
    family = workspace.family(Sft)
    return ("train", "dev") if family.test_fraction > 0 or domain_of(family, name).test_files else ("train",)


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


def check_policy(workspace: Workspace) -> Certificate:
    """The certificate of the family's template.

    Raises:
        TemplateError: the template cannot support what the configuration asks of it; nothing has been read yet.
    """
    family = workspace.family(Sft)
    certificate = certify(workspace.template(family))
    faults = certificate.faults(train_on_eos=family.train_on_eos, train_headers=family.train_headers)
    if family.expand == "turns" and not workspace.template(family).shows_thinking:
        faults.append(f"expand: turns is about reasoning, and template {certificate.template} writes none; leave it out")
    if faults:
        raise TemplateError("; ".join(faults))
    return certificate


def certificate_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the certificate depends on."""
    family = workspace.family(Sft)
    return {
        "stage": CERTIFICATE,
        "version": VERSION,
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
    }


def certificate_build(workspace: Workspace, _: str = "") -> Build:
    """Write down what the family's chat template does with conversations."""

    def write(payload: Path, quarantine: Path) -> Draft:
        family = workspace.family(Sft)
        certificate = certify(workspace.template(family), workspace.vocabulary(family)).as_dict()
        (payload / "certificate.json").write_text(json.dumps(certificate, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return Draft({}, {}, ())

    return Build(
        workspace.place(CERTIFICATE), certificate_recipe(workspace), certificate_recipe(workspace.plain), write, lambda payload: None
    )


def chat_recipe(workspace: Workspace, family: Chat, raw: str, name: str) -> dict[str, Any]:
    """What the tokens of a conversation depend on, whatever the family."""
    domain = domain_of(family, name)
    published = workspace.published(raw, name)
    return {
        "domain": name,
        "raw": published.manifest.content_hash if published else None,
        "schema": reading_recipe(domain),
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "preprocessing": family.preprocessing.model_dump(),
        "test_fraction": getattr(family, "test_fraction", 0.0),
    }


def tokens_recipe(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's SFT tokens depend on."""
    family = workspace.family(Sft)
    mask = family.model_dump(include=set(MASK))
    output = family.output.model_dump(include={"dtype", "max_tokens_per_shard"})
    return {
        "stage": TOKENS,
        "version": VERSION,
        **chat_recipe(workspace, family, RAW, name),
        **mask,
        "expand": family.expand,
        "output": output,
    }


def tokens_build(workspace: Workspace, name: str) -> Build:
    """Render, tokenize and mask one domain. The store is always `bin`: the canonical, memory-mapped one that packs and exports read."""
    family = workspace.family(Sft)
    vocabulary, names = workspace.vocabulary(family), splits(workspace, name)
    check_policy(workspace)
    image = stored_image_id(workspace, family)

    def write(payload: Path, quarantine: Path) -> Draft:
        try:
            return _write_tokens(workspace, name, names, payload, quarantine, "uint8")
        except _FractionalWeights:
            for left in payload.iterdir():
                shutil.rmtree(left)
            return _write_tokens(workspace, name, names, payload, quarantine, "float32")

    def audit(payload: Path) -> None:
        for stream in names:
            store = audit_stream(payload, stream, vocabulary, image)
            if len(store) and not np.logical_or.reduceat(np.asarray(store.arrays["loss_mask"][:]) != 0, store.starts).all():
                raise StoreError(f"{name}/{stream}: a record has no trained token")

    recipe = tokens_recipe(workspace, name)
    return Build(workspace.place(TOKENS, name), recipe, tokens_recipe(workspace.plain, name), write, audit)


def _write_tokens(workspace: Workspace, name: str, names: Sequence[str], payload: Path, quarantine_path: Path, loss_dtype: str) -> Draft:
    family = workspace.family(Sft)
    dtypes = {"tokens": ids_dtype(family, workspace.vocabulary(family)), "loss_mask": loss_dtype}
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        shard = family.output.max_tokens_per_shard
        writers = [stack.enter_context(record_writer("bin", payload, stream, dtypes, max_tokens_per_shard=shard)) for stream in names]
        source = Source.of(workspace, Sft, RAW, name, gives=Sample)
        encode = partial(encode_chats, loss_dtype=loss_dtype)
        counts = encode_domain(source, encode, Streams(payload, names, dtypes), writers, quarantine)
        counts["refused"] = quarantine.counts
    metrics = {"trained_fraction": counts["trained_tokens"] / max(1, counts["tokens"])}
    return Draft(counts, metrics, ("ids inside the vocabulary", "every record has a trained token"))


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
    )
    template, reasoning, images = workspace.template(family), inline_reasoning(workspace, family), workspace.image_folder(domain)
    return Conversations(template, encoder, reasoning, family.special_in_content, images, quarantine, family.expand == "turns")


def encode_chats(
    workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine, *, loss_dtype: str
) -> dict[str, Any]:
    """Render, tokenize, mask and write a domain, or a part of one; see `Encode`."""
    family = workspace.family(Sft)
    counts = {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0, "kept_dev": 0}
    conversations = conversations_of(workspace, reading.domain, quarantine)
    images = examples = 0
    for items, in_test in reading.examples("tokenize", quarantine):
        kept, encoded = conversations.encode(items)
        if loss_dtype != "float32" and ((encoded.loss != 0) & (encoded.loss != 1)).any():
            raise _FractionalWeights
        to_dev = np.array([in_test or held_out(content_digest(item.record), family.test_fraction) for item in kept], bool)
        for split, writer in enumerate(writers):
            arrays = {"tokens": encoded.ids, "loss_mask": encoded.loss}
            write_records(writer, encoded, kept, to_dev == bool(split), arrays, conversations.files)
        first = firsts(kept)
        counts["kept"] += int(first.sum())
        counts["kept_dev"] += int((to_dev & first).sum())
        examples += len(kept)
        counts["tokens"] += len(encoded.ids)
        counts["trained_tokens"] += int((encoded.loss != 0).sum())
        images += len(encoded.images)
    counts["read"] = reading.read
    counts["control_tokens_in_content"] = conversations.control_tokens
    if family.expand == "turns":
        counts["examples"] = examples
    if conversations.reasoning_left_out:
        counts["reasoning_dropped_by_template"] = conversations.reasoning_left_out
    if images or conversations.images_cut_away:
        counts |= {"images": images, "images_cut_away": conversations.images_cut_away}
    return {**counts, **passed_over(reading)}


def firsts(items: Sequence[Item]) -> npt.NDArray[np.bool_]:
    """Which of the kept examples are the first of their record: bool[n]."""
    return np.array([number == 0 or item.record is not items[number - 1].record for number, item in enumerate(items)], bool)


def write_records(
    writer: RecordWriter,
    encoded: Encoded,
    items: Sequence[Item],
    chosen: npt.NDArray[np.bool_],
    arrays: dict[str, npt.NDArray[Any]],
    files: ImageFiles,
) -> None:
    """Write the chosen records of a batch to a stream, with the images in them."""
    lengths = np.diff(encoded.offsets)
    tokens = np.repeat(chosen, lengths)
    block = {key: array if chosen.all() else array[tokens] for key, array in arrays.items()}
    origin = [item for item, take in zip(items, chosen, strict=True) if take]
    images = files.block(encoded.images.of(chosen)) if len(encoded.images) else None
    numbers, rows = [item.record.file for item in origin], [item.record.row for item in origin]
    writer.append(block, lengths[chosen], numbers, rows, images)
