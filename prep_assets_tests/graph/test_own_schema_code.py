"""A schema of the user's own is code: when its file changes, what was made with it is stale."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prep_assets.engine import state
from prep_assets.errors import ConfigError
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.schemas.registry import convert_with, own_code_hash, source_files
from prep_assets_tests.graph.workspaces import make

ROOT = Path(__file__).resolve().parents[2]
CODE = """\
from prep_assets.samples import Sample, turn
from prep_assets_tests.graph.workspaces import make

def questions(row, *, ask):
    return Sample((turn("user", ask + row["q"]), turn("assistant", row["a"])))
"""


def test_editing_the_function_makes_its_stores_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "own_schemas.py"
    code.write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "q.jsonl").write_text(json.dumps({"q": "2 + 2?", "a": "4"}) + "\n", "utf-8")
    domain = "{files: [q.jsonl], schema: 'own_schemas:questions', options: {ask: 'Q: '}}"
    (tmp_path / "sft.yaml").write_text(f"tokenizer: {ROOT / 'configs' / 'tokenizer'}\ndomains: {{own: {domain}}}\n", "utf-8")
    workspace = Workspace(tmp_path, tmp_path / "stores")
    for name in ("sft_raw", "sft_tokens"):
        assert make(workspace, ASSETS[name], "own").manifest.counts["kept"] == 1
        assert state(workspace, ASSETS[name], "own") == "current"
    code.write_text(CODE.replace('"user"', '"system"'), "utf-8")
    assert state(workspace, ASSETS["sft_raw"], "own") == "current"
    assert state(workspace, ASSETS["sft_tokens"], "own") == "stale"
    sys.modules.pop("own_schemas")
    importlib.invalidate_caches()


def test_shipped_schemas_have_no_code_of_their_own_and_a_missing_module_fails_when_it_is_loaded() -> None:
    assert own_code_hash("alpaca") is None
    assert own_code_hash("nowhere_at_all:function") is None
    with pytest.raises(ConfigError, match="nowhere_at_all"):
        convert_with("nowhere_at_all:function")


FILES = {
    "own_project/__init__.py": "",
    "own_project/rows.py": "import json\nimport numpy\nfrom own_project import words\nfrom .deep.more import clean\n"
    "def read(row):\n    import own_beside\n    return None\n",
    "own_project/words.py": "from prep_assets.samples import Sample\n",
    "own_project/deep/__init__.py": "",
    "own_project/deep/more.py": "from ..constants import *\nfrom own_other.place import thing\ndef clean(): ...\n",
    "own_project/constants.py": "ONE = 1\n",
    "own_project/unused.py": "",
    "own_other/place.py": "thing = 1\n",
    "own_beside.py": "import own_project.rows\n",
}
IMPORTED = sorted(set(FILES) - {"own_project/unused.py"})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


def forget() -> None:
    """Looking for a module imports the packages above it."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def test_every_module_of_the_project_that_it_imports_counts(project: Path) -> None:
    assert sorted(path.relative_to(project).as_posix() for _, path in source_files("own_project.rows")) == IMPORTED


@pytest.mark.parametrize("name", sorted(FILES))
def test_editing_a_module_that_a_schema_imports_changes_its_key(project: Path, name: str) -> None:
    """Only the file of the function itself was hashed: an edited helper left stale stores that looked current."""
    before = own_code_hash("own_project.rows:read")
    (project / name).write_text(FILES[name] + "# edited\n", "utf-8")
    assert (own_code_hash("own_project.rows:read") != before) == (name in IMPORTED)


def test_the_key_does_not_depend_on_where_the_project_is(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own_code_hash("own_project.rows:read")
    moved = tmp_path_factory.mktemp("moved") / "here"
    project.rename(moved)
    monkeypatch.syspath_prepend(str(moved))
    forget()
    assert own_code_hash("own_project.rows:read") == before


def test_of_an_installed_package_its_own_modules_count() -> None:
    files = {name for name, _ in source_files("yaml.loader")}
    assert {"yaml", "yaml.loader", "yaml.reader"} <= files and {name.partition(".")[0] for name in files} == {"yaml"}
