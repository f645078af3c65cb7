"""`prep-assets build`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.extensions.start.command import NEXT
from prep_assets.graph.graph import CHECKS, run_check
from prep_assets.pipeline.asset import Check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version_folders import Published
from prep_assets.training import DatasetFactory
from prep_assets_tests.cli.conftest import CONFIGS, Run
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS, build, checks_of, domain, jsonl, minimal, workspace_in
from prep_assets_tests.stores.payload import list_payload


def marks(output: str) -> list[str]:
    return [line.split(":")[0] for line in output.splitlines() if line[:1] in "✓✗-"]


def test_a_line_for_each_store_with_its_figures(empty: Any, run: Any) -> None:
    result = run("build", "sft_packed")
    assert result.exit_code == 0, result.output
    names = ("sft_raw[dolly]", "sft_tokens[dolly]", "sft_raw[chats]", "sft_tokens[chats]", "sft_packed")
    assert marks(result.stdout) == [f"✓ {name}" for name in names]
    counts = empty.published("sft_tokens", "dolly").manifest.counts
    assert (
        f"{counts['kept']:,} records, {counts['tokens']:,} tokens, {sum(counts['refused'].values())} refused, {len(checks_of('sft_tokens'))} checks hold"
        in result.stdout
    )


def test_all(empty: Any, run: Any) -> None:
    assert run("build", "--all").exit_code == 0
    for asset in SHIPPED_ASSETS.values():
        assert all(empty.published(asset.name, each) for each in asset.partitions(empty))
    assert all(line.endswith("nothing to do") for line in run("build", "--all").stdout.splitlines())


def test_a_plan_says_what_changes_what_follows_and_what_the_last_build_took(
    mine: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And exits with code 2 where that is asked for and something would be built."""
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    path = mine.configs / "sft.yaml"
    configured = path.read_text("utf-8")
    path.write_text(f"{configured}\nmask: {{system: mask, user: mask, assistant: train, completion: train}}\n", "utf-8")
    run("build", "sft_packed")
    plan = ("build", "sft_tokens", "-p", "dolly", "--dry-run")
    assert run(*plan, "--exit-code").exit_code == 0
    path.write_text(path.read_text("utf-8").replace("user: mask", "user: train"), "utf-8")
    result = run(*plan, "--json", "--exit-code")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    [step] = told["stores"]
    counts = mine.built("sft_tokens", "dolly").manifest.counts
    assert 0 < step.pop("seconds") < 600 and step.pop("holds") == {
        name: counts[name] for name in ("read", "kept", "tokens", "trained_tokens")
    }
    assert step == {
        "asset": "sft_tokens",
        "partition": "dolly",
        "state": "stale",
        "why": "changed: mask.user",
        "asked": True,
        "changes": [{"key": "mask.user", "old": '"mask"', "new": '"train"'}],
    }
    assert told["out_of_date_then"] == ["sft_packed"]
    shown = run(*plan).stdout
    assert 'mask.user: "mask" → "train"' in shown and "out of date then: sft_packed" in shown


def test_a_draft_is_left_for_review_and_accepted_as_it_is(mine: Any, run: Any) -> None:
    before = mine.built("sft_packed").version
    path = mine.configs / "sft.yaml"
    configured = path.read_text("utf-8")
    path.write_text(configured.replace("row_len: 256", "row_len: 128"), "utf-8")
    result = run("build", "sft_packed", "--review")
    assert result.exit_code == 0 and "sft_packed: a draft in" in result.stdout and "prep-assets accept" in result.stdout
    draft = mine.place("sft_packed").draft()
    assert (mine.built("sft_packed").version, mine.built("sft_packed").version != draft.version) == (before, True)
    assert "there is a draft" in run("status").stdout
    path.write_text(configured.replace("row_len: 256", "row_len: 64"), "utf-8")
    stale = run("accept", "sft_packed")
    assert stale.exit_code == 1 and "something changed: packing.row_len. Build it again" in stale.stderr
    path.write_text(configured.replace("row_len: 256", "row_len: 128"), "utf-8")
    assert run("accept", "sft_packed").stdout == f"sft_packed: {draft.version} is current now\n"
    assert mine.built("sft_packed").version == draft.version and mine.place("sft_packed").draft() is None
    assert run("build", "sft_packed").stdout == "✓ sft_packed is up to date: nothing to do\n"
    again = run("accept", "sft_packed")
    assert again.exit_code == 1 and "sft_packed has no draft" in again.stderr


