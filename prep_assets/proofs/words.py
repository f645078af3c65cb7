"""Bytes of token ids, the cache of words with their reference ids, and where a text may be cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.caches import bounded_cache
from prep_assets.stores.arrays import in_arrow, stretches
from prep_assets.stores.files import Kept, key_of
from prep_assets.text.ids import NO_TEXTS, Flat
from prep_assets.text.vocabulary import Vocabulary

# Bytes of each token id, proven against the tokenizer's own decoder, so that documents can be compared as bytes.

_BEFORE = (b"", b"\xc3", b"\xe4", b"\xf1", b"\xe4\xb8", b"\xf1\x80", b"\xf1\x80\x80", b"\xe0", b"\xed", b"\xf0", b"\xf4")
_RUN = 256
"""Texts that are decoded at once."""
NARROW = 1 << 31
"""Offsets below it fit into 32 bits."""
_AFTER = (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0", b"\xa0\x80", b"\x90\x80", b"\x90\x80\x80")


def unproven_id(vocabulary: Vocabulary) -> int | None:
    """Return the first id that the tokenizer's decoder does not turn into the bytes of `Vocabulary.token_bytes`; `None` for none.

    An id of a partial character is decoded between ids of single bytes that complete the character. Bytes that UTF-8 never has
    cannot be in any text, so that for them nothing is compared.
    """
    table = vocabulary.token_bytes
    if table is None:
        return 0
    cases = list(_cases(table))
    # many cases per text, one per line; those of a text that differs are decoded one by one
    line = [table.index(b"\n")] if b"\n" in table else []
    run_length = _RUN if line else 1
    runs = [cases[at : at + run_length] for at in range(0, len(cases), run_length)]
    decoded_runs = vocabulary.decode_batch([[token for _, ids, _ in run for token in (*ids, *line)] for run in runs])
    doubtful = [
        case
        for run, decoded in zip(runs, decoded_runs, strict=True)
        if decoded != "".join(text + "\n" * len(line) for _, _, text in run)
        for case in run
    ]
    decoded_alone = vocabulary.decode_batch([ids for _, ids, _ in doubtful])
    return next((number for (number, _, text), decoded in zip(doubtful, decoded_alone, strict=True) if decoded != text), None)


@bounded_cache("proven token bytes", 256, key=lambda vocabulary: vocabulary.hash)
def is_proven(vocabulary: Vocabulary) -> bool:
    """Whether the decoder confirms the bytes of every id; tested once per tokenizer and machine."""
    key = key_of(vocabulary.hash, sha256(Path(__file__).read_bytes()).hexdigest())
    if KEPT.find(key) is not None:
        return True
    if unproven_id(vocabulary) is not None:
        return False
    KEPT.keep(key, b"")
    return True


KEPT = Kept("bytes", 256)
"""An empty file for each proven tokenizer."""


class Spelled(NamedTuple):
    """Tokens as bytes.

    Attributes:
        data: of all tokens, end to end.
        places: int[n + 1], where each of n tokens begins in it, and where the last one ends.
    """

    data: bytes
    places: npt.NDArray[Any]


def joined(parts: Sequence[Spelled]) -> Spelled:
    """Return tokens of several stretches, end to end."""
    begins = np.cumsum([0, *(len(part.data) for part in parts)])
    begins = begins.astype(np.int32) if begins[-1] < NARROW else begins
    places = [part.places[:-1] + begin for part, begin in zip(parts, begins, strict=False)]
    return Spelled(b"".join(part.data for part in parts), np.concatenate([*places, begins[-1:]]))


class ByteTable:
    """The bytes of each id, proven lazily: once the tokenizer's own decoder would take longer for the ids seen so far."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary, self._asked = vocabulary, 0
        self._table: Any = None
        self._lengths: npt.NDArray[np.int32]  # made with the table

    def is_ready(self, count: int) -> bool:
        """Whether bytes of `count` more ids are to be taken; not where the table is not proven."""
        import pyarrow as pa

        self._asked += count
        if self._table is None and self._vocabulary.token_bytes is not None and self._asked > self._vocabulary.size:
            self._table = pa.array(self._vocabulary.token_bytes) if is_proven(self._vocabulary) else False
            self._lengths = np.fromiter(map(len, self._vocabulary.token_bytes), np.int32)
        return self._table is not None and self._table is not False

    def take(self, ids: npt.NDArray[np.integer[Any]]) -> Spelled | None:
        """Return ids as bytes; `None` where the table is not ready for those that `is_ready` was told of."""
        return self.bytes_of(ids) if self.is_ready(0) else None

    def bytes_of(self, ids: npt.NDArray[np.integer[Any]]) -> Spelled:
        """Return the same of a table that is ready."""
        import pyarrow as pa

        # a long text has many tokens, so that places are narrow where they can be
        narrow = len(ids) * int(self._lengths.max()) < NARROW
        narrow = narrow or sum(int(self._lengths[ids[part]].sum(dtype=np.int64)) for part in stretches(len(ids))) < NARROW
        taken = (self._table if narrow else self._table.cast(pa.large_binary())).take(in_arrow(ids))
        places = np.frombuffer(taken.buffers()[1], np.int32 if narrow else np.int64, len(ids) + 1)
        return Spelled(bytes(memoryview(taken.buffers()[2] or b"").cast("B")[: int(places[-1])]), places)


