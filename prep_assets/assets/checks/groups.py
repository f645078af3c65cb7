"""Checks of scored groups."""

from __future__ import annotations

from prep_assets.assets.checks.every_store import together
from prep_assets.assets.checks.expected_groups import group_conversations, group_prompts, group_rows, group_samples, group_scores
from prep_assets.assets.stage import Check, Store
from prep_assets.assets.writing.groups import splits
from prep_assets.proofs.identity import prove_identity
from prep_assets.proofs.mask import prove_masks
from prep_assets.proofs.rewards import check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.sampled import check_sampled
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.groups import open_groups


def group_integrity(store: Store) -> Verdict:
    """The rows of prompts and responses."""
    size, groups = store.vocabulary.size, [open_groups(folder) for folder in splits(store.directory).values()]
    return together(check_records(stream, vocabulary_size=size) for each in groups for stream in (each.prompts, each.responses))


GROUP_ROWS = Check("row_integrity", "Ids are inside the vocabulary, and every response trains something.", group_integrity)


def group_mask(store: Store) -> Verdict:
    """The masks of responses."""
    return together(prove_masks(group_rows(store, folder), store.vocabulary) for folder in splits(store.directory).values())


def group_identity(store: Store) -> Verdict:
    """The tokens of prompts and responses against fresh renders."""
    evidence = (found(store, folder) for folder in splits(store.directory).values() for found in (group_conversations, group_prompts))
    return together(prove_identity(each, store.vocabulary) for each in evidence)


def group_rewards(store: Store) -> Verdict:
    """The rewards against those of the source."""
    return together(check_rewards(group_scores(store, folder)) for folder in splits(store.directory).values())


def group_sampled(store: Store) -> Verdict:
    """Sampled ids and log-probabilities against those of the source."""
    return together(check_sampled(group_samples(store, folder)) for folder in splits(store.directory).values())
