"""Packed Parquet with padding between documents, for Megatron-Bridge with context or sequence parallelism.

A row of 8 places with documents of 3 and 2 tokens, each in a multiple of 4, and ``.`` for the end-of-text token that Megatron-Bridge pads with::

    input_ids            a  a  a  .  .  b  b  .  .  .       one more for each document than it has places
    loss_mask            1  1  0  0  0  1  0  0  0  0       whether the *next* token is trained
    seq_start_id         0, 5
    cu_seqlens           0, 3, 5                            tokens
    cu_seqlens_padded    0, 4, 8                            places; the last is the length of the row

`GPTSFTPackedDataset` takes the inputs ``start … end - 2`` of each document and the tokens behind them as labels. So a document that is stored with a
multiple of 4 tokens arrives with one less, which no rank can split: what must divide is the stored length less one (`_pre_pad_data_point` there).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.arrow import ragged, write_parquet_files
from prep_assets.extensions.exports.blocks import Block, row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens, parquet_table, require_rows_per_file
from prep_assets.extensions.exports.registry import Count, FileName, Progress, TokenId, exporter, reads
from prep_assets.stores.arrays import spread
from prep_assets.stores.table import PACKED, Table
from prep_assets.stores.verification import write_json

METADATA = "packed_metadata.json"
"""What `pad_cu_seqlens`, which CUDA graphs need, asks for."""


@exporter(
    "aligned_parquet",
    PACKED,
    read_by="Megatron-Bridge",
    opens={
        "": (
            "PackedSequenceSpecs(",
            '    packed_{part}_data_path="{folder}/splits/{split}",',
            '    packed_metadata_path="{folder}/' + METADATA + '",',
            "    packed_sequence_size={row_len}, pad_seq_to_mult={align})  # set the sequence length to {row_len} as well",
        )
    },
    attention=True,
    kind="parquet",
)
def aligned_parquet(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    eos_id: TokenId | None = None,
    split: FileName = "train",
    rows_per_file: Count = 100_000,
) -> None:
    """``splits/<split>/shard_000000.idx.parquet`` …: rows of one length, each document padded as ``packing.align`` asks. zstd, row groups of 1000 rows.

    `eos_id` is the end-of-text token: Megatron-Bridge takes it at the end of a document for padding.

    Raises:
        ConfigError: a document trains several of them at its end.
    """
    import pyarrow as pa

    if eos_id is None:
        raise ConfigError(
            "export 'aligned_parquet', option 'eos_id': the id of the trainer's end-of-text token, which it takes for padding. Set it"
        )
    folder = out / "splits" / split
    folder.mkdir(parents=True)
    longest = most = 0

    def tables() -> Iterator[Any]:
        nonlocal longest, most
        done = 0
        for block in row_blocks(source, progress):
            rooms, documents = source.rooms(slice(done, block.done)), block.row_documents
            if source.align > 1:  # else the trainer takes documents to end where they are stored to
                _check_ends(block, eos_id, done)
            done = block.done
            longest, most = max(longest, int(rooms.max())), max(most, int(documents.max()))
            places, stored = spread(block.document_lengths, rooms + 1), int(rooms.sum()) + len(rooms)

            def laid_out(values: npt.NDArray[Any], fill: int, places: Ints = places, stored: int = stored) -> npt.NDArray[Any]:
                row = np.full(stored, fill, values.dtype)
                row[places] = values
                return row

            lengths = source.width + documents
            columns = {
                "input_ids": ragged(laid_out(block.ids("int32"), eos_id), lengths, "int32"),
                "loss_mask": ragged(laid_out(block.next_trained, 0), lengths, "uint8"),
                "seq_start_id": ragged(_before(rooms + 1, documents), documents, "int32"),
                "cu_seqlens": ragged(_borders(block.document_lengths, documents), documents + 1, "int32"),
                "cu_seqlens_padded": ragged(_borders(rooms, documents), documents + 1, "int32"),
            }
            if block.attended is not None:
                columns["attention_mask"] = ragged(laid_out(block.attended, 0), lengths, "uint8")
            yield pa.table(columns)

    write_parquet_files(tables(), rows_per_file, lambda number: folder / f"shard_{number:06d}.idx.parquet")
    known = {"dataset_max_seqlen": longest, "max_samples_per_bin": most, "min_packed_seqlen": source.width, "pack_size": source.width}
    write_json(out / METADATA, [known], indent=2)


def _check_ends(block: Block, eos_id: int, first_row: int) -> None:
    """Raises:
    ConfigError: a prediction counts behind the last token of its document that is not end-of-text, where Megatron-Bridge ends the document.
    """
    places, lengths = np.arange(len(block.tokens)), block.document_lengths
    last = np.maximum.reduceat(np.where(block.tokens != eos_id, places, -1), np.cumsum(lengths) - lengths)
    behind = np.flatnonzero(block.next_trained & (places > np.repeat(last, lengths)))
    if len(behind):
        row = first_row + int(np.searchsorted(np.cumsum(block.row_lengths), behind[0], "right"))
        raise ConfigError(
            f"row {row:,}: a document has several end-of-text tokens ({eos_id}) at its end and trains more than the first. Megatron-Bridge would take them "
            "for padding, which no token attends to, and train them. Export to megatron_sft, which pads with another token, or leave these records out of "
            "the sources"
        )


def _before(sizes: Ints, per_row: Ints) -> Ints:
    """Return the sum of the sizes before each document of its row."""
    begins: Ints = np.cumsum(sizes) - sizes
    in_row: Ints = begins - np.repeat(begins[np.cumsum(per_row) - per_row], per_row)
    return in_row


def _borders(sizes: Ints, per_row: Ints) -> Ints:
    """Return 0 and the cumulative sizes of the documents of each row."""
    borders = np.zeros(len(sizes) + len(per_row), np.int64)
    borders[np.arange(len(sizes)) + np.repeat(np.arange(1, len(per_row) + 1), per_row)] = _before(sizes, per_row) + sizes
    return borders


@reads("aligned_parquet")
def read_aligned_parquet(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `aligned_parquet` export with code independent of its writer."""
    files = sorted((folder / "splits" / options["split"]).glob("shard_*.idx.parquet"))
    require_rows_per_file(files, options["rows_per_file"], 1000)
    table, eos = parquet_table(files), options["eos_id"]
    _check_metadata(folder, table, source.width)

    def row(number: int) -> tuple[Tokens]:
        [columns] = table.slice(number, 1).to_pylist()
        ids, mask, places = columns["input_ids"], columns["loss_mask"], columns["cu_seqlens_padded"]
        begins, tokens = columns["seq_start_id"], columns["cu_seqlens"]
        if places[-1] != source.width or not len(begins) == len(places) - 1 == len(tokens) - 1:
            raise StoreError(
                f"row {number}: borders {places[:20]} and {tokens[:20]} of {len(begins)} documents in a row of {source.width:,}"
            )
        found: list[int] = []
        for document, begin in enumerate(begins):
            end = begins[document + 1] if document + 1 < len(begins) else len(ids)
            room, length = places[document + 1] - places[document], tokens[document + 1] - tokens[document]
            if end - begin != room + 1 or room % source.align or not 0 < length <= room:
                raise StoreError(
                    f"row {number}: document {document} has {length} tokens and is stored with {end - begin}; {room} places and one are expected, "
                    f"a multiple of {source.align} places"
                )
            padding = slice(begin + length, end)
            if any(token != eos for token in ids[padding]) or any(mask[begin + length - 1 : end]):
                raise StoreError(f"row {number}: padding of document {document} is {ids[padding][:20]}, or trained; {eos} is expected")
            last = max((at for at in range(begin, end - 1) if ids[at] != eos), default=begin - 1)
            if source.align > 1 and any(mask[last + 1 : end]):
                raise StoreError(
                    f"row {number}: document {document} trains tokens at its end {ids[begin:end][-20:]}, which the trainer takes for padding"
                )
            found += range(begin, begin + length)
        at = np.array(found, np.int64)
        attended = np.asarray(columns.get("attention_mask", [1] * len(ids)), np.int64)[at]
        before = np.roll(np.asarray(mask), 1)  # the mask is at the input of a prediction, one position before the predicted token
        return (Tokens(np.asarray(ids, np.int64)[at], before[at] != 0, np.asarray(tokens[:-1], np.int64), attended=attended),)

    return Readable(len(table), row)


def _check_metadata(folder: Path, table: Any, width: int) -> None:
    """Raises:
    StoreError: `packed_metadata.json` says something else than the borders of the rows.
    """
    borders = table.column("cu_seqlens_padded").combine_chunks()
    steps = np.diff(np.asarray(borders.flatten()))  # from one row to the next they are negative
    counts = np.diff(np.asarray(borders.offsets)) - 1
    expected = {"dataset_max_seqlen": steps.max(), "max_samples_per_bin": counts.max(), "min_packed_seqlen": width, "pack_size": width}
    said = json.loads((folder / "packed_metadata.json").read_bytes())
    if said != [expected]:
        raise StoreError(f"packed_metadata.json says {said}; the rows have {expected}")
