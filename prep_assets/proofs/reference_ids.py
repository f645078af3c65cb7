"""Reference ids of any amount of text, each distinct word tokenized once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.array_types import Ints
from prep_assets.caches import CACHES, bounded_cache
from prep_assets.proofs import words
from prep_assets.proofs.words import NARROW, UNSPACED, Words, concatenated, cuts_before_spaces, cuts_unspaced, take_texts, whole_tokens
from prep_assets.stores.arrays import stretches
from prep_assets.stores.files import key_of
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.ids import NO_TEXTS, Engine, Flat, interleaved
from prep_assets.text.vocabulary import Vocabulary

# Ids of texts assembled from those of their parts.


def between(texts: Flat, token: Ints) -> Flat:
    """Return the ids of texts with the control tokens between them."""
    counts, ordinary = np.ones(len(token), np.int64), token < 0
    counts[ordinary] = np.diff(texts.offsets)
    ids = np.repeat(token, counts)
    ids[ids < 0] = texts.ids
    return Flat(ids.astype(np.uint32), np.concatenate([[0], np.cumsum(counts)]))


def assemble(known: Flat, counts: npt.NDArray[np.int32], which: npt.NDArray[np.int32], borders: Ints) -> Flat:
    """Assemble ids of texts from those of their parts, a stretch at a time: a long text has many parts.

    Args:
        known: ids, and where each distinct part begins among them.
        counts: number of ids of each distinct part.
        which: index of the distinct part of each part.
        borders: int64[n + 1], first part of each text, and the number of parts.
    """
    filled = sum(int(counts[which[part]].sum()) for part in stretches(len(which)))
    index: Any = np.int32 if filled + len(known.ids) < NARROW else np.int64
    begins, ids, offsets, filled = known.offsets.astype(index), np.empty(filled, np.uint32), np.zeros(len(borders), np.int64), 0
    for part in stretches(len(which)):
        lengths, starts = counts[which[part]], begins[which[part]]
        ends = np.cumsum(lengths, dtype=index)
        total = int(ends[-1])
        ids[filled : filled + total] = known.ids[np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=index)]
        low, high = np.searchsorted(borders, [part.start, part.stop], "right")
        offsets[low:high] = filled + ends[borders[low:high] - part.start - 1]
        filled += total
    return Flat(ids, offsets)


def one_after_the_other(heads: Flat, tails: Flat, headed: npt.NDArray[np.bool_]) -> Flat:
    """Return for each text the ids of its head, where it has one, and of its tail."""
    pieces = np.zeros((len(headed), 2), bool)
    pieces[:, 0] = True
    shown = np.stack([headed, np.ones(len(headed), bool)], axis=1)
    both = interleaved(heads, tails, pieces[shown])
    return Flat(both.ids, both.offsets[np.concatenate([[0], np.cumsum(shown.sum(axis=1))])])


# Reference ids of any amount of text, each distinct word tokenized once.
#
# The reference library is the yardstick, and slow. A text may be cut where a space follows an ASCII letter, digit or sign, if this tokenizer always starts a
# new pre-token there: then the ids of the whole are those of its parts, end to end, and known parts are looked up.
# `cuts_before_spaces` says for which tokenizers that is so, `whole_tokens` for which a text may also be cut where a sign or a line break follows an ASCII
# letter or digit; texts of all others are given to the library whole. Long text without spaces is cut where `cuts_unspaced` allows it.

WHOLE_EVERY = 64
"""One in so many texts is also tokenized whole."""
WHOLE_MOST = 1 << 18
"""A longer text is tokenized in windows of about so many bytes: the library needs some fifty times the size of its input."""
OVERLAP = 1 << 12
"""About so many bytes of a window overlap with the next, so that no window border is trusted."""
LONG_PART = 1 << 16
"""A part of more bytes is cut between letters and signs, where allowed."""
RUN = 4096
"""New parts that are joined and tokenized as one text."""
_SPELLED = re.compile("<0x[0-9A-F]{2}>")
_CUT = re.compile(b"[!-~](?= )")
_CUT_ANYWHERE = re.compile(_CUT.pattern + b"|" + UNSPACED.pattern)


class ReferenceIds:
    """Tokenizes ordinary text with the reference library: no control token is read from text, and none is added.

    Attributes:
        cuts: whether texts are cut and parts looked up.
        words: known parts.
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
        """Return ids of each text in UTF-8, in order."""
        begins = np.ones(len(texts), bool) if first is None else first
        bounds = np.concatenate([[0], _ends(texts)])
        return self.encode_pieces(b"".join(texts), bounds, np.full(len(texts), -1), begins)

    def encode_pieces(self, data: bytes, bounds: Ints, token: Ints, first: npt.NDArray[np.bool_]) -> Flat:
        """Return ids of texts with control tokens between them.

        Args:
            data: all of them in UTF-8, end to end.
            bounds: int64[n + 1], start of each, and the end of the last.
            token: int64[n], the id of a control token; -1 for a text.
            first: which begin a document.
        """
        if self.cuts and self._first is self._rest:
            flat = self._cut(data, bounds, token)
            if self._same_uncut(flat, data, bounds, token):
                return flat
            self.cuts = False
        texts = np.flatnonzero(token < 0)
        return between(self._encode_texts(_pieces(data, bounds, texts), first[texts]), token)

    def _encode_texts(self, texts: Sequence[bytes], begins: npt.NDArray[np.bool_]) -> Flat:
        """Return ids of texts whose first word is tokenized differently at the start of a document, or that may not be cut."""
        if not self.cuts:
            begins = begins & (self._first is not self._rest)
            return interleaved(_encoded(self._first, compress(texts, begins)), _encoded(self._rest, compress(texts, ~begins)), begins)
        at = [_cut_after(text, 0, False) if begin else 0 for text, begin in zip(texts, begins, strict=True)]
        heads = _encoded(self._first, [text[:end] for text, end in zip(texts, at, strict=True) if end])
        rests = [text[end:] for text, end in zip(texts, at, strict=True)]
        data, bounds, none = b"".join(rests), np.concatenate([[0], _ends(rests)]), np.full(len(rests), -1)
        tails = self._cut(data, bounds, none)
        if not self._same_uncut(tails, data, bounds, none):
            self.cuts = False
            return self._encode_texts(texts, begins)
        return one_after_the_other(heads, tails, np.array(at) > 0) if any(at) else tails

    def _same_uncut(self, flat: Flat, data: bytes, bounds: Ints, token: Ints) -> bool:
        """Whether one in `WHOLE_EVERY` texts has the same ids uncut."""
        checked = np.flatnonzero(token < 0)[::WHOLE_EVERY]
        texts = _pieces(data, bounds, checked)
        ids_of = [flat.ids[low:high] for low, high in zip(flat.offsets[checked].tolist(), flat.offsets[checked + 1].tolist(), strict=True)]
        short = [number for number, text in enumerate(texts) if len(text) <= WHOLE_MOST]
        whole = _encoded(self._rest, [texts[number] for number in short])
        return all(
            np.array_equal(ids_of[number], whole.ids[low:high])
            for number, (low, high) in zip(short, pairwise(whole.offsets.tolist()), strict=True)
        ) and all(self._same_in_windows(ids, text) for ids, text in zip(ids_of, texts, strict=True) if len(text) > WHOLE_MOST)

    def _same_in_windows(self, ids: npt.NDArray[np.uint32], text: bytes) -> bool:
        """Whether a long text has the same ids when each window is tokenized whole. The overlap is counted from the start of the next window."""
        at = token = 0
        while at < len(text):
            next_at = _cut_after(text, at + WHOLE_MOST, self._unspaced)
            end = _cut_after(text, next_at + OVERLAP, self._unspaced)
            both = _encoded(self._rest, [text[at:end], text[next_at:end]])
            window_ids, shared = np.diff(both.offsets).tolist()
            if not np.array_equal(ids[token : token + window_ids], both.ids[:window_ids]):
                return False
            at, token = next_at, token + window_ids - shared
        return token == len(ids)

    def char_spans(self, text: str, *, first: bool) -> list[tuple[int, int]]:
        """Return characters (start, end) of each token of one text."""
        return (self._first if first else self._rest).char_spans(text)[1]

    def least(self, texts: Sequence[bytes]) -> Ints:
        """Return how many ids each text has at least, without tokenizing any: those of words that are known, and one for every other; 0 where texts are not
        cut."""
        bounds = np.concatenate([[0], _ends(texts)])
        if not texts or not self.cuts or self._first is not self._rest:
            return np.zeros_like(bounds[1:])
        distinct, which, borders = self._parts(b"".join(texts), bounds, np.full(len(texts), -1))
        ends = np.concatenate([[0], np.cumsum(self.words.least(distinct)[which])])[borders]
        return np.diff(ends)

    def _cut(self, data: bytes, bounds: Ints, token: Ints) -> Flat:
        distinct, which, borders = self._parts(data, bounds, token)
        ids, starts, counts = self.words.ids_of(distinct, self._tokenized)
        del distinct, data
        control = token >= 0
        listed = np.flatnonzero(np.bincount(token[control]))
        which[borders[:-1][control]] = len(starts) + np.searchsorted(listed, token[control])
        starts = np.concatenate([starts, len(ids) + np.arange(len(listed))])
        counts = np.concatenate([counts, np.ones_like(listed)])
        return assemble(Flat(np.concatenate([ids, listed.astype(np.uint32)]), starts), counts.astype(np.int32), which, borders)

    def _parts(self, data: bytes, bounds: Ints, token: Ints) -> tuple[list[bytes], npt.NDArray[np.int32], Ints]:
        """Cut texts: the distinct parts, the index of each part among them, and the first part of each text with the number of parts at the end."""
        import pyarrow as pa

        begins, control = _cuts(data, bounds, token, self._whole, self._unspaced), token >= 0
        borders = np.searchsorted(begins, bounds)
        # what a control token spells is no word
        known = pa.py_buffer(np.packbits(~np.repeat(control, np.diff(borders)), bitorder="little"))
        parts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(begins) - 1, [known, pa.py_buffer(begins), pa.py_buffer(data)])
        coded = parts.dictionary_encode()
        return coded.dictionary.to_pylist(), np.frombuffer(coded.indices.buffers()[1], np.int32, len(parts)).copy(), borders

    def _tokenized(self, parts: list[bytes]) -> Flat:
        """Return the ids of each part; none is empty. Parts that may be cut on both sides are joined and tokenized at once."""
        codes, ends = np.frombuffer(b"".join(parts), np.uint8), _ends(parts)
        first, last = codes[np.concatenate([[0], ends[:-1]])], codes[ends - 1]
        words = _AFTER_WORDS[first] & _WORDS[last] & (self._whole is not None)
        joinable = words | ((first == _SPACE) & _VISIBLE[last])
        # words come first: after each of them may stand what begins with a sign or a space, after all others what begins with a space
        order = np.concatenate([np.flatnonzero(words), np.flatnonzero(joinable & ~words)])
        joint_ids = self._tokenize_joined([parts[at] for at in order.tolist()])
        if joint_ids is None:
            return _encoded(self._rest, parts)
        single_ids = _encoded(self._rest, compress(parts, ~joinable))
        return take_texts(concatenated(joint_ids, single_ids), np.argsort(np.concatenate([order, np.flatnonzero(~joinable)])))

    def _tokenize_joined(self, parts: list[bytes]) -> Flat | None:
        """Tokenize parts as a few long texts, and divide the ids by their bytes.
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
    """Return the `ReferenceIds` of a tokenizer, with the words on disk. The last one is cached, with the words it has seen since."""
    reference = ReferenceIds(vocabulary)
    if reference.cuts and (key := _key(vocabulary.hash)):
        reference.words = Words.found(key)
    return reference


def whole_ids(vocabulary: Vocabulary) -> ReferenceIds:
    """Return a `ReferenceIds` that tokenizes every text whole."""
    reference = ReferenceIds(vocabulary)
    reference.cuts = False
    return reference


def keep_words() -> None:
    """Write the known words to disk."""
    for tokenizer, reference in CACHES["reference ids"].items():
        # without cuts its words proved wrong
        if reference.cuts and reference.words.fresh and (key := _key(tokenizer)):
            reference.words.keep(key)


def _key(tokenizer: str) -> str | None:
    """Return the cache key of words; `None` where the code that cuts texts cannot be read and compared."""
    try:
        code = [Path(module).read_bytes() for module in (__file__, words.__file__)]
    except OSError:  # an installation without sources
        return None
    return key_of(tokenizer, *(sha256(source).hexdigest() for source in code))


def _encoded(engine: Engine, texts: Iterable[bytes]) -> Flat:
    """Return the ids that an engine gives texts in UTF-8."""
    return engine.encode([text.decode() for text in texts])


def _byte_lengths(vocabulary: Vocabulary) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each id."""
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
    """Return the end of each text, laid end to end."""
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
    """Return texts of `data` by index."""
    return [data[low:high] for low, high in zip(bounds[which].tolist(), bounds[which + 1].tolist(), strict=True)]


