"""`prep-assets verify`: sound stores pass, damaged ones fail and are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.assets.graph import CHECKS
from prep_assets.stores.manifest import Manifest
from prep_assets_tests.assets.workspaces import SHIPPED_ASSETS
from prep_assets_tests.stores.payload import list_payload

TOKENIZER = Path(__file__).resolve().parents[2] / "configs" / "tokenizer" / "tokenizer.json"


def alter(path: Path, at: int, value: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] = value
    path.write_bytes(content)


def resign(directory: Path) -> None:
    """A manifest that fits whatever is in the folder now."""
    replace(Manifest.read(directory), files=list_payload(directory)).write(directory)


def test_sound_stores_pass(built: Any, run: Any) -> None:
    result = run("verify")
    partitions = {"sft_raw": 2, "sft_tokens": 2}
    checks = sum(len(CHECKS[asset]) * partitions.get(asset, 1) for asset in SHIPPED_ASSETS)
    assert result.exit_code == 0
    assert f"all {checks} checks of {len(SHIPPED_ASSETS) + 2} stores passed" in result.stdout
    assert result.stdout.count(" passed ") == checks


def test_one_asset_one_partition(built: Any, run: Any) -> None:
    result = run("verify", "sft_tokens", "-p", "chats")
    assert result.exit_code == 0
    assert f"all {len(CHECKS['sft_tokens'])} checks of 1 store passed" in result.stdout
    assert "dolly" not in result.stdout


@pytest.mark.parametrize(
    "asset, partition, name",
    [
        ("sft_packed", "", "sft_packed.h5"),
        ("sft_packed", "", "sft_packed.documents/record.npy"),
        ("sft_tokens", "chats", "train/shard_0000/sequence.bin"),
        ("preferences", "", "preferences.jsonl"),
        ("pretrain_raw", "notes", "sources.json"),
    ],
)
def test_one_byte_flipped_fails_and_names_the_file(mine: Any, run: Any, asset: str, partition: str, name: str) -> None:
    directory = (mine.stores / asset / partition / "current").resolve()
    middle = (directory / name).stat().st_size // 2
    alter(directory / name, middle, (directory / name).read_bytes()[middle] ^ 1)
    result = run("verify", asset)
    assert result.exit_code == 1
    assert f"{name}: content altered" in result.stdout
    assert "file_hashes" in result.stdout and "FAILED" in result.stdout
    assert isinstance(result.exception, SystemExit)


def test_a_failing_row_is_shown_with_its_wrong_tokens(mine: Any, run: Any) -> None:
    directory = (mine.stores / "sft_tokens" / "dolly" / "current").resolve()
    mask = np.fromfile(directory / "train" / "shard_0000" / "loss_mask.bin", "uint8")
    ids = np.fromfile(directory / "train" / "shard_0000" / "sequence.bin", "int32")
    wrong = 4
    assert mask[wrong - 1 : wrong + 2].tolist() == [0, 0, 0]
    alter(directory / "train" / "shard_0000" / "loss_mask.bin", wrong, 1)
    resign(directory)
    result = run("verify", "sft_tokens", "-p", "dolly")
    assert result.exit_code == 1
    assert "✗ sft_tokens[dolly] mask_alignment" in result.stdout
    assert f"⟦{Tokenizer.from_file(str(TOKENIZER)).decode([int(ids[wrong])])}⟧" in result.stdout


def test_an_unreadable_manifest_is_a_failure_of_every_check(mine: Any, run: Any) -> None:
    (mine.stores / "arithmetic_prompts" / "current" / "manifest.json").write_text("{")
    result = run("verify", "arithmetic_prompts")
    assert result.exit_code == 1
    assert result.stdout.count("FAILED") == len(CHECKS["arithmetic_prompts"])
    assert "it was edited or cut short" in result.stdout


def test_whatever_a_check_raises_is_its_failure(mine: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("wrong local heap signature")

    monkeypatch.setattr("prep_assets.engine.checking.run_check", broken)
    result = run("verify", "sft_packed")
    assert result.exit_code == 1
    assert "could not be carried out (RuntimeError: wrong local heap signature)" in result.stdout


def test_no_store_at_all(empty: Any, run: Any) -> None:
    result = run("verify")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no store in" in result.stderr
    assert "prep-assets build sft_packed" in result.stderr


def test_no_store_of_this_asset(empty: Any, run: Any) -> None:
    result = run("verify", "sft_tokens", "-p", "dolly")
    assert result.exit_code == 1
    assert "there is no store of sft_tokens[dolly]" in result.stderr
    assert "prep-assets build sft_tokens --partition dolly" in result.stderr


def test_what_is_not_built_is_said(mine: Any, run: Any) -> None:
    (mine.stores / "sft_tokens" / "chats" / "current").unlink()
    result = run("verify", "sft_tokens")
    assert result.exit_code == 0
    assert "not built, so not checked: sft_tokens[chats]" in result.stdout


def test_a_partition_of_which_asset(built: Any, run: Any) -> None:
    result = run("verify", "-p", "dolly")
    assert result.exit_code == 1
    assert "of which asset" in result.stderr
