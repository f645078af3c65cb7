"""Tokenizers that are published in other files than ``tokenizer.json``: SentencePiece, tiktoken, Tekken, WordPiece, vocabulary and merges.

Each is converted into a ``tokenizer.json``, and the ids are compared with those of the library that the file was made for, on the edge set. A
file whose conversion is not exact is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prep_assets.disk.strict_json import loads
from prep_assets.errors import ConfigError
from prep_assets.tokenization.native import MOST_IDS
from prep_assets.tokenization.rank_files import by_tiktoken, from_rank_file, from_ranks
from prep_assets.tokenization.sentencepiece_model import from_sentencepiece
from prep_assets.tokenization.vocabulary_files import by_transformers, from_vocabulary, kind_of

Spec = tuple[dict[str, Any], dict[str, str]]
"""A ``tokenizer.json``, and the names and texts of special tokens."""
Encode = Callable[[Sequence[str]], list[list[int]]]


def other_file(folder: Path) -> Path | None:
    """The file of a folder without ``tokenizer.json`` that a tokenizer can be made of; `None` where there is none.

    Raises:
        ConfigError: there are several.
    """
    found = [
        path for pattern in ("tekken.json", "*.tiktoken", "*.model", "*vocab.txt", "*merges.txt") for path in sorted(folder.glob(pattern))
    ]
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
        return from_rank_file(path)
    if path.name.startswith("tekken") and path.suffix == ".json":
        return _tekken(path)
    if path.suffix == ".model":
        return from_sentencepiece(path)
    if kind_of(path):
        return from_vocabulary(path)
    kinds = "a SentencePiece .model, a .tiktoken file, a tekken.json, a vocab.txt or a merges.txt"
    raise ConfigError(f"{path}: a tokenizer is a tokenizer.json, {kinds}")


def library_of(path: Path) -> tuple[str, Callable[[], Encode]]:
    """The package that a file was made for, and what opens it there."""
    if path.suffix == ".tiktoken":
        return "tiktoken", lambda: by_tiktoken(path)
    if path.suffix == ".json":
        return "mistral-common", lambda: _by_mistral(path)
    if kind_of(path):
        return "transformers", lambda: by_transformers(path)
    return "sentencepiece", lambda: _by_sentencepiece(path)


# -- Tekken -----------------------------------------------------------------------------------------------------------------------------


def _tekken(path: Path) -> Spec:
    spec = loads(path.read_bytes())
    config = spec["config"]
    reserved = int(config["default_num_special_tokens"])
    if reserved > MOST_IDS:  # before each is given a name
        raise ConfigError(f"{path}: default_num_special_tokens is {reserved:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    listed = spec.get("special_tokens")
    if listed is None:  # files of 2024 leave them to the library
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        listed = Tekkenizer.DEPRECATED_SPECIAL_TOKENS
    special = {f"<SPECIAL_{number}>": number for number in range(len(listed), reserved)}
    special |= {token["token_str"]: int(token["rank"]) for token in listed}
    size = int(config["default_vocab_size"]) - reserved
    ranks = {base64.b64decode(token["token_bytes"]): int(token["rank"]) + reserved for token in spec["vocab"][:size]}
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
