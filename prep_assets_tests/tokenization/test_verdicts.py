"""What was found about engines is kept on disk, under a key of all that it depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.stores import files as kept
from prep_assets.text import engines, suspects
from prep_assets.text.engines import Finding, RoutedEngine, choose_engine, verdict_key
from prep_assets.text.ids import remembered
from prep_assets_tests.tokenization.loaded import Loaded

FOUND = Finding(True, "equal", ((0x301, 0x303), (0x1FAE8, 0x1FAE9)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    return tmp_path / "engines"


def test_what_was_kept_is_found(folder: Path) -> None:
    asked: list[str] = []

    def found(key: str) -> Finding:
        return remembered(engines.KEPT, key, Finding, lambda: asked.append(key) or FOUND)

    assert found("a") == found("a") == FOUND == found("b")
    assert asked == ["a", "b"] == sorted(path.name for path in folder.iterdir())


def test_the_key_has_all_that_ids_depend_on(shipped: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = shipped.vocabulary.spec
    keys = {verdict_key(changed, "x") for changed in (spec, {**spec, "normalizer": {"type": "NFC"}}, {**spec, "added_tokens": []})}
    keys |= {verdict_key(spec, "y"), verdict_key({**spec, "post_processor": None}, "x")}
    assert len(keys) == 4
    monkeypatch.setattr(kept, "_version", lambda package: "another")
    assert verdict_key(spec, "x") not in keys


def test_a_second_process_compares_nothing(shipped: Loaded, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "TRIED", ((0, 0x400),))
    first = choose_engine(shipped.vocabulary)
    monkeypatch.delattr(engines, "_compared")
    second = choose_engine(shipped.vocabulary)
    texts = ["Hello", "\u4e2d", "1 2"]
    assert second.verdict == first.verdict and second.first.encode(texts).ids.tolist() == first.first.encode(texts).ids.tolist()
    assert isinstance(second.first, RoutedEngine) and second.first.odd(texts).tolist() == [False, True, False]
