"""Pretraining documents of which parts are not trained: sections, regions of a semantic data array, common words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError
from prep_assets.exports import export
from prep_assets.graph.selftest import selftest
from prep_assets.proofs.mutations import MASK_MUTATIONS
from prep_assets.stores.open import open_store
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets.training import DatasetFactory
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, resealed, verdicts

SEMANTIC = [
    {"semantic_data_array": [{"content": [{"a": "Not this."}, {"b": " This is trained."}], "semantic_loss_weight": [0, 1]}]},
    {"semantic_data_array": [{"content": [{"a": "All of it."}]}]},
    {"semantic_data_array": [{"content": [{"a": "Nothing here."}], "semantic_loss_weight": [0]}]},
]
SECTIONS = {"sections": [{"field": "q", "action": "mask"}, {"field": "a", "action": "train"}]}
CASES: list[tuple[str, dict[str, Any], list[dict[str, Any]], list[str], list[str]]] = [
    ("semantic", {}, SEMANTIC, [" This is trained.<|endoftext|>", "All of it.<|endoftext|>"], ["pretrain/nothing_to_train"]),
    ("sections", SECTIONS, [{"q": "A question?", "a": "\nAn answer."}], ["\nAn answer.<|endoftext|>"], []),
    ("common_words_mask", {}, [{"prompt": "Who?\n", "completion": "I am the keeper"}], ["Who?\n keeper<|endoftext|>"], []),
]


def built(
    make: Make, tmp_path: Path, schema: str, options: dict[str, Any], rows: list[dict[str, Any]], **more: Any
) -> tuple[Any, Published]:
    own = domain(jsonl(tmp_path / "rows.jsonl", rows), schema, options=options)
    workspace = make(minimal("pretrain", {"d": own}, **more))
    build(workspace, "pretrain_raw", "d")
    return workspace, build(workspace, "pretrain_tokens", "d")


@pytest.mark.parametrize("storage", ["h5", "bin"])
@pytest.mark.parametrize(("schema", "options", "rows", "trained", "refused"), CASES, ids=[case[0] for case in CASES])
def test_what_weighs_0_is_not_trained(
    make: Make,
    tmp_path: Path,
    storage: str,
    schema: str,
    options: dict[str, Any],
    rows: list[dict[str, Any]],
    trained: list[str],
    refused: list[str],
) -> None:
    """Sections to be masked and regions that weigh 0 were trained like all others."""
    workspace, published = built(make, tmp_path, schema, options, rows, output={"storage_format": storage})
    store = open_tokens(published.directory, "d_train")
    vocabulary = workspace.vocabulary(workspace.family(Pretrain))
    found = [
        vocabulary.backend.decode(store.record(n, "tokens")[store.record(n, "loss_mask") != 0].tolist(), False) for n in range(len(store))
    ]
    assert found == trained
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == refused
    assert failing(workspace, published) == []
    assert published.manifest.counts["trained_tokens"] == int(np.sum(store.arrays["loss_mask"][:] != 0))


def test_fractions_are_kept(make: Make, tmp_path: Path) -> None:
    row = {"semantic_data_array": [{"content": [{"a": "Half."}, {"b": " Whole."}], "semantic_loss_weight": [0.5, 1]}]}
    workspace, published = built(make, tmp_path, "semantic", {}, [SEMANTIC[0], row])
    store = open_tokens(published.directory, "d_train")
    assert sorted(set(store.record(1, "loss_mask").tolist())) == [0.5, 1.0]
    assert failing(workspace, published) == []


def test_documents_that_are_trained_in_full_have_no_mask(make: Make, tmp_path: Path) -> None:
    _, published = built(make, tmp_path, "semantic", {}, [SEMANTIC[1]])
    assert set(open_tokens(published.directory, "d_train").arrays) == {"tokens"}


@pytest.mark.parametrize("change", ["first trained", "all trained", "end not trained", "one token left out"])
def test_a_mask_that_the_source_does_not_say_is_found(make: Make, tmp_path: Path, change: str) -> None:
    """The check said only that nothing but images was masked, whatever the source said."""
    workspace, published = built(make, tmp_path, "semantic", {}, SEMANTIC[:2], output={"storage_format": "bin"})
    path = published.directory / "d_train" / "shard_0000" / "loss_mask.bin"
    mask = np.fromfile(path, np.uint8)
    mask[
        {"first trained": slice(0, 1), "all trained": slice(None), "end not trained": slice(-1, None), "one token left out": slice(-3, -2)}[
            change
        ]
    ] = 0 if change in ("end not trained", "one token left out") else 1
    mask.tofile(path)
    verdict = verdicts(workspace, resealed(published))["mask_alignment"]
    assert not verdict.passed and "rows.jsonl:" in verdict.summary


def test_exports_carry_the_mask_or_refuse(make: Make, tmp_path: Path) -> None:
    _, published = built(make, tmp_path, "semantic", {}, SEMANTIC[:2])
    for name, options in (("litdata", {"block_size": 4}), ("tlfs", {}), ("megatron", {})):
        with pytest.raises(ConfigError, match=r"loss mask"):
            export(published, name, tmp_path / name, **options)
    export(published, "megatron", tmp_path / "instruction", layout="instruction")
    store, out = open_tokens(published.directory, "d_train"), export(published, "astrai", tmp_path / "astrai")
    mask = np.fromfile(out / "train" / "shard_0000" / "loss_mask.bin", np.int32)
    expected = np.asarray(store.arrays["loss_mask"][:]).copy()
    expected[np.asarray(store.starts)] = 0
    assert mask.tolist() == expected.tolist()


def test_windows_without_a_mask_refuse_a_stream_that_has_one(make: Make, tmp_path: Path) -> None:
    """`seq` windows of a masked stream trained every token."""
    _, published = built(make, tmp_path, "semantic", {}, SEMANTIC[:2])
    with pytest.raises(ConfigError, match="loss_mask"):
        DatasetFactory.load("seq", published.directory, 4)
    assert len(DatasetFactory.load("sft", published.directory, 4)) > 0
    assert "loss_mask" in open_store(published.directory).keys


def test_fill_in_the_middle_cannot_cut_them(make: Make, tmp_path: Path) -> None:
    fim = {"rate": 1.0, "prefix_token": "<|im_start|>", "suffix_token": "<|im_end|>", "middle_token": "<|pad|>"}
    with pytest.raises(ConfigError, match=r"regions that are not trained: preprocessing\.fim would cut"):
        built(make, tmp_path, "semantic", {}, SEMANTIC[:2], preprocessing={"fim": fim})


def test_selftest_spoils_masks(make: Make, tmp_path: Path) -> None:
    """Masked documents had no corruptions of their masks."""
    row = {"semantic_data_array": [{"content": [{"a": "Half."}, {"b": " Whole."}], "semantic_loss_weight": [0.5, 1]}]}
    workspace, published = built(make, tmp_path, "semantic", {}, [*SEMANTIC, row])
    trials = [trial for trial in selftest(workspace, published) if trial.check == "mask_alignment"]
    assert [trial.mutation for trial in trials if trial.mutation] == [mutation.name for mutation in MASK_MUTATIONS]
    assert [trial for trial in trials if not trial.passed or not trial.tried] == []
