"""The entry point: light to import, errors as messages, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from click.shell_completion import ShellComplete
from typer.core import TyperArgument, TyperOption

from prep_assets import __version__
from prep_assets.cli.main import app
from prep_assets.cli.terminal import options_of_run
from prep_assets.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("dagster", "torch", "transformers", "tokenizers", "h5py", "pyarrow", "numpy", "pydantic")


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = f"import sys, prep_assets.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_lists_every_command_in_one_panel(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = run("--help")
    assert result.exit_code == 0
    shown: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            names = shown.setdefault(title[1], [])
        elif name := re.match(r"│ ([a-z][a-z-]*)  ", line):
            names.append(name[1])
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(name for panel in shown.values() for name in panel) == sorted(commands)
    assert [title.partition(":")[0] for title in shown] == ["Options", "Every day", "Build", "Look", "Find", "Ship", "Keep"]
    assert shown["Every day"] == ["build", "accept", "status", "inspect", "verify", "report"]
    for command in commands:
        assert run(command, "--help").exit_code == 0


def completed(*words: str) -> list[str]:
    """What a shell offers for the last of some words."""
    shell = ShellComplete(typer.main.get_command(app), {}, "prep-assets", "_PREP_ASSETS_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("bui",), ["build"]),
        (("build", "sft_"), ["sft_raw", "sft_template", "sft_tokens", "sft_packed"]),
        (("build", "sft_packed", "sft_t"), ["sft_template", "sft_tokens"]),
        (("inspect", "sft_tokens", "-p", "d"), ["dolly"]),
        (("export", "sft_packed", "--to", "hf_"), ["hf_arrow", "hf_parquet"]),
        (("schemas", "dol"), ["dolly"]),
        (("launch-snippet", "--trainer", "tr"), ["trl", "train-llm-from-scratch"]),
        (("init", "--train", "pre"), ["pretrain", "preference"]),
        (("build", "--dry"), ["--dry-run"]),
    ],
)
def test_values_are_completed(built: Any, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words) == offered


def test_a_broken_configuration_completes_nothing_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sft.yaml").write_text("tokeniser: [", "utf-8")
    for folder in (tmp_path, tmp_path / "none"):
        monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(folder))
        assert completed("build", "sft_") == completed("status", "-p", "") == []
    assert capsys.readouterr() == ("", "")


def test_version(run: Any) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"prep-assets {__version__}\n")


def test_traceback_on_request(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_TRACEBACK", "1")
    result = run("path", "sft_pakced")
    assert result.exit_code == 1
    assert isinstance(result.exception, ConfigError)
    assert result.stderr == ""


def test_interrupt(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prep_assets.cli.build.one_store", interrupted)
    result = run("path", "sft_packed")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.cli
def test_own_code_is_found_in_the_working_directory_and_beside_the_configuration(tmp_path: Path) -> None:
    for folder in ("work", "project/configs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "work" / "here.py").write_text("", "utf-8")
    (tmp_path / "project" / "beside.py").write_text("", "utf-8")
    code = (
        "import sys; sys.argv = ['prep-assets', '--version']\n"
        "from prep_assets.cli import entry\n"
        "try: entry.main()\n"
        "except SystemExit: pass\n"
        "import here, beside"
    )
    environment = {**os.environ, "PREP_ASSETS_CONFIG_DIR": str(tmp_path / "project" / "configs"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path / "work", env=environment, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "families", "options"),
    [
        (["sft.packing.row_len=2048"], ["sft", "rl"], {"sft": {"packing": {"row_len": 2048}}}),
        (["packing.row_len=2048", "sft.template=chatml"], ["sft"], {"sft": {"packing": {"row_len": 2048}, "template": "chatml"}}),
    ],
)
def test_options_of_one_run(words: list[str], families: list[str], options: dict[str, Any]) -> None:
    assert options_of_run(words, families) == options


@pytest.mark.parametrize(
    ("word", "families", "message"),
    [
        ("template=chatml", ["sft", "rl"], "name the family first, e.g. sft.template=chatml. There are: sft, rl"),
        ("rl.template=chatml", ["sft"], "is of family rl, not of sft"),
        ("sft.template", ["sft"], "needs the form KEY=VALUE"),
    ],
)
def test_options_of_one_run_that_cannot_be_read(word: str, families: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        options_of_run([word], families)


WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
sys.argv = ["prep-assets", "status"]
{code}
"""


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("dagster", "import prep_assets.definitions", "dagster"),
        ("torch", "from prep_assets.training import PackedDataset", "train"),
        ("obstore", "from prep_assets.cli.entry import main; main()", "s3"),
        (
            "google",
            "from prep_assets.text.tokenizer_files import as_config_error\nwith as_config_error('x'): import google.protobuf",
            "sentencepiece",
        ),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package: str, code: str, extra: str) -> None:
    environment = {**os.environ, "PREP_ASSETS_STORE_DIR": "memory://stores"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package=package, code=code)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and f"pip install 'prep-assets[{extra}]'" in done.stderr.splitlines()[-1]


def test_newer_versions_of_typer_show_no_types_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (TyperArgument, TyperOption):
        monkeypatch.setattr(kind, "display_type_rich", lambda self, ctx: f"<{self.name}>", raising=False)
    monkeypatch.setattr(TyperArgument, "_usage_display_name", lambda self: f"[{self.metavar}]...", raising=False)
    loaded = {each.name: each for each in typer.main.get_command(app).commands["build"].load().params}  # type: ignore[attr-defined]
    assert [loaded[name].display_type_rich(None) for name in ("everything", "assets", "partition")] == [None, None, "<partition>"]
    assert loaded["assets"]._usage_display_name() == "[ASSET]..."
