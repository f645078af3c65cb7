"""`prep-assets quarantine`."""

from __future__ import annotations

import json
from typing import Any


def lines(workspace: Any, partition: str) -> list[dict[str, Any]]:
    directory = (workspace.stores / "sft_tokens" / partition / "current").resolve()
    path = directory.with_name(f"{directory.name}.quarantine.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_shows_the_first_records_with_their_reason(built: Any, run: Any) -> None:
    every = lines(built, "chats")
    assert len(every) > 2
    result = run("quarantine", "sft_tokens", "-p", "chats", "-n", 2)
    assert result.exit_code == 0
    headings = [line for line in result.stdout.splitlines() if line.startswith("sft_tokens[chats] ") and ":" in line]
    assert headings == [f"sft_tokens[chats] {line['id']}  {line['stage']}/{line['reason']}" for line in every[:2]]
    for line in every[:2]:
        assert f"  {line['detail']}\n" in result.stdout and f"  {line['payload']}" in result.stdout
    assert f"… and {len(every) - 2} more" in result.stdout


def test_all_partitions_together(built: Any, run: Any) -> None:
    count = len(lines(built, "dolly")) + len(lines(built, "chats"))
    assert "more: -n" not in run("quarantine", "sft_tokens", "-n", count).stdout
    assert f"… and 1 more: -n {count}" in run("quarantine", "sft_tokens", "-n", count - 1).stdout


def test_one_reason_with_or_without_its_stage(built: Any, run: Any) -> None:
    reasons = {f"{line['stage']}/{line['reason']}" for line in lines(built, "chats")}
    assert reasons == {"tokenize/too_long"}
    assert (
        run("quarantine", "sft_tokens", "--reason", "too_long").stdout
        == run("quarantine", "sft_tokens", "--reason", "tokenize/too_long").stdout
    )


def test_a_mistyped_reason_names_the_nearest(built: Any, run: Any) -> None:
    result = run("quarantine", "sft_tokens", "--reason", "to_long")
    assert result.exit_code == 1
    assert "did you mean 'too_long'? Reasons: tokenize/too_long" in result.stderr


def test_nothing_refused_points_upstream(built: Any, run: Any) -> None:
    result = run("quarantine", "sft_packed")
    assert result.exit_code == 0
    assert result.stdout == "sft_packed: no record was refused here; what feeds it: prep-assets quarantine sft_tokens\n"


def test_a_quarantine_file_that_is_gone(mine: Any, run: Any) -> None:
    directory = (mine.stores / "sft_tokens" / "chats" / "current").resolve()
    directory.with_name(f"{directory.name}.quarantine.jsonl").unlink()
    result = run("quarantine", "sft_tokens", "-p", "chats")
    assert result.exit_code == 1
    assert "is gone" in result.stderr
