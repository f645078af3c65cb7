"""What was found about engines is kept on disk, and a file that cannot be right counts as none."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prep_assets.tokenization import engines, suspects, verdicts
from prep_assets.tokenization.engines import choose_engine
from prep_assets.tokenization.routed import RoutedEngine
from prep_assets.tokenization.verdicts import Finding
from prep_assets_tests.tokenization.loaded import Loaded

FOUND = Finding(True, "equal", ((0x301, 0x303), (0x1FAE8, 0x1FAE9)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    return tmp_path / "engines"


def test_what_was_kept_is_found(folder: Path) -> None:
    assert verdicts.find("a") is None
    verdicts.keep("a", FOUND)
    assert verdicts.find("a") == FOUND
    assert verdicts.find("b") is None
    assert [path.name for path in folder.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: b"", lambda data: data.replace(b"769", b"768"), lambda data: b"\xff{}"]
)
def test_a_damaged_file_is_none(folder: Path, damage: object) -> None:
    verdicts.keep("a", FOUND)
    file = folder / "a.json"
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert verdicts.find("a") is None
    verdicts.keep("a", FOUND)
    assert verdicts.find("a") == FOUND


def test_one_tokenizers_file_is_not_anothers(folder: Path) -> None:
    verdicts.keep("a", FOUND)
    (folder / "a.json").rename(folder / "b.json")
    assert verdicts.find("b") is None


def test_the_folder_stays_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "MOST", 3)
    for number in range(6):
        verdicts.keep(str(number), FOUND)
        os.utime(folder / f"{number}.json", (number, number))
    assert sorted(path.stem for path in folder.iterdir()) == ["3", "4", "5"]


def test_many_may_write_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: verdicts.keep("a", FOUND), range(50)))
    assert verdicts.find("a") == FOUND and len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "file"))
    verdicts.keep("a", FOUND)
    assert verdicts.find("a") is None


def test_the_key_has_all_that_ids_depend_on(shipped: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = shipped.vocabulary.spec
    keys = {verdicts.key_of(changed, "x") for changed in (spec, {**spec, "normalizer": {"type": "NFC"}}, {**spec, "added_tokens": []})}
    keys |= {verdicts.key_of(spec, "y"), verdicts.key_of({**spec, "post_processor": None}, "x")}
    assert len(keys) == 4
    monkeypatch.setattr(verdicts, "_version", lambda package: "another")
    assert verdicts.key_of(spec, "x") not in keys


def test_a_second_process_compares_nothing(shipped: Loaded, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "TRIED", ((0, 0x400),))
    first = choose_engine(shipped.vocabulary)
    monkeypatch.delattr(engines, "_compared")
    second = choose_engine(shipped.vocabulary)
    texts = ["Hello", "\u4e2d", "1 2"]
    assert second.verdict == first.verdict and second.first.encode(texts).ids.tolist() == first.first.encode(texts).ids.tolist()
    assert isinstance(second.first, RoutedEngine) and second.first.odd(texts).tolist() == [False, True, False]
