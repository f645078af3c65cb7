"""Megatron's ``.bin`` / ``.idx`` (Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX), ModelLink's file pairs for instruction tuning, and the packed Parquet
of Megatron-Bridge.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets import load
from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.arrow import ragged, write_parquet_files
from prep_assets.extensions.exports.blocks import IGNORE, pair_blocks, require_dense, row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens, check_mask, labelled, parquet_table, require_rows_per_file
from prep_assets.extensions.exports.registry import Count, FileName, Progress, TokenId, exporter, reads
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import PACKED, PAIRS, SIDES, TOKENS, Table
from prep_assets.stores.verification import WrittenFile

# ``.bin`` and ``.idx``. Byte layout: `prep_assets.extensions.training.formats`. Labels of ModelLink are unshifted, -100 where there is no loss.

SMALL_VOCABULARY = 65_500
"""Megatron stores tokens of smaller vocabularies as uint16."""
CODES = {"int32": 4, "uint16": 8}
MAGIC = b"MMIDIDX\x00\x00"


@exporter(
    "megatron",
    *(PACKED, TOKENS, PAIRS),
    read_by="Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX, ModelLink",
    readers=dict.fromkeys(("packed table", "pairs", "instruction"), "ModelLink"),
    opens={
        "packed table": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--reset-attention-mask{neat_pack}"),
        "instruction": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--variable-seq-lengths"),
        "pairs": ("--data-path {folder}/{name}", "--is-pairwise-dataset", "--variable-seq-lengths"),
        "": ("--data-path {folder}/{name}_text_{level}", "--split 100,0,0", "--seq-length 4096"),
    },
    keeps_mask=lambda options: options.get("layout") not in (None, "text"),
    only={
        "vocab_size": lambda schema, options: schema.fits(TOKENS) and options["layout"] != "instruction",
        **dict.fromkeys(("pad_id", "neat"), lambda schema, _: schema.packed),
    },
)
def megatron(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    layout: Literal["text", "instruction"] | None = None,
    name: FileName = "train",
    vocab_size: Count | None = None,
    pad_id: TokenId = 0,
    neat: bool = True,
) -> None:
    """``<name>_text_document`` of a token stream, or ModelLink's ``<name>_packed_<key>_document`` of tables, pairs and masked streams.

    A stream that is cut into sentences gives ``<name>_text_sentence``: a sequence for each sentence, documents of several sequences.

    `layout` is ``text`` for token streams and ``instruction`` for everything else. `vocab_size` decides between uint16 and int32 for text;
    instruction data is int32. With `neat`, the attention mask of a packed row numbers its documents from 1 (``--neat-pack``); otherwise it
    is 1 everywhere, and training finds documents by their end token (``--reset-attention-mask``).
    """
    require_dense(source, "megatron")
    layout = layout or ("text" if source.schema.fits(TOKENS) else "instruction")
    if layout == "text":
        if not source.schema.fits(TOKENS):
            raise ConfigError(f"layout 'text' is for token streams, not {source.schema.name}. Use 'instruction'")
        check_mask(source, "megatron")
        dtype = "uint16" if vocab_size is not None and vocab_size < SMALL_VOCABULARY else "int32"
        file = f"{name}_text_{'sentence' if STARTS in source.columns else 'document'}"
        _write_sequences(out, {"text": file}, dtype, _text_sequences(source, dtype, progress))
        return
    pairs = source.schema.fits(PAIRS)
    data = _pair_sequences(source, progress) if pairs else _row_sequences(source, pad_id, neat, progress)
    columns = ("input_ids", "attention_mask", "labels")
    keys = [f"{side}_{column}" for side in SIDES for column in columns[::2]] if pairs else columns
    _write_sequences(out, {key: f"{name}_packed_{key}_document" for key in keys}, "int32", data)


Sequences = dict[str, tuple[npt.NDArray[Any], Ints, Ints | None]]
"""Key → values, length of each sequence, and sequences per document; `None` if one each."""


def _write_sequences(out: Path, files: dict[str, str], dtype: str, data: Iterator[Sequences]) -> None:
    with ExitStack() as stack:
        writers = {key: stack.enter_context(IndexedWriter(out / file, dtype)) for key, file in files.items()}
        for sequences in data:
            for key, sequence in sequences.items():
                writers[key].append(*sequence)


def _text_sequences(source: Table, dtype: str, progress: Progress) -> Iterator[Sequences]:
    start = 0
    for block in row_blocks(source, progress):
        lengths, per_document = block.row_lengths, None
        if STARTS in source.columns:  # a sequence for each sentence
            sentence_starts = np.flatnonzero(np.asarray(source.columns[STARTS].values[start : start + len(block.tokens)]))
            per_document = np.diff(np.searchsorted(sentence_starts, np.cumsum(lengths)), prepend=0)
            lengths = np.diff(np.append(sentence_starts, len(block.tokens)))
        yield {"text": (block.ids(dtype), lengths, per_document)}
        start += len(block.tokens)


def _row_sequences(source: Table, pad_id: int, neat: bool, progress: Progress) -> Iterator[Sequences]:
    fill = {"input_ids": pad_id, "attention_mask": 0 if neat else 1, "labels": IGNORE}
    for block in row_blocks(source, progress):
        attention_mask = block.document_numbers if neat and source.width else np.ones_like(block.tokens)
        columns = {"input_ids": block.tokens, "attention_mask": attention_mask, "labels": block.labels}
        lengths = block.row_lengths
        if source.width:
            columns = {key: block.padded(values, source.width, fill[key]) for key, values in columns.items()}
            lengths = np.full(len(lengths), source.width)
        yield {key: (values, lengths, None) for key, values in columns.items()}


def _pair_sequences(source: Table, progress: Progress) -> Iterator[Sequences]:
    for blocks in pair_blocks(source, progress):
        columns = {side: {"input_ids": block.tokens, "labels": block.labels} for side, block in blocks.items()}
        yield {
            f"{side}_{key}": (values, blocks[side].row_lengths, None) for side, parts in columns.items() for key, values in parts.items()
        }


class IndexedWriter(AbstractContextManager["IndexedWriter"]):
    """Writes ``<prefix>.bin`` incrementally and ``<prefix>.idx`` on exit. By default every sequence is a document of its own."""

    def __init__(self, prefix: Path, dtype: str) -> None:
        self._prefix, self._dtype, self._lengths = prefix, np.dtype(dtype).newbyteorder("<"), [np.zeros(0, np.int64)]
        self._per_document = [np.zeros(0, np.int64)]
        self._file = WrittenFile(prefix.with_name(f"{prefix.name}.bin"))

    def append(self, values: npt.NDArray[Any], lengths: Ints, per_document: Ints | None = None) -> None:
        """Append sequences: values end to end, the length of each, and the number of sequences per document; one by default."""
        self._file.write_array(np.asarray(values, self._dtype))
        self._lengths.append(lengths)
        self._per_document.append(np.ones(len(lengths), np.int64) if per_document is None else per_document)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        lengths = np.concatenate(self._lengths)
        code = CODES[self._dtype.name]
        pointers = (np.cumsum(lengths) - lengths) * self._dtype.itemsize
        with WrittenFile(self._prefix.with_name(f"{self._prefix.name}.idx")) as file:
            documents = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._per_document))])
            file.write(MAGIC + struct.pack("<QBQQ", 1, code, len(lengths), len(documents)))
            for array, dtype in ((lengths, "<i4"), (pointers, "<i8"), (documents, "<i8")):
                file.write_array(array.astype(dtype))


@reads("megatron")
def read_megatron(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `megatron` export with code independent of its writer."""
    store = load(folder, "megatron")
    size = options["vocab_size"]
    of_text = options["layout"] == "text" or (options["layout"] is None and source.schema.fits(TOKENS))
    level = "sentence" if STARTS in source.columns else "document"
    keys = [f"packed_{key}_document" for key in store.keys]
    files = sorted(f"{options['name']}_{part}.idx" for part in ([f"text_{level}"] if of_text else keys))
    if (found := sorted(path.name for path in folder.glob("*.idx"))) != files:
        raise StoreError(f"the folder has {found}, {files} are expected")
    dtypes = {str(array.dtype) for array in store.data.arrays.values()}
    if dtypes != {wanted := "uint16" if of_text and size is not None and size < 65_500 else "int32"}:
        raise StoreError(f"ids are {', '.join(sorted(dtypes))}, {wanted} is expected")

    def row(number: int) -> tuple[Tokens, ...]:
        if "sequence" in store.keys:
            return (Tokens(np.asarray(store.fetch_record(number, "sequence"), np.int64)),)
        record = store.fetch_record(number, store.keys)
        if source.schema.fits(PAIRS):
            return tuple(labelled(record[f"{side}_input_ids"], record[f"{side}_labels"]) for side in ("chosen", "rejected"))
        numbers, starts = record["attention_mask"], None
        wanted = np.ones_like(numbers)
        if numbered := options["neat"] and source.width:
            begins = np.diff(numbers, prepend=0) > 0
            starts, wanted = np.flatnonzero(begins), np.cumsum(begins) * (numbers > 0)
        if (numbers != wanted).any():
            raise StoreError(f"row {number}: attention_mask {numbers[:20].tolist()} …, {wanted[:20].tolist()} … is expected")
        return (replace(labelled(record["input_ids"], record["labels"], starts), attended=numbers > 0 if numbered else None),)

    return Readable(store.num_records, row, width=source.width or None)


