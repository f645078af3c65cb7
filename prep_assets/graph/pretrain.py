"""Pretraining: documents → one flat token stream per domain and split, each document ended by the end-of-text token."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.checks import of_stores
from prep_assets.checks.of_documents import TEXTS, Masks, pretrain_rows
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, SELECTION, derived
from prep_assets.checks.sources_again import by_text
from prep_assets.config.models import Pretrain
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError, StoreError
from prep_assets.graph.previews import record_preview
from prep_assets.pipeline.asset import (
    IMAGES,
    PRETRAIN_VERSION,
    TOKEN_COLUMNS,
    TOKENIZER,
    Asset,
    Check,
    FromRows,
    Stream,
)
from prep_assets.pipeline.documents import (
    Documents,
    Sizes,
    document_text,
    lossy,
    read_documents,
    stop_at_masks,
    too_long,
    write_masked_documents,
)
from prep_assets.pipeline.examples import Reading, Source, attention_recipe, held_out, passed_over, reading_recipe
from prep_assets.pipeline.images import stored_image_id
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.tokens import NeedsColumns, Streams, audit_stream, encode_domain, ids_dtype, tokenizer_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Example, Sample
from prep_assets.stores.arrays import ahead
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import Block, RecordWriter, TokenStore, record_writer
from prep_assets.text.documents import STARTS, FillInTheMiddle, refuse_other_bytes, sentences_of, sentinels_of
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Ends, ends_of

RAW = "pretrain_raw"


def streams(workspace: Workspace, name: str) -> tuple[str, ...]:
    """The streams of a domain's store: ``<domain>_train``, and ``<domain>_dev`` where anything is held out."""
    family = workspace.family(Pretrain)
    has_dev = family.test_fraction > 0 or domain_of(family, name).test_files
    return (f"{name}_train", f"{name}_dev") if has_dev else (f"{name}_train",)


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's token stream depends on."""
    family = workspace.family(Pretrain)
    domain = domain_of(family, name)
    return {
        "domain": name,
        "raw": workspace.content(RAW, name),
        "schema": reading_recipe(domain),
        **attention_recipe(domain),
        "tokenizer": tokenizer_recipe(workspace, family),
        # without a rate nothing is cut, and the other options of fim mean nothing
        "preprocessing": family.preprocessing.model_dump(exclude=None if family.preprocessing.fim.rate else {"fim"}),
        "output": family.output.model_dump(),
        "bos": ends_of(workspace.vocabulary(family), family.bos).bos is not None,
        **({} if family.append_eod else {"append_eod": False}),
        **({"split_sentences": cutter.identity} if (cutter := sentences_of(family.split_sentences)) else {}),
        "test_fraction": family.test_fraction,
        **({"image": workspace.image_placeholder(family)} if family.image_token else {}),
        **({"image_rule": rule.model_dump()} if (rule := workspace.image_rule(family)) else {}),
    }


