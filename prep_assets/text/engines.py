"""Tokenization engines: the reference, the fast one, and the routing of texts between them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import compress, groupby
from operator import itemgetter
from threading import active_count
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Bools, TokenIds
from prep_assets.errors import ConfigError
from prep_assets.stores.arrays import in_batches
from prep_assets.stores.files import Kept, key_of
from prep_assets.text.ids import (
    ALPHABET,
    DECIDES,
    NO_TEXTS,
    Engine,
    Flat,
    SpanEngine,
    composes,
    digit_cuts,
    interleaved,
    ordinary,
    remembered,
    spaces_stretches,
    without_first_space,
)
from prep_assets.text.suspects import Ranges, differing, edge_set, suspect_table, typed, unequal_texts
from prep_assets.text.tokenizer_files import ENGINE_CACHED_WORDS, FALLBACK_CACHED_WORDS, as_config_error, limit_word_cache
from prep_assets.text.vocabulary import Vocabulary

# The reference engine: the `tokenizers` library, which defines the right ids.

BATCH_CHARACTERS = 1 << 17
"""About how many characters the library gets at once."""


class ReferenceEngine:
    """The `tokenizers` library, opened at first use."""

    name = "tokenizers"

    def __init__(self, spec: dict[str, Any], backend: Any = None) -> None:
        """From a ``tokenizer.json``. `backend` may be an open `tokenizers.Tokenizer` with the same model, which takes longest to open."""
        self._spec, self._backend = spec, backend

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        # the post-processor only adds special tokens, which engines never do, and trims white space from character spans
        definition = {**ordinary(self._spec), "post_processor": None}
        same_model = self._backend is not None and definition["model"] is self._spec["model"]
        tokenizer = _share_model(self._backend.model, definition) if same_model else None
        if tokenizer is None:
            tokenizer = Tokenizer.from_buffer(msgspec.json.encode(definition))
            limit_word_cache(tokenizer, FALLBACK_CACHED_WORDS)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        return tokenizer

    def take_charge(self) -> None:
        """Prepare for encoding all texts instead of a few."""
        limit_word_cache(self._tokenizer, ENGINE_CACHED_WORDS)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        parts: list[npt.ArrayLike] = []
        # the library uses far more memory than the ids of a text take, so it gets long texts in batches
        for batch in in_batches(texts, len, BATCH_CHARACTERS):
            with as_config_error("the tokenizer does not encode a text. Use one that reads any text"):
                parts += [
                    np.array(encoding.ids, np.uint32) for encoding in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
                ]
        return Flat.of(parts)

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each."""
        with as_config_error(f"the tokenizer does not encode {text[:60]!r} ({len(text):,} characters). Use one that reads any text"):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def _share_model(model: Any, definition: Mapping[str, Any]) -> Any:
    """A tokenizer of `definition` that shares an open `model`; `None` if its added tokens would get other ids."""
    from tokenizers import AddedToken, Tokenizer

    without_model = {**definition, "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    tokenizer = Tokenizer.from_buffer(msgspec.json.encode(without_model))
    tokenizer.model = model
    for special, tokens in groupby(definition["added_tokens"], itemgetter("special")):
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(**{key: value for key, value in token.items() if key != "id"}) for token in tokens])
    ids = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
    return tokenizer if ids == {token["id"]: token["content"] for token in definition["added_tokens"]} else None


# The fast engine, and an engine that routes each text to the fast one or to the reference.
#
# The reference gets texts with a suspect code point (`suspects.py`), texts that are not composed if the tokenizer composes, and texts with a byte that is
# missing from the vocabulary. The ids do not depend on the route.

BETWEEN, CUT = "\x01\x03\x02", "\x01\x03\x04"
"""Marks between two texts, and at a cut in a text. No proper suffix of a mark is the beginning of one, so a mark only matches where it was inserted
or typed."""


