"""Short versions of the harnesses, and that each sees what it is there for. The whole ones: docs/reliability.md."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from prep_assets.stores import published, version_folders
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.effort import FSYNC
from prep_assets_tests.harness import crashstates, fulldisk, fuzz, powercut, shim


@pytest.mark.parametrize(
    ("name", "points", "of"),
    [("killpoints", "8", []), ("faults", "8", []), ("killpoints", "2", ["--families", "--only", "in shards: pretrain_tokens"])],
)
@pytest.mark.skipif(bool(shim.missing()), reason=shim.missing() or "never")
def test_some_calls_are_killed_or_fail(name: str, points: str, of: list[str]) -> None:
    command = [sys.executable, "-m", "prep_assets_tests.harness.strikes", name, "--points", points, "--seconds", "600", *of]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f": {points}, violations: 0" in done.stdout


def test_some_crash_states_hold(tmp_path: Path) -> None:
    figures = crashstates.harness(tmp_path, states=25, seed=1)
    assert (figures.points, figures.violations) == (25, [])


@pytest.mark.parametrize(("module", "name"), [(version_folders, "sync"), (published, "sync_folders"), (version_folders, "make_folder")])
def test_without_an_fsync_a_crash_loses_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> None:
    monkeypatch.setattr(module, name, lambda path: path.mkdir(parents=True, exist_ok=True))
    scene = crashstates.Scene(tmp_path, "publish")
    upto = len(scene.operations)
    assert [fault for lost, torn in scene.states(scene.operations, upto, random.Random(0), 0) for fault in scene.faults(upto, lost, torn)]


def test_some_damaged_bytes_are_refused(tmp_path: Path) -> None:
    counts = fuzz.harness(tmp_path, inputs=260, seed=3, seconds=600, size=2)
    assert counts.violations == []
    assert len(counts.by_target) > 150


def test_what_a_reader_does_not_refuse_in_words_is_told_with_its_bytes(tmp_path: Path) -> None:
    wrong = fuzz.Target(lambda folder, data: data.index(b"a"), (b"a",), share=1)
    done, faults = fuzz.batch("wrong", wrong, fuzz.plain, 0, 50, tmp_path)
    assert done == 50
    assert [fault.partition(" at ")[0] for fault in faults] == ["wrong: ValueError"]
    bytes.fromhex(faults[0].partition("--hex ")[2].partition("…")[0])
    done, faults = fuzz.batch("dies", fuzz.Target(lambda folder, data: os._exit(9), (b"a",)), fuzz.plain, 0, 50, tmp_path)
    assert (done, len(faults)) == (0, 1)
    assert "ended with 9" in faults[0]


@pytest.mark.skipif(bool(powercut.missing("ext4")), reason=powercut.missing("ext4") or "never")
def test_a_power_cut_keeps_what_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", FSYNC)
    try:
        figures = powercut.harness("ext4", cuts=1, seed=0, seconds=30)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop devices here: {error}")
    assert (figures.points, figures.violations) == (1, [])


@pytest.mark.skipif(bool(fulldisk.missing() or shim.missing()), reason=fulldisk.missing() or shim.missing() or "never")
def test_a_disk_that_is_full_at_some_point_ends_in_words() -> None:
    command = [sys.executable, "-m", "prep_assets_tests.harness.fulldisk", "--sizes", "4", "--workloads", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "full disks: 8 in 4 sizes at most, violations: 0" in done.stdout
