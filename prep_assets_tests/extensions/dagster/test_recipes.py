"""A configuration folder may hold any of the four families: Dagster loads each folder of recipes, with the assets of its files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from prep_assets.config.models import FAMILIES
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.effort import SOAK

pytestmark = pytest.mark.cli
RECIPES = ROOT / "configs" / "recipes"
FOLDERS = sorted({path.parent.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.yaml")})
FEW = [*{len(list((RECIPES / folder).glob("*.yaml"))): folder for folder in reversed(FOLDERS)}.values()]
"""One with each number of families, for `make test`."""
LOAD = """
import json, os, sys
for folder in sys.argv[1:]:
    os.environ["PREP_ASSETS_CONFIG_DIR"] = folder
    for name in [name for name in sys.modules if name.startswith("prep_assets.def")]:
        del sys.modules[name]
    from prep_assets.definitions import defs
    keys = [spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()]
    print(json.dumps([sorted(keys), sorted(each.name for each in defs.schedules), sorted(each.name for each in defs.sensors)]))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Folder → names of assets, schedules and sensors; one process loads them one after another."""
    names = FOLDERS if SOAK else FEW
    folders = [str(RECIPES / folder) for folder in names]
    environment = {**os.environ, "PREP_ASSETS_STORE_DIR": str(tmp_path_factory.mktemp("stores")), "PYTHONPATH": str(RECIPES / "own-code")}
    said = subprocess.run([sys.executable, "-c", LOAD, *folders], env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    return dict(zip(names, map(json.loads, said.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("folder", [folder if folder in FEW else pytest.param(folder, marks=pytest.mark.soak) for folder in FOLDERS])
def test_a_folder_of_recipes_loads_with_the_assets_of_its_files(loaded: dict[str, list[list[str]]], folder: str) -> None:
    """Definitions of a folder with one family stopped: the three other configurations were missing."""
    assets, schedules, sensors = loaded[folder]
    here = sorted(path.stem for path in (RECIPES / folder).glob("*.yaml"))
    assert {f"{family}_raw" for family in here} <= set(assets)
    assert schedules == [f"nightly_{family}" for family in here]
    assert [family for family in sorted(FAMILIES) if f"{family}_sources" in sensors] == here
    assert not [name for name in assets if f"{name.partition('_')[0]}_raw" in {f"{f}_raw" for f in FAMILIES if f not in here}]
