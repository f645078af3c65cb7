"""Folders that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import StoreError
from prep_assets.stores.verification import whole_folder

BUSY = StoreError("busy")


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def nothing() -> None: ...


def test_folders_above_are_made_and_nothing_else_stays(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a" / "b", nothing, busy=BUSY) as work:
        (work / "x").write_text("")
        assert names(tmp_path / "a") == [".b.writing", ".b.writing/x"]
    assert names(tmp_path) == ["a", "a/b", "a/b/x"]


def test_two_never_write_at_once_and_the_first_is_whole(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a", nothing, busy=BUSY) as work:
        (work / "x").write_text("")
        with pytest.raises(StoreError, match="busy"), whole_folder(tmp_path / "a", nothing, busy=BUSY):
            raise AssertionError("both write")
    assert names(tmp_path) == ["a", "a/x"]


def test_what_is_there_gives_way_only_where_it_may_and_only_to_a_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_text("")
    with pytest.raises(StoreError, match="not empty"), whole_folder(tmp_path / "a", nothing, busy=BUSY) as work:
        (work / "x").write_text("")
    with pytest.raises(KeyError), whole_folder(tmp_path / "a", nothing, busy=BUSY, replace=True) as work:
        (work / "x").write_text("")
        raise KeyError
    assert names(tmp_path) == ["a", "a/old"]
    with whole_folder(tmp_path / "a", nothing, busy=BUSY, replace=True) as work:
        (work / "x").write_text("")
    assert names(tmp_path) == ["a", "a/x"]


def test_the_check_is_asked_before_and_after(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    with whole_folder(tmp_path / "a", lambda: seen.append(names(tmp_path)), busy=BUSY) as work:
        (work / "x").write_text("")
    assert seen == [[".a.writing"], [".a.writing", ".a.writing/x"]]


def test_a_place_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write to .*file"), whole_folder(tmp_path / "file" / "a", nothing, busy=BUSY):
        raise AssertionError("a folder below a file")
