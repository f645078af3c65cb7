"""Every command line on the pages runs and prints what the page shows, or a table says what it needs that a test lacks.

A page's commands run one after the other in a copy of one workspace. Those that do not run are read by the programs that they call, so that an unknown
command, option or value fails.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.conftest import enter
from prep_assets_tests.docs.pages import DOCS, blocks, label, read
from prep_assets_tests.effort import SOAK
from prep_assets_tests.graph.workspaces import SAMPLES, domain

PAGES = [*(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted(DOCS.rglob("*.md"))]
ELSEWHERE = {
    "docs/tutorial.md": "docs/test_tutorial.py",
    "docs/two-models.md": "docs/test_tutorial.py",
    "docs/neighbours.md": "extensions/neighbours/test_hub.py",
}
"""Page → the test that runs its commands."""
NOT_RUN = {
    "pip install": "a network",
    "create-dagster": "a network",
    "cd ": "the project created before",
    "dg ": "a Dagster project: extensions/dagster/test_component.py makes one",
    "ray ": "a cluster: cluster/ starts one",
    "dagster api": "a server that goes on",
    "dagster-daemon": "a server that goes on",
    "dagster-webserver": "a server that goes on",
    "dagster sensor": "a history that lasts, and a daemon",
    "dagster schedule": "a history that lasts, and a daemon",
    "python examples/record_steps.py": "what it writes is there already",
    "python examples/recall_list.py": "a list of its own: extensions/recall/test_recall_words.py runs it",
    "prep-assets leaks --sample 50 --ask": "a person, who answers",
    "make ": "an environment of its own",
    ".venv/bin/python -m pytest": "this suite",
    "prep-assets recall 'tokenizers<0.22' --hub": "the Hub: extensions/recall/test_recall.py has its commits",
    "prep-assets push": "the Hub: extensions/neighbours/test_hub.py has one",
    "prep-assets preprocess": "files of other projects: extensions/preprocess/ has them",
    "case ": "files of other projects: extensions/preprocess/modellink/test_runs.py runs the script",
    "jq ": "a program of others",
    "prep-assets verify sft_tokens --partition dolly": "a store with a fault: cli/test_said.py makes one",
}
"""How commands begin → what they need that this test lacks."""
SLOW = (
    "dagster asset materialize",
    "prep-assets selftest",
    "prep-assets verify",
    "prep-assets certify",
    "prep-assets impact --set sft.template",
    "prep-assets forget",
    "prep-assets doctor --trainer trl",
)
"""How commands begin that only `make soak` runs."""
FAILS = {
    "docs/configuration.md": ("status",),
    "docs/doctor.md": ("doctor",),
    "docs/lineage.md": ("compare", "impact"),
    "docs/recall.md": (
        "status",
        "prep-assets recall 'tokenizers<1 and engine=auto and partition=gsm8k'",
        "prep-assets recall 'asset=sft_packed and engine=auto'",
    ),
}
"""Page → its commands, or one with its words, with exit code 1, as what they show is a fault or a difference."""
WORDS = {"DIR": "configs/tokenizer", "DOMAIN": "chats", "../main/data/stores": "main/stores"}
"""What stands for a name of the reader → one of the workspace."""


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """The command lines of a page, without comments, and the lines of output below each."""
    found = []
    for language, body in re.findall(r"^ *```(console|bash)\n(.*?)^ *```$", read(page), re.MULTILINE | re.DOTALL):
        if language == "bash":
            script = re.sub(r"\\\n *", "", body)
            lines = [script] if script.startswith("case ") else [f"$ {line}" for line in script.splitlines()]
            body = "\n".join(lines) if lines[0].startswith("$") else f"$ {script.splitlines()[0]}\n"
        for line, shown in re.findall(r"^ *\$ (.*)\n?((?:(?! *\$ ).*\n?)*)", body, re.MULTILINE):
            found += [(command.strip(), shown.splitlines()) for command in re.sub(r"\s+# .*", "", line).split(" && ")]
    return found


CASES = {label(page): commands(page) for page in PAGES if commands(page)}
EVERY = [command for found in CASES.values() for command, _ in found]


def needs(command: str) -> str:
    """What a command needs, or an empty string."""
    command = re.sub(r"^(\w+=\S+ )+", "", command)
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), "")


def missing(shown: list[str], said: str) -> list[str]:
    """Lines of a page that a command does not print, or prints before an earlier one; `…` stands for anything."""
    lines, lost = iter([" ".join(line.split()) for line in said.splitlines()]), []
    for line in shown:
        if re.fullmatch(r"[\s─]*|\s*…", line):
            continue
        pattern = ".*".join(map(re.escape, " ".join(line.split()).split("…")))
        lost += [] if any(re.fullmatch(pattern, each) for each in lines) else [line]
    return lost


def test_a_line_that_is_not_printed_or_out_of_order_is_found() -> None:
    assert missing(["a 1", "…", "b …"], "a  1\nx\nb 2\n") == []
    assert missing(["a 2"], "a 1\n") == ["a 2"]
    assert missing(["b", "a"], "a\nb\n") == ["a"]


def configure(family: str, changes: dict[str, Any]) -> None:
    """Merge options over those of a family, two levels deep."""
    path = Path("configs", f"{family}.yaml")
    options = yaml.safe_load(path.read_text("utf-8")) if path.exists() else {}
    for key, value in changes.items():
        options[key] = {**options[key], **value} if isinstance(value, dict) and key in options else value
    path.write_text(yaml.safe_dump(options), "utf-8")


def build(*words: str, stores: str = "data/stores") -> None:
    """Run a build."""
    result = CliRunner().invoke(app, ["build", *words], env={"PREP_ASSETS_STORE_DIR": stores})
    assert result.exit_code == 0, result.output


def prepare(page: str) -> None:
    """Make what the commands of a page act upon."""
    match page:
        case "README.md":
            configure("sft", {"exports": {"hub": {"from": "sft_packed", "to": "hf_parquet"}}})
        case "docs/add-a-data-set.md":
            configure("sft", {"domains": {"kitchen": domain("alpaca.json", "alpaca")}})
            build("sft_tokens", "-p", "kitchen")
        case "docs/configuration.md":
            [faulty] = [block for block in blocks(DOCS / "configuration.md", "text") if "trian" in block]
            Path("configs/sft.yaml").write_text(faulty, "utf-8")
        case "docs/cli.md":
            configure("sft", {"packing": {"row_len": 1024, "strategy": "bfd"}})
        case "docs/lineage.md":
            build("sft_tokens", "-p", "chats", "--set", "train_on_eos=last")
            shutil.copytree("data/stores", "main/stores", symlinks=True)
            build("sft_tokens", "-p", "dolly", "--set", "train_on_eos=none", "--publish", stores="main/stores")
        case "docs/quality.md":
            configure("sft", {"quality": {"steps": {"tool_calls": {"action": "note"}}}})
            configure("eval", {"domains": {"gsm8k": domain("gsm8k.jsonl", "gsm8k", max_items=9)}, "policy": "report"})
            build("sft_leaks")
        case "docs/topology.md":
            recipe = (ROOT / "configs" / "recipes" / "topology" / "sft.yaml").read_text("utf-8")
            Path("configs/sft.yaml").write_text(recipe.replace("../../", ""), "utf-8")
            shutil.rmtree("data/stores")
        case "docs/reports.md":
            subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "officer.key"], check=True)


@pytest.fixture
def folder(data_h5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory as a checkout, with `configs`, `data/stores` and a file of rows."""
    shutil.copytree(data_h5 / "data", tmp_path / "data", symlinks=True)
    enter(tmp_path, monkeypatch)
    Path("configs").symlink_to("data/configs")
    Path("configs/samples").symlink_to(SAMPLES)
    for name in ("rows.jsonl", "chats.jsonl"):
        shutil.copy(SAMPLES / "chats.jsonl", name)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in CASES if page not in ELSEWHERE])
