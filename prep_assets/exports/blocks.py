"""Sources read in blocks, with the borders that every format is derived from.

A row is what the trainer gets at once: a row of a packed table without its padding, or one document of a token stream. Of a block of two
rows, of documents of 3 and 2 and of 4 tokens::

    tokens            a  a  a  b  b  c  c  c  c
    attended          T  F  T  T  T  T  T  T  T      false where a region of the source is not attended
    trained           F  T  T  F  T  F  T  T  T      never the first token of a document
    next_trained      T  T  F  T  F  T  T  T  F      `trained` moved one to the left: whether the prediction made here counts
    position_ids      0  1  2  0  1  0  1  2  3
    document_lengths  3        2     4
    row_lengths       5              4
    row_documents     2              1

The first token of a document is predicted from another document, or from nothing. Some trainers leave it out of the loss by themselves; it
is masked in every export, which changes nothing for those and is right for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.exports.readable import SIDES, Pairs, has_unattended
from prep_assets.exports.registry import Progress
from prep_assets.packing.strategies import within
from prep_assets.stores.groups import LOGPROBS, GroupStore
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore, unsigned
from prep_assets.workers.pool import require_memory

BLOCK = 1 << 20
"""About how many tokens are read at a time."""
PADDED = 40
"""Bytes that a place of a padded row may take, in all that is made of it."""
RECORDS = 1024
"""How many pairs are read at a time."""
IGNORE = -100
"""The label of a token that is not trained."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """T tokens in R rows of D documents. See the drawing above.

    Attributes:
        tokens: int[T].
        trained: bool[T].
        document_lengths: int64[D]. row_lengths, row_documents: int64[R].
        done: rows read with this block and before it.
        attended: bool[T]; `None` where the source has no attention mask, so that all tokens are.
    """

    tokens: npt.NDArray[Any]
    trained: npt.NDArray[np.bool_]
    document_lengths: Ints
    row_lengths: Ints
    row_documents: Ints
    done: int
    attended: npt.NDArray[np.bool_] | None = None

    def ids(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The tokens as `dtype`.

        Raises:
            ConfigError: an id that `dtype` cannot hold.
        """
        found, highest = np.dtype(dtype), int(self.tokens.max(initial=0))
        if highest > np.iinfo(found).max:
            raise ConfigError(f"token id {highest:,} does not fit {found.name}; give the right vocab_size")
        return self.tokens.astype(found)

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
        """int64[D], where each document starts in its row."""
        ends = np.cumsum(self.document_lengths)
        row_begins = np.cumsum(self.row_lengths) - self.row_lengths
        return ends - self.document_lengths - np.repeat(row_begins, self.row_documents)

    def padded(self, values: npt.NDArray[Any], width: int, fill: int) -> npt.NDArray[Any]:
        """[R, width]: the values of each row, then `fill`.

        Raises:
            ConfigError: a row is longer than `width`.
        """
        if len(self.row_lengths) and int(self.row_lengths.max()) > width:
            raise ConfigError(
                f"a row has {int(self.row_lengths.max()):,} tokens, {width:,} were asked for. Ask for more, or pack to shorter rows"
            )
        needed, what = PADDED * width * len(self.row_lengths), f"{len(self.row_lengths):,} rows, each padded to {width:,} tokens,"
        require_memory(needed, what, "Ask for shorter rows: max_seq_length of the export, or row_len")
        table = np.full((len(self.row_lengths), width), fill, np.result_type(values.dtype, np.min_scalar_type(fill)))
        table[np.arange(width) < self.row_lengths[:, None]] = values
        return table


def require_memory_for_file(source: PackedStore | TokenStore, size: int, option: str, columns: int = 1) -> None:
    """Raises:
    ConfigError: there is no memory for a file of a source that an option gives so many bytes, each token a 32-bit number in so many columns.
    """
    tokens = source.tokens if isinstance(source, TokenStore) else len(source) * source.row_len
    require_memory(
        3 * min(size, 4 * columns * tokens),
        f"a file of {option} {size:,} bytes, which is put together three times over,",
        f"Lower {option}",
    )


def has_mask(source: PackedStore | TokenStore) -> bool:
    """Whether a source says which tokens are trained; in others all are."""
    return isinstance(source, PackedStore) or "loss_mask" in source.arrays


def rows(source: PackedStore | TokenStore, progress: Progress) -> Iterator[Block]:
    """The rows of a source, block by block. `progress` is told of a block when the next one is asked for.

    Raises:
        ConfigError: loss weights that are neither 0 nor 1, which no trainer's format can hold.
    """
    if isinstance(source, PackedStore):
        blocks = _packed(source)
    else:
        blocks = (_records(source, some.start, some.stop) for some, _ in source.blocks(BLOCK))
    for block in blocks:
        yield block
        progress(block.done, len(source))


