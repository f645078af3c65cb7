"""Ids of texts, and the ``tokenizer.json`` that engines get."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints, TokenIds
from prep_assets.stores.files import Kept
from prep_assets.text.spans import bounds

# Ids of several texts in one array, and the protocol of engines.


class Flat(Struct, frozen=True):
    """Concatenated ids of several texts.

    Attributes:
        ids: uint32[T].
        offsets: int64[n + 1]; text `i` has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: TokenIds
    offsets: Ints

    @classmethod
    def of(cls, texts: Sequence[npt.ArrayLike]) -> Flat:
        """Concatenate the ids of texts."""
        arrays = [np.asarray(ids, np.uint32) for ids in texts]
        return cls(np.concatenate([NO_TEXTS.ids, *arrays]), bounds([len(ids) for ids in arrays]))

    def take(self, selected: npt.NDArray[np.bool_] | Ints) -> Flat:
        """The selected texts, in order. `selected`: a mask, bool[n], or ascending numbers."""
        mask = np.zeros(len(self.offsets) - 1, bool)
        mask[selected] = True
        if mask.all():
            return self
        counts = np.diff(self.offsets)
        return Flat(self.ids[np.repeat(mask, counts)], bounds(counts[mask]))


NO_TEXTS = Flat(np.zeros(0, np.uint32), np.zeros(1, np.int64))


class Engine(Protocol):
    """Tokenizes ordinary text in batches. Control tokens are neither produced nor added."""

    name: str

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order. Texts must be valid Unicode (no lone surrogates)."""
        ...


class SpanEngine(Engine, Protocol):
    """An engine that says where each token is in the text."""

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each."""
        ...


class Encoding(Protocol):
    """What encodes in place of the library `tokenizers`, for a tokenizer that no ``tokenizer.json`` expresses."""

    @property
    def what(self) -> str:
        """What it is, for messages."""
        ...

    @property
    def why(self) -> str:
        """Why its engine encodes everything."""
        ...

    @property
    def digest(self) -> str:
        """Hash of what its `spec` does not say, or ``""``."""
        ...

    @property
    def exact(self) -> bool:
        """Whether ids stand for fixed bytes."""
        ...

    def engine(self) -> SpanEngine:
        """The engine of all texts."""
        ...

    def spec(self, backend: Any) -> dict[str, Any]:
        """The equivalent of a ``tokenizer.json``. `backend`: a tokenizer with all tokens."""
        ...

    def normalized(self, text: str) -> str:
        """The text after normalization, before tokenization."""
        ...


def interleaved(first: Flat, second: Flat, from_first: npt.NDArray[np.bool_]) -> Flat:
    """Merge two results in the order of the texts; `from_first`, bool[n], says which texts are those of `first`."""
    counts = np.empty(len(from_first), np.int64)
    counts[from_first], counts[~from_first] = np.diff(first.offsets), np.diff(second.offsets)
    ids_from_first = np.repeat(from_first, counts)
    ids = np.empty(len(ids_from_first), np.uint32)
    ids[ids_from_first], ids[~ids_from_first] = first.ids, second.ids
    return Flat(ids, bounds(counts))


# The ``tokenizer.json`` for ordinary text, in which a typed control token never becomes the control token.
#
# The library can leave special tokens unmatched, but a model that looks words up in its vocabulary still finds ``</s>`` there: Unigram (T5, XLM-R, ALBERT),
# WordPiece and WordLevel. SentencePiece never matches control pieces in a text. So these entries are renamed to names that no text holds. A Unigram model
# with byte fallback also finds its bytes there: a typed ``<0x0A>`` became a line break. Texts are cut after such a ``<``.

HIDDEN = "\ufdd0"
"""A noncharacter, which no text may hold."""
_NO_BYTES = {"type": "Split", "pattern": {"Regex": "(?<=<)(?=0x[0-9A-F]{2}>)"}, "behavior": "Isolated", "invert": False}


