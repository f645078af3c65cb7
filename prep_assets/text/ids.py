"""Ids of texts, and the ``tokenizer.json`` as engines are given it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

# Ids of several texts in one array, and what makes them.

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flat:
    """Ids of several texts, one after the other.

    Attributes:
        ids: uint32[T].
        offsets: int64[n + 1]; text `i` has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: Ids
    offsets: Offsets


NO_TEXTS = Flat(np.zeros(0, np.uint32), np.zeros(1, np.int64))


class Engine(Protocol):
    """What tokenizes ordinary text in batches. No control token is ever produced and none is added."""

    name: str

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order. Texts must be valid Unicode (no lone surrogates)."""
        ...


def offsets_of(counts: npt.NDArray[np.int64]) -> Offsets:
    """Where each of several runs begins, and the end of the last."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def interleaved(yes: Flat, no: Flat, chosen: npt.NDArray[np.bool_]) -> Flat:
    """Two results as one, in the order of the texts; `chosen` says which texts are of the first."""
    counts = np.empty(len(chosen), np.int64)
    counts[chosen], counts[~chosen] = np.diff(yes.offsets), np.diff(no.offsets)
    of_first = np.repeat(chosen, counts)
    ids = np.empty(len(of_first), np.uint32)
    ids[of_first], ids[~of_first] = yes.ids, no.ids
    return Flat(ids, offsets_of(counts))


def some_of(flat: Flat, chosen: npt.NDArray[np.bool_]) -> Flat:
    """The texts that are chosen, in their order."""
    counts = np.diff(flat.offsets)
    return Flat(flat.ids[np.repeat(chosen, counts)], offsets_of(counts[chosen]))


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


def unknown_id(spec: Mapping[str, Any]) -> int | None:
    """The id that a model gives what is not in its vocabulary; `None` where it has none."""
    model = spec["model"]
    if model["type"] == "Unigram":
        return None if model.get("unk_id") is None else int(model["unk_id"])
    found = model["vocab"].get(model.get("unk_token") or "")
    return None if found is None else int(found)


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


# A ``tokenizer.json`` in the form that `gigatoken` loads, with the same ids for the texts that it is given.
#
# Three things are done for it. Its special tokens are taken away, so that it encodes ordinary text. A normalizer that only composes (NFC) is taken away,
# because only composed texts come to it. And a byte that has no entry in the vocabulary gets a placeholder past its end: a reader that finds one in the ids
# sends that text to the reference.
#
# Many texts are encoded as one, with a special token of our own between them (`BETWEEN`): the engine's batches come as an `awkward` array, which takes longer
# to import than a small build takes, and cost more where texts are long. Tokenizers that begin each stretch between special tokens with a space are asked
# text by text; where only a text's first word gets one, it is put there before.
#
# A pre-tokenizer that sets every digit apart (SmolLM, StarCoder) is taken away too, where the vocabulary joins no digit with anything. What is left of it,
# `digit_cuts`, is that no white space is joined over a digit.

BETWEEN, CUT = "\x01\x03\x02", "\x01\x03\x04"
"""Marks: what stands between two texts, and where one is cut. Neither begins again inside itself, so that a mark is found where it was put, or in a
text that holds it, and nowhere else."""
_MARKED = frozenset(BETWEEN + CUT)
_BYTES = 256
"""Placeholders, at most; the ids of marks come after them."""
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True)
class FastForm:
    """What the fast engine is made of.

    Attributes:
        spec: the ``tokenizer.json``.
        size: ids from here on are placeholders.
        cuts_at_digits: whether texts are cut at `digit_cuts` first.
        between: the id of `BETWEEN`, before that of `CUT`; `None` where texts cannot be encoded as one.
        unspaced: how texts begin before which no space goes; `None` where none goes before any.
    """

    spec: dict[str, Any]
    size: int
    cuts_at_digits: bool
    between: int | None
    unspaced: tuple[str, ...] | None


