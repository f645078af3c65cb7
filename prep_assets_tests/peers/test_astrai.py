"""AstrAI's own data sets on our exports and on what `prep-assets preprocess` writes: tensor for tensor what ours give.

Its version 1.3 reads ``bin`` and JSONL; it has no HDF5 store.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from prep_assets import export
from prep_assets.training import BlendDataset, DatasetFactory
from prep_assets_tests.extensions.exports.conftest import PAD, ROW_LEN, Document, Stream, Table, some
from prep_assets_tests.extensions.exports.learned import lessons, lessons_of
from prep_assets_tests.extensions.preprocess.conftest import Run, chat
from prep_assets_tests.extensions.preprocess.pipelines import SECTIONS_CHAT, TEXT, changed
from prep_assets_tests.graph.workspaces import build, domain, minimal, workspace_in

Item = dict[str, Any]


def same(theirs: Item, ours: Item) -> bool:
    """Keys, types, shapes and values."""
    return theirs.keys() == ours.keys() and all(_same(theirs[key], ours[key]) for key in theirs)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.equal(b)


def both(astrai: Any, kind: str, path: Path, window: int = 0, stride: int | None = None) -> list[tuple[Item, Item]]:
    """All items of AstrAI's data set, and ours."""
    theirs = astrai.DatasetFactory.load(kind, str(path), window, stride)
    ours: Any = DatasetFactory.load(kind, path, window or None, stride)
    assert len(theirs) == len(ours) > 0
    return [(theirs[i], ours[i]) for i in range(len(ours))]


@pytest.mark.parametrize(("window", "stride"), [(7, None), (16, 5), (100, 100)])
def test_text(astrai: Any, text: Stream, tmp_path: Path, window: int, stride: int | None) -> None:
    items = both(astrai, "seq", export(text.folder, "astrai", tmp_path / "out"), window, stride)
    assert all(same(*item) for item in items)
    for i in some(len(items)):
        begin = i * (stride or window)
        assert items[i][0]["input_ids"].tolist() == text.tokens[begin : begin + window]
        assert items[i][0]["target_ids"].tolist() == text.tokens[begin + 1 : begin + window + 1]


def test_text_in_several_shards(astrai: Any, text: Stream, tmp_path: Path) -> None:
    """It reads shards in the order of the file system, so only what they hold together is the same."""
    out = export(text.folder, "astrai", tmp_path / "out", max_tokens_per_shard=300)
    store = astrai.DatasetFactory.load("seq", str(out), 8).store
    assert len(store._data["sequence"]) > 3
    assert store.token_count == len(text.tokens)
    assert sorted(store.fetch(0, store.token_count, "sequence").tolist()) == sorted(text.tokens)


@pytest.mark.parametrize(("window", "stride"), [(7, None), (16, 5)])
def test_chats(astrai: Any, chats: Stream, tmp_path: Path, window: int, stride: int | None) -> None:
    assert all(same(*item) for item in both(astrai, "sft", export(chats.folder, "astrai", tmp_path / "out"), window, stride))


def test_packed_rows_teach_what_the_store_says(astrai: Any, table: Table, tmp_path: Path) -> None:
    """One window a row; its targets and mask are AstrAI's own shift."""
    items = both(astrai, "sft", export(table.folder, "astrai", tmp_path / "out", pad_id=PAD), ROW_LEN)
    assert len(items) == len(table.rows)
    for row in range(len(items)):
        theirs, ours = items[row]
        assert same(theirs, ours)
        targets = theirs["target_ids"].where(theirs["loss_mask"], -100).tolist()
        assert lessons_of(theirs["input_ids"].tolist(), targets, theirs["position_ids"].tolist()) == lessons(table.rows[row])


def test_pairs(astrai: Any, pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    folder, *sides = pairs
    items = both(astrai, "dpo", export(folder, "astrai", tmp_path / "out"))
    assert len(items) == len(sides[0])
    for i, (theirs, ours) in enumerate(items):
        assert same(theirs, ours)
        assert [theirs[side].tolist() for side in ("chosen", "rejected")] == [documents[i][0] for documents in sides]
    batch = astrai.dpo_collate_fn([theirs for theirs, _ in items])
    assert int(batch["chosen_mask"].sum()) == sum(sum(mask[1:]) for _, mask in sides[0])


def test_preprocessed_text(astrai: Any, run: Run, tmp_path: Path) -> None:
    run(
        [{"content": text} for text in ("a b c", "d", "e f g h", "i j")],
        changed(TEXT, preprocessing={"min_chars": 0, "deduplicate": False}),
    )
    items = both(astrai, "seq", tmp_path / "out" / "__default__", 3)
    assert all(same(*item) for item in items)
    for (_, before), (theirs, _) in pairwise(items):
        assert before["target_ids"][-1] == theirs["input_ids"][0]


def test_preprocessed_chats(astrai: Any, run: Run, tmp_path: Path) -> None:
    run([chat(("user", f"{name} b"), ("assistant", f"c {name}")) for name in "abcdefgh"], SECTIONS_CHAT)
    items = both(astrai, "sft", tmp_path / "out" / "__default__", 9)
    assert all(same(*item) for item in items)
    assert any(item["loss_mask"].any() for item, _ in items)


def test_a_blend_gives_its_trainer_windows_of_its_own(astrai: Any, tmp_path: Path) -> None:
    """Its trainer takes any map-style data set, and samples it once an epoch."""
    workspace = workspace_in(tmp_path, minimal("pretrain", {"a": domain("docs.jsonl.zst", "text")}, blend={"window": 16, "tokens": 640}))
    build(workspace, "pretrain_blend")
    blend = BlendDataset(workspace.stores / "pretrain_blend")
    out = export(workspace.built("pretrain_tokens", "a").directory, "astrai", tmp_path / "out", stream="a_train")
    theirs = astrai.DatasetFactory.load("seq", str(out), 16, None)
    assert all(same(theirs[blend.origin(i)[1]], blend[i]) for i in range(len(blend)))
    assert sorted(astrai.RDSampler(blend, seed=1)) == list(range(40))
