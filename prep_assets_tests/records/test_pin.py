"""Pins: what they hold, when a file is hashed again, and what a change says."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from prep_assets.disk.blocks import Sums
from prep_assets.errors import SourceError
from prep_assets.records import pin as pin_module
from prep_assets.records.files import SourceFile, find_files
from prep_assets.records.pin import Pin, pin_files, verify_pins


@pytest.fixture
def files(tmp_path: Path) -> tuple[SourceFile, ...]:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n')
    (tmp_path / "b.jsonl").write_bytes(b'{"b": 2}\n')
    return find_files(["*"], tmp_path)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are hashed, in order."""
    names: list[str] = []
    real = pin_module.stored_sums

    def count(file: SourceFile) -> Sums:
        names.append(file.name)
        return real(file)

    monkeypatch.setattr(pin_module, "stored_sums", count)
    return names


def test_a_pin_holds_name_size_and_hash_and_nothing_of_the_machine(files: tuple[SourceFile, ...], tmp_path: Path) -> None:
    first, second = pin_files(files)
    assert first.identity == {"name": "a.jsonl", "size": 9, "sha256": hashlib.sha256(b'{"a": 1}\n').hexdigest()}
    assert second.name == "b.jsonl"
    assert first.url_hint is None
    assert str(tmp_path) not in repr((first, second))


def test_unchanged_files_are_not_hashed_again(files: tuple[SourceFile, ...], hashed: list[str]) -> None:
    pins = pin_files(files)
    verify_pins(files, pins)
    assert pin_files(files, known=pins) == pins
    assert sorted(hashed) == ["a.jsonl", "b.jsonl"]


def test_a_touched_file_is_hashed_again_and_holds(files: tuple[SourceFile, ...], tmp_path: Path, hashed: list[str]) -> None:
    pins = pin_files(files)
    os.utime(tmp_path / "b.jsonl", ns=(0, 5))
    verify_pins(files, pins)
    assert sorted(hashed) == ["a.jsonl", "b.jsonl", "b.jsonl"]


def test_a_changed_file_stops_with_both_sizes_and_hashes(files: tuple[SourceFile, ...], tmp_path: Path) -> None:
    pins = pin_files(files)
    (tmp_path / "b.jsonl").write_bytes(b'{"b": 22}\n')
    with pytest.raises(SourceError) as raised:
        verify_pins(files, pins)
    expected, found = (hashlib.sha256(data).hexdigest() for data in (b'{"b": 2}\n', b'{"b": 22}\n'))
    assert f"b.jsonl: expected 9 bytes with sha256 {expected}, found 10 bytes with sha256 {found}" in str(raised.value)
    assert "a.jsonl" not in str(raised.value)


def test_files_that_came_or_went_stop(files: tuple[SourceFile, ...]) -> None:
    pins = pin_files(files)
    with pytest.raises(SourceError, match=r"b\.jsonl: pinned, but no longer there"):
        verify_pins(files[:1], pins)
    with pytest.raises(SourceError, match=r"b\.jsonl: there, but not pinned"):
        verify_pins(files, pins[:1])


def test_a_file_that_changes_while_it_is_hashed_stops(
    files: tuple[SourceFile, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(file: SourceFile) -> Sums:
        (tmp_path / file.name).write_bytes(b'{"a": 1, "more": 2}\n')
        return Sums(9, "0" * 64, "0" * 16)

    monkeypatch.setattr(pin_module, "stored_sums", slow)
    with pytest.raises(SourceError, match="changes while it is read"):
        pin_files(files)


def test_a_source_without_any_sign_of_a_change_is_hashed_every_time(
    files: tuple[SourceFile, ...], hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pin_module, "fingerprint", lambda file: "")
    verify_pins(files, pin_files(files))
    assert sorted(hashed) == ["a.jsonl", "a.jsonl", "b.jsonl", "b.jsonl"]


def test_many_changes_are_summed_up(files: tuple[SourceFile, ...]) -> None:
    pins = tuple(Pin(f"{i}.jsonl", 1, "", "", "") for i in range(9))
    with pytest.raises(SourceError, match="and 6 more"):
        verify_pins(files, pins)
