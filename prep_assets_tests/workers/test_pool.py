from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from prep_assets.errors import PrepAssetsError, SourceError
from prep_assets.workers.pool import Pool, WorkerLost, worker_count
from prep_assets.workers.shards import Plan, Shard, Work
from prep_assets_tests.workers import works


def plan(tmp_path: Path, count: int = 6) -> Plan:
    return Plan([Shard(number, f"number {number}", 1, number) for number in range(count)], tmp_path / "shards")


def squares(pool: Pool, planned: Plan, work: Work) -> list[int]:
    found = list(pool.run_shards(planned, work))
    assert [each.shard.number for each in found] == list(range(len(planned.shards)))
    for each in found:
        assert each.hash in each.folder.name
        assert (each.folder / "square.txt").read_text() == str(each.counts["square"])
    return [each.counts["square"] for each in found]


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def pool():
    with Pool(2) as made:
        yield made


def test_results_come_in_the_order_of_the_plan_whoever_is_late(pool, tmp_path):
    found = squares(pool, plan(tmp_path), partial(works.square_slowly, seconds=0.3))
    assert found == [0, 1, 4, 9, 16, 25]


def test_workers_stay_from_one_plan_to_the_next(pool, tmp_path):
    one, two = ({each.counts["process"] for each in pool.run_shards(plan(tmp_path / name), works.square)} for name in "ab")
    assert len(one | two) <= 2
    assert os.getpid() not in one


def readied(folder: Path) -> set[int]:
    return {int(path.name.removeprefix("ready-")) for path in folder.glob("ready-*")}


def test_what_all_workers_need_is_opened_once_before_they_are_forked(tmp_path):
    with Pool(2) as pool:
        for _ in range(2):
            planned = replace(plan(tmp_path), ready=partial(works.get_ready, tmp_path))
            assert squares(pool, planned, partial(works.square_slowly, seconds=0.3)) == [0, 1, 4, 9, 16, 25]
        [opened] = readied(tmp_path)
        assert opened not in pool.processes
        before = set(pool.processes)
        (tmp_path / "other").mkdir()
        planned = replace(plan(tmp_path / "b"), ready=partial(works.get_ready, tmp_path / "other"))
        assert squares(pool, planned, works.square) == [0, 1, 4, 9, 16, 25]
        assert before.isdisjoint(pool.processes) and readied(tmp_path / "other") == {opened}
    assert all(map(gone, before))


def test_what_workers_need_is_opened_while_this_process_does_something_else(tmp_path):
    with Pool(2) as pool:
        pool.prepare(partial(works.get_ready, tmp_path))
        pool.prepare(works.fail_to_get_ready)  # it is started once
        while not readied(tmp_path):
            time.sleep(0.01)
        assert squares(pool, plan(tmp_path / "b"), works.square) == [0, 1, 4, 9, 16, 25]
        assert pool._server is not None and readied(tmp_path) == {pool._server.process.pid}
    assert gone(readied(tmp_path).pop())


def test_a_process_with_threads_is_not_forked(tmp_path):
    """Each worker is started afresh then, and one that is killed has its shard done by another all the same."""
    with Pool(2) as pool:
        planned = replace(plan(tmp_path), ready=partial(works.get_ready_with_a_thread, tmp_path))
        assert squares(pool, planned, partial(works.die_once, at=3, marks=tmp_path)) == [0, 1, 4, 9, 16, 25]
        assert pool.effort.lost == 1
        assert set(pool.processes) <= readied(tmp_path)
        assert len(readied(tmp_path)) >= 2  # a third, where the other one had not done the rest before it was ready


def test_what_fails_before_workers_are_forked_is_told_by_a_shard_or_does_not_matter(pool, tmp_path):
    assert squares(pool, replace(plan(tmp_path), ready=works.fail_to_get_ready), works.square) == [0, 1, 4, 9, 16, 25]


def test_the_process_that_workers_are_forked_from_may_be_killed(tmp_path):
    with Pool(2) as pool:
        first = squares(pool, plan(tmp_path / "a"), works.square)
        assert pool._server is not None
        os.kill(pool._server.process.pid, signal.SIGKILL)
        assert squares(pool, plan(tmp_path / "b"), partial(works.die_once, at=3, marks=tmp_path)) == first


