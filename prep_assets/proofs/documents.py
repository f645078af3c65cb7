"""Proofs of pretraining streams: begin-of-text, sentences, fill-in-the-middle, ids and masks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.proofs.rebuilt import around, parting
from prep_assets.proofs.reference_ids import IdsAgain
from prep_assets.proofs.verdict import Numbers, Rule, Verdict, Worst, fails, holds
from prep_assets.proofs.words import ByteTable
from prep_assets.samples import MEDIA, UNATTENDED, Region, Sample
from prep_assets.stores.arrays import in_batches
from prep_assets.text.engines import Engines
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary

# The begin-of-text token of documents, read from the tokenizer's post-processor. Shares no code with the writer.


def documents_begin_with(vocabulary: Vocabulary, bos: str) -> int | None:
    """Return the id that every document must begin with, `None` for none; `bos` is the option."""
    if bos == "auto":
        front = [token for processor in _processors(vocabulary.spec.get("post_processor")) for token in _front(processor)]
        return vocabulary.backend.token_to_id(front[0]) if front else None
    return vocabulary.backend.token_to_id(vocabulary.special["bos_token"]) if bos == "true" else None


def _processors(processor: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if processor is not None:
        yield from processor.get("processors", [processor])


def _front(processor: Mapping[str, Any]) -> Iterator[str]:
    """Yield the special tokens that a post-processor writes before a single text."""
    if processor["type"] in ("BertProcessing", "RobertaProcessing"):
        yield processor["cls"][0]
    for piece in processor.get("single", ()):
        if "Sequence" in piece:
            return
        yield piece["SpecialToken"]["id"]


# Fill-in-the-middle undone. Shares no code with what cuts.


def parts_in_order(ids: Sequence[int], sentinels: Mapping[str, int]) -> list[list[int]] | None:
    """Return the parts of a document in text order, without sentinels; `None` where it was not cut.

    What follows ``middle`` comes before what follows ``suffix``; in the other order (tail first) nothing stands between ``prefix`` and
    ``suffix``, so one rule reads both.

    Raises:
        ValueError: not exactly one sentinel each, in the order prefix, suffix, middle, the first at index 0.
    """
    ids = list(ids)
    sentinels_found = [(at, token) for at, token in enumerate(ids) if token in sentinels.values()]
    if not sentinels_found:
        return None
    expected = [sentinels["prefix"], sentinels["suffix"], sentinels["middle"]]
    if [token for _, token in sentinels_found] != expected or sentinels_found[0][0] != 0:
        raise ValueError(f"sentinels {sentinels_found[:6]} (place, id), needs {expected} in this order from place 0")
    suffix, middle = sentinels_found[1][0], sentinels_found[2][0]
    return [ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle]]


def cut_again(record: str, length: int, fim: Mapping[str, Any]) -> tuple[int, int, bool] | None:
    """Return where a document of `length` characters is cut, and whether its tail comes first; `None` where it stays whole. Draws are of the record's id,
    counted from 0: the number of 64 bits that XXH3 gives for ``<seed>:<draw>:<record>``, as a share of all of them."""
    file, _, number = record.rpartition(":")

    def draw(name: str) -> float:
        return xxh3_64_intdigest(f"{fim['seed']}:{name}:{file}:{int(number) - 1}".encode()) / 2.0**64

    if draw("cut") >= fim["rate"]:
        return None
    first, second = sorted(min(length, int(draw(name) * (length + 1))) for name in ("one", "other"))
    return first, second, draw("order") < fim["spm_rate"]


# Tokenization identity: a document's tokens decode to its text, and are the reference tokenizer's own.

BATCH_CHARACTERS = 1 << 20
TOGETHER = 1 << 20
"""Most ids of a batch whose bytes are compared at once."""
DECODED = 1 << 18
"""Ids whose bytes are compared at a time, where a batch has more than `TOGETHER`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A document.

    Attributes:
        id: its record id.
        text: its text.
        ids: its token ids in text order, without the end-of-text token and sentinels.
        parts: its text, cut for fill-in-the-middle or into sentences; empty where it is whole.
        early: whether it is among the first tokens of its stream, see `reference_ids.FIRST`.
    """

    id: str
    text: str
    ids: npt.NDArray[np.integer]
    parts: tuple[str, ...] = ()
    early: bool = False


def prove_texts(texts: Iterable[Text], vocabulary: Vocabulary, engines: Engines | None = None, *, batch: int = 256) -> Verdict:
    """Return the verdict on all documents; see `TextProof`."""
    proof = TextProof(vocabulary, engines, batch=batch)
    proof.add(texts)
    return proof.verdict()


class TextProof:
    """Tokenizes every document a second time, and decodes it.

    The first documents are decoded by the tokenizer's own decoder. Once that would take longer than to decode each id of the vocabulary with
    it, this is done, and all other documents are compared with the bytes of their ids. A tokenizer that composes text (NFC) gives the composed
    text back; the documents of one that changes text in other ways are not decoded.

    Parts of a cut document follow a control token, or are sentences, so each is tokenized alone.

    Args:
        engines: if given, the fast engine tokenizes all but a sample of the documents, see `reference_ids.IdsAgain`; else the reference does all.
    """

    def __init__(self, vocabulary: Vocabulary, engines: Engines | None = None, *, batch: int = 256) -> None:
        self._vocabulary, self._engine, self._most = vocabulary, engines.first.name if engines is not None else "", batch
        self._again, self._table = IdsAgain(vocabulary, engines), ByteTable(vocabulary)
        self._numbers, self._cut = dict.fromkeys(("documents_decoded", "documents_compared"), 0), 0
        self._failed: Verdict | None = None
        self._other = ThreadPoolExecutor(1)

    def add(self, texts: Iterable[Text]) -> None:
        """Judge more documents."""
        for batch in in_batches(() if self._failed else texts, lambda text: len(text.text), BATCH_CHARACTERS, self._most):
            if (failed := self._judged(batch)) is not None:
                self._failed = failed
                return

    def _judged(self, texts: Sequence[Text]) -> Verdict | None:
        """The verdict on the first document that fails. The bytes of ids are compared in another thread, while the texts are tokenized; those of a long
        document afterwards, as both take memory."""
        stored = Flat.of([text.ids for text in texts])
        if len(stored.ids) > TOGETHER:
            return self._ids_fault(texts, stored) or self._bytes_fault(texts, self._different_bytes(texts, None, len(stored.ids)))
        different = self._other.submit(self._different_bytes, texts, stored, len(stored.ids))
        fault = self._ids_fault(texts, stored)
        return self._bytes_fault(texts, different.result()) if fault is None else fault

    def _ids_fault(self, texts: Sequence[Text], stored: Flat) -> Verdict | None:
        """The verdict on the first document with other ids."""
        flat, numbers = _tokenize(texts, self._again), self._numbers
        if (at := _first_different(stored, flat)) is None:
            numbers["documents_compared"] += len(texts)
            return None
        numbers["documents_compared"] += at + 1
        fault = f"{len(texts[at].ids):,} ids differ from the tokenizer's {int(np.diff(flat.offsets)[at]):,}"
        return fails(texts[at].id, fault, numbers, texts[at].ids)

    def _different_bytes(self, texts: Sequence[Text], stored: Flat | None, count: int) -> tuple[Text, str] | None:
        """The first document whose `count` ids do not stand for its bytes, and how they differ; `stored` as in `_suspects`."""
        if self._vocabulary.token_bytes is None:
            return None
        return _compare(texts, stored, self._vocabulary, self._table) if self._table.is_ready(count) else _decode(texts, self._vocabulary)

    def _bytes_fault(self, texts: Sequence[Text], found: tuple[Text, str] | None) -> Verdict | None:
        if found is not None:
            return fails(found[0].id, found[1], self._numbers, found[0].ids)
        self._numbers["documents_decoded"] += len(texts) if self._vocabulary.token_bytes is not None else 0
        self._cut += sum(bool(text.parts) for text in texts)
        return None

    def verdict(self) -> Verdict:
        """The verdict on all documents so far."""
        numbers = {**self._numbers, "documents_cut": self._cut, "texts_by_reference": self._again.by_reference}
        return self._failed or holds(partial(_identical, engine=self._engine), numbers)


def _identical(numbers: Numbers, engine: str) -> str:
    summary = f"{numbers['documents_compared']:,} documents have the tokenizer's ids, {numbers['documents_decoded']:,} decode to their text"
    if engine:
        summary += f"; {numbers['texts_by_reference']:,} texts were tokenized by the reference library, the others by {engine}"
    return summary + (f"; {numbers['documents_cut']:,} are cut into parts" if numbers["documents_cut"] else "")


def _tokenize(texts: Sequence[Text], again: IdsAgain) -> Flat:
    """Return the ids of documents, tokenized a second time."""
    parts = [text.parts or (text.text,) for text in texts]
    counts = np.fromiter(map(len, parts), np.int64)
    whole, early = (np.repeat(np.array(column), counts) for column in ([not text.parts for text in texts], [text.early for text in texts]))
    flat = again.encode([part for column in parts for part in column], whole, early)
    return Flat(flat.ids, flat.offsets[np.concatenate([[0], np.cumsum(counts)])])


def _first_different(stored: Flat, again: Flat) -> int | None:
    """Return the index of the first document with other ids. All are compared at once, since few differ."""
    if np.array_equal(again.offsets, stored.offsets) and np.array_equal(again.ids, stored.ids):
        return None
    pairs = zip(pairwise(stored.offsets.tolist()), pairwise(again.offsets.tolist()), strict=True)
    return next(at for at, (own, other) in enumerate(pairs) if not np.array_equal(stored.ids[slice(*own)], again.ids[slice(*other)]))


def _compare(texts: Sequence[Text], ids: Flat | None, vocabulary: Vocabulary, table: ByteTable) -> tuple[Text, str] | None:
    """Return the first document whose ids do not have its bytes, and how they differ; `ids` as in `_suspects`."""
    suspects = _suspects(texts, ids, vocabulary, table)
    fault = _decode(suspects, vocabulary)
    return fault or ((suspects[0], "its ids stand for other bytes, which only look like its text") if suspects else None)


def _suspects(texts: Sequence[Text], ids: Flat | None, vocabulary: Vocabulary, table: ByteTable) -> list[Text]:
    """Return the documents whose bytes are not those of their ids. `ids`: those of all documents; `None` where they are too many for one comparison."""
    if ids is None:
        return [text for text in texts if not _stands_for(text, vocabulary, table)]
    data, places = table.bytes_of(ids.ids)
    bounds, suspects = places[ids.offsets].tolist(), []
    for text, (start, end) in zip(texts, pairwise(bounds), strict=True):
        # a SentencePiece tokenizer puts one space in front of the first word
        skipped = vocabulary.prefix_space != "never" and data[start : min(start + 1, end)] == b" " and not text.text.startswith(" ")
        expected = _tokenized(text, vocabulary).encode()
        if len(expected) != end - start - skipped or not data.startswith(expected, start + skipped):
            suspects.append(text)
    return suspects


def _stands_for(text: Text, vocabulary: Vocabulary, table: ByteTable) -> bool:
    """Whether the ids of a long document have its bytes, compared in parts."""
    expected, at = _tokenized(text, vocabulary).encode(), 0
    for first in range(0, len(text.ids), DECODED):
        data = table.bytes_of(text.ids[first : first + DECODED]).data
        if first == 0 and vocabulary.prefix_space != "never" and data.startswith(b" ") and not text.text.startswith(" "):
            data = data[1:]
        if not expected.startswith(data, at):
            return False
        at += len(data)
    return at == len(expected)


def _tokenized(text: Text, vocabulary: Vocabulary) -> str:
    """Return the text of a document as it is tokenized: normalized, each part alone where it is cut."""
    return "".join(map(vocabulary.normalized, text.parts or (text.text,)))


def _decode(texts: Sequence[Text], vocabulary: Vocabulary) -> tuple[Text, str] | None:
    """Return the first document that the tokenizer's own decoder does not turn into its text, and how they differ."""
    decoded_texts = vocabulary.decode_batch([text.ids.tolist() for text in texts])
    for text, decoded in zip(texts, decoded_texts, strict=True):
        expected = _tokenized(text, vocabulary)
        if vocabulary.prefix_space != "never" and decoded.startswith(" ") and not expected.startswith(" "):
            decoded = decoded[1:]
        if decoded != expected:
            at = parting(decoded, expected)
            return text, f"decodes to {around(decoded, at)}, the text is {around(expected, at)} (character {at:,})"
    return None