def _cuts(data: bytes, borders: Ints, token: Ints, whole: Sequence[bytes] | None, unspaced: bool) -> Ints:
    """Return where parts begin, and the end of the last: at the start of each text and control token; and in texts before each space that follows a visible
    ASCII character, and, outside of what stands in `whole`, before each sign that follows a word. With `unspaced` long parts are cut where else they may
    be."""
    begins, allowed = np.zeros(len(data) + 1, bool), 1 if whole is None else 3
    for part in stretches(len(data) - 1):
        before = np.frombuffer(data[part].translate(_BEFORE), np.uint8)
        after = np.frombuffer(data[part.start + 1 : part.stop + 1].translate(_AFTER), np.uint8)
        begins[part.start + 1 : part.stop + 1] = before & after & allowed
    for token_bytes in whole or ():
        at = data.find(token_bytes)
        while at >= 0:
            begins[at + 1 : at + len(token_bytes)] = False
            at = data.find(token_bytes, at + 1)
    control = np.flatnonzero(token >= 0)
    sizes = borders[control + 1] - borders[control]
    begins[np.repeat(borders[control] + sizes - np.cumsum(sizes), sizes) + np.arange(sizes.sum())] = False
    begins[borders] = True
    bounds = np.flatnonzero(begins)
    if not unspaced:
        return bounds
    long = np.flatnonzero(np.diff(bounds) > LONG_PART)
    for at, end in zip(bounds[long].tolist(), bounds[long + 1].tolist(), strict=True):
        while found := UNSPACED.search(data, at + LONG_PART, end):
            at = found.end()
            begins[at] = True
    return np.flatnonzero(begins) if len(long) else bounds


