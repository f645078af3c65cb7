"""Stores have the same bytes whoever writes them: one process, or two or seven, over shards of any size, one of which is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.assets.writing import in_shards
from prep_assets.engine import build
from prep_assets.records import cuts
from prep_assets.stores.manifest import file_hash
from prep_assets.stores.published import Published
from prep_assets_tests.assets.workspaces import SAMPLES, domain, jsonl, minimal, workspace_in

CHATS = [json.loads(line) for line in (SAMPLES / "chats.jsonl").read_text("utf-8").splitlines()]
DOCUMENTS = [{"text": f"Document {n}: {'many words and ' * (n % 40)} an end."} for n in range(400)]


def spoiled(rows: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """Rows with duplicates of some that came long before, and of their neighbours."""
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        found += [row, rows[number // 2], row] if number % every == every - 1 else [row]
    return found


def with_bad_lines(path: Path) -> Path:
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(line for at, line in enumerate(lines) for line in ([line, "no json"] if at % 50 == 7 else [line])) + "\n", "utf-8")
    return path


def chats(folder: Path) -> Mapping[str, Any]:
    rows = spoiled(CHATS * 1 + [{"messages": [*row["messages"], {"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}]} for n, row in enumerate(CHATS * 4)], 9)
    folder.mkdir(parents=True)
    first, second = (jsonl(folder / f"{name}.jsonl", part) for name, part in (("a", rows[:200]), ("b", rows[100:])))
    held_out = jsonl(folder / "test.jsonl", rows[::20])
    with_bad_lines(first)
    one = domain(first, "messages", test_files=[str(held_out)], max_items=270)
    one["files"].append(str(second))
    return minimal("sft", {"chats": one}, test_fraction=0.1, template="chatml")


def documents(folder: Path) -> Mapping[str, Any]:
    folder.mkdir(parents=True)
    path = with_bad_lines(jsonl(folder / "docs.jsonl", spoiled(DOCUMENTS, 7)))
    return minimal("pretrain", {"docs": domain(path, "text", where={"text": {"!=": "x"}})}, test_fraction=0.1)


def identity(published: Published) -> tuple[Any, ...]:
    manifest = published.manifest
    quarantine = published.quarantine
    return manifest.files, manifest.counts, manifest.build_key, file_hash(quarantine) if quarantine else ""


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(cuts, "SHARD_BYTES", 8000)
    monkeypatch.setattr(in_shards, "FEWEST", 2)


@pytest.mark.parametrize(("make", "asset"), [(chats, "sft_tokens"), (documents, "pretrain_tokens")])
def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, small_shards, make, asset):
    configured = workspace_in(tmp_path, make(tmp_path / "data"))
    found = {}
    for count in (1, 2, 7):
        workspace = replace(configured, workers=count, stores=tmp_path / f"stores{count}")
        seen = []
        [built] = build(workspace, asset, tell=lambda event, seen=seen: seen.append(event))
        found[count] = identity(built.published)
        assert (" of " in str([event.what for event in seen if hasattr(event, "what")])) is (count > 1)
        assert not list((tmp_path / f"stores{count}").rglob("*-shards"))
    assert found[1] == found[2] == found[7]
    refused = found[1][1]["refused"]
    assert refused["deduplicate/duplicate"] > 20
    assert refused["records/invalid_json"] > 2