def _write(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Tokenize one domain; once more with a mask where a document turns out to need one."""
    masks: Mapping[str, str] = {}
    while True:
        try:
            return _write_streams(workspace, name, payload, quarantine_path, masks)
        except NeedsColumns as needed:
            if workspace.family(Pretrain).split_sentences is not None:
                raise ConfigError(
                    f"{name} has images or regions that are not trained: split_sentences would cut documents through them. Leave it out"
                ) from needed
            masks = {**masks, **needed.dtypes}
            for leftover in payload.iterdir():
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            quarantine_path.unlink(missing_ok=True)


def _write_streams(workspace: Workspace, name: str, payload: Path, quarantine_path: Path, masks: Mapping[str, str]) -> Draft:
    family = workspace.family(Pretrain)
    dtypes = {"tokens": ids_dtype(family, workspace.vocabulary(family)), **masks}
    if family.split_sentences is not None:
        refuse_other_bytes(workspace.vocabulary(family))
        dtypes[STARTS] = "uint8"
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        shard = family.output.max_tokens_per_shard
        names = streams(workspace, name)
        writers = {
            stream: stack.enter_context(record_writer(family.output.storage_format, payload, stream, dtypes, max_tokens_per_shard=shard))
            for stream in names
        }
        source = Source.of(workspace, Pretrain, RAW, name, gives=Sample)
        encode = partial(write_masked_documents, masks=masks) if masks else write_documents
        found = encode_domain(source, encode, Streams(payload, dict.fromkeys(names, dtypes), writers, quarantine), busy=1 if masks else 2)
        counts: dict[str, Any] = {**found, "refused": quarantine.counts}
    metrics = {"tokens_per_document": counts["tokens"] / max(1, counts["kept"])}
    return Draft(counts, metrics, ("ids inside the vocabulary", "documents end with eos"))


def _audit(workspace: Workspace, name: str, payload: Path) -> None:
    family = workspace.family(Pretrain)
    vocabulary, image = workspace.vocabulary(family), stored_image_id(workspace, family)
    for stream in streams(workspace, name):
        store = audit_stream(payload, stream, vocabulary, image, workspace.image_rule(family))
        last = np.asarray(store.ends) - 1
        if (
            family.append_eod
            and len(last)
            and any(int(store.arrays["tokens"][int(at) : int(at) + 1][0]) != vocabulary.eos_id for at in (last[0], last[-1]))
        ):
            raise StoreError(f"{stream}: a document does not end with the end-of-text token")


def write_documents(workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine) -> dict[str, Any]:
    """Read, tokenize and write one domain, or a part of one (see `Encode`): each in a thread of its own, at most a few blocks apart, in the order
    of the source."""
    family = workspace.family(Pretrain)
    vocabulary, name = workspace.vocabulary(family), reading.name
    fim, ends = fill_in_the_middle(workspace, family), ends_of(vocabulary, family.bos, family.append_eod)
    engine, byte_lengths = workspace.engines(family).first, vocabulary.byte_lengths if fim is None else fim.byte_lengths()
    sizes = Sizes(family.preprocessing.min_chars, family.preprocessing.max_chars)
    tokens, kept = [0, 0], 0

    def tokenized(text: str, record: str) -> str:
        return vocabulary.normalized(text) if fim is None else fim.normalized(text, f"{name}/{record}")

    def check(text: str) -> None:
        sizes.check(text)
        if fim is not None:
            fim.check(text)

    def text_of(example: Example) -> str:
        stop_at_masks(example, images=family.image_token is not None)
        return document_text(example)

    sentences = sentences_of(family.split_sentences)

    def encode(documents: Documents) -> _Encoded:
        if sentences is not None:
            return sentences.encode(documents.texts, engine)
        return engine.encode(documents.texts) if fim is None else fim.encode(
            documents.texts, [f"{name}/{id}" for id in documents.ids]
        ), None

    with closing(ahead(_tokenized(read_documents(reading, text_of, check), encode))) as blocks:
        for documents, (flat, begins) in blocks:
            # a text that is lossy is refused for that, however long it is
            faults = dict(too_long(flat, family.preprocessing.max_seq_len)) | lossy(flat, documents, vocabulary, byte_lengths, tokenized)
            documents.write_refused(quarantine, list(faults.items()))
            to_dev = _to_dev(documents.texts, documents.held_out, family.test_fraction)
            for split, writer in enumerate(writers):
                rows = np.array([i for i in range(len(to_dev)) if to_dev[i] == split and i not in faults], np.int64)
                picked = flat.take(rows)
                ids, lengths = ends.around(picked.ids, np.diff(picked.offsets))
                block: Block = {"tokens": ids, **({} if begins is None else {STARTS: _sentence_starts(begins, flat, rows, ends)})}
                origin = [documents.records[i] for i in rows]
                writer.append(block, lengths, [record.file for record in origin], [record.row for record in origin])
                tokens[split] += int(lengths.sum())
                kept += len(rows)
            reading.advance("tokenize", documents.size)
    return {
        "read": reading.read,
        "kept": kept,
        "tokens": sum(tokens),
        "tokens_train": tokens[0],
        "tokens_dev": tokens[1],
        **passed_over(reading),
    }


_Encoded = tuple[Flat, npt.NDArray[np.uint8] | None]
"""Ids of documents, and where sentences begin, where documents are cut into them."""


def _sentence_starts(begins: npt.NDArray[np.uint8], flat: Flat, rows: npt.NDArray[np.int64], ends: Ends) -> npt.NDArray[np.uint8]:
    """Where sentences begin in some documents, with what stands around each: the begin-of-text token begins the first sentence."""
    picked = Flat(begins.astype(np.uint32), flat.offsets).take(rows)
    marks, lengths = picked.ids.astype(np.float32), np.diff(picked.offsets)
    marks[np.cumsum(lengths) - lengths] = ends.bos is None
    return ends.weights_around(marks, lengths, np.zeros(len(lengths), np.float32)).astype(np.uint8)


def _tokenized(read: Iterator[Documents], encode: Callable[[Documents], _Encoded]) -> Iterator[tuple[Documents, _Encoded]]:
    """Blocks with their tokens; the next block is read meanwhile."""
    with closing(ahead(read)) as blocks:
        for documents in blocks:
            yield documents, encode(documents)


def _to_dev(texts: Sequence[str], in_test: bool, fraction: float) -> npt.NDArray[np.bool_]:
    """Which documents are held out: all of a test file, else what the hash of their text says."""
    if in_test or not fraction:
        return np.full(len(texts), in_test)
    return np.array([held_out(xxhash.xxh3_128_digest(text.encode()), fraction) for text in texts], bool)


def fill_in_the_middle(workspace: Workspace, family: Pretrain) -> FillInTheMiddle | None:
    """How documents are cut; `None` where they stay whole.

    Raises:
        ConfigError: the tokenizer cannot do it.
    """
    fim, vocabulary = family.preprocessing.fim, workspace.vocabulary(family)
    if not fim.rate:
        return None
    sentinels = sentinels_of(vocabulary, fim.prefix_token, fim.suffix_token, fim.middle_token)
    return FillInTheMiddle(vocabulary, workspace.engines(family), sentinels, fim.rate, fim.spm_rate, fim.seed)


PRETRAIN_TOKENS = Asset(
    name="pretrain_tokens",
    family="pretrain",
    description="""One flat token stream per domain, an end-of-text token after every document.

Trainers read `<domain>_train.h5` (dataset `tokens`) or `<domain>_train/shard_0000/sequence.bin`.""",
    version=PRETRAIN_VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(RAW,),
    options=(*TOKENIZER, *IMAGES, "append_eod", "split_sentences", "bos", "preprocessing", "output", "test_fraction"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check(
            "row_integrity",
            "Ids are inside the vocabulary; each document begins and ends with the tokens that `bos` and `append_eod` say, and has no other of them.",
            pretrain_rows,
        ),
        derived(
            "mask_alignment",
            "Documents are trained in full, but for images and for regions to which the source gives another weight; those have it.",
            Masks,
        ),
        derived(
            "tokenization_identity", "Every document's tokens decode to its text; a sample equals the reference tokenizer's ids.", TEXTS
        ),
        SELECTION,
    ),
    in_parts=True,
    preview=record_preview,
    streams={split: Stream(TokenStore, f"{{partition}}_{split}") for split in ("train", "dev")},
    source=FromRows(Sample, of_stores.documents, by_text),
    columns=TOKEN_COLUMNS,
)


ASSETS = (PRETRAIN_TOKENS,)
