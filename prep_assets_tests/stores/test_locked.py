"""The lock that lets in one process at a time, and what whoever waits for it says."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from prep_assets.stores import files as folders
from prep_assets.stores.files import locked


def test_whoever_waits_for_long_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(folders, "SILENT", 0.0)
    said, entered = threading.Event(), list[str]()
    monkeypatch.setattr(folders._LOG, "warning", lambda *words: (logging.getLogger("test").warning(*words), said.set()))

    def second() -> None:
        with locked(tmp_path / "versions" / ".lock"):
            entered.append("second")

    with locked(tmp_path / "versions" / ".lock"):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert said.wait(30)
        assert entered == []
    waiting.join(30)
    assert entered == ["second"]
    assert caplog.messages == [f"{tmp_path / 'versions'}: another process is at work there; waiting until it ends"]
