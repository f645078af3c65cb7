"""Token stores as sources of Grain and of torchtitan's pipeline, which read them as they are."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import StoreError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_table
from prep_assets.training import DocumentSource
from prep_assets_tests.extensions.exports.learned import lessons, lessons_of
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.graph.workspaces import all_unchecked, domain, jsonl, minimal, workspace_in
from prep_assets_tests.peers.checkouts import checkout

Documents = list[tuple[list[int], list[int]]]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("documents")
    chats = [[{"role": "user", "content": f"Is it {n}?"}, {"role": "assistant", "content": f"It is {n}. " * (n % 4)}] for n in range(1, 24)]
    files = {
        name: domain(jsonl(folder / f"{name}.jsonl", [{"messages": chat} for chat in part if chat[1]["content"]]), "messages")
        for name, part in (("one", chats[:11]), ("two", chats[11:]))
    }
    texts = domain(jsonl(folder / "docs.jsonl", [{"text": f"A text, number {n}. " * (1 + n % 5)} for n in range(12)]), "text")
    return all_unchecked(
        workspace_in(folder, {**minimal("sft", files, test_fraction=0), **minimal("pretrain", {"docs": texts}, test_fraction=0)})
    )


def stored(workspace: Workspace, asset: str, names: tuple[str, ...], stream: str) -> Documents:
    """Tokens and mask of each record, domain by domain."""
    found = []
    for name in names:
        table = open_table(workspace.built(asset, name).directory, stream.format(name), name)
        masks = table.columns.get("loss_mask")
        for record in range(len(table)):
            tokens = table.record(record, "tokens").tolist()
            found.append((tokens, [1] * len(tokens) if masks is None else masks.arrays(record)[0].tolist()))
    return found


def chats_of(workspace: Workspace) -> Documents:
    return stored(workspace, "sft_tokens", ("one", "two"), "train")


def expected(document: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    """The inputs and shifted labels of a record."""
    tokens, mask = document
    return tokens[:-1], [token if trained else -100 for token, trained in zip(tokens[1:], mask[1:], strict=True)]


def test_items_are_the_records(workspace: Workspace) -> None:
    for asset, documents in (
        ("sft_tokens", chats_of(workspace)),
        ("pretrain_tokens", stored(workspace, "pretrain_tokens", ("docs",), "{}_train")),
    ):
        source = DocumentSource(workspace.stores / asset)
        items = [source[number] for number in range(len(source))]
        assert [(item["input_ids"].tolist(), item["labels"].tolist()) for item in items] == [expected(document) for document in documents]
        assert {item[key].dtype for item in items for key in item} == {np.dtype(np.int64)}
        with pytest.raises(IndexError, match=f"record {len(source)} of {len(source)}"):
            source[len(source)]


def test_it_says_which_stores_it_reads(workspace: Workspace) -> None:
    source = DocumentSource(workspace.stores / "sft_tokens")
    hashes = [workspace.built("sft_tokens", name).manifest.content_hash[:12] for name in ("one", "two")]
    assert repr(source) == f"DocumentSource(sft_tokens[one] {hashes[0]}, sft_tokens[two] {hashes[1]}: {len(source)} records)"
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source) and copy[3]["labels"].tolist() == source[3]["labels"].tolist()


def test_stores_that_have_no_documents(workspace: Workspace) -> None:
    with pytest.raises(
        StoreError, match=r"has rows of several documents, or does not say where they end\. Give sft_tokens or pretrain_tokens"
    ):
        DocumentSource(workspace.stores / "sft_packed")


@pytest.mark.readers
def test_grain_reads_shuffles_and_resumes(workspace: Workspace) -> None:
    """Each record once an epoch, over two processes' shards and a checkpoint, which is refused for another store."""
    grain = reader("grain.python")
    source = DocumentSource(workspace.stores / "sft_tokens")
    documents = chats_of(workspace)
    data = grain.MapDataset.source(source).shuffle(seed=5)
    assert sorted(item["input_ids"].tolist() for item in data) == sorted(expected(document)[0] for document in documents)
    assert isinstance(source, importlib.import_module("grain").sources.RandomAccessDataSource)

    def loader(of: Any, shard: int) -> Any:
        sampler = grain.IndexSampler(len(source), shuffle=True, num_epochs=1, seed=2, shard_options=grain.ShardOptions(shard, 2))
        return grain.DataLoader(data_source=of, sampler=sampler)

    seen = list[list[int]]()
    for shard in (0, 1):
        first = iter(loader(source, shard))
        seen += [next(first)["input_ids"].tolist() for _ in range(3)]
        state = first.get_state()
        second = iter(loader(source, shard))
        second.set_state(state)
        seen += [item["input_ids"].tolist() for item in second]
    assert sorted(seen) == sorted(expected(document)[0] for document in documents)
    other = DocumentSource(workspace.stores / "sft_tokens" / "one")
    with pytest.raises(ValueError, match="DataSource in checkpoint does not match"):
        iter(loader(other, 1)).set_state(state)


@pytest.fixture
def titan(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``torchtitan.components.data`` of the checkout that PREP_ASSETS_TORCHTITAN names."""
    monkeypatch.syspath_prepend(str(checkout("PREP_ASSETS_TORCHTITAN", "torchtitan")))
    reader("grain")
    yield importlib.import_module("torchtitan.components.data")
    for name in [name for name in sys.modules if name.split(".")[0] == "torchtitan"]:
        del sys.modules[name]


@pytest.mark.parametrize("packing", ["FirstFitPackingConfig", "ConcatThenSplitPackingConfig"])
def test_torchtitan_teaches_the_documents(workspace: Workspace, titan: Any, packing: str) -> None:
    """Its own packing and loader, to batches: each trained token after all before it in its document."""
    grain = reader("grain.python")
    source = DocumentSource(workspace.stores / "sft_tokens", form=titan.TextSequence)
    chats = titan.SingleDatasetConfig(source=source, post_filters=(lambda item: len(item.input_ids) > 0,))
    read = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    context = titan.DatasetBuildContext(tokenizer=None, max_context_length=64, num_tokens_per_batch=64, read_options=read)
    policy = titan.DatasetIterationPolicy(seed=1, shuffle=True, repeat=False, dp_rank=0, dp_world_size=1, streaming_shuffle_buffer_size=1)
    rows = list(getattr(titan, packing)(dataset=chats).build(context=context, dataset_iteration_policy=policy))
    taught = []
    for row in rows:
        tokens, labels, positions = (np.asarray(part).tolist() for part in (row.input_ids, row.labels, row.positions))
        taught += lessons_of(tokens, labels, positions)
    wanted = lessons(chats_of(workspace))
    if packing == "FirstFitPackingConfig":
        assert sorted(taught) == sorted(wanted)
    else:  # which cuts documents at the ends of rows, and leaves out the last row unless it is full
        stretches = {
            (tuple(tokens[start:at]), tokens[at])
            for tokens, mask in chats_of(workspace)
            for at in range(1, len(tokens))
            for start in range(at)
            if mask[at]
        }
        assert taught and set(taught) <= stretches
