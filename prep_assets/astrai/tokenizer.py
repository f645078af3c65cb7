"""A tokenizer directory, as AstrAI reads it: ``tokenizer.json`` as it stands, and ``tokenizer_config.json`` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from prep_assets.errors import ConfigError
from prep_assets.tokenization.beside import DEFAULT, NAMES, chat_templates, read_object, templates_by_name
from prep_assets.tokenization.load import from_file
from prep_assets.tokenization.vocabulary import Vocabulary


def load_tokenizer(directory: Path) -> Vocabulary:
    """Load a tokenizer.

    ``tokenizer_config.json`` may be AstrAI's (``special_tokens``, a map of names to texts) or the one that transformers writes
    (``bos_token`` and so on beside each other). The chat template is its ``chat_template``, else the file ``chat_template.jinja``.

    Raises:
        ConfigError: there is no such directory, no tokenizer in it, or one that is known to be wrong.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        remedy = (
            "Convert the tokenizer with transformers (save_pretrained)" if directory.is_dir() else "Name the directory with --tokenizer"
        )
        raise ConfigError(f"no tokenizer at {path}. {remedy}")
    found = from_file(str(directory), directory)
    config = read_object(directory / "tokenizer_config.json")
    declared = config.get("special_tokens")
    named = declared if isinstance(declared, Mapping) else {name: config.get(name) for name in NAMES}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in named.items()}
    special = {name: text for name, text in texts.items() if isinstance(text, str) and found.backend.token_to_id(text) is not None}
    template = {**chat_templates(directory), **templates_by_name(config.get("chat_template"))}.get(DEFAULT)
    return replace(found, special=special, chat_template=template, templates={})
