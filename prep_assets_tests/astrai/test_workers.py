"""`--workers` of one-shot preprocessing changes no byte, and `--log-interval` says how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.astrai.config import parse_pipeline
from prep_assets.astrai.preprocess import load_tokenizer, preprocess
from prep_assets.astrai.run import Counts
from prep_assets.records import cuts
from prep_assets_tests.assets.workspaces import TOKENIZER
from prep_assets_tests.astrai.conftest import chat, write_rows
from prep_assets_tests.astrai.pipelines import CHAT, changed
from prep_assets_tests.astrai.test_run import contents

PIPELINE = changed(CHAT, output={"domain_key": "source", "max_tokens_per_shard": 400})
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def rows(count: int) -> list[Any]:
    """Chats of three domains; duplicates far apart, rows that no schema takes, and lines that are no JSON."""
    found: list[Any] = []
    for number in range(count):
        text = " ".join(LETTERS[number // 26**place % 26] for place in range(3))
        found.append({**chat(("user", text), ("assistant", f"it is {text}")), "source": "xyz"[number % 3]})
        if number % 17 == 3:
            found.append(found[number // 2])
        if number % 23 == 5:
            found.append("{not json" if number % 2 else {"messages": [], "source": "x"})
    return found


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two files of several shards each."""
    monkeypatch.setattr(cuts, "SHARD_BYTES", 6_000)
    listed = rows(300)
    return [str(write_rows(tmp_path / name, part)) for name, part in (("one.jsonl", listed[:200]), ("two.jsonl", listed[200:]))]


def test_bytes_do_not_depend_on_workers(files: list[str], tmp_path: Path) -> None:
    found, said = [], []
    for workers in (1, 2):
        lines: list[tuple[int, int, int]] = []

        def log(counts: Counts, lines: list[tuple[int, int, int]] = lines) -> None:
            lines.append((counts.read, counts.kept, counts.tokens))

        out = tmp_path / f"{workers}"
        pipeline = parse_pipeline(PIPELINE, "pipeline.json")
        done = preprocess(
            files, out, pipeline, load_tokenizer(Path(TOKENIZER)), masking="spans", workers=workers, log_interval=100, log=log
        )
        assert done.counts.refused["deduplicate/duplicate"] > 10 and done.counts.refused["records/invalid_json"] > 3
        found.append(contents(out))
        said.append(lines)
    assert found[0] == found[1] and len(found[0]) > 12
    assert said[0] == said[1] and [read for read, _, _ in said[0]] == [100, 200, 300]


def test_max_items_ends_workers_too(files: list[str], tmp_path: Path) -> None:
    limited = parse_pipeline(changed(PIPELINE, preprocessing={"max_items": 60}), "pipeline.json")
    outcomes = [preprocess(files, tmp_path / f"{n}", limited, load_tokenizer(Path(TOKENIZER)), workers=n) for n in (1, 2)]
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert [each.counts.kept for each in outcomes] == [60, 60]
