"""The user's commands, in a process of their own, from a fresh copy of the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import h5py
import pytest

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.extensions.dagster.runs import CONFIGS, DOMAINS, checks_of, evaluations, materializations

pytestmark = pytest.mark.cli

HEAVY = ("torch", "transformers", "h5py", "pyarrow", "tokenizers", "gigatoken", "datasets", "huggingface_hub", "ray")
OWN = ("DAGSTER_HOME", "DAGSTER_MODULE_NAME", "PREP_ASSETS_CONFIG_DIR", "PREP_ASSETS_STORE_DIR", "PYTHONPATH", "PYTHONHASHSEED")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of somebody who has set nothing, and finds the package in `folder`."""
    return {**{key: value for key, value in os.environ.items() if key not in OWN}, "PYTHONPATH": str(folder), **more}


def copy_checkout(folder: Path) -> None:
    """Whatever git tracks, and nothing else: no stores, no history, no caches."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no git checkout, so a fresh clone cannot be made from it")
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone in which `sft_packed` was materialized once, by the command that after `make setup` needs no flag."""
    program = Path(sys.executable).with_name("dagster")
    if not program.is_file():
        pytest.skip(f"no dagster command beside {sys.executable}")
    folder, site = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("site")
    copy_checkout(folder)
    for path in CONFIGS.glob("*.yaml"):  # of 20 rows of each domain
        shutil.copyfile(path, folder / "configs" / path.name)
    # as `make setup` does
    text = (ROOT / "tools" / "venv" / "sitecustomize.py").read_text("utf-8")
    (site / "sitecustomize.py").write_text(text.replace("__file__", repr(str(folder / "1" / "2" / "3" / "4" / "5"))), "utf-8")
    env = environment(folder, PYTHONPATH=os.pathsep.join([str(site), str(folder)]), PYTHONHASHSEED="1")
    command = [program, "asset", "materialize", "--select", "sft_packed"]
    said = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    assert "building first" in said.stderr
    return folder


@pytest.fixture
def history(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """What the clone remembers: `dagster.yaml` is read from the working directory."""
    monkeypatch.chdir(clone)
    with dg.DagsterInstance.from_config(str(clone)) as instance:
        yield instance


def test_a_fresh_clone_has_the_packed_table(clone: Path) -> None:
    with h5py.File(clone / "data" / "stores" / "sft_packed" / "current" / "sft_packed.h5") as file:
        assert file["tokens"].shape == file["loss_mask"].shape
        assert file["tokens"].shape[1] == 1024
        assert file["loss_mask"][:].any(axis=1).all()


def test_what_is_upstream_was_built_and_recorded_by_the_same_run_with_its_checks(history: dg.DagsterInstance) -> None:
    runs = history.get_runs()
    assert [run.is_success for run in runs] == [True]
    for name, partitions in {"sft_raw": DOMAINS["sft"], "sft_tokens": DOMAINS["sft"], "sft_packed": (None,)}.items():
        assert {each.partition for each in materializations(history, name)} == set(partitions)
        for check in checks_of(name):
            assert {each.partition: each.passed for each in evaluations(history, name, check)} == dict.fromkeys(partitions, True)


def test_nothing_is_left_beside_history_and_stores(clone: Path) -> None:
    tracked = {
        path.split("/")[0] for path in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    }
    left = {path.name for path in clone.iterdir()} - tracked
    assert left <= {".dagster", "data"}


@pytest.mark.soak
def test_dg_shows_its_options() -> None:
    # a typer that is too new leaves the help empty
    program = Path(sys.executable).with_name("dg")
    if not program.is_file():
        pytest.skip(f"no dg command beside {sys.executable}")
    said = subprocess.run([program, "launch", "--help"], cwd=ROOT, env=environment(ROOT), capture_output=True, text=True)
    assert "--assets" in said.stdout and "--partition-range" in said.stdout


def test_loading_the_definitions_is_light_and_the_package_does_without_dagster() -> None:
    code = (
        "import json, sys, prep_assets; alone = 'dagster' in sys.modules; import prep_assets.definitions; "
        f"print(json.dumps([alone, [name for name in {HEAVY!r} if name in sys.modules]]))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(ROOT), capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == [False, []]
    assert said.stderr == ""
