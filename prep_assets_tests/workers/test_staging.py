from __future__ import annotations

import pickle
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from prep_assets.extensions.buckets.backend import ShardDepot
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.workers import shards as hello
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import NotDeterministic, Plan, Shard, VersionsDiffer, Work, carried_out, carry_out, finished, key_of
from prep_assets_tests.workers import works


class Here:
    """Carries out shards in this process, and notes which."""

    size, lost = 1, 0

    def __init__(self):
        self.done = []

    def run_shards(self, plan: Plan, work: Work):
        for shard in plan.shards:
            self.done.append(shard.number)
            yield carry_out(shard, work, plan)


def plan(tmp_path: Path, count: int = 4) -> Plan:
    return Plan([Shard(number, f"number {number}", 1, number) for number in range(count)], tmp_path / "shards")


def test_a_shard_that_is_done_twice_with_the_same_bytes_is_there_once(tmp_path):
    planned = plan(tmp_path)
    one, two = (carry_out(planned.shards[3], works.square, planned) for _ in range(2))
    assert one == two
    assert sorted(path.name for path in one.folder.iterdir()) == ["receipt.json", "square.txt"]
    assert [path.name for path in planned.staging.iterdir()] == [one.folder.parent.name]


def test_equal_work_has_one_name_however_its_arrays_and_paths_were_made():
    paths = Path("/a/b/c"), Path("/a", "b", "c"), Path("/a/b") / "c", Path("/a//b/./c")
    assert len({key_of(partial(works.square, place=path)) for path in paths}) == 1
    table = np.arange(40, dtype=np.int64).reshape(10, 4)
    alike = table, np.asfortranarray(table), np.repeat(table, 2, axis=0)[::2], np.frombuffer(table.tobytes(), np.int64).reshape(10, 4)
    assert len({key_of(partial(works.square, tables=[array, array])) for array in alike}) == 1
    others = table[:9], table.T, table.astype(np.int32), table + 1
    assert len({key_of(partial(works.square, tables=[array, array])) for array in (table, *others)}) == 5


def test_two_executions_that_differ_stop_the_build_and_the_next_one_begins_the_shard_again(tmp_path):
    planned = plan(tmp_path)
    work = partial(works.vary, at=2)
    list(carried_out(Here(), planned, work))
    with pytest.raises(
        NotDeterministic,
        match=r"shard 3 of 4 \(number 2\) is not deterministic: two executions wrote different noise.bin, receipt.json. Compare",
    ):
        carry_out(planned.shards[2], work, planned)
    again = Here()
    list(carried_out(again, planned, work))
    assert again.done == [2]


def test_shards_that_others_send_are_fetched_and_found_again(tmp_path):
    """Nothing but the bucket is left of the machine that joined them first."""
    sent = replace(plan(tmp_path), depot=ShardDepot(Bucket(f"memory://bucket/{tmp_path.name}")))
    first = list(carried_out(Here(), sent, works.square))
    assert [(each.folder / "square.txt").read_text() for each in first] == ["0", "1", "4", "9"]
    shutil.rmtree(sent.staging)
    then = Here()
    assert list(carried_out(then, sent, works.square)) == first
    assert then.done == []


def test_two_executions_that_differ_are_fetched_to_be_compared(tmp_path):
    sent = replace(plan(tmp_path), depot=ShardDepot(Bucket(f"memory://bucket/{tmp_path.name}")))
    work = partial(works.vary, at=2)
    for shard in sent.shards:
        carry_out(shard, work, sent)
    with pytest.raises(
        NotDeterministic, match=r"two executions wrote different noise.bin, receipt.json. Compare (\S+) with (\S+), which"
    ) as said:
        carry_out(sent.shards[2], work, sent)
    assert all((Path(name) / "noise.bin").is_file() for name in re.findall(r"(/\S+?),? w", str(said.value)))


def test_finished_shards_are_not_done_again_and_come_in_order(tmp_path):
    planned = plan(tmp_path, 6)
    first = list(carried_out(Here(), Plan(planned.shards[1:4:2], planned.staging), works.square))
    then = Here()
    found = list(carried_out(then, planned, works.square))
    assert then.done == [0, 2, 4, 5]
    assert [each.counts["square"] for each in found] == [0, 1, 4, 9, 16, 25]
    assert [found[1], found[3]] == first


@pytest.mark.parametrize(
    "harm", [lambda file: file.write_text("7"), lambda file: file.unlink(), lambda file: file.parent.rename(file.parent.with_name("a"))]
)
def test_a_finished_shard_that_is_damaged_is_done_again(tmp_path, harm):
    planned = plan(tmp_path)
    for each in carried_out(Here(), planned, works.square):
        if each.shard.number == 1:
            harm(each.folder / "square.txt")
    assert sorted(finished(planned)) == [0, 2, 3]


class Travelling(Here):
    """As Ray does it: arrays come out of one buffer and can only be read there."""

    def run_shards(self, plan: Plan, work: Work):
        for shard in plan.shards:
            buffers: list[pickle.PickleBuffer] = []
            sent = pickle.dumps(shard, 5, buffer_callback=buffers.append)
            there = pickle.loads(sent, buffers=[bytes(each) for each in buffers])
            assert not there.task.flags.writeable
            yield carry_out(there, work, plan)


def test_shards_whose_tasks_look_other_where_they_were_done_are_found_again(tmp_path):
    tasks = [Shard(number, "", 1, np.array([number])) for number in range(3)]
    planned = replace(plan(tmp_path), shards=tasks)
    first = list(carried_out(Travelling(), planned, works.count_up))
    assert sorted(finished(planned)) == [0, 1, 2]
    assert [each.shard for each in first] == tasks


def test_another_task_of_the_same_number_is_not_taken_for_finished(tmp_path):
    planned = plan(tmp_path)
    list(carried_out(Here(), planned, works.square))
    other = Plan([Shard(0, "", 1, 5)], planned.staging)
    assert [each.counts["square"] for each in carried_out(Here(), other, works.square)] == [25]


def test_a_worker_with_other_software_is_refused_with_both_sides_named(tmp_path, monkeypatch):
    planned = plan(tmp_path)
    theirs = {**planned.hello, "tokenizers": "0.0.1"}
    with (
        Pool(2) as pool,
        pytest.raises(VersionsDiffer, match=rf"tokenizers is {hello.greeting()['tokenizers']} there and 0.0.1 here. Install the same"),
    ):
        list(pool.run_shards(Plan(planned.shards, planned.staging, theirs), works.square))


def test_every_file_of_the_package_that_decides_bytes_is_part_of_the_hello(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("x = 1")
    monkeypatch.setattr(hello.version, "__file__", str(tmp_path / "__init__.py"))
    before = hello.greeting.__wrapped__()
    (tmp_path / "a.py").write_text("x = 2")
    assert hello.greeting.__wrapped__()["prep-assets"] != before["prep-assets"]
