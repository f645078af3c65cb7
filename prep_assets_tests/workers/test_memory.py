"""What numbers and sizes would take more memory than there is stops in one sentence, before the work begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError
from prep_assets.pipeline import sources as contamination
from prep_assets.pipeline.sources import Benchmarks
from prep_assets.stores.table import TOKENS
from prep_assets.stores.writer import TableWriter
from prep_assets.workers import pool as memory
from prep_assets.workers.pool import Pool, free_memory, memory_there
from prep_assets.workers.shards import Plan, Shard

MIB = 1 << 20


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a system says: 16 GiB, of which 8 are free, and no control group."""
    for name, file in (("_MEMORY", "meminfo"), ("_GROUPS", "cgroup"), ("_ROOT", "fs")):
        monkeypatch.setattr(memory, name, tmp_path / file)
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemFree: 9 kB\nMemAvailable: {8 << 20} kB\n")
    return tmp_path


def group(folder: Path, names: tuple[str, str, str], limit: str, used: int, files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {files}\n")


V1, V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"), ("memory.max", "memory.current", "inactive_file")


def test_memory_is_that_of_the_machine_where_nothing_limits_it(system: Path) -> None:
    assert (memory_there() >> 30, free_memory() >> 30) == (16, 8)
    (system / "cgroup").write_text("0::/\n")
    group(system / "fs" / "memory", V1, str((1 << 63) - 4096), 5, 0)
    assert (memory_there() >> 30, free_memory() >> 30) == (16, 8)
    (system / "meminfo").unlink()
    (system / "cgroup").unlink()
    assert memory_there() == free_memory() == memory.UNKNOWN


def test_each_control_group_above_a_process_limits_it(system: Path) -> None:
    (system / "cgroup").write_text("0::/jobs/mine\n")
    group(system / "fs" / "jobs" / "mine", V2, "max", 900 * MIB, 0)
    group(system / "fs" / "jobs", V2, str(4096 * MIB), 3000 * MIB, 1000 * MIB)
    assert (memory_there() // MIB, free_memory() // MIB) == (4096, 2096)
    (system / "cgroup").write_text("3:cpu:/x\n4:memory,hugetlb:/docker/host-path\n0::/\n")
    group(system / "fs" / "memory", V1, str(2048 * MIB), 3000 * MIB, 0)  # a container sees its own group as the root
    assert (memory_there() // MIB, free_memory()) == (2048, 0)


def test_more_workers_than_memory_are_not_started(system: Path) -> None:
    plan = Plan([Shard(number, f"part {number}", 1, number) for number in range(99)], system)
    with Pool(64) as pool, pytest.raises(ConfigError) as found:
        next(pool.run_shards(plan, lambda task, folder: {}))
    assert str(found.value) == (
        "64 workers, 600 MiB each, may take 38,400 MiB of memory, and there are 16,384 MiB here. Set `workers` in the configuration "
        "to 27 or fewer, or to auto; or give --workers 27"
    )
    assert pool.processes == []


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A hundred documents of 1,000 tokens."""
    (tmp_path / "store").mkdir()
    ids = np.arange(100_000, dtype="int32") % 1000
    with TableWriter(tmp_path / "store", "train", TOKENS, {"tokens": "int32"}, max_tokens_per_shard=10**6) as out:
        out.append({"tokens": ids}, np.full(100, 1000), [0] * 100, range(100))
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("format", "options", "said"),
    [
        ("mds", {"size_limit": 1 << 31}, r"a file of size_limit 2,147,483,648 bytes, .* may take 1 MiB .*\. Lower size_limit"),
        ("litdata", {"chunk_bytes": 1 << 31, "block_size": 8}, r"a file of chunk_bytes .* may take 1 MiB .*\. Lower chunk_bytes"),
        ("cerebras", {"max_seq_length": 1000}, r"100 rows, each padded to 1,001 tokens, may take 3 MiB .* max_seq_length"),
        ("packed_parquet", {}, r"a row group of 1,000 rows of Parquet may take 1\d MiB .*\. Lower rows_per_file"),
    ],
)
def test_an_export_whose_numbers_take_more_than_there_is(
    stream: Path, system: Path, format: str, options: dict[str, int], said: str
) -> None:
    (system / "meminfo").write_text("MemTotal: 64 kB\n")
    with pytest.raises(ConfigError, match=f"{said}"):
        export(stream, format, system / "out", **options)
    (system / "meminfo").write_text("MemTotal: 64000 kB\n")
    export(stream, format, system / "out", **options)


@pytest.mark.parametrize("option", ["size_limit", "rows_per_file"])
def test_a_number_of_an_export_has_a_largest_value(stream: Path, tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match="less than or equal to"):
        export(stream, "mds" if option == "size_limit" else "hf_parquet", tmp_path / "out", **{option: 10**13})


def test_passages_of_benchmarks_that_fill_the_memory(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmarks = Benchmarks(13)
    benchmarks._add(" ".join(f"w{n}" for n in range(5000)), "a:1")
    benchmarks._require_memory()
    (system / "meminfo").write_text("MemTotal: 2000 kB\n")
    with pytest.raises(ConfigError, match="the 4,988 passages of benchmarks so far, and as many more, may take 2 MiB"):
        benchmarks._require_memory()
    import tracemalloc

    tracemalloc.start()
    counted = Benchmarks(13)
    counted._add(" ".join(f"w{n}" for n in range(20_000)), "a:1")
    taken = tracemalloc.get_traced_memory()[0] / len(counted.passages[13])
    tracemalloc.stop()
    assert taken < 1.5 * (contamination._PASSAGE + 8 * 13)
