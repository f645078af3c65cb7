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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError
from prep_assets.exports.readable import SIDES, Pairs, has_unattended
from prep_assets.exports.registry import Progress
from prep_assets.packing.strategies import within
from prep_assets.stores.groups import FURTHER, OF_RUNS, GroupStore
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.teachers import TeacherBlock
from prep_assets.stores.tokens import TokenStore, unsigned
from prep_assets.workers.pool import require_memory

BLOCK = 1 << 20
"""Tokens read at a time, about."""
TAUGHT = 1 << 14
"""Tokens with entries of a teacher read at a time, about: each has dozens."""
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
        teacher: what a teacher says of the tokens; `None` if the source has nothing of it.
    """

    tokens: npt.NDArray[Any]
    trained: npt.NDArray[np.bool_]
    document_lengths: Ints
    row_lengths: Ints
    row_documents: Ints
    done: int
    attended: npt.NDArray[np.bool_] | None = None
    teacher: TeacherBlock | None = None

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


def require_memory_for_file(source: PackedStore | TokenStore, size: int, option: str, columns: int = 1) -> None:
    """Raises:
    ConfigError: too little memory to build a file of `size` bytes, as set by `option`; each token takes 4 bytes in each column.
    """
    tokens = source.tokens if isinstance(source, TokenStore) else len(source) * source.row_len
    require_memory(
        3 * min(size, 4 * columns * tokens),
        f"a file of {option} {size:,} bytes, which is put together three times over,",
        f"Lower {option}",
    )


def has_mask(source: PackedStore | TokenStore) -> bool:
    """Whether a source has a loss mask; without one, all tokens are trained."""
    return isinstance(source, PackedStore) or "loss_mask" in source.arrays


def row_blocks(source: PackedStore | TokenStore, progress: Progress) -> Iterator[Block]:
    """Yield the rows of a source in blocks. `progress` is called for a block when the next one is requested.

    Raises:
        ConfigError: loss weights other than 0 and 1, which no trainer's format can hold.
    """
    if isinstance(source, PackedStore):
        blocks = _packed_blocks(source)
    else:
        size = BLOCK if source.teachers is None else TAUGHT
        blocks = (_record_block(source, records.start, records.stop) for records, _ in source.blocks(size))
    for block in blocks:
        yield block
        progress(block.done, len(source))


def document_blocks(source: PackedStore | TokenStore, progress: Progress) -> Iterator[Block]:
    """Yield the documents of a source in blocks, one document a row."""
    total, done = len(source.documents["row"]) if isinstance(source, PackedStore) else len(source), 0
    for block in row_blocks(source, lambda *_: None):
        lengths = block.document_lengths
        done += len(lengths)
        yield replace(block, row_lengths=lengths, row_documents=np.ones_like(lengths), done=done)
        progress(done, total)


def pair_blocks(source: Pairs, progress: Progress) -> Iterator[dict[str, Block]]:
    """Yield blocks of pairs: ``chosen`` and ``rejected`` answers to the same prompts."""
    for start in range(0, len(source), RECORDS):
        stop = min(start + RECORDS, len(source))
        yield {side: _record_block(store, start, stop) for side, store in zip(SIDES, (source.chosen, source.rejected), strict=True)}
        progress(stop, len(source))


def group_blocks(source: GroupStore, progress: Progress) -> Iterator[dict[str, tuple[npt.NDArray[Any], Ints]]]:
    """Yield blocks of scored groups: name → (values end to end, length of each).

    ``prompts`` per group; ``responses``, ``masks`` (bool) and, if stored, the columns of `FURTHER` per response; ``rewards``, and the columns of
    `OF_RUNS` if stored, per group, one for each response. A response continues its prompt, so its first token keeps its mask, unlike that of a document.
    """
    for start in range(0, len(source), RECORDS):
        stop = min(start + RECORDS, len(source))
        responses = source.responses_of(start).start, source.responses_of(stop - 1).stop
        masks, lengths = _read_values(source.responses, *responses, "loss_mask")
        yield {
            "prompts": _read_values(source.prompts, start, stop, "tokens"),
            "responses": _read_values(source.responses, *responses, "tokens"),
            "masks": (masks != 0, lengths),
            **{name: _read_values(source.responses, *responses, name) for name in FURTHER if name in source.responses.arrays},
            **{name: _read_values(source.rewards, start, stop, name) for name in ("rewards", *OF_RUNS) if name in source.rewards.arrays},
        }
        progress(stop, len(source))


def _read_values(store: TokenStore, first: int, stop: int, key: str) -> tuple[npt.NDArray[Any], Ints]:
    """The values of one key of records ``first … stop - 1``, and the length of each."""
    span = store.span(first, stop)
    return np.asarray(store.arrays[key][span]), np.diff(store.ends[first:stop], prepend=span.start)


def _record_block(source: TokenStore, first: int, stop: int) -> Block:
    """Records ``first … stop - 1`` of a stream; without a loss mask, all tokens are trained."""
    tokens, lengths = _read_values(source, first, stop, "tokens")
    weights = source.weights(source.span(first, stop)) if has_mask(source) else np.ones(len(tokens), np.uint8)
    block = _block(source, tokens, weights, lengths, lengths, np.ones_like(lengths), stop)
    if source.teachers is None:
        return block
    return replace(block, teacher=source.teachers.block(slice(first, stop), source.span(first, stop)))


def _packed_blocks(source: PackedStore) -> Iterator[Block]:
    row, offset, length = (np.asarray(source.documents[name]) for name in ("row", "row_offset", "length"))
    for first, tokens, _ in source.blocks(BLOCK):
        weights = source.weights(slice(first, first + len(tokens)))
        low, high = np.searchsorted(row, [first, first + len(tokens)])
        pieces = slice(int(low), int(high))
        row_numbers = row[pieces] - first
        used_lengths = np.zeros(len(tokens), np.int64)
        np.maximum.at(used_lengths, row_numbers, offset[pieces] + length[pieces])
        in_row = np.arange(source.row_len) < used_lengths[:, None]
        documents_per_row = np.bincount(row_numbers, minlength=len(tokens))
        yield _block(source, tokens[in_row], weights[in_row], length[pieces], used_lengths, documents_per_row, first + len(tokens))


def _block(
    source: PackedStore | TokenStore,
    tokens: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    lengths: Ints,
    row_lengths: Ints,
    row_documents: Ints,
    done: int,
) -> Block:
    loss, attended = unsigned(weights) if has_unattended(source) else (weights, None)
    trained = loss != 0
    if loss.dtype.kind == "f" and (loss[trained] != 1).any():
        raise ConfigError(
            "loss weights that are neither 0 nor 1: trainers' formats have masks. Train from the store itself, or set weights to 0 and 1"
        )
    trained[np.cumsum(lengths) - lengths] = False
    return Block(tokens, trained, lengths, row_lengths, row_documents, done, attended)
