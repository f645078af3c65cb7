"""Exports read back: rows of a trainer's files against the same rows of the store.

The readers (`read` of each format) share no code with the writers, and the rows expected here are taken from the store's
arrays directly. Labels and masks of every format are converted to one form: whether each token is trained, at its own index.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.extensions.exports.readable import Readable, Tokens
from prep_assets.extensions.exports.registry import reader
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import Role, Table

SAMPLE = 100
"""Rows that are compared in addition to the first and the last, and the first of each domain."""
SMALL = 2000
"""Of an export of fewer rows all are compared."""


def compare(folder: Path, source: Table, format: str, options: Mapping[str, Any]) -> Verdict:
    """Compare the first, the last, the first of each domain and `SAMPLE` seeded random rows of an export in `folder` with those of `source`; all of them
    where they are fewer than `SMALL`.

    Args:
        options: all options of the export.

    Raises:
        StoreError, OSError, ValueError, KeyError: files that their format's reader cannot read.
    """
    export = reader(format)(folder, source, options)
    by_document = export.documents and source.schema.packed
    total = len(source.documents_at[0]) if by_document else len(source)
    if export.count != total:
        problem = f"{export.count:,} rows in {format}, the store has {total:,}"
        return Verdict(False, problem, {}, Worst(format, problem))
    count = total if total < SMALL else min(SAMPLE, total)
    chosen = sorted({0, total - 1, *_firsts(source, by_document), *random.Random(0).sample(range(total), count)})
    lines = _lines(source, set(chosen)) if source.path is not None else {}
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


def row_fault(export: Readable, source: Table, row: int, options: Mapping[str, Any]) -> str:
    """Return how a row of an export differs from the store; ``""`` where it does not."""
    lines = _lines(source, {row}) if source.path is not None else {}
    return _compared(export, source, row, options, lines.get(row))[0]


def _compared(
    export: Readable, source: Table, row: int, options: Mapping[str, Any], line: dict[str, Any] | None
) -> tuple[str, Any, tuple[Tokens, ...]]:
    """Return the fault of a row, the row read back, and the expected sequences of a row of tokens."""
    read = export.row(row)
    if line is not None:
        return _line_fault(read, export.expected(line, row)), read, ()
    expected = _document(source, row) if export.documents and source.schema.packed else _row(source, row)
    return _fault(read, expected, export.width, options.get("pad_id", 0)), read, expected


# -- expected rows ----------------------------------------------------------------------------------------------------------------------


def _firsts(source: Table, by_document: bool) -> list[int]:
    """Return the first row of each domain of a merged source."""
    if source.pieces is None:
        return list(map(int, np.unique(source.origins.domain, return_index=True)[1]))
    firsts = np.unique(source.pieces.fields["source"], return_index=True)[1]
    return list(map(int, firsts if by_document else source.pieces.fields["row"][firsts]))


def _lines(source: Table, wanted: set[int]) -> dict[int, dict[str, Any]]:
    return {number: row for number, row in enumerate(source) if number in wanted}


def _row(source: Table, row: int) -> tuple[Tokens, ...]:
    if source.pieces is not None:
        pieces = [_document(source, piece)[0] for piece in range(*source.pieces.of(row).indices(len(source.pieces.fields["row"])))]
        lengths = [len(piece.tokens) for piece in pieces]
        starts = np.array([sum(lengths[:number]) for number in range(len(lengths))])
        tokens, masks, attended = (np.concatenate([getattr(piece, key) for piece in pieces]) for key in ("tokens", "trained", "attended"))
        return (Tokens(tokens, masks, starts, _images(source, row), attended),)
    answers = "responses" in source.columns  # which continue a prompt
    sequences = [
        _sequence(source, name, span, None if answers else _images(source, row), answer=answers)
        for name in source.has("ids")
        for span in source.columns[name].spans(row)
    ]
    values = [values for name in source.has("value") if name != STARTS for values in source.columns[name].arrays(row)]
    return (*sequences, *map(Tokens, values), *_entries(source, row))


def _sequence(source: Table, name: str, span: slice, images: Any = None, *, answer: bool = False) -> Tokens:
    def values(role: Role) -> Any:
        return next((np.asarray(source.columns[each].values[span]) for each in source.has(role, name)), None)

    ids, mask, attended = np.asarray(source.columns[name].values[span]).astype(np.int64), values("weight"), values("attention")
    if answer:
        return Tokens(ids, None if mask is None else mask != 0)
    trained = _but_first(np.ones(len(ids), bool) if mask is None else mask != 0)
    return Tokens(ids, trained, np.zeros(1, np.int64), images, np.ones(len(ids), np.uint8) if attended is None else attended)


def _entries(source: Table, number: int) -> Iterator[Tokens]:
    """The entries of lists for all tokens but the first, which nothing predicts: how many each has, their numbers, whether it is trained."""
    for lists in source.lists.values():
        [span] = source.columns["tokens"].spans(number)
        entries = lists.read(slice(number, number + 1), span)
        first, trained = int(entries.counts[0]), np.asarray(source.columns["loss_mask"].values[span]) != 0
        counts = np.concatenate([[0], entries.counts[1:]])
        yield from map(Tokens, (counts, *(values[first:] for values in entries.values.values()), np.repeat(trained, counts)))


def _images(source: Table, row: int) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
    numbers = np.flatnonzero(np.asarray(source.images.record) == row)
    images, places = source.images.references(numbers), ((int(source.images.start[i]), int(source.images.length[i])) for i in numbers)
    return tuple((image.path, tuple(range(start, start + length))) for image, (start, length) in zip(images, places, strict=True))


def _document(source: Table, piece: int) -> tuple[Tokens]:
    starts, ends = source.documents_at
    return (_sequence(source, "tokens", slice(int(starts[piece]), int(ends[piece]))),)


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
