"""`prep-assets demo`: it builds when it must, shows what there is, and says why where it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.cli.demo import NEXT


def test_nothing_to_do(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the table is current, nothing may be written")

    monkeypatch.setattr("prep_assets.stores.published.Place.propose", forbidden)
    result = run("demo")
    assert result.exit_code == 0
    assert "sft_packed is up to date: nothing to do" in result.stdout
    manifest = built.published("sft_packed").manifest
    for figure in (manifest.counts["tokens"], manifest.counts["trained_tokens"]):
        assert f"{figure:,}" in result.stdout
    assert f"chats {manifest.metrics['share_chats']:.1%}, dolly {manifest.metrics['share_dolly']:.1%}" in result.stdout
    refused = sum(sum(built.published("sft_tokens", each).manifest.counts["refused"].values()) for each in ("dolly", "chats"))
    assert f"{refused} records (tokenize/too_long {refused})" in result.stdout
    assert all(command in result.stdout for command, _ in NEXT)
    assert "sft_packed row 0 of" in result.stdout and "⟦" in result.stdout


def test_builds_what_is_missing(empty: Any, run: Any) -> None:
    result = run("demo")
    assert result.exit_code == 0, result.output
    shown = [line.split(":")[0] for line in result.stdout.splitlines() if line.startswith("✓")]
    assert shown == [f"✓ {name}" for name in ("sft_raw[dolly]", "sft_tokens[dolly]", "sft_raw[chats]", "sft_tokens[chats]", "sft_packed")]
    assert empty.published("sft_packed") is not None and "fill rate" in result.stdout


def test_why_it_cannot_be_built_is_the_last_that_is_said(empty: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: Any, **__: Any) -> Any:
        raise PermissionError("the samples are locked")

    monkeypatch.setattr("prep_assets.assets.raw.read_blocks", locked)
    result = run("demo")
    assert result.exit_code == 1
    assert "PermissionError: the samples are locked" in result.stderr
    assert "fill rate" not in result.stdout
