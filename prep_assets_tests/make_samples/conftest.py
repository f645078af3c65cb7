"""Readers of the shipped sample files that share no code with the package."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prep_assets_tests.conftest import zstd

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def plain_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    match path.suffix:
        case ".gz":
            return gzip.decompress(content)
        case ".zst":
            return zstd.decompress(content)
    return content


def strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() | list():
            for item in value.values() if isinstance(value, dict) else value:
                yield from strings(item)


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


@pytest.fixture(scope="session")
def every_text(rows: Callable[[str], list[Any]]) -> list[str]:
    """Every string value of every shipped sample row."""
    names = sorted(path.name for path in (CONFIGS / "samples").iterdir())
    return [text for name in names for text in strings(rows(name))]
