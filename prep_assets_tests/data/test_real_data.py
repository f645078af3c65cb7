"""Every real file loads with as many rows as an independent count finds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prep_assets.data.files import find_files

Read = Callable[..., tuple[list[Any], list[Any]]]

PATTERNS = ["gsm8k/*.jsonl", "hh_rlhf/*.gz", "llama_factory", "moss/*.jsonl"]


def rows_of(path: Path) -> list[Any]:
    """The rows by the standard library alone."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode("utf-8-sig")
    if path.suffix == ".json":
        return list(json.loads(text))
    lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    return [{"text": line} for line in lines] if path.suffix == ".txt" else [json.loads(line) for line in lines]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_and_content(real_data: Path, read: Read, pattern: str) -> None:
    files = find_files([pattern], real_data)
    assert files
    for file in files:
        records, refused = read(file)
        assert not refused, file.name
        assert [r.payload for r in records] == rows_of(Path(file.url)), file.name


def test_the_documented_counts(real_data: Path, read: Read) -> None:
    expected = {"gsm8k/train.jsonl": 7473, "hh_rlhf/harmless_base_1500.jsonl.gz": 1500, "llama_factory/identity.json": 91}
    expected |= {"moss/conversations.jsonl": 840, "llama_factory/v1_sft_demo.jsonl": 500, "llama_factory/mllm_demo.json": 6}
    found = {name: len(read(find_files([name], real_data)[0])[0]) for name in expected}
    assert found == expected
