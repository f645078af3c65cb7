"""Scored groups of all domains as one (offline GRPO), in the order of the domains; see `rl_groups_by_domain`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.groups import GROUP_ROWS
from prep_assets.assets.checks.merged import MERGED_RECORDS
from prep_assets.assets.columns import GROUPS as COLUMNS
from prep_assets.assets.previews.groups import group_preview
from prep_assets.assets.reading.rl_domains import group_domains
from prep_assets.assets.rl_groups_by_domain import absent, folders
from prep_assets.assets.selftest.merged import merged_record_trials
from prep_assets.assets.stage import Asset, FromParts, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.groups import TEST, splits
from prep_assets.assets.writing.in_shards import add
from prep_assets.assets.writing.merging import parts_of
from prep_assets.assets.writing.sampled_groups import stores_logprobs
from prep_assets.assets.writing.tokens import ids_dtype
from prep_assets.config.models import Rl
from prep_assets.stores.groups import GroupStore, GroupWriter, open_groups
from prep_assets.stores.published import Draft

PARTS = "rl_groups_by_domain"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the groups depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Rl)
    return {
        "domains": {name: workspace.content(PARTS, name) for name in group_domains(family)},
        "output": family.output.model_dump(),
    }


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the groups of all domains, domain by domain."""
    family = workspace.family(Rl)
    names, dtype, output = group_domains(family), ids_dtype(family, workspace.vocabulary(family)), family.output
    shard, logprobs = output.max_tokens_per_shard, stores_logprobs(family)
    parts = parts_of(workspace, PARTS, names)
    with ExitStack() as stack:
        for split, folder in zip(("train", TEST), folders(family, names, payload), strict=False):
            writer = GroupWriter(output.storage_format, folder, dtype, names, max_tokens_per_shard=shard, logprobs=logprobs)
            stack.enter_context(writer)
            for number, part in enumerate(parts.values()):
                if split in (found := splits(part.directory)):
                    writer.append_store(open_groups(found[split]), number)
    counts: dict[str, Any] = {}
    for part in parts.values():
        add(counts, {key: value for key, value in part.manifest.counts.items() if isinstance(value, int)})
    return Draft({**counts, "read": counts["kept"], "refused": {}}, {}, ())


ASSET = Asset(
    name="rl_groups",
    family="rl",
    description="Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO.",
    version=VERSION,
    depends=_depends,
    write=_write,
    upstream=(PARTS,),
    options=("output",),
    checks=(INTEGRITY, ACCOUNTING, GROUP_ROWS, MERGED_RECORDS),
    preview=group_preview,
    selftest=merged_record_trials,
    streams={"train": Stream(GroupStore, None), TEST: Stream(GroupStore, TEST)},
    source=FromParts((PARTS,)),
    domains=group_domains,
    absent=absent,
    columns=COLUMNS,
)
