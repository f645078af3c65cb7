"""A SentencePiece ``.model`` as a ``tokenizer.json``.

The library normalizes a text, puts ``▁`` in front of it and for every space, and merges neighbours by the scores of what they make.
`tokenizers` does the same with a normalizer and with merges in the order of these scores. Two kinds of models are refused: those with user-defined
pieces, which are matched inside of texts by rules of their own; and Unigram models, for which the two libraries pick different pieces far on in long
texts and where two splits score the same (docs/tokenizers.md).
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.tokenization.rank_files import special_tokens_of

_BPE = 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4


def from_sentencepiece(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A ``tokenizer.json``, and the names of its special tokens.

    Raises:
        ConfigError: a kind of model that has no exact counterpart.
    """
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model = proto.ModelProto.FromString(path.read_bytes())
    trainer, pieces = model.trainer_spec, list(model.pieces)
    if trainer.model_type != _BPE:
        kind = {1: "Unigram", 3: "word", 4: "char"}.get(trainer.model_type, trainer.model_type)
        why = "; of long texts tokenizers would pick other pieces" if kind == "Unigram" else ""
        raise ConfigError(
            f"{path} is a SentencePiece model of the kind {kind}; BPE alone can be converted exactly{why}. Use its tokenizer.json"
        )
    own = [piece.piece for piece in pieces if piece.type == _USER_DEFINED]
    if own:
        raise ConfigError(f"{path} has {len(own)} user-defined pieces such as {own[0]!r}; use the tokenizer.json that is published with it")
    special = {piece.piece: number for number, piece in enumerate(pieces) if piece.type in (_CONTROL, _UNKNOWN)}
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special_tokens_of(special),
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model.normalizer_spec)},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": _decoder(model.normalizer_spec.add_dummy_prefix),
        "model": _bpe(trainer, pieces),
    }
    ids = {"unk_token": trainer.unk_id, "bos_token": trainer.bos_id, "eos_token": trainer.eos_id, "pad_token": trainer.pad_id}
    return spec, {name: pieces[number].piece for name, number in ids.items() if 0 <= number < len(pieces)}


def _normalizers(spec: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if spec.precompiled_charsmap:
        found.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(spec.precompiled_charsmap).decode()})
    if spec.remove_extra_whitespaces:
        found.append({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""})
        found.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if spec.add_dummy_prefix:
        found.append({"type": "Prepend", "prepend": "▁"})
    found.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    return found


def _decoder(prefix: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {"type": "Sequence", "decoders": [*parts, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else [])]}


def _bpe(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    """The pair whose joined piece has the highest score is merged first, so merges stand in the order of these scores."""
    ids = {piece.piece: number for number, piece in enumerate(pieces)}
    usable = {piece.piece: piece.score for piece in pieces if piece.type == _NORMAL}
    merges = []
    for text in sorted(usable, key=lambda text: (-usable[text], ids[text])):
        splits = ((text[:at], text[at:]) for at in range(1, len(text)))
        merges += [[left, right] for left, right in splits if left in usable and right in usable]
    unknown = pieces[trainer.unk_id].piece
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": trainer.byte_fallback,
        "ignore_merges": False,
        "vocab": ids,
        "merges": merges,
    }
