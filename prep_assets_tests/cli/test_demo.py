"""`prep-assets demo`: it builds when it must, shows what there is, and passes failures on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prep_assets.cli.demo import NEXT, gist

ROOT = Path(__file__).resolve().parents[2]

LOG = "2030-01-01 00:00:00 +0000 - dagster - {} - __ASSET_JOB - 5f0c - {}"
BUILDS = """
from prep_assets.pipelines.graph import ASSETS
from prep_assets.pipelines.workspace import Workspace
workspace = Workspace.open()
for name in ("sft_raw", "sft_tokens", "sft_packed"):
    for partition in ASSETS[name].partitions(workspace):
        published = ASSETS[name].build(workspace, partition).publish()
        label = f"{name}[{partition}]" if partition else name
        print(f"2030-01-01 - dagster - INFO - __ASSET_JOB - 5f0c - {name} - {label}: written: {published.directory}", flush=True)
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that takes the place of the checkout, so that the test leaves no log in it."""
    root = tmp_path / "checkout"
    root.mkdir()
    monkeypatch.setattr("prep_assets.config.loading.checkout", lambda: root)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return root


def test_nothing_to_do(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the table is current, nothing may be started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    result = run("demo")
    assert result.exit_code == 0
    assert "nothing to do" in result.stdout
    manifest = built.published("sft_packed").manifest
    for figure in (manifest.counts["tokens"], manifest.counts["trained_tokens"]):
        assert f"{figure:,}" in result.stdout
    assert f"chats {manifest.metrics['share_chats']:.1%}, dolly {manifest.metrics['share_dolly']:.1%}" in result.stdout
    refused = sum(sum(built.published("sft_tokens", each).manifest.counts["refused"].values()) for each in ("dolly", "chats"))
    assert f"{refused} records (tokenize/too_long {refused})" in result.stdout
    assert all(command in result.stdout for command, _ in NEXT)
    assert "sft_packed row 0 of" in result.stdout and "⟦" in result.stdout


def test_builds_what_is_missing(empty: Any, run: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.cli.demo.BUILD", ("-c", BUILDS))
    result = run("demo")
    assert result.exit_code == 0, result.output
    shown = [line.strip() for line in result.stdout.splitlines() if "✓" in line]
    built = ["sft_raw[dolly]", "sft_raw[chats]", "sft_tokens[dolly]", "sft_tokens[chats]", "sft_packed"]
    assert shown == [f"✓ {name} built" for name in built]
    assert len((elsewhere / "data" / "demo.log").read_text("utf-8").splitlines()) == len(built)
    assert empty.published("sft_packed") is not None and "fill rate" in result.stdout


@pytest.mark.cli
def test_the_real_build(empty: Any, run: Any, elsewhere: Path) -> None:
    result = run("demo")
    assert result.exit_code == 0, result.output
    assert "✓ sft_packed built" in result.stdout and "✓ sft_packed mask_alignment" in result.stdout


@pytest.mark.parametrize("code, expected", [("import sys; print('it broke'); sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_failing_build_passes_its_exit_code_on(
    empty: Any, run: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, code: str, expected: int
) -> None:
    monkeypatch.setattr("prep_assets.cli.demo.BUILD", ("-c", code))
    result = run("demo")
    assert result.exit_code == expected
    assert (elsewhere / "data" / "demo.log").read_text("utf-8") in result.stderr
    assert f"exit code {expected}" in result.stderr and "demo.log" in result.stderr


def test_a_build_that_leaves_no_store(empty: Any, run: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.cli.demo.BUILD", ("-c", "pass"))
    result = run("demo")
    assert result.exit_code == 1
    assert "there is no store of sft_packed" in result.stderr


@pytest.mark.parametrize(
    "line, expected",
    [
        (LOG.format("INFO", "sft_raw - sft_raw[a]: written: /data/sft_raw/a"), ("  ✓ sft_raw[a] built", "")),
        (LOG.format("INFO", "sft_raw - sft_raw[a]: nothing to do, the store is there: /data"), ("  ✓ sft_raw[a] is there already", "")),
        (
            LOG.format(
                "DEBUG", "1 - sft_raw_checks - ASSET_CHECK_EVALUATION - Asset check 'accounting' on 'sft_raw' passed. Description: 'x'"
            ),
            ("  ✓ sft_raw accounting", ""),
        ),
        (
            LOG.format("DEBUG", "1 - sft_raw_checks - ASSET_CHECK_EVALUATION - Asset check 'accounting' on 'sft_raw' did not pass."),
            ("  ✗ sft_raw accounting failed", ""),
        ),
        (LOG.format("DEBUG", '1 - sft_raw - STEP_START - Started execution of step "sft_raw".'), ("", "sft_raw")),
        (LOG.format("INFO", "sft_tokens - tokenize a: 40 %"), ("", "tokenize a: 40 %")),
        ("dagster._core.definitions.events.Failure: sft_raw[a]: no file", ("  ✗ sft_raw[a]: no file", "")),
        ("\x1b[34m" + LOG.format("DEBUG", "1 - RUN_START - Started execution") + "\x1b[0m", ("", "")),
        ("", ("", "")),
    ],
)
def test_gist(line: str, expected: tuple[str, str]) -> None:
    assert gist(line + "\n") == expected
