"""The sample data and their tokenizer, as tools/make_samples writes them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from make_samples.samples import write_samples
from make_samples.tokenizer import write_tokenizer

from prep_assets_tests.conftest import zstd

# Readers of the shipped sample files that share no code with the package.


CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def plain_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    match path.suffix:
        case ".gz":
            return gzip.decompress(content)
        case ".zst":
            return zstd.decompress(content)
    return content


@pytest.fixture(scope="session")
def shipped() -> Path:
    """The folder `configs` of the repository."""
    return CONFIGS


@pytest.fixture(scope="session")
def content() -> Callable[[Path], bytes]:
    """What is inside a file, decompressed."""
    return plain_bytes


@pytest.fixture(scope="session")
def rows() -> Callable[[str], list[Any]]:
    """All rows of the shipped sample file of that name; the lines of a text file."""

    def read(name: str) -> list[Any]:
        text = plain_bytes(CONFIGS / "samples" / name).decode()
        if name == "alpaca.json":
            return list(json.loads(text))
        lines = text.removesuffix("\n").split("\n")
        return lines if name == "notes.txt" else [json.loads(line) for line in lines]

    return read


# The word problems are right: every calculator note is worked out again by a second evaluator.


Rows = Callable[[str], list[Any]]


# Every sample file has the form of the public data set that it stands for.


@pytest.mark.parametrize(
    ("name", "fields", "least"),
    [
        ("alpaca.json", ["instruction", "input", "output"], 110),
        ("gsm8k.jsonl", ["question", "answer"], 200),
        ("dolly.jsonl", ["instruction", "context", "response", "category"], 55),
        ("chats.jsonl", ["messages"], 55),
        ("docs.jsonl.zst", ["text"], 150),
        ("hh.jsonl.gz", ["chosen", "rejected"], 75),
        ("ultrafeedback.jsonl", ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"], 55),
    ],
)
def test_the_rows_have_the_public_fields_and_differ(rows: Rows, name: str, fields: list[str], least: int) -> None:
    found = rows(name)
    assert len(found) >= least
    assert all(list(row) == fields for row in found)
    assert len({json.dumps(row) for row in found}) == len(found)


# The shipped tokenizer opens with transformers, gives every text back, and its template marks what the assistant says.


TRAINED_WITH = "0.23.3"


def test_training_again_gives_the_shipped_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, CONFIGS / "samples")
    files = ["tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in (CONFIGS / "tokenizer").iterdir()) == files
    assert (tmp_path / files[1]).read_bytes() == (CONFIGS / "tokenizer" / files[1]).read_bytes()
    if tokenizers.__version__ == TRAINED_WITH:
        assert (tmp_path / files[0]).read_bytes() == (CONFIGS / "tokenizer" / files[0]).read_bytes()
    trained = tokenizers.Tokenizer.from_file(str(tmp_path / files[0]))
    assert trained.get_vocab_size() == 4096
    assert trained.decode(trained.encode("Grüße, 你好 🎉\n").ids) == "Grüße, 你好 🎉\n"


# The shipped files are what the generators write, on every machine and in every process.


ROOT = Path(__file__).resolve().parents[2]
NAMES = ["alpaca.json", "chats.jsonl", "docs.jsonl.zst", "dolly.jsonl", "gsm8k.jsonl", "hh.jsonl.gz", "notes.txt", "ultrafeedback.jsonl"]


def test_the_shipped_samples_are_those_that_the_generators_write(tmp_path: Path, shipped: Path, content: Callable[[Path], bytes]) -> None:
    write_samples(tmp_path)
    assert sorted(path.name for path in (shipped / "samples").iterdir() if path.is_file()) == NAMES
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for name in NAMES:
        # Compressed bytes depend on the version of the compression library, so the content is what is compared.
        assert content(tmp_path / name) == content(shipped / "samples" / name), name


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
