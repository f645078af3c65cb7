"""`prep-assets status`."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from prep_assets.stores.manifest import Result
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS, make


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
    # nothing is made of these; of each other asset one of them is
    assert commands(shown) == ["prep-assets build pretrain_tokens sft_template sft_packed preference_tokens rl_tokens"]


def test_a_changed_option_makes_stale_what_depends_on_it(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("max_seq_len: 80", "max_seq_len: 79"), "utf-8")
    shown = run("status").stdout
    stale = [key for key, state in states(shown).items() if state == "stale"]
    assert stale == [("sft_tokens", "dolly"), ("sft_tokens", "chats"), ("sft_packed", "")]
    assert commands(shown) == ["prep-assets build sft_packed"]


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


@pytest.mark.parametrize("command", [["status"], ["build", "--all"], ["build", "prefrence_raw"]])
def test_a_file_of_no_family_is_named(mine: Any, run: Any, command: list[str]) -> None:
    (mine.configs / "preference.yaml").rename(mine.configs / "prefrence.yaml")
    result = run(*command)
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "prefrence.yaml: there is no family 'prefrence'; did you mean 'preference'?" in said and "install the package" in said


def test_a_store_whose_checks_failed_is_not_current(mine: Any, run: Any) -> None:
    """It said current, with exit code 0, of a store whose blocking checks had just failed."""
    store = mine.published("sft_tokens", "dolly")
    mine.place("sft_tokens", "dolly").record(store, {"mask_alignment": Result(False, "row 7 trains the prompt")})
    result = run("status")
    assert result.exit_code == 1
    assert states(result.stdout)["sft_tokens", "dolly"] == "failed" and states(result.stdout)["sft_packed", ""] == "stale"
    assert "sft_tokens[dolly]: mask_alignment does not hold: row 7 trains the prompt" in result.stdout


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


# -- `prep-assets stats`: its numbers are those of the files, counted here without it ----------------------------------------------------


def refused(directory: Path) -> dict[str, int]:
    path = directory.with_name(f"{directory.name}.quarantine.jsonl")
    lines = map(json.loads, path.read_text("utf-8").splitlines()) if path.is_file() else []
    return dict(Counter(f"{line['stage']}/{line['reason']}" for line in lines))


def files(directory: Path) -> dict[str, int]:
    every = (path for path in directory.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(directory).as_posix(): path.stat().st_size for path in every}


def facts(run: Any, *words: str) -> dict[str, Any]:
    result = run("stats", *words, "--json")
    assert result.exit_code == 0
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def tokens_of(directory: Path) -> dict[str, int]:
    """What a domain's SFT store holds, from its raw bytes."""
    mask = np.fromfile(directory / "train" / "shard_0000" / "loss_mask.bin", "uint8")
    kept = len(np.load(directory / "train.index" / "ends.npy"))
    return {
        "tokens": len(mask),
        "trained_tokens": int(np.count_nonzero(mask)),
        "kept": kept,
        "read": kept + sum(refused(directory).values()),
    }


def test_every_partition_and_the_total(built: Any, run: Any) -> None:
    found = facts(run, "sft_tokens")
    directories = {name: (built.stores / "sft_tokens" / name / "current").resolve() for name in ("dolly", "chats")}
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for store in found["stores"]:
        directory = directories.pop(store["partition"])
        expected = tokens_of(directory)
        assert {key: store["counts"][key] for key in expected} == expected
        assert store["refused"] == refused(directory)
        assert {name: entry["bytes"] for name, entry in store["files"].items()} == files(directory)
        assert store["metrics"]["trained_fraction"] == expected["trained_tokens"] / expected["tokens"]
        total.update(expected)
        reasons.update(store["refused"])
    assert directories == {} and found["not_built"] == []
    assert {key: found["total"]["counts"][key] for key in total} == total
    assert found["total"]["refused"] == reasons and sum(reasons.values()) > 0
    assert found["total"]["bytes"] == sum(entry["bytes"] for store in found["stores"] for entry in store["files"].values())


def test_one_partition_in_words(built: Any, run: Any) -> None:
    shown = run("stats", "sft_tokens", "-p", "chats").stdout
    expected = tokens_of((built.stores / "sft_tokens" / "chats" / "current").resolve())
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines() if len(line.split()) == 2}
    assert {key: int(rows[key].replace(",", "")) for key in expected} == expected
    assert "sft_tokens[chats]: made from" in shown and "train/shard_0000/sequence.bin" in shown and "dolly" not in shown


def test_all_partitions_in_words(built: Any, run: Any) -> None:
    lines = run("stats", "sft_tokens").stdout.splitlines()
    heading = next(re.split(r" {2,}", line.strip()) for line in lines if line.split()[:1] == ["partition"])
    assert "trained tokens" in heading
    total = next(line.split() for line in lines if line.split()[:1] == ["total"])
    directories = [(built.stores / "sft_tokens" / name / "current").resolve() for name in ("dolly", "chats")]
    expected = sum(tokens_of(directory)["tokens"] for directory in directories)
    assert int(total[heading.index("tokens")].replace(",", "")) == expected
    assert int(total[heading.index("refused")]) == sum(sum(refused(directory).values()) for directory in directories)


