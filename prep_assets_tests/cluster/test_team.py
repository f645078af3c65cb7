"""What `deploy/` describes, started without containers: eight runs at a time, their history in Postgres, their shards on a Ray cluster, their stores
in an object store."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.extensions.buckets import backend as catalog
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets_tests.cluster.conftest import ROOT, Nodes
from prep_assets_tests.cluster.processes import SECRET, STORES, answers, environment, free_port, postgres, program, started, wait_for
from prep_assets_tests.graph.workspaces import SAMPLES, SHIPPED, domain, jsonl, shipped
from prep_assets_tests.stores.s3 import S3, serving

DEPLOY = ROOT / "deploy"
RUNS = 8


@dataclass
class Team:
    """What is running.

    Attributes:
        client: of the web server.
        folder: with configuration, cache and logs.
        objects: the object store.
    """

    client: Any
    folder: Path
    objects: S3

    def finished(self, runs: list[str]) -> list[str]:
        """How each run ended."""
        wait_for(lambda: all(str(self.client.get_run_status(run).value) in ENDED for run in runs), "a run", seconds=900)
        return [str(self.client.get_run_status(run).value) for run in runs]

    def logs(self) -> str:
        return "".join(path.read_text("utf-8", "replace") for path in self.folder.glob("*.log"))


ENDED = ("SUCCESS", "FAILURE", "CANCELED")


@pytest.fixture(scope="module")
def team(nodes: Nodes) -> Iterator[Team]:
    from dagster_graphql import DagsterGraphQLClient

    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="prep-assets-team-"))  # short, for sockets, and open to another user
    folder.chmod(0o755)
    configure(folder, nodes.address)
    code, web = free_port(), free_port()
    with ExitStack() as stack:
        objects = stack.enter_context(serving())
        environ = environment(folder, objects.url)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in environ.items():
            if name.startswith(("AWS_", "PREP_ASSETS_CACHE")):
                patch.setenv(name, value)
        # nodes have the environment in which they are started
        nodes.be(0)
        nodes.be(2)
        stack.callback(nodes.be, 0)
        port = stack.enter_context(postgres(folder / "postgres"))
        (folder / "home").mkdir()
        said = (
            (DEPLOY / "dagster.yaml")
            .read_text("utf-8")
            .replace("port: 5432", f"port: {port}")
            .replace("interval_seconds: 30", "interval_seconds: 5")
        )
        (folder / "home" / "dagster.yaml").write_text(said, "utf-8")
        workspace = folder / "workspace.yaml"
        workspace.write_text(
            (DEPLOY / "workspace.yaml").read_text("utf-8").replace("host: code", "host: 127.0.0.1").replace("4000", str(code)), "utf-8"
        )
        server = [program("dagster"), "api", "grpc", "--host", "127.0.0.1", "--port", str(code), "--module-name", "prep_assets.definitions"]
        stack.enter_context(started(server, folder / "code.log", environ))
        wait_for(lambda: answers(code), "the code location")
        stack.enter_context(started([program("dagster-daemon"), "run", "--workspace", str(workspace)], folder / "daemon.log", environ))
        site = [program("dagster-webserver"), "--host", "127.0.0.1", "--port", str(web), "--workspace", str(workspace)]
        stack.enter_context(started(site, folder / "webserver.log", environ))
        wait_for(lambda: answers(web), "the web server")
        yield Team(DagsterGraphQLClient("127.0.0.1", port_number=web), folder, objects)
    shutil.rmtree(folder, ignore_errors=True)


def configure(folder: Path, address: str) -> None:
    """The demo's families, and a domain that is large enough for shards."""
    line = "A page of the web with number %d, which says this and that about it. " * 40
    large = jsonl(folder / "web.jsonl", ({"text": line % tuple(range(n, n + 40))} for n in range(13_000)))
    families = shipped("bin")
    families["pretrain"]["domains"]["web"] = domain(large, "text")
    (folder / "configs").mkdir()
    for family, options in families.items():
        said = {**options, "cluster": {"kind": "ray", "address": address}, "workers": 2}
        (folder / "configs" / f"{family}.yaml").write_text(yaml.safe_dump(said, sort_keys=False), "utf-8")
    assert SAMPLES.is_dir()


def test_eight_runs_at_a_time_end_without_a_lock_error(team: Team) -> None:
    runs = []
    for family in (*SHIPPED, *SHIPPED):
        names = list(yaml.safe_load((team.folder / "configs" / f"{family}.yaml").read_text("utf-8"))["domains"])
        tags = {"dagster/asset_partition_range_start": names[0], "dagster/asset_partition_range_end": names[-1]}
        runs.append(team.client.submit_job_execution(f"rebuild_{family}", tags=tags))
    assert len(runs) == RUNS
    assert team.finished(runs) == ["SUCCESS"] * RUNS
    said = team.logs()
    for word in ("OperationalError", "DeadlockDetected", "database is locked", "StoreError"):
        assert word not in said
    catalogs = [entry.key.removesuffix("/catalog.json") for entry in Bucket(STORES).entries("") if entry.key.endswith("/catalog.json")]
    assert len(catalogs) >= 20
    assert all(catalog.read(Bucket(STORES).below(store)).pointers.current for store in catalogs)
    assert not list((team.folder / "cache").rglob(".shards-*"))


def test_shards_were_done_on_the_cluster_and_told_of(team: Team) -> None:
    query = """{ runsOrError(filter: {}) { ... on Runs { results { runId } } } }"""
    runs = [each["runId"] for each in team.client._execute(query)["runsOrError"]["results"]]
    told = []
    for run in runs:
        query = f'{{ logsForRun(runId: "{run}") {{ ... on EventConnection {{ events {{ ... on LogMessageEvent {{ message }} }} }} }} }}'
        told += [event["message"] for event in team.client._execute(query)["logsForRun"]["events"] if "message" in event]
    assert any("tokenize web" in message and "shards" in message for message in told)


def test_a_second_night_builds_nothing(team: Team) -> None:
    team.objects.calm()
    names = list(yaml.safe_load((team.folder / "configs" / "pretrain.yaml").read_text("utf-8"))["domains"])
    tags = {"dagster/asset_partition_range_start": names[0], "dagster/asset_partition_range_end": names[-1]}
    [ended] = team.finished([team.client.submit_job_execution("rebuild_pretrain", tags=tags)])
    assert ended == "SUCCESS"
    assert team.objects.asked
    assert {method for method, _ in team.objects.asked} == {"GET"}


def test_the_secret_of_the_object_store_is_nowhere(team: Team) -> None:
    written = [path.read_bytes() for path in team.folder.rglob("*") if path.is_file() and os.access(path, os.R_OK)]
    written += [b"".join(Bucket(STORES).read(entry.key)) for entry in Bucket(STORES).entries("")]
    assert len(written) > 200
    assert not [each for each in written if SECRET.encode() in each]
