"""RL prompts of all domains as one: ``rl_prompts_train.jsonl`` and ``rl_prompts_test.jsonl``, see `rl_prompts_by_domain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_LINES
from prep_assets.assets.columns import PROMPTS as COLUMNS
from prep_assets.assets.previews.lines import line_preview
from prep_assets.assets.reading.rl_domains import prompt_domains
from prep_assets.assets.rl_prompts_by_domain import TEST, TRAIN
from prep_assets.assets.selftest.merged import merged_line_trials
from prep_assets.assets.stage import Asset, FromParts, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.merging import merge_lines, parts_of
from prep_assets.config.models import Rl
from prep_assets.stores.lines import Lines
from prep_assets.stores.published import Draft

PARTS = "rl_prompts_by_domain"


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the prompt files depend on. Domains are sorted, so their order in the configuration does not matter."""
    return {"domains": {name: workspace.content(PARTS, name) for name in prompt_domains(workspace.family(Rl))}}


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the files of all domains as one each, in the order of the domains."""
    parts = parts_of(workspace, PARTS, prompt_domains(workspace.family(Rl)))
    lines = {TRAIN: 0, TEST: 0} | merge_lines(parts, payload, {TRAIN: None, TEST: None})
    read = sum(part.manifest.counts["kept"] for part in parts.values())
    return Draft({"read": read, "kept": sum(lines.values()), "train": lines[TRAIN], "test": lines[TEST], "refused": {}}, {}, ())


ASSET = Asset(
    name="rl_prompts",
    family="rl",
    description="Prompts with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    version=VERSION,
    depends=_depends,
    write=_write,
    upstream=(PARTS,),
    checks=(INTEGRITY, ACCOUNTING, MERGED_LINES),
    preview=line_preview,
    selftest=merged_line_trials,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST)},
    source=FromParts((PARTS,)),
    domains=prompt_domains,
    may_be_empty=lambda workspace, _: not prompt_domains(workspace.family(Rl)),
    kind="json",
    columns=COLUMNS,
)
