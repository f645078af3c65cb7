"""Checks of pretraining streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.models import Pretrain
from prep_assets.errors import StoreError
from prep_assets.pipelines.examples import converter
from prep_assets.pipelines.proving.every_store import open_streams, together
from prep_assets.pipelines.proving.evidence import (
    document_conversations,
    sample_of,
    source_records,
)
from prep_assets.pipelines.proving.token_rows import image_verdicts
from prep_assets.pipelines.sources import domain_of
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.fill_in_the_middle import parts_in_order
from prep_assets.quality.identity import prove_identity
from prep_assets.quality.images import check_only_images_masked
from prep_assets.quality.rows import check_records
from prep_assets.quality.text import Text, prove_texts
from prep_assets.quality.verdict import Verdict
from prep_assets.samples import Sample
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore
from prep_assets.tokenization.fill_in_the_middle import cut_of
from prep_assets.tokenization.vocabulary import Vocabulary


def pretrain_rows(workspace: Workspace, published: Published) -> Verdict:
    family, stores = workspace.family(Pretrain), open_streams(published).values()
    vocabulary = workspace.vocabulary(family)
    sound = (check_records(store, vocabulary_size=vocabulary.size, eos_id=vocabulary.eos_id) for store in stores)
    masked = (check_only_images_masked(store) for store in stores if "loss_mask" in store.arrays)
    return together(chain(sound, image_verdicts(workspace, family, stores), masked))


def pretrain_texts(workspace: Workspace, published: Published) -> Verdict:
    name = published.manifest.partition
    family = workspace.family(Pretrain)
    domain, vocabulary = domain_of(family, name), workspace.vocabulary(family)
    convert = converter(domain, Sample)
    fim = published.manifest.recipe["preprocessing"].get("fim")

    def texts(store: TokenStore) -> Iterator[Text]:
        for number, identity, record in source_records(workspace, Pretrain, "pretrain_raw", name, store):
            text = "".join(turn.text for turn in sample_of(convert, record, identity).turns)
            yield _as_text(identity, text, store.record(number, "tokens")[:-1], name, fim, vocabulary)

    def prove(store: TokenStore) -> Verdict:
        if len(store.images):
            return prove_identity(document_conversations(workspace, name, store), vocabulary)
        return prove_texts(texts(store), vocabulary, engines.reference, engines.rest_reference)

    engines = workspace.engines(family)
    return together(prove(store) for store in open_streams(published).values())


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
