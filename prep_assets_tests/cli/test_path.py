"""`prep-assets path`."""

from __future__ import annotations

from pathlib import Path
from typing import Any


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
    assert result.stderr.endswith("\n  dagster asset materialize --select sft_tokens --partition dolly\n")


def test_a_pointer_file_in_place_of_a_link(mine: Any, run: Any) -> None:
    current = mine.stores / "sft_packed" / "current"
    version = current.resolve()
    current.unlink()
    current.write_text(f"versions/{version.name}\n", "utf-8")
    assert run("path", "sft_packed").stdout == f"{version}\n"
