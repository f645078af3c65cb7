"""Releases opened by those for whom they are made: Hugging Face `datasets` and `mlcroissant`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prep_assets.extensions.neighbours.description import Description
from prep_assets.extensions.neighbours.hub import features, release_of, write_release
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.exports.readers import reader

pytestmark = pytest.mark.readers
RELEASED = ("sft_export_hub", "preferences", "rl_prompts")


@pytest.fixture(scope="module")
def released(built: Workspace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each."""
    found = {asset: tmp_path_factory.mktemp("released") / asset for asset in RELEASED}
    for asset, folder in found.items():
        write_release(release_of(built, asset), folder)
    return found


def rows_of(folder: Path, files: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows as they are stored."""
    if files[0].endswith(".parquet"):
        return [row for file in files for row in pq.ParquetFile(folder / file).read().to_pylist()]
    return [json.loads(line) for file in files for line in (folder / file).read_text("utf-8").splitlines()]


@pytest.mark.parametrize("asset", RELEASED)
def test_datasets_loads_the_folder(
    asset: str, released: dict[str, Path], said: dict[str, Description], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = reader("datasets").load_dataset(str(released[asset]), cache_dir=str(tmp_path))
    assert set(loaded) == {table.split for table in said[asset].tables}
    for table in said[asset].tables:
        assert loaded[table.split].to_list() == rows_of(released[asset], table.files)
        assert loaded[table.split].features._to_yaml_list() == features(table.columns)
    assert "Ignoring part of dataset_info" not in caplog.text


@pytest.mark.parametrize("asset", RELEASED)
def test_mlcroissant_finds_no_fault_and_loads_ten_records(asset: str, released: dict[str, Path], said: dict[str, Description]) -> None:
    mlc = reader("mlcroissant")
    loaded = mlc.Dataset(jsonld=str(released[asset] / "croissant.json"))
    assert not loaded.metadata.ctx.issues.errors
    assert [warning for warning in loaded.metadata.ctx.issues.warnings if "is recommended" not in warning] == []
    assert loaded.metadata.ctx.is_v1_1()
    for table in said[asset].tables:
        place = f"{table.name}/{table.split}"
        found = [plain(record) for record in itertools.islice(loaded.records(place), 10)]
        stored = rows_of(released[asset], table.files)
        assert len(found) == min(10, len(stored))
        expected = [told(row) for row in stored]
        assert [record for record in found if record not in expected] == []  # files of a set come in the order of the folder


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Croissant can tell it: in objects of a list, no key that holds objects or is nowhere."""
    return {name: [_shallow(each) for each in value] if isinstance(value, list) else value for name, value in row.items()}


def _shallow(value: Any) -> Any:
    return {name: each for name, each in value.items() if not isinstance(each, dict | list)} if isinstance(value, dict) else value


def plain(value: Any) -> Any:
    """A record without the places of its fields, texts as texts."""
    if isinstance(value, dict):
        return {str(name).rpartition("/")[2]: plain(each) for name, each in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    return [plain(each) for each in value] if isinstance(value, list) else value
