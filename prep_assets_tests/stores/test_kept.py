"""What was found is kept on disk, and a file that cannot be right counts as none."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prep_assets.stores.files import Kept

FOUND = b"0123456789"
KEPT = Kept("some", 3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    return tmp_path / "some"


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: b"", lambda data: data.replace(b"45", b"46"), lambda data: b"\xff" + data]
)
def test_a_damaged_file_is_none(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    assert KEPT.find("a") is None
    KEPT.keep("a", FOUND)
    assert KEPT.find("a") == FOUND
    (folder / "a").write_bytes(damage((folder / "a").read_bytes()))
    assert KEPT.find("a") is None
    KEPT.keep("a", b"")
    assert KEPT.find("a") == b""


def test_one_keys_file_is_not_anothers(folder: Path) -> None:
    KEPT.keep("a", FOUND)
    (folder / "a").rename(folder / "b")
    assert KEPT.find("b") is None


def test_the_folder_stays_small(folder: Path) -> None:
    for number in range(6):
        KEPT.keep(str(number), FOUND)
        os.utime(folder / f"{number}", (number, number))
    assert sorted(path.name for path in folder.iterdir()) == ["3", "4", "5"]


def test_of_many_entries_an_eighth_goes_at_a_time(folder: Path) -> None:
    """Each build looked at every one of 4,096 files, which took longer than a small build."""
    kept = Kept("some", 16)
    for number in range(17):
        kept.keep(f"{number:02}", FOUND)
        os.utime(folder / f"{number:02}", (number, number))
        assert len(list(folder.iterdir())) == (14 if number == 16 else number + 1)
    assert min(path.name for path in folder.iterdir()) == "03"


def test_many_may_write_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Kept("some", 99).keep("a", FOUND), range(50)))
    assert KEPT.find("a") == FOUND and len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for named in (str(tmp_path / "file"), ""):
        monkeypatch.setenv("PREP_ASSETS_CACHE", named)
        KEPT.keep("a", FOUND)
        assert KEPT.find("a") is None


def test_without_a_name_it_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREP_ASSETS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    KEPT.keep("a", FOUND)
    assert (tmp_path / "prep-assets" / "some" / "a").is_file()
