"""Verdicts of quality steps on the examples of each domain of every family (`*_quality`), found by the entry point `prep_assets.verdicts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.family import Family
from prep_assets.config.models import FAMILIES
from prep_assets.extensions.quality.checks import NOT_BLOCKED, VERDICTS_AGAIN
from prep_assets.extensions.quality.judging import (
    domains_before,
    domains_with_golds,
    family_with_golds,
    quality_recipe,
    tried,
    write_verdicts,
)
from prep_assets.extensions.quality.steps import quality_steps
from prep_assets.own_code import added_code
from prep_assets.pipeline.asset import VERDICT_COLUMNS, Asset
from prep_assets.pipeline.workspace import Workspace

__all__ = ["AFTER", "drops", "drops_alike", "runs_own_code", "tried", "verdict_asset"]

AFTER = ()
"""Verdicts of whose rows those that are dropped are not judged."""


def _no_steps(family: str, workspace: Workspace) -> str:
    return "" if workspace.family(FAMILIES[family]).quality.steps else f"{family}.yaml names no quality steps. Set quality.steps"


def _golds(family: str, workspace: Workspace) -> list[str]:
    """The assets with golds that steps judge by."""
    options = workspace.family(FAMILIES[family])
    return [f"{family_with_golds()}_raw"] if any(domains_with_golds(workspace, options, name) for name in options.domains) else []


def drops(workspace: Workspace, kind: type[Family]) -> bool:
    """Whether steps may drop examples of a family."""
    return bool(workspace.family(kind).quality.steps)


def drops_alike(family: Family) -> list[str]:
    """The reasons for which steps of a family drop examples because they are like others."""
    known = quality_steps()
    steps = (known[name] for name, options in family.quality.steps.items() if name in known and options.get("action", "drop") == "drop")
    return [step.corrupted[1] for step in steps if step.clusters]


def runs_own_code(family: Family) -> bool:
    """Whether some of the steps of a family are code of users or of other packages."""
    known = quality_steps()
    return any(name not in known or bool(added_code(known[name].factory.__module__)) for name in family.quality.steps)


def verdict_asset(raw: Asset, before: Mapping[str, Asset], further: Sequence[str]) -> Asset:
    """The asset that judges the examples of a family by quality steps."""
    return Asset(
        name=f"{raw.family}_quality",
        family=raw.family,
        description="""Verdicts of quality steps on every example of a domain, as `verdicts.parquet`.

Steps drop examples, note something about them, or block publication. Who reads the domain refuses what is dropped here, with the reason.""",
        write=write_verdicts,
        promises=("every example was judged by every step",),
        inputs=(("raw", raw),),
        depends=partial(quality_recipe, raw.family),
        reads=partial(_golds, raw.family),
        before=partial(domains_before, raw.family),
        partitioned=True,
        options=("quality.steps", "preprocessing.deduplicate", *further),
        checks=(INTEGRITY, NOT_BLOCKED, VERDICTS_AGAIN),
        absent=partial(_no_steps, raw.family),
        stage="quality",
        kind="parquet",
        columns=VERDICT_COLUMNS,
    )
