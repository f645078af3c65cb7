"""`*_quality`: what quality steps say of the examples of a domain. A family has it where its configuration names steps."""

from __future__ import annotations

from functools import partial

from prep_assets.checks.of_quality import NOT_BLOCKED, VERDICTS_AGAIN
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.models import FAMILIES
from prep_assets.pipeline.asset import VERDICT_COLUMNS, Asset
from prep_assets.pipeline.quality import domains_before, domains_with_golds, quality_recipe, write_verdicts
from prep_assets.pipeline.verdicts import read_verdicts
from prep_assets.pipeline.workspace import Workspace


def _absent(family: str, workspace: Workspace) -> str:
    return "" if workspace.family(FAMILIES[family]).quality.steps else f"{family}.yaml names no quality steps. Set quality.steps"


def _golds(family: str, workspace: Workspace) -> list[str]:
    """The assets with golds that steps judge by."""
    options = workspace.family(FAMILIES[family])
    return ["rl_raw"] if any(domains_with_golds(workspace, options, name) for name in options.domains) else []


def quality_asset(raw: Asset) -> Asset:
    """The asset that judges the examples of a family."""
    return Asset(
        name=f"{raw.family}_quality",
        family=raw.family,
        description="""Verdicts of quality steps on every example of a domain, as `verdicts.parquet`.

Steps drop examples, note something about them, or block publication. Who reads the domain refuses what is dropped here, with the reason.""",
        write=write_verdicts,
        inputs=(("raw", raw),),
        depends=partial(quality_recipe, raw.family),
        reads=partial(_golds, raw.family),
        before=partial(domains_before, raw.family),
        partitioned=True,
        options=("quality.steps", "preprocessing.deduplicate", *(["max_per_source"] if raw.family == "preference" else [])),
        checks=(INTEGRITY, NOT_BLOCKED, VERDICTS_AGAIN),
        preview=lambda store, row, stream, limit: dict(read_verdicts(store.published).slice(row, 1).to_pylist()[0]),
        absent=partial(_absent, raw.family),
        stage="quality",
        kind="parquet",
        columns=VERDICT_COLUMNS,
    )
