"""The shipped files are what the generators write, on every machine and in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from make_samples.samples import write_samples

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["alpaca.json", "chats.jsonl", "docs.jsonl.zst", "dolly.jsonl", "gsm8k.jsonl", "hh.jsonl.gz", "notes.txt", "ultrafeedback.jsonl"]


def test_the_shipped_samples_are_those_that_the_generators_write(tmp_path: Path, shipped: Path, content: Callable[[Path], bytes]) -> None:
    write_samples(tmp_path)
    assert sorted(path.name for path in (shipped / "samples").iterdir()) == NAMES
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for name in NAMES:
        # Compressed bytes depend on the version of the compression library, so the content is what is compared.
        assert content(tmp_path / name) == content(shipped / "samples" / name), name


def test_the_shipped_samples_are_small(shipped: Path) -> None:
    assert sum(path.stat().st_size for path in (shipped / "samples").iterdir()) < 600_000


def test_the_gzip_header_holds_no_time_and_no_name(shipped: Path) -> None:
    header = (shipped / "samples" / "hh.jsonl.gz").read_bytes()[:10]
    assert header[4:8] == b"\0\0\0\0"  # RFC 1952: MTIME
    assert header[3] == 0  # RFC 1952: FLG, no FNAME


@pytest.mark.cli
def test_two_processes_with_other_hash_seeds_zones_and_threads_write_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for seed, zone, threads in (("1", "UTC", "1"), ("4242", "Asia/Tokyo", "2")):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "RAYON_NUM_THREADS": threads, "PYTHONPATH": str(ROOT / "tools")}
        subprocess.run([sys.executable, "-m", "make_samples", str(folder)], check=True, env=environment, stdout=subprocess.DEVNULL)
        written.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert len(written[0]) == len(NAMES) + 2
    assert written[0] == written[1]


@pytest.mark.cli
def test_importing_the_room_loads_no_heavy_library() -> None:
    script = (
        "import sys, make_samples.__main__\n"
        "print([name for name in ('tokenizers', 'transformers', 'torch', 'pyarrow', 'h5py') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT / "tools")
    assert done.stdout.strip() == "[]"