def test_a_damaged_draft_is_not_accepted(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 256", "row_len: 128"), "utf-8")
    run("build", "sft_packed", "--review")
    draft = mine.place("sft_packed").draft()
    name = max(draft.manifest.files, key=lambda each: draft.manifest.files[each]["bytes"])
    file = draft.directory / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    result = run("accept", "sft_packed")
    assert result.exit_code == 1 and name in result.stderr
    assert mine.built("sft_packed").version != draft.version


def test_a_draft_of_a_draft_is_an_error(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8") + "\nmask: {user: train}\n", "utf-8")
    result = run("build", "sft_tokens", "sft_packed", "--review")
    assert result.exit_code == 1 and "is made from sft_tokens[" in result.stderr and "both cannot be drafts" in result.stderr


def test_stores_as_json_with_nothing_else_on_stdout(mine: Any, run: Any) -> None:
    [store] = json.loads(run("build", "sft_packed", "--force", "--json").stdout)
    assert store["path"] == str(mine.place("sft_packed").current().directory)
    assert (store["reused"], store["draft"], store["overrides"]) == (False, False, [])


def test_a_failed_check_ends_with_the_reason_and_exit_code_1(empty: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(check: Check, workspace: Workspace, published: Published) -> Verdict:
        failing = (check.name, published.manifest.partition) == ("mask_alignment", "dolly")
        return Verdict(False, "row 7 trains the prompt") if failing else run_check(check, workspace, published)

    monkeypatch.setattr("prep_assets.engine.execute.run_check", verdict)
    result = run("build", "sft_packed")
    assert result.exit_code == 1
    assert "✗ sft_tokens[dolly] mask_alignment" in result.stdout
    assert "- sft_packed is not built, because sft_tokens[dolly] is not" in result.stdout
    assert result.stderr.rstrip().endswith("mask_alignment: row 7 trains the prompt\n  so not built: sft_packed")
    assert not empty.published("sft_tokens", "dolly") and empty.published("sft_tokens", "chats")


def test_a_draft_is_published_where_that_is_asked_for(mine: Any, run: Any) -> None:
    assert run("build", "sft_packed", "--set", "packing.row_len=128", "--publish").exit_code == 0
    shown = run("status")
    assert shown.exit_code == 0 and "current (overridden: packing.row_len)" in shown.stdout
    path = run("path", "sft_packed")
    assert path.exit_code == 0 and "it has options of one run: packing.row_len" in path.stderr


# -- `prep-assets demo`: it builds when it must, shows what there is, and says why where it cannot ---------------------------------------


def test_nothing_to_do(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the table is current, nothing may be written")

    monkeypatch.setattr("prep_assets.stores.published.Place.propose", forbidden)
    result = run("demo")
    assert result.exit_code == 0
    assert "sft_packed is up to date: nothing to do" in result.stdout
    manifest = built.published("sft_packed").manifest
    for figure in (manifest.counts["tokens"], manifest.counts["trained_tokens"]):
        assert f"{figure:,}" in result.stdout
    assert f"chats {manifest.metrics['share_chats']:.1%}, dolly {manifest.metrics['share_dolly']:.1%}" in result.stdout
    refused = sum(sum(built.published("sft_tokens", each).manifest.counts["refused"].values()) for each in ("dolly", "chats"))
    assert f"{refused} records (tokenize/too_long {refused})" in result.stdout
    assert all(command in result.stdout for command, _ in NEXT)
    assert "sft_packed row 0 of" in result.stdout and "⟦" in result.stdout


def test_builds_what_is_missing(empty: Any, run: Any) -> None:
    result = run("demo")
    assert result.exit_code == 0, result.output
    shown = [line.split(":")[0] for line in result.stdout.splitlines() if line.startswith("✓")]
    assert shown == [f"✓ {name}" for name in ("sft_raw[dolly]", "sft_tokens[dolly]", "sft_raw[chats]", "sft_tokens[chats]", "sft_packed")]
    assert empty.published("sft_packed") is not None and "fill rate" in result.stdout


def test_why_it_cannot_be_built_is_the_last_that_is_said(empty: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: Any, **__: Any) -> Any:
        raise PermissionError("the samples are locked")

    monkeypatch.setattr("prep_assets.graph.raw.read_blocks", locked)
    result = run("demo")
    assert result.exit_code == 1
    assert "PermissionError: the samples are locked" in result.stderr
    assert "fill rate" not in result.stdout


# -- `prep-assets verify`: sound stores pass, damaged ones fail and are named ------------------------------------------------------------


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

    monkeypatch.setattr("prep_assets.graph.graph.store_of", broken)
    result = run("verify", "sft_packed")
    assert result.exit_code == 1
    assert "could not be carried out (RuntimeError: wrong local heap signature)" in result.stdout


# -- `prep-assets doctor` ----------------------------------------------------------------------------------------------------------------


ASKED = ("doctor", "--dataset", CONFIGS / "samples" / "chats.jsonl", "--tokenizer", CONFIGS / "tokenizer", "-n", 20)


def test_json(run: Run) -> None:
    found = run(*ASKED, "--trainer", "open-instruct", "--json", "--show", 0)
    said = json.loads(found.stdout)
    assert (said["compared"], said["equal"], said["shown"], found.exit_code) == (20, 0, [], 1)
    assert {each["trained_by"] for each in said["reasons"]} == {"theirs"}


def test_bad_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n', "utf-8")
    found = run("doctor", "--trainer", "verl", "--tokenizer", CONFIGS / "tokenizer", "--dataset", tmp_path / "a.jsonl")
    assert (found.exit_code, "no schema reads" in found.stderr) == (1, True)


def test_code_that_comes_with_a_tokenizer_is_neither_run_nor_asked_about(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asked on the terminal, and `yes |` ran the folder's Python."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder = tmp_path / "tokenizer"
    shutil.copytree(CONFIGS / "tokenizer", folder)
    path = folder / "tokenizer_config.json"
    about = json.loads(path.read_text("utf-8")) if path.exists() else {}
    about |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    path.write_text(json.dumps(about), "utf-8")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", "utf-8")
    found = run("doctor", "--trainer", "openrlhf", "--dataset", CONFIGS / "samples" / "chats.jsonl", "--tokenizer", folder, "-n", 2)
    assert "is never run" in found.stderr
    assert not (tmp_path / "ran").exists()


# -- the commands on a store of scored groups --------------------------------------------------------------------------------------------


ROWS = [
    {"prompt": "What is 1 + 2?", "responses": ["3", "It is four."], "rewards": [1.0, -0.25]},
    {"prompt": "What is 3 + 2?", "responses": ["5"], "rewards": [0.125]},
]


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = workspace_in(tmp_path, minimal("rl", {"scored": domain(jsonl(tmp_path / "s.jsonl", ROWS), "group")}))
    build(made, "rl_raw", "scored")
    build(made, "rl_groups")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(made.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(made.stores))
    monkeypatch.setenv("COLUMNS", "200")
    return made


def test_inspect_shows_the_prompt_and_each_response_with_its_reward(scored: Workspace, run: Run) -> None:
    said = run("inspect", "rl_groups").stdout
    assert "rl_groups train group 0 of 2: a prompt of 14 tokens, 2 responses, from scored/s.jsonl:1" in said
    assert "│ response 0, reward 1\n⟦3<|im_end|>⟧" in said
    assert "│ response 1, reward -0.25\n⟦It is four.<|im_end|>⟧" in said
    assert said.rstrip().endswith("2 responses")


def test_export_and_how_to_open_it(scored: Workspace, run: Run, tmp_path: Path) -> None:
    said = run("export", "rl_groups", "-t", "astrai", "-o", str(tmp_path / "out")).stdout
    assert f'DatasetFactory.load("grpo", "{tmp_path}/out")' in said
    assert len(DatasetFactory.load("grpo", tmp_path / "out")) == 2
    assert 'dataset[0]["responses"]' in run("export", "rl_groups", "-t", "hf_arrow", "-o", str(tmp_path / "hf")).stdout
    assert "takes" in run("export", "--list").stdout and "groups" in run("export", "--list").stdout
    assert run("export", "rl_groups", "-t", "mds", "-o", str(tmp_path / "no")).exit_code == 1


def test_a_new_folder_of_stores_is_named(mine: Any, run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk may not be mounted."""
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(tmp_path / "disk" / "stores"))
    assert "disk/stores is new: stores are written there" in run("build", "sft_raw").stderr
    assert "is new" not in run("build", "sft_raw").stderr


def test_answers_behind_a_prompt_that_no_server_sends_are_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [
        {"role": role, "content": text} for role, text in (("user", "2 + 2?"), ("assistant", "4"), ("user", "3 + 3?"), ("assistant", "6"))
    ]
    rows = domain(jsonl(tmp_path / "chats.jsonl", [{"messages": rounds}]), "messages")
    options = {"template": "qwen3", "template_options": {"enable_thinking": False}}
    for expand, lines in (("none", 1), ("turns", 0)):
        made = workspace_in(tmp_path / expand, minimal("sft", {"chats": rows}, expand=expand, **options))
        monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(made.configs))
        monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(made.stores))
        shown = run("build", "sft_tokens").output, run("inspect", "sft_tokens", "--partition", "chats").output
        assert [text.count("1 trained answer ") for text in shown] == [lines, lines]
        assert [text.count("behind a prompt that no server sends") for text in shown] == [lines, lines]
