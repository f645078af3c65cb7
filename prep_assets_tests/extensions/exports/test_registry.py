"""`export` itself: whole or not at all, equal bytes, errors that say what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports import blocks as blocks_module
from prep_assets.extensions.exports.registry import export, exports
from prep_assets.stores.table import LINES, TOKENS, Origins, Ragged, open_table
from prep_assets.stores.table import Table as StoredTable
from prep_assets_tests.extensions.exports.conftest import Stream, Table, write_lines, write_stream
from prep_assets_tests.extensions.exports.readers import reader

OPTIONS: dict[str, dict[str, Any]] = {"litdata": {"block_size": 5}, "aligned_parquet": {"eos_id": 3}}

OF_TOKENS = [name for name, each in exports().items() if set(each.takes) != {LINES} and not each.chats and not each.tokenizer]
"""Formats that hold tokens; the others are tried with lines, or with a tokenizer."""
BLOCKWISE = [pytest.param(name, marks=[pytest.mark.readers] * (name == "hf_arrow")) for name in OF_TOKENS]


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", OF_TOKENS)
def test_equal_bytes_for_any_folder(name: str, table: Table, text: Stream, tmp_path: Path) -> None:
    source = text.folder if name == "litdata" else table.folder
    first = export(source, name, tmp_path / "a", **OPTIONS.get(name, {}))
    second = export(source, name, tmp_path / "deep" / "er" / "b", **OPTIONS.get(name, {}))
    assert contents(first) == contents(second) != {}


@pytest.mark.parametrize("name", BLOCKWISE)
def test_blocks_do_not_show(name: str, table: Table, text: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are read at a time, a reader finds the same data; where no format has blocks or files by them, the same bytes."""
    source, options = text.folder if name == "litdata" else table.folder, OPTIONS.get(name, {})
    whole = contents(export(source, name, tmp_path / "a", **options))
    monkeypatch.setattr(blocks_module, "BLOCK", 70)
    parts = contents(export(source, name, tmp_path / "b", **options))
    if name == "hf_arrow":
        load = reader("datasets").load_from_disk
        assert load(str(tmp_path / "a"))[:] == load(str(tmp_path / "b"))[:]
    elif name == "olmo":
        data = [key for key in whole if not key.endswith(".csv.gz")]
        assert [whole[key] for key in data] == [parts[key] for key in data]
    else:
        assert whole == parts


@pytest.mark.parametrize("name", OF_TOKENS)
def test_progress_ends_at_the_total(name: str, table: Table, text: Stream, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    source = text.folder if name == "litdata" else table.folder
    export(source, name, tmp_path / "a", progress=lambda done, total: told.append((done, total)), **OPTIONS.get(name, {}))
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_never_into_a_folder_with_something_in_it(table: Table, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export(table.folder, "tlfs", tmp_path / "out")
    with pytest.raises(ConfigError, match="is not empty"):
        export(table.folder, "tlfs", tmp_path / "out")


def test_nothing_is_left_of_an_export_that_dies(table: Table, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        export(table.folder, "mds", tmp_path / "out", progress=stop)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("megatorn", {}, "did you mean 'megatron'"),
        ("tlfs", {"pad": 1}, "did you mean 'pad_id'"),
        ("tlfs", {"pad_id": "1"}, "valid integer"),
        ("litdata", {}, "needs the option 'block_size'"),
        ("verl", {}, "verl takes JSONL, not packed table"),
        ("megatron", {"layout": "text"}, "for token streams"),
    ],
)
def test_what_cannot_be(name: str, options: dict[str, Any], complaint: str, table: Table, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        export(open_table(table.folder) if name == "verl" else table.folder, name, tmp_path / "out", **(options or {}))
    assert not (tmp_path / "out").exists()


def test_ids_that_do_not_fit_are_no_other_ids(tmp_path: Path) -> None:
    write_stream(tmp_path / "s", "train", [([70_000], [1])], masked=False)
    for name in ("megatron", "olmo", "nanotron"):
        with pytest.raises(ConfigError, match="70,000 does not fit uint16"):
            export(tmp_path / "s", name, tmp_path / name, vocab_size=60_000)


def test_fractional_weights_are_refused(tmp_path: Path) -> None:
    arrays = {"tokens": np.arange(4, dtype="int32"), "loss_mask": np.array([0, 1, 0.5, 1], "float32")}
    columns, none = {name: Ragged(values, np.array([4])) for name, values in arrays.items()}, np.zeros(1, "int64")
    store = StoredTable("train", TOKENS, 1, Origins(("",), none, none, none), columns)
    with pytest.raises(ConfigError, match=r"neither 0 nor 1: .* Train on loss_mask as prep_assets\.load reads it"):
        export(store, "hf_arrow", tmp_path / "out")


def test_a_folder_with_several_streams_needs_one_named(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        write_stream(tmp_path / "s", name, [([1, 2], [1, 1])], masked=False)
    with pytest.raises(StoreError, match="several: dev, train"):
        open_table(tmp_path / "s")
    with pytest.raises(StoreError, match="did you mean 'train'"):
        open_table(tmp_path / "s", "trian")
    export(tmp_path / "s", "tlfs", tmp_path / "out", stream="dev")
    with pytest.raises(StoreError, match="found none of ours"):
        open_table(tmp_path / "out")


def test_sides_of_different_rows_are_no_pairs(tmp_path: Path) -> None:
    for name, count in (("chosen", 2), ("rejected", 1)):
        write_stream(tmp_path / "s", name, [([1], [1])] * count, masked=True)
    with pytest.raises(StoreError, match="2 chosen and 1 rejected"):
        open_table(tmp_path / "s")


def test_nothing_to_export(tmp_path: Path) -> None:
    write_lines(tmp_path / "empty", "rl_prompts_test", [])
    with pytest.raises(ConfigError, match="no rows"):
        export(tmp_path / "empty", "tlfs", tmp_path / "out")
