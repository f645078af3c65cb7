"""Blends in the graph: an index over the stores of domains, read in its order by `BlendDataset`."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from prep_assets import plugins
from prep_assets.cli.main import app
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.blends.assets import training_streams
from prep_assets.extensions.explain.previews import preview
from prep_assets.graph import graph
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.published import versions
from prep_assets.text.visible import Preview
from prep_assets.training import BlendDataset, DatasetFactory, PaddingFree
from prep_assets_tests.graph.workspaces import SHIPPED, build, domain, jsonl, make, minimal, out_of_date, verdicts, workspace_in

EQUAL = {"docs": 1, "notes": 1}
WINDOWS: dict[str, Any] = {"window": 32, "weights": EQUAL, "tokens": 2000, "epochs": {"notes": 2}}


def of_documents(folder: Path, **options: Any) -> Workspace:
    return workspace_in(folder, {"pretrain": {**copy.deepcopy(SHIPPED["pretrain"]), "blend": {**WINDOWS, **options}}})


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = of_documents(tmp_path_factory.mktemp("documents"))
    build(workspace, "pretrain_blend")
    return workspace


def test_items_are_the_windows_of_its_domains(documents: Workspace) -> None:
    published = documents.built("pretrain_blend")
    assert published.manifest.counts == {"items": 62, "tokens": 62 * 32}
    assert published.manifest.metrics["share_docs"] == 0.5
    dataset = BlendDataset(documents.stores / "pretrain_blend")
    windows = {
        name: DatasetFactory.load("seq", documents.built("pretrain_tokens", name).directory / f"{name}_train.h5", 32) for name in EQUAL
    }
    for i in range(-1, len(dataset)):
        name, item = dataset.origin(i)
        expected = windows[name][item]
        assert dataset[i].keys() == expected.keys()
        assert all(dataset[i][key].equal(expected[key]) for key in expected)
    with pytest.raises(IndexError, match="item 62 of 62"):
        dataset[62]


def test_another_weight_writes_an_index_and_nothing_else(tmp_path: Path) -> None:
    workspace = of_documents(tmp_path)
    first = build(workspace, "pretrain_blend")
    assert first.bytes < 62 * 6 + 1024
    changed = of_documents(tmp_path, weights={"docs": 3, "notes": 1})
    assert out_of_date(changed, EVERY["pretrain_blend"]) == []  # nothing before it
    second = build(changed, "pretrain_blend")
    assert second.manifest.metrics["share_docs"] == pytest.approx(0.75, abs=0.01)
    assert second.manifest.recipe["tokens"] == first.manifest.recipe["tokens"]


def test_a_schedule(tmp_path: Path) -> None:
    phases = [{"tokens": 640, "weights": EQUAL}, {"tokens": 960, "weights": {"docs": 1, "notes": 0}}]
    workspace = of_documents(tmp_path, weights=None, tokens=None, schedule=phases)
    published = build(workspace, "pretrain_blend")
    dataset = BlendDataset(published.directory)
    assert dataset.blend.ends == (20, 50)
    assert {dataset.origin(i)[0] for i in range(20, 50)} == {"docs"}
    assert published.manifest.counts["phases"] == 2


def test_what_it_was_made_of_is_read_after_a_domain_was_built_again(tmp_path: Path) -> None:
    def of(text: str) -> Workspace:
        rows = jsonl(tmp_path / "rows.jsonl", [{"text": f"{text} {n} " * 20} for n in range(30)])
        return workspace_in(tmp_path, minimal("pretrain", {"a": domain(rows, "text")}, blend={"window": 16}))

    build(of("first"), "pretrain_blend")
    dataset = BlendDataset(tmp_path / "stores" / "pretrain_blend")
    before = [dataset[i]["input_ids"].tolist() for i in range(len(dataset))]
    workspace = of("second")
    for asset in ("pretrain_raw", "pretrain_tokens"):
        make(workspace, EVERY[asset], "a")
    again = pickle.loads(pickle.dumps(dataset))
    assert [again[i]["input_ids"].tolist() for i in range(len(again))] == before
    assert "pretrain_tokens[a] was built again since" in verdicts(workspace, workspace.built("pretrain_blend"))["mixture"].summary
    shutil.rmtree(versions(workspace.place("pretrain_tokens", "a"))[-1].directory)
    with pytest.raises(StoreError, match=r"that pretrain_blend was made of is gone.*prep-assets build pretrain_blend"):
        BlendDataset(tmp_path / "stores" / "pretrain_blend")


def test_masks_of_documents_go_with_their_windows(tmp_path: Path) -> None:
    plain = jsonl(tmp_path / "plain.jsonl", [{"text": f"row {n} " * 30} for n in range(10)])
    parts = [[{"a": f"Not this at all, {n}. "}, {"b": f"But that, and this as well, {n}."}] for n in range(10)]
    rows = [{"semantic_data_array": [{"content": part, "semantic_loss_weight": [0, 1]}]} for part in parts]
    masked = jsonl(tmp_path / "masked.jsonl", rows)
    domains = {"plain": domain(plain, "text"), "masked": domain(masked, "semantic")}
    build(workspace_in(tmp_path, minimal("pretrain", domains, blend={"window": 16})), "pretrain_blend")
    dataset = BlendDataset(tmp_path / "stores" / "pretrain_blend")
    trained = {name: [dataset[i]["loss_mask"] for i in range(len(dataset)) if dataset.origin(i)[0] == name] for name in domains}
    assert all(bool(mask.all()) for mask in trained["plain"])
    assert {bool(mask.all()) for mask in trained["masked"]} == {False}


def test_conversations(tmp_path: Path) -> None:
    shipped = copy.deepcopy(SHIPPED["sft"])
    workspace = workspace_in(tmp_path, {"sft": {**shipped, "blend": {"weights": {"gsm8k": 1, "alpaca": 2, "dolly": 1, "chats": 0}}}})
    published = build(workspace, "sft_blend")
    assert published.manifest.metrics["share_chats"] == 0
    dataset, streams = BlendDataset(workspace.stores / "sft_blend"), training_streams(workspace, "sft")
    for i in range(len(dataset)):
        name, item = dataset.origin(i)
        ids, mask = (streams[name].record(item, key) for key in ("tokens", "loss_mask"))
        assert dataset[i]["input_ids"].tolist() == ids.tolist()
        assert dataset[i]["labels"].tolist() == np.where(mask, ids, -100).tolist()
    batch = next(iter(DataLoader(dataset, batch_size=4, collate_fn=PaddingFree())))
    assert batch["input_ids"].numel() == sum(len(dataset[i]["input_ids"]) for i in range(4))


def test_people_look_at_it(documents: Workspace) -> None:
    shown = preview(documents, documents.built("pretrain_blend"), 3)
    assert isinstance(shown, Preview)
    name, item = BlendDataset(documents.stores / "pretrain_blend").origin(3)
    assert shown.title == f"pretrain_blend item 3 of 62: window {item} of {name}, 32 tokens"
    stream = training_streams(documents, "pretrain")[name]
    assert shown.ids == tuple(stream.columns["tokens"].values[item * 32 : item * 32 + 32].tolist())
    for place, origin in shown.origins:
        record = int(np.searchsorted(stream.columns["tokens"].ends, item * 32 + place, "right"))
        assert origin.endswith(f":{stream.origins.row[record] + 1}")
        assert shown.positions[place] == item * 32 + place - stream.columns["tokens"].spans(record)[0].start


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": [{"tokens": 10, "weights": EQUAL}]}, "schedule sets weights and tokens itself"),
        ({"weights": {"docs": 1}}, "blend: weights must name every domain; missing: notes"),
        ({"window": 1 << 20}, "blend: domain 'docs' has no item"),
        ({"tokens": 10**9}, r"blend: phase 1 of the blend needs 500,000,000 tokens of domain 'docs', and [\d,]+ are left of 1 passes"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, documents: Workspace, options: Mapping[str, Any], message: str) -> None:
    workspace = of_documents(tmp_path, **options)
    with pytest.raises(ConfigError, match=message):
        build(workspace, "pretrain_blend")


@pytest.mark.parametrize("trainer", ["megatron", "olmo"])
def test_trainers_get_its_shares(documents: Workspace, trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(documents.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(documents.stores))
    result = CliRunner().invoke(app, ["launch-snippet", "pretrain_blend", "--trainer", trainer, "--out", "/exports"])
    assert result.exit_code == 0, result.output
    assert f"prep-assets export pretrain_tokens -p notes --to {trainer} --out /exports/notes" in result.output
    expected = {
        "megatron": "--train-data-path 31 /exports/docs/train_text_document 31 /exports/notes/train_text_document --seq-length 32 --train-samples 62",
        "olmo": 'source_name="notes", target_ratio=0.5, max_repetition_ratio=1, paths=["/exports/notes/token_ids_part_*.npy"]',
    }
    assert expected[trainer] in result.output
    refused = CliRunner().invoke(app, ["launch-snippet", "pretrain_blend", "--trainer", "trl"])
    assert refused.exit_code == 1
    assert "BlendDataset" in refused.output


def test_a_package_adds_assets_to_a_family_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, entries, part_of = EntryPoint("extra", "acme_prep.extra", "prep_assets.assets"), plugins.entries, plugins.part_of
    extra = [structs.replace(EVERY["sft_blend"], name="sft_extra")]
    monkeypatch.setattr(plugins, "entries", lambda group: {**entries(group), **({"extra": entry} if group == "assets" else {})})
    monkeypatch.setattr(plugins, "part_of", lambda each, name: extra if each is entry else part_of(each, name))
    monkeypatch.setattr(graph, "added_code", lambda module: f"code of {module}")
    found = graph._declared()
    assert [*found].index("sft_extra") == [*found].index("sft_blend") + 1
    assert found["sft_extra"].added == {"family": "code of acme_prep.extra"} and not found["sft_blend"].added
    extra[:] = [structs.replace(extra[0], family="sftt")]
    with pytest.raises(ConfigError, match="sft_extra: no family 'sftt'; did you mean 'sft'"):
        graph._declared()
