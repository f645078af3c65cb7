"""`prep-assets build`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prep_assets.assets.graph import run_check
from prep_assets.assets.stage import Check
from prep_assets.assets.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published
from prep_assets_tests.assets.workspaces import SHIPPED_ASSETS, checks_of


def marks(output: str) -> list[str]:
    return [line.split(":")[0] for line in output.splitlines() if line[:1] in "✓✗-"]


def test_a_line_for_each_store_with_its_figures(empty: Any, run: Any) -> None:
    result = run("build", "sft_packed")
    assert result.exit_code == 0, result.output
    names = ("sft_raw[dolly]", "sft_tokens[dolly]", "sft_raw[chats]", "sft_tokens[chats]", "sft_packed")
    assert marks(result.stdout) == [f"✓ {name}" for name in names]
    counts = empty.published("sft_tokens", "dolly").manifest.counts
    assert (
        f"{counts['kept']:,} records, {counts['tokens']:,} tokens, {sum(counts['refused'].values())} refused, {len(checks_of('sft_tokens'))} checks hold"
        in result.stdout
    )


def test_what_is_up_to_date_is_said(built: Any, run: Any) -> None:
    assert run("build", "sft_packed").stdout == "✓ sft_packed is up to date: nothing to do\n"


def test_all(empty: Any, run: Any) -> None:
    assert run("build", "--all").exit_code == 0
    for asset in SHIPPED_ASSETS.values():
        assert all(empty.published(asset.name, each) for each in asset.partitions(empty))
    assert all(line.endswith("nothing to do") for line in run("build", "--all").stdout.splitlines())


def test_one_domain(empty: Any, run: Any) -> None:
    assert run("build", "sft_tokens", "-p", "dolly").exit_code == 0
    assert empty.published("sft_tokens", "dolly") and not empty.published("sft_tokens", "chats")


def test_a_dry_run_prints_the_plan_and_builds_nothing(empty: Any, run: Any) -> None:
    result = run("build", "sft_packed", "--dry-run")
    assert result.exit_code == 0
    assert "sft_raw[dolly]" in result.stdout and "no store yet" in result.stdout
    assert "5 stores would be built" in result.stdout
    assert not list(empty.stores.rglob("manifest.json"))


def test_the_plan_as_json(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 256", "row_len: 128"), "utf-8")
    [step] = json.loads(run("build", "sft_packed", "--dry-run", "--json").stdout)
    assert step == {"asset": "sft_packed", "partition": "", "state": "stale", "why": "changed: packing.row_len", "asked": True}


def test_stores_as_json_with_nothing_else_on_stdout(mine: Any, run: Any) -> None:
    [store] = json.loads(run("build", "sft_packed", "--force", "--json").stdout)
    assert store["path"] == str(mine.place("sft_packed").current().directory)
    assert (store["reused"], store["draft"], store["overrides"]) == (False, False, [])


def test_a_failed_check_ends_with_the_reason_and_exit_code_1(empty: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(check: Check, workspace: Workspace, published: Published) -> Verdict:
        failing = (check.name, published.manifest.partition) == ("mask_alignment", "dolly")
        return Verdict(False, "row 7 trains the prompt") if failing else run_check(check, workspace, published)

    monkeypatch.setattr("prep_assets.engine.checking.run_check", verdict)
    result = run("build", "sft_packed")
    assert result.exit_code == 1
    assert "✗ sft_tokens[dolly] mask_alignment" in result.stdout
    assert "- sft_packed is not built, because sft_tokens[dolly] is not" in result.stdout
    assert result.stderr.rstrip().endswith("mask_alignment: row 7 trains the prompt\n  so not built: sft_packed")
    assert not empty.published("sft_tokens", "dolly") and empty.published("sft_tokens", "chats")


def test_options_of_one_run_make_a_draft_and_say_so(mine: Any, run: Any) -> None:
    current = mine.published("sft_packed")
    result = run("build", "sft_packed", "--set", "packing.row_len=128")
    assert result.exit_code == 0
    assert "a draft with packing.row_len" in result.stdout and "current has not moved" in result.stdout
    assert mine.published("sft_packed") == current
    draft = run("path", "sft_packed", "--draft").stdout.strip()
    assert json.loads((mine.stores / draft / "manifest.json").read_text())["recipe"]["packing"]["row_len"] == 128
    assert run("path", "sft_packed").stderr == ""
    assert "there is a draft" in run("status").stdout


def test_a_draft_is_published_where_that_is_asked_for(mine: Any, run: Any) -> None:
    assert run("build", "sft_packed", "--set", "packing.row_len=128", "--publish").exit_code == 0
    shown = run("status")
    assert shown.exit_code == 0 and "current (overridden: packing.row_len)" in shown.stdout
    path = run("path", "sft_packed")
    assert path.exit_code == 0 and "it has options of one run: packing.row_len" in path.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["build"], "build what?"),
        (["build", "sft_packed", "--all"], "build what?"),
        (["build", "sft_paked"], "did you mean 'sft_packed'?"),
        (["build", "sft_packed", "-p", "dolly"], "sft_packed has no partitions"),
        (["build", "sft_packed", "--set", "row_len"], "needs the form KEY=VALUE"),
        (["build", "sft_packed", "--set", "packing.row_length=5"], "did you mean 'row_len'?"),
        (["build", "sft_packed", "--set", "template=chatml"], "it is an option of sft_template, sft_tokens"),
        (["build", "sft_packed", "rl_tokens", "--set", "engine=reference"], "--set is for assets of one family"),
    ],
)
def test_what_means_nothing_is_refused(built: Any, run: Any, words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 1
    assert said in result.stderr
