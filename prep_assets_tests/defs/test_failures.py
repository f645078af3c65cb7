"""Whoever is named in the environment is told of runs that fail; sources that do not answer are asked again."""

from __future__ import annotations

import json
import smtplib
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.defs import failures as telling
from prep_assets.defs.assets import family_definitions
from prep_assets.defs.io_manager import StoreIOManager
from prep_assets.defs.site import Site, WorkspaceResource
from prep_assets.errors import ConfigError, SourceError, SourceUnavailable
from prep_assets_tests.records.servers import serve


@dg.op
def doomed() -> None:
    try:
        raise ValueError("the disk is full")
    except ValueError as error:
        raise dg.Failure("no store was written") from error


@dg.job
def nightly() -> None:
    doomed()


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> dg.RunFailureSensorContext:
    monkeypatch.delenv(telling.TELL, raising=False)
    instance = dg.DagsterInstance.ephemeral()
    result = nightly.execute_in_process(instance=instance, raise_on_error=False)
    event = next(each for each in result.all_events if each.event_type_value == "PIPELINE_FAILURE")
    context = dg.build_run_status_sensor_context("tell_of_failures", event, instance, result.dagster_run)
    return context.for_run_failure()


def test_nobody_is_told_where_nobody_is_named(failed: dg.RunFailureSensorContext) -> None:
    said: Any = telling.failures(Site())(failed)
    assert said.skip_message == "PREP_ASSETS_TELL names nobody"


def test_a_webhook_is_told_the_last_cause_and_where_to_look(failed: dg.RunFailureSensorContext, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[dict[str, str]] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    for address in serve(Webhook):
        monkeypatch.setenv(telling.TELL, f"{address}/hook, ")
        monkeypatch.setenv(telling.UI, "http://dagster:3000/")
        telling.failures(Site())(failed)
    [message] = got
    assert "of nightly failed" in message["text"] and "doomed: " in message["text"] and "the disk is full" in message["text"]
    assert f"http://dagster:3000/runs/{failed.dagster_run.run_id}" in message["text"]


@pytest.mark.parametrize(("scheme", "starts"), [("smtp", True), ("smtps", False)])
def test_an_e_mail(scheme: str, starts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, server = Mock(), Mock()
    kind.return_value.__enter__ = Mock(return_value=server)
    kind.return_value.__exit__ = Mock(return_value=False)
    monkeypatch.setattr(smtplib, "SMTP" if scheme == "smtp" else "SMTP_SSL", kind)
    monkeypatch.setenv(telling.SMTP, f"{scheme}://robot%40host:se%3Acret@mail.host:587")
    telling.tell("mailto:team@host", "Subject", "Text")
    kind.assert_called_once_with("mail.host", 587, timeout=telling.SECONDS)
    server.login.assert_called_once_with("robot@host", "se:cret")
    assert server.starttls.called == starts
    message: EmailMessage = server.send_message.call_args.args[0]
    assert (message["To"], message["From"], message["Subject"], message.get_content()) == ("team@host", "robot@host", "Subject", "Text\n")


@pytest.mark.parametrize(
    ("address", "server", "says"),
    [
        ("slack:team", "", "neither https:// nor mailto:"),
        ("mailto:a@b", "", "PREP_ASSETS_SMTP must be"),
        ("mailto:a@b", "http://x", "must be"),
    ],
)
def test_an_address_that_means_nothing(address: str, server: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(telling.SMTP, server)
    with pytest.raises(ConfigError, match=says):
        telling.tell(address, "Subject", "Text")


@pytest.mark.parametrize(("error", "attempts"), [(SourceUnavailable, 3), (SourceError, 1)])
def test_only_a_source_that_does_not_answer_is_asked_again(
    error: type[SourceError], attempts: int, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prep_assets.defs.materialize.SECONDS_TO_WAIT", 0)
    look = Mock(side_effect=error("the server is busy"))
    monkeypatch.setattr(Workspace, "files", look)
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    resources = {site.resource: site.workspace, site.io_manager_key: site.stores}
    result = dg.materialize(
        family_definitions(site, "sft"), selection=["sft_raw"], partition_key="gsm8k", resources=resources, raise_on_error=False
    )
    steps = [each for each in result.all_events if each.event_type_value in ("STEP_START", "STEP_RESTARTED")]
    assert not result.success and len(steps) == attempts


def test_assets_are_fresh_for_as_long_as_the_configuration_says(workspace: Workspace) -> None:
    path = workspace.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8") + "refresh: {fresh_for: 36}\n", "utf-8")
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    policies = [spec.freshness_policy for asset in family_definitions(site, "sft")[:-1] for spec in asset.specs]
    assert policies and all(policy and policy.fail_window.to_timedelta().total_seconds() == 36 * 3600 for policy in policies)
    assert all(spec.freshness_policy is None for asset in family_definitions(site, "rl") for spec in asset.specs)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The shipped configuration, in a folder of its own."""
    import shutil

    from prep_assets_tests.conftest import ROOT

    shutil.copytree(ROOT / "configs", tmp_path / "configs", ignore=shutil.ignore_patterns("recipes"))
    return Workspace(tmp_path / "configs", tmp_path / "stores")