def _cases(table: tuple[bytes, ...]) -> Iterator[tuple[int, list[int], str]]:
    """Yield an id, a sequence of ids around it, and the text it must decode to."""
    single = {token_bytes: number for number, token_bytes in reversed(list(enumerate(table))) if len(token_bytes) == 1}
    for number, token_bytes in enumerate(table):
        if token_bytes.isascii():
            yield number, [number], token_bytes.decode()
            continue
        for before, after in ((a, b) for a in _BEFORE for b in _AFTER):
            parts = [bytes([byte]) for byte in before], [bytes([byte]) for byte in after]
            if (
                all(part in single for parts_of_side in parts for part in parts_of_side)
                and (text := _text(before + token_bytes + after)) is not None
            ):
                yield number, [*(single[part] for part in parts[0]), number, *(single[part] for part in parts[1])], text
                break


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# Cache of words with their reference ids: in memory while they are in use, and on disk for the next process.
#
# Only the reference library makes entries. The key on disk is made of the tokenizer, the versions of the libraries, and the code of the
# proofs that cut texts into words; a changed file counts as missing.

MOST_BYTES, EACH = 48 << 20, 144
"""Most bytes of words and ids, with so many per word on top; then the least recently used half is evicted."""
LONGEST_HELD = 1024
"""Longest word in the cache, in bytes."""
KEPT_WORDS = Kept("words", 16)

Parts = tuple[npt.NDArray[np.uint32], Ints, Ints]
"""Ids, and for each part the start and number of its ids."""
_NONE: Ints = np.zeros(0, np.int64)


class _File(msgspec.Struct, frozen=True):
    words: list[bytes]
    ids: bytes
    counts: bytes


