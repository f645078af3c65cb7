"""`prep-assets status`."""

from __future__ import annotations

from typing import Any

from prep_assets.pipelines.graph import ASSETS


def states(output: str) -> dict[tuple[str, str], str]:
    """State of each asset and partition, from the printed table."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if line.startswith(" ") and words and words[0] in ASSETS:
            partition = words[1] if ASSETS[words[0]].partitioned else ""
            found[words[0], partition] = words[2 if partition else 1]
    return found


def commands(output: str) -> list[str]:
    """The commands that are offered."""
    return [line.strip() for line in output.splitlines() if line.startswith("  dagster")]


def test_everything_is_current(built: Any, run: Any) -> None:
    result = run("status")
    found = states(result.stdout)
    assert result.exit_code == 0
    assert set(found) == {(asset.name, each) for asset in ASSETS.values() for each in asset.partitions(built)}
    assert set(found.values()) == {"current"} and commands(result.stdout) == []
    assert f"{len(found)} current in" in result.stdout


def test_everything_is_missing(empty: Any, run: Any) -> None:
    shown = run("status").stdout
    assert set(states(shown).values()) == {"missing"}
    assert len(commands(shown)) == len(states(shown))
    assert "dagster asset materialize --select sft_tokens --partition dolly" in commands(shown)


def test_a_changed_option_makes_stale_what_depends_on_it(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("max_seq_len: 80", "max_seq_len: 79"), "utf-8")
    shown = run("status").stdout
    stale = [key for key, state in states(shown).items() if state == "stale"]
    assert stale == [("sft_tokens", "dolly"), ("sft_tokens", "chats"), ("sft_packed", "")]
    arguments = ("sft_tokens --partition dolly", "sft_tokens --partition chats", "sft_packed")
    assert commands(shown) == [f"dagster asset materialize --select {each}" for each in arguments]


def test_a_store_that_cannot_be_judged(mine: Any, run: Any) -> None:
    path = mine.configs / "rl.yaml"
    path.write_text(path.read_text("utf-8").replace("gsm8k.jsonl", "gone.jsonl"), "utf-8")
    result = run("status")
    found = states(result.stdout)
    assert result.exit_code == 1
    assert found["rl_raw", "gsm8k"] == "broken" and "there is no file" in result.stdout
    assert found["sft_packed", ""] == "current"


def test_a_family_without_configuration_is_named(mine: Any, run: Any) -> None:
    (mine.configs / "rl.yaml").unlink()
    result = run("status")
    assert result.exit_code == 0
    assert "rl.yaml" in result.stdout
    assert not any(asset.startswith("rl_") for asset, _ in states(result.stdout))
