"""Checks of pretraining streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.every_store import open_streams, together
from prep_assets.assets.checks.expected import (
    document_conversations,
    sample_of,
    source_records,
)
from prep_assets.assets.checks.token_rows import image_verdicts
from prep_assets.assets.raw import domain_of
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import stored_image_id
from prep_assets.config.models import Pretrain
from prep_assets.errors import StoreError
from prep_assets.proofs.document_masks import MaskedDocument, check_document_masks
from prep_assets.proofs.fill_in_the_middle import parts_in_order
from prep_assets.proofs.identity import prove_identity
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.starts import documents_begin_with
from prep_assets.proofs.text import Text, prove_texts
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import Sample
from prep_assets.schemas.text import TextField
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore
from prep_assets.tokenization.fill_in_the_middle import cut_of
from prep_assets.tokenization.vocabulary import Vocabulary


def pretrain_rows(workspace: Workspace, published: Published) -> Verdict:
    family, stores = workspace.family(Pretrain), open_streams(published).values()
    vocabulary = workspace.vocabulary(family)
    begin = documents_begin_with(vocabulary, family.bos)
    sound = (check_records(store, vocabulary_size=vocabulary.size, eos_id=vocabulary.eos_id, bos_id=begin) for store in stores)
    return together(chain(sound, image_verdicts(workspace, family, stores)))


def pretrain_masks(workspace: Workspace, published: Published) -> Verdict:
    masked = [store for store in open_streams(published).values() if "loss_mask" in store.arrays]
    if not masked:
        return _all_trained(workspace, published)
    return together(prove_document_masks(workspace, masked_documents(workspace, published, store)) for store in masked)


def masked_documents(workspace: Workspace, published: Published, store: TokenStore) -> Iterator[MaskedDocument]:
    """Each document of a stream that has a mask, with what its source says."""
    name, family = published.manifest.partition, workspace.family(Pretrain)
    convert = converter(domain_of(family, name), Sample)
    begin = int(documents_begin_with(workspace.vocabulary(family), family.bos) is not None)
    for number, identity, record in source_records(workspace, Pretrain, "pretrain_raw", name, store):
        ids, mask = (store.record(number, key)[begin:] for key in ("tokens", "loss_mask"))
        yield MaskedDocument(identity, sample_of(convert, record, identity), ids, mask)


def prove_document_masks(workspace: Workspace, documents: Iterable[MaskedDocument]) -> Verdict:
    """The check of masks, with the family's vocabulary and image token."""
    family = workspace.family(Pretrain)
    return check_document_masks(documents, workspace.vocabulary(family), stored_image_id(workspace, family))


def _all_trained(workspace: Workspace, published: Published) -> Verdict:
    """A stream without a mask: no document has a region that weighs less than 1."""
    name, count = published.manifest.partition, 0
    domain = domain_of(workspace.family(Pretrain), name)
    convert = converter(domain, Sample)
    if isinstance(convert, TextField):
        documents = sum(len(store) for store in open_streams(published).values())
        return Verdict(True, f"{documents:,} documents of one text each, every token of which is trained", {"documents": documents})
    for store in open_streams(published).values():
        for _, identity, record in source_records(workspace, Pretrain, "pretrain_raw", name, store):
            shown = [
                region for turn in sample_of(convert, record, identity).turns for region in turn.regions if not region.drop and region.text
            ]
            if (weights := [region.loss_weight for region in shown if region.loss_weight not in (None, 1)]) != []:
                problem = f"{identity}: a region weighs {weights[0]:g}, and the stream has no loss mask"
                return Verdict(False, problem, {"documents_masked": 0}, Worst(identity, problem))
            count += 1
    return Verdict(True, f"{count:,} documents, every token of which is trained", {"documents": count})


def pretrain_texts(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Pretrain))

    def prove(store: TokenStore) -> Verdict:
        if len(store.images):
            return prove_identity(document_conversations(workspace, published.manifest.partition, store), vocabulary)
        return prove_texts(document_texts(workspace, published, store), vocabulary)

    return together(prove(store) for store in open_streams(published).values())


def document_texts(workspace: Workspace, published: Published, store: TokenStore) -> Iterator[Text]:
    """Each document of a stream with the text of its source."""
    name, family = published.manifest.partition, workspace.family(Pretrain)
    convert, vocabulary = converter(domain_of(family, name), Sample), workspace.vocabulary(family)
    fim = published.manifest.recipe["preprocessing"].get("fim")
    begin = int(documents_begin_with(vocabulary, family.bos) is not None)
    for number, identity, record in source_records(workspace, Pretrain, "pretrain_raw", name, store):
        text = "".join(turn.text for turn in sample_of(convert, record, identity).turns)
        yield _as_text(identity, text, store.record(number, "tokens")[begin:-1], name, fim, vocabulary)


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
