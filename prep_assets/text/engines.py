"""Engines: the reference, the fast one, and which of them takes a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import compress, groupby
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.stores.files import Kept, key_of
from prep_assets.text.code_tokenizer import CodeEngine
from prep_assets.text.ids import (
    ALPHABET,
    DECIDES,
    NO_TEXTS,
    Engine,
    Flat,
    composes,
    digit_cuts,
    interleaved,
    ordinary,
    remembered,
    spaces_stretches,
    without_first_space,
)
from prep_assets.text.suspects import Ranges, Table, differing, edge_set, suspect_table, typed, unequal_texts
from prep_assets.text.tokenizer_files import ENGINE_CACHED_WORDS, FALLBACK_CACHED_WORDS, UnigramEngine, as_config_error, limit_word_cache
from prep_assets.text.vocabulary import Vocabulary

# The reference engine: the `tokenizers` library, which defines the right ids.

BATCH_CHARACTERS = 1 << 17
"""What the library is given at once, about."""


class ReferenceEngine:
    """The `tokenizers` library itself, opened when it is first used."""

    name = "tokenizers"

    def __init__(self, spec: dict[str, Any], backend: Any = None) -> None:
        """With a ``tokenizer.json``, and a `tokenizers.Tokenizer` that is open and has the model of it: most of opening is reading that."""
        self._spec, self._backend = spec, backend

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        # the post-processor only adds special tokens, which no engine does, and trims white space off the character spans
        form = {**ordinary(self._spec), "post_processor": None}
        same = self._backend is not None and form["model"] is self._spec["model"]
        opened = _around(self._backend.model, form) if same else None
        if opened is None:
            opened = Tokenizer.from_buffer(msgspec.json.encode(form))
            limit_word_cache(opened, FALLBACK_CACHED_WORDS)
        opened.no_truncation()
        opened.no_padding()
        opened.encode_special_tokens = True
        return opened

    def take_charge(self) -> None:
        """Get ready to encode all texts."""
        limit_word_cache(self._tokenizer, ENGINE_CACHED_WORDS)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        parts: list[npt.ArrayLike] = []
        # the library holds far more of a text than its ids, so that long texts are not all in its hands at once
        for some in _batches(texts, BATCH_CHARACTERS):
            with as_config_error("the tokenizer does not encode a text. Use one that reads any text"):
                parts += [np.array(found.ids, np.uint32) for found in self._tokenizer.encode_batch_fast(some, add_special_tokens=False)]
        return Flat.of(parts)

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each."""
        with as_config_error(f"the tokenizer does not encode {text[:60]!r} ({len(text):,} characters). Use one that reads any text"):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def _around(model: Any, form: Mapping[str, Any]) -> Any:
    """A tokenizer of another one's model; `None` where its added tokens would not have their ids."""
    from tokenizers import AddedToken, Tokenizer

    bare = {**form, "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    opened = Tokenizer.from_buffer(msgspec.json.encode(bare))
    opened.model = model
    for special, tokens in groupby(form["added_tokens"], itemgetter("special")):
        add = opened.add_special_tokens if special else opened.add_tokens
        add([AddedToken(**{key: value for key, value in token.items() if key != "id"}) for token in tokens])
    ids = {number: token.content for number, token in opened.get_added_tokens_decoder().items()}
    return opened if ids == {token["id"]: token["content"] for token in form["added_tokens"]} else None


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


# The fast engine, and one engine out of two: each text goes to the fast one or to the reference, as the text itself demands.
#
# To the reference go texts with a suspect code point (`suspects.py`), texts that are not composed where the tokenizer composes them, and texts with a byte
# that the vocabulary does not have. Which of them it was never shows in the ids.

BETWEEN, CUT = "\x01\x03\x02", "\x01\x03\x04"
"""Marks: what stands between two texts, and where one is cut. Neither begins again inside itself, so that a mark is found where it was put, or in a
text that holds it, and nowhere else."""


class GigatokenEngine:
    """`gigatoken`, for ordinary text.

    Its ``tokenizer.json`` is changed so that it gives the same ids for the texts that come to it. Special tokens are taken away, and so is a normalizer that
    only composes (NFC), because only composed texts come. A byte that has no entry in the vocabulary gets a placeholder past its end, at which the text is
    sent to the reference. A pre-tokenizer that sets every digit apart (SmolLM, StarCoder) is taken away where the vocabulary joins no digit with anything:
    what is left of it is that no white space is joined over a digit (`digit_cuts`).

    Many texts are encoded as one, with a special token of our own between them (`BETWEEN`): the engine's batches come as an `awkward` array, which takes
    longer to import than a small build takes, and cost more where texts are long. Tokenizers that begin each stretch between special tokens with a space are
    asked text by text; where only a text's first word gets one, it is put there before.

    Its cache of words grows without bound, so the tokenizer is made anew after `RENEW_AFTER` bytes, or after `IDLE_AFTER` and a pause.

    Attributes:
        size: ids from here on are placeholders for bytes that the tokenizer does not have; those of marks come after them.
        cuts_at_digits: whether texts are cut at `digit_cuts` first.
    """

    name = "gigatoken"
    RENEW_AFTER = 256 << 20
    IDLE_AFTER = 32 << 20

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """With a ``tokenizer.json``.

        Raises:
            ValueError: `gigatoken` has no such tokenizer; says why.
        """
        model, own = spec["model"], without_first_space(spec)
        if model["type"] != "BPE":
            raise ValueError(f"gigatoken has no {model['type']} model")
        vocabulary, plain = model["vocab"], [token for token in spec["added_tokens"] if not token["special"]]
        words, pre_tokenizer = [token["content"] for token in plain], (own or spec).get("pre_tokenizer")
        self.size = 1 + max((*vocabulary.values(), *(token["id"] for token in spec["added_tokens"])))
        self.cuts_at_digits = False
        match (pre_tokenizer or {}).get("pretokenizers"):
            case [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False} as second,
            ]:
                pre_tokenizer, self.cuts_at_digits = second, True
        if self.cuts_at_digits and any(len(text) > 1 and not _DIGITS.isdisjoint(text) for text in (*vocabulary, *words)):
            raise ValueError("its pre-tokenizer sets digits apart, and its vocabulary joins them")
        if not model.get("byte_fallback"):
            missing = [char for char in ALPHABET if char not in vocabulary]
            vocabulary = {**vocabulary, **{char: self.size + number for number, char in enumerate(missing)}}
        form = {
            **spec,
            "added_tokens": plain,
            "pre_tokenizer": pre_tokenizer,
            "model": {**model, "vocab": vocabulary},
            "post_processor": None,
        }
        if composes(spec.get("normalizer")) is not None:
            form["normalizer"] = None
        self._between, self._unspaced = self.size + len(ALPHABET), None if own is None else (" ", "▁", *words)
        self._as_one = all(_MARKED.isdisjoint(word) for word in words) and not spaces_stretches(form)
        if self._as_one:
            flags = {"special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
            form["added_tokens"] = [
                *plain,
                *({"id": self._between + at, "content": mark, **flags} for at, mark in enumerate((BETWEEN, CUT))),
            ]
        self._json = msgspec.json.encode(form)
        self._since_new, self._tokenizer = 0, self._new()

    def _new(self) -> Any:
        from gigatoken import Tokenizer

        return Tokenizer.from_json(self._json)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        if not texts:
            return NO_TEXTS
        if self._tokenizer is None or self._since_new > self.RENEW_AFTER:
            self._tokenizer = None  # before the next one takes memory
            self._since_new, self._tokenizer = 0, self._new()
        if self._unspaced is not None:
            begins = {text[0] for text in self._unspaced}
            texts = [text if not text or (text[0] in begins and text.startswith(self._unspaced)) else f" {text}" for text in texts]
        if self._as_one:
            return self._joined(texts)
        self._since_new += sum(map(len, texts))
        return Flat.of([self._tokenizer.encode(text.encode()) for text in texts])

    def pause(self) -> None:
        """Free a large cache: for some time no text will come."""
        if self._since_new > self.IDLE_AFTER:
            self._tokenizer = None

    def _joined(self, texts: Sequence[str]) -> Flat:
        """The ids of texts that are encoded as one."""
        # one by one, because a long string that is not ASCII is slow to write as UTF-8
        text, count = BETWEEN.encode().join(map(str.encode, texts)), 0
        self._since_new += len(text)
        if self.cuts_at_digits:
            codes, mark = np.frombuffer(text, np.uint8), np.frombuffer(CUT.encode(), np.uint8)
            cuts = digit_cuts(codes)
            text, count = np.insert(codes, np.repeat(cuts, len(mark)), np.tile(mark, len(cuts))).tobytes(), len(cuts)
        ids = self._tokenizer.encode(text)
        marks = np.flatnonzero(ids >= self._between)
        ends = np.flatnonzero(ids[marks] == self._between)
        if (len(ends), len(marks) - len(ends)) == (len(texts) - 1, count):
            offsets = np.concatenate([[0], marks[ends] - ends, [len(ids) - len(marks)]])
            return Flat(ids[ids < self._between] if len(marks) else ids, offsets)
        # some hold a mark themselves: in the place of their ids is a placeholder, for which the reference takes them
        plain = np.array([BETWEEN not in text and CUT not in text for text in texts])
        held = len(texts) - int(plain.sum())
        some = Flat(np.full(held, self.size, np.uint32), np.arange(held + 1))
        return interleaved(self._joined(list(compress(texts, plain))) if plain.any() else NO_TEXTS, some, plain)


_MARKED, _DIGITS = frozenset(BETWEEN + CUT), frozenset("0123456789")


class RoutedEngine:
    """The fast engine, and the reference for the texts that need it.

    Attributes:
        composes: whether the tokenizer composes its text (NFC), which the fast engine does not do.
    """

    def __init__(self, fast: GigatokenEngine, reference: ReferenceEngine, suspects: Table, *, composes: bool) -> None:
        self.name, self.composes = fast.name, composes
        self._fast, self._reference, self._suspects = fast, reference, suspects
        self.pause = fast.pause
        self._ascii_suspects = bool(suspects[:128].any())
        self._numerals = _numerals() if fast.cuts_at_digits else None

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        plain = ~self.odd(texts)
        flat = self._fast.encode(texts if plain.all() else list(compress(texts, plain)))
        missing = np.flatnonzero(flat.ids >= self._fast.size)
        if len(missing):
            whole = np.ones(len(flat.offsets) - 1, bool)
            whole[np.searchsorted(flat.offsets, missing, "right") - 1] = False
            flat = flat.take(whole)
            plain[np.flatnonzero(plain)[~whole]] = False
        if plain.all():
            return flat
        return interleaved(flat, self._reference.encode(list(compress(texts, ~plain))), plain)

    def for_reference(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts the reference encodes, those included of which that shows only in their ids."""
        marked: Table = np.fromiter((BETWEEN in text or CUT in text for text in texts), bool, len(texts))
        return marked | self.odd(texts)

    def odd(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts are for the reference, by their characters."""
        odd = np.zeros(len(texts), bool)
        at = [number for number, text in enumerate(texts) if text and (self._ascii_suspects or not text.isascii())]
        if not at:
            return odd
        codes = np.frombuffer("".join([texts[number] for number in at]).encode("utf-32-le"), np.uint32)
        starts = np.zeros(len(at), np.int64)
        np.cumsum([len(texts[number]) for number in at[:-1]], out=starts[1:])
        hits = self._suspects[codes]
        if self._numerals is not None:  # those that follow no visible ASCII character may be joined with what stands before
            loose = self._numerals[codes]
            loose[1:] &= (codes[:-1] <= 32) | (codes[:-1] >= 127)
            hits |= loose
        odd[at] = np.logical_or.reduceat(hits, starts)
        if self.composes:
            marked = np.logical_or.reduceat(_marks()[codes], starts) & ~odd[at]
            odd[[number for number in compress(at, marked) if not unicodedata.is_normalized("NFC", texts[number])]] = True
        return odd


@cache
def _marks() -> Table:
    """Which code points a text must have for composing to change it: marks, what is decomposed alone, and what composes with what stands before."""
    table = np.zeros(0x110000, bool)
    table[0x1100:0x1200] = True  # parts of Korean syllables
    for point in range(128, 0x32000):
        char = chr(point)
        if unicodedata.combining(char):
            table[point] = True
        elif (parts := unicodedata.decomposition(char)) and not parts.startswith("<"):
            table[int(parts.split()[-1], 16)] = True
            table[point] |= not unicodedata.is_normalized("NFC", char)
    return table


@cache
def _numerals() -> Table:
    """Which code points beyond ASCII are numerals: a pre-tokenizer that sets digits apart sets each of them apart as well."""
    table = np.zeros(0x110000, bool)
    table[[point for point in range(128, 0x20000) if unicodedata.category(chr(point)).startswith("N")]] = True
    return table


# Which engine tokenizes: the fast one wherever it gives the reference's ids, text by text.
#
# Every engine encodes **ordinary text**: a control token that is typed in the text is encoded as plain characters, never as the control token.
# `ReferenceEngine` is the `tokenizers` library, which defines the right ids. `RoutedEngine` uses `gigatoken`, about forty times as fast, for every text that
# holds nothing at which the two are known to part. What that is was found by encoding each code point with both, for this very tokenizer; an edge set on
# which they still part leaves the reference in charge of everything.


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one tokenizer.

    Attributes:
        first: for text at the very start of a document.
        rest: for text that follows a control token. It differs from `first` only for SentencePiece tokenizers that put a space in front
            of a document's first word (``prepend_scheme: first``).
        reference, rest_reference: the `tokenizers` counterparts of `first` and `rest`, for character spans and checks.
        verdict: why this engine was chosen.
    """

    first: Engine
    rest: Engine
    reference: ReferenceEngine | CodeEngine | UnigramEngine
    rest_reference: ReferenceEngine | CodeEngine | UnigramEngine
    verdict: str

    def pause(self) -> None:
        """Free what the fast engine remembers of many texts: for some time none will come."""
        for engine in (self.first, self.rest):
            if isinstance(engine, RoutedEngine):
                engine.pause()


def choose_engine(vocabulary: Vocabulary, *, reference_only: bool = False) -> Engines:
    """The fast engine where it gives the reference's ids for this very tokenizer, and the reference for the texts where it does not.

    A tokenizer that the fast engine cannot load, or that differs without a known reason, leaves the reference in charge, and the verdict says so.
    """
    if vocabulary.code is not None:
        own = CodeEngine(vocabulary.code)
        return Engines(own, own, own, own, f"{own.name}, the tokenizer itself")
    if vocabulary.unigram:
        library = UnigramEngine(vocabulary.unigram)
        return Engines(library, library, library, library, "sentencepiece, the library of the model itself")
    spec = vocabulary.spec
    rest_spec = without_first_space(spec)
    reference = ReferenceEngine(spec, vocabulary.backend)
    first, verdict = (reference, "reference only, as configured") if reference_only else _gated(vocabulary, spec, reference)
    if rest_spec is None:
        return Engines(first, first, reference, reference, verdict)
    rest_reference = ReferenceEngine(rest_spec, vocabulary.backend)
    rest: Engine = rest_reference
    if first is not reference:
        rest, rest_verdict = _gated(vocabulary, rest_spec, rest_reference)
        verdict += f"; after control tokens, {rest_verdict}"
    return Engines(first, rest, reference, rest_reference, verdict)


KEPT = Kept("engines", 256)
"""What was found about a tokenizer's engines: the next process reads it instead of comparing them again."""
_RULES = 2
"""Counted up when the comparison itself changes."""


class Finding(msgspec.Struct, frozen=True):
    """Whether the fast engine may be used for a tokenizer, why, and at which code points (first, one past the last) it differs."""

    fast: bool
    verdict: str
    suspects: Ranges = ()


def verdict_key(spec: Mapping[str, Any], engine: str) -> str:
    """What a finding depends on: the tokenizer and the engine beside what all such keys have."""
    return key_of(engine, _RULES, [spec.get(part) for part in DECIDES])


def _gated(vocabulary: Vocabulary, spec: Mapping[str, Any], reference: ReferenceEngine) -> tuple[Engine, str]:
    """The fast engine with the reference for the texts that need it, or the reference alone; and why."""
    key, composing = verdict_key(spec, GigatokenEngine.__qualname__), bool(composes(spec.get("normalizer")))
    try:
        found = remembered(KEPT, key, Finding, lambda: _compared(vocabulary, spec, reference, composing))
        fast = GigatokenEngine(spec) if found.fast else None  # not the one that was compared, which remembers every code point
    except Exception as error:  # whatever the engine cannot load is not for it
        return reference, f"tokenizers: gigatoken cannot load this tokenizer ({type(error).__name__}: {error})"
    engine = reference if fast is None else RoutedEngine(fast, reference, suspect_table(found.suspects), composes=composing)
    return engine, found.verdict


def _compared(vocabulary: Vocabulary, spec: Mapping[str, Any], reference: ReferenceEngine, composing: bool) -> Finding:
    """Encode every code point and the edge set with both."""
    fast, texts = GigatokenEngine(spec), (*edge_set(), *typed(token["content"] for token in spec["added_tokens"]))
    try:
        suspects = differing(fast, reference, vocabulary.backend.normalizer if composing else None, numerals=fast.cuts_at_digits)
        routed = RoutedEngine(fast, reference, suspect_table(suspects), composes=composing)
        unequal = unequal_texts(routed.encode(texts), reference.encode(texts))
    except Exception as error:  # an engine that fails on a text is not for this tokenizer
        return Finding(False, f"tokenizers: gigatoken fails with this tokenizer ({type(error).__name__}: {error})")
    if unequal:
        return Finding(False, f"tokenizers: gigatoken differs on the edge set, first at {texts[unequal[0]]!r}")
    known = sum(end - first for first, end in suspects)
    more = f"; documents with one of {known:,} code points go to tokenizers" if known else ""
    return Finding(True, f"gigatoken: equal to tokenizers on {len(texts):,} edge texts{more}", suspects)


# Flags of added tokens that reach beyond the token: ``lstrip`` and ``rstrip`` swallow white space, ``single_word`` and ``normalized`` decide whether its text
# is the token at all.
#
# The encoder cuts a render at its control tokens and tokenizes what lies between. Where a flag gives the reference other ids for the whole, no cut can be
# right, and the tokenizer is refused before any data is read.

FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_BEFORE, _AFTER = ("", "a", "a ", "a\n"), ("", "a", " a", "\na", "\n\na")


def refuse_flags(vocabulary: Vocabulary, written: Iterable[str]) -> None:
    """Stop where a token that is `written` between other text has a flag that changes the ids around it.

    Raises:
        ConfigError: names the token, its flags and a text.
    """
    wanted = frozenset(written)
    flagged = [token for token in vocabulary.spec["added_tokens"] if token["content"] in wanted and any(token[flag] for flag in FLAGS)]
    if not flagged:
        return
    engines = choose_engine(vocabulary, reference_only=True)
    for token in flagged:
        text = next(_differing(vocabulary, engines, token["content"], token["id"]), None)
        if text is not None:
            flags = ", ".join(f"{flag}: true" for flag in FLAGS if token[flag])
            raise ConfigError(
                f"tokenizer {vocabulary.name}: the template writes the added token {token['content']!r}, which has {flags}. So {text!r} has "
                "other ids as a whole than cut at its control tokens, and a mask cannot be placed on it. Set these flags to false in "
                "tokenizer.json, if the model is served like that, or use a template without this token"
            )


def _differing(vocabulary: Vocabulary, engines: Engines, token: str, number: int) -> Iterator[str]:
    """Texts around a token whose ids as a whole are not those of what stands before it, the token, and what stands after it."""
    vocabulary.backend.encode_special_tokens = False
    for before in _BEFORE:
        for after in _AFTER:
            whole = vocabulary.backend.encode(before + token + after, add_special_tokens=False).ids
            parts = engines.first.encode([before] * bool(before)), engines.rest.encode([after] * bool(after))
            if whole != [*parts[0].ids.tolist(), number, *parts[1].ids.tolist()]:
                yield before + token + after
