"""Many small files are worked on together, and give what they give one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from prep_assets.pipeline import examples
from prep_assets.pipeline.examples import Rows
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, refusals, tree, workspace_in

GOOD = {"messages": [{"role": "user", "content": "question {}"}, {"role": "assistant", "content": "answer {}"}]}
LONG = {"messages": [{"role": "user", "content": "question {} " * 90}, {"role": "assistant", "content": "answer {}"}]}
EMPTY = {"messages": []}


def write(folder: Path) -> list[str]:
    """Files of a few rows, of which stages reject some in turns, and two held-out files. Return the files' patterns."""
    for part, count in (("train", 40), ("test", 2)):
        (folder / part).mkdir()
        for number in range(count):
            rows = [GOOD, *[LONG, EMPTY, GOOD][number % 4 :][: number % 3]]
            lines = [json.dumps(row).replace("{}", f"{part} {number} {at}") for at, row in enumerate(rows)]
            path = jsonl(folder / part / f"{part}-{number:02}.jsonl", [json.loads(line) for line in lines])
            if number % 5 == 0:
                path.write_text("no JSON\n" + path.read_text() + "{}\n")
    return [str(folder / part / "*.jsonl") for part in ("train", "test")]


@pytest.mark.parametrize("asset", ["sft_tokens"])
def test_they_give_what_they_give_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asset: str) -> None:
    train, test = write(tmp_path)
    options = minimal("sft", {"a": {"files": [train], "test_files": [test], "schema": "messages"}}, preprocessing={"max_seq_len": 120})
    groups: list[int] = []
    joined = examples._joined

    def noted(blocks: Iterator[Rows], most_bytes: int) -> Iterator[list[Rows]]:
        for group in joined(blocks, most_bytes):
            groups.append(len(group))
            yield group

    monkeypatch.setattr(examples, "_joined", noted)
    (tmp_path / "together").mkdir()
    together = build(workspace_in(tmp_path / "together", options), asset, "a")
    assert groups == [40, 2]
    monkeypatch.setattr(examples, "_joined", lambda blocks, most_bytes: ([block] for block in blocks))
    (tmp_path / "apart").mkdir()
    apart = build(workspace_in(tmp_path / "apart", options), asset, "a")
    assert tree(together.directory) == tree(apart.directory) and together.manifest == apart.manifest
    assert refusals(together) == refusals(apart)
    stages = {refusal.stage for refusal in refusals(together)}
    assert len(stages) > 2 and len(refusals(together)) > 15


def test_blocks_of_one_file_stay_apart() -> None:
    file, other = object(), object()
    blocks = [
        Rows(each, [], held_out, size)
        for each, held_out, size in ((file, False, 1), (file, False, 1), (other, False, 1), (file, False, 9), (other, True, 1))
    ]  # type: ignore[arg-type]
    assert [[block.size for block in group] for group in examples._joined(iter(blocks), 10)] == [[1], [1, 1], [9], [1]]
