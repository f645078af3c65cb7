"""What all pipelines that write token streams share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.workspace import Workspace
from prep_assets.caches import bounded_cache
from prep_assets.config.image_rules import ImageRule, tokens_around
from prep_assets.config.models import Family
from prep_assets.disk.columns import stretches
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.images import image_fault
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens, unsigned
from prep_assets.tokenization.vocabulary import Vocabulary

BLOCK = 1 << 20
"""Tokens in a block when a whole stream is read through."""


def tokenizer_recipe(workspace: Workspace, family: Family) -> dict[str, Any]:
    """What ids depend on: the tokenizer's content, which of its readings that is, and the version of the reference library."""
    loader = "file" if family.tokenizer_loader == "auto" else family.tokenizer_loader
    vocabulary = workspace.vocabulary(family)
    padded = {} if family.pad_vocab_to is None else {"pad_vocab_to": vocabulary_size(family, vocabulary)}
    # models of words and pieces: a typed control token, or 2, byte, is text, and what they do not know refuses its record
    model = vocabulary.spec["model"]
    pieces = {"pieces": 2 if model.get("byte_fallback") else 1} if model["type"] != "BPE" else {}
    return {"sha256": vocabulary.hash, "loader": loader, "tokenizers": _version("tokenizers"), "engine": family.engine, **padded, **pieces}


@bounded_cache("versions of packages", 16)
def _version(package: str) -> str:
    """Finding it reads through the folder of packages, and a run may ask for a thousand domains."""
    from importlib.metadata import version

    return version(package)


def vocabulary_size(family: Family, vocabulary: Vocabulary) -> int:
    """How many ids the model has: as many as the tokenizer, or more where the family's vocabulary is padded.

    Raises:
        ConfigError: the tokenizer has more.
    """
    if family.pad_vocab_to is None:
        return vocabulary.size
    if family.pad_vocab_to < vocabulary.size:
        raise ConfigError(
            f"pad_vocab_to: {family.pad_vocab_to:,} ids do not hold tokenizer {vocabulary.name}, whose highest id is {vocabulary.size - 1:,}. "
            f"Set it to {vocabulary.size:,} or more"
        )
    return family.pad_vocab_to


def ids_dtype(family: Family, vocabulary: Vocabulary) -> str:
    """The integer type that token ids are stored in.

    Raises:
        ConfigError: the configured type cannot hold the vocabulary.
    """
    size = vocabulary_size(family, vocabulary)
    if family.output.dtype == "auto":
        return "uint16" if size <= 1 << 16 else "uint32"
    if size - 1 > np.iinfo(family.output.dtype).max:
        raise ConfigError(
            f"output.dtype {family.output.dtype} holds ids up to {np.iinfo(family.output.dtype).max:,}, the vocabulary has {size:,}"
        )
    return family.output.dtype


class NeedsColumns(Exception):
    """Tokens have weights that the columns of a stream cannot hold, met while it was written.

    Attributes:
        dtypes: the masks that can, by name.
    """

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        super().__init__(dtypes)
        self.dtypes = dtypes


def mask_columns(weights: npt.NDArray[np.float32], dtypes: Mapping[str, str]) -> dict[str, npt.NDArray[Any]]:
    """The ``loss_mask`` of weights of which each is a loss weight or `UNATTENDED`; and the ``attention_mask``, where `dtypes` names one.

    Raises:
        NeedsColumns: a weight is neither 0 nor 1, or a token is not attended, and `dtypes` has no place for that.
    """
    loss, attended = unsigned(weights)
    needed = dict(dtypes)
    if ((loss != 0) & (loss != 1)).any():
        needed["loss_mask"] = "float32"
    if not attended.all():
        needed[ATTENTION] = "uint8"
    if needed != dtypes:
        raise NeedsColumns(needed)
    columns = {"loss_mask": loss, ATTENTION: attended}
    return {name: columns[name].astype(dtype) for name, dtype in dtypes.items()}


def audit_stream(payload: Path, stream: str, vocabulary: Vocabulary, image: int | None = None, rule: ImageRule | None = None) -> TokenStore:
    """Structural checks on a token stream: parts fit together, records are not empty, ids are inside the vocabulary, images stand where the
    image token does.

    Args:
        image: id of the image token; `None` where there can be no images.
        rule: how many tokens an image has; `None`: nothing but the image token stands for one.

    Raises:
        StoreError: one of these does not hold.
    """
    store = open_tokens(payload, stream)
    lengths = store.lengths
    if len(lengths) and lengths.min() < 1:
        raise StoreError(f"{stream}: record {int(lengths.argmin()):,} has no tokens")
    tokens = store.arrays["tokens"]
    for part in stretches(len(tokens), BLOCK):
        block = np.asarray(tokens[part])
        if not 0 <= int(block.min()) <= int(block.max()) < vocabulary.size:
            raise StoreError(f"{stream}: token ids from {block.min()} to {block.max()}, the vocabulary has {vocabulary.size:,}")
    mixed = rule is not None and bool(tokens_around(rule))
    fault = None if image is None else image_fault(store.images, store.arrays, store.starts, lengths, image, mixed=mixed)
    if fault is not None:
        raise StoreError(
            f"{stream}: {fault}. Where the chat template writes the image token by itself, name another control token as image_token"
        )
    return store