class GigatokenEngine:
    """`gigatoken`, for ordinary text.

    Its ``tokenizer.json`` is changed such that the routed texts get the same ids. Special tokens are removed, and so is a normalizer that only composes
    (NFC), because only composed texts are routed here. A byte without an entry in the vocabulary gets a placeholder id after its end, which sends the text
    to the reference. A pre-tokenizer that splits off every digit (SmolLM, StarCoder) is removed if no entry of the vocabulary joins a digit with anything;
    its remaining effect, that white space is not joined across a digit, is that of `digit_cuts`.

    Many texts are encoded as one, with an extra special token between them (`BETWEEN`): the batches of the engine are `awkward` arrays, which take longer
    to import than a small build takes, and cost more for long texts. Tokenizers that begin each stretch between special tokens with a space encode text by
    text; if only the first word of a text gets one, it is prepended before.

    Its word cache grows without bound, so the tokenizer is reopened after `RENEW_AFTER` bytes, or after `IDLE_AFTER` bytes and a pause. That of 40 MB of
    documents takes 12 MB; to reopen GPT-2's tokenizer takes 0.1 s.

    Attributes:
        size: ids from here on are placeholders of missing bytes, followed by the ids of marks.
        cuts_at_digits: whether texts are first cut at `digit_cuts`.
    """

    name = "gigatoken"
    RENEW_AFTER = 256 << 20
    IDLE_AFTER = 64 << 20

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """From a ``tokenizer.json``.

        Raises:
            ValueError: `gigatoken` does not support the tokenizer; with the reason.
        """
        model, unspaced = spec["model"], without_first_space(spec)
        if model["type"] != "BPE":
            raise ValueError(f"gigatoken has no {model['type']} model")
        vocabulary, added = model["vocab"], [token for token in spec["added_tokens"] if not token["special"]]
        added_texts, pre_tokenizer = [token["content"] for token in added], (unspaced or spec).get("pre_tokenizer")
        self.size = 1 + max((*vocabulary.values(), *(token["id"] for token in spec["added_tokens"])))
        self.cuts_at_digits = False
        match (pre_tokenizer or {}).get("pretokenizers"):
            case [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False} as byte_level,
            ]:
                pre_tokenizer, self.cuts_at_digits = byte_level, True
        if self.cuts_at_digits and any(len(text) > 1 and not _DIGITS.isdisjoint(text) for text in (*vocabulary, *added_texts)):
            raise ValueError("its pre-tokenizer sets digits apart, and its vocabulary joins them")
        if not model.get("byte_fallback"):
            missing = [char for char in ALPHABET if char not in vocabulary]
            vocabulary = {**vocabulary, **{char: self.size + number for number, char in enumerate(missing)}}
        definition = {
            **spec,
            "added_tokens": added,
            "pre_tokenizer": pre_tokenizer,
            "model": {**model, "vocab": vocabulary},
            "post_processor": None,
        }
        if composes(spec.get("normalizer")) is not None:
            definition["normalizer"] = None
        self._between, self._unspaced = self.size + len(ALPHABET), None if unspaced is None else (" ", "▁", *added_texts)
        self._as_one = all(_MARKED.isdisjoint(word) for word in added_texts) and not spaces_stretches(definition)
        if self._as_one:
            flags = {"special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
            definition["added_tokens"] = [
                *added,
                *({"id": self._between + at, "content": mark, **flags} for at, mark in enumerate((BETWEEN, CUT))),
            ]
        self._json = msgspec.json.encode(definition)
        self._since_new, self._tokenizer = 0, self._open()

    def _open(self) -> Any:
        from gigatoken import Tokenizer

        return Tokenizer.from_json(self._json)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        if not texts:
            return NO_TEXTS
        tokenizer = self._tokenizer  # another thread may free or renew it meanwhile
        if tokenizer is None or self._since_new > self.RENEW_AFTER:
            tokenizer = self._tokenizer = None  # free its memory before opening the next one
            tokenizer = self._tokenizer = self._open()
            self._since_new = 0
        if self._unspaced is not None:
            first_chars = {text[0] for text in self._unspaced}
            texts = [text if not text or (text[0] in first_chars and text.startswith(self._unspaced)) else f" {text}" for text in texts]
        if self._as_one:
            return self._encode_joined(tokenizer, texts)
        self._since_new += sum(map(len, texts))
        return Flat.of([_ids_of(tokenizer, text.encode()) for text in texts])

    def pause(self) -> None:
        """Free a large cache before a pause without texts."""
        if self._since_new > self.IDLE_AFTER:
            self._tokenizer = None

    def _encode_joined(self, tokenizer: Any, texts: Sequence[str]) -> Flat:
        """Encode many texts as one."""
        # one by one, because encoding a long non-ASCII string as UTF-8 is slow
        text, count = BETWEEN.encode().join(map(str.encode, texts)), 0
        self._since_new += len(text)
        if self.cuts_at_digits:
            codes, mark = np.frombuffer(text, np.uint8), np.frombuffer(CUT.encode(), np.uint8)
            cuts = digit_cuts(codes)
            text, count = np.insert(codes, np.repeat(cuts, len(mark)), np.tile(mark, len(cuts))).tobytes(), len(cuts)
        ids = _ids_of(tokenizer, text)
        marks = np.flatnonzero(ids >= self._between)
        ends = np.flatnonzero(ids[marks] == self._between)
        if (len(ends), len(marks) - len(ends)) == (len(texts) - 1, count):
            offsets = np.concatenate([[0], marks[ends] - ends, [len(ids) - len(marks)]])
            return Flat(ids[ids < self._between] if len(marks) else ids, offsets)
        # texts that hold a mark get a placeholder id, which sends them to the reference
        is_unmarked = np.array([BETWEEN not in text and CUT not in text for text in texts])
        marked_count = len(texts) - int(is_unmarked.sum())
        placeholders = Flat(np.full(marked_count, self.size, np.uint32), np.arange(marked_count + 1))
        return interleaved(
            self._encode_joined(tokenizer, list(compress(texts, is_unmarked))) if is_unmarked.any() else NO_TEXTS, placeholders, is_unmarked
        )


def _ids_of(tokenizer: Any, text: bytes) -> TokenIds:
    """Ids of one text. Where other threads may wait for Python's lock, which `encode` of the library holds, those of a long one are found without it."""
    from gigatoken import BytesSource

    alone = len(text) < _LONG or active_count() == 1
    ids: TokenIds = tokenizer.encode(text) if alone else tokenizer.encode_batch_padded(BytesSource(text), 0, parallel=False)[0][0]
    return ids


_LONG = 1 << 12
"""Bytes of a text from which on releasing the lock is worth the time that it takes."""
_MARKED, _DIGITS = frozenset(BETWEEN + CUT), frozenset("0123456789")


class RoutedEngine:
    """The fast engine, with the reference for the texts that need it.

    Attributes:
        composes: whether the tokenizer composes text (NFC), which the fast engine does not.
    """

    def __init__(self, fast: GigatokenEngine, reference: ReferenceEngine, suspects: Bools, *, composes: bool) -> None:
        self.name, self.composes = fast.name, composes
        self._fast, self._reference, self._suspects = fast, reference, suspects
        self.pause = fast.pause
        self._ascii_suspects = bool(suspects[:128].any())
        self._numerals = _numerals() if fast.cuts_at_digits else None

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        is_fast = ~self.needs_reference(texts)
        flat = self._fast.encode(texts if is_fast.all() else list(compress(texts, is_fast)))
        if flat.ids.max(initial=0) >= self._fast.size:
            missing = np.flatnonzero(flat.ids >= self._fast.size)
            is_complete = np.ones(len(flat.offsets) - 1, bool)
            is_complete[np.searchsorted(flat.offsets, missing, "right") - 1] = False
            flat = flat.take(is_complete)
            is_fast[np.flatnonzero(is_fast)[~is_complete]] = False
        if is_fast.all():
            return flat
        return interleaved(flat, self._reference.encode(list(compress(texts, ~is_fast))), is_fast)

    def for_reference(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts the reference encodes, bool[n], including those with marks of the fast engine."""
        marked: Bools = np.fromiter((BETWEEN in text or CUT in text for text in texts), bool, len(texts))
        return marked | self.needs_reference(texts)

    def needs_reference(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts need the reference because of their characters, bool[n]."""
        mask = np.zeros(len(texts), bool)
        numbers = [number for number, text in enumerate(texts) if text and (self._ascii_suspects or not text.isascii())]
        if not numbers:
            return mask
        codes = np.frombuffer("".join([texts[number] for number in numbers]).encode("utf-32-le"), np.uint32)
        starts = np.zeros(len(numbers), np.int64)
        np.cumsum([len(texts[number]) for number in numbers[:-1]], out=starts[1:])
        places = np.flatnonzero(codes >= (0 if self._ascii_suspects else 128))
        points = codes[places]
        hits = self._suspects[points]
        if self._numerals is not None:  # numerals that follow no visible ASCII character may be joined with the text before
            before = codes[places - 1]
            hits |= self._numerals[points] & ((before <= 32) | (before >= 127) | (places == 0))
        mask[np.array(numbers)[np.searchsorted(starts, places[hits], "right") - 1]] = True
        if self.composes:
            may_compose = np.unique(np.searchsorted(starts, places[_marks()[points]], "right") - 1)
            unsure = [numbers[at] for at in may_compose.tolist() if not mask[numbers[at]]]
            mask[[number for number in unsure if not unicodedata.is_normalized("NFC", texts[number])]] = True
        return mask


@cache
def _marks() -> Bools:
    """The code points without which composing changes no text: marks, decomposable characters, and those that compose with a previous one."""
    table = np.zeros(0x110000, bool)
    table[0x1100:0x1200] = True  # Hangul jamo
    for point in range(128, 0x32000):
        char = chr(point)
        if unicodedata.combining(char):
            table[point] = True
        elif (parts := unicodedata.decomposition(char)) and not parts.startswith("<"):
            table[int(parts.split()[-1], 16)] = True
            table[point] |= not unicodedata.is_normalized("NFC", char)
    return table


@cache
def _numerals() -> Bools:
    """Numerals beyond ASCII by code point: a pre-tokenizer that splits off digits splits off these as well."""
    table = np.zeros(0x110000, bool)
    table[[point for point in range(128, 0x20000) if unicodedata.category(chr(point)).startswith("N")]] = True
    return table


# The choice of engine: the fast one for every text to which it gives the ids of the reference.
#
# Every engine encodes **ordinary text**: a control token typed in the text is encoded as plain characters, never as the control token.
# `ReferenceEngine` is the `tokenizers` library, which defines the right ids. `RoutedEngine` uses `gigatoken`, about forty times as fast, for every text
# without code points at which the two differ. These are found by encoding each code point with both, for the given tokenizer; if the two still differ on
# the edge set, the reference encodes everything.


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one tokenizer.

    Attributes:
        first: for text at the start of a document.
        rest: for text after a control token. It differs from `first` only for SentencePiece tokenizers that put a space in front of the first
            word of a document (``prepend_scheme: first``).
        reference, rest_reference: the `tokenizers` counterparts of `first` and `rest`, for character spans and checks.
        verdict: why this engine was chosen.
    """

    first: Engine
    rest: Engine
    reference: SpanEngine
    rest_reference: SpanEngine
    verdict: str

    def pause(self) -> None:
        """Free the cache of the fast engine before a pause without texts."""
        for engine in (self.first, self.rest):
            if isinstance(engine, RoutedEngine):
                engine.pause()


def choose_engine(vocabulary: Vocabulary, *, reference_only: bool = False) -> Engines:
    """Choose the fast engine, with the reference for texts to which the two give other ids.

    If the fast engine cannot load the tokenizer, or differs for an unknown reason, the reference encodes everything, and the verdict says so.
    """
    if vocabulary.encoding is not None:
        engine = vocabulary.encoding.engine()
        return Engines(engine, engine, engine, engine, f"{engine.name}, {vocabulary.encoding.why}")
    spec = vocabulary.spec
    rest_spec = without_first_space(spec)
    reference = ReferenceEngine(spec, vocabulary.backend)
    first, verdict = (reference, "reference only, as configured") if reference_only else _routed_or_reference(vocabulary, spec, reference)
    if rest_spec is None:
        return Engines(first, first, reference, reference, verdict)
    rest_reference = ReferenceEngine(rest_spec, vocabulary.backend)
    rest: Engine = rest_reference
    if first is not reference:
        rest, rest_verdict = _routed_or_reference(vocabulary, rest_spec, rest_reference)
        verdict += f"; after control tokens, {rest_verdict}"
    return Engines(first, rest, reference, rest_reference, verdict)


KEPT = Kept("engines", 256)
"""Cache of findings, so that the next process need not compare the engines again."""
_RULES = 2
"""Version of the comparison."""


class Finding(msgspec.Struct, frozen=True):
    """Whether the fast engine may be used for a tokenizer, why, and the code points (first, end) at which it differs."""

    fast: bool
    verdict: str
    suspects: Ranges = ()


def verdict_key(spec: Mapping[str, Any], engine: str) -> str:
    """The cache key of a finding: the tokenizer and the engine, besides what all such keys include."""
    return key_of(engine, _RULES, [spec.get(part) for part in DECIDES])


def _routed_or_reference(vocabulary: Vocabulary, spec: Mapping[str, Any], reference: ReferenceEngine) -> tuple[Engine, str]:
    """The routed engine, or the reference if the fast one cannot be used; and the verdict."""
    key, composing = verdict_key(spec, GigatokenEngine.__qualname__), bool(composes(spec.get("normalizer")))
    try:
        finding = remembered(KEPT, key, Finding, lambda: _compare_engines(vocabulary, spec, reference, composing))
        fast = GigatokenEngine(spec) if finding.fast else None  # a new one, since the compared one has cached every code point
    except Exception as error:  # any failure to load makes the engine unusable
        return reference, f"tokenizers: gigatoken cannot load this tokenizer ({type(error).__name__}: {error})"
    engine = reference if fast is None else RoutedEngine(fast, reference, suspect_table(finding.suspects), composes=composing)
    return engine, finding.verdict


def _compare_engines(vocabulary: Vocabulary, spec: Mapping[str, Any], reference: ReferenceEngine, composing: bool) -> Finding:
    """Compare the engines on every code point and on the edge set."""
    fast, texts = GigatokenEngine(spec), (*edge_set(), *typed(token["content"] for token in spec["added_tokens"]))
    try:
        suspects = differing(fast, reference, vocabulary.backend.normalizer if composing else None, numerals=fast.cuts_at_digits)
        routed = RoutedEngine(fast, reference, suspect_table(suspects), composes=composing)
        unequal = unequal_texts(routed.encode(texts), reference.encode(texts))
    except Exception as error:  # any failure on a text makes the engine unusable
        return Finding(False, f"tokenizers: gigatoken fails with this tokenizer ({type(error).__name__}: {error})")
    if unequal:
        return Finding(False, f"tokenizers: gigatoken differs on the edge set, first at {texts[unequal[0]]!r}")
    known = sum(end - first for first, end in suspects)
    more = f"; documents with one of {known:,} code points go to tokenizers" if known else ""
    return Finding(True, f"gigatoken: equal to tokenizers on {len(texts):,} edge texts{more}", suspects)


# Flags of added tokens that affect the text around them: ``lstrip`` and ``rstrip`` swallow white space, ``single_word`` and ``normalized`` decide whether a
# text matches the token.
#
# The encoder cuts a render at its control tokens and tokenizes the text between. If a flag gives the reference other ids for the whole text, no cut can be
# right, and the tokenizer is an error before any data is read.

FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_BEFORE, _AFTER = ("", "a", "a ", "a\n"), ("", "a", " a", "\na", "\n\na")


def check_flags(vocabulary: Vocabulary, written: Iterable[str]) -> None:
    """Raise if a token that is `written` between other text has a flag that changes the ids around it.

    Raises:
        ConfigError: with the token, its flags and a text.
    """
    written_texts = frozenset(written)
    flagged = [
        token for token in vocabulary.frame["added_tokens"] if token["content"] in written_texts and any(token[flag] for flag in FLAGS)
    ]
    if not flagged:
        return
    engines = choose_engine(vocabulary, reference_only=True)
    for token in flagged:
        text = next(_texts_with_other_ids(vocabulary, engines, token["content"], token["id"]), None)
        if text is not None:
            flags = ", ".join(f"{flag}: true" for flag in FLAGS if token[flag])
            raise ConfigError(
                f"tokenizer {vocabulary.name}: the template writes the added token {token['content']!r}, which has {flags}. So {text!r} has "
                "other ids as a whole than cut at its control tokens, and a mask cannot be placed on it. Set these flags to false in "
                "tokenizer.json, if the model is served like that, or use a template without this token"
            )


def _texts_with_other_ids(vocabulary: Vocabulary, engines: Engines, token: str, number: int) -> Iterator[str]:
    """Yield texts around a token whose ids differ from the concatenated ids of the text before, the token, and the text after."""
    vocabulary.backend.encode_special_tokens = False
    for before in _BEFORE:
        for after in _AFTER:
            whole_ids = vocabulary.backend.encode(before + token + after, add_special_tokens=False).ids
            parts = engines.first.encode([before] * bool(before)), engines.rest.encode([after] * bool(after))
            if whole_ids != [*parts[0].ids.tolist(), number, *parts[1].ids.tolist()]:
                yield before + token + after
