"""Sources read in blocks of tokens, with the document and row borders that formats are derived from.

A row is one training example: a row of a packed table without its padding, or one document of a token stream. A block of two rows, the
first with documents of 3 and 2 tokens, the second with one of 4::

    tokens            a  a  a  b  b  c  c  c  c
    attended          T  F  T  T  T  T  T  T  T      false where a region of the source is not attended
    trained           F  T  T  F  T  F  T  T  T      never the first token of a document
    next_trained      T  T  F  T  F  T  T  T  F      `trained` shifted left by one: whether the prediction made here counts
    position_ids      0  1  2  0  1  0  1  2  3
    document_lengths  3        2     4
    row_lengths       5              4
    row_documents     2              1

The first token of a document is predicted from another document, or from nothing. Some trainers leave it out of the loss by themselves;
every export masks it, so that the others do too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.registry import Progress
from prep_assets.packing.strategies import within
from prep_assets.stores.arrays import batches
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.lists import Entries
from prep_assets.stores.table import Table
from prep_assets.workers.pool import require_memory

BLOCK = 1 << 20
"""Tokens read at a time, about."""
TAUGHT = 1 << 14
"""Tokens with lists read at a time, about: each has dozens."""
PADDED = 40
"""Bytes in memory per position of a padded row, over all arrays derived from it."""
RECORDS = 1024
"""Pairs or groups read at a time."""
IGNORE = -100
"""The label of an untrained token."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """T tokens in R rows of D documents. See the table above.

    Attributes:
        tokens: int[T].
        trained: bool[T].
        document_lengths: int64[D]. row_lengths, row_documents: int64[R].
        done: rows read so far, this block included.
        attended: bool[T]; `None` if the source has no attention mask, so all tokens are attended.
        lists: lists beside the tokens, by name.
    """

    tokens: npt.NDArray[Any]
    trained: npt.NDArray[np.bool_]
    document_lengths: Ints
    row_lengths: Ints
    row_documents: Ints
    done: int
    attended: npt.NDArray[np.bool_] | None = None
    lists: Mapping[str, Entries] = field(default_factory=dict)

    def ids(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The tokens as `dtype`.

        Raises:
            ConfigError: an id that `dtype` cannot hold.
        """
        target, highest = np.dtype(dtype), int(self.tokens.max(initial=0))
        if highest > np.iinfo(target).max:
            raise ConfigError(f"token id {highest:,} does not fit {target.name}; give the right vocab_size")
        return self.tokens.astype(target)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """int64[T], unshifted: the token itself where it is trained, -100 elsewhere."""
        return np.where(self.trained, self.tokens.astype(np.int64), IGNORE)

    @property
    def next_trained(self) -> npt.NDArray[np.bool_]:
        """bool[T], shifted: whether the next token of the same document is trained."""
        return np.append(self.trained[1:], False)

    @property
    def position_ids(self) -> Ints:
        """int64[T], from 0 in each document."""
        return within(self.document_lengths)

    @property
    def document_numbers(self) -> Ints:
        """int64[T]: 1 for the first document of its row, 2 for the second, …"""
        return np.repeat(within(self.row_documents) + 1, self.document_lengths)

    @property
    def document_starts(self) -> Ints:
        """int64[D], start of each document in its row."""
        ends = np.cumsum(self.document_lengths)
        row_begins = np.cumsum(self.row_lengths) - self.row_lengths
        return ends - self.document_lengths - np.repeat(row_begins, self.row_documents)

    def padded(self, values: npt.NDArray[Any], width: int, fill: int) -> npt.NDArray[Any]:
        """[R, width]: the values of each row, right-padded with `fill`.

        Raises:
            ConfigError: a row is longer than `width`.
        """
        if len(self.row_lengths) and int(self.row_lengths.max()) > width:
            raise ConfigError(
                f"a row has {int(self.row_lengths.max()):,} tokens, {width:,} were asked for. Ask for more, or pack to shorter rows"
            )
        needed, subject = PADDED * width * len(self.row_lengths), f"{len(self.row_lengths):,} rows, each padded to {width:,} tokens,"
        require_memory(needed, subject, "Ask for shorter rows: max_seq_length of the export, or row_len")
        table = np.full((len(self.row_lengths), width), fill, np.result_type(values.dtype, np.min_scalar_type(fill)))
        table[np.arange(width) < self.row_lengths[:, None]] = values
        return table


