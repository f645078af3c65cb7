"""Selftest of token rows without a mask: documents and prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy.typing as npt

from prep_assets.assets.checks.pretrain import document_texts, masked_documents, prove_document_masks
from prep_assets.assets.checks.prompts import prompt_conversations
from prep_assets.assets.selftest.trials import ROWS, Trial, stream_of, trials_of
from prep_assets.assets.stage import Store
from prep_assets.config.models import Pretrain
from prep_assets.proofs.document_mutations import (
    ATTENTION_MASK_MUTATIONS,
    DOCUMENT_MUTATIONS,
    MASK_MUTATIONS,
    PROMPT_TOKEN_MUTATIONS,
    UNENDED_MUTATIONS,
)
from prep_assets.proofs.identity import Conversation, prove_identity
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.starts import documents_begin_with
from prep_assets.proofs.text import Text, prove_texts
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.tokens import TokenStore
from prep_assets.tokenization.sentences import STARTS

Ids = npt.NDArray[Any]
Check = Callable[[Sequence[Ids]], Verdict]


def document_trials(store: Store) -> list[Trial]:
    """Corruptions of documents. Those with images, or cut for fill-in-the-middle, are left alone: their ids do not stand in the order of the text."""
    vocabulary, family = store.vocabulary, store.workspace.family(Pretrain)
    bos, ended = documents_begin_with(vocabulary, family.bos), family.append_eod
    begin, trials = int(bos is not None), list[Trial]()
    for stream in store.streams().values():
        trials += _mask_trials(store, stream) if "loss_mask" in stream.arrays else []
        texts = [] if len(stream.images) else list(islice(document_texts(store, stream), ROWS))
        whole = [(number, text) for number, text in enumerate(texts) if not text.parts or STARTS in stream.arrays]
        if not whole:
            continue
        rows = [stream.record(number, "tokens") for number, _ in whole]
        expected = [text for _, text in whole]

        def texts_of(found: Sequence[Ids], expected: Sequence[Text] = expected) -> Verdict:
            changed = [replace(text, ids=ids[begin : len(ids) - ended]) for text, ids in zip(expected, found, strict=True)]
            return prove_texts(changed, vocabulary)

        checks: dict[str, Check] = {
            "tokenization_identity": texts_of,
            "row_integrity": lambda found: check_records(
                stream_of(found), vocabulary_size=vocabulary.size, eos_id=vocabulary.eos_id, bos_id=bos, ended=ended
            ),
        }
        mutations = DOCUMENT_MUTATIONS if ended else UNENDED_MUTATIONS
        trials += trials_of(rows, len(rows), mutations, checks, vocabulary.eos_id, vocabulary.size)
    return trials


def _mask_trials(store: Store, stream: TokenStore) -> list[Trial]:
    documents = list(islice(masked_documents(store, stream), ROWS))
    unattended = ATTENTION_MASK_MUTATIONS if any((document.mask < 0).any() for document in documents) else ()
    checks = {"mask_alignment": partial(prove_document_masks, store)}
    return trials_of(documents, len(documents), (*MASK_MUTATIONS, *unattended), checks, what="mask_alignment")


def prompt_token_trials(store: Store) -> list[Trial]:
    """Corruptions of tokenized prompts."""
    vocabulary = store.vocabulary
    trials: list[Trial] = []
    for name in store.streams():
        renders = list(islice(prompt_conversations(store, name), ROWS))

        def identity(found: Sequence[Ids], renders: Sequence[Conversation] = renders) -> Verdict:
            return prove_identity([replace(render, ids=ids) for render, ids in zip(renders, found, strict=True)], vocabulary)

        checks: dict[str, Check] = {
            "tokenization_identity": identity,
            "row_integrity": lambda found: check_records(stream_of(found), vocabulary_size=vocabulary.size),
        }
        rows = [render.ids for render in renders]
        trials += trials_of(rows, len(rows), PROMPT_TOKEN_MUTATIONS, checks, vocabulary.eos_id, vocabulary.size)
    return trials
