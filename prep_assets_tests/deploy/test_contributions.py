"""What strangers meet first: issue forms, workflows, and the checks of a release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from release import faults_of_names, faults_of_version, section

import prep_assets
from prep_assets_tests.conftest import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    targets = set(re.findall(r"^([a-z-]+)(?: [a-z-]+)*:", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for job in workflow["jobs"].values():
        assert job["runs-on"] == f"{'macos' if path.stem == 'macos' else 'ubuntu'}-latest" and job["steps"]
        assert {job["needs"]} <= workflow["jobs"].keys() if "needs" in job else True
        for step in job["steps"]:
            assert set(re.findall(r"make ([a-z-]+)", step.get("run", ""))) <= targets
            assert "uses" not in step or re.fullmatch(r"[\w./-]+@[\w./]+", step["uses"])


def test_the_versions_of_python_are_those_of_the_package() -> None:
    tested = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]["test"]["strategy"]["matrix"]["python"]
    said = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert tested == said and tested[0] == "3.11"


CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] – 2027-01-01

- New.

## [1.1.0] – 2026-12-01

- Old.
"""


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "fault"),
    [
        ("v1.2.0", "1.2.0", CHANGELOG, ""),
        ("", "1.3.0", CHANGELOG, ""),
        ("v1.3.0", "1.2.0", CHANGELOG, "the tag is v1.3.0, the version 1.2.0"),
        ("v1.3.0", "1.3.0", CHANGELOG, "the newest section is 1.2.0; 1.3.0 needs one with a text"),
        ("v1.2.0", "1.2.0", CHANGELOG.replace("- New.", ""), "needs one with a text"),
        ("v1.2.0", "1.2.0", CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- Forgotten."), "what is unreleased"),
    ],
)
def test_versions_must_agree(tag: str, version: str, changelog: str, fault: str) -> None:
    faults = faults_of_version(tag, f'[project]\nversion = "{version}"\n', f'__version__ = "{version}"\n', changelog)
    assert fault in faults[0] if fault else faults == [], faults
    assert faults_of_version(tag, f'version = "{version}"', '__version__ = "9"', changelog)[0].startswith("pyproject.toml says")


def test_the_section_of_a_version_is_its_notes() -> None:
    assert section(CHANGELOG, "1.2.0") == "- New."
    assert section(CHANGELOG, "1.1.0") == "- Old." and section(CHANGELOG, "1.0.0") == ""
    texts = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "prep_assets/version.py", "CHANGELOG.md")]
    assert faults_of_version("", *texts) == [] and section(texts[2], prep_assets.__version__)


def test_archives_hold_what_is_needed_and_nothing_else() -> None:
    names = ["prep_assets/py.typed", "prep_assets/data/files.py"]
    assert faults_of_names(names, ("prep_assets/py.typed",)) == []
    assert faults_of_names(names, ("a.jinja",)) == ["lacks a.jinja"]
    assert faults_of_names([*names, "prep_assets_tests/test_x.py", "a.pyc"], ()) == ["has prep_assets_tests/test_x.py", "has a.pyc"]
