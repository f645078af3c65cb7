"""Megatron's ``.bin`` / ``.idx`` (Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX), and ModelLink's sets of pairs for instruction tuning.

Byte layout: `prep_assets.stores.readers`. Labels of ModelLink are unshifted, -100 where there is no loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.exports.blocks import IGNORE, Block, rows, sides
from prep_assets.exports.readable import Options, Pairs, Readable, Source, Tokens, labelled, refuse_lost_mask
from prep_assets.exports.registry import Count, FileName, Progress, TokenId, exporter
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.readers import HEADER, MAGIC
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import WrittenFile
from prep_assets.text.documents import STARTS

READ_BY = "Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX, ModelLink"
READERS = {"PackedStore": "ModelLink", "Pairs": "ModelLink", "instruction": "ModelLink"}
"""Where one layout or kind of source is for some of them only."""
LINES = {
    "PackedStore": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--reset-attention-mask{neat_pack}"),
    "instruction": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--variable-seq-lengths"),
    "Pairs": ("--data-path {folder}/{name}", "--is-pairwise-dataset", "--variable-seq-lengths"),
    "": ("--data-path {folder}/{name}_text_{level}", "--split 100,0,0", "--seq-length 4096"),
}


SMALL_VOCABULARY = 65_500
"""Below this size Megatron stores tokens in 16 bits."""
CODES = {"int32": 4, "uint16": 8}


@exporter(
    "megatron",
    *(TokenStore, PackedStore, Pairs),
    keeps_mask=lambda options: options.get("layout") not in (None, "text"),
    only={
        "vocab_size": lambda kind, options: kind is TokenStore and options["layout"] != "instruction",
        "pad_id": lambda kind, _: kind is PackedStore,
        "neat": lambda kind, _: kind is PackedStore,
    },
)
def megatron(
    source: TokenStore | PackedStore | Pairs,
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
    layout = layout or ("text" if isinstance(source, TokenStore) else "instruction")
    if layout == "text":
        if not isinstance(source, TokenStore):
            raise ConfigError(f"layout 'text' is for token streams; this is a {type(source).__name__}. Use 'instruction'")
        refuse_lost_mask(source, "megatron")
        dtype = "uint16" if vocab_size is not None and vocab_size < SMALL_VOCABULARY else "int32"
        file = f"{name}_text_{'sentence' if STARTS in source.arrays else 'document'}"
        _write(out, {"text": file}, dtype, _text(source, dtype), len(source), progress)
        return
    keys = _KEYS["pairs" if isinstance(source, Pairs) else "rows"]
    data = _pairs(source) if isinstance(source, Pairs) else _rows(source, pad_id, neat)
    _write(out, {key: f"{name}_packed_{key}_document" for key in keys}, "int32", data, len(source), progress)


Sequences = dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64] | None]]
"""Key → values, length of each sequence, and how many sequences each document has, if not one."""
_KEYS = {
    "rows": ("input_ids", "attention_mask", "labels"),
    "pairs": ("chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels"),
}


def _write(out: Path, files: dict[str, str], dtype: str, data: Iterator[tuple[int, Sequences]], total: int, progress: Progress) -> None:
    with ExitStack() as stack:
        writers = {key: stack.enter_context(IndexedWriter(out / file, dtype)) for key, file in files.items()}
        for done, sequences in data:
            for key, (values, lengths, per_document) in sequences.items():
                writers[key].append(values, lengths, per_document)
            progress(done, total)


def _text(source: TokenStore, dtype: str) -> Iterator[tuple[int, Sequences]]:
    at = 0
    for block in rows(source):
        end = at + len(block.tokens)
        lengths, per_document = (
            (block.row_lengths, None) if STARTS not in source.arrays else _sentences(block, source.arrays[STARTS][at:end])
        )
        yield block.done, {"text": (block.ids(dtype), lengths, per_document)}
        at = end


def _sentences(block: Block, starts: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Length of each sentence, and how many of them each document has."""
    begins = np.flatnonzero(np.asarray(starts))
    per_document = np.diff(np.searchsorted(begins, np.cumsum(block.row_lengths)), prepend=0)
    return np.diff(np.append(begins, len(block.tokens))), per_document


def _rows(source: TokenStore | PackedStore, pad_id: int, neat: bool) -> Iterator[tuple[int, Sequences]]:
    for block in rows(source):
        if isinstance(source, PackedStore):
            yield block.done, _padded(block, source.row_len, pad_id, neat)
        else:
            parts = (block.tokens, np.ones_like(block.tokens), block.labels)
            yield block.done, {key: (part, block.row_lengths, None) for key, part in zip(_KEYS["rows"], parts, strict=True)}


def _padded(block: Block, width: int, pad_id: int, neat: bool) -> Sequences:
    numbers = (block.document_numbers, 0) if neat else (np.ones_like(block.document_numbers), 1)
    lengths = np.full(len(block.row_lengths), width)
    parts = ((block.tokens, pad_id), numbers, (block.labels, IGNORE))
    return {key: (block.padded(values, width, fill), lengths, None) for key, (values, fill) in zip(_KEYS["rows"], parts, strict=True)}


def _pairs(source: Pairs) -> Iterator[tuple[int, Sequences]]:
    for chosen, rejected in sides(source):
        blocks = (chosen.tokens, chosen), (chosen.labels, chosen), (rejected.tokens, rejected), (rejected.labels, rejected)
        yield chosen.done, {key: (values, block.row_lengths, None) for key, (values, block) in zip(_KEYS["pairs"], blocks, strict=True)}


class IndexedWriter(AbstractContextManager["IndexedWriter"]):
    """Writes ``<prefix>.bin`` block by block, and ``<prefix>.idx`` at the end; every sequence is a document, unless `append` says otherwise."""

    def __init__(self, prefix: Path, dtype: str) -> None:
        self._prefix, self._dtype, self._lengths = prefix, np.dtype(dtype).newbyteorder("<"), [np.zeros(0, np.int64)]
        self._per_document = [np.zeros(0, np.int64)]
        self._file = WrittenFile(prefix.with_name(f"{prefix.name}.bin"))

    def append(self, values: npt.NDArray[Any], lengths: npt.NDArray[np.int64], per_document: npt.NDArray[np.int64] | None = None) -> None:
        """Write sequences: their values end to end, and the length of each; and how many sequences each document has, if not one."""
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
            file.write(MAGIC + HEADER.pack(1, code, len(lengths), len(documents)))
            for array, dtype in ((lengths, "<i4"), (pointers, "<i8"), (documents, "<i8")):
                file.write_array(array.astype(dtype))


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    store = open_store(folder, "megatron")

    def row(number: int) -> tuple[Tokens, ...]:
        if "sequence" in store.keys:
            return (Tokens(np.asarray(store.fetch_record(number, "sequence"), np.int64)),)
        found = store.fetch_record(number, store.keys)
        if isinstance(source, Pairs):
            return tuple(labelled(found[f"{side}_input_ids"], found[f"{side}_labels"]) for side in ("chosen", "rejected"))
        document = found["attention_mask"] if options["neat"] and isinstance(source, PackedStore) else None
        starts = None if document is None else np.flatnonzero(np.diff(document, prepend=0) > 0)
        return (labelled(found["input_ids"], found["labels"], starts),)

    return Readable(store.num_records, row)