# Borders of sentences in token streams: the tokens before a marked start have exactly the bytes of the sentences before it.


@dataclass(frozen=True, slots=True)
class Cut:
    """A document that is cut into sentences, and for all its tokens, 1 where a sentence begins."""

    text: Text
    marks: npt.NDArray[Any]

    @property
    def id(self) -> str:
        """Of its record."""
        return self.text.id


def sentence_borders(before: int, vocabulary: Vocabulary) -> Rule[Cut]:
    """What must hold of each document; `before`: the number of tokens before those of a text, which belong to the first sentence, as tokens after it do to
    the last."""
    lengths = vocabulary.byte_lengths
    assert lengths is not None  # only tokenizers whose ids stand for bytes are cut into sentences

    def judge(document: Cut, numbers: Counter[str]) -> Worst | None:
        text, marks = document.text, document.marks
        starts = np.flatnonzero(marks)
        wanted = np.cumsum([0, *(len(vocabulary.normalized(sentence).encode()) for sentence in text.parts[:-1])])
        borders = np.concatenate([[0], np.cumsum(lengths[text.ids.astype(np.int64)])])
        if not np.isin(marks, (0, 1)).all() or not len(starts) or starts[0] != 0:
            problem = "its first token does not begin a sentence"
        elif len(starts) != len(wanted):
            problem = f"{len(starts)} sentences are marked, Punkt cuts it into {len(wanted)}"
        else:
            places = borders.take(starts - before, mode="clip")
            wrong = np.flatnonzero(places != wanted)
            if not wrong.size:
                numbers["documents_in_sentences"] += 1
                numbers["sentences"] += len(wanted)
                return None
            at = int(wrong[0])
            problem = f"sentence {at} begins at byte {int(places[at]):,} of the text, Punkt says {int(wanted[at]):,}"
        return Worst(document.id, problem, tuple(text.ids.tolist()))

    return Rule(judge, ("documents_in_sentences", "sentences"), _in_sentences)


