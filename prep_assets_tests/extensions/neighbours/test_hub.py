"""Releases: what a folder and a repository hold, and what is never uploaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.errors import ConfigError, SourceUnavailable, StoreError
from prep_assets.extensions.neighbours.description import Description
from prep_assets.extensions.neighbours.hub import licence_of, push, release_in, release_of, write_release
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import MANIFEST, Manifest, file_hash
from prep_assets_tests.docs.pages import DOCS, blocks, read
from prep_assets_tests.docs.test_snippets import BLOCK, PRINTED
from prep_assets_tests.docs.test_snippets import run as printed
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.extensions.neighbours.fake_hub import FakeHub, Repository


def run(workspace: Workspace, *words: Any) -> Result:
    environment = {"PREP_ASSETS_CONFIG_DIR": str(workspace.configs), "PREP_ASSETS_STORE_DIR": str(workspace.stores), "COLUMNS": "160"}
    return CliRunner(env=environment).invoke(app, [str(word) for word in words])


def holds(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_repository_holds_what_a_folder_holds(built: Workspace, hub: FakeHub, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(built, "release", "sft_export_hub", out).exit_code == 0
    done = run(built, "push", "sft_export_hub", "me/data", "--private")
    assert done.exit_code == 0, done.output
    repository = hub.repositories["me/data"]
    assert repository.private
    assert {**holds(out), ".gitattributes": b""} == repository.files
    assert "Bearer hf_averysecrettoken" in hub.tokens
    assert "hf_" not in done.output.replace("hf_parquet", "")
    listed = Manifest.read(out).files
    assert {name: file_hash(out / name) for name in listed} == {name: entry["sha256"] for name, entry in listed.items()}
    assert set(holds(out)) == {*listed, "README.md", "croissant.json", MANIFEST}


def test_an_edited_card_is_pushed_and_an_edited_file_is_not(built: Workspace, hub: FakeHub, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_release(release_of(built, "preferences"), out)
    (out / "README.md").write_text((out / "README.md").read_text("utf-8") + "\nMore words.\n", "utf-8")
    push(release_in(out), "me/data")
    assert hub.repositories["me/data"].files["README.md"].endswith(b"More words.\n")
    with (out / "preferences.jsonl").open("a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(StoreError, match=r"preferences\.jsonl: [\d,]+ bytes, the manifest says"):
        release_in(out)
    said = run(built, "push", out, "me/data")
    assert said.exit_code == 1
    assert "is not what its manifest says" in said.output
    assert len(hub.repositories["me/data"].commits) == 1


def test_a_foreign_file_or_a_missing_card_is_no_release(built: Workspace, tmp_path: Path) -> None:
    write_release(release_of(built, "preferences"), tmp_path / "out")
    (tmp_path / "out" / "secret.txt").write_text("x", "utf-8")
    (tmp_path / "out" / "README.md").unlink()
    with pytest.raises(StoreError, match=r"README\.md: missing\n  secret\.txt: not in the manifest"):
        release_in(tmp_path / "out")


def test_a_file_that_changes_between_the_look_and_the_upload(mine: Workspace, hub: FakeHub) -> None:
    release = release_of(mine, "preferences")
    path = release.files["preferences.jsonl"]
    assert isinstance(path, Path)
    path.write_bytes(path.read_bytes().replace(b"a", b"b"))
    with pytest.raises(StoreError, match=r"preferences\.jsonl is not what the manifest says\. Nothing was uploaded"):
        push(release, "me/data")
    assert hub.repositories == {}


def test_a_second_push_takes_away_what_the_first_left(built: Workspace, hub: FakeHub) -> None:
    push(release_of(built, "sft_export_hub"), "me/data")
    repository = hub.repositories["me/data"]
    repository.files["notes.md"] = b"a colleague's"
    done = push(release_of(built, "preferences"), "me/data")
    assert [name for name in done.removed if name.endswith(".parquet")] == [f"data/train-0000{n}-of-00002.parquet" for n in range(2)]
    assert set(repository.files) == {*release_of(built, "preferences").files, "notes.md", ".gitattributes"}
    first, second = (commit["parentCommit"] for commit in repository.commits)
    assert first == "0" * 40 != second


def test_a_repository_that_somebody_changes_meanwhile(built: Workspace, hub: FakeHub) -> None:
    def change(repository: Repository) -> None:
        repository.files["late.txt"] = b"x"
        repository.advance()

    hub.before_commit = change
    with pytest.raises(StoreError, match="me/data was changed by somebody else meanwhile"):
        push(release_of(built, "preferences"), "me/data")
    assert set(hub.repositories["me/data"].files) == {".gitattributes", "late.txt"}


@pytest.mark.parametrize("content", [{"weights.bin": b"x"}, {"manifest.json": b"{}", "index.html": b"x"}])
def test_a_repository_that_holds_something_else(built: Workspace, hub: FakeHub, content: dict[str, bytes]) -> None:
    hub.repositories["me/data"] = Repository(False, files=dict(content))
    with pytest.raises(ConfigError, match="that no push put there, for"):
        push(release_of(built, "preferences"), "me/data")
    assert hub.repositories["me/data"].files == content


def test_private_is_not_a_wish(built: Workspace, hub: FakeHub) -> None:
    hub.repositories["me/data"] = Repository(False)
    with pytest.raises(ConfigError, match="me/data is public already"):
        push(release_of(built, "preferences"), "me/data", private=True)
    assert hub.repositories["me/data"].commits == []


def test_a_hub_that_says_no_is_told_without_the_token(built: Workspace, hub: FakeHub) -> None:
    hub.refuse = 403
    with pytest.raises(SourceUnavailable, match=r"me/data: .*403") as caught:
        push(release_of(built, "preferences"), "me/data")
    assert "averysecret" not in str(caught.value)
    with pytest.raises(ConfigError, match="is not the name of a data set on the Hub"):
        push(release_of(built, "preferences"), "a/b/c")


def test_a_hub_that_is_not_there(built: Workspace, hub: FakeHub) -> None:
    from huggingface_hub import HfApi

    with pytest.raises(SourceUnavailable, match=r"me/data: .*Look at the name, the network and the token"):
        push(release_of(built, "preferences"), "me/data", api=HfApi(endpoint="http://127.0.0.1:9"))


def test_a_dry_run_lists_and_asks_nobody(built: Workspace, hub: FakeHub) -> None:
    shown = run(built, "push", "sft_export_hub", "me/data", "--dry-run")
    assert shown.exit_code == 0
    assert [name for name in release_of(built, "sft_export_hub").files if name not in shown.output] == []
    assert "licence: cc-by-4.0" in shown.output
    assert hub.tokens == set()


def test_without_a_licence_nothing_is_pushed_unless_one_says_so(built: Workspace, hub: FakeHub) -> None:
    assert licence_of(release_of(built, "preferences")) == "apache-2.0"
    assert licence_of(release_of(built, "rl_prompts")) == "unknown"
    refused = run(built, "push", "rl_prompts", "me/data")
    assert refused.exit_code == 1
    assert "the licence is unknown" in refused.output
    assert hub.tokens == set()
    assert run(built, "push", "rl_prompts", "me/data", "--unknown-licence").exit_code == 0


def test_a_store_that_others_cannot_read(built: Workspace, tmp_path: Path) -> None:
    said = run(built, "release", "sft_packed", tmp_path / "out")
    assert said.exit_code == 1
    assert "exports: {hub: {from: sft_packed, to: hf_parquet}}" in said.output
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(built: Workspace, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x", "utf-8")
    assert "is not empty" in run(built, "release", "preferences", tmp_path).output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_equal_stores_give_equal_releases(built: Workspace, mine: Workspace) -> None:
    first, second = (release_of(workspace, "rl_prompts") for workspace in (built, mine))
    assert {name: first.content(name) for name in first.files} == {name: second.content(name) for name in second.files}
    assert str(built.configs.parent) not in "".join(first.content(name).decode("utf-8", "ignore") for name in first.files)
    json.loads(first.content("croissant.json"))


# -- the page on neighbours: its commands run, its Python prints what it says ------------------------------------------------------------


PAGE = DOCS / "neighbours.md"
COMMANDS = [
    line.removeprefix("$ prep-assets ") for block in blocks(PAGE, "console") for line in block.splitlines() if line.startswith("$ ")
]


def test_the_commands_run(built: Workspace, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {command.split()[0] for command in COMMANDS} == {"build", "describe", "release", "push"}
    for command in COMMANDS:
        done = run(built, *command.split())
        assert done.exit_code == 0, command + done.output
    assert set(hub.repositories) == {"me/sft-packed"}


@pytest.mark.readers
def test_the_lines_for_other_packages_run(
    built: Workspace, said: dict[str, Description], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mlcroissant", "openlineage.client", "mlflow", "wandb"):
        reader(name)
    where = {
        "WANDB_DIR": tmp_path,
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
    }
    where |= {"OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": tmp_path / "events"}
    for name, value in where.items():
        monkeypatch.setenv(name, str(value))
    data_in(tmp_path, built, monkeypatch)
    write_release(release_of(built, "sft_export_hub"), tmp_path / "out" / "sft")
    names: dict[str, object] = {"said": said["sft_packed"]}
    lines = [block for block in blocks(PAGE, "text") if "import" in block]
    for block in lines:
        exec(compile(block, "<page>", "exec"), names)
    assert len(lines) == 4
    assert len(list(names["rows"])) == said["sft_export_hub"].counts["rows"]  # type: ignore[call-overload]
    assert list(tmp_path.glob("events*"))


def test_the_python_runs(built: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_in(tmp_path, built, monkeypatch)
    names: dict[str, object] = {}
    for block in BLOCK.findall(read(PAGE)):
        assert printed(block, names) == PRINTED.findall(block)


def data_in(folder: Path, built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the stores where the page has them."""
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(built.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(built.stores))
    monkeypatch.chdir(folder)
    (folder / "data").mkdir()
    (folder / "data" / "stores").symlink_to(built.stores)
