"""`prep-assets path`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.stores.checked import Result


def test_prints_the_stable_link_and_nothing_else(built: Any, run: Any) -> None:
    result = run("path", "sft_packed")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{built.stores / 'sft_packed' / 'current'}\n"
    assert (Path(result.stdout.strip()) / "sft_packed.h5").is_file()


def test_of_a_partition(built: Any, run: Any) -> None:
    assert run("path", "sft_tokens", "--partition", "chats").stdout == f"{built.stores / 'sft_tokens' / 'chats' / 'current'}\n"


def test_the_only_partition_goes_without_saying(built: Any, run: Any) -> None:
    assert run("path", "rl_raw").stdout == f"{built.stores / 'rl_raw' / 'gsm8k' / 'current'}\n"


def test_several_partitions_must_be_chosen_from(built: Any, run: Any) -> None:
    result = run("path", "sft_tokens")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--partition: dolly, chats" in result.stderr


def test_a_missing_store_comes_with_its_command(empty: Any, run: Any) -> None:
    result = run("path", "sft_tokens", "-p", "dolly")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("\n  prep-assets build sft_tokens --partition dolly\n")


def test_a_pointer_file_in_place_of_a_link(mine: Any, run: Any) -> None:
    current = mine.stores / "sft_packed" / "current"
    version = current.resolve()
    current.unlink()
    current.write_text(f"versions/{version.name}\n", "utf-8")
    assert run("path", "sft_packed").stdout == f"{version}\n"


def test_a_store_that_fails_its_checks_is_refused(mine: Any, run: Any) -> None:
    """It was given without a word."""
    store = mine.published("sft_packed")
    mine.place("sft_packed").record(store, {"mask_alignment": Result(False, "row 7 trains the prompt")})
    result = run("path", "sft_packed")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "mask_alignment: row 7 trains the prompt" in result.stderr
    assert run("path", "sft_packed", "--even-if-failed").stdout == f"{mine.stores / 'sft_packed' / 'current'}\n"


def test_a_store_that_is_out_of_date_is_given_with_a_word(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 256", "row_len: 128"), "utf-8")
    result = run("path", "sft_packed")
    assert result.exit_code == 0 and result.stdout.endswith("current\n")
    assert "changed: packing.row_len" in result.stderr


def test_without_a_draft(built: Any, run: Any) -> None:
    result = run("path", "sft_packed", "--draft")
    assert result.exit_code == 1 and "sft_packed has no draft" in result.stderr
