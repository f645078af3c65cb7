"""A configuration folder may hold any of the four families: Dagster loads each folder of recipes, with the assets of its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.config.models import FAMILIES
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets_tests.conftest import ROOT

RECIPES = ROOT / "configs" / "recipes"
FOLDERS = sorted({path.parent.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.yaml")})
FEW = [*{len(list((RECIPES / folder).glob("*.yaml"))): folder for folder in reversed(FOLDERS)}.values()]
"""One with each number of families, for `make test`."""


@pytest.mark.parametrize("folder", [folder if folder in FEW else pytest.param(folder, marks=pytest.mark.soak) for folder in FOLDERS])
def test_a_folder_of_recipes_loads_with_the_assets_of_its_files(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions of a folder with one family stopped: the three other configurations were missing."""
    monkeypatch.syspath_prepend(str(RECIPES / "own-code"))
    defs = definitions(Site(WorkspaceResource(configs=str(RECIPES / folder)), StoreIOManager(store_dir=str(tmp_path))))
    assets = [spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()]
    schedules, sensors = sorted(each.name for each in defs.schedules or ()), {each.name for each in defs.sensors or ()}
    here = sorted(path.stem for path in (RECIPES / folder).glob("*.yaml"))
    assert {f"{family}_raw" for family in here} <= set(assets)
    assert schedules == [f"nightly_{family}" for family in here]
    assert [family for family in sorted(FAMILIES) if f"{family}_sources" in sensors] == here
    assert not [name for name in assets if f"{name.partition('_')[0]}_raw" in {f"{f}_raw" for f in FAMILIES if f not in here}]
