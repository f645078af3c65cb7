"""Where configurations and stores are, and what paths in them are relative to."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.config.loading import checkout, config_dir, store_dir
from prep_assets.errors import ConfigError
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import TOKENIZER, build, jsonl, minimal, workspace_in


def test_the_environment_names_both_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(tmp_path / "not" / "yet" / "there"))
    workspace = Workspace.open()
    assert (workspace.configs, workspace.stores) == (tmp_path / "mine", tmp_path / "not" / "yet" / "there")


def test_a_relative_folder_in_the_environment_starts_here_and_tilde_is_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "mine")
    assert config_dir() == tmp_path / "mine"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", "~/mine")
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", "~/stores")
    assert (config_dir(), store_dir()) == (tmp_path / "mine", tmp_path / "stores")


def test_a_configuration_folder_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"PREP_ASSETS_CONFIG_DIR is '.*missing', which is not a directory"):
        config_dir()


def test_without_the_environment_the_checkout_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREP_ASSETS_CONFIG_DIR", raising=False)
    monkeypatch.delenv("PREP_ASSETS_STORE_DIR", raising=False)
    root = Path(__file__).resolve().parents[2]
    assert checkout() == root
    assert (config_dir(), store_dir()) == (root / "configs", root / "data" / "stores")


def test_paths_are_relative_to_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source files, test files, tokenizer and template; wherever the process stands."""
    (tmp_path / "data").mkdir()
    jsonl(tmp_path / "data" / "a.jsonl", [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}])
    jsonl(tmp_path / "data" / "b.jsonl", [{"messages": [{"role": "user", "content": "ho"}, {"role": "assistant", "content": "hey"}]}])
    domain = {"files": ["../data/a.jsonl"], "test_files": ["../data/b.jsonl"], "schema": "messages"}
    families = minimal("sft", {"a": domain}, template="mine.jinja")
    families["sft"]["tokenizer"] = "../tok"
    (tmp_path / "tok").symlink_to(TOKENIZER)
    workspace = workspace_in(tmp_path, families)
    (workspace.configs / "mine.jinja").write_text("{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}")
    monkeypatch.chdir("/")
    build(workspace, "sft_raw", "a")
    assert build(workspace, "sft_tokens", "a").manifest.counts["kept"] == 2
