"""Pretraining: documents → one flat token stream per domain and split, each document ended by the end-of-text token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.config.models import Pretrain
from prep_assets.errors import Refused, StoreError
from prep_assets.pipelines.build import Build
from prep_assets.pipelines.examples import Deduplicator, Item, Tally, examples, held_out, reading_recipe
from prep_assets.pipelines.routing import router_of
from prep_assets.pipelines.sources import domain_of, pinned
from prep_assets.pipelines.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.pipelines.versions import PRETRAIN as VERSION
from prep_assets.pipelines.workspace import Workspace
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Sample
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import RecordWriter, record_writer
from prep_assets.templates.rendering import render
from prep_assets.tokenization.engines import Flat
from prep_assets.tokenization.vocabulary import Vocabulary

RAW = "pretrain_raw"


def streams(workspace: Workspace, name: str) -> tuple[str, ...]:
    """The streams of a domain's store: ``<domain>_train``, and ``<domain>_dev`` where anything is held out."""
    family = workspace.family(Pretrain)
    has_dev = family.test_fraction > 0 or domain_of(family, name).test_files
    return (f"{name}_train", f"{name}_dev") if has_dev else (f"{name}_train",)


def tokens_recipe(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's token stream depends on."""
    family = workspace.family(Pretrain)
    domain = domain_of(family, name)
    raw = workspace.published(RAW, name)
    return {
        "stage": "pretrain_tokens",
        "version": VERSION,
        "domain": name,
        "raw": raw.manifest.content_hash if raw else None,
        "schema": reading_recipe(domain),
        "tokenizer": tokenizer_recipe(workspace, family),
        "preprocessing": family.preprocessing.model_dump(),
        "output": family.output.model_dump(),
        "test_fraction": family.test_fraction,
    }


def tokens_build(workspace: Workspace, name: str) -> Build:
    """Tokenize one domain."""
    family = workspace.family(Pretrain)
    vocabulary = workspace.vocabulary(family)
    names = streams(workspace, name)

    def write(payload: Path, quarantine_path: Path) -> Draft:
        dtype = ids_dtype(family, vocabulary)
        with ExitStack() as stack:
            quarantine = stack.enter_context(Quarantine(quarantine_path))
            shard = family.output.max_tokens_per_shard
            writers = [
                stack.enter_context(
                    record_writer(family.output.storage_format, payload, stream, {"tokens": dtype}, max_tokens_per_shard=shard)
                )
                for stream in names
            ]
            counts = _write_documents(workspace, name, writers, quarantine)
            counts["refused"] = quarantine.counts
        return Draft(
            counts,
            {"tokens_per_document": counts["tokens"] / max(1, counts["kept"])},
            ("ids inside the vocabulary", "documents end with eos"),
        )

    def audit(payload: Path) -> None:
        for stream in names:
            store = audit_stream(payload, stream, vocabulary)
            last = np.asarray(store.ends) - 1
            if len(last) and any(int(store.arrays["tokens"][int(at) : int(at) + 1][0]) != vocabulary.eos_id for at in (last[0], last[-1])):
                raise StoreError(f"{stream}: a document does not end with the end-of-text token")

    recipe = tokens_recipe(workspace, name)
    return Build(workspace.place("pretrain_tokens", name), recipe, tokens_recipe(workspace.plain, name), write, audit)


def _write_documents(workspace: Workspace, name: str, writers: list[RecordWriter], quarantine: Quarantine) -> dict[str, Any]:
    family = workspace.family(Pretrain)
    domain, sources, vocabulary = domain_of(family, name), pinned(workspace, Pretrain, RAW, name), workspace.vocabulary(family)
    engine = workspace.engines(family).first
    tally = Tally()
    tokens, done = [0, 0], 0
    deduplicator = Deduplicator() if family.preprocessing.deduplicate else None
    for files, in_test, offset in ((sources.files, False, 0), (sources.test_files, True, len(sources.files))):
        # max_items is about the training files; held-out ones are read whole
        reading = Tally()
        chosen = domain if not in_test else domain.model_copy(update={"max_items": None})
        for items, size in examples(
            chosen, router_of(family, name), files, quarantine, reading, deduplicator=deduplicator, block_bytes=16 << 20
        ):
            kept, texts = _documents(items, family, quarantine)
            flat = engine.encode(texts)
            keep = _acceptable(flat, texts, kept, vocabulary, family.preprocessing.max_seq_len, quarantine)
            to_dev = np.array([in_test or held_out(xxhash.xxh3_128_digest(text.encode()), family.test_fraction) for text in texts], bool)
            for split, writer in enumerate(writers):
                chosen_rows = np.flatnonzero(keep & (to_dev == bool(split)))
                ids, lengths = with_eos(flat, chosen_rows, vocabulary.eos_id)
                origin = [kept[i] for i in chosen_rows]
                writer.append(
                    {"tokens": ids}, lengths, [item.record.file + offset for item in origin], [item.record.row for item in origin]
                )
                tokens[split] += int(lengths.sum())
                tally.kept += len(chosen_rows)
            done += size
            workspace.progress(f"tokenize {name}", done, sources.bytes)
        tally.read += reading.read
    return {"read": tally.read, "kept": tally.kept, "tokens": sum(tokens), "tokens_train": tokens[0], "tokens_dev": tokens[1]}


def _documents(items: list[Item], family: Pretrain, quarantine: Quarantine) -> tuple[list[Item], list[str]]:
    """The items that are documents of acceptable size, and their texts."""
    kept, texts = [], []
    for item in items:
        try:
            text = _document(item, family)
        except Refused as refusal:
            item.refuse(quarantine, refusal)
            continue
        kept.append(item)
        texts.append(text)
    return kept, texts


def _document(item: Item, family: Pretrain) -> str:
    if not isinstance(item.example, Sample):
        raise Refused("not_a_document", f"the schema gives {type(item.example).__name__}, pretraining needs a Sample", stage="pretrain")
    text = render(item.example, None).text
    low, high = family.preprocessing.min_chars, family.preprocessing.max_chars
    if not text.strip() or len(text) < low:
        raise Refused("too_short", f"{len(text):,} characters, min_chars is {low:,} and a document needs a word", stage="pretrain")
    if high is not None and len(text) > high:
        raise Refused("too_many_chars", f"{len(text):,} characters, max_chars is {high:,}", stage="pretrain")
    return text


def _acceptable(
    flat: Flat, texts: list[str], items: list[Item], vocabulary: Vocabulary, max_seq_len: int | None, quarantine: Quarantine
) -> npt.NDArray[np.bool_]:
    """Which documents are kept: those whose tokens stand for exactly their bytes, and that are not too long."""
    keep = np.ones(len(texts), bool)
    for i, refusal in _faults(flat, texts, vocabulary, max_seq_len):
        if keep[i]:
            items[i].refuse(quarantine, refusal)
        keep[i] = False
    return keep


def _faults(flat: Flat, texts: list[str], vocabulary: Vocabulary, max_seq_len: int | None) -> Iterator[tuple[int, Refused]]:
    lengths = np.diff(flat.offsets)
    if vocabulary.byte_lengths is not None and texts:
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(vocabulary.byte_lengths[flat.ids])])
        surplus = np.diff(running[flat.offsets]) - np.array([len(text.encode()) for text in texts])
        # a SentencePiece tokenizer puts one space in front of the first word
        for i in np.flatnonzero((surplus != 0) & ~((surplus == 1) & (vocabulary.prefix_space != "never"))):
            detail = "the tokenizer cannot represent some character of this text: its tokens do not decode to it"
            yield int(i), Refused("lossy_tokenizer", detail, stage="tokenize")
    if max_seq_len is not None:
        for i in np.flatnonzero(lengths > max_seq_len):
            yield int(i), Refused("too_long", f"{lengths[i]:,} tokens, max_seq_len is {max_seq_len:,}", stage="tokenize")


def with_eos(flat: Flat, rows: npt.NDArray[np.int64], eos: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The ids of some texts, each followed by `eos`, end to end; and the length of each, `eos` counted."""
    lengths = np.diff(flat.offsets)
    chosen = np.zeros(len(lengths), bool)
    chosen[rows] = True
    ids = flat.ids if len(rows) == len(lengths) else flat.ids[np.repeat(chosen, lengths)]
    out_lengths = lengths[rows] + 1
    ends = np.cumsum(out_lengths) - 1
    out = np.empty(len(ids) + len(rows), np.uint32)
    is_text = np.ones(len(out), bool)
    is_text[ends] = False
    out[is_text], out[ends] = ids, eos
    return out, out_lengths
