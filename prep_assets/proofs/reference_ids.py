"""The reference tokenizer's ids of any amount of text, each distinct word tokenized once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import compress, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.caches import CACHES, bounded_cache
from prep_assets.proofs import words
from prep_assets.proofs.words import UNSPACED, Words, cuts_before_spaces, cuts_unspaced, joint, picked, whole_tokens
from prep_assets.stores.arrays import stretches
from prep_assets.stores.files import key_of
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.ids import NO_TEXTS, Engine, Flat, interleaved
from prep_assets.text.vocabulary import Vocabulary

# Ids of parts of texts, put together as those of the texts.

Ints = npt.NDArray[np.int64]


def between(texts: Flat, token: Ints) -> Flat:
    """The ids of texts with those of the control tokens between them."""
    counts, ordinary = np.ones(len(token), np.int64), token < 0
    counts[ordinary] = np.diff(texts.offsets)
    ids = np.repeat(token, counts)
    ids[ids < 0] = texts.ids
    return Flat(ids.astype(np.uint32), np.concatenate([[0], np.cumsum(counts)]))


def put_together(known: Flat, counts: npt.NDArray[np.int32], which: npt.NDArray[np.int32], borders: Ints) -> Flat:
    """Ids of texts from those of their parts, a stretch at a time: a long text has many.

    Args:
        known: ids, and where those of each distinct part begin among them.
        counts: how many each distinct part has.
        which: the distinct part that each part is.
        borders: the part with which each text begins, and the number of all.
    """
    filled = sum(int(counts[which[part]].sum()) for part in stretches(len(which)))
    ids, offsets, filled = np.empty(filled, np.uint32), np.zeros(len(borders), np.int64), 0
    for part in stretches(len(which)):
        lengths, starts = counts[which[part]], known.offsets[which[part]]
        ends = np.cumsum(lengths)
        total = int(ends[-1])
        ids[filled : filled + total] = known.ids[np.repeat(starts - (ends - lengths), lengths) + np.arange(total)]
        low, high = np.searchsorted(borders, [part.start, part.stop], "right")
        offsets[low:high] = filled + ends[borders[low:high] - part.start - 1]
        filled += total
    return Flat(ids, offsets)


def one_after_the_other(heads: Flat, tails: Flat, headed: npt.NDArray[np.bool_]) -> Flat:
    """Each text's head, where it has one, and its tail."""
    pieces = np.zeros((len(headed), 2), bool)
    pieces[:, 0] = True
    shown = np.stack([headed, np.ones(len(headed), bool)], axis=1)
    both = interleaved(heads, tails, pieces[shown])
    return Flat(both.ids, both.offsets[np.concatenate([[0], np.cumsum(shown.sum(axis=1))])])


# The reference tokenizer's own ids of any amount of text, each distinct word tokenized once.
#
# The reference library is the yardstick, and slow. A text may be cut where a space follows an ASCII letter, digit or sign, if this tokenizer always starts a
# new pre-token there: then the ids of the whole are those of its parts, one after the other, and parts that were met before are looked up.
# `cuts_before_spaces` says for which tokenizers that is so, `whole_tokens` for which a text may also be cut where a sign or a line break follows an ASCII
# letter or digit; texts of all others are given to the library whole. Long text without spaces is cut where `cuts_unspaced` allows it.

WHOLE_EVERY = 64
"""Every so many texts are tokenized whole as well."""
WHOLE_MOST = 1 << 18
"""A text that is longer is, in windows of about so many bytes: the library takes some fifty times what it tokenizes."""
OVERLAP = 1 << 12
"""About so many bytes of a window are those of the next as well, so that no place where one ends is taken on trust."""
LONG_PART = 1 << 16
"""A part that has more bytes is cut between its letters and signs, if it may be."""
RUN = 4096
"""New parts that are tokenized as one text."""
_SPELLED = re.compile("<0x[0-9A-F]{2}>")
_CUT = re.compile(b"[!-~](?= )")
_CUT_ANYWHERE = re.compile(_CUT.pattern + b"|" + UNSPACED.pattern)


