"""The pages of docs/formats say what the code does: every row on them is read from a fresh export."""

from __future__ import annotations

import doctest
import gzip
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from prep_assets import load
from prep_assets.extensions.exports.registry import export, exports
from prep_assets.extensions.rl.scored import Scored, group_columns, group_dtypes
from prep_assets.stores.table import GROUPS
from prep_assets.stores.writer import TableWriter
from prep_assets.training import DatasetFactory
from prep_assets_tests.extensions.exports.conftest import write_lines, write_stream
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.stores.payload import write_table

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "formats").glob("*.md"))
DOCUMENTS = [([10, 11, 12, 13, 14], [0, 0, 1, 1, 1]), ([20, 21, 22], [0, 1, 1])]


def _needs(page: Path) -> Any:
    return pytest.param(page, id=page.stem, marks=[pytest.mark.readers] if "load_from_disk" in page.read_text("utf-8") else [])


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stores that the pages talk of, in the working directory."""
    write_stream(tmp_path / "pretrain_tokens", "train", DOCUMENTS, masked=False)
    write_lines(tmp_path / "rl_prompts", "rl_prompts_train", [{"prompt": "What is 2 + 2?", "gold": 4.0}])
    write_lines(
        tmp_path / "contrastive",
        "contrastive",
        [{"query": "What is 2 + 2?", "positives": ["It is 4."], "negatives": ["It is 5.", "Blue."]}],
    )
    write_table(tmp_path / "sft_packed", "h5", [DOCUMENTS] * 2, 12)
    answer, other = np.array([4, 2]), np.array([5, 2])
    trained = (np.ones(2, np.uint8),) * 2
    with TableWriter(tmp_path / "rl_groups", "", GROUPS, group_dtypes("int32"), domains=["d"]) as groups:
        groups.append(
            *group_columns([Scored(np.array([10, 11, 12]), (answer, other), trained, np.array([1.0, -0.25], np.float32), 0, 0, 0)])
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [_needs(page) for page in PAGES])
def test_rows_on_the_page(page: Path, small: Path) -> None:
    names: dict[str, Any] = {"export": export, "load": load, "DatasetFactory": DatasetFactory, "np": np, "pq": pq}
    names |= {"h5py": h5py, "gzip": gzip, "json": json}
    if "load_from_disk" in page.read_text("utf-8"):
        names["load_from_disk"] = reader("datasets").load_from_disk
    failed, tried = doctest.testfile(str(page), module_relative=False, globs=names, encoding="utf-8")
    assert tried > 0
    assert failed == 0


def test_every_format_has_a_page_that_names_its_shift_and_options() -> None:
    index = (ROOT / "docs" / "formats" / "README.md").read_text("utf-8")
    assert {page.stem for page in PAGES} == {*exports(), "README"}
    for name, each in exports().items():
        page = (ROOT / "docs" / "formats" / f"{name}.md").read_text("utf-8")
        assert f"({name}.md)" in index, f"docs/formats/README.md needs a line for {name}"
        assert "shifted" in page
        assert [option for option in each.options if f"`{option}`" not in page] == []


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [("train_packed.py", ["sft_packed"], "second run stops at"), ("export_for_trainers.py", ["sft_packed", "out"], "packed_parquet")],
)
def test_examples_run(
    script: str, arguments: list[str], said: str, small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has torch already."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert said in capsys.readouterr().out
