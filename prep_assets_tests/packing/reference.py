"""The slow, obvious versions: every token of every row as a (record, token) pair, placed one record at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import strategies as st

from prep_assets.packing import PackPlan

Row = list[tuple[int, int]]

LENGTHS = st.one_of(st.lists(st.integers(1, 30), max_size=40), st.lists(st.sampled_from([1, 3, 5, 7, 12]), max_size=60))
ROW_LEN = st.integers(1, 20)


def rows_of(plan: PackPlan) -> list[Row]:
    """The tokens of each row, in the order of the members."""
    rows: list[Row] = [[] for _ in range(plan.rows)]
    for row, record, start, length in zip(plan.row, plan.record, plan.start, plan.length, strict=True):
        rows[row] += [(int(record), int(start) + i) for i in range(length)]
    return rows


def dropped_of(plan: PackPlan) -> Row:
    return [(int(record), int(start) + i) for record, start, length in plan.dropped for i in range(length)]


def stream(lengths: Sequence[int]) -> Row:
    return [(record, token) for record, length in enumerate(lengths) for token in range(length)]


def concat(lengths: Sequence[int], row_len: int) -> list[Row]:
    tokens = stream(lengths)
    return [tokens[i : i + row_len] for i in range(0, len(tokens), row_len)]


def documents(lengths: Sequence[int], row_len: int, overlong: str) -> tuple[list[Row], Row]:
    """The pieces to place, each a list of tokens, and the tokens that are dropped."""
    pieces: list[Row] = []
    dropped: Row = []
    for record, length in enumerate(lengths):
        tokens = [(record, token) for token in range(length)]
        if overlong == "split":
            pieces += [tokens[i : i + row_len] for i in range(0, length, row_len)]
        elif overlong == "drop" and length > row_len:
            dropped += tokens
        else:
            pieces.append(tokens[:row_len])
            dropped += tokens[row_len:]
    return pieces, dropped


def next_fit(pieces: Sequence[Row], row_len: int) -> list[Row]:
    rows: list[Row] = []
    for piece in pieces:
        if not rows or len(rows[-1]) + len(piece) > row_len:
            rows.append([])
        rows[-1] += piece
    return rows


def decreasing(pieces: Sequence[Row], sizes: Sequence[int], row_len: int, *, best: bool) -> list[Row]:
    """Look at every open row for each piece, longest first."""
    rows: list[Row] = []
    for index in sorted(range(len(pieces)), key=lambda i: -sizes[i]):
        piece = pieces[index]
        fitting = [row for row in rows if len(row) + len(piece) <= row_len]
        if not fitting:
            rows.append(list(piece))
        elif best:
            max(fitting, key=len).extend(piece)
        else:
            fitting[0].extend(piece)
    return rows


def problems(plan: PackPlan, lengths: Sequence[int]) -> list[str]:
    """What is wrong with a plan, found by painting every token onto its place."""
    found = []
    painted: dict[tuple[int, int], tuple[int, int]] = {}
    for row, record, start, length, offset in zip(plan.row, plan.record, plan.start, plan.length, plan.row_offset, strict=True):
        for i in range(length):
            place = (int(row), int(offset) + i)
            if place in painted:
                found.append(f"two tokens at {place}")
            painted[place] = (int(record), int(start) + i)
    for row in range(plan.rows):
        places = sorted(place for r, place in painted if r == row)
        if not places or places != list(range(len(places))) or len(places) > plan.row_len:
            found.append(f"row {row} holds places {places}")
    if any(not 0 <= row < plan.rows for row, _ in painted):
        found.append("a row that does not exist")
    if Counter([*painted.values(), *dropped_of(plan)]) != Counter(stream(lengths)):
        found.append("not every token exactly once")
    for record in range(len(lengths)):
        tokens = [token for _, (r, token) in sorted(painted.items()) if r == record]
        if tokens != sorted(tokens):
            found.append(f"record {record} is out of order")
    return found
