"""Checks of SFT tokens."""

from __future__ import annotations

from prep_assets.assets.checks.every_store import together
from prep_assets.assets.checks.expected import sft_conversations, sft_rows
from prep_assets.assets.stage import Store
from prep_assets.proofs.identity import prove_identity
from prep_assets.proofs.mask import prove_masks
from prep_assets.proofs.verdict import Verdict


def sft_mask(store: Store) -> Verdict:
    """The masks of every record."""
    return together(prove_masks(sft_rows(store, name), store.vocabulary) for name in store.streams())


def sft_identity(store: Store) -> Verdict:
    """The tokens of every record against a fresh render."""
    return together(prove_identity(sft_conversations(store, name), store.vocabulary) for name in store.streams())
