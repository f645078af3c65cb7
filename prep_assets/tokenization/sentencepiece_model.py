"""A SentencePiece ``.model`` as a ``tokenizer.json``.

The library normalizes a text, puts ``▁`` in front of it and for every space, and merges neighbours by the scores of what they make.
`tokenizers` does the same with a normalizer and with merges in the order of these scores. Models with user-defined pieces, which are matched inside of
texts by rules of their own, are refused.

Of a Unigram model the two may pick other pieces of the same text where splits score nearly the same (one adds scores up as float32, the other as float64), and
they normalize some characters otherwise. So the library itself tokenizes; what is converted has the names of ids and decodes them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError
from prep_assets.tokenization.flat import NO_TEXTS, Flat, offsets_of
from prep_assets.tokenization.ordinary import HIDDEN
from prep_assets.tokenization.rank_files import special_tokens_of

UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5


def from_sentencepiece(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A ``tokenizer.json``, and the names of its special tokens.

    Raises:
        ConfigError: a kind of model that has no exact counterpart.
    """
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model = proto.ModelProto.FromString(path.read_bytes())
    trainer, pieces = model.trainer_spec, list(model.pieces)
    if trainer.model_type not in (UNIGRAM, _BPE):
        kind = {3: "word", 4: "char"}.get(trainer.model_type, trainer.model_type)
        raise ConfigError(f"{path} is a SentencePiece model of the kind {kind}; BPE and Unigram alone are read. Use its tokenizer.json")
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
        "model": (_unigram if trainer.model_type == UNIGRAM else _bpe)(trainer, pieces),
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


def _unigram(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    entries = [[HIDDEN + piece.piece if piece.type == _UNUSED else piece.piece, piece.score] for piece in pieces]
    return {"type": "Unigram", "unk_id": trainer.unk_id, "vocab": entries, "byte_fallback": trainer.byte_fallback}


@bounded_cache("SentencePiece models", 4)
def library_of(model: bytes) -> Any:
    """The library with a model."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model)


class UnigramEngine:
    """The `sentencepiece` library with a Unigram model: its ids, and where it says that they stand in the text."""

    name = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        self._model = model

    @cached_property
    def _library(self) -> Any:
        return library_of(self._model)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        if not texts:
            return NO_TEXTS
        parts = [np.array(ids, np.uint32) for ids in self._library.Encode(list(texts), num_threads=1)]
        return Flat(np.concatenate(parts), offsets_of(np.fromiter(map(len, parts), np.int64, len(parts))))

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each; whole characters, where a token is a part of one.

        Raises:
            ConfigError: its pieces are not what it made of the text.
        """
        ids: list[int] = self._library.Encode(text)
        shown = zip(ids, self._library.Encode(text, out_type=str), strict=True)
        lengths = [1 if self._library.IsByte(number) else len(piece.encode()) for number, piece in shown]
        normal, offsets = self._library.Normalize(text, with_offsets=True)
        ends, borders = (
            np.concatenate([[0], np.cumsum(each, dtype=np.int64)]) for each in (lengths, [len(char.encode()) for char in normal])
        )
        if ends[-1] != borders[-1]:
            raise ConfigError(f"sentencepiece splits {text[:60]!r} into pieces of {ends[-1]:,} bytes, and makes {borders[-1]:,} of it")
        first = np.searchsorted(borders, ends[:-1], "right") - 1
        place = np.array(offsets, np.int64)
        return ids, list(zip(place[first].tolist(), place[np.searchsorted(borders, ends[1:])].tolist(), strict=True))
