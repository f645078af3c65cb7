"""Tokenization identity: a document's tokens decode to its text, and are the reference tokenizer's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.ahead import ahead
from prep_assets.proofs.ids_again import IdsAgain
from prep_assets.proofs.token_bytes import is_proven
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.tokenization.engines import Engines
from prep_assets.tokenization.flat import Flat
from prep_assets.tokenization.vocabulary import Vocabulary

BATCH_CHARACTERS = 1 << 20
TOGETHER = 1 << 20
"""Ids whose bytes are compared at once, those of a whole batch."""
DECODED = 1 << 18
"""Ids whose bytes are compared at a time, where a batch has more than `TOGETHER`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A document.

    Attributes:
        id: its record id.
        text: its text.
        ids: its token ids without the end-of-text token, and without sentinels, in the order of the text.
        parts: its text, cut where fill-in-the-middle cut it, or into sentences; empty where it is whole.
        early: whether it stands among the first tokens of its stream, see `ids_again.FIRST`.
    """

    id: str
    text: str
    ids: npt.NDArray[np.integer]
    parts: tuple[str, ...] = ()
    early: bool = False


def prove_texts(texts: Iterable[Text], vocabulary: Vocabulary, engines: Engines | None = None, *, batch: int = 256) -> Verdict:
    """Tokenize every document again, and decode it.

    The first documents are decoded by the tokenizer's own decoder. Once that would take longer than to decode each id of the vocabulary with
    it, this is done, and all other documents are compared with the bytes of their ids. A tokenizer that composes text (NFC) gives the composed
    text back; the documents of one that changes text in other ways are not decoded.

    Parts of a document that was cut follow a control token, or are sentences, so each is tokenized for itself.

    Args:
        engines: with them, all but a sample of the documents is tokenized by the fast engine, see `ids_again`; else all by the reference.
    """
    decoded = compared = cut = tokens = 0
    table: tuple[Any, ...] | None = None
    again = IdsAgain(vocabulary, engines)
    with closing(ahead((some, _again(some, again)) for some in _batches(texts, batch))) as batches:
        for some, found in batches:
            if (at := _first_other(some, found)) is not None:
                what = f"{len(some[at].ids):,} ids differ from the tokenizer's {int(np.diff(found.offsets)[at]):,}"
                return _failed(some[at], what, decoded, compared + at + 1)
            compared += len(some)
            del found  # a long document has many
            tokens += sum(len(text.ids) for text in some)
            if vocabulary.token_bytes is not None:
                if table is None and tokens > vocabulary.size:
                    table = _byte_table(vocabulary)
                fault = _compare(some, vocabulary, table) if table else _decode(some, vocabulary)
                if fault is not None:
                    return _failed(*fault, decoded, compared)
                decoded += len(some)
            cut += sum(bool(text.parts) for text in some)
    numbers = {
        "documents_decoded": decoded,
        "documents_compared": compared,
        "documents_cut": cut,
        "texts_by_reference": again.by_reference,
    }
    return texts_hold(numbers, engines)


def texts_hold(numbers: Mapping[str, float], engines: Engines | None) -> Verdict:
    """The verdict where all documents hold; `numbers` as it has them."""
    summary = f"{numbers['documents_compared']:,} documents have the tokenizer's ids, {numbers['documents_decoded']:,} decode to their text"
    if engines is not None:
        summary += f"; {numbers['texts_by_reference']:,} texts were tokenized by the reference library, the others by {engines.first.name}"
    if numbers["documents_cut"]:
        summary += f"; {numbers['documents_cut']:,} are cut into parts"
    return Verdict(True, summary, numbers)


def _batches(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """Batches of at most `size` documents and about `BATCH_CHARACTERS`. A longer document is one by itself."""
    some: list[Text] = []
    characters = 0
    for text in texts:
        if some and len(text.text) > BATCH_CHARACTERS:
            yield some
            some = []
        some.append(text)
        characters += len(text.text)
        if len(some) == size or characters >= BATCH_CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _again(texts: Sequence[Text], again: IdsAgain) -> Flat:
    """The documents' ids once more."""
    parts = [text.parts or (text.text,) for text in texts]
    counts = np.fromiter(map(len, parts), np.int64)
    whole, early = (np.repeat(np.array(each), counts) for each in ([not text.parts for text in texts], [text.early for text in texts]))
    flat = again.encode([part for each in parts for part in each], whole, early)
    return Flat(flat.ids, flat.offsets[np.concatenate([[0], np.cumsum(counts)])])