def test_commands_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(command, shown) for command, shown in CASES[page] if not needs(command) and (SOAK or not command.startswith(SLOW))]
    if asked:
        prepare(page)
    for command, shown in asked:
        program, *words = [WORDS.get(word, word) for word in shlex.split(command)]
        if program == "export":
            continue
        if program == "dagster":
            line = [Path(sys.executable).parent / program, *words, "-m", "prep_assets.definitions"]
            done = subprocess.run(line, capture_output=True, text=True)
            status, said = done.returncode, done.stdout + done.stderr
        else:
            assert program == "prep-assets", command
            is_init = words[0] == "init"  # which gives a configuration its own stores, if the environment names none
            words += ["--out", "new"] * (is_init and "--out" not in words)
            result = CliRunner().invoke(app, words, env={"PREP_ASSETS_STORE_DIR": ""} if is_init else {})
            status, said = result.exit_code, result.output
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert status == int(not {words[0], command}.isdisjoint(FAILS.get(page, ()))), (command, said)
        assert missing(shown, said) == [], (command, said)
        if "--json" in words:
            assert json.loads(result.stdout)


def parse(command: click.Command, name: str, words: list[str], parent: click.Context | None = None) -> None:
    """Read the words of a command, and of the command in a group that they name."""
    context = command.make_context(name, list(words), parent)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        _, found, left = command.resolve_command(context, rest)
        assert found is not None and found.name is not None
        parse(found, found.name, left, context)


def group_of(program: str) -> click.Group:
    """The commands of an installed program."""
    if program == "prep-assets":
        group: Any = get_command(app)
        return group
    [found] = entry_points(group="console_scripts", name=program)
    main = found.load()
    return main if isinstance(main, click.Group) else main.__globals__["create_dagster_cli"]()


@pytest.mark.parametrize("command", dict.fromkeys(EVERY))
def test_commands_have_the_options_of_their_programs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = [word for word in shlex.split(command) if not re.match(r"\w+=", word)] or ["export"]
    monkeypatch.chdir(tmp_path)
    if program in ("prep-assets", "dagster"):
        parse(group_of(program), program, words)
    elif program == "make":
        assert subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True).returncode == 0
    elif "pytest" in words:
        assert [word for word in words if "/" in word and not (ROOT / word.partition("::")[0]).exists()] == []


@pytest.mark.parametrize("command", ["prep-assets build --al", "prep-assets biuld", "dagster asset materialise", "prep-assets trace"])
def test_a_command_that_there_is_not_is_found(command: str) -> None:
    program, *words = command.split()
    with pytest.raises(click.UsageError):
        parse(group_of(program), program, words)


def test_each_line_of_the_tables_is_of_some_command() -> None:
    assert [start for start in (*NOT_RUN, *SLOW) if not any(command.startswith(start) for command in EVERY)] == []
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / "prep_assets_tests" / test).read_text("utf-8")
