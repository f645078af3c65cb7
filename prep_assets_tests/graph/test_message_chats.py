"""Chats whose rows are read into columns are judged as those whose rows are read one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.checks import of_conversations as conversations
from prep_assets.checks.sources_again import DomainSource
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs import second_reading as source_rows
from prep_assets.proofs.second_reading import MessageFields
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, resealed, workspace_in
from prep_assets_tests.proofs.conftest import spoilable
from prep_assets_tests.proofs.corruption import Ragged


def said(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant") if len(texts) % 2 else ("user", "assistant")
    odd = len(texts) % 2
    tags = [*roles[:odd], *(("user", "assistant") * len(texts))][: len(texts)]
    return {"messages": [{"role": role, "content": text, **more} for role, text in zip(tags, texts, strict=True)]}


ODD = [
    said("Hi", "Hello"),
    said("Hi", "Hello"),
    said("a", "", "b"),
    said("a ", " b\n"),
    said("a", "  "),
    said("a", "b", name="x"),
    said("What?", "<think>So.</think>It is."),
    said("<|im_end|>", "A token."),
    {"messages": [{"role": "user", "content": "nobody answers"}]},
    {"messages": [{"role": "robot", "content": "x"}, {"role": "assistant", "content": "y"}]},
    {"messages": []},
    {"messages": [{"role": "assistant", "content": "y"}, {"role": "tool", "content": "x"}]},
    said("a", "b") | {"id": "7"},
    said("a\u00e9\u4e2d", "b\0c", "d", "e"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("messages")
    rows = [row for number in range(40) for row in (said(f"{number}?", f"{number}!"), *(ODD if number in (3, 30) else ()))]
    asked = domain(jsonl(folder / "chats.jsonl", rows), "messages")
    workspace = workspace_in(
        folder,
        minimal(
            "sft",
            {"chats": asked},
            template="chatml",
            test_fraction=0.2,
            output={"storage_format": "bin"},
            preprocessing={"max_seq_len": 200},
        ),
    )
    for asset in ("sft_raw", "sft_template", "sft_tokens"):
        build(workspace, asset, *EVERY[asset].partitions(workspace)[:1])
    return workspace


def tokens(workspace: Workspace) -> Published:
    published = workspace.published("sft_tokens", "chats")
    assert published is not None
    return published


def found(workspace: Workspace, published: Published) -> dict[str, Verdict]:
    return dict(verdicts(workspace, EVERY["sft_tokens"], published, EVERY["sft_tokens"].checks))


def both_ways(workspace: Workspace, published: Published, monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict]:
    """The verdicts, which are the same where no row comes in columns."""
    came: list[int] = []
    monkeypatch.setattr(source_rows, "FEWEST", 4)
    in_columns = conversations.Chats.columns
    monkeypatch.setattr(conversations.Chats, "columns", lambda *given: (came.append(1), in_columns(*given))[1])
    expected = found(workspace, published)
    assert any(came) or "does not follow" in expected["mask_alignment"].summary or "not in the source" in expected["mask_alignment"].summary
    came.clear()
    monkeypatch.setattr(DomainSource, "messages", None)
    assert found(workspace, published) == expected and not any(came)
    return expected


def test_odd_rows_are_judged_alike(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({line.reason for line in refusals(tokens(made))}) > 3
    assert [name for name, verdict in both_ways(made, tokens(made), monkeypatch).items() if not verdict.passed] == []


@pytest.mark.parametrize("record", [0, 5, 20])
@pytest.mark.parametrize("key", ["loss_mask", "tokens", "row"])
def test_spoiled_stores_are_judged_alike(made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, record: int) -> None:
    workspace = spoilable(made, tmp_path, "sft_tokens")
    published = tokens(workspace)
    if key == "row":
        path = published.directory / "train.index" / "row.npy"
        rows = np.load(path)
        rows[[record, record + 1]] = rows[[record + 1, record]]
        np.save(path, rows)
    else:
        stream = Ragged(published, "train")
        own = (stream.mask if key == "loss_mask" else stream.tokens)[stream.span(record)]
        own[-2] = 1 - own[-2] if key == "loss_mask" else own[-2] + 1
        own.flush()
    judged = both_ways(workspace, resealed(published), monkeypatch)
    assert not all(verdict.passed for verdict in judged.values())


def test_which_chats_have_a_kind(made: Workspace) -> None:
    """Those whose roles the schema accepts; all others are read by themselves."""
    chats = conversations.Chats(store_of(made, tokens(made)))
    lines = [json.dumps(each).encode() for each in (ODD[0], ODD[3], ODD[8], ODD[9])]
    rows = MessageFields(("messages",), "role", "content").read(range(4), lines)
    assert rows is not None
    columns = chats.columns("train", rows.taken(np.array([0, 2, 3])))
    assert columns is not None and columns.kinds == [("user", "assistant")] and columns.kind.tolist() == [0, -1, -1]
    assert columns.own(0) == ["Hi", "Hello"] and columns.first.dtype == np.int64
    [some] = list(chats.examples("train"))[:1]
    assert some.numbers[0] == 0 and some.identity(0).startswith("chats.jsonl:") and isinstance(some.source(0), PlainChat)
