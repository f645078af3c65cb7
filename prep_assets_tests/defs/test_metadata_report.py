"""The report of a family as an asset, and what asset pages show first."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg
import pytest

from prep_assets.assets.graph import EVERY
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.defs.assets import report_asset
from prep_assets.defs.io_manager import StoreIOManager
from prep_assets.defs.metadata import check_metadata, report_link, store_metadata
from prep_assets.defs.site import Site, WorkspaceResource
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.published import Published
from prep_assets_tests.assets.workspaces import build_all
from prep_assets_tests.reports.hostile import Read, hostile_workspace, unseen


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Published]]:
    workspace = hostile_workspace(tmp_path_factory.mktemp("report"))
    return workspace, {asset: store for (asset, _), store in build_all(workspace, ["sft"]).items()}


def test_the_asset_writes_a_page_for_each_store(built: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = built
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    asset = report_asset(site, "sft", [EVERY[name] for name in stores])
    result = dg.materialize([asset], resources={site.resource: site.workspace, site.io_manager_key: site.stores})
    metadata: Any = result.asset_materializations_for_node("sft_report")[0].metadata
    index = Path(unquote(urlsplit(metadata["report"].value).path))
    linked = Read(index.read_text("utf-8")).addresses
    assert sorted(linked) == sorted(f"{name}.html" for name in stores)
    assert metadata["pages"].value == len(stores)
    assert all(stores[name].manifest.content_hash in Path(metadata[name].value).read_text("utf-8") for name in stores)


def test_what_people_look_at_comes_first(built: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, stores = built
    metadata = store_metadata(workspace, stores["sft_packed"])
    assert list(metadata)[:6] == ["trained_share", "refused_records", "refused_by_reason", "report", "preview", "preview_row"]
    assert not any(key.startswith("share_") for key in metadata)
    [line] = metadata["by_domain"].records
    assert (line.data["domain"], line.data["tokens"]) == ("evil", stores["sft_packed"].manifest.counts["tokens"])
    assert "data:image/svg+xml;base64," in metadata["lengths"].value
    refused = store_metadata(workspace, stores["sft_tokens"])
    assert list(refused)[6:8] == ["refused", "quarantine"]
    assert not unseen("".join(str(value) for record in refused["refused"].records for value in record.data.values()))


def test_a_failing_check_shows_the_wrong_token_and_both_derivations(built: tuple[Workspace, dict[str, Published]]) -> None:
    workspace, _ = built
    ids = tuple(range(5, 105))
    same = ("equal<e>", "equal<e>")
    worst = Worst("rows.jsonl:1", "trained 'x', the source says 'y'", ids, (0.0, 1.0) * 50, 61, (same, ("x", "y\u202e"), ("", "z")))
    found = check_metadata(workspace, EVERY["sft_tokens"], Verdict(False, "1 of 2", {"rows_checked": 2}, worst), "evil")
    vocabulary = workspace.vocabulary(workspace.family(FAMILIES["sft"]))
    assert found["wrong_token"] == f"token 61 of 100: {vocabulary.decode([66])!r}, id 66, loss weight 1"
    lines = found["worst_row"].value.split("\n")
    assert [line for line in lines if line.startswith("- ")] == [f"- {vocabulary.decode([66])}"]
    assert [record.data for record in found["derivations"].records] == [
        {"stored": "x", "from the source": "y⟨u+202e⟩", "": "differs"},
        {"stored": "", "from the source": "z", "": "differs"},
    ]
    assert found["look_closer"] == "prep-assets report sft_tokens -p evil --candidate"
    assert found["report"].value == "http://127.0.0.1:8899/candidates/sft_tokens/evil"
    assert check_metadata(workspace, EVERY["sft_tokens"], Verdict(True, "", {"rows_checked": 2}), "evil") == {"rows_checked": 2}


def test_pages_may_be_served_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_VIEW_URL", "https://pages.example.com/team/")
    assert report_link("sft_tokens", "a b").startswith("[open](https://pages.example.com/team/stores/sft_tokens/a%20b) while ")
