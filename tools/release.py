"""Builds what a release uploads, looks into it, and tries it in an empty environment: `make release-check`. It uploads nothing."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "prep_assets/py.typed",
    "prep_assets/_configs/sft.yaml",
    "prep_assets/text/named/chatml.jinja",
    "prep_assets/extensions/explain/page.html.jinja",
)
"""What a wheel would work without until somebody needs it."""
FORBIDDEN = re.compile(r"^(prep_assets_tests|tools|benchmarks|data|\.git)/|\.pyc$")


def section(changelog: str, version: str) -> str:
    """The text of a version's section; empty where there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", changelog, re.M | re.S)
    return found[1].strip() if found else ""


def faults_of_version(tag: str, pyproject: str, module: str, changelog: str) -> list[str]:
    """What disagrees about the version; without a tag, only the two files that name it.

    Args:
        tag: the tag of a release, such as ``v1.0.0``; empty for a trial.
        pyproject, module, changelog: texts of `pyproject.toml`, `prep_assets/version.py` and `CHANGELOG.md`.
    """
    versions = [re.search(pattern, text, re.M) for pattern, text in ((r'^version = "(.+)"', pyproject), (r'^__version__ = "(.+)"', module))]
    declared, imported = (found[1] if found else "" for found in versions)
    faults = [] if declared == imported != "" else [f"pyproject.toml says {declared!r}, prep_assets.__version__ is {imported!r}"]
    if tag and tag != f"v{declared}":
        faults.append(f"the tag is {tag}, the version {declared}")
    newest = re.search(r"^## \[(\d.*?)\]", changelog, re.M)
    if tag and (newest is None or newest[1] != declared or not section(changelog, declared)):
        faults.append(f"CHANGELOG.md: the newest section is {newest[1] if newest else 'none'}; {declared} needs one with a text")
    unreleased = section(changelog, "Unreleased")
    if tag and unreleased:
        faults.append("CHANGELOG.md: what is unreleased belongs to the version that is released now")
    return faults


def faults_of_names(names: list[str], needed: tuple[str, ...] = NEEDED) -> list[str]:
    """What is missing in an archive, and what does not belong there."""
    missing = [f"lacks {name}" for name in needed if name not in names]
    return missing + [f"has {name}" for name in names if FORBIDDEN.search(name)]


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command; its output is shown where it fails."""
    print("$", *(str(part) for part in command), flush=True)
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", default="", help="the tag of a release; without it, a trial")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    given = parser.parse_args()
    texts = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "prep_assets/version.py", "CHANGELOG.md")]
    if faults := faults_of_version(given.tag, *texts):
        sys.exit("\n".join(faults))
    out = given.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "notes.md").write_text(section(texts[2], given.tag.removeprefix("v") or "Unreleased") + "\n", "utf-8")

    environment = out / "tools"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", "twine", "cyclonedx-bom")
    run(python, "-m", "build", "--outdir", out / "dist", ROOT)
    [wheel], [source] = sorted((out / "dist").glob("*.whl")), sorted((out / "dist").glob("*.tar.gz"))
    run(python, "-m", "twine", "check", "--strict", wheel, source)
    with zipfile.ZipFile(wheel) as archive, tarfile.open(source) as tar:
        inside = [name.partition("/")[2] for name in tar.getnames()]
        faults = [f"{wheel.name} {fault}" for fault in faults_of_names(archive.namelist())]
        faults += [f"{source.name} lacks {name}" for name in ("pyproject.toml", "README.md", "LICENSE") if name not in inside]
    if faults:
        sys.exit("\n".join(faults))

    trial, work = out / "trial", out / "work"
    work.mkdir()
    venv.create(trial, with_pip=True)
    run(trial / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"{wheel}[cli,dagster,fast]")
    code = "import shutil, pathlib, prep_assets; shutil.copytree(pathlib.Path(prep_assets.__file__).parent / '_configs', 'configs')"
    run(trial / "bin" / "python", "-c", code, folder=work)
    run(trial / "bin" / "prep-assets", "demo", folder=work)
    run(trial / "bin" / "prep-assets", "verify", folder=work)
    run(environment / "bin" / "cyclonedx-py", "environment", trial / "bin" / "python", "--output-file", out / "sbom.json")
    for folder in (environment, trial, work):
        shutil.rmtree(folder)
    print(f"{wheel.name}, {source.name}, sbom.json and notes.md in {out}")


if __name__ == "__main__":
    main()
