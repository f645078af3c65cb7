"""Bugs planted in code that builds, as real ones are: a build of a small workspace must be stopped by its checks."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from planted.candidates import ROOMS, Edit, modules, plants

from prep_assets_tests.conftest import ROOT

Change = tuple[str, str, str, str]
"""The workspace that is built, a module, a text of it, and what is planted in its place."""
PLANTS: Mapping[str, Change] = {
    "the last trained stretch of a chat in blocks": (
        "sft",
        "text/forms",
        "weights.append(np.tile(located.weights, len(members)))",
        "weights.append(np.tile(located.weights * (np.cumsum(located.weights[::-1] > 0)[::-1] != 1), len(members)))",
    ),
    "the last trained stretch of a form": (
        "sft",
        "text/forms",
        "np.array([weight for _, weight in steps], np.float32)",
        "np.array([weight * (at < max(n for n, (_, one) in enumerate(steps) if one or not n)) for at, (_, weight) in enumerate(steps)], np.float32)",
    ),
    "characters of bytes": (
        "sft",
        "text/spans",
        "np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))",
        "np.append(len(data), np.flatnonzero((data & 0xC0) != 0x80))",
    ),
}


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What became of each plant: all of them are tried by one process, whichever of the processes of this run asks first."""
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else tmp_path_factory.getbasetemp()
    asked, answers = shared / "plants.json", shared / "what_became_of_plants.json"
    with (shared / "plants.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answers.exists():
            asked.write_text(json.dumps(PLANTS), "utf-8")
            command = [sys.executable, "-m", "planted", str(asked), str(answers)]
            ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": "tools"}, cwd=ROOT, capture_output=True, text=True)
            assert answers.exists(), ended.stderr[-3000:]
    found: Mapping[str, Any] = json.loads(answers.read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_stopped(results: Mapping[str, Any], name: str) -> None:
    assert results[name]["verdict"] == "stopped", results[name]


@pytest.mark.parametrize("room", ROOMS)
def test_every_change_of_a_room_is_another_program(room: str) -> None:
    """One in 300."""
    found = [bug for module in modules() if module.partition("/")[0] == room for bug in plants(module)]
    for bug in found[::300]:
        assert bug.before != bug.after
        assert bug.code() != compile(bug.path.read_text("utf-8"), str(bug.path), "exec", dont_inherit=True), bug


def test_an_edit_needs_a_text_that_is_there_once() -> None:
    with pytest.raises(ValueError, match="0 times 'no such text'"):
        Edit.of("text/spans", "no such text", "other")
    edit = Edit.of("text/spans", "data = np.frombuffer(text.encode(), np.uint8)", "data = np.frombuffer(text.encode(), np.int8)")
    assert (edit.room, edit.name, edit.function) == ("text", "prep_assets.text.spans", "byte_table")
