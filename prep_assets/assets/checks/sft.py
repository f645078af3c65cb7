"""Checks of the chat template and of SFT tokens."""

from __future__ import annotations

from prep_assets.assets import sft_tokens as sft
from prep_assets.assets.checks.every_store import open_streams, together
from prep_assets.assets.checks.expected import (
    sft_conversations,
    sft_rows,
)
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Sft
from prep_assets.proofs.identity import prove_identity
from prep_assets.proofs.mask import prove_masks
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Published


def policy(workspace: Workspace, published: Published) -> Verdict:
    certificate = sft.check_policy(workspace)
    return Verdict(True, f"masks are provable by {', '.join(certificate.proofs)}; turns end with {certificate.stop_token!r}", {})


def sft_mask(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    return together(prove_masks(sft_rows(workspace, published, name), vocabulary) for name in open_streams(published))


def sft_identity(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    return together(prove_identity(sft_conversations(workspace, published, name), vocabulary) for name in open_streams(published))
