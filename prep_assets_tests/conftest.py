"""What several rooms' tests share."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

from prep_assets.limits import interrupt_main_thread
from prep_assets.own_process import BETWEEN
from prep_assets.proofs import words
from prep_assets.stores import arrays as columns
from prep_assets.stores.files import Kept
from prep_assets.text import agreement
from prep_assets.text.vocabulary import from_file
from prep_assets_tests.effort import SOAK, examples, few_code_points, in_memory, one_thread, without_fsync

# a shared machine may be slow at any moment; random tests try the same examples each time, but for those of `make soak`, which draws a seed and writes it down
settings.register_profile(
    "prep-assets",
    max_examples=examples(100),
    deadline=None,
    derandomize=not SOAK,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("prep-assets")


ROOT = Path(__file__).resolve().parent.parent
zstd: Any = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets and tokenizers, which a fresh machine does not have."""
    named = os.environ.get("PREP_ASSETS_TEST_DATA")
    if not named:
        pytest.skip("no real data sets: PREP_ASSETS_TEST_DATA names their folder")
    if not Path(named).is_dir():
        pytest.fail(f"PREP_ASSETS_TEST_DATA names {named}, which is not a folder")
    return Path(named)


@pytest.fixture(scope="module")
def short_stretches() -> Iterator[None]:
    """Columns of numbers are worked on 7 elements at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "STRETCH", 7)
        patch.setattr(columns, "DIGIT", 8)
        yield


@pytest.fixture(scope="session", autouse=True)
def proofs_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The process of the tests is ours: foreign code in its main thread is interrupted.

    What is proven of tokenizers that tests spoil is not left on disk for the user's own builds. They are compared with transformers' in the process
    of the tests, which imports it once, as a process for each takes three seconds. The command line is put together once, and not for each command."""
    interrupt_main_thread()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "_compare_in_new_process", lambda name, path: agreement.compare(from_file(name, path), path.parent))
        patch.setattr("typer.testing._get_command", cache(get_command))
        few_code_points(patch)
        for module in (words, agreement):
            patch.setattr(module, "KEPT", Kept(str(tmp_path_factory.mktemp("kept")), 99))
        patch.setattr(import_module("prep_assets.engine.plan"), "_TOOK", Kept(str(tmp_path_factory.mktemp("took")), 99))
        yield


def pytest_configure() -> None:
    """Processes do not wait in loops for each other, small builds not for the disk, and where there is memory they do not use it."""
    one_thread()
    without_fsync()
    in_memory()


LONGEST = (
    *(
        "graph",
        "extensions/dagster",
        "proofs",
        "quality",
        "stores",
        "extensions/exports",
        "masks",
        "text",
        "tokenization",
        "docs",
        "planted",
    ),
    *("explain", "engine", "extensions/preprocess", "extensions/neighbours", "cli", "museum"),
)
"""Rooms that take longest come first, so that no process is left with one of them when the others are done."""


def room(nodeid: str) -> str:
    """The room of a test, by the folder that it is in."""
    return nodeid.partition("::")[0].rpartition("/")[0].removeprefix("prep_assets_tests/")


def import_in_turn(config: pytest.Config) -> None:
    """Import the test modules, each process from another one on: what a process has compiled, with its assertions, the others read."""
    of, at = config.workerinput["workercount"], int(config.workerinput["workerid"].removeprefix("gw"))  # type: ignore[attr-defined]
    files = sorted(ROOT.glob("prep_assets_tests/**/test_*.py"))
    first = len(files) * at // of
    for path in [*files[first:], *files[:first]]:
        with suppress(Exception, pytest.skip.Exception):  # collection reports it
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Searches for garbage are as rare as in a command, and pass over what thousands of collected tests take, which stays to the end."""
    gc.disable()
    try:
        if hasattr(session.config, "workerinput") and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            import_in_turn(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(BETWEEN)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Up to three processes take room by room, in the order of collection, and more of them file by file: what a room's tests share is built once.

    Three keep two processors busy: some tests wait, for a server or a killed process.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return room(nodeid) if self.numnodes <= 3 else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByRoom(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that are marked `soak` run in `make soak` alone; those of long rooms come first."""
    left = [item for item in items if item.get_closest_marker("soak") and not SOAK]
    config.hook.pytest_deselected(items=left)
    kept = [item for item in items if SOAK or not item.get_closest_marker("soak")]
    rank = {name: at for at, name in enumerate(LONGEST)}
    items[:] = sorted(kept, key=lambda item: rank.get(room(item.nodeid), len(rank)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """All skipped tests in one line, by reason."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        listed = "; ".join(f"{count} because {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"{reasons.total()} skipped: {listed}")
