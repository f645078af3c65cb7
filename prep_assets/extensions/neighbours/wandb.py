"""W&B: a store as an artifact of references, so that a run records its data.

``run.log_artifact(wandb_artifact(described("stores/sft_packed/current")))``

No file is uploaded. W&B hashes the files, so equal stores are one version of the artifact, wherever they are.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prep_assets.extensions.neighbours.description import Description

METADATA = ("asset", "hashes", "made_from", "sources", "licence", "counts", "metrics", "refused", "proofs", "command")
"""Fields of a description that become metadata of the artifact."""


def wandb_artifact(description: Description) -> Any:
    """Return a `wandb.Artifact` of a store on this machine; the metadata includes the content hash."""
    import wandb

    metadata = {name: value for name, value in asdict(description).items() if name in METADATA}
    artifact = wandb.Artifact(
        re.sub(r"[^\w.-]+", "-", description.name).strip("-"),
        type="dataset",
        description=description.summary,
        metadata={"content_hash": description.content_hash, **metadata},
    )
    for name in description.files:
        artifact.add_reference((Path(description.where) / name).resolve().as_uri(), name=name)
    return artifact
