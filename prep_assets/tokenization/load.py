"""Opening a tokenizer. The reference is the published file itself; what stands beside it gives names and templates.

Some published files are known to be wrong and are refused: they open, they decode, and they split words where the model never saw them split.
They are recognized by their fault, not by their hash: a fault comes from a converter, so many files have it, and each copy that was saved again has
another hash.

Tekken with the default pattern: files of Mistral's Tekken vocabulary that were converted with the pattern of GPT-4 or Llama 3 (transformers
pull request 42131; the discussion of Mistral-Small-3.1). ``eBay``, ``pH`` and ``NaOH`` come out in other pieces than in training. transformers
warns in its log.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from prep_assets.errors import ConfigError
from prep_assets.tokenization.beside import DEFAULT, chat_templates, special_tokens
from prep_assets.tokenization.native import MOST_IDS, checked_size, in_words, try_out
from prep_assets.tokenization.other_files import convert, other_file
from prep_assets.tokenization.vocabulary import Vocabulary

Loader = Literal["file", "transformers"]

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "vocab.json", "merges.txt"),
    *(
        "chat_template.*",
        "additional_chat_templates/*",
        "*.model",
        "*.tiktoken",
        "tekken.json",
        "preprocessor_config.json",
        "processor_config.json",
    ),
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
    """The folder of a tokenizer, or its file where one is named; a hub repository is fetched, or found in the cache.

    Raises:
        ConfigError: there is neither.
    """
    local = (base or Path.cwd()) / tokenizer
    if local.exists():
        return local
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(tokenizer, revision=revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"tokenizer {tokenizer!r}: neither the directory {local} nor a hub repository that opens: {error}") from error


def published_file(place: Path) -> Path:
    """The file that defines a tokenizer: the one that is named, else a folder's ``tokenizer.json``, else another that can be converted.

    Raises:
        ConfigError: there is none, or several.
    """
    if place.is_file():
        return place
    path = place / "tokenizer.json"
    other = None if path.is_file() else other_file(place)
    if other is None and not path.is_file():
        found = ", ".join(sorted(each.name for each in place.iterdir())) or "nothing"
        raise ConfigError(
            f"no tokenizer.json in {place}, which holds {found}. Name the folder of a published tokenizer, or set "
            "tokenizer_loader: transformers to take what AutoTokenizer makes of these files"
        )
    return other or path


def from_file(name: str, place: Path) -> Vocabulary:
    """The published file of a folder, or the one that is named. What is no ``tokenizer.json`` is converted; `agreement` proves it.

    Raises:
        ConfigError: there is none, it does not open, or it is known to be wrong.
    """
    from tokenizers import Tokenizer

    path = checked_size(published_file(place))
    names: dict[str, str] = {}
    unigram = b""
    with in_words(f"{path} is not a tokenizer that the tokenizers library reads"):
        if is_tokenizer_json(path):
            backend = Tokenizer.from_file(str(path))
        else:
            spec, names = convert(path)
            backend = Tokenizer.from_str(json.dumps(spec))
            unigram = path.read_bytes() if spec["model"]["type"] == "Unigram" else b""
    try_out(path, backend)
    found = _vocabulary(name, path, backend, {**names, **special_tokens(path.parent)}, chat_templates(path.parent))
    return replace(found, unigram=unigram) if unigram else found


def is_tokenizer_json(path: Path) -> bool:
    """Whether a file is a ``tokenizer.json`` and no Tekken."""
    return path.suffix == ".json" and not path.name.startswith("tekken")


def from_transformers(name: str, folder: Path) -> Vocabulary:
    """What `transformers.AutoTokenizer` makes of a folder. Code in the folder is never run, and no question is asked.

    Raises:
        ConfigError: it does not open the folder, or has no fast (Rust) backend for it.
    """
    # transformers advises to install torch, which tokenizers do not need
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    folder = folder.parent if folder.is_file() else folder
    for file in (file for pattern in FILES for file in folder.glob(pattern)):
        checked_size(file)
    with in_words(f"tokenizer {name!r}: transformers does not open {folder}"):
        # classes of tokenizers raise what they like on files that they do not understand
        loaded = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False, local_files_only=True)
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"tokenizer {name!r} has no fast backend (tokenizer.json); convert it with transformers first")
    try_out(folder, backend)
    special = {name: str(text) for name, text in loaded.special_tokens_map.items() if isinstance(text, str)}
    template = loaded.chat_template
    return _vocabulary(
        name, folder / "tokenizer.json", backend, special, {DEFAULT: template} if isinstance(template, str) else dict(template or {})
    )


def _vocabulary(name: str, path: Path, backend: Any, special: dict[str, str], templates: dict[str, str]) -> Vocabulary:
    backend.no_truncation()
    backend.no_padding()
    only = templates.get(DEFAULT) if len(templates) < 2 else None
    if (largest := _largest_id(backend)) >= MOST_IDS:  # before its ids are written out, with a place for each
        raise ConfigError(f"{path}: the largest id is {largest:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    vocabulary = Vocabulary(name, backend, special, only, templates={} if only else templates, file=path.name)
    refuse_known_faults(vocabulary, path)
    return vocabulary


def _largest_id(backend: Any) -> int:
    count: int = backend.get_vocab_size()
    if None not in map(backend.id_to_token, range(count)):  # so many tokens, and each id below has one
        return count - 1
    return max(backend.get_vocab().values(), default=-1)


_TEKKEN_BEGINS = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")
_TEKKEN_SIZE = 131_072
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""What the default patterns begin with. Tekken's own pattern splits no contractions; it tells upper from lower case."""


def refuse_known_faults(vocabulary: Vocabulary, path: Path) -> None:
    """Stop at a tokenizer that is known to be wrong.

    Raises:
        ConfigError: says what is wrong, and what to use.
    """
    added = {token["id"]: token["content"] for token in vocabulary.spec["added_tokens"]}
    is_tekken = vocabulary.size == _TEKKEN_SIZE and all(added.get(number) == text for number, text in enumerate(_TEKKEN_BEGINS))
    if is_tekken and any(_CONTRACTIONS in pattern for pattern in vocabulary.patterns):
        raise ConfigError(
            f"tokenizer {vocabulary.name!r}: {path} has Mistral's Tekken vocabulary and the pattern of another tokenizer "
            f"({_CONTRACTIONS}…), as a faulty conversion wrote it: words such as eBay and NaOH get other ids than in training "
            "(huggingface/transformers pull request 42131). Use the model's own tekken.json, or a tokenizer.json that was published after the fix"
        )
