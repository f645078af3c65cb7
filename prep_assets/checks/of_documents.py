"""Checks of pretraining streams."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_conversations import fresh_render
from prep_assets.checks.of_stores import Derivation, Reader, has_few_tokens, ids_type, image_verdicts, proof
from prep_assets.checks.sources_again import domain_source, example_of, images_again, source_records, stored_rows
from prep_assets.config.base import tokens_around
from prep_assets.config.models import Pretrain
from prep_assets.errors import StoreError
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.images import media_ids
from prep_assets.proofs.documents import (
    MaskedDocument,
    Text,
    check_document_masks,
    check_sentences,
    cut_again,
    documents_begin_with,
    parts_in_order,
    prove_texts,
)
from prep_assets.proofs.mask import Conversation, prove_identity
from prep_assets.proofs.reference_ids import FIRST
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.selection import Selected
from prep_assets.proofs.verdict import Numbers, Verdict, combined, fails, holds
from prep_assets.samples import DOCUMENT, MEDIA, Sample, Turn
from prep_assets.schemas.reader import Reader as SchemaReader
from prep_assets.schemas.text import TextField
from prep_assets.stores.tokens import TokenStore
from prep_assets.text.documents import STARTS, sentences_of
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary


def pretrain_rows(store: Store) -> Verdict:
    """Check the rows of every stream: ids, begin and end tokens of documents, images."""
    streams, vocabulary, family = store.streams().values(), store.vocabulary, store.workspace.family(Pretrain)
    begin = documents_begin_with(vocabulary, family.bos)
    size, end, ended = vocabulary.size, vocabulary.eos_id, family.append_eod
    limit, types = family.preprocessing.max_seq_len, ids_type(store)
    longest = None if limit is None else limit + ended + (begin is not None)
    check = partial(check_records, vocabulary_size=size, types=types, eos_id=end, bos_id=begin, ended=ended, longest=longest)
    row_verdicts = map(check, streams)
    return combined(chain(row_verdicts, image_verdicts(store, streams)))


def _having(store: Store, key: str) -> list[TokenStore]:
    """The streams that have the array `key`."""
    return [stream for stream in store.streams().values() if key in stream.arrays]


def _converter(store: Store) -> SchemaReader:
    return converter(domain_source(store).domain, Sample)


def _begin(store: Store) -> int:
    """Number of tokens before the text of each document: 1 with a begin-of-text token, else 0."""
    return int(documents_begin_with(store.vocabulary, store.workspace.family(Pretrain).bos) is not None)


def _samples(store: Store, stream: TokenStore, blocks: Iterator[Selected] | None) -> Iterator[tuple[int, str, Sample]]:
    """Yield number and id of each document of a stream, and the sample of its row."""
    convert = _converter(store)
    for number, identity, payload in source_records(store, stream, blocks=blocks):
        yield number, identity, example_of(convert, payload, identity, Sample)


# Masks of documents.


def masked_documents(store: Store, stream: TokenStore, blocks: Iterator[Selected] | None = None) -> Iterator[MaskedDocument]:
    """Yield each document of a stream with a mask, with its sample."""
    begin, ended = _begin(store), store.workspace.family(Pretrain).append_eod
    for number, identity, sample in _samples(store, stream, blocks):
        yield MaskedDocument(identity, sample, stream.record(number, "tokens")[begin:], stream.weights(number)[begin:], ended)


def prove_document_masks(store: Store, documents: Iterable[MaskedDocument]) -> Verdict:
    """Check masks with the family's vocabulary and image tokens."""
    around = chain.from_iterable(map(tokens_around, store.workspace.media_rules(store.family).values()))
    files = [*media_ids(store.workspace, store.family).values(), *(store.vocabulary.control[token] for token in around)]
    return check_document_masks(documents, store.vocabulary, files)


class Masks(Derivation):
    """Checks the masks of documents; without masks, that every token is trained."""

    def readers(self) -> Sequence[Reader]:
        """One reader per stream with a mask."""
        store = self.store
        if masked := _having(store, "loss_mask"):
            return [partial(_masks_of, store, stream) for stream in masked]
        return [] if _are_texts(store) else [partial(_all_trained, store, stream) for stream in store.streams().values()]

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """One verdict on all streams."""
        verdict = combined(results)
        if verdict.passed and not _having(self.store, "loss_mask"):
            documents = sum(len(stream) for stream in self.store.streams().values())
            of_texts = " of one text each" if _are_texts(self.store) else ""
            verdict = Verdict(True, f"{documents:,} documents{of_texts}, every token trained", {"documents": documents})
        return {"mask_alignment": verdict}


def _masks_of(store: Store, stream: TokenStore, rows: Iterator[Selected]) -> Verdict:
    return prove_document_masks(store, masked_documents(store, stream, rows))


def _all_trained(store: Store, stream: TokenStore, rows: Iterator[Selected]) -> Verdict:
    """Check that no document of a stream without a mask has a region that weighs less than 1."""
    for _, identity, sample in _samples(store, stream, rows):
        shown = [region for turn in sample.turns for region in turn.regions if not region.drop and region.text]
        weights = [region.loss_weight for region in shown if region.loss_weight not in (None, 1)]
        if weights or not all(region.attend for region in shown):
            problem = f"{identity}: a region {f'weighs {weights[0]:g}' if weights else 'is not attended'}, and the stream has no loss mask"
            return replace(fails(identity, problem, {"documents_masked": 0}), summary=problem)
    return holds(_nothing, {})


def _nothing(_: Numbers) -> str:
    return ""


def _are_texts(store: Store) -> bool:
    return isinstance(_converter(store).convert, TextField)


