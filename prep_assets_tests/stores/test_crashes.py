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
import sys
from pathlib import Path
from prep_assets.stores.published import Draft, Place

root, key, moment = sys.argv[1:]

def write(payload, quarantine):
    quarantine.write_bytes(b"{}\\n")
    with (payload / "x").open("wb") as file:
        file.write(b"new" * 100_000)
        file.flush()
        if moment == "wait":
            print("writing", flush=True)
            sys.stdin.readline()
        file.write(b"end")
    return Draft({"read": 1}, {}, ())

place = Place(Path(root), "sft_tokens", "gsm8k")
place.accept(place.propose(key, write, config_key=key, recipe={}, audit=lambda payload: None), {})
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
