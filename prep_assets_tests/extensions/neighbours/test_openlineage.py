"""The event of a store, read back by OpenLineage's own package and from the file that its client writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from prep_assets.extensions.neighbours.description import Description
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.extensions.neighbours.test_hub import run

pytestmark = pytest.mark.readers
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def sent(said: Description, folder: Path) -> dict[str, Any]:
    """The event as a client writes it to a file."""
    from prep_assets.extensions.neighbours.openlineage import emit

    client = reader("openlineage.client")
    transport = reader("openlineage.client.transport.file")
    path = folder / "events"
    emit(said, client.OpenLineageClient(transport=transport.FileTransport(transport.FileConfig(log_file_path=str(path), append=True))))
    event: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return event


def test_an_event_has_what_the_store_says(said: dict[str, Description], tmp_path: Path) -> None:
    told, event = said["sft_export_hub"], sent(said["sft_export_hub"], tmp_path)
    [output] = event["outputs"]
    assert (output["namespace"], output["name"], event["job"]["name"]) == ("default", "sft_export_hub", "sft_export_hub")
    ours = output["facets"]["prepAssets_store"]
    assert ours["hashes"] == told.hashes
    assert {"content", "build_key", "configuration", "tokenizer", "template"} == set(ours["hashes"])
    assert (ours["counts"], ours["refused"]) == (told.counts, told.refused)
    assert output["facets"]["version"]["datasetVersion"] == told.content_hash
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["input_ids", "labels", "seq_lengths"]
    assert output["outputFacets"]["outputStatistics"]["size"] == told.bytes
    [above] = event["inputs"]
    assert (above["name"], above["facets"]["version"]["datasetVersion"]) == ("sft_packed", said["sft_packed"].content_hash)


def test_a_store_is_one_run_however_often_it_is_told(said: dict[str, Description]) -> None:
    reader("openlineage.client")
    from prep_assets.extensions.neighbours.openlineage import event

    first, second, other = (event(said[name], when=WHEN) for name in ("sft_packed", "sft_packed", "preferences"))
    assert first == second
    assert first.run.runId != other.run.runId


def test_the_command_prints_it(built: Workspace, said: dict[str, Description]) -> None:
    reader("openlineage.client")
    done = run(built, "describe", "sft_packed", "--as", "openlineage")
    assert json.loads(done.stdout)["outputs"][0]["facets"]["prepAssets_store"]["hashes"] == said["sft_packed"].hashes
