"""Verdicts on the examples of a domain: `*_quality`, by the quality steps that a family's configuration names, and `*_leaks`, which of them hold texts that
`eval.yaml` holds out."""

from __future__ import annotations

from functools import partial

from prep_assets.checks.of_quality import LEAKS_AGAIN, NO_LEAKS, NOT_BLOCKED, VERDICTS_AGAIN
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.models import FAMILIES
from prep_assets.graph.eval import EVAL_PASSAGES
from prep_assets.pipeline.asset import LEAK_COLUMNS, VERDICT_COLUMNS, Asset
from prep_assets.pipeline.leaks import leaks_recipe, write_leaks
from prep_assets.pipeline.quality import domains_before, domains_with_golds, quality_recipe, write_verdicts
from prep_assets.pipeline.verdicts import drops_leaks, read_verdicts
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


def _nothing_held_out(workspace: Workspace) -> str:
    return "" if workspace.has("eval") else "there is no eval.yaml that says what is held out"


def leaks_asset(raw: Asset, quality: Asset) -> Asset:
    """The asset that searches the examples of a family for what is held out."""
    return Asset(
        name=f"{raw.family}_leaks",
        family=raw.family,
        description="""Examples of a domain that hold a held-out text, as `verdicts.parquet`: which, of which data set, and how much of it.

What is made of the domain waits until none is left, or refuses them, or does not mind: `policy` in eval.yaml.""",
        write=write_leaks,
        inputs=(("raw", raw), ("quality", quality), ("passages", EVAL_PASSAGES)),
        depends=partial(leaks_recipe, raw.family),
        partitioned=True,
        checks=(INTEGRITY, NO_LEAKS, LEAKS_AGAIN),
        preview=lambda store, row, stream, limit: dict(next(iter(read_verdicts(store.published).slice(row, 1).to_pylist()), {})),
        absent=_nothing_held_out,
        feeds=drops_leaks,
        stage="leaks",
        kind="parquet",
        columns=LEAK_COLUMNS,
    )
