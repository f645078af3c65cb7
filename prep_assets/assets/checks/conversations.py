"""Checks of tokenized conversations: chats, and the sides of preference pairs. Both proofs of one come of one reading of its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.every_store import cuts_counted, together
from prep_assets.assets.checks.expected import Example, Rules, sft_examples, sft_rules
from prep_assets.assets.checks.expected_pairs import pair_examples, pair_rules
from prep_assets.assets.checks.selection import largest_beside_selection
from prep_assets.assets.stage import Store
from prep_assets.proofs.identity import Conversation, IdentityProof
from prep_assets.proofs.mask import MaskProof, Row
from prep_assets.proofs.plain_blocks import Chat, Claims, PlainBlocks
from prep_assets.proofs.plain_samples import roles_and_texts
from prep_assets.proofs.shaped_samples import outlined
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import PlainChat, Record, Sample
from prep_assets.stores.tokens import TokenStore

CONVERSATIONS = "conversations"
"""The name of what both checks share."""
BLOCK_TOKENS = 1 << 19

Proofs = tuple[MaskProof, IdentityProof]


def sft_mask(store: Store) -> Verdict:
    """The masks of every record."""
    return _verdicts(store, _sft)[0]


def sft_identity(store: Store) -> Verdict:
    """The tokens of every record against a fresh render."""
    return _verdicts(store, _sft)[1]


def preference_mask(store: Store) -> Verdict:
    """The masks of both sides."""
    return _verdicts(store, _sides)[0]


def preference_identity(store: Store) -> Verdict:
    """The tokens of both sides against fresh renders."""
    return _verdicts(store, _sides)[1]


def _verdicts(store: Store, prove: Callable[[Store], Iterator[Proofs]]) -> tuple[Verdict, Verdict]:
    """The verdicts of both, which the first of them leaves for the other."""
    shared = store.published.evidence
    if shared is not None and CONVERSATIONS in shared:
        known: tuple[Verdict, Verdict] = shared[CONVERSATIONS]
        return known
    masks, identities = (together(proof.verdict() for proof in listed) for listed in zip(*prove(store), strict=True))
    identities = cuts_counted(store, identities)
    if shared is not None:
        shared[CONVERSATIONS] = masks, identities
    return masks, identities


def _sft(store: Store) -> Iterator[Proofs]:
    rules, tags = sft_rules(store), store.recipe["reasoning_tags"]

    def prove(stream: TokenStore, given: Iterator[Record] | None) -> Proofs:
        return _proven(stream, sft_examples(store, stream, given=given), rules, tags)

    return largest_beside_selection(store, prove)


def _sides(store: Store) -> Iterator[Proofs]:
    rules, tags = pair_rules(store), store.recipe["reasoning_tags"]
    for side, stream in store.streams().items():
        yield _proven(stream, pair_examples(store, side, stream), rules, tags)


def _proven(stream: TokenStore, examples: Iterable[Example], rules: Rules, tags: Iterable[Iterable[str]]) -> Proofs:
    """Both proofs of a stream. Chats that hold one of the `tags` of reasoning are proven one by one."""
    vocabulary = rules.vocabulary
    masks, identities = MaskProof(vocabulary), IdentityProof(vocabulary)
    plain = PlainBlocks(rules.derivation, masks, identities, (*vocabulary.control, *(tag for pair in tags for tag in pair)))
    lengths = stream.lengths
    for block in _blocks(lengths, examples):
        tokens = slice(int(stream.ends[block[0][0]] - lengths[block[0][0]]), int(stream.ends[block[-1][0]]))
        ids, mask = (np.asarray(stream.arrays[key][tokens]) for key in ("tokens", "loss_mask"))
        sizes = lengths[block[0][0] : block[-1][0] + 1]
        whole = rules.truncation.leaves_whole
        chats = [_columns(example) if whole(size) else None for (*_, example), size in zip(block, sizes.tolist(), strict=True)]
        proven = plain.prove(Claims(chats, sizes, ids, mask))
        ends, rows, conversations = np.cumsum(sizes).tolist(), list[Row](), list[Conversation]()
        for at in np.flatnonzero(~proven).tolist():
            _, identity, example = block[at]
            left, own = rules.left(example, int(sizes[at])), slice(ends[at] - int(sizes[at]), ends[at])
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


def _columns(example: Sample | PlainChat) -> Chat | None:
    """A conversation as its form and its texts; `None` for what has to be proven by itself."""
    if isinstance(example, PlainChat):
        return example
    found = roles_and_texts(example)
    return outlined(example) if found is None else PlainChat(found[0], tuple(found[1]))
