"""Ids of texts, and the ``tokenizer.json`` as engines are given it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.stores.files import Kept
from prep_assets.text.spans import Ints, bounds

# Ids of several texts in one array, and what makes them.

Ids = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Flat:
    """Ids of several texts, one after the other.

    Attributes:
        ids: uint32[T].
        offsets: int64[n + 1]; text `i` has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: Ids
    offsets: Ints

    @classmethod
    def of(cls, texts: Sequence[npt.ArrayLike]) -> Flat:
        """The ids of several texts, given one by one."""
        listed = [np.asarray(ids, np.uint32) for ids in texts]
        return cls(np.concatenate([NO_TEXTS.ids, *listed]), bounds([len(ids) for ids in listed]))

    def take(self, chosen: npt.NDArray[np.bool_] | Ints) -> Flat:
        """Some of the texts, in their order: a mask, bool[n], or their numbers, ascending."""
        mask = np.zeros(len(self.offsets) - 1, bool)
        mask[chosen] = True
        if mask.all():
            return self
        counts = np.diff(self.offsets)
        return Flat(self.ids[np.repeat(mask, counts)], bounds(counts[mask]))


NO_TEXTS = Flat(np.zeros(0, np.uint32), np.zeros(1, np.int64))


class Engine(Protocol):
    """What tokenizes ordinary text in batches. No control token is ever produced and none is added."""

    name: str

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order. Texts must be valid Unicode (no lone surrogates)."""
        ...


def interleaved(yes: Flat, no: Flat, chosen: npt.NDArray[np.bool_]) -> Flat:
    """Two results as one, in the order of the texts; `chosen` says which texts are of the first."""
    counts = np.empty(len(chosen), np.int64)
    counts[chosen], counts[~chosen] = np.diff(yes.offsets), np.diff(no.offsets)
    of_first = np.repeat(chosen, counts)
    ids = np.empty(len(of_first), np.uint32)
    ids[of_first], ids[~of_first] = yes.ids, no.ids
    return Flat(ids, bounds(counts))


# The ``tokenizer.json`` with which ordinary text is encoded, so that a control token that somebody typed is never the control token.
#
# The library can leave special tokens unmatched. But a model that looks words up in its vocabulary finds ``</s>`` there all the same: Unigram (T5, XLM-R,
# ALBERT), WordPiece and WordLevel. SentencePiece itself never finds control pieces in a text. So these entries get a name that no text has. A Unigram model
# with byte fallback finds its bytes there too: a typed ``<0x0A>`` became a line break. Texts are cut after such a ``<``.

HIDDEN = "\ufdd0"
"""A noncharacter, which no text may hold."""
_NO_BYTES = {"type": "Split", "pattern": {"Regex": "(?<=<)(?=0x[0-9A-F]{2}>)"}, "behavior": "Isolated", "invert": False}


def ordinary(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A ``tokenizer.json`` with the same ids for ordinary text, in which nothing that is typed is a special token."""
    model = spec["model"]
    if model["type"] == "Unigram" and model.get("byte_fallback"):
        before = [spec["pre_tokenizer"]] if spec.get("pre_tokenizer") else []
        spec = {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*before, _NO_BYTES]}}
    special = {token["content"] for token in spec["added_tokens"] if token["special"]}
    if model["type"] == "BPE" or special.isdisjoint(text for text, _ in _entries(model)):
        return dict(spec)

    def hidden(text: str) -> str:
        return HIDDEN + text if text in special else text

    entries = [(hidden(text), value) for text, value in _entries(model)]
    unknown = {"unk_token": hidden(model["unk_token"])} if "unk_token" in model else {}
    # an added token is looked up by its name, and what is left of these would get ids of their own
    added = [token for token in spec["added_tokens"] if token["content"] not in special]
    return {**spec, "added_tokens": added, "model": {**model, **unknown, "vocab": entries if model["type"] == "Unigram" else dict(entries)}}


