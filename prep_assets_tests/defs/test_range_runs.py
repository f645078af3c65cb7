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
    found = {each.partition: each.metadata for each in reversed(materializations(instance, "sft_raw"))}
    assert set(found) == set(SFT)
    for name in ("gsm8k", "dolly", "chats"):
        lines = (ROOT / "configs" / "samples" / f"{name}.jsonl").read_text("utf-8").count("\n")
        assert found[name]["dagster/row_count"].value == lines
        assert found[name]["path"].value.startswith(str(stores / "sft_raw" / name))
    assert len({metadata["content_hash"].value for metadata in found.values()}) == len(SFT)


def test_each_partition_of_a_range_has_a_verdict_of_its_own(stores: Path, instance: dg.DagsterInstance) -> None:
    run(instance, "sft_raw", between=("alpaca", "dolly"))
    found = evaluations(instance, "sft_raw", "file_hashes")
    assert {each.partition for each in found} == {"alpaca", "dolly"}
    assert all(each.passed and each.metadata["files_checked"].value == 2 for each in found)


def test_everything_upstream_from_nothing_in_one_run(stores: Path, instance: dg.DagsterInstance) -> None:
    # `--select '+key:sft_packed' --partition-range gsm8k...chats`
    upstream = dg.AssetSelection.from_string("+key:sft_packed").resolve(defs.resolve_asset_graph())
    result = run(instance, *(key.to_user_string() for key in upstream), between=(SFT[0], SFT[-1]))
    assert result.success
    assert len(instance.get_runs()) == 1
    seen = {name: {each.partition for each in materializations(instance, name)} for name in ("sft_raw", "sft_tokens", "sft_packed")}
    assert seen == {"sft_raw": set(SFT), "sft_tokens": set(SFT), "sft_packed": {None}}


def test_a_range_that_runs_backwards_is_an_error_that_names_the_order(stores: Path, instance: dg.DagsterInstance) -> None:
    result = run(instance, "sft_raw", between=("chats", "gsm8k"))
    assert not result.success
    assert "gsm8k, alpaca, dolly, chats" in failures(result)
    assert not materializations(instance, "sft_raw")
    assert not stores.exists() or not list(stores.glob("sft_raw/*/current"))
