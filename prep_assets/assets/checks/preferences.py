"""Checks of preference pairs and of their tokens."""

from __future__ import annotations

from prep_assets.assets import preferences as preference
from prep_assets.assets.checks.every_store import open_streams, together
from prep_assets.assets.checks.expected import (
    preference_conversations,
    preference_rows,
)
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.unpaired import UNPAIRED, UNPAIRED_TEST
from prep_assets.config.models import Preference
from prep_assets.proofs.identity import prove_identity
from prep_assets.proofs.mask import prove_masks
from prep_assets.proofs.pairs import check_pairs
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Published


def pairs(workspace: Workspace, published: Published) -> Verdict:
    train, test = (open_lines(published.directory, name) for name in (preference.TRAIN, preference.TEST))
    unpaired = [
        open_lines(published.directory, name) if (published.directory / f"{name}.jsonl").is_file() else ()
        for name in (UNPAIRED, UNPAIRED_TEST)
    ]
    return check_pairs(train, test, *unpaired)


def preference_mask(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    return together(prove_masks(preference_rows(workspace, published, side), vocabulary) for side in open_streams(published))


def preference_identity(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    return together(prove_identity(preference_conversations(workspace, published, side), vocabulary) for side in open_streams(published))