def ordinary(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A ``tokenizer.json`` with the same ids for ordinary text, in which no typed text is a special token."""
    model = spec["model"]
    if model["type"] == "Unigram" and model.get("byte_fallback"):
        before = [spec["pre_tokenizer"]] if spec.get("pre_tokenizer") else []
        spec = {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*before, _NO_BYTES]}}
    special = {token["content"] for token in spec["added_tokens"] if token["special"]}
    if model["type"] == "BPE" or special.isdisjoint(text for text, _ in _entries(model)):
        return dict(spec)

    def hide(text: str) -> str:
        return HIDDEN + text if text in special else text

    entries = [(hide(text), value) for text, value in _entries(model)]
    unknown = {"unk_token": hide(model["unk_token"])} if "unk_token" in model else {}
    # added tokens are looked up by name, so these would get new ids
    added = [token for token in spec["added_tokens"] if token["content"] not in special]
    return {**spec, "added_tokens": added, "model": {**model, **unknown, "vocab": entries if model["type"] == "Unigram" else dict(entries)}}


def _entries(model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    vocabulary = model["vocab"]
    return [(text, value) for text, value in (vocabulary if model["type"] == "Unigram" else vocabulary.items())]


# GPT-2's printable character for each byte: the byte itself if printable, else the next code point from 256 on.


def _alphabet() -> tuple[str, ...]:
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    substitutes = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(substitutes)) for byte in range(256))


ALPHABET = _alphabet()


# JSON as `json.dumps` writes it with sorted keys, in a tenth of the time for a vocabulary and merges, which are most of a tokenizer.

_SORTED = msgspec.json.Encoder(order="sorted")


def sorted_json(value: Any) -> str:
    """``json.dumps(value, sort_keys=True, ensure_ascii=False)`` of a value read from JSON."""
    if _is_table(value):
        return msgspec.json.format(_SORTED.encode(value), indent=0).decode()
    if not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return "{" + ", ".join(f"{sorted_json(key)}: {sorted_json(value[key])}" for key in sorted(value)) + "}"


def _is_table(value: Any) -> bool:
    """Whether a value is a vocabulary or merges: integers by text, a list of texts, or one of lists of texts. Both libraries write these alike, unlike
    numbers with a fraction."""
    if isinstance(value, dict):
        return {*map(type, value.values())} <= {int}
    if not isinstance(value, list):
        return False
    kinds = {*map(type, value)}
    return {*map(type, chain.from_iterable(value))} <= {str} if kinds == {list} else kinds <= {str}


# Findings about a tokenizer, cached on disk.

DECIDES = ("added_tokens", "normalizer", "pre_tokenizer", "model")
"""The parts of a ``tokenizer.json`` that decide the ids of a text."""
_Finding = TypeVar("_Finding")


def remembered(cache: Kept, key: str, kind: type[_Finding], find: Callable[[], _Finding]) -> _Finding:
    """The cached finding under `key`; else that of `find`, cached for the next process."""
    data = cache.find(key)
    finding = find() if data is None else msgspec.json.decode(data, type=kind)
    if data is None:
        cache.keep(key, msgspec.json.encode(finding))
    return finding


# Properties of the parts of a ``tokenizer.json`` that engines need.

Component = Mapping[str, Any] | None


def steps_of(component: Component) -> list[Any]:
    """The steps of a normalizer, a pre-tokenizer or a decoder; one that is not a sequence is its only step."""
    if component is None:
        return []
    nested = next((component[key] for key in ("normalizers", "pretokenizers", "decoders") if key in component), None)
    return [component] if nested is None else [step for part in nested for step in steps_of(part)]


def without_first_space(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """`spec` with Metaspace's ``prepend_scheme: first`` changed to ``never``; `None` if it does not have that."""
    pre_tokenizer = copy.deepcopy(spec.get("pre_tokenizer"))
    steps = [step for step in steps_of(pre_tokenizer) if step["type"] == "Metaspace" and step.get("prepend_scheme") == "first"]
    for step in steps:
        step["prepend_scheme"] = "never"
    return {**spec, "pre_tokenizer": pre_tokenizer} if steps else None


def spaces_stretches(spec: Mapping[str, Any]) -> bool:
    """Whether a space may be prepended to text after a special token."""
    steps = [step for step in steps_of(spec.get("pre_tokenizer")) if step.get("prepend_scheme", "always") != "never"]
    steps += steps_of(spec.get("normalizer"))
    return any(step.get("add_prefix_space") or step["type"] in ("Metaspace", "Prepend") for step in steps)


def composes(normalizer: Component) -> bool | None:
    """Whether a normalizer composes characters (NFC); `None` if it does more than that."""
    kinds = {step["type"] for step in steps_of(normalizer)}
    return None if kinds - {"NFC"} else bool(kinds)


def digit_cuts(codes: npt.NDArray[np.uint8]) -> Ints:
    """Byte positions of digits before which a text must be cut: after white space of several characters, or after non-ASCII bytes, which may be
    white space."""
    is_digit = (codes >= 48) & (codes <= 57)
    is_visible = (codes > 32) & (codes < 127)
    follows_word = np.zeros(len(codes), bool)
    follows_word[1:] = is_visible[:-1]
    follows_word[2:] |= is_visible[:-2] & (codes[1:-1] < 127)
    return np.flatnonzero(is_digit & ~follows_word)
