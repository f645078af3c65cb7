"""A tokenizer's files have limits: their size, and patterns that blow up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from prep_assets.errors import ConfigError
from prep_assets.text.tokenizer_files import MOST_BYTES, MOST_IDS, in_words
from prep_assets.text.vocabulary import Vocabulary, from_file, from_transformers
from prep_assets_tests.tokenization.loaded import CONFIGS

SHIPPED = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text("utf-8"))


def _write(folder: Path, **changed: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps({**SHIPPED, **changed}), "utf-8")
    return folder


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    _write(tmp_path)
    with (tmp_path / name).open("ab") as file:
        os.truncate(file.fileno(), MOST_BYTES + 1)
    with pytest.raises(ConfigError, match=rf"{name} has 268,435,457 bytes; a file of a tokenizer may have 268,435,456"):
        from_file("huge", tmp_path)
    with pytest.raises(ConfigError, match=rf"{name} has 268,435,457 bytes"):
        from_transformers("huge", tmp_path)


def test_weights_beside_a_tokenizer_may_have_any_size(tmp_path: Path) -> None:
    _write(tmp_path)
    with (tmp_path / "model.safetensors").open("wb") as file:
        os.truncate(file.fileno(), MOST_BYTES + 1)
    assert from_transformers("beside", tmp_path).size == from_file("beside", tmp_path).size


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(\w+\s?)+$", r"(a|aa)+$"])
def test_a_pattern_that_blows_up_is_refused(tmp_path: Path, pattern: str) -> None:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    with pytest.raises(ConfigError, match=r"tokenizer.json: this tokenizer does not encode .*retry-limit-in-match"):
        from_file("slow", _write(tmp_path, pre_tokenizer=split))


def test_a_tokenizer_that_cannot_read_a_text_is_refused(tmp_path: Path) -> None:
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": {"a": 0}}
    with pytest.raises(ConfigError, match=r"does not encode .*Missing \[UNK\] token"):
        from_file("partial", _write(tmp_path, model=model, added_tokens=[], pre_tokenizer=None, decoder=None))


def test_only_errors_become_words() -> None:
    with pytest.raises(KeyboardInterrupt), in_words("x"):
        raise KeyboardInterrupt
    with pytest.raises(ConfigError, match=r"^x: KeyError: 'a'$"), in_words("x"):
        raise KeyError("a")


@pytest.mark.parametrize("far", [MOST_IDS, (1 << 32) - 1])
def test_an_id_beyond_every_vocabulary_is_refused(tmp_path: Path, far: int) -> None:
    """At once: the library writes out a place for each id that is missing, which took a minute and eight gigabytes."""
    end = {"id": far, "content": "</s>", "special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
    model = {**SHIPPED["model"], "vocab": {**SHIPPED["model"]["vocab"], "</s>": end["id"]}}
    with patch.object(Vocabulary, "spec", None), pytest.raises(ConfigError, match=rf"the largest id is {far:,}; ids are below 16,777,216"):
        from_file("far", _write(tmp_path, model=model, added_tokens=[end]))


LEFT = """
import sys
from pathlib import Path
from prep_assets.text.vocabulary import from_file
from prep_assets_tests.harness.tokenizers import memory
words = [f"x{number:b}" for number in range(10_000)]
def used():
    backend = from_file("one", Path(sys.argv[1])).backend
    for word in words:
        backend.encode(word)
used()
before = memory("VmRSS")
for _ in range(10):
    used()
print(memory("VmRSS") - before)
"""


def test_little_is_left_of_a_tokenizer_that_is_gone() -> None:
    """The library itself leaves 5 MiB of these words for each."""
    command = [sys.executable, "-c", LEFT, str(CONFIGS / "tokenizer")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(said) < 25 << 20