@pytest.mark.soak
def test_workers_outlive_the_process_that_they_are_forked_from(tmp_path):
    with Pool(2) as pool:
        squares(pool, plan(tmp_path / "a"), partial(works.square_slowly, seconds=0.1))
        one, other = pool.processes
        assert pool._server is not None
        os.kill(pool._server.process.pid, signal.SIGKILL)
        os.kill(one, signal.SIGKILL)
        squares(pool, plan(tmp_path / "b"), partial(works.square_slowly, seconds=0.1))
        assert other in pool.processes and pool.effort.lost == 1


def test_workers_import_what_their_parent_does_wherever_it_was_started(tmp_path, monkeypatch):
    """A checkout of another version in the folder where a build is started is none of its business."""
    (tmp_path / "prep_assets").mkdir()
    (tmp_path / "prep_assets" / "__init__.py").write_text("raise SystemExit('another version')")
    monkeypatch.chdir(tmp_path)
    with Pool(1) as pool:
        assert squares(pool, plan(tmp_path, 1), works.square) == [0]


def test_a_worker_that_is_killed_has_its_shard_done_by_another(pool, tmp_path):
    lost = pool.effort.lost
    assert squares(pool, plan(tmp_path), partial(works.die_once, at=3, marks=tmp_path)) == [0, 1, 4, 9, 16, 25]
    assert pool.effort.lost == lost + 1


@pytest.mark.parametrize(
    ("work", "how"),
    [
        (partial(works.die, at=2), "was killed (SIGKILL), as the system does when memory runs out"),
        (partial(works.need_memory, at=2), "ran out of memory"),
    ],
)
def test_a_shard_that_ends_two_workers_is_named_with_the_setting_to_change(pool, tmp_path, work, how):
    with pytest.raises(WorkerLost) as raised:
        list(pool.run_shards(plan(tmp_path), work))
    said = str(raised.value)
    assert said.startswith(f"shard 3 of 6 (number 2): its worker {how}, and so did the one before")
    assert "There are 2 workers; set fewer (`workers` in the configuration, or --workers)" in said


def test_the_first_fault_in_the_order_of_the_plan_is_raised(pool, tmp_path):
    with pytest.raises(SourceError, match="number 1 is not there"):
        list(pool.run_shards(plan(tmp_path), partial(works.fail, at=(1, 2, 4))))


def test_what_cannot_travel_is_told_with_its_traceback(pool, tmp_path):
    with pytest.raises(PrepAssetsError, match=r"Odd: number 0(.|\n)*in break_down"):
        list(pool.run_shards(plan(tmp_path), works.break_down))


def test_closing_early_ends_all_workers(tmp_path):
    pool = Pool(2)
    for each in pool.run_shards(plan(tmp_path, 50), works.square):
        first = each.counts["process"]
        break
    pool.close()
    assert gone(first)


SCRIPT = """
import signal
import sys
from functools import partial
from pathlib import Path
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Plan, Shard
from prep_assets_tests.workers import works

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
there = Path(sys.argv[1])
plan = Plan([Shard(number, "", 1, number) for number in range(4)], there / "shards")
with Pool(2) as pool:
    list(pool.run_shards(plan, partial(works.wait_for_ever, marks=there)))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_process_that_started_it(tmp_path, how):
    """Ctrl-C, and a process that could not clean up. The script has no ``if __name__ == "__main__"``, and needs none."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stderr=subprocess.DEVNULL)
    workers = wait_for(lambda: found if len(found := [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]) == 2 else [])
    process.send_signal(how)
    assert process.wait(20) != 0
    assert wait_for(lambda: [all(map(gone, workers))] if all(map(gone, workers)) else [])


def wait_for(look):
    end = time.monotonic() + 30
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_auto_has_no_more_workers_than_processors_or_memory(monkeypatch, tmp_path):
    from prep_assets.workers import pool as count
    from prep_assets.workers import pool as memory

    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "none")
    monkeypatch.setattr(count, "_QUOTA", tmp_path / "quota")
    monkeypatch.setattr(count.os, "sched_getaffinity", lambda process: set(range(8)))
    assert worker_count("auto") == 8
    (tmp_path / "quota").write_text("250000 100000\n")
    assert worker_count("auto") == 2
    (tmp_path / "quota").write_text("max 100000\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9999999 kB\nMemAvailable: 2000000 kB\n")
    assert worker_count("auto") == 3
    (tmp_path / "meminfo").write_text("MemAvailable: 20 kB\n")
    assert worker_count("auto") == 1