def test_partitions_that_are_not_built(mine: Any, run: Any) -> None:
    (mine.stores / "sft_tokens" / "chats" / "current").unlink()
    found = facts(run, "sft_tokens")
    assert [store["partition"] for store in found["stores"]] == ["dolly"]
    assert found["not_built"] == ["sft_tokens[chats]"]


# -- `prep-assets prune`: what is used stays, what is not goes ---------------------------------------------------------------------------


def rebuilt(workspace: Any, rows: int) -> Any:
    """`sft_packed` with other rows, published; the version before it is no longer used."""
    from prep_assets.graph.graph import ASSETS

    return make(workspace.overriding("sft", {"packing": {"row_len": rows}}), ASSETS["sft_packed"], "")


def versions(workspace: Any) -> list[str]:
    return sorted(path.name for path in (workspace.place("sft_packed").directory / "versions").iterdir() if path.is_dir())


def test_old_versions_go_and_what_is_current_stays(mine: Any, run: Any) -> None:
    old = mine.published("sft_packed").directory
    (old.with_name(old.name + ".quarantine.jsonl")).write_text("{}\n")
    new = rebuilt(mine, 128)
    before = {path: path.read_bytes() for path in mine.stores.rglob("*") if path.is_file() and old.name not in path.as_posix()}
    # nobody is there to ask, so nothing goes
    asked = run("prune")
    assert asked.exit_code == 1 and "--yes" in asked.stderr and old.is_dir()
    dry = run("prune", "--dry-run")
    assert dry.exit_code == 0 and old.name in dry.stdout and "1 folder, " in dry.stdout and "would be deleted" in dry.stdout
    assert old.is_dir()
    assert "1 folder, " in run("prune", "--yes").stdout
    assert versions(mine) == [new.directory.name]
    assert {path: path.read_bytes() for path in mine.stores.rglob("*") if path.is_file()} == before
    assert mine.published("sft_packed").manifest == new.manifest
    assert "0 folders" in run("prune", "--yes").stdout


def test_a_candidate_stays(mine: Any, run: Any) -> None:
    current = mine.published("sft_packed").directory
    from prep_assets.graph.graph import ASSETS

    candidate = ASSETS["sft_packed"].build(mine.overriding("sft", {"packing": {"row_len": 128}}), "").propose()
    run("prune", "--yes")
    assert versions(mine) == sorted([current.name, candidate.directory.name])
    shown = run("status").stdout
    assert "sft_packed" in shown and "a newer store is not published, because its checks are not complete" in shown
    assert candidate.directory.name in shown


def test_only_what_is_asked_for(mine: Any, run: Any) -> None:
    rebuilt(mine, 128)
    assert "0 folders" in run("prune", "sft_raw", "--partition", "dolly").stdout
    assert len(versions(mine)) == 2
    assert run("prune", "--partition", "dolly").exit_code == 1


def test_nothing_is_deleted_without_a_yes(mine: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It deleted eight versions at once, without a question."""
    rebuilt(mine, 128)
    monkeypatch.setattr("prep_assets.extensions.keep.prune.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    answers = iter([False, True])
    monkeypatch.setattr("typer.confirm", lambda question: next(answers))
    assert run("prune").exit_code == 1 and len(versions(mine)) == 2
    assert run("prune").exit_code == 0 and len(versions(mine)) == 1


def test_what_a_removed_domain_and_a_killed_build_left_is_named_and_goes(mine: Any, run: Any) -> None:
    """They were forgotten: neither `status` nor `prune` named them."""
    path = mine.configs / "sft.yaml"
    options = yaml.safe_load(path.read_text("utf-8"))
    del options["domains"]["chats"]
    path.write_text(yaml.safe_dump(options), "utf-8")
    half = mine.place("sft_tokens", "dolly").directory / "versions" / ".writing-abc"
    half.mkdir()
    (half / "half").write_bytes(bytes(1000))
    shown = run("status").stdout
    assert "sft_tokens[chats]: not in the configuration any more" in shown and "sft_raw[chats]: not" in shown
    assert "sft_tokens[dolly]: left by a build that was killed" in shown and "1.0 kB" in shown
    result = run("prune", "--yes")
    assert "deleted only with --removed: sft_raw[chats], sft_tokens[chats]" in result.stdout
    assert not half.exists() and mine.published("sft_tokens", "chats")
    assert run("prune", "--removed", "--yes").exit_code == 0
    assert not (mine.stores / "sft_tokens" / "chats").exists() and mine.published("sft_tokens", "dolly")


# -- `prep-assets quarantine` ------------------------------------------------------------------------------------------------------------


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
    # people count from 1, the file from 0
    numbers = [int(line["id"].removeprefix("chats.jsonl:")) + 1 for line in every]
    assert headings == [
        f"sft_tokens[chats] chats.jsonl:{number}  {line['stage']}/{line['reason']}"
        for number, line in zip(numbers, every[:2], strict=False)
    ]
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
