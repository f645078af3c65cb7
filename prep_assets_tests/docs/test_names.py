"""What the pages name exists: commands and their options, assets, checks, mutations, sensors, variables."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import typer

from prep_assets.cli.main import app
from prep_assets.config.models import FAMILIES
from prep_assets.extensions.preprocess.modellink import parser
from prep_assets.graph.graph import ASSETS, CHECKS
from prep_assets_tests.cells import cells
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.docs.pages import DOCS, PAGES, code, label, read

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
VARIABLE = re.compile(r"PREP_ASSETS_[A-Z]+(?:_[A-Z]+)*")


@cells("page", PAGES, ids=label)
def test_commands_exist(page: Path) -> None:
    named = {command for text in code(page) for command in re.findall(r"\bprep-assets ([a-z]+(?:-[a-z]+)*)\b(?!\.)", text)}
    assert sorted(named - set(COMMANDS)) == []


@cells("page", PAGES, ids=label)
def test_options_of_commands_exist(page: Path) -> None:
    unknown = []
    for text in code(page):
        for command, rest in re.findall(r"^(?:\$ )?prep-assets ([a-z]+(?:-[a-z]+)*)\b([^|\n#]*)", text, re.MULTILINE):
            known = {option for parameter in COMMANDS[command].load().params for option in parameter.opts} | {"--help", "-h"}
            known |= {*parser()._option_string_actions} if command in ("preprocess", "migrate") else set()
            unknown += [f"{command} {option}" for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest) if option not in known]
    assert unknown == []


@cells("page", PAGES, ids=label)
def test_selected_assets_exist(page: Path) -> None:
    named = {name for text in code(page) for name in re.findall(r"(?:--select|--assets) '?\d*[+*]?(?:key:)?\"?([a-z_]+)", text)}
    exports = {name for name in named if re.match(f"({'|'.join(FAMILIES)})_export_", name)}
    assert sorted(named - set(ASSETS) - exports - {"group"}) == []


@cache
def variables() -> set[str]:
    """Variables of the environment that the code and its tests read."""
    sources = [*(ROOT / "prep_assets").rglob("*.py"), *(ROOT / "prep_assets_tests").rglob("*.py")]
    return {name for path in sources for name in VARIABLE.findall(path.read_text("utf-8"))}


@cells("page", PAGES, ids=label)
def test_variables_are_read_somewhere(page: Path) -> None:
    assert set(VARIABLE.findall(read(page))) <= variables()


def test_every_variable_is_in_the_reference() -> None:
    reference = set(VARIABLE.findall(read(DOCS / "configuration.md"))) | set(VARIABLE.findall(read(DOCS / "development.md")))
    used = {name for path in (ROOT / "prep_assets").rglob("*.py") for name in VARIABLE.findall(path.read_text("utf-8"))}
    assert used <= reference


def keys(family: str) -> set[str]:
    """``section.key`` of a family."""
    sections = {
        name: field.annotation for name, field in FAMILIES[family].model_fields.items() if hasattr(field.annotation, "model_fields")
    }
    return {f"{name}.{key}" for name, section in sections.items() for key in section.model_fields}  # type: ignore[union-attr]


# pages about the configuration files of other projects, whose keys go by the same names
FOREIGN = {"docs/preprocess.md"}


@cells("page", [page for page in PAGES if label(page) not in FOREIGN], ids=label)
def test_configuration_keys_exist(page: Path) -> None:
    every = {key for family in FAMILIES for key in keys(family)}
    sections = {key.partition(".")[0] for key in every}
    named = {key for key in re.findall(r"`([a-z]+\.[a-z_]+)`", read(page)) if key.partition(".")[0] in sections}
    assert sorted(named - every) == []


def test_reasons_of_refusal_exist() -> None:
    table = read(DOCS / "add-a-data-set.md").partition("## Refused records")[2]
    named = {reason for row in re.findall(r"^- (`[^:]*):", table, re.MULTILINE) for reason in re.findall(r"`(?:[a-z]+/)?([a-z_]+)`", row)}
    source = "".join(path.read_text("utf-8") for path in (ROOT / "prep_assets").rglob("*.py"))
    assert len(named) > 8
    assert sorted(reason for reason in named if f'"{reason}"' not in source) == []


# -- tables that must be complete ---------------------------------------------------------------------------------------------------------


def test_the_graph_page_has_every_asset_with_what_feeds_it() -> None:
    page = read(DOCS / "graph.md")
    for asset in ASSETS.values():
        feeds = ", ".join(f"`{name}`" for name in (above.name for _, above in asset.inputs if above.absent is None))
        line = f"- `{asset.name}`{' per domain' * asset.partitioned}{f' ← {feeds}' * bool(feeds)}: "
        assert f"\n{line}" in page, f"docs/graph.md needs a line for {asset.name}: {line}"


def test_the_page_of_checks_has_every_check_of_every_asset() -> None:
    page = read(DOCS / "checks.md")
    for asset, checks in CHECKS.items():
        row = ", ".join(f"`{check.name}`" for check in checks)
        named = re.findall(rf"^\| (.+) \| {row} \|$", page, re.MULTILINE)
        assert f"`{asset}`" in ", ".join(named).split(", "), f"docs/checks.md needs the checks of {asset}: {row}"
    for name in {check.name for checks in CHECKS.values() for check in checks}:
        assert f"\n## `{name}`\n" in page, f"docs/checks.md needs a section for {name}"


def test_the_page_of_refresh_has_every_sensor_and_schedule() -> None:
    from prep_assets.definitions import defs

    page = read(DOCS / "refresh.md")
    repository = defs.get_repository_def()
    names = [*(each.name for each in repository.sensor_defs), *(each.name for each in repository.schedule_defs)]
    assert len(names) > 4
    assert [name for name in names if f"`{name}`" not in page] == []
