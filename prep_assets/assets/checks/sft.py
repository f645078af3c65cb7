"""Checks of SFT tokens. Both proofs of a conversation come of one reading of its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.every_store import cuts_counted, together
from prep_assets.assets.checks.expected import sft_derivation, sft_examples, sft_left_of, sft_truncation
from prep_assets.assets.stage import Store
from prep_assets.proofs.identity import Conversation, IdentityProof
from prep_assets.proofs.mask import MaskProof, Row
from prep_assets.proofs.plain_blocks import Claims, PlainBlocks
from prep_assets.proofs.plain_samples import roles_and_texts
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Sample
from prep_assets.stores.tokens import TokenStore

CONVERSATIONS = "conversations"
"""The name of what both checks share."""
BLOCK_TOKENS = 1 << 19

Example = tuple[int, str, Sample | PlainChat]
"""Number in the stream, id, and source of a record."""


def sft_mask(store: Store) -> Verdict:
    """The masks of every record."""
    return _verdicts(store)[0]


def sft_identity(store: Store) -> Verdict:
    """The tokens of every record against a fresh render."""
    return _verdicts(store)[1]


def _verdicts(store: Store) -> tuple[Verdict, Verdict]:
    """The verdicts of both, which the first of them leaves for the other."""
    shared = store.published.evidence
    if shared is not None and CONVERSATIONS in shared:
        known: tuple[Verdict, Verdict] = shared[CONVERSATIONS]
        return known
    proofs = [_proven(store, stream) for stream in store.streams().values()]
    masks, identities = (together(proof.verdict() for proof in listed) for listed in zip(*proofs, strict=True))
    identities = cuts_counted(store, identities)
    if shared is not None:
        shared[CONVERSATIONS] = masks, identities
    return masks, identities


def _proven(store: Store, stream: TokenStore) -> tuple[MaskProof, IdentityProof]:
    vocabulary, derivation, leaves_whole = store.vocabulary, sft_derivation(store), sft_truncation(store).leaves_whole
    left_of = sft_left_of(store, derivation)
    masks, identities = MaskProof(vocabulary), IdentityProof(vocabulary)
    tags = [tag for pair in store.recipe["reasoning_tags"] for tag in pair]
    plain = PlainBlocks(derivation, masks, identities, (*vocabulary.control, *tags))
    lengths = np.diff(stream.ends, prepend=0)
    for block in _blocks(lengths, sft_examples(store, stream)):
        tokens = slice(int(stream.ends[block[0][0]] - lengths[block[0][0]]), int(stream.ends[block[-1][0]]))
        ids, mask = (np.asarray(stream.arrays[key][tokens]) for key in ("tokens", "loss_mask"))
        sizes = lengths[block[0][0] : block[-1][0] + 1]
        chats = [_columns(example) if leaves_whole(size) else None for (*_, example), size in zip(block, sizes, strict=True)]
        proven = plain.prove(Claims(chats, sizes, ids, mask))
        ends, rows, conversations = np.cumsum(sizes).tolist(), list[Row](), list[Conversation]()
        for at in np.flatnonzero(~proven).tolist():
            _, identity, example = block[at]
            left, own = left_of(example, int(sizes[at])), slice(ends[at] - int(sizes[at]), ends[at])
            rows.append(left.row(identity, ids[own], mask[own]))
            conversations.append(left.conversation(identity, ids[own]))
        if rows:
            masks.add(rows)
            identities.add(conversations)
    return masks, identities


def _blocks(lengths: npt.NDArray[np.int64], examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Consecutive records of about `BLOCK_TOKENS` tokens."""
    block: list[Example] = []
    size = 0
    for example in examples:
        block.append(example)
        size += int(lengths[example[0]])
        if size >= BLOCK_TOKENS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _columns(example: Sample | PlainChat) -> PlainChat | None:
    """A conversation of one text a turn, in columns."""
    if isinstance(example, PlainChat):
        return example
    found = roles_and_texts(example)
    return None if found is None else PlainChat(found[0], tuple(found[1]))
