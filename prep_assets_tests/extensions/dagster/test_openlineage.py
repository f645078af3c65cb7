"""Events of Dagster's runs, written by OpenLineage's own client into a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets_tests.extensions.dagster.runs import run
from prep_assets_tests.extensions.exports.readers import reader

pytestmark = pytest.mark.readers


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that events go to."""
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(tmp_path / "events"), "APPEND": "true"}.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return tmp_path / "events"


@pytest.fixture
def told(tmp_path: Path, sink: Path) -> Iterator[dg.DagsterInstance]:
    """An instance whose `dagster.yaml` has our event log, as the page says."""
    reader("dagster_openlineage")
    wrapped = {"module": "dagster._core.storage.event_log", "class": "SqliteEventLogStorage", "config": {"base_dir": str(tmp_path / "log")}}
    storage = {
        "module": "prep_assets.extensions.neighbours.dagster_events",
        "class": "StoreEvents",
        "config": {"wrapped": wrapped, "namespace": "llm"},
    }
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), overrides={"event_log_storage": storage}) as instance:
        yield instance


def events(sink: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sink.read_text("utf-8").splitlines()]


def test_a_run_tells_what_it_wrote_and_what_that_was_made_from(told: dg.DagsterInstance, sink: Path, stores: Path) -> None:
    assert run(told, "sft_raw", "sft_tokens", partition="dolly").success
    ends = {each["outputs"][0]["name"]: each for each in events(sink) if each["eventType"] == "COMPLETE" and each.get("outputs")}
    assert set(ends) >= {"sft_raw", "sft_tokens"}
    for asset in ("sft_raw", "sft_tokens"):
        manifest = json.loads((stores / asset / "dolly" / "current" / "manifest.json").read_text("utf-8"))
        facets = ends[asset]["outputs"][0]["facets"]
        ours = facets["prepAssets_store"]
        assert ours["hashes"]["build_key"] == manifest["build_key"]
        assert facets["version"]["datasetVersion"] == ours["hashes"]["content"]
        assert ours["partition"] == "dolly"
        assert ours["counts"] == {name: count for name, count in manifest["counts"].items() if isinstance(count, int)}
        assert ours["refused"] == manifest["counts"].get("refused", {})
    assert ours["hashes"]["tokenizer"] == manifest["recipe"]["tokenizer"]["sha256"]
    assert ours["hashes"]["template"] == manifest["recipe"]["template"]
    assert {(each["namespace"], each["name"]) for each in ends["sft_tokens"]["inputs"]} == {("llm", "sft_raw")}
    assert ends["sft_raw"].get("inputs", []) == []
    checks = [each for each in events(sink) if "dataQualityAssertions" in str(each.get("inputs"))]
    assert any("mask_alignment" in json.dumps(each) for each in checks)


def test_an_asset_of_somebody_else_is_told_as_without_us(told: dg.DagsterInstance, sink: Path) -> None:
    @dg.asset
    def warehouse() -> dg.MaterializeResult:  # type: ignore[type-arg]
        return dg.MaterializeResult(metadata={"path": dg.MetadataValue.path("/nowhere"), "content_hash": "abc"})

    assert dg.materialize([warehouse], instance=told).success
    [end] = [each for each in events(sink) if each["eventType"] == "COMPLETE" and each.get("outputs")]
    assert set(end["outputs"][0]["facets"]) == {"dataSource"}
