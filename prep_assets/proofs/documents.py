"""Proofs of pretraining streams: begin-of-text, sentences, fill-in-the-middle, ids and masks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.reference_ids import IdsAgain
from prep_assets.proofs.verdict import Numbers, Verdict, fails, holds
from prep_assets.proofs.words import is_proven
from prep_assets.samples import IMAGE, UNATTENDED, Region, Sample
from prep_assets.stores.arrays import ahead
from prep_assets.text.engines import Engines
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary

# The begin-of-text token of documents, read from the definition of the tokenizer's post-processor: no code is shared with what writes it.


def documents_begin_with(vocabulary: Vocabulary, bos: str) -> int | None:
    """The id that every document must begin with, `None` where none is asked for; `bos` is the option."""
    if bos == "auto":
        front = [token for processor in _processors(vocabulary.spec.get("post_processor")) for token in _front(processor)]
        return vocabulary.backend.token_to_id(front[0]) if front else None
    return vocabulary.backend.token_to_id(vocabulary.special["bos_token"]) if bos == "true" else None


def _processors(processor: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if processor is not None:
        yield from processor.get("processors", [processor])


def _front(processor: Mapping[str, Any]) -> Iterator[str]:
    """Texts of the special tokens that a post-processor writes before a single text."""
    if processor["type"] in ("BertProcessing", "RobertaProcessing"):
        yield processor["cls"][0]
    for piece in processor.get("single", ()):
        if "Sequence" in piece:
            return
        yield piece["SpecialToken"]["id"]


# Borders of sentences in token streams: where the store says that one begins, the bytes of the tokens before it are those of the sentences before.


@dataclass(frozen=True, slots=True, eq=False)
class CutDocument:
    """A document of a store.

    Attributes:
        id: its record id.
        sentences: its text, cut.
        ids: its tokens, without what stands around them.
        starts: of all its tokens, 1 where a sentence begins.
        before: how many tokens stand before those of its text.
    """

    id: str
    sentences: tuple[str, ...]
    ids: npt.NDArray[Any]
    starts: npt.NDArray[Any]
    before: int


def check_sentences(documents: Iterable[CutDocument], vocabulary: Vocabulary) -> Verdict:
    """Compare every document. What stands before its text belongs to the first sentence, what stands after it to the last."""
    lengths = vocabulary.byte_lengths
    assert lengths is not None  # only tokenizers whose ids stand for bytes are cut into sentences
    count = sentences = 0
    for document in documents:
        found = np.flatnonzero(document.starts)
        sizes = [len(vocabulary.normalized(sentence).encode()) for sentence in document.sentences]
        wanted = np.cumsum([0, *sizes[:-1]])
        borders = np.concatenate([[0], np.cumsum(lengths[document.ids.astype(np.int64)])])
        if not np.isin(document.starts, (0, 1)).all() or not len(found) or found[0] != 0:
            problem = "its first token does not begin a sentence"
        elif len(found) != len(wanted):
            problem = f"{len(found)} sentences are marked, Punkt cuts it into {len(wanted)}"
        else:
            places = borders.take(found - document.before, mode="clip")
            wrong = np.flatnonzero(places != wanted)
            if not wrong.size:
                count, sentences = count + 1, sentences + len(wanted)
                continue
            at = int(wrong[0])
            problem = f"sentence {at} begins at byte {int(places[at]):,} of the text, Punkt says {int(wanted[at]):,}"
        return fails(document.id, problem, {"documents_cut": count}, document.ids)
    return holds(_in_sentences, {"documents_in_sentences": count, "sentences": sentences})


def _in_sentences(numbers: Numbers) -> str:
    return f"{numbers['documents_in_sentences']:,} documents have their {numbers['sentences']:,} sentences"


# A document that was cut for fill-in-the-middle, put together again. It shares no code with what cuts.


def parts_in_order(ids: Sequence[int], sentinels: Mapping[str, int]) -> list[list[int]] | None:
    """The parts of a document in the order of its text, without sentinels; `None` where it was not cut.

    What follows ``middle`` comes before what follows ``suffix``; in the other order (tail first) nothing stands between ``prefix`` and
    ``suffix``, so one rule reads both.

    Raises:
        ValueError: the sentinels are not one each, in the order prefix, suffix, middle, the first at the very start.
    """
    ids = list(ids)
    found = [(at, token) for at, token in enumerate(ids) if token in sentinels.values()]
    if not found:
        return None
    expected = [sentinels["prefix"], sentinels["suffix"], sentinels["middle"]]
    if [token for _, token in found] != expected or found[0][0] != 0:
        raise ValueError(f"sentinels {found[:6]} (place, id), needs {expected} in this order from place 0")
    suffix, middle = found[1][0], found[2][0]
    return [ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle]]


# Tokenization identity: a document's tokens decode to its text, and are the reference tokenizer's own.

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
        early: whether it stands among the first tokens of its stream, see `reference_ids.FIRST`.
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
        engines: with them, all but a sample of the documents is tokenized by the fast engine, see `reference_ids.IdsAgain`; else all by the reference.
    """
    decoded = compared = cut = tokens = 0
    table: tuple[Any, ...] | None = None
    again = IdsAgain(vocabulary, engines)
    with closing(ahead((some, _again(some, again)) for some in _batches(texts, batch))) as batches:
        for some, found in batches:
            if (at := _first_other(some, found)) is not None:
                what = f"{len(some[at].ids):,} ids differ from the tokenizer's {int(np.diff(found.offsets)[at]):,}"
                return fails(some[at].id, what, {"documents_decoded": decoded, "documents_compared": compared + at + 1}, some[at].ids)
            compared += len(some)
            del found  # a long document has many
            tokens += sum(len(text.ids) for text in some)
            if vocabulary.token_bytes is not None:
                if table is None and tokens > vocabulary.size:
                    table = _byte_table(vocabulary)
                fault = _compare(some, vocabulary, table) if table else _decode(some, vocabulary)
                if fault is not None:
                    text, what = fault
                    return fails(text.id, what, {"documents_decoded": decoded, "documents_compared": compared}, text.ids)
                decoded += len(some)
            cut += sum(bool(text.parts) for text in some)
    numbers = {
        "documents_decoded": decoded,
        "documents_compared": compared,
        "documents_cut": cut,
        "texts_by_reference": again.by_reference,
    }
    return holds(partial(_identical, engine=engines.first.name if engines is not None else ""), numbers)


