"""W&B: a store as an artifact of references, so that a run says which data it had.

    run.log_artifact(wandb_artifact(Workspace.open(), "sft_packed"))

No file is uploaded. W&B hashes the files, so equal stores are one version of the artifact wherever they lie.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from prep_assets.assets.workspace import Workspace
from prep_assets.neighbours.description import describe

TOLD = ("asset", "hashes", "made_from", "sources", "licence", "counts", "metrics", "refused", "proofs", "command")
"""What of a description is the artifact's metadata."""


def wandb_artifact(workspace: Workspace, asset: str, partition: str = "") -> Any:
    """The current store of an asset, a `wandb.Artifact`, whose metadata has the content hash.

    Raises:
        StoreError: as `describe`.
    """
    import wandb

    said, published = describe(workspace, asset, partition)
    told = {name: value for name, value in asdict(said).items() if name in TOLD}
    found = wandb.Artifact(
        re.sub(r"[^\w.-]+", "-", said.name).strip("-"),
        type="dataset",
        description=said.summary,
        metadata={"content_hash": said.content_hash, **told},
    )
    for name in said.files:
        found.add_reference((published.directory / name).resolve().as_uri(), name=name)
    return found
