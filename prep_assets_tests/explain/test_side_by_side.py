"""`compare`: two folders of stores side by side."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.extensions.changes.changes import side_by_side
from prep_assets.extensions.explain.report import report
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import SHIPPED, build, domain, workspace_in


def of(folder: Path, **options: Any) -> Workspace:
    domains = {"alpaca": domain("alpaca.json", "alpaca", **options), "dolly": domain("dolly.jsonl", "dolly", ignore=["category"])}
    steps = {
        "steps": {"near_duplicates": {"action": "note"}},
        "bounds": {"sft_tokens.tokens": {"warn": {"change": 0.1}, "block": {"min": 10}}},
    }
    return workspace_in(folder, {"sft": {**copy.deepcopy(SHIPPED["sft"]), "domains": domains, "quality": steps}})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Workspace]:
    folder = tmp_path_factory.mktemp("both")
    before, after = of(folder / "before"), of(folder / "after", max_items=50)
    build(before, "sft_packed")
    for name in ("alpaca", "dolly"):
        build(after, "sft_tokens", name)
    return before, after


def test_what_differs_is_counted(both: tuple[Workspace, Workspace]) -> None:
    pairs = {pair.label: pair for pair in side_by_side(*both)}
    same = {label for label, pair in pairs.items() if pair.same}
    assert same == {"sft_raw[alpaca]", "sft_raw[dolly]", "sft_quality[dolly]", "sft_tokens[dolly]"}
    assert pairs["sft_packed"].after is None
    changed = pairs["sft_tokens[alpaca]"]
    stores = [workspace.built("sft_tokens", "alpaca").manifest.counts for workspace in both]
    assert changed.figures["tokens"] == tuple(counts["tokens"] for counts in stores)
    assert changed.difference is not None
    found = (changed.difference.came, changed.difference.went, changed.difference.changed, changed.difference.same)
    assert found == (0, stores[0]["kept"] - 50, 0, 50)
    assert pairs["sft_tokens[dolly]"].figures == {}


def run(both: tuple[Workspace, Workspace], *words: str) -> Result:
    env = {"PREP_ASSETS_CONFIG_DIR": str(both[1].configs), "PREP_ASSETS_STORE_DIR": str(both[1].stores), "COLUMNS": "200"}
    return CliRunner().invoke(app, ["compare", *words], env=env)


def test_the_command(both: tuple[Workspace, Workspace]) -> None:
    before, configs = str(both[0].stores), str(both[0].configs)
    shown = run(both, before, "--before-configs", configs, "-n", "1")
    assert shown.exit_code == 1
    assert "0 in, 68 out, 0 changed, 50 the same" in shown.output
    assert "3 of 7 stores differ" in shown.output
    assert "alpaca/alpaca.json:" in shown.output  # a record that is gone, with its tokens
    table = run(both, before, "--markdown", "-a", "sft_tokens")
    assert "| `sft_tokens[alpaca]` | records |  |  | 0 in, 68 out, 0 changed, 50 the same |" in table.output
    [alpaca, dolly] = json.loads(run(both, before, "--json", "-a", "sft_tokens").output)
    assert (alpaca["state"], dolly["state"], alpaca["records"]["records"]["out"]) == ("changed", "same", 68)
    same = run(both, str(both[1].stores))
    assert (same.exit_code, same.output) == (0, "0 of 6 stores differ\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: there is no such folder of stores"),
        (["--asset", "sft_token", "."], "no asset 'sft_token'; did you mean 'sft_tokens'"),
    ],
)
def test_mistakes(both: tuple[Workspace, Workspace], words: list[str], message: str) -> None:
    result = run(both, *words)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_a_report_shows_verdicts_and_bounds(both: tuple[Workspace, Workspace]) -> None:
    before = both[0]
    page = report(before, [before.built("sft_tokens", "dolly")])
    examples = before.built("sft_quality", "dolly").manifest.counts["examples"]
    assert f'<tr><td>sft_quality[dolly]</td><th scope="row">dropped</th><td>0 of {examples} examples (0.00%)</td>' in page
    assert "<td>warn: change 0.1; block: min 10</td>" in page