def fast_form(spec: Mapping[str, Any]) -> FastForm:
    """The form of a tokenizer.

    Raises:
        ValueError: the fast engine has no such tokenizer; says why.
    """
    model = spec["model"]
    if model["type"] != "BPE":
        raise ValueError(f"gigatoken has no {model['type']} model")
    ordinary = [token for token in spec["added_tokens"] if not token["special"]]
    own = without_first_space(spec)
    pre_tokenizer, cuts_at_digits = _without_digits((own or spec).get("pre_tokenizer"))
    if cuts_at_digits and not _digits_stand_alone(model["vocab"], [token["content"] for token in ordinary]):
        raise ValueError("its pre-tokenizer sets digits apart, and its vocabulary joins them")
    vocabulary = model["vocab"] if model.get("byte_fallback") else _completed(model["vocab"], spec["added_tokens"])
    changed: dict[str, Any] = {
        "added_tokens": ordinary,
        "pre_tokenizer": pre_tokenizer,
        "model": {**model, "vocab": vocabulary},
        "post_processor": None,
    }
    if composes(spec.get("normalizer")) is not None:
        changed["normalizer"] = None
    size = 1 + max((*model["vocab"].values(), *(token["id"] for token in spec["added_tokens"])))
    clear = all(_MARKED.isdisjoint(token["content"]) for token in ordinary) and not _spaces_stretches({**spec, **changed})
    if clear:
        flags = {"special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
        marks = [{"id": size + _BYTES + number, "content": mark, **flags} for number, mark in enumerate((BETWEEN, CUT))]
        changed["added_tokens"] = [*ordinary, *marks]
    unspaced = None if own is None else (" ", "▁", *(token["content"] for token in ordinary))
    return FastForm({**spec, **changed}, size, cuts_at_digits, size + _BYTES if clear else None, unspaced)


def without_first_space(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """`spec` with Metaspace's ``prepend_scheme: first`` turned to ``never``, or `None` where it has none."""
    pre = copy.deepcopy(spec.get("pre_tokenizer")) or {}
    first = [part for part in _parts(pre) if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first"]
    for part in first:
        part["prepend_scheme"] = "never"
    return {**spec, "pre_tokenizer": pre} if first else None


def _spaces_stretches(spec: Mapping[str, Any]) -> bool:
    """Whether a space may be put before what follows a special token."""
    pre = [part for part in _parts(spec.get("pre_tokenizer") or {}) if part.get("prepend_scheme", "always") != "never"]
    return any(
        part.get("add_prefix_space") or part["type"] in ("Metaspace", "Prepend") for part in (*pre, *_parts(spec.get("normalizer") or {}))
    )


def _parts(component: Mapping[str, Any]) -> list[Any]:
    """The steps of a pre-tokenizer or a normalizer, or the one that it is."""
    return component.get("pretokenizers") or component.get("normalizers") or ([component] if component else [])


def composes(normalizer: Mapping[str, Any] | None) -> bool | None:
    """Whether a normalizer composes characters (NFC); `None` where it does more than that."""
    if normalizer is None:
        return False
    if normalizer["type"] == "Sequence":
        parts = [composes(part) for part in normalizer["normalizers"]]
        return None if None in parts else any(parts)
    return True if normalizer["type"] == "NFC" else None


def digit_cuts(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Byte positions of digits before which a text must be cut: those after white space of more than one character, or after what is not ASCII,
    which may be white space."""
    digit = (codes >= 48) & (codes <= 57)
    visible = (codes > 32) & (codes < 127)
    joined = np.zeros(len(codes), bool)
    joined[1:] = visible[:-1]
    joined[2:] |= visible[:-2] & (codes[1:-1] < 127)
    return np.flatnonzero(digit & ~joined)


def _without_digits(pre_tokenizer: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, bool]:
    """A pre-tokenizer without a first step that sets each digit apart, and whether it had one."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [])
    first, second = (*steps, {}, {})[:2]
    words = second.get("type") == "ByteLevel" and second.get("use_regex") and not second.get("add_prefix_space")
    if len(steps) == 2 and first["type"] == "Digits" and first["individual_digits"] and words:
        return second, True
    return pre_tokenizer, False


def _digits_stand_alone(vocabulary: Mapping[str, int], added: list[str]) -> bool:
    return all(len(text) == 1 or _DIGITS.isdisjoint(text) for text in (*vocabulary, *added))


def _completed(vocabulary: Mapping[str, int], added: list[Mapping[str, Any]]) -> Mapping[str, int]:
    """A byte-level vocabulary with an entry for each byte."""
    missing = [char for char in ALPHABET if char not in vocabulary]
    if not missing:
        return vocabulary
    size = 1 + max((*vocabulary.values(), *(token["id"] for token in added)))
    return {**vocabulary, **{char: size + number for number, char in enumerate(missing)}}
