"""Builders that are killed, and builders that meet: separate processes, ended with SIGKILL."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import Published, of_key

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
place.accept(place.propose(key, write, config_key=key, recipe={}, audit=lambda payload: dies_at("audit")), {})
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


@pytest.mark.parametrize("moment", ["write", "audit", "0", "2", "point candidate", "point current"])
def test_a_killed_build_leaves_the_old_store_and_the_next_one_cleans_up(place: Place, publish: Publish, moment: str) -> None:
    """Killed while it writes, audits, syncs, or just before `candidate` or `current` moves."""
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
