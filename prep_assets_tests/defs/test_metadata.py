"""What a materialization says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import h5py
import pytest

from prep_assets.assets.graph import with_parts
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.metadata import SHOWN_FILES, store_metadata
from prep_assets.records.quarantine import read_quarantine
from prep_assets_tests.assets.workspaces import SHIPPED_ASSETS, build, jsonl, minimal, workspace_in
from prep_assets_tests.defs.conftest import Everything
from prep_assets_tests.defs.runs import materializations, plain

TABLES = [name for name, asset in SHIPPED_ASSETS.items() if asset.streams or name.endswith("_raw")]
TOKENS = ["pretrain_tokens", "sft_tokens", "sft_packed", *with_parts("preference_tokens", "rl_tokens"), "arithmetic_tokens"]


def all_of(everything: Everything, asset: str) -> list[dict[str, Any]]:
    return [plain(each.metadata) for each in materializations(everything.instance, asset)]


@pytest.mark.parametrize("asset", SHIPPED_ASSETS)
def test_every_materialization_says_what_it_is_and_where(everything: Everything, asset: str) -> None:
    found = all_of(everything, asset)
    assert found
    for metadata in found:
        assert metadata["bytes"] > 0
        assert Path(metadata["path"]).is_dir() and Path(metadata["path"]).is_relative_to(everything.stores)
        assert (Path(metadata["path"]) / "manifest.json").is_file()
        assert len(metadata["content_hash"]) == 32 and len(metadata["build_key"]) == 20
        assert metadata["reused"] is False
        assert len(json.dumps(metadata)) < 200_000


@pytest.mark.parametrize("asset", TABLES)
def test_figures_are_numbers_so_that_the_page_plots_them(everything: Everything, asset: str) -> None:
    for each in materializations(everything.instance, asset):
        numbers = {key for key, value in each.metadata.items() if isinstance(value, dg.IntMetadataValue | dg.FloatMetadataValue)}
        assert {"dagster/row_count", "bytes", "refused_records"} <= numbers
        assert each.metadata["dagster/row_count"].value > 0
        assert len(numbers) > 3


def test_the_row_count_of_the_packed_table_is_its_number_of_rows(everything: Everything) -> None:
    [metadata] = all_of(everything, "sft_packed")
    with h5py.File(Path(metadata["path"]) / "sft_packed.h5") as file:
        tokens, mask = file["tokens"][:], file["loss_mask"][:]
    assert metadata["dagster/row_count"] == metadata["rows"] == len(tokens)
    assert metadata["trained_tokens"] == int((mask != 0).sum())
    assert metadata["trained_share"] == round((mask != 0).sum() / metadata["tokens"], 4)


@pytest.mark.parametrize("asset", TOKENS)
def test_a_token_store_shows_a_row_inline_and_as_a_picture(everything: Everything, asset: str) -> None:
    for metadata in all_of(everything, asset):
        assert len(metadata["preview"]) < 1000
        assert metadata["preview"].count("```") == 2 and "\n```diff\n" in metadata["preview"]
        assert "data:image/svg+xml;base64," in metadata["preview_row"]


def test_token_stores_say_which_engine_their_documents_are_for(everything: Everything) -> None:
    for metadata in all_of(everything, "sft_tokens"):
        by_engine = [value for key, value in metadata.items() if key.startswith("documents_by_")]
        assert metadata["documents_by_gigatoken"] > 0 and sum(by_engine) == metadata["kept"]


def test_masked_and_trained_tokens_are_told_apart_at_a_glance(everything: Everything) -> None:
    for metadata in all_of(everything, "sft_tokens"):
        lines = metadata["preview"].split("```diff\n")[1].splitlines()
        assert lines[0].startswith("  <|im_start|>")
        assert any(line.startswith("+ ") for line in lines)


@pytest.mark.parametrize("asset", ["preferences", "rl_prompts", "arithmetic_prompts"])
def test_a_store_of_lines_shows_one(everything: Everything, asset: str) -> None:
    [metadata] = all_of(everything, asset)
    assert set(metadata["preview"]) == ({"prompt", "chosen", "rejected"} if asset == "preferences" else {"prompt", "gold"})


def test_a_source_of_many_files_shows_only_the_first(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(SHOWN_FILES + 5):
        jsonl(many / f"{number:03}.jsonl", [{"text": f"document {number}"}])
    workspace = workspace_in(tmp_path, minimal("pretrain", {"many": {"files": [str(many)], "schema": "text"}}))
    metadata = store_metadata(workspace, build(workspace, "pretrain_raw", "many"))
    assert metadata["files"] == SHOWN_FILES + 5
    assert [entry["name"] for entry in metadata["preview"].value["files"]] == [f"{number:03}.jsonl" for number in range(SHOWN_FILES)]


def test_refused_records_are_counted_by_reason_with_the_path_of_the_quarantine(tmp_path: Path) -> None:
    rows = [{"instruction": "Add 2 and 2.", "output": "4"}, {"instruction": "", "output": ""}, {"nothing": 1}, {"instruction": "Name it."}]
    source = jsonl(tmp_path / "rows.jsonl", rows)
    workspace = workspace_in(tmp_path, minimal("sft", {"one": {"files": [str(source)], "schema": "alpaca"}}))
    build(workspace, "sft_raw", "one")
    published = build(workspace, "sft_tokens", "one")
    metadata = store_metadata(workspace, published)
    assert metadata["refused_records"] == 3 and metadata["dagster/row_count"] == 1
    assert sum(metadata["refused_by_reason"].value.values()) == 3
    quarantine = Path(metadata["quarantine"].value)
    assert [record.data["record (from 0)"] for record in metadata["refused"].records] == ["rows.jsonl:1", "rows.jsonl:2", "rows.jsonl:3"]
    assert metadata["refused"].records[0].data["payload"] == '{"instruction": "", "output": ""}'
    packed = store_metadata(workspace, build(workspace, "sft_packed"))
    assert packed["refused_records"] == 3 and packed["refused"].records[0].data["store"] == "sft_tokens[one]"
    assert [refusal.id for refusal in read_quarantine(quarantine)] == ["rows.jsonl:1", "rows.jsonl:2", "rows.jsonl:3"]


def test_without_refused_records_there_is_no_quarantine_to_show(everything: Everything, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(everything.stores))
    workspace = Workspace.open()
    published = workspace.published("sft_raw", "dolly")
    assert published is not None
    metadata = store_metadata(workspace, published)
    assert metadata["refused_records"] == 0
    assert "quarantine" not in metadata and "refused_by_reason" not in metadata