# Tokens of documents against their texts, and where sentences begin.


def _text_readers(store: Store) -> Sequence[Reader]:
    """One reader per stream, and one more per stream that is cut into sentences."""

    def texts(stream: TokenStore, rows: Iterator[Selected]) -> Verdict:
        if len(stream.images):
            return prove_identity(document_conversations(store, stream, rows), store.vocabulary)
        engines = None if has_few_tokens(store) else store.workspace.engines(store.family)
        return prove_texts(document_texts(store, stream, rows), store.vocabulary, engines)

    def sentences(stream: TokenStore, rows: Iterator[Selected]) -> Verdict:
        documents = enumerate(document_texts(store, stream, rows))
        return check_sentences(((text, stream.record(number, STARTS)) for number, text in documents), _begin(store), store.vocabulary)

    streams = store.streams().values()
    return [*(partial(texts, stream) for stream in streams), *(partial(sentences, stream) for stream in _having(store, STARTS))]


TEXTS = proof("tokenization_identity", _text_readers)


def document_conversations(store: Store, stream: TokenStore, blocks: Iterator[Selected] | None = None) -> Iterator[Conversation]:
    """Yield each document of a stream with images, with a fresh render of its source, ended as `append_eod` says. The begin-of-text
    token, which `row_integrity` checks, is left out."""
    family, vocabulary, begin = store.workspace.family(Pretrain), store.vocabulary, _begin(store)
    special = {"eos_token": vocabulary.special["eos_token"]} if family.append_eod else {}
    again, marks = images_again(store), store.workspace.media_marks(family)
    template = ChatTemplate("none", "", special, control=tuple(sorted(vocabulary.control)), **marks)
    for number, identity, sample in _samples(store, stream, blocks):
        regions = (region for turn in sample.turns for region in turn.regions)
        _require_size(identity, "".join(region.text for region in regions if region.kind not in MEDIA and not region.drop), family)
        document = Sample((Turn(DOCUMENT, tuple(region for turn in again(sample).turns for region in turn.regions)),))
        yield fresh_render(identity, stream.record(number, "tokens")[begin:], document, template)


def _require_size(identity: str, text: str, family: Pretrain) -> None:
    """Raise where the text of a stored document is blank, or has too few or too many characters."""
    fewest, most = family.preprocessing.min_chars, family.preprocessing.max_chars
    if not text.strip() or len(text) < fewest or len(text) > (sys.maxsize if most is None else most):
        allowed = f"{fewest:,} to {most:,}" if most is not None else f"{fewest:,} and more"
        raise StoreError(f"{identity} is stored with {len(text):,} characters, and the options allow {allowed}, not all blank")


def document_texts(store: Store, stream: TokenStore, blocks: Iterator[Selected] | None = None) -> Iterator[Text]:
    """Yield each document of a stream with the text of its source; `blocks` as in `stored_rows`."""
    family, vocabulary, begin = store.workspace.family(Pretrain), store.vocabulary, _begin(store)
    convert, fim = _converter(store), store.recipe["preprocessing"].get("fim")
    as_it_is = convert.convert if isinstance(convert.convert, TextField) and convert.convert.key not in convert.account.ignore else None
    sentences, options = sentences_of(family.split_sentences), domain_source(store).domain.options
    key, strip = options.get("text_key", "text"), options.get("strip", domain_source(store).domain.schema_name == "text_read_hook")
    for stored in stored_rows(store, stream, blocks=blocks):
        records = stream.records(slice(stored.first, stored.first + len(stored.rows)), "tokens")
        for number, (payload, ids) in enumerate(zip(stored.payloads, records, strict=True)):
            identity, ids = stored.identity(number), ids[begin : len(ids) - family.append_eod]
            text = payload.get(key) if as_it_is is not None else None  # not by the schema
            if isinstance(text, str):
                text = text.strip() if strip else text
            else:
                text = "".join(turn.text for turn in example_of(convert, payload, identity, Sample).turns)
            _require_size(identity, text, family)
            if sentences is None:
                document = _as_text(identity, text, ids, store.partition, fim, vocabulary)
            else:
                document = Text(identity, text, ids, tuple(sentences.cut(text)))
            yield replace(document, early=True) if stream.before + stream.ends[stored.first + number] <= FIRST else document


def _as_text(identity: str, text: str, ids: npt.NDArray[Any], name: str, fim: Mapping[str, Any] | None, vocabulary: Vocabulary) -> Text:
    """Return a document with its tokens in text order; the parts of a fill-in-the-middle document are reordered."""
    if fim is None:
        return Text(identity, text, ids)
    sentinels = {part: vocabulary.backend.token_to_id(fim[f"{part}_token"]) for part in ("prefix", "suffix", "middle")}
    cut = cut_again(f"{name}/{identity}", len(text), fim)
    try:
        parts = parts_in_order(ids.tolist(), sentinels)
    except ValueError as error:
        raise StoreError(f"{identity}: {error}") from error
    if (cut is None) != (parts is None):
        raise StoreError(f"{identity}: {'whole' if parts is None else 'cut'}, its seed and id make it {'whole' if cut is None else 'cut'}")
    if cut is None or parts is None:
        return Text(identity, text, ids)
    first, second, tail_first = cut
    # a tokenizer may leave nothing of a head without letters
    if parts[0] if tail_first else not parts[0] and any(map(str.isalnum, text[:first])):
        order = ("head first", "tail first")
        raise StoreError(f"{identity}: {order[not parts[0]]}, its seed and id make it {order[tail_first]}")
    return Text(
        identity, text, np.array([token for part in parts for token in part], ids.dtype), (text[:first], text[first:second], text[second:])
    )
