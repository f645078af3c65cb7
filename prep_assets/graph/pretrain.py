"""Pretraining: documents → one flat token stream per domain and split, each document ended by the end-of-text token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.checks import selection
from prep_assets.checks.of_documents import TEXTS, Masks, pretrain_rows
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY
from prep_assets.checks.of_texts import SOURCE_TEXTS
from prep_assets.checks.relations import derived
from prep_assets.checks.selection import SELECTION
from prep_assets.checks.sources_again import by_text
from prep_assets.config.models import Pretrain
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError
from prep_assets.graph.raw import raw_asset, verdict_assets
from prep_assets.pipeline.asset import MEDIA, TOKEN_COLUMNS, TOKENIZER, Asset, Check, FromRows, NeedsMore, Stream, Target, option_recipe
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
from prep_assets.pipeline.examples import Reading, held_out, passed_over
from prep_assets.pipeline.media import record_files
from prep_assets.pipeline.tokens import tokenize_rows
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Example, Sample
from prep_assets.stores.arrays import prefetch
from prep_assets.stores.published import Draft
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import TOKENS
from prep_assets.stores.writer import TableWriter
from prep_assets.text.documents import FillInTheMiddle, check_fixed_bytes, sentences_of, sentinels_of
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Ends, ends_of

PRETRAIN_RAW = raw_asset(
    "pretrain",
    """Source files of pretraining documents, pinned by content hash.

Nothing is copied: the store lists names, sizes, hashes and row counts, and quarantine lists every row that cannot be read.""",
)
PRETRAIN_VERDICTS = verdict_assets(PRETRAIN_RAW)


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What a domain's token stream depends on."""
    family = workspace.family(Pretrain)
    return {
        **option_recipe(workspace, family, ("tokenizer", *MEDIA["pretrain"], "append_eod", "preprocessing", "output", "test_fraction")),
        "bos": ends_of(workspace.vocabulary(family), family.bos).bos is not None,
        **({"split_sentences": cutter.identity} if (cutter := sentences_of(family.split_sentences)) else {}),
        **record_files()(workspace, family).marks(),
    }


def _write(target: Target, quarantine: Quarantine) -> Draft:
    """Tokenize one domain, with masks where a document turned out to need them."""
    family, masks = target.family, target.needed
    sentences = {}
    if family.split_sentences is not None:
        check_fixed_bytes(target.vocabulary)
        sentences = {STARTS: "uint8"}
    encode, storage = partial(write_masked_documents, masks=masks) if masks else write_documents, family.output.storage_format
    try:
        counts = tokenize_rows(target, quarantine, encode, {**masks, **sentences}, storage=storage, busy=1 if masks else 2)
    except NeedsMore as needed:
        if sentences:
            raise ConfigError(
                f"{target.partition} has images or regions that are not trained: split_sentences would cut documents through them. Leave it out"
            ) from needed
        raise
    metrics = {"tokens_per_document": counts["tokens"] / max(1, counts["kept"])}
    return Draft(counts, metrics)


def write_documents(workspace: Workspace, reading: Reading, writers: Sequence[TableWriter], quarantine: Quarantine) -> dict[str, Any]:
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

    takes_files = bool(record_files()(workspace, family).tokens)

    def text_of(example: Example) -> str:
        stop_at_masks(example, images=takes_files)
        return document_text(example)

    sentences = sentences_of(family.split_sentences)

    def encode(documents: Documents) -> _Encoded:
        if sentences is not None:
            return sentences.encode(documents.texts, engine)
        return engine.encode(documents.texts) if fim is None else fim.encode(
            documents.texts, [f"{name}/{id}" for id in documents.ids]
        ), None

    with closing(prefetch(_tokenized(read_documents(reading, text_of, check), encode))) as blocks:
        for documents, (flat, begins) in blocks:
            # a lossy text is rejected as lossy, whatever its length
            faults = dict(too_long(flat.offsets, family.preprocessing.max_seq_len)) | lossy(
                flat, documents, vocabulary, byte_lengths, tokenized
            )
            documents.write_refused(quarantine, list(faults.items()))
            to_dev, is_sound = _to_dev(documents.texts, documents.held_out, family.test_fraction), np.ones(len(documents.texts), bool)
            is_sound[list(faults)] = False
            for split, writer in enumerate(writers):
                rows = np.flatnonzero(is_sound & (to_dev == split))
                picked = flat.take(rows)
                ids, lengths = ends.around(picked.ids, np.diff(picked.offsets))
                block: dict[str, npt.NDArray[Any]] = {
                    "tokens": ids,
                    **({} if begins is None else {STARTS: _sentence_starts(begins, flat, rows, ends)}),
                }
                origin = [documents.records[i] for i in rows.tolist()]
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
    with closing(prefetch(read)) as blocks:
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
    write=_write,
    promises=("ids inside the vocabulary", "documents end with eos"),
    inputs=(("raw", PRETRAIN_RAW), *PRETRAIN_VERDICTS.items()),
    depends=_depends,
    partitioned=True,
    options=(*TOKENIZER, *MEDIA["pretrain"], "append_eod", "split_sentences", "bos", "preprocessing", "output", "test_fraction"),
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
        TEXTS,
        SELECTION,
        SOURCE_TEXTS,
    ),
    in_parts=True,
    streams={"train": Stream(TOKENS, "{partition}_train"), "dev": Stream(TOKENS, "{partition}_dev")},
    source=FromRows(Sample, selection.documents, by_text),
    columns=TOKEN_COLUMNS,
)


ASSETS = (PRETRAIN_RAW, *PRETRAIN_VERDICTS.values(), PRETRAIN_TOKENS)
