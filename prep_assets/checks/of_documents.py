"""Checks of pretraining streams."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_conversations import fresh_render
from prep_assets.checks.of_stores import require_needed, types_of
from prep_assets.checks.relations import Relation, has_few_tokens, relation
from prep_assets.checks.sources_again import StoredRows, domain_source, example_of, files_of
from prep_assets.config.models import Pretrain
from prep_assets.errors import StoreError
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.examples import converter
from prep_assets.proofs.documents import (
    Cut,
    MaskedDocument,
    Text,
    TextProof,
    cut_again,
    document_masks,
    documents_begin_with,
    parts_in_order,
    sentence_borders,
)
from prep_assets.proofs.mask import Conversation, IdentityProof
from prep_assets.proofs.reference_ids import FIRST
from prep_assets.proofs.tables import check_rows
from prep_assets.proofs.verdict import Rule, Tally, Verdict, combined
from prep_assets.samples import DOCUMENT, MEDIA, Sample, Turn
from prep_assets.schemas.reader import Reader as SchemaReader
from prep_assets.schemas.text import TextField
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import Table
from prep_assets.text.documents import sentences_of
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary


def pretrain_rows(store: Store) -> Verdict:
    """Check the rows of every stream: ids, begin and end tokens of documents, images."""
    streams, vocabulary, family = store.streams(), store.vocabulary, store.workspace.family(Pretrain)
    require_needed(store, streams)
    tables = streams.values()
    begin = documents_begin_with(vocabulary, family.bos)
    size, end, ended = vocabulary.size, vocabulary.eos_id, family.append_eod
    limit, types = family.preprocessing.max_seq_len, types_of(store, tables)
    longest = None if limit is None else limit + ended + (begin is not None)
    check = partial(check_rows, vocabulary_size=size, types=types, eos_id=end, bos_id=begin, ended=ended, longest=longest)
    return combined(chain(map(check, tables), files_of(store).verdicts(tables)))


def _converter(store: Store) -> SchemaReader:
    return converter(domain_source(store).domain, Sample)


def _begin(store: Store) -> int:
    """Number of tokens before the text of each document: 1 with a begin-of-text token, else 0."""
    return int(documents_begin_with(store.vocabulary, store.workspace.family(Pretrain).bos) is not None)


# Masks of documents.


def masked_documents(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[MaskedDocument]] | None:
    """Return what gives each document of a stream with a mask, with its sample."""
    begin, ended, convert, tokens = _begin(store), store.workspace.family(Pretrain).append_eod, _converter(store), stream

    def pairs(rows: StoredRows) -> Iterator[MaskedDocument]:
        for number, identity, payload in rows.records():
            sample = example_of(convert, payload, identity, Sample)
            yield MaskedDocument(identity, sample, tokens.record(number, "tokens")[begin:], tokens.weights_of(number)[begin:], ended)

    return pairs if "loss_mask" in tokens.columns else None


def masks_rule(store: Store) -> Rule[MaskedDocument]:
    """What must hold of masks, with the family's vocabulary and image tokens."""
    return document_masks(store.vocabulary, files_of(store).all_ids())


class Unmasked(NamedTuple):
    """A document without a mask, and its sample."""

    id: str
    sample: Sample


def _unmasked(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Unmasked]] | None:
    if "loss_mask" in stream.columns or _are_texts(store):
        return None
    convert = _converter(store)
    return lambda rows: (Unmasked(name, example_of(convert, payload, name, Sample)) for _, name, payload in rows.records())


def _weighed_fault(document: Unmasked, numbers: Counter[str]) -> str | None:
    """No document of a stream without a mask has a region that weighs less than 1."""
    numbers["documents"] += 1
    shown = [region for turn in document.sample.turns for region in turn.regions if not region.drop and region.text]
    weights = [region.loss_weight for region in shown if region.loss_weight not in (None, 1)]
    if weights or not all(region.attend for region in shown):
        return f"a region {f'weighs {weights[0]:g}' if weights else 'is not attended'}, and the stream has no loss mask"
    return None


ALL_TRAINED = Rule(_weighed_fault, ("documents",), "{documents:,} documents, every token trained".format_map)


