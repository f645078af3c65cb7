"""MLflow and W&B, with their own packages: what a run then says of its data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import StoreError
from prep_assets.extensions.neighbours.description import Description, described
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.extensions.exports.readers import reader

pytestmark = pytest.mark.readers


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with a store of its own in a file."""
    found = reader("mlflow")
    before = found.get_tracking_uri()
    found.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    yield found
    found.set_tracking_uri(before)


def test_mlflow_remembers_the_data_of_a_run(mlflow: Any, said: dict[str, Description]) -> None:
    from mlflow.data.dataset_source_registry import register_dataset_source

    from prep_assets.extensions.neighbours.mlflow import MlflowDataset
    from prep_assets.extensions.neighbours.mlflow_source import StoreSource

    told = said["sft_export_hub"]
    with mlflow.start_run() as run:
        mlflow.log_input(MlflowDataset(told), context="training")
    [found] = mlflow.get_run(run.info.run_id).inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.digest) == ("sft_export_hub", told.content_hash[:32])
    assert [(tag.key, tag.value) for tag in found.tags] == [("mlflow.data.context", "training")]
    profile = json.loads(found.dataset.profile)
    assert (profile["hashes"], profile["counts"], profile["licence"]) == (told.hashes, told.counts, ["cc-by-4.0"])
    columns = mlflow.types.Schema.from_json(json.dumps(json.loads(found.dataset.schema)["mlflow_colspec"]))
    assert columns.input_names() == ["input_ids", "labels", "seq_lengths"]
    register_dataset_source(StoreSource)  # an installed package has the entry point
    assert mlflow.data.get_source(found.dataset).load() == Path(told.where)


@pytest.mark.parametrize("asset", ["sft_packed", "rl_prompts", "preferences"])
def test_mlflow_reads_every_schema(mlflow: Any, said: dict[str, Description], asset: str) -> None:
    from prep_assets.extensions.neighbours.mlflow import MlflowDataset

    schema = MlflowDataset(said[asset]).schema
    assert (schema is None) == (asset == "sft_packed")
    if schema:
        names = [column.name for column in said[asset].columns]
        assert mlflow.types.Schema.from_json(json.dumps(schema["mlflow_colspec"])).input_names() == names


def test_a_run_whose_data_is_another_by_now(mlflow: Any, said: dict[str, Description]) -> None:
    from prep_assets.extensions.neighbours.mlflow import MlflowDataset

    told = said["preferences"]
    other = MlflowDataset(replace(told, hashes={**told.hashes, "content": "0" * 64}))
    with pytest.raises(StoreError, match="the run was made with 000000000000"):
        other.source.load()


def test_mlflow_finds_the_source_by_its_entry_point(said: dict[str, Description], tmp_path: Path) -> None:
    """As where the package is installed: MLflow loads the source while it is imported itself."""
    reader("mlflow")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["mlflow.dataset_source"]
    installed = tmp_path / "points-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: points\nVersion: 1\n", "utf-8")
    named = "".join(f"{name} = {place}\n" for name, place in points.items())
    (installed / "entry_points.txt").write_text(f"[mlflow.dataset_source]\n{named}", "utf-8")
    code = (
        "import sys; from prep_assets.extensions.neighbours.mlflow import MlflowDataset\n"
        "from prep_assets.extensions.neighbours.description import described; import mlflow\n"
        "source = MlflowDataset(described(sys.argv[1])).source\n"
        "print(mlflow.data.dataset_source_registry.get_dataset_source_from_json(source.to_json(), source._get_source_type()).load())"
    )
    where = said["preferences"].where
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run([sys.executable, "-c", code, where], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert (done.stdout.strip(), "Failure attempting to register" in done.stderr) == (where, False), done.stderr


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """W&B without a network."""
    for name in ("DIR", "CACHE_DIR", "CONFIG_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    return reader("wandb")


def test_wandb_writes_down_the_content(offline: Any, said: dict[str, Description], tmp_path: Path) -> None:
    from prep_assets.extensions.neighbours.wandb import wandb_artifact

    told = said["sft_export_hub"]
    found = wandb_artifact(told)
    assert (found.name, found.type, found.metadata["content_hash"]) == ("sft_export_hub", "dataset", told.content_hash)
    assert found.metadata["hashes"] == told.hashes
    assert {name: entry.size for name, entry in found.manifest.entries.items()} == {name: size for name, (size, _) in told.files.items()}
    run = offline.init(project="data", dir=str(tmp_path))
    run.log_artifact(found, aliases=[told.content_hash[:12]])
    run.finish()
    offline.teardown()  # waits for its service, which writes the file
    [log] = tmp_path.rglob("run-*.wandb")
    assert told.content_hash.encode() in log.read_bytes()


def test_equal_stores_are_one_artifact(offline: Any, built: Workspace, mine: Workspace) -> None:
    from prep_assets.extensions.neighbours.wandb import wandb_artifact

    places = (built.stores / "preferences", mine.stores / "preferences", built.stores / "rl_prompts")
    first, second, other = (wandb_artifact(described(place / "current")).digest for place in places)
    assert first == second != other
