"""Tokenizers published as a SentencePiece ``.model``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError
from prep_assets.text.ids import HIDDEN, Flat
from prep_assets.text.tokenizer_files import Encode, FileFormat, Spec, added_tokens, register_files

# A SentencePiece ``.model`` converted to a ``tokenizer.json``.
#
# The library normalizes a text, prepends ``▁`` and replaces spaces by it, and merges neighbours by the scores of the merged pieces. `tokenizers` does the
# same with a normalizer and with merges in the order of these scores. Models with user-defined pieces, which follow other rules of matching, are not
# supported.
#
# With a Unigram model the two may choose different pieces if splits score nearly the same (one sums scores as float32, the other as float64), and they
# normalize some characters differently. So the library itself tokenizes; the converted model names and decodes ids.

_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5


def _convert_sentencepiece(path: Path) -> Spec:
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model = proto.ModelProto.FromString(path.read_bytes())
    trainer, pieces, normal = model.trainer_spec, list(model.pieces), model.normalizer_spec
    if trainer.model_type not in (_UNIGRAM, _BPE):
        kind = {3: "word", 4: "char"}.get(trainer.model_type, trainer.model_type)
        raise ConfigError(f"{path} is a SentencePiece model of the kind {kind}; BPE and Unigram alone are read. Use its tokenizer.json")
    user_defined = [piece.piece for piece in pieces if piece.type == _USER_DEFINED]
    if user_defined:
        raise ConfigError(
            f"{path} has {len(user_defined)} user-defined pieces such as {user_defined[0]!r}; use the tokenizer.json that is published with it"
        )
    normalizers: list[dict[str, Any]] = []
    if normal.precompiled_charsmap:
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normal.precompiled_charsmap).decode()})
    if normal.remove_extra_whitespaces:
        normalizers.append({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""})
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if normal.add_dummy_prefix:
        normalizers.append({"type": "Prepend", "prepend": "▁"})
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if normal.add_dummy_prefix else []
    spaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    spec = {
        "added_tokens": added_tokens({piece.piece: number for number, piece in enumerate(pieces) if piece.type in (_CONTROL, _UNKNOWN)}),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "decoder": {"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": (_unigram_model if trainer.model_type == _UNIGRAM else _bpe_model)(trainer, pieces),
    }
    ids = {"unk_token": trainer.unk_id, "bos_token": trainer.bos_id, "eos_token": trainer.eos_id, "pad_token": trainer.pad_id}
    return spec, {name: pieces[number].piece for name, number in ids.items() if 0 <= number < len(pieces)}


def _bpe_model(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    """A BPE model with merges by descending score of the merged piece."""
    ids = {piece.piece: number for number, piece in enumerate(pieces)}
    usable = {piece.piece: piece.score for piece in pieces if piece.type == _NORMAL}
    merges = []
    for text in sorted(usable, key=lambda text: (-usable[text], ids[text])):
        splits = ((text[:at], text[at:]) for at in range(1, len(text)))
        merges += [[left, right] for left, right in splits if left in usable and right in usable]
    unknown = {"unk_token": pieces[trainer.unk_id].piece, "fuse_unk": True, "byte_fallback": trainer.byte_fallback}
    return {"type": "BPE", **unknown, "vocab": ids, "merges": merges}


def _unigram_model(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    entries = [[HIDDEN + piece.piece if piece.type == _UNUSED else piece.piece, piece.score] for piece in pieces]
    return {"type": "Unigram", "unk_id": trainer.unk_id, "vocab": entries, "byte_fallback": trainer.byte_fallback}


def _sentencepiece_encode(path: Path) -> Encode:
    processor = sentencepiece_processor(path.read_bytes())
    return lambda texts: [list(processor.encode(text)) for text in texts]


@bounded_cache("SentencePiece models", 4)
def sentencepiece_processor(model: bytes) -> Any:
    """Open a SentencePiece model."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model)


class Unigram(Struct, frozen=True):
    """A Unigram model, which the library `sentencepiece` encodes with. `model`: its file."""

    model: bytes
    what = "a SentencePiece Unigram model"
    why = "the library of the model itself"
    exact = False

    @property
    def digest(self) -> str:
        """sha256 of the model."""
        return hashlib.sha256(self.model).hexdigest()

    def engine(self) -> UnigramEngine:
        """The engine of all texts."""
        return UnigramEngine(self.model)

    def spec(self, backend: Any) -> dict[str, Any]:
        """The converted ``tokenizer.json``."""
        loaded: dict[str, Any] = msgspec.json.decode(backend.to_str())
        return loaded

    def normalized(self, text: str) -> str:
        """The text as the library normalizes it."""
        return str(sentencepiece_processor(self.model).Normalize(text)).replace("▁", " ")


def _encoding(path: Path, spec: dict[str, Any]) -> Unigram | None:
    return Unigram(path.read_bytes()) if spec["model"]["type"] == "Unigram" else None


class UnigramEngine:
    """The `sentencepiece` library with a Unigram model: its ids and their places in the text."""

    name = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        self._library = sentencepiece_processor(model)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        return Flat.of(self._library.Encode(list(texts), num_threads=1) if texts else [])

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each; a token inside a character has the span of that character.

        Raises:
            ConfigError: the pieces do not add up to the normalized text.
        """
        ids: list[int] = self._library.Encode(text)
        pieces = zip(ids, self._library.Encode(text, out_type=str), strict=True)
        lengths = [1 if self._library.IsByte(number) else len(piece.encode()) for number, piece in pieces]
        normal, offsets = self._library.Normalize(text, with_offsets=True)
        ends, char_ends = (
            np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]) for counts in (lengths, [len(char.encode()) for char in normal])
        )
        if ends[-1] != char_ends[-1]:
            raise ConfigError(f"sentencepiece splits {text[:60]!r} into pieces of {ends[-1]:,} bytes, and makes {char_ends[-1]:,} of it")
        first = np.searchsorted(char_ends, ends[:-1], "right") - 1
        char_offsets = np.array(offsets, np.int64)
        return ids, list(zip(char_offsets[first].tolist(), char_offsets[np.searchsorted(char_ends, ends[1:])].tolist(), strict=True))


register_files(FileFormat("*.model", "sentencepiece", _convert_sentencepiece, _sentencepiece_encode, _encoding))
