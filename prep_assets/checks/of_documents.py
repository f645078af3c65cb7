"""Checks of pretraining streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_stores import Derivation, Reader, added, image_verdicts, together
from prep_assets.checks.sources_again import Rows, Unsound, document_conversations, sample_of, source_records
from prep_assets.config.base import tokens_around
from prep_assets.config.models import Pretrain
from prep_assets.errors import StoreError
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.images import stored_image_id
from prep_assets.pipeline.sources import domain_of
from prep_assets.proofs.documents import (
    CutDocument,
    MaskedDocument,
    Text,
    check_document_masks,
    check_sentences,
    document_masks_hold,
    documents_begin_with,
    parts_in_order,
    prove_texts,
    sentences_hold,
    texts_hold,
)
from prep_assets.proofs.mask import IdentityProof, prove_identity
from prep_assets.proofs.reference_ids import FIRST
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import Sample
from prep_assets.schemas.text import TextField
from prep_assets.stores.tokens import TokenStore
from prep_assets.text.documents import STARTS, cut_of, sentences_of
from prep_assets.text.engines import Engines
from prep_assets.text.vocabulary import Vocabulary

Numbers = Mapping[str, float]


def pretrain_rows(store: Store) -> Verdict:
    """The rows of every stream, where documents begin and end, and the images in them."""
    streams, vocabulary, family = store.streams().values(), store.vocabulary, store.workspace.family(Pretrain)
    begin = documents_begin_with(vocabulary, family.bos)
    size, end, ended = vocabulary.size, vocabulary.eos_id, family.append_eod
    sound = (check_records(each, vocabulary_size=size, eos_id=end, bos_id=begin, ended=ended) for each in streams)
    return together(chain(sound, image_verdicts(store, streams)))


def _with(store: Store, key: str) -> list[TokenStore]:
    """The streams that have an array."""
    return [stream for stream in store.streams().values() if key in stream.arrays]


def masked_documents(store: Store, stream: TokenStore, given: Iterator[Rows] | None = None) -> Iterator[MaskedDocument]:
    """Each document of a stream that has a mask, with what its source says."""
    family = store.workspace.family(Pretrain)
    convert = converter(domain_of(family, store.partition), Sample)
    begin = int(documents_begin_with(store.vocabulary, family.bos) is not None)
    for number, identity, payload in source_records(store, store.partition, stream, given=given):
        ids, mask = stream.record(number, "tokens")[begin:], stream.weights(number)[begin:]
        yield MaskedDocument(identity, sample_of(convert, payload, identity), ids, mask, family.append_eod)


def prove_document_masks(store: Store, documents: Iterable[MaskedDocument]) -> Verdict:
    """The check of masks, with the family's vocabulary and image token."""
    token, rule = stored_image_id(store.workspace, store.family), store.workspace.image_rule(store.family)
    around = tokens_around(rule) if rule is not None else ()
    images = [] if token is None else [token, *(store.vocabulary.control[each] for each in around)]
    return check_document_masks(documents, store.vocabulary, images)


class _Documents(Derivation):
    """A check of documents, of which each reader gives a verdict."""

    def part(self, found: Sequence[Verdict]) -> list[Numbers]:
        """The figures of each, where all hold."""
        if not all(verdict.passed for verdict in found):
            raise Unsound
        return [verdict.numbers for verdict in found]

    def joined(self, parts: Sequence[Sequence[Numbers]]) -> Sequence[Verdict]:
        """Each of all parts."""
        return [hold(added(numbers)) for hold, numbers in zip(self.holds(), zip(*parts, strict=True), strict=True)]

    def holds(self) -> Sequence[Callable[[Numbers], Verdict]]:
        """What says the verdict of each reader where it holds, of its figures."""
        raise NotImplementedError


