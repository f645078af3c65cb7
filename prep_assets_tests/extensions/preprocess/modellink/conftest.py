"""ModelLink's command line, called as from a shell, and its files read by the description of their bytes alone."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets_tests.graph.workspaces import CONFIGS

BOS, EOS = "<|im_start|>", "<|endoftext|>"
INSTRUCTION = ("input_ids", "attention_mask", "labels")
PAIRS = ("chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels")
Call = Callable[..., tuple[int, str]]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped tokenizer, which writes its begin-of-text token in front of a text, as Llama's does, and knows Baichuan's two tokens."""
    made = Path(shutil.copytree(CONFIGS / "tokenizer", tmp_path_factory.mktemp("llama") / "tokenizer"))
    spec, config = (json.loads((made / name).read_text("utf-8")) for name in ("tokenizer.json", "tokenizer_config.json"))
    last = max(*(token["id"] for token in spec["added_tokens"]), *spec["model"]["vocab"].values())
    new = enumerate(("<reserved_106>", "<reserved_107>"), last + 1)
    spec["added_tokens"] += [{**spec["added_tokens"][0], "id": number, "content": text} for number, text in new]
    (begin,) = (token["id"] for token in spec["added_tokens"] if token["content"] == BOS)
    pieces = [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    used = {BOS: {"id": BOS, "ids": [begin], "tokens": [BOS]}}
    spec["post_processor"] = {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": used}
    (made / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    (made / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS}))
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(llama: Path) -> Call:
    """Run a command with the Llama-like tokenizer: exit code and output."""

    def run(command: str, *words: object, tokenizer: object = llama) -> tuple[int, str]:
        named = ["--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", str(tokenizer)] if tokenizer else []
        result = CliRunner().invoke(app, [command, *map(str, words), *named])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return run


@cache
def opened(tokenizer: Path) -> Tokenizer:
    """The tokenizer of a folder, whose files no test changes."""
    return Tokenizer.from_file(str(tokenizer / "tokenizer.json"))


def plain(tokenizer: Path, text: str) -> list[int]:
    """Ids of a text alone."""
    return list(opened(tokenizer).encode(text, add_special_tokens=False).ids)


def whole(tokenizer: Path, text: str) -> list[int]:
    """Ids of a text as ``_tokenize`` of ModelLink asks for them: with what the tokenizer itself adds."""
    return list(opened(tokenizer).encode(text).ids)


def token(tokenizer: Path, text: str) -> int:
    found = opened(tokenizer).token_to_id(text)
    assert isinstance(found, int)
    return found


def pair(prefix: Path) -> list[list[int]]:
    """The documents of a ``.bin`` and its ``.idx``, by their layout: 34 bytes of header, lengths, places, borders; ids in int32."""
    index, data = prefix.with_name(f"{prefix.name}.idx").read_bytes(), prefix.with_name(f"{prefix.name}.bin").read_bytes()
    magic, version, code, sequences, borders = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, code, borders, len(index)) == (b"MMIDIDX\0\0", 1, 4, sequences + 1, 34 + 12 * sequences + 8 * borders)
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    places = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    assert np.frombuffer(index, "<i8", borders, 34 + 12 * sequences).tolist() == list(range(borders))
    return [np.frombuffer(data, "<i4", length, place).tolist() for length, place in zip(lengths, places, strict=True)]


def names(folder: Path) -> list[str]:
    """The files beside a prefix."""
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def files(prefix: str, *keys: str) -> list[str]:
    return sorted(f"{prefix}_{key}_document.{kind}" for key in keys for kind in ("bin", "idx"))


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as one JSON array, as Alpaca's files are."""
    path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    return path
