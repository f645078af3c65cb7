"""What a package adds by entry points: ``examples/plugin`` is installed, built with, changed and broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from prep_assets import plugins
from prep_assets.checks import registry
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.registry import exporter, exports
from prep_assets.extensions.quality.steps import quality_step, quality_steps
from prep_assets.graph import graph
from prep_assets.pipeline.asset import Check
from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.table import LINES
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, blocks

PLUGIN = ROOT / "examples" / "plugin"
TERMS = [("loss mask", "which tokens are trained"), ("span", "the characters of a region"), ("PIN", "THE HASHES OF THE FILES")]
GLOSSARY = """
domains: {words: {files: [terms.jsonl], schema: term, options: {question: "{}"}}}
exports: {sheet: {from: glossary, to: tsv, options: {header: false}}}
"""
SFT = """
tokenizer: tokenizer
template: chatml
domains: {words: {files: [terms.jsonl], schema: term}}
quality: {steps: {no_capitals: {most: 0.3}}}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the example, and a configuration that uses it beside them."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder / "site"))
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, str(source)], check=True)
    shutil.copytree(ROOT / "configs" / "tokenizer", folder / "configs" / "tokenizer")
    rows = [{"term": term, "meaning": meaning} for term, meaning in TERMS]
    (folder / "configs" / "terms.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    (folder / "configs" / "glossary.yaml").write_text(GLOSSARY, "utf-8")
    (folder / "configs" / "sft.yaml").write_text(SFT, "utf-8")
    return folder


def python(folder: Path, *arguments: str, code: int = 0) -> str:
    """What Python prints, with the folder's packages, configuration and stores."""
    paths = {"PYTHONPATH": str(folder / "site"), "PREP_ASSETS_CONFIG_DIR": str(folder / "configs")}
    environment = {**os.environ, **paths, "PREP_ASSETS_STORE_DIR": str(folder / "stores"), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout + done.stderr


def command(folder: Path, *arguments: str, code: int = 0) -> str:
    return python(folder, "-m", "prep_assets.cli.main", *arguments, code=code)


ALL = """
import json, sys
import dagster as dg
from typer.testing import CliRunner
from prep_assets.cli.main import app
for line in sys.argv[1:]:
    result = CliRunner().invoke(app, line.split())
    print(json.dumps([result.exit_code, result.output]))
from prep_assets.definitions import defs
graph = defs.resolve_asset_graph()
checks = [key.name for key in graph.asset_check_keys if key.asset_key == dg.AssetKey("sft_tokens")]
print(json.dumps([[key.to_user_string() for key in graph.get_all_asset_keys()], checks]))
"""


@pytest.mark.cli
def test_all_six_are_found_and_used(installed: Path) -> None:
    asked = [
        "build --all",
        "terms",
        "terms --help",
        "--help",
        "verify sft_tokens --json",
        "selftest sft_tokens --json",
        "json-schema glossary",
    ]
    *results, (keys, checks) = map(json.loads, python(installed, "-c", ALL, *asked).splitlines())
    assert [code for code, _ in results] == [0] * len(asked), results
    built, terms, help_of_terms, commands, verified, selftest, described = (said for _, said in results)
    assert "sft_tokens[words]: built" in built and "2 records" in built and "1 refused" in built
    stores = installed / "stores"
    lines = (stores / "glossary" / "words" / "current" / "glossary.jsonl").read_text("utf-8").splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == TERMS
    sheet = (stores / "glossary_export_sheet" / "words" / "current" / "terms.tsv").read_text("utf-8")
    assert sheet.splitlines() == [f"{term}\t{meaning}" for term, meaning in TERMS]
    assert terms.splitlines() == [f"words: {term}" for term, _ in TERMS]
    assert "List the terms" in help_of_terms and "From prep-assets-example 1.0." in commands
    assert "2 of 2 records train a token" in verified
    [tried] = [trial for trial in json.loads(selftest)["sft_tokens[words]"] if trial["mutation"] == "nothing is trained"]
    assert tried["check"] == "trains_something" and tried["caught"] == tried["tried"] == 2
    assert {"glossary", "glossary_raw", "glossary_export_sheet"} <= {*keys} and "trains_something" in checks
    assert '"glossary"' in described


RECIPES = """
import json, sys
from pathlib import Path
from prep_assets.graph import graph
from prep_assets.pipeline.workspace import Workspace

def recipes():
    graph.EVERY, workspace = graph._declared(), Workspace.open()
    return {name: asset.recipe(workspace, asset.partitions(workspace)[0]) for name, asset in graph.assets_of(workspace).items()}

before, changed = recipes(), {}
for path in sorted(Path(sys.argv[1]).glob("[!_]*.py")):
    source = path.read_text("utf-8")
    path.write_text(source + "\\n# another line\\n", "utf-8")
    changed[path.stem] = sorted(name for name, recipe in recipes().items() if recipe != before[name])
    path.write_text(source, "utf-8")
print(json.dumps([before, changed]))
"""
DECIDES = {
    "check": ["sft_tokens"],
    "command": [],
    "export": ["glossary_export_sheet"],
    "family": ["glossary", "glossary_raw"],
    "schema": ["glossary", "sft_quality", "sft_tokens"],
    "step": ["sft_quality"],
}
"""Module of the example → the assets whose recipes hold its code."""


@pytest.mark.cli
def test_a_changed_part_makes_stale_what_it_decides(installed: Path) -> None:
    before, changed = json.loads(python(installed, "-c", RECIPES, str(installed / "site" / "prep_assets_example")))
    assert changed == DECIDES
    assert all("prep-assets-example 1.0 " in json.dumps(before[name]) for names in DECIDES.values() for name in names)


STATUS = """
import json, sys
from pathlib import Path
from typer.testing import CliRunner
from prep_assets.cli.main import app
for files in json.loads(sys.argv[1]):
    for name, text in files.items():
        Path("configs", name).write_text(text, "utf-8")
    result = CliRunner().invoke(app, ["status"])
    print(json.dumps([result.exit_code, result.output]))
"""


@pytest.mark.cli
def test_a_family_without_verdicts_says_so(installed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(installed, tmp_path / "copy", ignore=shutil.ignore_patterns("stores", "sft.yaml"))
    glossary = folder / "configs" / "glossary.yaml"
    text = glossary.read_text("utf-8")
    written = [
        {"glossary.yaml": f"{text}quality: {{steps: {{no_capitals: {{}}}}}}\n"},
        {"glossary.yaml": text, "eval.yaml": "domains: {words: {files: [terms.jsonl], schema: term}}\n"},
    ]
    (steps, steps_said), (held_out, held_out_said) = map(json.loads, python(folder, "-c", STATUS, json.dumps(written)).splitlines())
    assert steps == 1 and "the family has no asset glossary_quality" in steps_said
    assert held_out == 1 and "nothing searches it for what eval.yaml holds out" in held_out_said


@pytest.mark.cli
def test_a_broken_package_is_named_with_the_remedy(installed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(installed, tmp_path / "copy", ignore=shutil.ignore_patterns("stores"))
    (folder / "site" / "prep_assets_example" / "schema.py").write_text("import no_such_package\n", "utf-8")
    said = " ".join(command(folder, "status", code=1).split())
    assert (
        "the package prep-assets-example 1.0 cannot be used: its entry point example = 'prep_assets_example.schema' of prep_assets.schemas"
        in said
    )
    assert "No module named 'no_such_package'" in said and "pip uninstall prep-assets-example" in said
    assert "prep-assets" in command(folder, "--version")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path for packages of a test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._others.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    plugins._others.cache_clear()


def package(folder: Path, name: str, group: str, line: str) -> None:
    """Install a package that has nothing but an entry point."""
    info = folder / f"{name}-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[prep_assets.{group}]\n{line}\n", "utf-8")


def test_two_packages_with_one_name_are_an_error(packages: Path) -> None:
    package(packages, "acme", "families", "logs = json")
    assert list(FAMILIES) == [*plugins.ours("families"), "logs"] and len(FAMILIES) == len(plugins.ours("families")) + 1
    with pytest.raises(ConfigError, match=r"acme 2\.0: json, an entry point of prep_assets\.families, has no CONFIG"):
        FAMILIES["logs"]
    package(packages, "other", "families", "logs = json")
    plugins._others.cache_clear()
    with pytest.raises(ConfigError, match=r"(acme|other) 2\.0 and (acme|other) 2\.0 both add 'logs' to prep_assets\.families"):
        plugins.added("families", plugins.ours("families"))


def test_a_name_of_ours_is_taken(packages: Path) -> None:
    package(packages, "acme", "commands", "status = json:dumps")
    with pytest.raises(ConfigError, match=r"prep-assets and acme 2\.0 both add 'status' to prep_assets\.commands"):
        plugins.added("commands", plugins.ours("commands"))


def other_module(function: object) -> object:
    function.__module__ = "acme.exports"  # type: ignore[attr-defined]
    return function


def test_what_is_registered_twice_is_an_error() -> None:
    assert "mds" in exports() and "gopher_quality" in quality_steps()
    with pytest.raises(
        ConfigError, match=r"export format 'mds' is registered twice: by prep_assets\.extensions\.exports\.token_files and by acme\.exports"
    ):
        exporter("mds", LINES, read_by="", opens={})(other_module(lambda source, out, progress: None))  # type: ignore[arg-type,type-var]
    with pytest.raises(ConfigError, match=r"quality step 'gopher_quality' is registered twice"):
        quality_step("gopher_quality", source="", corrupted=([], ""))(other_module(lambda: None))  # type: ignore[arg-type,type-var]


def nothing(rows: object) -> Verdict:
    return Verdict(True, "", {})


def test_a_check_needs_its_corruptions() -> None:
    for mutations in ([], [Mutation("a", "another", lambda rows, at: rows)]):
        with pytest.raises(ConfigError, match="check 'nothing' needs mutations with caught_by='nothing'"):
            registry.check("sft_tokens", rows=lambda store: [], mutations=mutations)(nothing)


@pytest.mark.parametrize(
    ("asset", "name", "fault"),
    [
        ("sft_tokenz", "new", "checks new: no asset 'sft_tokenz'; did you mean 'sft_tokens'"),
        ("sft_tokens", "accounting", "sft_tokens has a check 'accounting' already; acme cannot add another"),
    ],
)
def test_a_check_of_nothing_or_taken_is_an_error(asset: str, name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ADDED", {asset: {Check(name, "", lambda store: nothing(store)): "acme"}})
    registry.added_checks.cache_clear()
    with pytest.raises(ConfigError, match=fault):
        graph._declared()
    registry.added_checks.cache_clear()


# Our own parts.


def test_every_file_that_registers_something_is_an_entry_point() -> None:
    for group, decorator in {"schemas": "@schema(", "exports": "@exporter(", "steps": "@quality_step("}.items():
        files = [path for path in (ROOT / "prep_assets").rglob("*.py") if f"\n{decorator}" in path.read_text("utf-8")]
        modules = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in files)
        assert sorted(entry.value for entry in plugins.ours(group).values()) == sorted(modules)
    assert [*FAMILIES] == [*plugins.ours("families")]


def test_the_metadata_of_a_wheel_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("hatchling.build")
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))) as wheel:
        wheel.extractall(tmp_path, [name for name in wheel.namelist() if ".dist-info/" in name])
    expected = {(entry.group, entry.name, entry.value) for entry in plugins._ours()}
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "__file__", str(tmp_path / "prep_assets" / "plugins.py"))
    found = plugins._ours.__wrapped__()
    assert {(entry.group, entry.name, entry.value) for entry in found if entry.group != "console_scripts"} == expected


def test_metadata_that_are_missing_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "__file__", str(tmp_path / "prep_assets" / "plugins.py"))
    monkeypatch.setattr(plugins, "PACKAGE", "no-such-package")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "of-somebody-who-copied-the-folder"\n', "utf-8")
    with pytest.raises(ConfigError, match="pip install --force-reinstall"):
        plugins._ours.__wrapped__()


def test_entry_points_of_this_package_raise_as_they_are() -> None:
    with pytest.raises(ModuleNotFoundError):
        plugins.load(EntryPoint("x", "prep_assets.no_such_module", "prep_assets.schemas"))


def test_the_page_shows_the_example() -> None:
    files = [path.read_text("utf-8") for path in sorted((PLUGIN / "prep_assets_example").glob("*.py"))]
    shown = blocks(DOCS / "extending.md", "python")
    assert len(shown) == 6 and [block for block in shown if not any(block.strip() in file for file in files)] == []
    assert all(block in (PLUGIN / "pyproject.toml").read_text("utf-8") for block in blocks(DOCS / "extending.md", "toml"))
