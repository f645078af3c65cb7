"""The wheel: what is in it, and that it works without a checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.graph.workspaces import SHIPPED, SHIPPED_ASSETS
from prep_assets_tests.wheel import build_wheel

pytestmark = pytest.mark.cli


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from this checkout."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("the wheel is built with hatchling, which is not installed here")
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(folder)


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def modules() -> set[str]:
    files = [path for path in (ROOT / "prep_assets").rglob("*") if path.is_file() and path.suffix in (".py", ".jinja", ".typed")]
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_every_module_and_template_is_in_it(names: set[str]) -> None:
    assert modules() <= names
    assert "prep_assets/py.typed" in names
    assert any(name.startswith("prep_assets/text/") and name.endswith(".jinja") for name in names)


def test_nothing_in_it_runs_when_an_interpreter_starts(names: set[str]) -> None:
    assert not [name for name in names if name.endswith(".pth") or "customize" in name]


def test_the_sample_configuration_is_in_it_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name.removeprefix("prep_assets/_configs/") for name in archive.namelist() if name.startswith("prep_assets/_configs/")}
        there = (path for path in (ROOT / "configs").rglob("*") if path.is_file() and path.suffix != ".pyc")
        files = {path.relative_to(ROOT / "configs").as_posix(): path for path in there}
        assert shipped == set(files)
        assert all(archive.read(f"prep_assets/_configs/{name}") == path.read_bytes() for name, path in files.items())


def test_nothing_else_is_in_it(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"prep_assets"}
    assert not [name for name in names if "__pycache__" in name or "_tests" in name or name.endswith((".h5", ".db"))]


def test_its_metadata_has_command_licence_and_dependencies(wheel: Path, names: set[str]) -> None:
    [folder] = {name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")}
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
        entry_points = archive.read(f"{folder}/entry_points.txt").decode()
    assert metadata["Name"] == "prep-assets"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert f"{folder}/licenses/LICENSE" in names
    assert "prep-assets = prep_assets.cli.entry:main" in entry_points
    required = metadata.get_all("Requires-Dist") or []
    always = {one.split(";")[0].strip() for one in required if "extra ==" not in one}
    assert not [one for one in always if one.startswith(("dagster", "torch", "typer"))]
    assert any(one.startswith("dagster<1.14") and "extra == 'dagster'" in one.replace('"', "'") for one in required)


def test_without_a_checkout_the_definitions_load_from_the_shipped_samples(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import prep_assets; from prep_assets.config.loading import config_dir, store_dir; from prep_assets.definitions import defs; "
        "print(prep_assets.__file__, config_dir(), store_dir(), len(defs.resolve_asset_graph().get_all_asset_keys()), sep='\\n')"
    )
    hidden = ("PREP_ASSETS_CONFIG_DIR", "PREP_ASSETS_STORE_DIR")
    env = {**{key: value for key, value in os.environ.items() if key not in hidden}, "PYTHONPATH": str(site)}
    said = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    package, configs, stores, assets = said.stdout.split()
    assert Path(package).is_relative_to(site)
    assert Path(configs) == site / "prep_assets" / "_configs"
    assert Path(stores) == elsewhere / "data" / "stores"
    assert int(assets) == len(SHIPPED_ASSETS) + len(SHIPPED), "every asset, and a report of each family"