class Masks(_Documents):
    """The masks of documents; without masks, that none is needed."""

    names = ("mask_alignment",)

    def readers(self) -> Sequence[Reader]:
        """One for each stream that has a mask."""
        store, masked = self.store, _with(self.store, "loss_mask")
        if not masked:
            return [partial(_all_trained, store, stream) for stream in store.streams().values()] if not _are_texts(store) else []

        def read(stream: TokenStore, rows: Iterator[Rows]) -> Verdict:
            return prove_document_masks(store, masked_documents(store, stream, rows))

        return [partial(read, stream) for stream in masked]

    def verdicts(self, found: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """Without masks, one verdict on all streams."""
        if _with(self.store, "loss_mask") or not all(verdict.passed for verdict in found):
            return super().verdicts(found)
        documents = sum(len(stream) for stream in self.store.streams().values())
        each = " of one text each" if _are_texts(self.store) else ""
        return {self.names[0]: Verdict(True, f"{documents:,} documents{each}, every token trained", {"documents": documents})}

    def holds(self) -> Sequence[Callable[[Numbers], Verdict]]:
        """Those of the streams that have a mask."""
        masked = _with(self.store, "loss_mask")
        return [document_masks_hold for _ in masked] or [partial(Verdict, True, "") for _ in self.readers()]


def _all_trained(store: Store, stream: TokenStore, rows: Iterator[Rows]) -> Verdict:
    """A stream without a mask: no document has a region that weighs less than 1."""
    convert = converter(domain_of(store.family, store.partition), Sample)
    for _, identity, payload in source_records(store, store.partition, stream, given=rows):
        turns = sample_of(convert, payload, identity).turns
        shown = [region for turn in turns for region in turn.regions if not region.drop and region.text]
        weights = [region.loss_weight for region in shown if region.loss_weight not in (None, 1)]
        if weights or not all(region.attend for region in shown):
            problem = f"{identity}: a region {f'weighs {weights[0]:g}' if weights else 'is not attended'}, and the stream has no loss mask"
            return Verdict(False, problem, {"documents_masked": 0}, Worst(identity, problem))
    return Verdict(True, "", {})


def _are_texts(store: Store) -> bool:
    return isinstance(converter(domain_of(store.family, store.partition), Sample).convert, TextField)


class Texts(_Documents):
    """The tokens of every document against its text, and where its sentences begin."""

    names = ("tokenization_identity",)

    def readers(self) -> Sequence[Reader]:
        """One for each stream, and one for each that is cut into sentences."""
        store = self.store

        def texts(stream: TokenStore, rows: Iterator[Rows]) -> Verdict:
            if len(stream.images):
                return prove_identity(document_conversations(store, stream, rows), store.vocabulary)
            return prove_texts(document_texts(store, stream, rows), store.vocabulary, _engines(store))

        def sentences(stream: TokenStore, rows: Iterator[Rows]) -> Verdict:
            return check_sentences(cut_documents(store, stream, rows), store.vocabulary)

        return [
            *(partial(texts, stream) for stream in store.streams().values()),
            *(partial(sentences, stream) for stream in _with(store, STARTS)),
        ]

    def holds(self) -> Sequence[Callable[[Numbers], Verdict]]:
        """Those of texts, of images and of sentences."""
        texts, images = partial(texts_hold, engines=_engines(self.store)), partial(_images_hold, self.store)
        streams = self.store.streams().values()
        return [*(images if len(stream.images) else texts for stream in streams), *(sentences_hold for _ in _with(self.store, STARTS))]


def _engines(store: Store) -> Engines:
    return store.workspace.engines(store.workspace.family(Pretrain))


def _images_hold(store: Store, numbers: Numbers) -> Verdict:
    proof = IdentityProof(store.vocabulary)
    proof.proven(int(numbers["rows_tokenized_again"]), int(numbers["control_tokens_in_content"]))
    return proof.verdict()


def cut_documents(store: Store, stream: TokenStore, given: Iterator[Rows] | None = None) -> Iterator[CutDocument]:
    """Each document of a stream that is cut into sentences, with where they begin."""
    begin = int(documents_begin_with(store.vocabulary, store.workspace.family(Pretrain).bos) is not None)
    for number, text in enumerate(document_texts(store, stream, given)):
        yield CutDocument(text.id, text.parts, text.ids, stream.record(number, STARTS), begin)


def document_texts(store: Store, stream: TokenStore, given: Iterator[Rows] | None = None) -> Iterator[Text]:
    """Each document of a stream with the text of its source; `given` as in `source_records`."""
    name, family, vocabulary = store.partition, store.workspace.family(Pretrain), store.vocabulary
    convert, fim = converter(domain_of(family, name), Sample), store.recipe["preprocessing"].get("fim")
    as_it_is = convert.convert if isinstance(convert.convert, TextField) and convert.convert.key not in convert.account.ignore else None
    begin, sentences = int(documents_begin_with(vocabulary, family.bos) is not None), sentences_of(family.split_sentences)
    for number, identity, payload in source_records(store, name, stream, given=given):
        text = as_it_is.plain(payload) if as_it_is is not None else None
        if text is None:
            text = "".join(turn.text for turn in sample_of(convert, payload, identity).turns)
        ids = stream.record(number, "tokens")
        ids = ids[begin : len(ids) - family.append_eod]
        if sentences is None:
            found = _as_text(identity, text, ids, name, fim, vocabulary)
        else:
            found = Text(identity, text, ids, tuple(sentences.cut(text)))
        yield replace(found, early=True) if stream.before + stream.ends[number] <= FIRST else found


def _as_text(identity: str, text: str, ids: npt.NDArray[Any], name: str, fim: Mapping[str, Any] | None, vocabulary: Vocabulary) -> Text:
    """A document with its tokens in the order of its text, put together again where it was cut for fill-in-the-middle."""
    if fim is None:
        return Text(identity, text, ids)
    sentinels = {part: vocabulary.backend.token_to_id(fim[f"{part}_token"]) for part in ("prefix", "suffix", "middle")}
    cut = cut_of(f"{name}/{identity}", len(text), rate=fim["rate"], spm_rate=fim["spm_rate"], seed=fim["seed"])
    try:
        found = parts_in_order(ids.tolist(), sentinels)
    except ValueError as error:
        raise StoreError(f"{identity}: {error}") from error
    if (cut is None) != (found is None):
        raise StoreError(f"{identity}: {'whole' if found is None else 'cut'}, its seed and id make it {'whole' if cut is None else 'cut'}")
    if cut is None or found is None:
        return Text(identity, text, ids)
    return Text(identity, text, np.array([token for part in found for token in part], ids.dtype), cut.parts(text))
