"""The page on neighbours: its commands run, its Python prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.neighbours.description import Description
from prep_assets.neighbours.hub import release_of, write_release
from prep_assets_tests.docs.pages import DOCS, blocks, read
from prep_assets_tests.docs.test_snippets import BLOCK, PRINTED
from prep_assets_tests.docs.test_snippets import run as printed
from prep_assets_tests.exports.readers import reader
from prep_assets_tests.neighbours.fake_hub import FakeHub
from prep_assets_tests.neighbours.test_hub import run

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
