"""`type: prep_assets.TrainingData` in somebody else's Dagster project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dagster as dg
import h5py
import numpy as np
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

import prep_assets
from prep_assets.config.loading import Tombstone, add_tombstones, read_tombstones
from prep_assets.extensions.dagster.component import _written
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import blocks
from prep_assets_tests.graph.workspaces import SHIPPED
from prep_assets_tests.wheel import build_wheel

pytestmark = pytest.mark.cli
OWN_ASSET = """
import dagster as dg


@dg.asset
def gsm8k_jsonl() -> None:
    \"\"\"The adopter's own asset, which writes a source file.\"\"\"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """prep-assets as `pip install` leaves it, entry points and all, and not this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(build_wheel(folder)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def project(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `create-dagster project mine` makes, written by hand where that is not installed, with an asset of its own."""
    root = tmp_path_factory.mktemp("foreign") / "mine"
    defs = root / "src" / "mine" / "defs"
    defs.mkdir(parents=True)
    (root / "src" / "mine" / "__init__.py").touch()
    (defs / "__init__.py").touch()
    (defs / "own.py").write_text(OWN_ASSET, "utf-8")
    (root / "src" / "mine" / "definitions.py").write_text(
        "from pathlib import Path\n\nfrom dagster import definitions, load_from_defs_folder\n\n\n@definitions\ndef defs():\n"
        "    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n",
        "utf-8",
    )
    (root / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0.1.0"\n\n[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "mine"\n',
        "utf-8",
    )
    return root


def test_paths_of_keys_that_stand_in_the_component_are_those_beside_it(tmp_path: Path) -> None:
    """Benchmarks, a training template and the tokenizer of stored ids were looked for beside the stores."""
    for name in ("tokenizer", "training.jinja"):
        (tmp_path / name).touch()
    values = {
        "tokenizer": "tokenizer",
        "template": "chatml",
        "training_template": "training.jinja",
        "decontaminate": {"files": ["bench.jsonl", "https://host/b.jsonl"]},
        "domains": {"a": {"files": ["a.jsonl"], "image_dir": "images", "tokenized_by": "tokenizer"}, "b": 5},
        "exports": {
            "tars": {"to": "webdataset", "options": {"image_dir": "images"}},
            "lf": {"to": "hf_arrow", "options": {"image_dir": "images"}},
            "c": 5,
        },
    }
    written = yaml.safe_load((_written(values, tmp_path, "sft", tmp_path / "stores") / "sft.yaml").read_text("utf-8"))
    assert written == {
        "tokenizer": str(tmp_path / "tokenizer"),
        "template": "chatml",
        "training_template": str(tmp_path / "training.jinja"),
        "decontaminate": {"files": [str(tmp_path / "bench.jsonl"), "https://host/b.jsonl"]},
        "domains": {
            "a": {"files": [str(tmp_path / "a.jsonl")], "image_dir": str(tmp_path / "images"), "tokenized_by": str(tmp_path / "tokenizer")},
            "b": 5,
        },
        "exports": {  # hf_arrow writes the folder into its files, and reads none
            "tars": {"to": "webdataset", "options": {"image_dir": str(tmp_path / "images")}},
            "lf": {"to": "hf_arrow", "options": {"image_dir": "images"}},
            "c": 5,
        },
    }


def test_what_is_forgotten_stays_so_when_keys_in_the_component_change(tmp_path: Path) -> None:
    stone = Tombstone("sft", "a", "a.jsonl:2", "0" * 64)
    add_tombstones(_written({"seed": 1}, tmp_path, "sft", tmp_path / "stores"), [stone])
    assert read_tombstones(_written({"seed": 2}, tmp_path, "sft", tmp_path / "stores")) == (stone,)


COMMANDS = """
import json, sys
from click.testing import CliRunner
from dagster_dg_cli.cli import cli
for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, command)
    print(json.dumps([command, done.exit_code, done.output]))
"""


def said_by_dg(project: Path, installed: Path, *commands: str) -> list[str]:
    """What each command of `dg` said, one after the other in one process."""
    pytest.importorskip("dagster_dg_cli", reason="dg is not installed")
    hidden = ("DAGSTER_HOME", "DAGSTER_MODULE_NAME", "PREP_ASSETS_CONFIG_DIR", "PREP_ASSETS_STORE_DIR")
    paths = os.pathsep.join([str(installed), str(project / "src")])
    # the command looks for the project's environment; it is the one that runs here
    env = {**{key: value for key, value in os.environ.items() if key not in hidden}, "PYTHONPATH": paths, "DG_CLI_TELEMETRY": "0"}
    env["VIRTUAL_ENV"] = str(Path(sys.executable).parent.parent)
    words = json.dumps([command.split() for command in commands])
    said = subprocess.run([sys.executable, "-c", COMMANDS, words], cwd=project, env=env, capture_output=True, text=True, timeout=300)
    done = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("[[")]
    assert [(command, code) for command, code, _ in done] == [(command.split(), 0) for command in commands], said.stdout + said.stderr
    return [output for _, _, output in done]


@pytest.mark.soak
def test_the_component_is_listed_and_scaffolded_and_its_packed_table_is_materialized(project: Path, installed: Path) -> None:
    """Three commands from an empty folder to `sft_packed`, beside the assets that the project has already."""
    listed, *_ = said_by_dg(
        project,
        installed,
        "list components",
        "scaffold defs prep_assets.TrainingData my_sft",
        "scaffold defs prep_assets.TrainingData my_preferences --family preference",
        "check yaml",
        'launch --assets sft_packed --config-json {"execution":{"config":{"in_process":{}}}}',  # a process for each step takes ten seconds more
    )
    assert "prep_assets.TrainingData" in listed
    folder = project / "src" / "mine" / "defs" / "my_sft"
    assert (folder / "defs.yaml").is_file() and (folder / "sft.yaml").is_file()
    assert str(ROOT) not in (folder / "sft.yaml").read_text("utf-8") and (folder / "samples" / "gsm8k.jsonl").is_file()
    assert (folder.with_name("my_preferences") / "preference.yaml").is_file()
    assert (project / "data" / "stores" / "sft_packed" / "current" / "sft_packed.h5").is_file()


def test_scaffolded_components_load_and_a_packed_table_is_materialized() -> None:
    """Beside an asset that the project has already; what `dg` itself does of it, `make soak` shows."""
    assert "prep_assets" in {entry.value for entry in entry_points(group="dagster_dg_cli.registry_modules")}
    with create_defs_folder_sandbox(project_name="mine") as sandbox:
        (sandbox.defs_folder_path / "own.py").write_text(OWN_ASSET, "utf-8")
        folders = [sandbox.scaffold_component(prep_assets.TrainingData, name, {"family": name}) for name in ("sft", "preference")]
        assert all((folder / "defs.yaml").is_file() and (folder / f"{folder.name}.yaml").is_file() for folder in folders)
        assert str(ROOT) not in (folders[0] / "sft.yaml").read_text("utf-8") and (folders[0] / "samples" / "gsm8k.jsonl").is_file()
        with sandbox.build_all_defs() as loaded:
            assert {
                dg.AssetKey(name) for name in ("gsm8k_jsonl", "sft_raw", "preference_raw")
            } <= loaded.resolve_asset_graph().get_all_asset_keys()
            job = loaded.resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(asset_selection=[dg.AssetKey("sft_packed")], raise_on_error=False).success
        assert (sandbox.project_root / "data" / "stores" / "sft_packed" / "current" / "sft_packed.h5").is_file()


def test_attributes_place_the_assets_in_the_graph_of_the_project() -> None:
    attributes: dict[str, Any] = {
        "family": "sft",
        "config": {
            "tokenizer": str(ROOT / "configs" / "tokenizer"),
            "domains": {"gsm8k": {"files": [str(ROOT / "configs" / "samples" / "gsm8k.jsonl")], "schema": "gsm8k", "max_items": 9}},
        },
        "asset_key_prefix": ["llm", "data"],
        "upstream": {"gsm8k": ["gsm8k_jsonl"]},
        "group": "training",
        "owners": ["team:alignment"],
        "tags": {"tier": "gold"},
    }
    with create_defs_folder_sandbox(project_name="mine") as sandbox:
        (sandbox.defs_folder_path / "own.py").write_text(OWN_ASSET, "utf-8")
        said: dict[str, Any] = {"type": "prep_assets.TrainingData", "attributes": attributes}
        folder = sandbox.scaffold_component(prep_assets.TrainingData, "chats", {"family": "sft"}, defs_yaml_contents=said)
        with sandbox.build_all_defs() as loaded:
            graph = loaded.resolve_asset_graph()
            raw = graph.get(dg.AssetKey(["llm", "data", "sft_raw"]))
            assert (raw.group_name, raw.owners, raw.tags["tier"]) == ("training", ["team:alignment"], "gold")
            assert {*raw.parent_keys} == {dg.AssetKey("gsm8k_jsonl")} and dg.AssetKey("gsm8k_jsonl") in graph.get_all_asset_keys()
            packed = dg.AssetKey(["llm", "data", "sft_packed"])
            job = loaded.resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(asset_selection=[packed], raise_on_error=False).success
        attributes["upstream"] = {"gsm8": ["gsm8k_jsonl"]}
        (folder / "defs.yaml").write_text(yaml.safe_dump(said), "utf-8")
        with pytest.raises(Exception) as raised, sandbox.build_all_defs():
            pass
        causes = [raised.value]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
            causes.append(cause)
        assert any("upstream: no domain 'gsm8' in sft" in str(each) for each in causes)


PAGE = ROOT / "docs" / "dagster-project.md"


@pytest.mark.soak
def test_the_assets_of_the_page_run_below_ours(project: Path, installed: Path, tmp_path: Path) -> None:
    """Statistics, a filter and ten optimizer steps, as docs/dagster-project.md shows them, in a project with two components."""
    pytest.importorskip("torch", reason="a training step needs torch")
    copy = tmp_path / "mine"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("data", "my_sft", "my_preferences", "own.py"))
    defs = copy / "src" / "mine" / "defs"
    [code] = [block for block in blocks(PAGE, "python") if "src/mine/defs/own.py" in block]
    (defs / "own.py").write_text(code, "utf-8")
    for family, options in (("sft", {"packing": {"row_len": 512}}), ("preference", {})):
        (defs / family).mkdir()
        attributes = {"family": family, "config": {**SHIPPED[family], **options}, "store_dir": "data/stores"}
        (defs / family / "defs.yaml").write_text(yaml.safe_dump({"type": "prep_assets.TrainingData", "attributes": attributes}), "utf-8")
    said = materialized(copy, installed, "sft_packed", "preferences", "row_statistics", "short_preferences", "trained_model")
    store = copy / "data" / "stores"
    with h5py.File(store / "sft_packed" / "current" / "sft_packed.h5") as file:
        trained, tokens = (
            int(np.count_nonzero(file["loss_mask"])),
            int(np.load(store / "sft_packed/current/sft_packed.documents/length.npy").sum()),
        )
    kept = [json.loads(line) for line in (store / "short_preferences" / "current" / "rows.jsonl").read_text("utf-8").splitlines()]
    every = [json.loads(line) for line in (store / "preferences" / "current" / "preferences.jsonl").read_text("utf-8").splitlines()]
    assert kept == [row for row in every if len(row["chosen"]) < 100 and len(row["rejected"]) < 100] and 0 < len(kept) < len(every)
    assert said["row_statistics"]["trained_share"] == pytest.approx(trained / tokens)
    assert said["trained_model"]["last_loss"] < said["trained_model"]["first_loss"]


TOLD = """
import json, sys
import dagster as dg
from mine.definitions import defs
with dg.DagsterInstance.ephemeral() as instance:
    keys = [dg.AssetKey(name) for name in sys.argv[1:]]
    result = defs().resolve_implicit_global_asset_job_def().execute_in_process(instance=instance, asset_selection=keys)
    for name in sys.argv[1:]:
        found = result.asset_materializations_for_node(name)[-1]
        print(json.dumps([name, {key: value.value for key, value in found.metadata.items() if isinstance(value.value, (int, float, str))}]))
"""


def materialized(project: Path, installed: Path, *assets: str) -> dict[str, dict[str, Any]]:
    """What assets of a project say of themselves when they are materialized."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(project / "src")])}
    said = subprocess.run([sys.executable, "-c", TOLD, *assets], cwd=project, env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr[-3000:]
    return dict(json.loads(line) for line in said.stdout.splitlines() if line.startswith("["))
