"""A tokenizer, as the rest of the house sees it: its ids, its control tokens, its content hash, and the bytes behind each id."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.tokenization.byte_level import ALPHABET
from prep_assets.tokenization.fast_form import composes
from prep_assets.tokenization.ordinary import unknown_id
from prep_assets.tokenization.sentencepiece_model import library_of
from prep_assets.tokenization.sorted_json import sorted_json

if TYPE_CHECKING:
    from prep_assets.tokenization.code_tokenizer import Code

CODE = "Code"
"""The type of a model that is a class of the user's own."""


@dataclass(frozen=True)
class Vocabulary:
    """A loaded tokenizer.

    Attributes:
        name: the path or hub id it came from, for messages only; never part of a build's identity.
        backend: the `tokenizers.Tokenizer`, the reference for ids.
        special: names and texts of the special tokens (``eos_token`` …), as chat templates see them.
        chat_template: the tokenizer's own Jinja template, or `None`.
        templates: its own templates by name, where it has several; then `chat_template` is `None`.
        file: name of the file that it was read from.
        written: added tokens that a chat template writes: control tokens, whether or not they are marked special.
        code: the class that encodes, where no ``tokenizer.json`` says how; `backend` then has the names and the bytes of ids, and cannot encode.
        unigram: the SentencePiece model that encodes, see `UnigramEngine`; ids of `backend` may be others.
    """

    name: str
    backend: Any
    special: dict[str, str]
    chat_template: str | None
    templates: Mapping[str, str] = field(default_factory=dict)
    file: str = "tokenizer.json"
    written: tuple[str, ...] = ()
    code: Code | None = None
    unigram: bytes = b""

    def with_control(self, written: Iterable[str]) -> Vocabulary:
        """This tokenizer with further added tokens as control tokens."""
        plain = {token["content"] for token in self.spec["added_tokens"] if not token["special"]}
        more = plain.intersection(written)
        return replace(self, written=tuple(sorted({*self.written, *more}))) if more else self

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The parsed ``tokenizer.json`` of the tokenizer as it is in memory. Control tokens are marked special there, all of them, so that
        encoding ordinary text with it has one rule: special tokens are text."""
        loaded: dict[str, Any] = msgspec.json.decode(self.backend.to_str()) if self.code is None else self.code.spec(self.backend)
        for token in loaded["added_tokens"]:
            token["special"] |= token["content"] in self.written
        return loaded

    @cached_property
    def hash(self) -> str:
        """sha256 of everything that decides ids and renders: ``tokenizer.json``, special tokens, chat template."""
        parts = [self.spec, self.special, self.chat_template, *([dict(self.templates)] if self.templates else [])]
        parts += [hashlib.sha256(self.unigram).hexdigest()] if self.unigram else []
        return hashlib.sha256(f"[{', '.join(map(sorted_json, parts))}]".encode()).hexdigest()

    @property
    def encoder(self) -> Any:
        """`backend`, to encode whole texts with.

        Raises:
            ConfigError: it does not give the tokenizer's ids.
        """
        if self.unigram:
            raise ConfigError(
                f"tokenizer {self.name} is a SentencePiece Unigram model; pretraining and chats take it, this takes its tokenizer.json"
            )
        return self.backend

    @cached_property
    def size(self) -> int:
        """One more than the largest id."""
        own = self.spec["model"].get("vocab")
        if not isinstance(own, dict):  # of Unigram pieces the place is the id
            own = self.backend.get_vocab(with_added_tokens=True)
        return 1 + int(max((*own.values(), *(token["id"] for token in self.spec["added_tokens"]))))

    @cached_property
    def control(self) -> dict[str, int]:
        """Control tokens: text → id of every added token that is marked special, or that the family's template writes."""
        return {token["content"]: token["id"] for token in self.spec["added_tokens"] if token["special"]}

    @cached_property
    def eos_id(self) -> int:
        """Id of the end-of-text token.

        Raises:
            ConfigError: the tokenizer declares none.
        """
        return self._id_of("eos_token")

    @cached_property
    def bos_id(self) -> int:
        """Id of the begin-of-text token.

        Raises:
            ConfigError: the tokenizer declares none.
        """
        return self._id_of("bos_token")

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary has no token for; `None` where there is none."""
        return unknown_id(self.spec)

    @cached_property
    def pad_id(self) -> int:
        """Id that fills unused positions: the padding token, else the end-of-text token. Padding is never trained."""
        return self._id_of("pad_token") if "pad_token" in self.special else self.eos_id

    def _id_of(self, which: str) -> int:
        text = self.special.get(which)
        found = None if text is None else self.backend.token_to_id(text)
        if found is None:
            raise ConfigError(f"tokenizer {self.name} has no {which}; set it in its tokenizer_config.json")
        return int(found)

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...] | None:
        """The UTF-8 bytes that each id stands for, or `None` where ids do not stand for fixed bytes (WordPiece, tokenizers that change text by
        more than composing it). They are those of the text as `normalized` gives it."""
        decode = _byte_decoder(self.spec)
        if decode is None:
            return None
        table, own = [b""] * self.size, self.spec["model"]["vocab"]
        for number, text in zip(own.values(), decode(list(own)), strict=True):
            table[number] = text
        for token in self.spec["added_tokens"]:
            table[token["id"]] = token["content"].encode()
        return tuple(table)

    @cached_property
    def byte_lengths(self) -> npt.NDArray[np.int64] | None:
        """Length in bytes of each id's text, shape (size,), or `None` as for `token_bytes`."""
        if self.token_bytes is None:
            return None
        return np.fromiter(map(len, self.token_bytes), np.int64, self.size)

    @cached_property
    def composes(self) -> bool | None:
        """Whether it composes text before it tokenizes (NFC); `None` where its normalizer does more than that."""
        return composes(self.spec.get("normalizer"))

    def is_normal(self, text: str) -> bool:
        """Whether the normalizer certainly leaves a text as it is, as it does most texts where it only composes."""
        return self.composes is False or (self.composes is True and unicodedata.is_normalized("NFC", text))

    def normalized(self, text: str) -> str:
        """What the tokenizer makes of a text before it tokenizes it."""
        if self.unigram:
            return str(library_of(self.unigram).Normalize(text)).replace("▁", " ")
        return text if self.is_normal(text) else str(self.backend.normalizer.normalize_str(text))

    @cached_property
    def prefix_space(self) -> Literal["never", "first", "always"]:
        """Where a space that is not in the text is put before its first word: SentencePiece's ``add_dummy_prefix``."""
        parts = [part for part in _parts(self.spec.get("pre_tokenizer")) if part["type"] == "Metaspace"]
        return parts[0].get("prepend_scheme", "always") if parts else "never"

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """Regular expressions at which its pre-tokenizer splits words."""
        found = (part.get("pattern", {}).get("Regex") for part in _parts(self.spec.get("pre_tokenizer")))
        return tuple(pattern for pattern in found if pattern)

    def decode(self, ids: npt.ArrayLike) -> str:
        """The text of `ids` by the reference tokenizer's own decoder, control tokens shown."""
        return self.decode_batch([np.asarray(ids).tolist()])[0]

    def decode_batch(self, lists: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of several lists of ids.

        A control token is put in front and its text taken off again, because SentencePiece decoders drop a leading space. Control tokens whose
        text the decoder would change, as it makes a space of the ``▁`` in ``<｜end▁of▁sentence｜>``, are written as they are.
        """
        if not self._respelled or all(self._respelled.keys().isdisjoint(ids) for ids in lists):
            return self._decoded(lists)
        parts = [_cut_at(ids, self._respelled) for ids in lists]
        decoded = iter(self._decoded([stretch for each in parts for stretch, _ in each]))
        return ["".join(next(decoded) + self._respelled.get(token, "") for _, token in each) for each in parts]

    @cached_property
    def _guard(self) -> tuple[str, int] | None:
        """A control token that the decoder writes as it is."""
        return next((each for each in self.control.items() if self.backend.decode([each[1]], skip_special_tokens=False) == each[0]), None)

    @cached_property
    def _respelled(self) -> dict[int, str]:
        """Id → text of the control tokens whose text the decoder would change."""
        found = self._decoded([[number] for number in self.control.values()])
        return {number: text for (text, number), shown in zip(self.control.items(), found, strict=True) if shown != text}

    def _decoded(self, lists: Sequence[Sequence[int]]) -> list[str]:
        if self._guard is None:
            return [str(text) for text in self.backend.decode_batch([list(ids) for ids in lists], skip_special_tokens=False)]
        text, token = self._guard
        return [
            str(found).removeprefix(text)
            for found in self.backend.decode_batch([[token, *ids] for ids in lists], skip_special_tokens=False)
        ]


def _cut_at(ids: Sequence[int], tokens: Mapping[int, str]) -> list[tuple[list[int], int]]:
    """The stretches between some tokens, each with the token after it; -1 after the last."""
    ends = [at for at, token in enumerate(ids) if token in tokens]
    bounds = zip([0, *(end + 1 for end in ends)], [*ends, len(ids)], strict=True)
    return [(list(ids[low:high]), int(ids[high]) if high < len(ids) else -1) for low, high in bounds]


def _byte_decoder(spec: dict[str, Any]) -> Callable[[list[str]], list[bytes]] | None:
    """The function from vocabulary entries to their bytes, for the two families in which every id stands for fixed bytes."""
    if spec["model"]["type"] not in ("BPE", CODE) or composes(spec.get("normalizer")) is None:
        return None
    kinds = {part["type"]: part for part in _parts(spec.get("decoder"))}
    if "ByteLevel" in kinds:
        return _byte_level
    if "ByteFallback" in kinds:
        return lambda texts: list(map(_byte_fallback, texts))
    return None


def _parts(component: dict[str, Any] | None) -> list[dict[str, Any]]:
    if component is None:
        return []
    nested = component.get("decoders") or component.get("pretokenizers") or component.get("normalizers")
    return list(nested) if nested else [component]


_BYTES = np.full(512, -1, np.int16)
"""The byte of each character of the alphabet; -1 of all others, the last of which stands for what comes after it as well."""
_BYTES[[ord(char) for char in ALPHABET]] = np.arange(256)


def _byte_level(texts: list[str]) -> list[bytes]:
    """A byte for each character.

    Raises:
        UnicodeEncodeError: a character is not of the alphabet, so that it has none.
    """
    joined, ends = "".join(texts), accumulate(map(len, texts), initial=0)
    found = _BYTES[np.minimum(np.frombuffer(joined.encode("utf-32-le"), np.uint32), len(_BYTES) - 1)]
    if (found < 0).any():
        at = int(np.argmax(found < 0))
        raise UnicodeEncodeError("byte-level", joined, at, at + 1, "the alphabet of bytes does not have it")
    data = found.astype(np.uint8).tobytes()
    return [data[start:end] for start, end in pairwise(ends)]


def _byte_fallback(text: str) -> bytes:
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return bytes([int(text[3:5], 16)])
    return text.replace("▁", " ").encode()
