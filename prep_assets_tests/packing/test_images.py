"""Runs of tokens in pack plans, against a plan followed token by token."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.extensions.media.files import place_runs
from prep_assets.packing import pack


@st.composite
def plans(draw: st.DrawFn):
    row_len = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=12))
    strategy = draw(st.sampled_from(["concat", "simple", "ffd", "bfd", "bfd_split"]))
    options = {"tail": draw(st.sampled_from(["pad", "drop"]))} if strategy == "concat" else {}
    if strategy in ("simple", "ffd", "bfd"):
        options["overlong"] = draw(st.sampled_from(["truncate", "drop", "split"]))
    runs = []
    for record, length in enumerate(lengths):
        at = draw(st.integers(0, 3))
        while at < length and len(runs) < 40:
            size = draw(st.integers(1, length - at))
            runs.append((record, at, size))
            at += size + draw(st.integers(0, 4))
    return pack(lengths, row_len, strategy, **options), runs


@given(plans())
def test_runs_stand_where_their_tokens_do(given_plan) -> None:
    plan, runs = given_plan
    place = {}
    for piece, (row, record, start, length, offset) in enumerate(
        zip(*(getattr(plan, name).tolist() for name in ("row", "record", "start", "length", "row_offset")), strict=True)
    ):
        place |= {(record, start + i): (piece, row, offset + i) for i in range(length)}
    for piece, (record, start, length) in enumerate(plan.dropped.tolist()):
        place |= {(record, start + i): (("dropped", piece), -1, -1) for i in range(length)}
    found = place_runs(plan, *(np.array([run[i] for run in runs], np.int64) for i in range(3)))
    for number, (record, start, length) in enumerate(runs):
        pieces = {place[record, start + i][0] for i in range(length)}
        _, row, offset = place[record, start]
        assert (found.row[number], found.row_offset[number]) == (row, offset)
        assert found.cut[number] == (len(pieces) > 1)


def test_no_runs_and_no_rows() -> None:
    nothing = np.empty(0, np.int64)
    assert len(place_runs(pack([3], 4, "simple"), nothing, nothing, nothing).row) == 0
    assert len(place_runs(pack([], 4, "simple"), nothing, nothing, nothing).row) == 0
    assert place_runs(pack([9], 4, "ffd", overlong="drop"), *(np.array([n]) for n in (0, 2, 2))).row.tolist() == [-1]
