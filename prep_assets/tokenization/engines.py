"""Engines: text in, one flat array of ids out.

Every engine encodes **ordinary text**: a control token that is typed in the text is encoded as plain characters, never as the control token.
`ReferenceEngine` is the `tokenizers` library, which defines the right ids. `GigatokenEngine` is about forty times faster and is used only
where `choose_engine` found it to give the reference's ids on an edge set.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.tokenization.edge_set import edge_set, typed
from prep_assets.tokenization.vocabulary import Vocabulary

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

BATCH_CHARACTERS = 1 << 20
"""What the reference library is given at once, about."""


@dataclass(frozen=True, slots=True)
class Flat:
    """Ids of several texts, one after the other.

    Attributes:
        ids: uint32[T].
        offsets: int64[n + 1]; text `i` has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: Ids
    offsets: Offsets


class Engine(Protocol):
    """What tokenizes ordinary text in batches. No control token is ever produced and none is added."""

    name: str

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order. Texts must be valid Unicode (no lone surrogates)."""
        ...


class ReferenceEngine:
    """The `tokenizers` library itself."""

    name = "tokenizers"

    def __init__(self, spec: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        # the post-processor only adds special tokens, which no engine does, and trims white space off the character spans
        self._tokenizer = Tokenizer.from_str(json.dumps({**spec, "post_processor": None}))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def encode(self, texts: Sequence[str]) -> Flat:
        parts: list[Ids] = []
        lengths: list[int] = []
        # the library holds far more of a text than its ids, so that long texts are not all in its hands at once
        for some in _batches(texts, BATCH_CHARACTERS):
            for encoding in self._tokenizer.encode_batch_fast(some, add_special_tokens=False):
                ids = np.array(encoding.ids, np.uint32)
                parts.append(ids)
                lengths.append(len(ids))
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Flat(np.concatenate(parts) if parts else np.zeros(0, np.uint32), offsets)

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def _batches(texts: Sequence[str], characters: int) -> Iterator[list[str]]:
    """Runs of texts of about so many characters."""
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= characters:
            yield some
            some, size = [], 0
    if some:
        yield some


class GigatokenEngine:
    """`gigatoken`, loaded without the special tokens so that it encodes ordinary text.

    Its cache of words grows without bound, so the tokenizer is made anew after `RENEW_AFTER` characters.
    """

    name = "gigatoken"
    RENEW_AFTER = 256 << 20

    def __init__(self, spec: dict[str, Any]) -> None:
        ordinary = {**spec, "added_tokens": [token for token in spec["added_tokens"] if not token["special"]]}
        self._json = json.dumps(ordinary)
        self._since_new = 0
        self._tokenizer = self._new()

    def _new(self) -> Any:
        from gigatoken import Tokenizer

        return Tokenizer.from_json(self._json)

    def encode(self, texts: Sequence[str]) -> Flat:
        if not texts:
            return Flat(np.zeros(0, np.uint32), np.zeros(1, np.int64))
        self._since_new += sum(map(len, texts))
        if self._since_new > self.RENEW_AFTER:
            self._tokenizer, self._since_new = self._new(), 0
        layout = self._tokenizer.encode_batch(list(texts)).layout.to_ListOffsetArray64()
        offsets = np.asarray(layout.offsets.data, np.int64)
        ids = np.asarray(layout.content.data, np.uint32)[offsets[0] : offsets[-1]]
        return Flat(ids, offsets - offsets[0])


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one tokenizer.

    Attributes:
        first: for text at the very start of a document.
        rest: for text that follows a control token. It differs from `first` only for SentencePiece tokenizers that put a space in front
            of a document's first word (``prepend_scheme: first``).
        reference, rest_reference: the `tokenizers` counterparts of `first` and `rest`, for character spans and checks.
        verdict: why this engine was chosen, for the manifest.
    """

    first: Engine
    rest: Engine
    reference: ReferenceEngine
    rest_reference: ReferenceEngine
    verdict: str


def choose_engine(vocabulary: Vocabulary, *, reference_only: bool = False) -> Engines:
    """The fastest engine that gives the reference's ids on the edge set, for this very tokenizer.

    Any difference, and any tokenizer that the fast engine cannot load, leaves the reference in charge, and the verdict says so.
    """
    spec = vocabulary.spec
    rest_spec = _without_first_prefix(spec)
    reference = ReferenceEngine(spec)
    first, verdict = (reference, "reference only, as configured") if reference_only else _gated(spec, reference)
    if rest_spec is None:
        return Engines(first, first, reference, reference, verdict)
    rest_reference = ReferenceEngine(rest_spec)
    rest: Engine = rest_reference
    if first is not reference:
        rest, rest_verdict = _gated(rest_spec, rest_reference)
        verdict += f"; after control tokens, {rest_verdict}"
    return Engines(first, rest, reference, rest_reference, verdict)


def _gated(spec: dict[str, Any], reference: ReferenceEngine) -> tuple[Engine, str]:
    if spec["model"]["type"] != "BPE":
        return reference, f"tokenizers: gigatoken has no {spec['model']['type']} model"
    texts = (*edge_set(), *typed(token["content"] for token in spec["added_tokens"]))
    try:
        fast = GigatokenEngine(spec)
        found = fast.encode(texts)
    except Exception as error:  # whatever the engine cannot load is not for it; the verdict is kept in the manifest
        return reference, f"tokenizers: gigatoken cannot load this tokenizer ({type(error).__name__}: {error})"
    expected = reference.encode(texts)
    if np.array_equal(expected.offsets, found.offsets) and np.array_equal(expected.ids, found.ids):
        return fast, f"gigatoken: equal to tokenizers on {len(texts):,} edge texts"
    return reference, f"tokenizers: gigatoken differs on the edge set, first at {_first_difference(texts, expected, found)!r}"


def _first_difference(texts: Sequence[str], expected: Flat, found: Flat) -> str:
    for i, text in enumerate(texts):
        a = expected.ids[expected.offsets[i] : expected.offsets[i + 1]]
        b = found.ids[found.offsets[i] : found.offsets[i + 1]]
        if not np.array_equal(a, b):
            return text
    return ""


def _without_first_prefix(spec: dict[str, Any]) -> dict[str, Any] | None:
    """`spec` with Metaspace's ``prepend_scheme: first`` turned to ``never``, or `None` where it has none."""
    changed = copy.deepcopy({"pre_tokenizer": spec.get("pre_tokenizer")})
    pre = changed["pre_tokenizer"] or {}
    parts = pre.get("pretokenizers") or [pre]
    first = [part for part in parts if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first"]
    for part in first:
        part["prepend_scheme"] = "never"
    return {**spec, **changed} if first else None