def _first_other(texts: Sequence[Text], again: Flat) -> int | None:
    """The number of the first document that has other ids; all are compared at once, as few have."""
    stored = texts[0].ids if len(texts) == 1 else np.concatenate([text.ids for text in texts])
    same_lengths = np.array_equal(np.diff(again.offsets), [len(text.ids) for text in texts])
    if same_lengths and np.array_equal(again.ids, stored):
        return None
    bounds = pairwise(again.offsets.tolist())
    return next(
        at for at, (text, (start, end)) in enumerate(zip(texts, bounds, strict=True)) if not np.array_equal(again.ids[start:end], text.ids)
    )


def _byte_table(vocabulary: Vocabulary) -> tuple[Any, ...]:
    """The bytes of each id as an Arrow array; nothing where the tokenizer's own decoder does not confirm them all."""
    import pyarrow as pa

    return (pa.array(vocabulary.token_bytes, pa.large_binary()),) if is_proven(vocabulary) else ()


def _compare(texts: Sequence[Text], vocabulary: Vocabulary, table: tuple[Any, ...]) -> tuple[Text, str] | None:
    """The first document whose ids do not stand for its bytes, and how they differ."""
    suspects = _suspects(texts, vocabulary, table[0])
    fault = _decode(suspects, vocabulary)
    return fault or ((suspects[0], "its ids stand for other bytes, which only look like its text") if suspects else None)


def _suspects(texts: Sequence[Text], vocabulary: Vocabulary, table: Any) -> list[Text]:
    """The documents whose bytes are not those of their ids."""
    import pyarrow as pa

    if sum(len(text.ids) for text in texts) > TOGETHER:
        return [text for text in texts if not _stands_for(text, vocabulary, table)]
    found = table.take(pa.array(np.concatenate([text.ids for text in texts]).astype(np.uint32)))
    bounds = np.frombuffer(found.buffers()[1], np.int64)
    ends = np.cumsum([0, *(len(text.ids) for text in texts)])
    data, suspects = _bytes_of(found), []
    for text, start, end in zip(texts, bounds[ends[:-1]].tolist(), bounds[ends[1:]].tolist(), strict=True):
        # a SentencePiece tokenizer puts one space in front of the first word
        skipped = vocabulary.prefix_space != "never" and data[start : min(start + 1, end)] == b" " and not text.text.startswith(" ")
        if data[start + skipped : end] != _tokenized(text, vocabulary).encode():
            suspects.append(text)
    return suspects


def _stands_for(text: Text, vocabulary: Vocabulary, table: Any) -> bool:
    """Whether the ids of a long document stand for its bytes, which are compared a part at a time."""
    import pyarrow as pa

    expected, at = _tokenized(text, vocabulary).encode(), 0
    for first in range(0, len(text.ids), DECODED):
        found = table.take(pa.array(text.ids[first : first + DECODED].astype(np.uint32)))
        data = _bytes_of(found)[: int(np.frombuffer(found.buffers()[1], np.int64)[len(found)])]
        if first == 0 and vocabulary.prefix_space != "never" and data.startswith(b" ") and not text.text.startswith(" "):
            data = data[1:]
        if not expected.startswith(data, at):
            return False
        at += len(data)
    return at == len(expected)


def _bytes_of(found: Any) -> bytes:
    """The bytes of an Arrow array, as an object that is compared with others by memory; a view would compare byte by byte."""
    data: bytes = found.buffers()[2].to_pybytes()
    return data


def _tokenized(text: Text, vocabulary: Vocabulary) -> str:
    """What of a document is tokenized: its text, composed where the tokenizer composes; each part for itself where it is cut."""
    return "".join(map(vocabulary.normalized, text.parts or (text.text,)))


def _decode(texts: Sequence[Text], vocabulary: Vocabulary) -> tuple[Text, str] | None:
    """The first document that the tokenizer's own decoder does not turn into its text, and how they differ."""
    found = vocabulary.decode_batch([text.ids.tolist() for text in texts])
    for text, decoded in zip(texts, found, strict=True):
        expected = _tokenized(text, vocabulary)
        if vocabulary.prefix_space != "never" and decoded.startswith(" ") and not expected.startswith(" "):
            decoded = decoded[1:]
        if decoded != expected:
            at = next((i for i, (a, b) in enumerate(zip(decoded, expected, strict=False)) if a != b), min(len(decoded), len(expected)))
            low = max(0, at - 20)
            return text, f"decodes to …{decoded[low : at + 40]!r}…, the text is …{expected[low : at + 40]!r}… (character {at:,})"
    return None


def _failed(text: Text, what: str, decoded: int, compared: int) -> Verdict:
    numbers = {"documents_decoded": decoded, "documents_compared": compared}
    return Verdict(False, f"{text.id}: {what}", numbers, Worst(text.id, what, tuple(text.ids.tolist())))
