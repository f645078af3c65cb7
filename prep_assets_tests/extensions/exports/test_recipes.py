"""The lines that an export prints for its trainers: each is what its trainer reads, and says what the format's page demands."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.extensions.exports.registry import exports
from prep_assets_tests.cells import cells
from prep_assets_tests.extensions.exports.readers import olmo, reader

PAGES = Path(__file__).resolve().parents[3] / "docs" / "formats"
PLACES = {
    "trl_trainer": "DPOTrainer(model=model",
    "folder": "out",
    "level": "document",
    "row_len": 64,
    "align": 4,
    "part": "train",
    "neat_len": 65,
    "neat_pack": "",
    "file": "x",
}
PRINTED = {
    (name, key): "\n".join(lines).format(
        **{option: 64 if parameter.default is parameter.empty else parameter.default for option, parameter in each.options.items()} | PLACES
    )
    for name, each in exports().items()
    for key, lines in each.opens.items()
}
CODE = {place: text for place, text in PRINTED.items() if re.match(r"from |import |[A-Z]\w+\(", text)}
SETTINGS = {place: text for place, text in PRINTED.items() if re.match(r"\w+:", text)}
FLAGS = {place: text for place, text in PRINTED.items() if place not in CODE and place not in SETTINGS}


def named(places: dict[tuple[str, str], str]) -> list[Any]:
    return [pytest.param(text, id=" ".join(place).strip()) for place, text in places.items()]


@cells("text", named(CODE))
def test_code_is_code(text: str) -> None:
    ast.parse(text)


@pytest.mark.parametrize("text", named(SETTINGS))
def test_settings_are_yaml(text: str) -> None:
    assert isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize("text", named(FLAGS))
def test_flags_are_a_command_line(text: str) -> None:
    words = [word for line in text.replace("\\\n", "").splitlines() for word in shlex.split(line, comments=True)]
    runs = words[0] in ("torchrun", "python")
    assert runs or all(re.match(r"--[\w-]+$", word) for word in words if word.startswith("-"))
    assert runs or words[0].startswith("--") or all("=" in word for word in words)


def demanded(name: str) -> list[str]:
    """What a page tells to write for the trainer: settings in code that are none of the export's options."""
    settings = re.findall(r"`([a-z_]+=[\w\"']+)`", (PAGES / f"{name}.md").read_text("utf-8"))
    return [setting for setting in settings if setting.partition("=")[0] not in exports()[name].options]


def test_what_a_page_demands_is_printed() -> None:
    """OLMo-core searched for end tokens, of which a chat has several, where the printed lines lacked what the page asks for."""
    demands = {name: demanded(name) for name in exports()}
    assert demands["olmo"] == ["use_array_if_local=False"]
    for name, settings in demands.items():
        for key in exports()[name].opens:
            assert all(setting in PRINTED[name, key] for setting in settings)


@pytest.mark.readers
def test_olmo_core_takes_the_printed_lines() -> None:
    numpy_dataset, tokenizer = olmo(), reader("olmo_core.data.tokenizer")
    names = {
        "NumpyPackedFSLDatasetConfig": numpy_dataset.NumpyPackedFSLDatasetConfig,
        "tokenizer": tokenizer.TokenizerConfig(vocab_size=100, eos_token_id=3, pad_token_id=0),
    }
    config = eval(PRINTED["olmo", ""], names)
    assert config.use_array_if_local is False and config.expand_glob is True


@pytest.mark.readers
@pytest.mark.parametrize("place", [place for place in CODE if "Config(" in PRINTED[place] and place[0].startswith("hf_")], ids=" ".join)
def test_trl_takes_the_printed_settings(place: tuple[str, str], tmp_path: Path) -> None:
    trl = reader("trl")
    call = next(
        node for node in ast.walk(ast.parse(PRINTED[place])) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Config")
    )
    here = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False}  # without a GPU
    call.keywords += [ast.keyword(name, ast.Constant(value)) for name, value in here.items()]
    assert eval(ast.unparse(call), {"SFTConfig": trl.SFTConfig, "RewardConfig": trl.RewardConfig}).max_length is None
