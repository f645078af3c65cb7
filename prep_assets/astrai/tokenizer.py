"""A tokenizer directory, as AstrAI reads it: ``tokenizer.json`` as it stands, and ``tokenizer_config.json`` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.tokenization.beside import NAMES, read_object
from prep_assets.tokenization.vocabulary import Vocabulary


def load_tokenizer(directory: Path) -> Vocabulary:
    """Load a tokenizer.

    ``tokenizer_config.json`` may be AstrAI's (``special_tokens``, a map of names to texts) or the one that transformers writes
    (``bos_token`` and so on beside each other). The chat template is its ``chat_template``, else the file ``chat_template.jinja``.
    Truncation and padding that ``tokenizer.json`` may have switched on are switched off: the configuration decides about lengths.

    Raises:
        ConfigError: there is no such directory, or no tokenizer in it.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        remedy = (
            "Convert the tokenizer with transformers (save_pretrained)" if directory.is_dir() else "Name the directory with --tokenizer"
        )
        raise ConfigError(f"no tokenizer at {path}. {remedy}")
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"{path} is no tokenizer that the tokenizers library reads: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    config = read_object(directory / "tokenizer_config.json")
    special = {name: token for name, token in _special(config) if backend.token_to_id(token) is not None}
    return Vocabulary(str(directory), backend, special, _template(directory, config))


def _special(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    declared = config.get("special_tokens")
    found = declared if isinstance(declared, Mapping) else {name: config.get(name) for name in NAMES}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in found.items()}
    return [(name, text) for name, text in texts.items() if isinstance(text, str)]


def _template(directory: Path, config: Mapping[str, Any]) -> str | None:
    beside = directory / "chat_template.jinja"
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name, as transformers writes them
        found = next((entry["template"] for entry in found if entry.get("name") == "default"), None)
    if isinstance(found, str):
        return found
    return beside.read_text("utf-8") if beside.is_file() else None