class Words:
    """A cache of the ids of words.

    Attributes:
        known: word → its number.
        held: ids by number.
        fresh: number of words added since the last write to disk.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.held, self.fresh = NO_TEXTS, 0
        self._met, self._turn, self._bytes = _NONE, 0, 0

    def ids_of(self, distinct: list[bytes], tokenized: Callable[[list[bytes]], Flat]) -> Parts:
        """Return the ids of distinct words; `tokenized` gives those of new ones."""
        numbers = np.fromiter(map(self.known.get, distinct, repeat(-1)), np.int64, len(distinct))
        new = np.flatnonzero(numbers < 0)
        # long ones come last, so that they can be dropped
        is_long = np.fromiter((len(distinct[at]) > LONGEST_HELD for at in new.tolist()), bool, len(new))
        new = np.concatenate([new[~is_long], new[is_long]])
        listed = [distinct[at] for at in new.tolist()]
        lasting = listed[: np.count_nonzero(~is_long)]
        known, held = len(self.known), len(self.known) + len(lasting)
        numbers[new] = known + np.arange(len(new))
        every = concatenated(self.held, tokenized(listed)) if listed else self.held
        self.known |= zip(lasting, range(known, held), strict=True)
        self.held = Flat(every.ids[: every.offsets[held]], every.offsets[: held + 1])
        self.fresh += len(lasting)
        self._turn += 1
        self._met = np.append(self._met, np.full(len(lasting), self._turn))
        self._met[numbers[numbers < held]] = self._turn
        self._bytes += int(_sizes(lasting, self.held.offsets[known:]).sum())
        if self._bytes > MOST_BYTES:
            self._forget()
        return every.ids, every.offsets[numbers], np.diff(every.offsets)[numbers]

    def least(self, distinct: list[bytes]) -> Ints:
        """Return the number of ids of each word that is known, and 1 for every other."""
        counts: Ints = np.append(np.diff(self.held.offsets), 1)
        return counts[np.fromiter(map(self.known.get, distinct, repeat(-1)), np.int64, len(distinct))]

    def _forget(self) -> None:
        words, latest = list(self.known), np.argsort(self._met)[::-1]
        sizes = _sizes(words, self.held.offsets)
        kept_numbers = np.sort(latest[2 * np.cumsum(sizes[latest]) <= MOST_BYTES])
        self._bytes = int(sizes[kept_numbers].sum())
        self.known = {words[number]: at for at, number in enumerate(kept_numbers.tolist())}
        self.held, self._met = take_texts(self.held, kept_numbers), self._met[kept_numbers]

    def keep(self, key: str) -> None:
        """Write the words to disk, if enough of them are new."""
        if 16 * self.fresh > len(self.known):
            counts = np.diff(self.held.offsets).astype(np.uint32)
            KEPT_WORDS.keep(key, msgspec.msgpack.encode(_File(list(self.known), self.held.ids.tobytes(), counts.tobytes())))
            self.fresh = 0

    @classmethod
    def found(cls, key: str) -> Words:
        """Return the words on disk."""
        loaded, data = cls(), KEPT_WORDS.find(key)
        if data is not None:
            file = msgspec.msgpack.decode(data, type=_File)
            offsets = np.concatenate([[0], np.cumsum(np.frombuffer(file.counts, np.uint32), dtype=np.int64)])
            loaded.known = dict(zip(file.words, range(len(file.words)), strict=True))
            loaded.held, loaded._met = Flat(np.frombuffer(file.ids, np.uint32), offsets), np.full(len(file.words), loaded._turn)
            loaded._bytes = int(_sizes(file.words, offsets).sum())
        return loaded


def _sizes(words: list[bytes], offsets: Ints) -> Ints:
    """Return the bytes that each word takes in the cache, with its ids."""
    sizes: Ints = np.fromiter(map(len, words), np.int64) + EACH + 4 * np.diff(offsets)
    return sizes


def take_texts(flat: Flat, which: Ints) -> Flat:
    """Return texts of a result by index."""
    counts = np.diff(flat.offsets)[which]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Flat(flat.ids[np.repeat(flat.offsets[which] - offsets[:-1], counts) + np.arange(offsets[-1])], offsets)


def concatenated(first: Flat, second: Flat) -> Flat:
    """Return two results, end to end."""
    return Flat(np.concatenate([first.ids, second.ids]), np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]]))


# Where a text may be cut, so that the ids of the whole are those of its parts, end to end.

_SPLITS = {
    # cl100k and what Llama 3, Qwen and others made of it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # DeepSeek V3 and R1
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""Split patterns in which no alternative takes a space after anything but white space, and none looks beyond a following space."""
_FINER = {r"\p{N}{1,3}", r"\p{N}", r"[一-龥぀-ゟ゠-ヿ]+"}
"""Additional patterns that only split further."""
_MERGED = re.compile("[!-~]▁")
UNSPACED = re.compile(
    rb"(?:\xe3\x81[\x81-\xbf]|\xe3\x82[\x80-\x96\xa1-\xbf]|\xe3\x83[\x80-\xba]|\xe4[\xb8-\xbf][\x80-\xbf]|[\xe5-\xe8][\x80-\xbf]{2}|\xe9[\x80-\xbd][\x80-\xbf])"
    rb"(?=\n|\xe3\x80[\x81\x82]|\xef\xbc[\x81\x8c\x9a\x9b\x9f])"
)
"""In UTF-8: a Chinese character (U+4E00 to U+9F7F) or kana before one of 、。！，：；？ or a line break."""
_WORD_END = re.compile("[0-9A-Za-z][!-/:-@[-`{-~\n]")