def _cut_after(text: bytes, most: int, unspaced: bool) -> int:
    """Return the first cut of a text after so many bytes; its end without one."""
    match = (_CUT_ANYWHERE if unspaced else _CUT).search(text, most)
    return match.end() if match else len(text)


# Ids of documents a second time: a sample by the reference library, all others by the fast engine, where the reference has admitted one.
#
# The fast engine catches what a store lost or mixed up: its ids are compared with those of every document. The engine itself is checked by the
# reference: every code point was encoded by both when it was admitted, and of each store the reference encodes the first documents, and of the others those
# that the hash of their text picks: a part of a store has the same ones as the whole. What is no text for the fast engine goes to the reference in any case.

FIRST = 1 << 15
"""The reference encodes the documents in so many tokens at the beginning of a stream."""
ONE_OF = 256
"""One in so many later documents is encoded by the reference."""


class IdsAgain:
    """Tokenizes documents a second time, for comparison.

    Attributes:
        by_reference: number of texts that the reference has encoded so far.
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
        whole = _either(engines.reference, engines.first, _chosen_texts(texts, first), sample[first])
        if first.all():
            return whole
        return interleaved(whole, _either(engines.rest_reference, engines.rest, _chosen_texts(texts, ~first), sample[~first]), first)


def _either(reference: Engine, fast: Engine, texts: Sequence[str], sample: npt.NDArray[np.bool_]) -> Flat:
    """Return ids of each text, those of the sample by the reference. Few batches have a sample."""
    if not sample.any():
        return fast.encode(texts)
    return interleaved(reference.encode(_chosen_texts(texts, sample)), fast.encode(_chosen_texts(texts, ~sample)), sample)


def _chosen_texts(texts: Sequence[str], chosen: npt.NDArray[np.bool_]) -> list[str]:
    return list(compress(texts, chosen))
