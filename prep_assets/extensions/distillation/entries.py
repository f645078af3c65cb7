"""What a teacher holds for likely at each token: proven to stand where it belongs, and put into the columns of a store.

A distribution that is read one token beside its place trains a student to say everything twice or too early, and its loss falls all the same. A teacher
mostly has the token that stands at a place among its likeliest ones for that place. So where more tokens stand among the entries of a neighbour than among
their own, the entries are shifted, and the row is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import Refused
from prep_assets.extensions.distillation import FIELDS, NAME
from prep_assets.pipeline.conversations import Conversations, in_order
from prep_assets.pipeline.examples import Item
from prep_assets.samples import Listed, Sample
from prep_assets.stores.lists import Entries
from prep_assets.text.encode import Encoded
from prep_assets.text.vocabulary import Vocabulary

FEWEST = 8
"""Tokens with entries of which one must be among its own; fewer may all be surprises."""


def encode(conversations: Conversations, items: Sequence[Item]) -> tuple[list[Item], Encoded, Entries]:
    """The kept items of a block, their tokens, and what a teacher says of them; rejected items are in quarantine. Rows with ids are judged before they are
    counted as kept."""
    quarantine = conversations.quarantine
    limit, vocabulary = conversations.encoder.max_seq_len, conversations.encoder.vocabulary
    ready: list[Item] = []
    for item in items:
        sample = item.example
        try:
            if isinstance(sample, Sample) and sample.tokenized is not None:
                if limit is not None and len(sample.tokenized.ids) > limit:
                    raise _too_long(len(sample.tokenized.ids), limit)
                _placed(_teacher(sample), np.array(sample.tokenized.ids), np.array(sample.tokenized.weights), vocabulary)
            ready.append(item)
        except Refused as refusal:
            item.reject(quarantine, refusal)
    kept, encoded = conversations.encode(ready)
    blocks: list[Entries] = []
    refused: list[int] = []
    for at, item in enumerate(kept):
        tokens, sample = slice(*encoded.offsets[at : at + 2].tolist()), item.example
        try:
            if encoded.taken[at]:
                raise _too_long(int(encoded.taken[at]) + tokens.stop - tokens.start, limit)
            assert isinstance(sample, Sample)
            blocks.append(_placed(_teacher(sample), encoded.ids[tokens].astype(np.int64), encoded.loss[tokens], vocabulary))
        except Refused as refusal:
            item.reject(quarantine, refusal)
            refused.append(at)
    if refused:
        encoded = in_order([(np.arange(len(kept)), replace(encoded, kept=np.arange(len(kept)), refused=()))], np.array(refused))
        kept = [kept[at] for at in encoded.kept.tolist()]
    return kept, encoded, Entries.joined(FIELDS, blocks)


def _teacher(sample: Sample) -> Listed:
    if sample.lists is None or not sample.lists.values["id"]:
        raise _refused("no_teacher", "no token of the row has entries of a teacher")
    return sample.lists


def _too_long(length: int, limit: int | None) -> Refused:
    return _refused("too_long", f"{length:,} tokens, max_seq_len is {limit:,}; rows with entries of a teacher are not cut")


def _placed(teacher: Listed, ids: Ints, weights: npt.NDArray[np.floating], vocabulary: Vocabulary) -> Entries:
    """The entries of one example at its tokens.

    Raises:
        Refused: they are of other tokens, of no token of the vocabulary, or shifted.
    """
    counts, entries = np.array(teacher.counts, np.int64), np.array(teacher.values["id"], np.int64)
    if teacher.of_trained:
        trained = np.flatnonzero(weights)
        if len(trained) != len(counts):
            raise _refused("length_mismatch", f"{len(counts)} lists of entries for {len(trained)} trained tokens of the render")
        counts = np.zeros(len(ids), np.int64)
        counts[trained] = teacher.counts
    if not 0 <= entries.min() <= entries.max() < vocabulary.size:
        wrong = entries[(entries < 0) | (entries >= vocabulary.size)][0]
        raise _refused("id_outside_vocabulary", f"an entry of the teacher has id {wrong}, the vocabulary has {vocabulary.size:,}")
    said, before, behind, named = own_tokens(ids, counts, entries)
    if max(before, behind) > said:
        place, by = ("before", before) if before > behind else ("behind", behind)
        detail = f"{said} of {named} tokens are among their own entries, and {by} among those of the token {place} them"
        raise _refused("teacher_shifted", f"{detail}. If the source means that, change teacher_shifted")
    if named >= FEWEST and not said:
        raise _refused("teacher_of_other_tokens", f"none of {named} tokens is among its own entries")
    return Entries(counts, np.array([len(entries)]), {"id": entries, "logprob": np.array(teacher.values["logprob"])})


def own_tokens(ids: Ints, counts: Ints, entries: Ints) -> tuple[int, int, int, int]:
    """How many tokens are among their own entries, among those of the token before them and among those of the token behind them; and how many have
    entries."""
    place = np.repeat(np.arange(len(ids)), counts)
    beside = np.concatenate([[-1], ids, [-1]])
    own, before, behind = (int(np.count_nonzero(entries == beside[place + by])) for by in (1, 2, 0))
    return own, before, behind, int(np.count_nonzero(counts))


def _refused(reason: str, detail: str) -> Refused:
    return Refused(reason, detail, stage=NAME)
