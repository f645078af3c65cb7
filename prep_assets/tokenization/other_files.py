"""Tokenizers that are published in other files than ``tokenizer.json``: SentencePiece, tiktoken, Tekken.

Each is converted into a ``tokenizer.json``, and the ids are compared with those of the library that the file was made for, on the edge set. A
file whose conversion is not exact is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.tokenization.ranks import from_ranks
from prep_assets.tokenization.sentencepiece_model import from_sentencepiece

Spec = tuple[dict[str, Any], dict[str, str]]
"""A ``tokenizer.json``, and the names and texts of special tokens."""
Encode = Callable[[Sequence[str]], list[list[int]]]


def other_file(folder: Path) -> Path | None:
    """The file of a folder without ``tokenizer.json`` that a tokenizer can be made of; `None` where there is none.

    Raises:
        ConfigError: there are several.
    """
    found = [path for pattern in ("tekken.json", "*.tiktoken", "*.model") for path in sorted(folder.glob(pattern))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"{folder} holds several tokenizers: {names}. Name the file instead of the folder")
    return found[0] if found else None


def convert(path: Path) -> Spec:
    """A published file as a ``tokenizer.json``.

    Raises:
        ConfigError: it is of no known kind, or says too little.
    """
    if path.suffix == ".tiktoken":
        return _tiktoken(path)
    if path.name.startswith("tekken") and path.suffix == ".json":
        return _tekken(path)
    if path.suffix == ".model":
        return from_sentencepiece(path)
    raise ConfigError(f"{path}: a tokenizer is a tokenizer.json, a SentencePiece .model, a .tiktoken file or a tekken.json")


def library_of(path: Path) -> tuple[str, Callable[[], Encode]]:
    """The package that a file was made for, and what opens it there."""
    if path.suffix == ".tiktoken":
        return "tiktoken", lambda: _by_tiktoken(path)
    if path.suffix == ".json":
        return "mistral-common", lambda: _by_mistral(path)
    return "sentencepiece", lambda: _by_sentencepiece(path)


# -- tiktoken ---------------------------------------------------------------------------------------------------------------------------


def _tiktoken(path: Path) -> Spec:
    said = _beside(path)
    special = {str(text): int(number) for text, number in said.get("special_tokens", {}).items()}
    names = {name: text for name, text in said.items() if name.endswith("_token") and isinstance(text, str)}
    return from_ranks(_ranks(path), said["pattern"], special), names


def _beside(path: Path) -> Mapping[str, Any]:
    """What a rank file does not say: the pattern and the special tokens, in a JSON or YAML file of its name."""
    for suffix in (".json", ".yaml"):
        if path.with_suffix(suffix).is_file():
            import yaml

            said = yaml.safe_load(path.with_suffix(suffix).read_text("utf-8"))
            if isinstance(said, Mapping) and isinstance(said.get("pattern"), str):
                return said
    raise ConfigError(
        f"{path} holds ranks only. Write its pattern and special tokens into {path.with_suffix('.json').name}: "
        '{"pattern": "…", "special_tokens": {"<|endoftext|>": 100257}, "eos_token": "<|endoftext|>"}'
    )


def _ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    try:
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    except ValueError as error:
        raise ConfigError(f"{path}: a line is not the base64 form of a token and its rank: {error}") from error


def _by_tiktoken(path: Path) -> Encode:
    import tiktoken

    encoding = tiktoken.Encoding(path.stem, pat_str=_beside(path)["pattern"], mergeable_ranks=_ranks(path), special_tokens={})
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


# -- Tekken -----------------------------------------------------------------------------------------------------------------------------


def _tekken(path: Path) -> Spec:
    said = json.loads(path.read_text("utf-8"))
    config = said["config"]
    reserved = int(config["default_num_special_tokens"])
    listed = said.get("special_tokens")
    if listed is None:  # files of 2024 leave them to the library
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        listed = Tekkenizer.DEPRECATED_SPECIAL_TOKENS
    special = {f"<SPECIAL_{number}>": number for number in range(len(listed), reserved)}
    special |= {token["token_str"]: int(token["rank"]) for token in listed}
    size = int(config["default_vocab_size"]) - reserved
    ranks = {base64.b64decode(token["token_bytes"]): int(token["rank"]) + reserved for token in said["vocab"][:size]}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return from_ranks(ranks, config["pattern"], special), {name: text for name, text in names.items() if text in special}


def _by_mistral(path: Path) -> Encode:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    opened = Tekkenizer.from_file(path)
    return lambda texts: [opened.encode(text, bos=False, eos=False) for text in texts]


# -- SentencePiece ----------------------------------------------------------------------------------------------------------------------


def _by_sentencepiece(path: Path) -> Encode:
    import sentencepiece

    opened = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return lambda texts: [list(opened.encode(text)) for text in texts]
