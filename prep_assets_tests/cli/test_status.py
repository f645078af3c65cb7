"""`prep-assets status`."""

from __future__ import annotations

import json
from typing import Any

from prep_assets.stores.checked import Result
from prep_assets_tests.assets.workspaces import SHIPPED_ASSETS


def states(output: str) -> dict[tuple[str, str], str]:
    """State of each asset and partition, from the printed table."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if line.startswith(" ") and words and words[0] in SHIPPED_ASSETS:
            partition = words[1] if SHIPPED_ASSETS[words[0]].partitioned else ""
            found[words[0], partition] = words[2 if partition else 1]
    return found


def commands(output: str) -> list[str]:
    """The commands that are offered."""
    return [line.strip() for line in output.splitlines() if line.startswith("  prep-assets")]


def test_everything_is_current(built: Any, run: Any) -> None:
    result = run("status")
    found = states(result.stdout)
    assert result.exit_code == 0
    assert set(found) == {(asset.name, each) for asset in SHIPPED_ASSETS.values() for each in asset.partitions(built)}
    assert set(found.values()) == {"current"} and commands(result.stdout) == []
    assert f"{len(found)} current in" in result.stdout


def test_everything_is_missing(empty: Any, run: Any) -> None:
    shown = run("status").stdout
    assert set(states(shown).values()) == {"missing"}
    assert len(commands(shown)) == len(states(shown))
    assert "prep-assets build sft_tokens --partition dolly" in commands(shown)


def test_a_changed_option_makes_stale_what_depends_on_it(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("max_seq_len: 80", "max_seq_len: 79"), "utf-8")
    shown = run("status").stdout
    stale = [key for key, state in states(shown).items() if state == "stale"]
    assert stale == [("sft_tokens", "dolly"), ("sft_tokens", "chats"), ("sft_packed", "")]
    arguments = ("sft_tokens --partition dolly", "sft_tokens --partition chats", "sft_packed")
    assert commands(shown) == [f"prep-assets build {each}" for each in arguments]


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


def test_a_store_whose_checks_failed_is_not_current(mine: Any, run: Any) -> None:
    """It said current, with exit code 0, of a store whose blocking checks had just failed."""
    store = mine.published("sft_tokens", "dolly")
    mine.place("sft_tokens", "dolly").record(store, {"mask_alignment": Result(False, "row 7 trains the prompt")})
    result = run("status")
    assert result.exit_code == 1
    assert states(result.stdout)["sft_tokens", "dolly"] == "failed" and states(result.stdout)["sft_packed", ""] == "stale"
    assert "sft_tokens[dolly]: mask_alignment does not hold: row 7 trains the prompt" in result.stdout


def test_as_json(built: Any, run: Any) -> None:
    found = json.loads(run("status", "--json").stdout)
    assert {each["state"] for each in found} == {"current"}
    packed = next(each for each in found if each["asset"] == "sft_packed")
    assert packed["counts"] == built.published("sft_packed").manifest.counts


def test_verify_is_remembered(mine: Any, run: Any) -> None:
    path = next((mine.stores / "sft_tokens" / "dolly" / "current").rglob("loss_mask.bin"))
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    assert states(run("status").stdout)["sft_tokens", "dolly"] == "current"
    assert run("verify", "sft_tokens").exit_code == 1
    assert states(run("status").stdout)["sft_tokens", "dolly"] == "failed"
    assert run("build", "sft_packed").exit_code == 0
    assert states(run("status").stdout)["sft_tokens", "dolly"] == "current"
