"""W&B: a store as an artifact of references, so that a run says which data it had.

``run.log_artifact(wandb_artifact(described("stores/sft_packed/current")))``

No file is uploaded. W&B hashes the files, so equal stores are one version of the artifact wherever they lie.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prep_assets.neighbours.description import Description

TOLD = ("asset", "hashes", "made_from", "sources", "licence", "counts", "metrics", "refused", "proofs", "command")
"""What of a description is the artifact's metadata."""


def wandb_artifact(description: Description) -> Any:
    """A described store whose files are on this machine, a `wandb.Artifact`; its metadata has the content hash."""
    import wandb

    told = {name: value for name, value in asdict(description).items() if name in TOLD}
    found = wandb.Artifact(
        re.sub(r"[^\w.-]+", "-", description.name).strip("-"),
        type="dataset",
        description=description.summary,
        metadata={"content_hash": description.content_hash, **told},
    )
    for name in description.files:
        found.add_reference((Path(description.where) / name).resolve().as_uri(), name=name)
    return found