def _entries(model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    vocabulary = model["vocab"]
    return [(text, value) for text, value in (vocabulary if model["type"] == "Unigram" else vocabulary.items())]


# GPT-2's printable stand-in for each byte: itself where printable, else the next code point from 256 on.


def _alphabet() -> tuple[str, ...]:
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    stand_ins = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(stand_ins)) for byte in range(256))


ALPHABET = _alphabet()


# JSON as `json.dumps` writes it with sorted keys, in a tenth of the time for a vocabulary and its merges, which are nearly all of a tokenizer.

_Large = dict[str, int] | list[str | list[str]]
"""What both libraries write alike: numbers with a fraction they do not."""
_SORTED = msgspec.json.Encoder(order="sorted")


def sorted_json(value: Any) -> str:
    """``json.dumps(value, sort_keys=True, ensure_ascii=False)`` of what was read from JSON."""
    try:
        return msgspec.json.format(_SORTED.encode(msgspec.convert(value, _Large)), indent=0).decode()
    except msgspec.ValidationError:
        if not isinstance(value, dict):
            return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return "{" + ", ".join(f"{sorted_json(key)}: {sorted_json(value[key])}" for key in sorted(value)) + "}"


# What was found out about a tokenizer, kept on disk.

DECIDES = ("added_tokens", "normalizer", "pre_tokenizer", "model")
"""The parts of a ``tokenizer.json`` that ids of a text depend on."""
_Found = TypeVar("_Found", bound=msgspec.Struct)


def remembered(kept: Kept, key: str, kind: type[_Found], find: Callable[[], _Found]) -> _Found:
    """What was kept under a key; else what `find` finds, kept for the next process."""
    data = kept.find(key)
    found = find() if data is None else msgspec.json.decode(data, type=kind)
    if data is None:
        kept.keep(key, msgspec.json.encode(found))
    return found


# What engines ask about the parts of a ``tokenizer.json``.

Component = Mapping[str, Any] | None


def steps_of(component: Component) -> list[Any]:
    """The steps of a normalizer, a pre-tokenizer or a decoder, or the one that it is."""
    if component is None:
        return []
    nested = next((component[key] for key in ("normalizers", "pretokenizers", "decoders") if key in component), None)
    return [component] if nested is None else [inner for each in nested for inner in steps_of(each)]


def without_first_space(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """`spec` with Metaspace's ``prepend_scheme: first`` turned to ``never``, or `None` where it has none."""
    pre = copy.deepcopy(spec.get("pre_tokenizer"))
    first = [part for part in steps_of(pre) if part["type"] == "Metaspace" and part.get("prepend_scheme") == "first"]
    for part in first:
        part["prepend_scheme"] = "never"
    return {**spec, "pre_tokenizer": pre} if first else None


def spaces_stretches(spec: Mapping[str, Any]) -> bool:
    """Whether a space may be put before what follows a special token."""
    steps = [step for step in steps_of(spec.get("pre_tokenizer")) if step.get("prepend_scheme", "always") != "never"]
    steps += steps_of(spec.get("normalizer"))
    return any(step.get("add_prefix_space") or step["type"] in ("Metaspace", "Prepend") for step in steps)


def composes(normalizer: Component) -> bool | None:
    """Whether a normalizer composes characters (NFC); `None` where it does more than that."""
    kinds = {step["type"] for step in steps_of(normalizer)}
    return None if kinds - {"NFC"} else bool(kinds)


def digit_cuts(codes: npt.NDArray[np.uint8]) -> Ints:
    """Byte positions of digits before which a text must be cut: those after white space of more than one character, or after what is not ASCII,
    which may be white space."""
    digit = (codes >= 48) & (codes <= 57)
    visible = (codes > 32) & (codes < 127)
    joined = np.zeros(len(codes), bool)
    joined[1:] = visible[:-1]
    joined[2:] |= visible[:-2] & (codes[1:-1] < 127)
    return np.flatnonzero(digit & ~joined)
