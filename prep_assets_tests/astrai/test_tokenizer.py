from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets.astrai.preprocess import load_tokenizer
from prep_assets.errors import ConfigError
from prep_assets_tests.astrai.conftest import DECLARED, TEMPLATE, VOCABULARY, write_tokenizer


def configured(folder: Path, config: Any) -> Path:
    write_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


def test_astrais_form(tmp_path: Path) -> None:
    found = load_tokenizer(write_tokenizer(tmp_path))
    assert (found.special, found.chat_template, found.size) == (DECLARED, TEMPLATE, len(VOCABULARY))


@pytest.mark.parametrize("token", ["<s>", {"content": "<s>", "lstrip": False}])
def test_the_form_of_transformers(token: Any, tmp_path: Path) -> None:
    found = load_tokenizer(configured(tmp_path, {"bos_token": token, "eos_token": None, "chat_template": "x"}))
    assert (found.special, found.chat_template) == ({"bos_token": "<s>"}, "x")


def test_templates_by_name_and_in_a_file_of_their_own(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert load_tokenizer(configured(tmp_path / "named", {"chat_template": named})).chat_template == "d"
    folder = configured(tmp_path / "beside", {})
    (folder / "chat_template.jinja").write_text("f", "utf-8")
    assert load_tokenizer(folder).chat_template == "f"


def test_a_declared_token_that_is_not_in_the_vocabulary_is_none(tmp_path: Path) -> None:
    assert load_tokenizer(write_tokenizer(tmp_path, declared={"bos_token": "<absent>"})).special == {}


def test_lengths_are_not_the_tokenizer_files_business(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path)
    spec = json.loads((folder / "tokenizer.json").read_text())
    spec["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    spec["padding"] = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 5, "pad_type_id": 0, "pad_token": "<pad>"
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    assert len(load_tokenizer(folder).backend.encode("a b c d").ids) == 4


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokenizer"):
        load_tokenizer(tmp_path / "absent")
    with pytest.raises(ConfigError, match="save_pretrained"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("name", "content"), [("tokenizer.json", "{}"), ("tokenizer_config.json", "{"), ("tokenizer_config.json", "[]")])
def test_a_broken_file_is_named(name: str, content: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ConfigError, match=name):
        load_tokenizer(tmp_path)
