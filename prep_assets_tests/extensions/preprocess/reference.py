"""AstrAI's documented algorithm and format, written from the documentation's text: slow, plain, and sharing nothing with the package."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Template
from tokenizers import Tokenizer


class Documented:
    """The typed dialect: chat, instruction and text."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        config = json.loads((directory / "tokenizer_config.json").read_text())
        self.template = config.get("chat_template", "")
        bos = config["special_tokens"].get("bos_token")
        self.bos = None if bos is None else self.tokenizer.token_to_id(bos)

    def encode(self, text: str, special: bool) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def chat(self, row: Mapping[str, Any], mask: Mapping[str, str], default: str, longest: int) -> tuple[list[int], list[int]] | None:
        tokens: list[tuple[int, int]] = [] if self.bos is None else [(self.bos, 0)]
        for message in row["messages"]:
            trained = 1 if mask.get(message["role"], default) == "train" else 0
            text = Template(self.template).render(messages=[message], add_generation_prompt=False)
            tokens += [(token, trained) for token in self.encode(text, False)]
        if len(tokens) <= 1:
            return None
        tokens = tokens[:longest]
        return [token for token, _ in tokens], [trained for _, trained in tokens]

    def instruction(self, prompt: str, response: str, mask: Mapping[str, str], default: str, longest: int) -> tuple[list[int], list[int]]:
        left, right = self.encode(prompt, True), self.encode(response, False)
        trained = [mask.get("prompt", default) == "train"] * len(left) + [mask.get("response", default) == "train"] * len(right)
        return (left + right)[:longest], [int(each) for each in trained][:longest]

    def text(self, text: str, shortest: int, longest_text: int, longest: int) -> list[int] | None:
        if not text.strip() or not shortest <= len(text) <= longest_text:
            return None
        return self.encode(text, True)[:longest]


def read_bin(shard: Path) -> dict[str, np.ndarray[Any, Any]]:
    """One folder of ``meta.json`` and ``<key>.bin``, checked byte for byte against each other."""
    meta = json.loads((shard / "meta.json").read_text("ascii"))
    found = {}
    for key, entry in meta.items():
        raw = (shard / f"{key}.bin").read_bytes()
        (count,) = entry["shape"]
        width = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "float16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}[
            entry["dtype"]
        ]
        assert len(raw) == count * width, f"{key}: {len(raw)} bytes for {count} x {width}"
        found[key] = np.frombuffer(raw, np.dtype(entry["dtype"]).newbyteorder("<"))
    assert {path.name for path in shard.iterdir()} == {"meta.json", *(f"{key}.bin" for key in meta)}
    return found


def read_domain(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All shards of a domain, one after another by number."""
    shards = sorted(folder.iterdir(), key=lambda path: int(re.fullmatch(r"shard_(\d{4,})", path.name)[1]))  # type: ignore[index]
    assert [path.name for path in shards] == [f"shard_{number:04d}" for number in range(len(shards))]
    parts = [read_bin(shard) for shard in shards]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