def _in_sentences(numbers: Numbers) -> str:
    return f"{numbers['documents_in_sentences']:,} documents have their {numbers['sentences']:,} sentences"


# Masks of pretraining: weights and attention of each document are those of the regions of its source.
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


def document_masks(vocabulary: Vocabulary, images: Collection[int]) -> Rule[MaskedDocument]:
    """What must hold of each document; `images`: ids of the tokens that stand for images and around them, none where there can be no images."""

    def judge(document: MaskedDocument, numbers: Counter[str]) -> Worst | None:
        shown = [region for turn in document.sample.turns for region in turn.regions if not region.drop and region.text]
        expected, runs_found = _expected_runs(shown, vocabulary), _decoded_runs(document, vocabulary, images)
        ending = max(0.0, next((_weight(region) for region in reversed(shown) if region.kind not in MEDIA), 1.0))
        problem = ""
        if expected != runs_found:
            pairs = enumerate(zip_longest(expected, runs_found, fillvalue="nothing"))
            at, (wanted, got) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
            problem = f"run {at} is {got!r:.120}, the source says {wanted!r:.120}"
        elif document.ended and float(document.mask[-1]) != ending:
            problem = f"the end-of-text token weighs {float(document.mask[-1]):g}, the region before it {ending:g}"
        if problem:
            return Worst(document.id, problem, tuple(document.ids.tolist()), tuple(map(float, document.mask.tolist())))
        numbers["documents_masked"] += 1
        numbers["masked_tokens"] += int((document.mask <= 0).sum())
        if unattended := int((document.mask < 0).sum()):
            numbers["unattended_tokens"] += unattended
        return None

    return Rule(judge, ("documents_masked", "masked_tokens"), _masked)


