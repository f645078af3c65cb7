"""Pins of folders: they say what is in them, to the byte, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from prep_assets.errors import SourceError
from prep_assets.records import folder as folder_module
from prep_assets.records.folder import pin_folder

FILES = {"b.png": b"two", "a.png": b"one", "a/1.png": b"three", "a-b/2.png": b"four", "a/x/3.png": b"", "ü.png": b"five"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "images"


def expected(files: dict[str, bytes]) -> str:
    """Every file's path, size and hash, in the order of the parts of their paths."""
    lines = [[name, len(content), hashlib.sha256(content).hexdigest()] for name, content in files.items()]
    text = "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: str(line[0]).split("/")))
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_a_pin_says(images: Path, tmp_path: Path) -> None:
    pin = pin_folder(images, tmp_path / "known.jsonl")
    assert (pin.files, pin.bytes, pin.sha256) == (len(FILES), sum(map(len, FILES.values())), expected(FILES))
    assert pin_folder(images, tmp_path / "elsewhere" / "known.jsonl") == pin_folder(images, tmp_path / "known.jsonl") == pin


def test_only_what_changed_is_hashed_again(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    real = folder_module._hash
    monkeypatch.setattr(folder_module, "_hash", lambda path, sign: hashed.append(path.name) or real(path, sign))
    known = tmp_path / "known.jsonl"
    before = pin_folder(images, known)
    assert len(hashed) == len(FILES)
    hashed.clear()
    (images / "a" / "0.png").write_bytes(b"new")
    (images / "b.png").write_bytes(b"TWO")
    os.utime(images / "b.png", ns=(1, 1))
    (images / "a.png").unlink()
    files = {**FILES, "a/0.png": b"new", "b.png": b"TWO"}
    del files["a.png"]
    after = pin_folder(images, known)
    assert hashed == ["0.png", "b.png"] and after.sha256 == expected(files) != before.sha256
    hashed.clear()
    assert pin_folder(images, known) == after and hashed == []


def test_a_renamed_or_touched_file(images: Path, tmp_path: Path) -> None:
    before = pin_folder(images, tmp_path / "known")
    os.utime(images / "a.png", ns=(5, 5))
    assert pin_folder(images, tmp_path / "known") == before
    (images / "a.png").rename(images / "c.png")
    assert pin_folder(images, tmp_path / "known").sha256 != before.sha256


@pytest.mark.parametrize("content", ["", "not json\n", '["a.png", 1]\n', '["a.png", "3:5", "wrong"]\n'])
def test_a_memory_that_cannot_be_read_costs_only_time(images: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "known").write_text(content)
    assert pin_folder(images, tmp_path / "known").sha256 == expected(FILES)


def test_links_are_followed_and_do_not_go_round(images: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "6.png").write_bytes(b"six")
    (images / "z").symlink_to(tmp_path / "far")
    (images / "a" / "up").symlink_to(images)
    assert pin_folder(images, tmp_path / "known").sha256 == expected({**FILES, "z/6.png": b"six"})


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder of images at .*nowhere"):
        pin_folder(tmp_path / "nowhere", tmp_path / "known")