def require_memory_for_file(source: Table, size: int, option: str, columns: int = 1) -> None:
    """Raises:
    ConfigError: too little memory to build a file of `size` bytes, as set by `option`; each token takes 4 bytes in each column.
    """
    tokens = len(source) * source.width if source.width else int(source.lengths.sum())
    require_memory(
        3 * min(size, 4 * columns * tokens),
        f"a file of {option} {size:,} bytes, which is put together three times over,",
        f"Lower {option}",
    )


def require_dense(source: Table, format: str) -> None:
    """Raises:
    ConfigError: rows leave room between documents, for a trainer that splits rows, and the format has none.
    """
    if source.align > 1:
        raise ConfigError(
            f"packing.align asks for documents in multiples of {source.align:,} places, and {format} stores them without padding between them: ranks "
            "that split a row would mix documents. Export to aligned_parquet or megatron_sft, or leave packing.align out"
        )


def row_blocks(source: Table, progress: Progress) -> Iterator[Block]:
    """Yield the rows of tokens or of a packed table in blocks. `progress` is called for a block when the next one is requested.

    Raises:
        ConfigError: loss weights other than 0 and 1, which no trainer's format can hold.
    """
    [name] = source.has("ids")
    for part in batches(source.ends(name), TAUGHT if source.lists else BLOCK):
        block = _block(source, name, part)
        yield block
        note_mapped_bytes(4 * len(block.tokens))
        progress(block.done, len(source))


def document_blocks(source: Table, progress: Progress) -> Iterator[Block]:
    """Yield the documents of a source in blocks, one document a row."""
    total, done = len(source.documents_at[0]), 0
    for block in row_blocks(source, lambda *_: None):
        lengths = block.document_lengths
        done += len(lengths)
        yield replace(block, row_lengths=lengths, row_documents=np.ones_like(lengths), done=done)
        progress(done, total)


def pair_blocks(source: Table, progress: Progress) -> Iterator[dict[str, Block]]:
    """Yield blocks of pairs: ``chosen`` and ``rejected`` answers to the same prompts."""
    for part in _parts(source, progress):
        yield {side: _block(source, side, part) for side in source.has("ids")}


def group_blocks(source: Table, progress: Progress) -> Iterator[dict[str, tuple[npt.NDArray[Any], Ints]]]:
    """Yield blocks of scored groups: column → (values end to end, length of each array).

    ``prompts`` per group; ``responses``, ``masks`` (bool) and, if stored, the columns of `FURTHER` per response; ``rewards``, and the columns of
    `OF_RUNS` if stored, per group, one for each response. A response continues its prompt, so its first token keeps its mask, unlike that of a document.
    """
    for part in _parts(source, progress):
        block = {name: column.read(part) for name, column in source.columns.items()}
        yield {**block, "masks": (block["masks"][0] != 0, block["masks"][1])}


def _parts(source: Table, progress: Progress) -> Iterator[slice]:
    for start in range(0, len(source), RECORDS):
        yield slice(start, min(start + RECORDS, len(source)))
        progress(min(start + RECORDS, len(source)), len(source))


def _block(source: Table, name: str, part: slice) -> Block:
    """Consecutive records of an ids column; without a loss mask, all tokens are trained."""
    column, masks, attention = source.columns[name], source.has("weight", name), source.has("attention", name)
    starts, ends = column.starts_of(part), np.asarray(column.ends[part])
    lengths = documents = ends - starts
    per_row, span = np.ones_like(lengths), slice(int(starts[0]), int(ends[-1]))
    used: slice | npt.NDArray[np.bool_] = slice(None)
    if source.pieces is not None:
        span, used = slice(part.start * source.width, part.stop * source.width), (np.arange(source.width) < lengths[:, None]).reshape(-1)
        low, high = np.searchsorted(source.pieces.fields["row"], [part.start, part.stop]).tolist()
        documents = source.pieces.fields["length"][low:high]
        per_row = np.bincount(source.pieces.fields["row"][low:high] - part.start, minlength=len(lengths))

    def values(key: str) -> npt.NDArray[Any]:
        return np.asarray(source.columns[key].values[span])[used]

    tokens = values(name)
    loss = values(masks[0]) if masks else np.ones(len(tokens), np.uint8)
    trained = loss != 0
    if loss.dtype.kind == "f" and (loss[trained] != 1).any():
        raise ConfigError(
            "loss weights that are neither 0 nor 1: trainers' formats have masks. Train on loss_mask as prep_assets.load reads it, or set weights "
            "to 0 and 1"
        )
    trained[np.cumsum(documents) - documents] = False
    return Block(
        tokens,
        trained,
        documents,
        lengths,
        per_row,
        part.stop,
        values(attention[0]) != 0 if attention else None,
        {name: lists.read(part, span) for name, lists in source.lists.items()},
    )
