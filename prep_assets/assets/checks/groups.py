"""Checks of scored groups."""

from __future__ import annotations

from prep_assets.assets import rl_groups
from prep_assets.assets.checks.every_store import together
from prep_assets.assets.checks.expected_groups import group_conversations, group_prompts, group_rows, group_samples, group_scores
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Rl
from prep_assets.proofs.identity import prove_identity
from prep_assets.proofs.mask import prove_masks
from prep_assets.proofs.rewards import check_rewards
from prep_assets.proofs.rows import check_records
from prep_assets.proofs.sampled import check_sampled
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.groups import open_groups
from prep_assets.stores.published import Published


def group_rows_integrity(workspace: Workspace, published: Published) -> Verdict:
    size = workspace.vocabulary(workspace.family(Rl)).size
    stores = [open_groups(folder) for folder in rl_groups.splits(published).values()]
    return together(check_records(stream, vocabulary_size=size) for store in stores for stream in (store.prompts, store.responses))


def group_mask(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Rl))
    return together(prove_masks(group_rows(workspace, folder), vocabulary) for folder in rl_groups.splits(published).values())


def group_identity(workspace: Workspace, published: Published) -> Verdict:
    vocabulary, folders = workspace.vocabulary(workspace.family(Rl)), rl_groups.splits(published).values()
    return together(
        prove_identity(evidence(workspace, folder), vocabulary) for folder in folders for evidence in (group_conversations, group_prompts)
    )


def group_rewards(workspace: Workspace, published: Published) -> Verdict:
    return together(check_rewards(group_scores(workspace, folder)) for folder in rl_groups.splits(published).values())


def group_sampled(workspace: Workspace, published: Published) -> Verdict:
    return together(check_sampled(group_samples(workspace, folder)) for folder in rl_groups.splits(published).values())