def _identical(numbers: Numbers, engine: str) -> str:
    summary = f"{numbers['documents_compared']:,} documents have the tokenizer's ids, {numbers['documents_decoded']:,} decode to their text"
    if engine:
        summary += f"; {numbers['texts_by_reference']:,} texts were tokenized by the reference library, the others by {engine}"
    return summary + (f"; {numbers['documents_cut']:,} are cut into parts" if numbers["documents_cut"] else "")


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


# Masks of pretraining: what of each document is trained, and with which weight, and what is not attended, is what the regions of its source say.
#
# The tokens of a document are decoded in runs of one weight; those must be the texts of the source's regions, joined where neighbours weigh the same. White
# space is left out of the comparison, because a token may begin with a space of the region before its own.

Run = tuple[float, str]
PICTURE = "\0image\0"


@dataclass(frozen=True, slots=True, eq=False)
class MaskedDocument:
    """A document of a store: its record id, what its source says now, its tokens, with the end-of-text token where it is `ended`, and their weights, below
    0 where a token is not attended."""

    id: str
    sample: Sample
    ids: npt.NDArray[Any]
    mask: npt.NDArray[Any]
    ended: bool = True


def check_document_masks(documents: Iterable[MaskedDocument], vocabulary: Vocabulary, images: Collection[int]) -> Verdict:
    """Compare every document.

    Args:
        images: ids of the tokens that stand for images and around them; none where there can be no images.
    """
    checked = untrained = unattended = 0
    for document in documents:
        shown = [region for turn in document.sample.turns for region in turn.regions if not region.drop and region.text]
        expected, found = _expected(shown, vocabulary), _found(document, vocabulary, images)
        ending = max(0.0, next((_weight(region) for region in reversed(shown) if region.kind != IMAGE), 1.0))
        problem = ""
        if expected != found:
            at = next(
                (at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), min(len(expected), len(found))
            )
            wanted, got = (runs[at] if at < len(runs) else "nothing" for runs in (expected, found))
            problem = f"run {at} is {got!r:.120}, the source says {wanted!r:.120}"
        elif document.ended and float(document.mask[-1]) != ending:
            problem = f"the end-of-text token weighs {float(document.mask[-1]):g}, the region before it {ending:g}"
        if problem:
            return fails(document.id, problem, {"documents_masked": checked}, document.ids, document.mask)
        checked += 1
        untrained += int((document.mask <= 0).sum())
        unattended += int((document.mask < 0).sum())
    more = {"unattended_tokens": unattended} if unattended else {}
    return holds(_masked, {"documents_masked": checked, "masked_tokens": untrained, **more})


def _masked(numbers: Numbers) -> str:
    trained = f"{numbers['documents_masked']:,} documents are trained where their regions say so"
    unattended = f", {numbers['unattended_tokens']:,} of them not attended" if "unattended_tokens" in numbers else ""
    return f"{trained}; {numbers['masked_tokens']:,} tokens are not trained{unattended}"


def _weight(region: Region) -> float:
    if not region.attend:
        return UNATTENDED
    if region.kind == IMAGE:
        return 0.0
    return 1.0 if region.loss_weight is None else float(np.float32(region.loss_weight))


def _expected(shown: Sequence[Region], vocabulary: Vocabulary) -> list[Run]:
    whole = _joined([(_weight(region), PICTURE if region.kind == IMAGE else region.text) for region in shown])
    return [(weight, text if text == PICTURE else _solid(vocabulary.normalized(text))) for weight, text in whole]


def _found(document: MaskedDocument, vocabulary: Vocabulary, images: Collection[int]) -> list[Run]:
    whole = len(document.ids) - document.ended
    ids, weights = document.ids[:whole], document.mask[:whole]
    pictures = np.isin(ids, list(images))
    begins = np.flatnonzero(np.append(True, (np.diff(weights) != 0) | np.diff(pictures))[: len(ids)]).tolist()
    return _joined(
        [
            (float(weights[first]), PICTURE if pictures[first] and weights[first] <= 0 else vocabulary.decode(ids[first:stop].tolist()))
            for first, stop in pairwise([*begins, len(ids)])
        ]
    )


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Neighbours of one weight as one, without white space; runs of white space alone are left out. Pictures side by side are one."""
    kept = [(weight, solid) for weight, text in runs if (solid := _solid(text))]
    grouped = groupby(kept, key=lambda run: (run[0], run[1] == PICTURE))
    return [(weight, PICTURE if picture else "".join(text for _, text in same)) for (weight, picture), same in grouped]


def _solid(text: str) -> str:
    return "".join(text.split())