# Packed Parquet: Nemotron's data preparation for Megatron-Bridge (`GPTSFTPackedParquetDataset`).
#
# Columns ``input_ids`` list<int32>, ``loss_mask`` list<uint8>, ``seq_start_id`` list<int32>, without padding; if the source has an attention mask,
# ``attention_mask`` list<uint8>, 0 at tokens that are not attended.
#
# The trainer takes tokens ``start … end - 2`` of each document as inputs, the next tokens as labels, and the mask at the positions of the
# **inputs**. So ``loss_mask`` is shifted left by one: ``loss_mask[i]`` says whether the prediction of token i + 1 counts, and is 0 at the last
# token of each document (Megatron-Bridge, ``fill_packing_strategy``).


@exporter(
    "packed_parquet",
    PACKED,
    TOKENS,
    read_by="Megatron-Bridge",
    opens={
        "": (
            "PackedSequenceSpecs(",
            '    packed_{part}_data_path="{folder}/splits/{split}",',
            "    packed_sequence_size={row_len})  # of rows, in tokens",
        )
    },
    attention=True,
    kind="parquet",
)
def packed_parquet(source: Table, out: Path, progress: Progress, *, split: FileName = "train", rows_per_file: Count = 100_000) -> None:
    """``splits/<split>/shard_000000.idx.parquet`` …: zstd, row groups of 1000 rows. A token stream gives one document a row."""
    import pyarrow as pa

    require_dense(source, "packed_parquet")
    folder = out / "splits" / split
    folder.mkdir(parents=True)

    def tables() -> Iterator[Any]:
        for block in row_blocks(source, progress):
            columns = {
                "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
                "loss_mask": ragged(block.next_trained, block.row_lengths, "uint8"),
                "seq_start_id": ragged(block.document_starts, block.row_documents, "int32"),
            }
            if block.attended is not None:
                columns["attention_mask"] = ragged(block.attended, block.row_lengths, "uint8")
            yield pa.table(columns)

    write_parquet_files(tables(), rows_per_file, lambda number: folder / f"shard_{number:06d}.idx.parquet")


@reads("packed_parquet")
def read_packed_parquet(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `packed_parquet` export with code independent of its writer."""
    files = sorted((folder / "splits" / options["split"]).glob("shard_*.idx.parquet"))
    require_rows_per_file(files, options["rows_per_file"], 1000)
    table = parquet_table(files)

    def row(number: int) -> tuple[Tokens]:
        columns = {name: np.asarray(values[0], np.int64) for name, values in table.slice(number, 1).to_pydict().items()}
        # the mask is at the input of a prediction, one position before the predicted token
        attended = columns.get("attention_mask", np.ones_like(columns["input_ids"]))
        return (Tokens(columns["input_ids"], np.roll(columns["loss_mask"] != 0, 1), columns["seq_start_id"], attended=attended),)

    return Readable(len(table), row)
