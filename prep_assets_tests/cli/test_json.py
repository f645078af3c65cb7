"""`--json`: every command that prints facts prints one JSON value on stdout, and nothing else there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import SAMPLES, TOKENIZER

COMMANDS: dict[str, list[str]] = {
    "build": ["sft_packed", "--dry-run"],
    "status": [],
    "inspect": ["sft_packed"],
    "verify": ["sft_packed"],
    "stats": ["sft_packed"],
    "quarantine": ["sft_tokens"],
    "doctor": ["--dataset", str(SAMPLES / "chats.jsonl"), "--trainer", "trl", "--tokenizer", TOKENIZER, "--template", "chatml"],
    "trace": ["sft_packed", "--row", "0"],
    "where": ["dolly#0"],
    "impact": ["--set", "sft.packing.row_len=128"],
    "compare": ["."],
    "selftest": ["sft_packed"],
    "scrub": ["--bytes", "1MB"],
    "recall": ["engine=auto"],
    "schemas": [],
    "sniff": [str(SAMPLES / "chats.jsonl")],
    "certify": ["chatml", "--tokenizer", TOKENIZER],
}
NEEDS_MORE = {"diff": "two versions", "forget": "a record that may go", "leaks": "an eval.yaml", "step": "the record of a run"}
"""Commands whose own tests read their JSON, as they need another workspace."""


def test_every_command_with_json_is_tried() -> None:
    takes = {name for name, command in get_command(app).commands.items() if any(each.name == "as_json" for each in command.load().params)}  # type: ignore[attr-defined]
    assert takes == {*COMMANDS, *NEEDS_MORE}


@pytest.mark.parametrize("command", COMMANDS)
def test_stdout_is_one_json_value(command: str, built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.stores)
    result = CliRunner().invoke(app, [command, *COMMANDS[command], "--json"])
    assert result.exit_code in (0, 1) and not isinstance(result.exception, ValueError | TypeError), result.output
    found: Any = json.loads(result.stdout)
    assert found


@pytest.mark.parametrize("asset", ["sft_raw", "sft_template", "sft_tokens"])
def test_verdicts_of_every_kind_of_store_are_json(asset: str, built: Workspace) -> None:
    checks = json.loads(CliRunner().invoke(app, ["verify", asset, "--json"]).stdout)["checks"]
    assert checks and all({*check["verdict"]} == {"passed", "summary", "numbers", "worst", "warns", "ruled"} for check in checks)


def test_verdicts_and_rows_are_in_it(built: Workspace) -> None:
    def said(*words: str) -> Any:
        return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    [mask] = [check for check in said("verify", "sft_packed")["checks"] if check["check"] == "mask_alignment"]
    assert (mask["asset"], mask["verdict"]["passed"]) == ("sft_packed", True)
    row = said("inspect", "sft_packed")
    assert len(row["tokens"]) == len(row["weights"]) == len(row["positions"]) > 100
    refused = said("quarantine", "sft_tokens")
    assert refused["counts"][0]["records"] >= 1 and refused["records"][0]["payload"]
    assert all(trial["passed"] for trial in said("selftest", "sft_packed")["sft_packed"])
    assert said("sniff", str(SAMPLES / "chats.jsonl"))["fits"][0]["schema"] == "messages"
    [packed] = [each for each in said("status") if each["asset"] == "sft_packed"]
    assert (packed["state"], packed["counts"]) == ("current", built.published("sft_packed").manifest.counts)
    assert "messages" in [schema["name"] for schema in said("schemas")]
