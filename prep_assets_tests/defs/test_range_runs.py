"""Runs over many partitions: each partition once, in the order of the configuration, with its own metadata."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from prep_assets.definitions import defs
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.defs.runs import DOMAINS, evaluations, failures, materializations, run

SFT = DOMAINS["sft"]


def test_a_range_materializes_each_partition_once_with_its_own_numbers(stores: Path, instance: dg.DagsterInstance) -> None:
    result = run(instance, "sft_raw", between=(SFT[0], SFT[-1]))
    assert result.success
    found = {each.partition: each.metadata for each in materializations(instance, "sft_raw")}
    assert len(materializations(instance, "sft_raw")) == len(SFT)
    assert set(found) == set(SFT)
    for name in ("gsm8k", "dolly", "chats"):
        lines = (ROOT / "configs" / "samples" / f"{name}.jsonl").read_text("utf-8").count("\n")
        assert found[name]["dagster/row_count"].value == lines
        assert found[name]["path"].value.startswith(str(stores / "sft_raw" / name))
    assert len({metadata["content_hash"].value for metadata in found.values()}) == len(SFT)


def test_a_range_is_checked_once_for_all_its_partitions(stores: Path, instance: dg.DagsterInstance) -> None:
    run(instance, "sft_raw", between=("alpaca", "dolly"))
    [evaluation] = evaluations(instance, "sft_raw", "file_hashes")
    assert evaluation.passed
    assert "alpaca: " in evaluation.description and "dolly: " in evaluation.description
    assert "gsm8k" not in evaluation.description and "chats" not in evaluation.description
    assert evaluation.metadata["files_checked"].value == 2


def test_everything_upstream_from_nothing_in_one_run(stores: Path, instance: dg.DagsterInstance) -> None:
    # `--select '+key:sft_packed' --partition-range gsm8k...chats`
    upstream = dg.AssetSelection.from_string("+key:sft_packed").resolve(defs.resolve_asset_graph())
    result = run(instance, *(key.to_user_string() for key in upstream), between=(SFT[0], SFT[-1]))
    assert result.success
    assert len(instance.get_runs()) == 1
    counted = {name: len(materializations(instance, name)) for name in ("sft_raw", "sft_tokens", "sft_packed")}
    assert counted == {"sft_raw": 4, "sft_tokens": 4, "sft_packed": 1}


def test_a_range_that_runs_backwards_is_an_error_that_names_the_order(stores: Path, instance: dg.DagsterInstance) -> None:
    result = run(instance, "sft_raw", between=("chats", "gsm8k"))
    assert not result.success
    assert "gsm8k, alpaca, dolly, chats" in failures(result)
    assert not materializations(instance, "sft_raw")
    assert not stores.exists() or not list(stores.glob("sft_raw/*/current"))
