"""Exports read back: rows of a trainer's files against the same rows of the store.

The readers (`read` of each format) share no code with the writers, and the rows expected here are taken from the store's
arrays directly. Labels and masks of every format are converted to one form: whether each token is trained, at its own index.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Pairs, Readable, Source, Tokens
from prep_assets.exports.registry import reader
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.groups import FURTHER, OF_RUNS, GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import ATTENTION, TokenStore

SAMPLE = 100
"""Rows that are compared in addition to the first and the last, and the first of each domain."""
SMALL = 2000
"""Of an export of fewer rows all are compared."""


def compare(folder: Path, source: Source, format: str, options: Mapping[str, Any]) -> Verdict:
    """Compare the first, the last, the first of each domain and `SAMPLE` seeded random rows of an export in `folder` with those of `source`; all of them
    where they are fewer than `SMALL`.

    Args:
        options: all options of the export.

    Raises:
        StoreError, OSError, ValueError, KeyError: files that their format's reader cannot read.
    """
    export = reader(format)(folder, source, options)
    by_document = export.documents and isinstance(source, PackedStore)
    total = len(source.documents["row"]) if by_document and isinstance(source, PackedStore) else len(source)
    if export.count != total:
        problem = f"{export.count:,} rows in {format}, the store has {total:,}"
        return Verdict(False, problem, {}, Worst(format, problem))
    count = total if total < SMALL else min(SAMPLE, total)
    chosen = sorted({0, total - 1, *_firsts(source, by_document), *random.Random(0).sample(range(total), count)})
    lines = _lines(source, set(chosen)) if isinstance(source, Lines) else {}
    tokens = trained = 0
    for row in chosen:
        fault, read, expected = _compared(export, source, row, options, lines.get(row))
        ids = tuple(expected[0].tokens.tolist()) if expected else ()
        tokens += sum(len(sequence.tokens) for sequence in expected)
        trained += sum(int(sequence.trained.sum()) for sequence in read if sequence.trained is not None) if expected else 0
        if fault:
            return Verdict(False, f"row {row:,}: {fault}", {"rows_checked": len(chosen)}, Worst(f"row {row}", fault, ids))
    numbers = {"rows_checked": len(chosen), "tokens_checked": tokens, "trained_tokens_checked": trained}
    return Verdict(True, f"{len(chosen):,} of {total:,} rows, read back from {format}, equal the store's", numbers)


def row_fault(export: Readable, source: Source, row: int, options: Mapping[str, Any]) -> str:
    """Return how a row of an export differs from the store; ``""`` where it does not."""
    lines = _lines(source, {row}) if isinstance(source, Lines) else {}
    return _compared(export, source, row, options, lines.get(row))[0]


def _compared(
    export: Readable, source: Source, row: int, options: Mapping[str, Any], line: dict[str, Any] | None
) -> tuple[str, Any, tuple[Tokens, ...]]:
    """Return the fault of a row, the row read back, and the expected sequences of a row of tokens."""
    read = export.row(row)
    if isinstance(source, Lines):
        assert line is not None
        return _line_fault(read, export.expected(line, row)), read, ()
    expected = _document(source, row) if export.documents and isinstance(source, PackedStore) else _row(source, row)
    return _fault(read, expected, export.width, options.get("pad_id", 0)), read, expected


# -- expected rows ----------------------------------------------------------------------------------------------------------------------


def _firsts(source: Source, by_document: bool) -> list[int]:
    """Return the first row of each domain of a merged source."""
    if isinstance(source, PackedStore):
        firsts = np.unique(source.documents["source"], return_index=True)[1]
        return list(map(int, firsts if by_document else source.documents["row"][firsts]))
    if not isinstance(source, Lines | GroupStore):
        return []
    column = source.index["source"] if isinstance(source, Lines) else source.source
    return list(map(int, np.unique(column, return_index=True)[1]))


def _lines(source: Lines, wanted: set[int]) -> dict[int, dict[str, Any]]:
    return {number: row for number, row in enumerate(source) if number in wanted}


def _row(source: PackedStore | TokenStore | Pairs | GroupStore, row: int) -> tuple[Tokens, ...]:
    if isinstance(source, GroupStore):
        numbers, rewards = source.responses_of(row), Tokens(source.rewards.record(row, "rewards"))
        responses = [_answer(source.responses, number) for number in numbers]
        further = [
            Tokens(source.responses.record(number, name)) for name in FURTHER if name in source.responses.arrays for number in numbers
        ]
        further += [Tokens(source.rewards.record(row, name)) for name in OF_RUNS if name in source.rewards.arrays]
        return (Tokens(source.prompts.record(row, "tokens").astype(np.int64)), *responses, rewards, *further)
    if isinstance(source, Pairs):
        margin = [] if source.margins is None else [Tokens(np.array([source.margins[row]]))]
        return (_record(source.chosen, row), _record(source.rejected, row), *margin)
    if isinstance(source, TokenStore):
        return (_record(source, row), *_teacher(source, row))
    pieces = [_document(source, piece)[0] for piece in range(*source.pieces(row).indices(len(source.documents["row"])))]
    lengths = [len(piece.tokens) for piece in pieces]
    starts = np.array([sum(lengths[:number]) for number in range(len(lengths))])
    masks, attended = ([mask for piece in pieces if (mask := getattr(piece, name)) is not None] for name in ("trained", "attended"))
    tokens = np.concatenate([piece.tokens for piece in pieces])
    return (Tokens(tokens, np.concatenate(masks), starts, _images(source, row), np.concatenate(attended)),)


def _record(source: TokenStore, number: int) -> Tokens:
    ids = source.record(number, "tokens").astype(np.int64)
    mask = source.record(number, "loss_mask") != 0 if "loss_mask" in source.arrays else np.ones(len(ids), bool)
    attended = source.record(number, ATTENTION) if ATTENTION in source.arrays else np.ones(len(ids), np.uint8)
    return Tokens(ids, _but_first(mask), np.zeros(1, np.int64), _images(source, number), attended)


def _teacher(source: TokenStore, number: int) -> tuple[Tokens, ...]:
    """The entries of a teacher for all tokens but the first, which nothing predicts: how many each has, ids, log-probabilities, whether it is trained."""
    if source.teachers is None:
        return ()
    entries = source.teachers.block(slice(number, number + 1), source.span(number, number + 1))
    first, trained = int(entries.counts[0]), source.record(number, "loss_mask") != 0
    counts = np.concatenate([[0], entries.counts[1:]])
    return tuple(map(Tokens, (counts, entries.ids[first:], entries.logprobs[first:], np.repeat(trained, counts))))


def _images(source: PackedStore | TokenStore, row: int) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
    numbers = np.flatnonzero(np.asarray(source.images.record) == row)
    images, places = source.images.references(numbers), ((int(source.images.start[i]), int(source.images.length[i])) for i in numbers)
    return tuple((image.path, tuple(range(start, start + length))) for image, (start, length) in zip(images, places, strict=True))


def _answer(source: TokenStore, number: int) -> Tokens:
    return Tokens(source.record(number, "tokens").astype(np.int64), source.record(number, "loss_mask") != 0)


def _document(source: PackedStore, piece: int) -> tuple[Tokens]:
    row, start, length = (int(source.documents[field][piece]) for field in ("row", "row_offset", "length"))
    ids = np.asarray(source.tokens[row])[start : start + length].astype(np.int64)
    mask = np.asarray(source.loss_mask[row])[start : start + length] != 0
    attention = np.ones(source.row_len, np.uint8) if source.attention_mask is None else np.asarray(source.attention_mask[row])
    return (Tokens(ids, _but_first(mask), np.zeros(1, np.int64), attended=attention[start : start + length]),)


def _but_first(mask: Any) -> Any:
    """No export trains the first token of a document: nothing in it predicts that token."""
    return np.concatenate([[False], mask[1:]])


# -- comparing --------------------------------------------------------------------------------------------------------------------------


def _line_fault(row: Any, expected: Any) -> str:
    return "" if row == expected else f"reads {row!r:.300}, the store has {expected!r:.300}"


def _fault(row: tuple[Tokens, ...], expected: tuple[Tokens, ...], width: int | None, pad_id: int) -> str:
    if len(row) != len(expected):
        raise StoreError(f"{len(row)} sequences in a row, {len(expected)} are expected")
    return next((fault for pair in zip(row, expected, strict=True) if (fault := _difference(*pair, width, pad_id))), "")


def _difference(sequence: Tokens, expected: Tokens, width: int | None, pad_id: int) -> str:
    count = len(expected.tokens)
    if len(sequence.tokens) != (width or count):
        return f"{len(sequence.tokens):,} tokens, the store has {count:,}" + (f", with padding {width:,}" if width else "")
    wrong = np.flatnonzero(sequence.tokens[:count] != expected.tokens)
    if len(wrong):
        return f"token {wrong[0]} is {sequence.tokens[wrong[0]]}, the store has {expected.tokens[wrong[0]]}"
    if (sequence.tokens[count:] != pad_id).any():
        return f"after its {count:,} tokens stands something else than padding ({pad_id})"
    if sequence.trained is not None and expected.trained is not None:
        wrong = np.flatnonzero(sequence.trained != np.pad(expected.trained, (0, len(sequence.tokens) - count)))
        if len(wrong):
            state = "trained" if sequence.trained[wrong[0]] else "not trained"
            return f"token {wrong[0]} is {state}, in the store it is the other way round"
    if sequence.starts is not None and expected.starts is not None:
        starts = sequence.starts[sequence.starts < count].tolist()
        if starts != expected.starts.tolist():
            return f"documents start at {starts[:20]}, in the store at {expected.starts[:20].tolist()}"
    if sequence.attended is not None and expected.attended is not None:
        attended = sequence.attended[: count - 1]  # nothing attends to the last token of a row, which is no input
        wrong = np.flatnonzero((attended >= 0) & (attended != expected.attended[:-1]))
        if len(wrong):
            state = "attended" if attended[wrong[0]] else "not attended"
            return f"token {wrong[0]} is {state}, in the store it is the other way round"
        if (sequence.attended[count:] > 0).any():
            return "padding is attended"
    if sequence.images is not None and expected.images is not None and not _same_images(sequence.images, expected.images):
        return f"has the images {sequence.images[:3]}, the store {expected.images[:3]}"
    return ""


def _same_images(images: Any, expected: Any) -> bool:
    """Whether paths are equal, and positions where the format stores them."""
    return len(images) == len(expected) and all(
        path == wanted and places in (None, positions) for (path, places), (wanted, positions) in zip(images, expected, strict=True)
    )
