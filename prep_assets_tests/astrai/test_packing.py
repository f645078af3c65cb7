"""``simple`` cuts, ``bfd`` and ``bfd_split`` fill bins of exactly ``max_packed_len``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.astrai.config import parse_pipeline
from prep_assets.astrai.shards import arrange, bin_plan
from prep_assets.astrai.task import Task, task_of
from prep_assets_tests.astrai.conftest import VOCABULARY, Run, chat, ids
from prep_assets_tests.astrai.pipelines import GRPO, SECTIONS_CHAT, SECTIONS_TEXT, changed
from prep_assets_tests.astrai.reference import read_bin
from prep_assets_tests.effort import examples

PAD = VOCABULARY["<pad>"]


def packed(strategy: str, row_len: int, *, keep_end: bool = False, pipeline: dict[str, Any] = SECTIONS_TEXT) -> dict[str, Any]:
    mode = "keep_end" if keep_end else "keep_start"
    steps = {"min_chars": 0, "packing_strategy": strategy, "max_packed_len": row_len, "truncation_mode": mode}
    return changed(pipeline, preprocessing=steps)


def task(*arguments: Any, **options: Any) -> Task:
    return task_of(parse_pipeline(packed(*arguments, **options), "p"))


def bins(strategy: str, lengths: list[int], row_len: int = 10) -> list[list[int]]:
    plan = bin_plan(task(strategy, row_len), np.array(lengths))
    return [plan.record[plan.row == row].tolist() for row in range(plan.rows)]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((3, 7, 5, 2, 10, 4, 12), [[6], [4], [1, 0], [2, 5], [3]]), ((5, 5, 5, 5), [[0, 1], [2, 3]]), ((1,), [[0]])],
)
def test_bfd_fills_the_bins_that_astrai_fills(lengths: tuple[int, ...], expected: list[list[int]]) -> None:
    assert bins("bfd", list(lengths)) == expected


def best_fit(lengths: list[int], row_len: int) -> list[list[int]]:
    """Best fit, longest first, by looking at every bin for every record."""
    found: list[list[int]] = []
    space: list[int] = []
    for record in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = min(lengths[record], row_len)
        fitting = [(space[i], i) for i in range(len(found)) if space[i] >= size]
        place = min(fitting)[1] if fitting else len(found)
        if not fitting:
            found.append([])
            space.append(row_len)
        found[place].append(record)
        space[place] -= size
    return found


@settings(max_examples=examples(80), deadline=None)
@given(lengths=st.lists(st.integers(1, 14), min_size=1, max_size=20), row_len=st.integers(2, 12))
def test_bfd_is_best_fit_decreasing(lengths: list[int], row_len: int) -> None:
    assert bins("bfd", lengths, row_len) == best_fit(lengths, row_len)


@settings(max_examples=examples(80), deadline=None)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=12),
    row_len=st.integers(2, 12),
    strategy=st.sampled_from(["bfd", "bfd_split"]),
    keep_end=st.booleans(),
)
def test_every_key_of_every_bin(lengths: list[int], row_len: int, strategy: str, keep_end: bool) -> None:
    asked = task(strategy, row_len, keep_end=keep_end)
    # token values say which token of which record they are, so that a bin can be read back
    sequence = np.concatenate([100 * (record + 1) + np.arange(length) for record, length in enumerate(lengths)])
    raw = {"sequence": sequence, "loss_mask": np.ones(len(sequence), np.int32)}
    found = arrange(asked, raw, np.array(lengths), PAD)
    columns = {key: np.concatenate(list(found.blocks(key))).reshape(-1, row_len) for key in asked.columns}
    assert found.sizes == dict.fromkeys(asked.columns, columns["sequence"].size)
    used = columns["sequence"] != PAD
    assert (columns["loss_mask"] == used).all()
    assert (columns["position_ids"][~used] == 0).all()
    seen: list[int] = []
    for tokens, positions in zip(columns["sequence"], columns["position_ids"], strict=True):
        count = int((tokens != PAD).sum())
        assert (tokens[count:] == PAD).all()
        for place in range(count):
            begins = place == 0 or tokens[place] != tokens[place - 1] + 1
            # a document begins at 0 wherever it stands, so that a reader never joins two
            assert positions[place] == (0 if begins else positions[place - 1] + 1)
        seen += tokens[:count].tolist()
    kept = lengths if strategy == "bfd_split" else [min(length, row_len) for length in lengths]
    first = [length - keep if keep_end else 0 for length, keep in zip(lengths, kept, strict=True)]
    expected = [100 * (r + 1) + i for r, keep in enumerate(kept) for i in range(first[r], first[r] + keep)]
    assert sorted(seen) == expected
    assert found.left_out == sum(lengths) - sum(kept)


ROWS = [{"text": text} for text in ("a b c", "d e", "f g h i j", "k")]


def test_bins_on_disk(run: Run, tmp_path: Path) -> None:
    outcome = run(ROWS, packed("bfd", 4))
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")
    assert found["sequence"].reshape(-1, 4).tolist() == [ids("f g h i"), ids("a b c k"), ids("d e <pad> <pad>")]
    assert found["loss_mask"].reshape(-1, 4).tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0]]
    assert found["position_ids"].reshape(-1, 4).tolist() == [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 0, 0]]
    assert (outcome.totals.cut_by_packing, outcome.totals.cut_records, outcome.totals.padding) == (1, 1, 2)


def test_bfd_split_keeps_every_token(run: Run, tmp_path: Path) -> None:
    outcome = run(ROWS, packed("bfd_split", 4))
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")["sequence"]
    assert sorted(found[found != PAD].tolist()) == sorted(ids("a b c d e f g h i j k"))
    assert outcome.totals.cut_by_packing == 0


@pytest.mark.parametrize(("keep_end", "kept"), [(False, "f g h"), (True, "h i j")])
def test_simple_packing_cuts_one_end_and_counts_it(keep_end: bool, kept: str, run: Run, tmp_path: Path) -> None:
    outcome = run(ROWS, packed("simple", 3, keep_end=keep_end))
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")
    assert found["sequence"].tolist() == ids(f"a b c d e {kept} k")
    assert found["position_ids"].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 0]
    assert (outcome.totals.cut_by_packing, outcome.totals.cut_records) == (2, 1)


def test_each_response_of_a_group_is_cut_by_itself(run: Run, tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "a"}], "responses": ["b c d", "e", "f g h i"], "rewards": [1, 2, 3]}
    outcome = run([row], changed(GRPO, preprocessing={"max_packed_len": 2, "truncation_mode": "keep_end"}))
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    assert read_bin(shard)["responses"].tolist() == ids("c d e h i")
    assert json.loads((shard / "meta.json").read_text())["masks"]["element_offsets"] == [0, 2, 3, 5]
    assert outcome.totals.cut_by_packing == 3 + 3


def test_masks_go_with_their_tokens(run: Run, tmp_path: Path) -> None:
    row = chat(("user", "a"), ("assistant", "b"))
    run([row], packed("simple", 6, keep_end=True, pipeline=SECTIONS_CHAT))
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")
    assert found["sequence"].tolist() == ids("a <|im_end|> <|im_start|> assistant b <|im_end|>")[-6:]
    assert found["loss_mask"].astype(int).tolist() == [0, 0, 1, 1, 1, 1]