class ReferenceIds:
    """Tokenizes ordinary text with the reference library: no control token is produced from text, and none is added.

    Attributes:
        cuts: whether texts are cut and parts looked up.
        words: the parts that were met before.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        engines = choose_engine(vocabulary, reference_only=True)
        self._first, self._rest = engines.reference, engines.rest_reference
        self.cuts = cuts_before_spaces(vocabulary.spec)
        if self.cuts:
            self._whole, self._lengths = whole_tokens(vocabulary.spec), _byte_lengths(vocabulary)
            self._normalizer = vocabulary.backend.normalizer
            self._unspaced = cuts_unspaced(vocabulary.spec)
        self.words = Words()

    def encode(self, texts: Sequence[str], first: npt.NDArray[np.bool_] | None = None) -> Flat:
        """Ids of each text, in order.

        Args:
            first: which texts begin a document, all of them if left out; the others follow a control token.
        """
        return self.encode_utf8([text.encode() for text in texts], first)

    def encode_utf8(self, texts: Sequence[bytes], first: npt.NDArray[np.bool_] | None = None) -> Flat:
        """The same of texts in UTF-8."""
        begins = np.ones(len(texts), bool) if first is None else first
        bounds = np.concatenate([[0], _ends(texts)])
        return self.encode_pieces(b"".join(texts), bounds, np.full(len(texts), -1), begins)

    def encode_pieces(self, data: bytes, bounds: Ints, token: Ints, first: npt.NDArray[np.bool_]) -> Flat:
        """The same of texts, and of control tokens between them.

        Args:
            data: all of them in UTF-8, one after the other.
            bounds: int64[n + 1], where each begins, and the end of the last.
            token: int64[n], the id of a control token, -1 of a text.
            first: which begin a document.
        """
        if self.cuts and self._first is self._rest:
            found = self._cut(data, bounds, token)
            if self._same_whole(found, data, bounds, token):
                return found
            self.cuts = False
        texts = np.flatnonzero(token < 0)
        return between(self._each(_pieces(data, bounds, texts), first[texts]), token)

    def _each(self, texts: Sequence[bytes], begins: npt.NDArray[np.bool_]) -> Flat:
        """The ids of texts where the first word of a document is not what it would be elsewhere, or where texts may not be cut."""
        if not self.cuts:
            begins = begins & (self._first is not self._rest)
            return interleaved(_encoded(self._first, compress(texts, begins)), _encoded(self._rest, compress(texts, ~begins)), begins)
        at = [_cut_after(text, 0, False) if begin else 0 for text, begin in zip(texts, begins, strict=True)]
        heads = _encoded(self._first, [text[:end] for text, end in zip(texts, at, strict=True) if end])
        rests = [text[end:] for text, end in zip(texts, at, strict=True)]
        data, bounds, none = b"".join(rests), np.concatenate([[0], _ends(rests)]), np.full(len(rests), -1)
        tails = self._cut(data, bounds, none)
        if not self._same_whole(tails, data, bounds, none):
            self.cuts = False
            return self._each(texts, begins)
        return one_after_the_other(heads, tails, np.array(at) > 0) if any(at) else tails

    def _same_whole(self, flat: Flat, data: bytes, bounds: Ints, token: Ints) -> bool:
        """Whether every so many texts have the ids that they have when they are not cut."""
        some = np.flatnonzero(token < 0)[::WHOLE_EVERY]
        texts = _pieces(data, bounds, some)
        found = [flat.ids[low:high] for low, high in zip(flat.offsets[some].tolist(), flat.offsets[some + 1].tolist(), strict=True)]
        short = [number for number, text in enumerate(texts) if len(text) <= WHOLE_MOST]
        whole = _encoded(self._rest, [texts[number] for number in short])
        return all(
            np.array_equal(found[number], whole.ids[low:high])
            for number, (low, high) in zip(short, pairwise(whole.offsets.tolist()), strict=True)
        ) and all(self._same_in_windows(ids, text) for ids, text in zip(found, texts, strict=True) if len(text) > WHOLE_MOST)

    def _same_in_windows(self, ids: npt.NDArray[np.uint32], text: bytes) -> bool:
        """The same of a long text: each window is tokenized whole. How many ids of it the next one has as well is counted from where that begins."""
        at = token = 0
        while at < len(text):
            turn = _cut_after(text, at + WHOLE_MOST, self._unspaced)
            end = _cut_after(text, turn + OVERLAP, self._unspaced)
            both = _encoded(self._rest, [text[at:end], text[turn:end]])
            own, shared = np.diff(both.offsets).tolist()
            if not np.array_equal(ids[token : token + own], both.ids[:own]):
                return False
            at, token = turn, token + own - shared
        return token == len(ids)

    def char_spans(self, text: str, *, first: bool) -> list[tuple[int, int]]:
        """Characters (start, end) of each token of one text."""
        return (self._first if first else self._rest).char_spans(text)[1]

    def _cut(self, data: bytes, bounds: Ints, token: Ints) -> Flat:
        import pyarrow as pa

        begins, control = _cuts(data, bounds, token, self._whole, self._unspaced), token >= 0
        borders = np.searchsorted(begins, bounds)
        # what a control token spells is no word
        known = pa.py_buffer(np.packbits(~np.repeat(control, np.diff(borders)), bitorder="little"))
        parts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(begins) - 1, [known, pa.py_buffer(begins), pa.py_buffer(data)])
        coded = parts.dictionary_encode()
        ids, starts, counts = self.words.ids_of(coded.dictionary.to_pylist(), self._tokenized)
        which = np.frombuffer(coded.indices.buffers()[1], np.int32, len(parts)).copy()
        del parts, begins, data
        listed = np.flatnonzero(np.bincount(token[control]))
        which[borders[:-1][control]] = len(starts) + np.searchsorted(listed, token[control])
        starts = np.concatenate([starts, len(ids) + np.arange(len(listed))])
        counts = np.concatenate([counts, np.ones_like(listed)])
        return put_together(Flat(np.concatenate([ids, listed.astype(np.uint32)]), starts), counts.astype(np.int32), which, borders)

    def _tokenized(self, parts: list[bytes]) -> Flat:
        """The ids of each part, of which none is empty. Those that may be cut on either side are tokenized together."""
        codes, ends = np.frombuffer(b"".join(parts), np.uint8), _ends(parts)
        first, last = codes[np.concatenate([[0], ends[:-1]])], codes[ends - 1]
        words = _AFTER_WORDS[first] & _WORDS[last] & (self._whole is not None)
        joinable = words | ((first == _SPACE) & _VISIBLE[last])
        # words come first: after each of them may stand what begins with a sign or a space, after all others what begins with a space
        order = np.concatenate([np.flatnonzero(words), np.flatnonzero(joinable & ~words)])
        together = self._all_at_once([parts[at] for at in order.tolist()])
        if together is None:
            return _encoded(self._rest, parts)
        alone = _encoded(self._rest, compress(parts, ~joinable))
        return picked(joint(together, alone), np.argsort(np.concatenate([order, np.flatnonzero(~joinable)])))

    def _all_at_once(self, parts: list[bytes]) -> Flat | None:
        """The same for parts that may be cut on either side: tokenized as a few long texts, whose ids are divided by the bytes they stand for.
        `None` where the bytes do not add up."""
        if not parts:
            return NO_TEXTS
        ids = _encoded(self._rest, [b"".join(parts[at : at + RUN]) for at in range(0, len(parts), RUN)]).ids
        ends = np.cumsum(self._lengths[ids])
        wanted = _ends(parts) if self._normalizer is None else np.cumsum(list(map(self._normalized_length, parts)))
        last = np.searchsorted(ends, wanted)
        if last[-1] != len(ends) - 1 or not np.array_equal(ends[last], wanted):
            return None
        return Flat(ids, np.concatenate([[0], last + 1]))

    def _normalized_length(self, part: bytes) -> int:
        return len(part) if part.isascii() else len(self._normalizer.normalize_str(part.decode()).encode())


@bounded_cache("reference ids", 1, key=lambda vocabulary: vocabulary.hash)
def reference_ids(vocabulary: Vocabulary) -> ReferenceIds:
    """The `ReferenceIds` of a tokenizer, with the words that are on disk. The last one is kept, with those that it has met since."""
    found = ReferenceIds(vocabulary)
    if found.cuts and (key := _key(vocabulary.hash)):
        found.words = Words.found(key)
    return found


def keep_words() -> None:
    """Put the words that were met on disk."""
    for tokenizer, reference in CACHES["reference ids"].items():
        # where it does not cut, its words were found to be none
        if reference.cuts and reference.words.fresh and (key := _key(tokenizer)):
            reference.words.keep(key)


def _key(tokenizer: str) -> str | None:
    """What words are kept under; `None` where the code that cuts texts cannot be read, so that nothing says whether it is the same."""
    try:
        code = [Path(module).read_bytes() for module in (__file__, words.__file__)]
    except OSError:  # an installation without sources
        return None
    return key_of(tokenizer, *(sha256(each).hexdigest() for each in code))


def _encoded(engine: Engine, texts: Iterable[bytes]) -> Flat:
    """The ids that an engine gives texts in UTF-8."""
    return engine.encode([text.decode() for text in texts])


def _byte_lengths(vocabulary: Vocabulary) -> npt.NDArray[np.int64]:
    """How many bytes each id stands for."""
    lengths, model = np.zeros(vocabulary.size, np.int64), vocabulary.spec["model"]
    texts, numbers = list(model["vocab"]), list(model["vocab"].values())
    # a byte-level vocabulary has one character for each byte; SentencePiece's spells out some bytes as <0xC3>
    lengths[numbers] = [_spelled_length(text) for text in texts] if model.get("byte_fallback") else list(map(len, texts))
    for token in vocabulary.spec["added_tokens"]:
        lengths[token["id"]] = len(token["content"].encode())
    return lengths


def _spelled_length(text: str) -> int:
    return 1 if _SPELLED.fullmatch(text) else len(text.replace("▁", " ").encode())


def _ends(texts: Sequence[bytes]) -> Ints:
    """Where each text ends, where they stand one after the other."""
    return np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))


_CODES = np.arange(256)
_SPACE = 32
_VISIBLE = (_CODES > _SPACE) & (_CODES < 127)
_WORDS = np.isin(_CODES, list(b"0123456789" + bytes(range(65, 91)) + bytes(range(97, 123))))
_SIGNS = (_VISIBLE & ~_WORDS) | (_CODES == 10)
_AFTER_WORDS = _SIGNS | (_CODES == _SPACE)
"""Of each byte: whether it is a visible ASCII character, an ASCII letter or digit, a sign or a line break, or what a cut after a word is before."""
_BEFORE, _AFTER = ((one | other << 1).astype(np.uint8).tobytes() for one, other in ((_VISIBLE, _WORDS), (_CODES == _SPACE, _SIGNS)))
"""The same as bits: a text may be cut between two bytes of which the same bit is set."""


def _pieces(data: bytes, bounds: Ints, which: Ints) -> list[bytes]:
    """Some of the texts that stand one after the other."""
    return [data[low:high] for low, high in zip(bounds[which].tolist(), bounds[which + 1].tolist(), strict=True)]


def _cuts(data: bytes, borders: Ints, token: Ints, whole: Sequence[bytes] | None, unspaced: bool) -> Ints:
    """Where parts begin, and the end of the last: at the start of each text and control token; and in texts before each space that follows a visible
    ASCII character, and, outside of what stands in `whole`, before each sign that follows a word. With `unspaced` long parts are cut where else they may
    be."""
    begins, allowed = np.zeros(len(data) + 1, bool), 1 if whole is None else 3
    for part in stretches(len(data) - 1):
        before = np.frombuffer(data[part].translate(_BEFORE), np.uint8)
        after = np.frombuffer(data[part.start + 1 : part.stop + 1].translate(_AFTER), np.uint8)
        begins[part.start + 1 : part.stop + 1] = before & after & allowed
    for each in whole or ():
        at = data.find(each)
        while at >= 0:
            begins[at + 1 : at + len(each)] = False
            at = data.find(each, at + 1)
    control = np.flatnonzero(token >= 0)
    sizes = borders[control + 1] - borders[control]
    begins[np.repeat(borders[control] + sizes - np.cumsum(sizes), sizes) + np.arange(sizes.sum())] = False
    begins[borders] = True
    bounds = np.flatnonzero(begins)
    if not unspaced or not (long := np.flatnonzero(np.diff(bounds) > LONG_PART)).size:
        return bounds
    for at, end in zip(bounds[long].tolist(), bounds[long + 1].tolist(), strict=True):
        while found := UNSPACED.search(data, at + LONG_PART, end):
            at = found.end()
            begins[at] = True
    return np.flatnonzero(begins)


def _cut_after(text: bytes, most: int, unspaced: bool) -> int:
    """Where a text may be cut after so many bytes; its end where it may not."""
    found = (_CUT_ANYWHERE if unspaced else _CUT).search(text, most)
    return found.end() if found else len(text)


# The ids of documents once more: a sample by the reference library, all others by the fast engine, where the reference has admitted one.
#
# The fast engine finds what a store may have lost or mixed up: its ids are compared with those of every document. That the engine itself is right is for the
# reference: every code point was encoded by both when it was admitted, and of each store the reference encodes the first documents, and of the others those
# that the hash of their text picks: a part of a store has the same ones as the whole. What is no text for the fast engine goes to the reference in any case.

FIRST = 1 << 15
"""Tokens at the beginning of a stream whose documents the reference encodes."""
ONE_OF = 256
"""Of so many documents after them, one is encoded by the reference."""


class IdsAgain:
    """Tokenizes documents for a comparison.

    Attributes:
        by_reference: how many texts the reference has encoded so far.
    """

    def __init__(self, vocabulary: Vocabulary, engines: Engines | None) -> None:
        self.by_reference = 0
        self._vocabulary = vocabulary
        self._engines = None if engines is None or engines.first is engines.reference else engines

    def encode(self, texts: Sequence[str], first: npt.NDArray[np.bool_], early: npt.NDArray[np.bool_]) -> Flat:
        """Ids of each text, in order.

        Args:
            first: bool[n], which of them begin a document. The others follow a control token.
            early: bool[n], which are of documents that stand among the first `FIRST` tokens of their stream.
        """
        engines = self._engines
        if engines is None:
            self.by_reference += len(texts)
            return reference_ids(self._vocabulary).encode(texts, first)
        sample = early | np.fromiter((xxhash.xxh3_64_intdigest(text.encode()) % ONE_OF == 0 for text in texts), bool, len(texts))
        self.by_reference += int(sample.sum())
        whole = _either(engines.reference, engines.first, _of(texts, first), sample[first])
        if first.all():
            return whole
        return interleaved(whole, _either(engines.rest_reference, engines.rest, _of(texts, ~first), sample[~first]), first)


def _either(reference: Engine, fast: Engine, texts: Sequence[str], sample: npt.NDArray[np.bool_]) -> Flat:
    """Ids of each text: of the sample by the reference. Few batches have any of it."""
    if not sample.any():
        return fast.encode(texts)
    return interleaved(reference.encode(_of(texts, sample)), fast.encode(_of(texts, ~sample)), sample)


def _of(texts: Sequence[str], chosen: npt.NDArray[np.bool_]) -> list[str]:
    return list(compress(texts, chosen))
