"""Dagster with stores and sources in a bucket: assets, checks, pictures, sensors, nights, pages, exports, prune; and no secret anywhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

import prep_assets as pa
from prep_assets.cli.main import app
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.extensions.dagster import materialize
from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets_tests.extensions.dagster.runs import failures, materializations, plain
from prep_assets_tests.graph.workspaces import domain, minimal, workspace_in
from prep_assets_tests.stores.s3 import S3

SECRETS = ("a-very-secret-key", "AKIAEXAMPLE", "hunter2hunter2")
"""In the environment, and in an address of a source."""


@dataclass
class Team:
    """A site whose stores and sources are in a bucket.

    Attributes:
        url: of all that is its own.
        folder: on this machine: configuration, history, cache.
        said: what was asked of the command line, and what it answered.
    """

    url: str
    folder: Path
    instance: dg.DagsterInstance
    defs: dg.Definitions
    s3: S3
    said: list[str]

    def source(self, name: str, *texts: str) -> None:
        """Put a source file there."""
        Bucket(f"{self.url}/sources").put(name, b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts))

    def night(self) -> dg.ExecuteInProcessResult:
        when = datetime(2026, 3, 1, 3, tzinfo=UTC)
        repository = self.defs.get_repository_def()
        with dg.build_schedule_context(self.instance, scheduled_execution_time=when, repository_def=repository) as context:
            [request] = self.defs.resolve_schedule_def("nightly_pretrain").evaluate_tick(context).run_requests or []
        return self.run("rebuild_pretrain", {**request.tags, "dagster/schedule_name": "nightly_pretrain"})

    def run(self, job: str, tags: dict[str, str], partition: str | None = None) -> dg.ExecuteInProcessResult:
        return self.defs.resolve_job_def(job).execute_in_process(
            instance=self.instance, tags=tags, partition_key=partition, raise_on_error=False
        )

    def look(self, cursor: str | None) -> dg.SensorResult:
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, repository_def=self.defs.get_repository_def()) as context:
            found: Any = self.defs.resolve_sensor_def("pretrain_sources").evaluate_tick(context)
        return found

    def command(self, *words: str) -> str:
        done = CliRunner().invoke(app, list(words), env={"COLUMNS": "300"})
        self.said.append(done.output)
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture
def team(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    s3fs = pytest.importorskip("s3fs", reason="s3:// sources need s3fs")
    s3fs.S3FileSystem.clear_instance_cache()
    url = f"s3://bucket/{tmp_path.name}"
    options = minimal(
        "pretrain",
        {"web": domain(f"{url}/sources/", "text")},
        exports={"olmo": {"from": "pretrain_tokens", "to": "olmo"}},
        engine="reference",
    )
    options["pretrain"]["domains"]["web"]["files"] = [f"{url}/sources/"]
    configs = workspace_in(tmp_path, options).configs
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", f"{url}/stores")
    monkeypatch.setattr(materialize, "SECONDS_TO_WAIT", 0)
    (tmp_path / "home").mkdir()
    with dg.instance_for_test(temp_dir=str(tmp_path / "home")) as instance:
        made = definitions(Site(WorkspaceResource(configs=str(configs)), StoreIOManager(store_dir=f"{url}/stores")), only=("pretrain",))
        team = Team(url, tmp_path, instance, made, s3, [])
        team.source("a.jsonl", *(f"Page {number} of the web, which says this and that." for number in range(20)))
        yield team


def reasons(result: dg.ExecuteInProcessResult) -> str:
    """What the steps of a run failed of, with what stands behind it."""
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return "\n".join(error.to_string() + (error.cause.to_string() if error.cause else "") for error in errors if error)


@pytest.mark.soak
def test_a_team_works_over_a_bucket(team: Team, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    # the first night builds everything, and what is seen of it is what is seen of stores on disk
    first = team.night()
    assert first.success, failures(first)
    [tokens] = materializations(team.instance, "pretrain_tokens")
    shown = plain(tokens.metadata)
    assert shown["path"].startswith(f"{team.url}/stores/pretrain_tokens/web/versions/")
    assert {"preview", "preview_row", "lengths", "by_domain", "content_hash"} <= set(shown)
    assert Counter(event.event_type_value for event in first.all_events)["ASSET_CHECK_EVALUATION"] > 5

    # the next writes nothing and records nothing
    team.s3.calm()
    second = team.night()
    kinds = Counter(event.event_type_value for event in second.all_events)
    assert (second.success, kinds["ASSET_MATERIALIZATION"], kinds["ASSET_CHECK_EVALUATION"]) == (True, 0, 0)
    assert not [path for method, path in team.s3.asked if method != "GET" and method != "HEAD"]
    # all steps of the run together read a store once, with a request for each of its three objects
    asked = {path: count for (_, path), count in team.s3.asked.items() if "/stores/" in path}
    assert (len(asked), set(asked.values())) == (9, {1})

    # a file is added, and the sensor asks for a run once it has settled
    cursor = team.look(team.look(None).cursor).cursor
    team.source("b.jsonl", "One more page.")
    waits = team.look(cursor)
    [request] = team.look(waits.cursor).run_requests or []
    assert (waits.run_requests, request.partition_key) == ([], "web")
    assert team.run("refresh_pretrain", {}, request.partition_key).success
    assert plain(materializations(team.instance, "pretrain_raw")[0].metadata)["dagster/row_count"] == 21

    # an adopter's asset gets the store, opened from a copy on this machine
    @dg.asset(io_manager_def=dg.mem_io_manager)
    def counted(pretrain_tokens: dict[str, pa.Table]) -> dict[str, int]:
        return {name: len(store) for name, store in pretrain_tokens.items()}

    merged = dg.Definitions.merge(team.defs, dg.Definitions(assets=[counted]))
    alone = merged.resolve_implicit_global_asset_job_def().execute_in_process(instance=team.instance, asset_selection=[counted.key])
    assert alone.output_for_node("counted") == {"web": 21}

    # people
    assert team.run("rebuild_pretrain", {"dagster/asset_partition_range_start": "web", "dagster/asset_partition_range_end": "web"}).success
    assert f"{team.url}/stores" in team.command("status")
    assert "passed" in team.command("verify", "pretrain_tokens")
    team.command("report", "pretrain_tokens", "--out", str(team.folder / "page.html"))
    assert "0 folders" not in team.command("prune", "--yes")
    assert team.run("rebuild_pretrain", {"dagster/asset_partition_range_start": "web", "dagster/asset_partition_range_end": "web"}).success

    # a bucket that fails, and a source whose address has a password
    path = team.folder / "configs" / "pretrain.yaml"
    said = path.read_text("utf-8")
    path.write_text(said.replace(f"{team.url}/sources/", "http://me:hunter2hunter2@127.0.0.1:1/a.jsonl?sig=hunter2hunter2"), "utf-8")
    unreached = team.night()
    path.write_text(said, "utf-8")
    team.source("c.jsonl", "The last page.")
    team.s3.plan = lambda method, path, headers: "403" if path.endswith("c.jsonl") else ""
    refused = team.night()
    assert not unreached.success and not refused.success
    told = [reasons(unreached), reasons(refused)]
    assert "127.0.0.1:1/a.jsonl" in told[0] and "Forbidden" in told[1]
    team.s3.calm()

    # no secret in what was written, logged, recorded or said
    bucket = Bucket(team.url)
    texts = [b"".join(bucket.read(entry.key)) for entry in bucket.entries("")]
    texts += [each.read_bytes() for each in team.folder.rglob("*") if each.is_file()]
    every = b"\n".join(texts).decode("latin-1") + caplog.text + "".join(capfd.readouterr()) + "".join(team.said)
    every += "".join(told) + failures(unreached) + failures(refused)
    assert len(every) > 100_000
    assert [secret for secret in SECRETS if secret in every] == []
