"""`prep-assets stats`: its numbers are those of the files, counted here without it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest


def refused(directory: Path) -> dict[str, int]:
    path = directory.with_name(f"{directory.name}.quarantine.jsonl")
    lines = map(json.loads, path.read_text("utf-8").splitlines()) if path.is_file() else []
    return dict(Counter(f"{line['stage']}/{line['reason']}" for line in lines))


def files(directory: Path) -> dict[str, int]:
    every = (path for path in directory.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(directory).as_posix(): path.stat().st_size for path in every}


def facts(run: Any, *words: str) -> dict[str, Any]:
    result = run("stats", *words, "--json")
    assert result.exit_code == 0
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def tokens_of(directory: Path) -> dict[str, int]:
    """What a domain's SFT store holds, from its raw bytes."""
    mask = np.fromfile(directory / "train" / "shard_0000" / "loss_mask.bin", "uint8")
    kept = len(np.load(directory / "train.index" / "ends.npy"))
    return {
        "tokens": len(mask),
        "trained_tokens": int(np.count_nonzero(mask)),
        "kept": kept,
        "read": kept + sum(refused(directory).values()),
    }


def test_every_partition_and_the_total(built: Any, run: Any) -> None:
    found = facts(run, "sft_tokens")
    directories = {name: (built.stores / "sft_tokens" / name / "current").resolve() for name in ("dolly", "chats")}
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for store in found["stores"]:
        directory = directories.pop(store["partition"])
        expected = tokens_of(directory)
        assert {key: store["counts"][key] for key in expected} == expected
        assert store["refused"] == refused(directory)
        assert {name: entry["bytes"] for name, entry in store["files"].items()} == files(directory)
        assert store["metrics"]["trained_fraction"] == expected["trained_tokens"] / expected["tokens"]
        total.update(expected)
        reasons.update(store["refused"])
    assert directories == {} and found["not_built"] == []
    assert {key: found["total"]["counts"][key] for key in total} == total
    assert found["total"]["refused"] == reasons and sum(reasons.values()) > 0
    assert found["total"]["bytes"] == sum(entry["bytes"] for store in found["stores"] for entry in store["files"].values())


def test_the_packed_table(built: Any, run: Any) -> None:
    (store,) = facts(run, "sft_packed")["stores"]
    directory = (built.stores / "sft_packed" / "current").resolve()
    lengths = np.load(directory / "sft_packed.documents" / "length.npy")
    with h5py.File(directory / "sft_packed.h5") as file:
        rows, trained = file["tokens"].shape, int(np.count_nonzero(file["loss_mask"][:]))
    assert (store["counts"]["rows"], store["counts"]["tokens"], store["counts"]["trained_tokens"]) == (rows[0], lengths.sum(), trained)
    assert store["metrics"]["fill_rate"] == pytest.approx(lengths.sum() / (rows[0] * rows[1]))
    assert sorted(store["recipe"]["tokens"]) == ["chats", "dolly"]


def test_one_partition_in_words(built: Any, run: Any) -> None:
    shown = run("stats", "sft_tokens", "-p", "chats").stdout
    expected = tokens_of((built.stores / "sft_tokens" / "chats" / "current").resolve())
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines() if len(line.split()) == 2}
    assert {key: int(rows[key].replace(",", "")) for key in expected} == expected
    assert "sft_tokens[chats]: made from" in shown and "train/shard_0000/sequence.bin" in shown and "dolly" not in shown


def test_all_partitions_in_words(built: Any, run: Any) -> None:
    lines = run("stats", "sft_tokens").stdout.splitlines()
    heading = next(re.split(r" {2,}", line.strip()) for line in lines if line.split()[:1] == ["partition"])
    assert "trained tokens" in heading
    total = next(line.split() for line in lines if line.split()[:1] == ["total"])
    directories = [(built.stores / "sft_tokens" / name / "current").resolve() for name in ("dolly", "chats")]
    expected = sum(tokens_of(directory)["tokens"] for directory in directories)
    assert int(total[heading.index("tokens")].replace(",", "")) == expected
    assert int(total[heading.index("refused")]) == sum(sum(refused(directory).values()) for directory in directories)


def test_partitions_that_are_not_built(mine: Any, run: Any) -> None:
    (mine.stores / "sft_tokens" / "chats" / "current").unlink()
    found = facts(run, "sft_tokens")
    assert [store["partition"] for store in found["stores"]] == ["dolly"]
    assert found["not_built"] == ["sft_tokens[chats]"]


def test_nothing_built(empty: Any, run: Any) -> None:
    result = run("stats", "sft_tokens", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "prep-assets build sft_tokens --partition dolly" in result.stderr
