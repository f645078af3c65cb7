"""Builders that are killed, and builders that meet: separate processes, ended with SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import crashstates, fulldisk, fuzz, powercut, shim

from prep_assets.stores import published, version_folders
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import Published, of_key
from prep_assets_tests.conftest import ROOT as HARNESSES_ROOT
from prep_assets_tests.effort import FSYNC

OLD, NEW = "a" * 64, "b" * 64
ROOT = Path(__file__).resolve().parents[2]
Publish = Callable[..., Published]

BUILDER = """
import os, signal, sys, time
from pathlib import Path
from prep_assets.stores import version_folders as pointers
from prep_assets.stores.published import Draft, Place

root, key, moment = sys.argv[1:]
left = int(moment) if moment.isdigit() else None

def dies_at(at):
    if at == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def write(payload, quarantine):
    quarantine.write_bytes(b"{}\\n")
    with (payload / "x").open("wb") as file:
        file.write(b"new" * 100_000)
        file.flush()
        dies_at("write")
        if moment == "wait":
            print("writing", flush=True)
            sys.stdin.readline()
        file.write(b"end")
    return Draft({"read": 1}, {}, ())

def fsync(handle, real=os.fsync):
    global left
    if left is not None:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    real(handle)

os.fsync = fsync
point = pointers.point
pointers.point = lambda folder, name, version: (dies_at(f"point {name}"), point(folder, name, version))
place = Place(Path(root), "sft_tokens", "gsm8k")
place.accept(place.propose(key, write, config_key=key, recipe={}), {})
"""
WRITTEN = b"new" * 100_000 + b"end"


def builder(place: Place, key: str, moment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(place.root), key, moment]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=30)
    return process.returncode


def leftovers(place: Place) -> list[str]:
    return [path.name for path in (place.directory / "versions").iterdir() if path.name.startswith(".") and path.name != ".lock"]


@pytest.mark.parametrize(
    "moment", ["write", "2", "point current", *(pytest.param(each, marks=pytest.mark.soak) for each in ("0", "point candidate"))]
)
def test_a_killed_build_leaves_the_old_store_and_the_next_one_cleans_up(place: Place, publish: Publish, moment: str) -> None:
    """Killed while it writes, syncs, or just before `candidate` or `current` moves."""
    old = publish(OLD, {"x": b"old"})
    assert finish(builder(place, NEW, moment)) == -signal.SIGKILL
    current = place.current()
    assert current == Published(old.directory.resolve(), old.manifest)
    current.verify()
    versions = sorted(path.name for path in (place.directory / "versions").iterdir() if path.is_dir() and not path.name.startswith("."))
    assert [name[:20] for name in versions] == [OLD[:20], *([NEW[:20]] if moment.startswith("point") else [])]
    assert bool(leftovers(place)) != moment.startswith("point")
    assert (place.candidate() is not None) == (moment == "point current")
    assert finish(builder(place, NEW, "never")) == 0
    assert leftovers(place) == []
    new = place.current()
    assert new is not None and place.candidate() is None
    new.verify()
    assert (new.directory / "x").read_bytes() == WRITTEN
    assert new.quarantine is not None


def test_a_build_killed_from_outside_leaves_no_readable_store(place: Place, publish: Publish) -> None:
    process = builder(place, NEW, "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.kill()
    assert finish(process) == -signal.SIGKILL
    assert place.current() is None
    assert leftovers(place) != []
    assert [note for note in publish(OLD).notes if "removed what a killed build left: .writing-" in note]
    assert leftovers(place) == []
    assert not of_key(place.backend.names(), NEW)


def test_many_builders_of_two_keys_end_with_two_sound_stores(place: Place) -> None:
    """The others wait for the first, and find its store."""
    first = builder(place, NEW, "wait")
    assert first.stdout is not None
    assert first.stdout.readline() == "writing\n"
    others = [builder(place, key, "never") for key in (NEW, OLD, NEW)]
    with pytest.raises(subprocess.TimeoutExpired):
        others[0].wait(0.5)
    assert place.current() is None
    assert [finish(process) for process in (first, *others)] == [0] * 4
    current = place.current()
    assert current is not None
    current.verify()
    assert current.manifest.build_key in (OLD, NEW)
    for key in (OLD, NEW):
        [version] = of_key(place.backend.names(), key)
        assert (place.backend.versions / version / "x").read_bytes() == WRITTEN
    assert leftovers(place) == []


# -- Short versions of the harnesses, and that each sees what it is there for. The whole ones: docs/reliability.md ------------------------


@pytest.mark.parametrize(
    ("name", "points", "of"),
    [
        ("killpoints", "8", []),
        ("faults", "8", []),
        pytest.param("killpoints", "2", ["--families", "--only", "in shards: pretrain_tokens"], marks=pytest.mark.soak),
    ],
)
@pytest.mark.skipif(bool(shim.missing()), reason=shim.missing() or "never")
def test_some_calls_are_killed_or_fail(name: str, points: str, of: list[str]) -> None:
    command = [sys.executable, "-m", "harness.strikes", name, "--points", points, "--seconds", "600", *of]
    done = subprocess.run(
        command, cwd=HARNESSES_ROOT, env={**os.environ, "PYTHONPATH": "tools"}, capture_output=True, text=True, check=False
    )
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


@pytest.mark.soak
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
    command = [sys.executable, "-m", "harness.fulldisk", "--sizes", "4", "--workloads", "2"]
    done = subprocess.run(
        command, cwd=HARNESSES_ROOT, env={**os.environ, "PYTHONPATH": "tools"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "full disks: 8 in 4 sizes at most, violations: 0" in done.stdout