def cuts_before_spaces(spec: Mapping[str, Any]) -> bool:
    """Whether the ids of a text are those of its parts when it is cut before spaces that follow a visible ASCII character.

    True only where known: byte-level BPE with a known pattern of pre-tokens, and SentencePiece's BPE where no entry of the
    vocabulary has a space after such a character, so that nothing ever merges across.
    """
    model = spec["model"]
    if model["type"] != "BPE" or model.get("dropout") or any(_reaches_over(token) for token in spec["added_tokens"]):
        return False
    if any(part["type"] != "NFC" for part in _parts(spec.get("normalizer"))):
        return False
    steps = _parts(spec.get("pre_tokenizer"))
    if [step["type"] for step in steps] == ["Metaspace"]:
        split, entries = steps[0].get("split", True), model["vocab"]
        return (
            steps[0]["replacement"] == "▁" in entries
            and not model.get("ignore_merges")
            and (split or not any(map(_MERGED.search, entries)))
        )
    return any(map(_ends_words, steps)) and all(_ends_words(step) or _splits_further(step) for step in steps)


def whole_tokens(spec: Mapping[str, Any]) -> tuple[bytes, ...] | None:
    """Return the added tokens that ordinary text may hold and that reach over the end of a word, where texts may be cut at all others: where a sign or a line
    break follows an ASCII letter or digit. `None` where they may not. Only for tokenizers that `cuts_before_spaces` admits.

    None of the patterns takes a sign or a line break after a letter or digit, and none looks back.
    """
    in_text = [token for token in spec["added_tokens"] if not token["special"]]
    if any(step["type"] == "Metaspace" for step in _parts(spec.get("pre_tokenizer"))) or any(token["single_word"] for token in in_text):
        return None
    return tuple(token["content"].encode() for token in in_text if _WORD_END.search(token["content"]))


def cuts_unspaced(spec: Mapping[str, Any]) -> bool:
    """Whether ids are also those of the parts when a text is cut at `UNSPACED`. Only for tokenizers that `cuts_before_spaces` admits.

    None of the patterns takes such a sign after a letter, and none looks back.
    """
    return whole_tokens(spec) is not None and not any(UNSPACED.search(token["content"].encode()) for token in spec["added_tokens"])


def _ends_words(step: Mapping[str, Any]) -> bool:
    """Whether a pre-tokenizer starts a new pre-token at each such space, without looking further."""
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex")) and not step.get("add_prefix_space")
    return _isolated(step) in _SPLITS


def _splits_further(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Digits" or (step["type"] == "ByteLevel" and not step.get("add_prefix_space")) or _isolated(step) in _FINER


def _isolated(step: Mapping[str, Any]) -> str | None:
    """Return the pattern of a pre-tokenizer that isolates its matches; else `None`."""
    plain = step["type"] == "Split" and step["behavior"] == "Isolated" and not step["invert"]
    return step["pattern"].get("Regex") if plain else None


def _reaches_over(token: Mapping[str, Any]) -> bool:
    """Whether an added token in text would take a following space, or holds one."""
    return bool(token["rstrip"]) or re.search("[!-~] ", token["content"]) is not None


def _parts(component: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if component is None:
        return []
    nested = component.get("pretokenizers") or component.get("normalizers")
    return list(nested) if nested else [component]
