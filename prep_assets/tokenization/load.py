"""Opening a tokenizer. The reference is the published ``tokenizer.json`` itself; what stands beside it gives names and templates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from prep_assets.errors import ConfigError
from prep_assets.tokenization.beside import DEFAULT, chat_templates, special_tokens
from prep_assets.tokenization.known_faults import refuse_known_faults
from prep_assets.tokenization.vocabulary import Vocabulary

Loader = Literal["file", "transformers"]

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "vocab.json", "merges.txt"),
    *("chat_template.*", "additional_chat_templates/*", "*.model", "*.tiktoken", "tekken.json"),
)
"""What is fetched of a hub repository."""


def load_vocabulary(tokenizer: str, *, base: Path | None = None, revision: str | None = None, loader: Loader = "file") -> Vocabulary:
    """Open a tokenizer in a local directory (relative to `base`) or a hub repository.

    Args:
        loader: ``file``: ``tokenizer.json`` as it is; ``transformers``: what `AutoTokenizer` makes of the folder.

    Raises:
        ConfigError: nothing there that opens, or a file that is known to be wrong.
    """
    folder = folder_of(tokenizer, base=base, revision=revision)
    return from_transformers(tokenizer, folder) if loader == "transformers" else from_file(tokenizer, folder)


def folder_of(tokenizer: str, *, base: Path | None = None, revision: str | None = None) -> Path:
    """The folder of a tokenizer; one of a hub repository is fetched, or found in the cache.

    Raises:
        ConfigError: there is neither.
    """
    local = (base or Path.cwd()) / tokenizer
    if local.is_dir():
        return local
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(tokenizer, revision=revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"tokenizer {tokenizer!r}: neither the directory {local} nor a hub repository that opens: {error}") from error


def from_file(name: str, folder: Path) -> Vocabulary:
    """The published ``tokenizer.json`` of a folder.

    Raises:
        ConfigError: there is none, it does not open, or it is known to be wrong.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        found = ", ".join(sorted(each.name for each in folder.iterdir())) or "nothing"
        raise ConfigError(
            f"tokenizer {name!r}: no tokenizer.json in {folder}, which holds {found}. Name the folder of a published tokenizer, or set "
            "tokenizer_loader: transformers to take what AutoTokenizer makes of these files"
        )
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"{path} is no tokenizer that the tokenizers library reads: {error}") from error
    return _vocabulary(name, folder, backend, special_tokens(folder), chat_templates(folder))


def from_transformers(name: str, folder: Path) -> Vocabulary:
    """What `transformers.AutoTokenizer` makes of a folder. Code in the folder is never run, and nobody is asked.

    Raises:
        ConfigError: it does not open the folder, or has no fast (Rust) backend for it.
    """
    # transformers advises to install torch, which tokenizers do not need
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # classes of tokenizers raise what they like on files that they do not understand
        raise ConfigError(f"tokenizer {name!r}: transformers does not open {folder}: {error}") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"tokenizer {name!r} has no fast backend (tokenizer.json); convert it with transformers first")
    special = {name: str(text) for name, text in loaded.special_tokens_map.items() if isinstance(text, str)}
    template = loaded.chat_template
    return _vocabulary(name, folder, backend, special, {DEFAULT: template} if isinstance(template, str) else dict(template or {}))


def _vocabulary(name: str, folder: Path, backend: Any, special: dict[str, str], templates: dict[str, str]) -> Vocabulary:
    backend.no_truncation()
    backend.no_padding()
    only = templates.get(DEFAULT) if len(templates) < 2 else None
    vocabulary = Vocabulary(name, backend, special, only, templates={} if only else templates)
    refuse_known_faults(vocabulary, folder)
    return vocabulary
