"""A schema of the user's own is code: when its file changes, what was made with it is stale."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from prep_assets.engine import state
from prep_assets.errors import ConfigError
from prep_assets.pipelines.graph import ASSETS
from prep_assets.pipelines.workspace import Workspace
from prep_assets.schemas.registry import convert_with, own_code_hash
from prep_assets_tests.pipelines.workspaces import make

ROOT = Path(__file__).resolve().parents[2]
CODE = """\
from prep_assets.samples import Sample, turn
from prep_assets_tests.pipelines.workspaces import make

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
