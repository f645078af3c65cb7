"""Selftest on real data: every corruption is caught, clean rows pass, and a check that sees nothing is found out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.extensions.selftest import trials as module
from prep_assets.extensions.selftest.mutations import IMAGE_MUTATIONS, MUTATIONS, SELECTION_MUTATIONS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.mask import MaskRow
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.version_folders import Published
from prep_assets_tests.corpus.real import MOSS_WITHOUT_PLUGINS
from prep_assets_tests.graph.workspaces import build, workspace_in
from prep_assets_tests.masks import chatml

SFT = {
    "gsm8k": ("gsm8k/train.jsonl", "gsm8k"),
    "alpaca": ("llama_factory/alpaca_en_demo.json", "alpaca"),
    "moss": ("moss/conversations.jsonl", "moss"),
    "glaive": ("llama_factory/glaive_toolcall_en_demo.json", "sharegpt"),
}


def _domains(folder: Path, sets: dict[str, tuple[str, str]]) -> dict[str, Any]:
    shown = {name: {"files": [str(folder / file)], "schema": schema, "max_items": 120} for name, (file, schema) in sets.items()}
    if "moss" in shown:
        shown["moss"]["ignore"] = list(MOSS_WITHOUT_PLUGINS)
    return shown


@pytest.fixture(scope="module")
def workspace(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("selftest")
    (folder / "configs").mkdir()
    (folder / "configs" / "tools.jinja").write_text(chatml.SOURCE.strip())
    tokenizer = {"tokenizer": str(real_data / "tokenizers" / "smollm"), "tokenizer_loader": "file"}
    preference = {"hh": ("hh_rlhf/harmless_base_1500.jsonl.gz", "hh")}
    families = {
        "sft": {**tokenizer, "template": "tools.jinja", "domains": _domains(real_data, SFT), "packing": {"row_len": 2048}},
        "preference": {**tokenizer, "template": "chatml", "form": "messages", "domains": _domains(real_data, preference)},
    }
    made = workspace_in(folder, families)
    for name in SFT:
        build(made, "sft_raw", name)
        build(made, "sft_tokens", name)
    build(made, "sft_packed")
    build(made, "preference_raw", "hh")
    build(made, "preferences_by_domain", "hh")
    build(made, "preference_tokens_by_domain", "hh")
    return made


STORES = [*(("sft_tokens", name) for name in SFT), ("sft_packed", ""), ("preference_tokens_by_domain", "hh")]


def _published(workspace: Workspace, asset: str, partition: str) -> Published:
    return workspace.built(asset, partition)


@pytest.mark.parametrize(("asset", "partition"), STORES)
def test_every_corruption_is_caught(workspace: Workspace, asset: str, partition: str) -> None:
    trials = selftest(workspace, _published(workspace, asset, partition))
    assert [trial for trial in trials if not trial.passed] == []
    unfit = {
        "a held-out row in the training part",
        *(each.name for each in IMAGE_MUTATIONS),
    }  # nothing is held out here, nor is there an image
    assert all(trial.tried for trial in trials if trial.mutation not in unfit)
    if asset != "sft_packed":
        backend = [mutation.name for mutation in SELECTION_MUTATIONS] if asset == "sft_tokens" else []
        assert {trial.mutation for trial in trials} == {"", *(mutation.name for mutation in MUTATIONS), *backend}


BLINDED = {"mask_alignment": "prove_masks", "tokenization_identity": "prove_identity", "row_integrity": "check_rows"}


@pytest.mark.parametrize("check", BLINDED)
def test_a_check_that_sees_nothing_is_found_out(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    """With a check that always passes, selftest reports each corruption that is this check's to catch, and no other."""
    monkeypatch.setattr(module, BLINDED[check], lambda *_, **__: Verdict(True, "all is well", {}))
    trials = selftest(workspace, _published(workspace, "sft_tokens", "gsm8k"))
    missed = {trial.mutation for trial in trials if not trial.passed}
    assert missed == {mutation.name for mutation in MUTATIONS if mutation.caught_by == check and mutation not in IMAGE_MUTATIONS}
    assert all(trial.caught == 0 for trial in trials if trial.mutation in missed)


def test_a_check_that_always_fails_is_found_out_by_the_clean_rows(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "prove_masks", lambda *_, **__: Verdict(False, "everything is wrong", {}))
    clean = selftest(workspace, _published(workspace, "sft_tokens", "alpaca"))[0]
    assert (clean.mutation, clean.passed, clean.caught, clean.tried) == ("", False, 2, 3)
    assert "everything is wrong" in clean.shown


def test_masks_that_are_equal_once_they_have_changed_places_are_no_corruption() -> None:
    [swapped] = [mutation for mutation in MUTATIONS if mutation.name == "masks of two records swapped"]
    periodic = [MaskRow("", np.zeros(count, np.int64), np.resize([0, 1], count), ()) for count in (4, 6)]
    assert swapped.change(periodic, 0, None) is None
    other = [*periodic[:1], replace(periodic[1], mask=np.array([0, 0, 0, 1, 1, 1]))]
    changed = swapped.change(other, 0, None)
    assert any(not np.array_equal(row.mask, before.mask) for row, before in zip(changed, other, strict=True))