class Masks(Relation):
    """Checks the masks of documents; without masks, that every token is trained."""

    def __init__(self, store: Store) -> None:
        masked, unmasked = (masked_documents, lambda store: Tally(masks_rule(store))), (_unmasked, lambda store: Tally(ALL_TRAINED))
        super().__init__(store, "mask_alignment", (masked, unmasked))

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """One verdict on all streams; documents of one text each, without a mask, are not read."""
        verdict, streams = combined(results), self.store.streams().values()
        if verdict.passed and not any("loss_mask" in stream.columns for stream in streams):
            documents, of_texts = sum(map(len, streams)), " of one text each" if _are_texts(self.store) else ""
            verdict = Verdict(True, f"{documents:,} documents{of_texts}, every token trained", {"documents": documents})
        return {"mask_alignment": verdict}


def _are_texts(store: Store) -> bool:
    return isinstance(_converter(store).convert, TextField)


# Tokens of documents against their texts, and where sentences begin.


def _sentences(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Cut]] | None:
    texts = document_texts(store, stream)
    if texts is None or STARTS not in stream.columns:
        return None
    return lambda rows: (Cut(text, stream.record(number, STARTS)) for number, text in enumerate(texts(rows), rows.first))


def document_conversations(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Conversation]] | None:
    """Return what gives each document of a stream with images, with a fresh render of its source, ended as `append_eod` says. The begin-of-text
    token, which `row_integrity` checks, is left out."""
    family, vocabulary, begin, convert = store.workspace.family(Pretrain), store.vocabulary, _begin(store), _converter(store)
    special = {"eos_token": vocabulary.special["eos_token"]} if family.append_eod else {}
    files = files_of(store)
    template = ChatTemplate("none", "", special, control=tuple(sorted(vocabulary.control)), **files.marks())

    def pairs(rows: StoredRows) -> Iterator[Conversation]:
        for number, identity, payload in rows.records():
            sample = example_of(convert, payload, identity, Sample)
            regions = (region for turn in sample.turns for region in turn.regions)
            _require_size(identity, "".join(region.text for region in regions if region.kind not in MEDIA and not region.drop), family)
            document = Sample((Turn(DOCUMENT, tuple(region for turn in files.ready_again(sample).turns for region in turn.regions)),))
            yield fresh_render(identity, stream.record(number, "tokens")[begin:], document, template)

    return pairs if len(stream.images) else None


def _require_size(identity: str, text: str, family: Pretrain) -> None:
    """Raise where the text of a stored document is blank, or has too few or too many characters."""
    fewest, most = family.preprocessing.min_chars, family.preprocessing.max_chars
    if not text.strip() or len(text) < fewest or len(text) > (sys.maxsize if most is None else most):
        allowed = f"{fewest:,} to {most:,}" if most is not None else f"{fewest:,} and more"
        raise StoreError(f"{identity} is stored with {len(text):,} characters, and the options allow {allowed}, not all blank")


def document_texts(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Text]] | None:
    """Return what gives each document of a stream without images, with the text of its source."""
    family, vocabulary, begin, tokens = store.workspace.family(Pretrain), store.vocabulary, _begin(store), stream.columns["tokens"]
    convert, fim = _converter(store), store.recipe["preprocessing"].get("fim")
    as_it_is = convert.convert if isinstance(convert.convert, TextField) and convert.convert.key not in convert.account.ignore else None
    sentences, options = sentences_of(family.split_sentences), domain_source(store).domain.options
    key, strip = options.get("text_key", "text"), options.get("strip", domain_source(store).domain.schema_name == "text_read_hook")

    def pairs(rows: StoredRows) -> Iterator[Text]:
        records = tokens.split(slice(rows.first, rows.first + len(rows)))
        for (number, identity, payload), ids in zip(rows.records(), records, strict=True):
            ids = ids[begin : len(ids) - family.append_eod]
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
            yield replace(document, early=True) if tokens.ends[number] <= FIRST else document

    return None if len(stream.images) else pairs


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


TEXTS = relation(
    "tokenization_identity",
    "Every document's tokens decode to its text; a sample equals the reference tokenizer's ids.",
    (document_conversations, lambda store: IdentityProof(store.vocabulary)),
    (document_texts, lambda store: TextProof(store.vocabulary, None if has_few_tokens(store) else store.workspace.engines(store.family))),
    (_sentences, lambda store: Tally(sentence_borders(_begin(store), store.vocabulary))),
)