def _masked(numbers: Numbers) -> str:
    trained = f"{numbers['documents_masked']:,} documents are trained where their regions say so"
    unattended = f", {numbers['unattended_tokens']:,} of them not attended" if "unattended_tokens" in numbers else ""
    return f"{trained}; {numbers['masked_tokens']:,} tokens are not trained{unattended}"


def _weight(region: Region) -> float:
    if not region.attend:
        return UNATTENDED
    if region.kind in MEDIA:
        return 0.0
    return 1.0 if region.loss_weight is None else float(np.float32(region.loss_weight))


def _expected_runs(shown: Sequence[Region], vocabulary: Vocabulary) -> list[Run]:
    whole = _joined([(_weight(region), PICTURE if region.kind in MEDIA else region.text) for region in shown])
    return [(weight, text if text == PICTURE else _solid(vocabulary.normalized(text))) for weight, text in whole]


def _decoded_runs(document: MaskedDocument, vocabulary: Vocabulary, images: Collection[int]) -> list[Run]:
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
    """Join neighbouring runs of one weight, without white space; drop blank runs. Adjacent pictures are one run."""
    solid_runs = [(weight, solid) for weight, text in runs if (solid := _solid(text))]
    grouped = groupby(solid_runs, key=lambda run: (run[0], run[1] == PICTURE))
    return [(weight, PICTURE if picture else "".join(text for _, text in same)) for (weight, picture), same in grouped]


def _solid(text: str) -> str:
    return "".join(text.split())