def documents(source: PackedStore | TokenStore, progress: Progress) -> Iterator[Block]:
    """The documents of a source, each as a row of its own."""
    total, done = len(source.documents["row"]) if isinstance(source, PackedStore) else len(source), 0
    for block in rows(source, lambda *_: None):
        lengths = block.document_lengths
        done += len(lengths)
        yield replace(block, row_lengths=lengths, row_documents=np.ones_like(lengths), done=done)
        progress(done, total)


def sides(source: Pairs, progress: Progress) -> Iterator[dict[str, Block]]:
    """The answers of the same prompts, ``chosen`` and ``rejected``, block by block."""
    for first in range(0, len(source), RECORDS):
        stop = min(first + RECORDS, len(source))
        yield {side: _records(store, first, stop) for side, store in zip(SIDES, (source.chosen, source.rejected), strict=True)}
        progress(stop, len(source))


def groups(source: GroupStore, progress: Progress) -> Iterator[dict[str, tuple[npt.NDArray[Any], Ints]]]:
    """Scored groups, block by block: name → values end to end, and the length of each.

    ``prompts`` of each group; ``responses``, ``masks`` (bool) and, where the store has them, ``logprobs`` of each response; ``rewards`` of each group, one
    for each of its responses. A response goes on from its prompt, so its first token is predicted like any other and keeps its mask, unlike that of a document.
    """
    for first in range(0, len(source), RECORDS):
        stop = min(first + RECORDS, len(source))
        answers = source.responses_of(first).start, source.responses_of(stop - 1).stop
        masks, lengths = _part(source.responses, *answers, "loss_mask")
        yield {
            "prompts": _part(source.prompts, first, stop, "tokens"),
            "responses": _part(source.responses, *answers, "tokens"),
            "masks": (masks != 0, lengths),
            **({LOGPROBS: _part(source.responses, *answers, LOGPROBS)} if LOGPROBS in source.responses.arrays else {}),
            "rewards": _part(source.rewards, first, stop, "rewards"),
        }
        progress(stop, len(source))


def _part(store: TokenStore, first: int, stop: int, key: str) -> tuple[npt.NDArray[Any], Ints]:
    """One key of records ``first … stop - 1``, and their lengths."""
    part = store.span(first, stop)
    return np.asarray(store.arrays[key][part]), np.diff(store.ends[first:stop], prepend=part.start)


def _records(source: TokenStore, first: int, stop: int) -> Block:
    """Records ``first … stop - 1`` of a stream; where it has no loss mask, all their tokens are trained."""
    tokens, lengths = _part(source, first, stop, "tokens")
    weights = source.weights(source.span(first, stop)) if has_mask(source) else np.ones(len(tokens), np.uint8)
    return _block(source, tokens, weights, lengths, lengths, np.ones_like(lengths), stop)


def _packed(source: PackedStore) -> Iterator[Block]:
    row, offset, length = (np.asarray(source.documents[name]) for name in ("row", "row_offset", "length"))
    for first, tokens, _ in source.blocks(BLOCK):
        weights = source.weights(slice(first, first + len(tokens)))
        low, high = np.searchsorted(row, [first, first + len(tokens)])
        pieces = slice(int(low), int(high))
        number = row[pieces] - first
        used = np.zeros(len(tokens), np.int64)
        np.maximum.at(used, number, offset[pieces] + length[pieces])
        places = np.arange(source.row_len) < used[:, None]
        per_row = np.bincount(number, minlength=len(tokens))
        yield _block(source, tokens[places], weights[places], length[pieces], used, per_row, first + len(tokens))


def _block(
    source: PackedStore | TokenStore,
    tokens: npt.NDArray[Any],
    weights: npt.NDArray[Any],
    lengths: Ints,
    row_lengths: Ints,
    per_row: Ints,
    done: int,
) -> Block:
    loss, attended = unsigned(weights) if has_unattended(source) else (weights, None)
    trained = loss != 0
    if loss.dtype.kind == "f" and (loss[trained] != 1).any():
        raise ConfigError(
            "loss weights that are neither 0 nor 1: trainers' formats have masks. Train from the store itself, or set weights to 0 and 1"
        )
    trained[np.cumsum(lengths) - lengths] = False
    return Block(tokens, trained, lengths, row_lengths, per_row, done, attended)
