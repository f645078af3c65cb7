"""Assets that several families have: verdicts on the examples of a domain, by quality steps (`*_quality`) and by what `eval.yaml` holds out (`*_leaks`); the
stores of all domains as one; and the order in which a trainer sees the items of all domains (`*_blend`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from prep_assets.checks.of_packed import MIXTURE
from prep_assets.checks.of_quality import LEAKS_AGAIN, NO_LEAKS, NOT_BLOCKED, VERDICTS_AGAIN
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.models import FAMILIES
from prep_assets.graph.eval import EVAL_PASSAGES
from prep_assets.pipeline.asset import BLEND_COLUMNS, LEAK_COLUMNS, VERDICT_COLUMNS, Asset, FromParts, FromRows
from prep_assets.pipeline.blends import BLEND, write_blend_of
from prep_assets.pipeline.leaks import leaks_recipe, write_leaks
from prep_assets.pipeline.merging import merge_parts
from prep_assets.pipeline.quality import domains_before, domains_with_golds, family_with_golds, quality_recipe, write_verdicts
from prep_assets.pipeline.verdicts import drops_leaks
from prep_assets.pipeline.workspace import Workspace


def _no_steps(family: str, workspace: Workspace) -> str:
    return "" if workspace.family(FAMILIES[family]).quality.steps else f"{family}.yaml names no quality steps. Set quality.steps"


def _golds(family: str, workspace: Workspace) -> list[str]:
    """The assets with golds that steps judge by."""
    options = workspace.family(FAMILIES[family])
    return [f"{family_with_golds()}_raw"] if any(domains_with_golds(workspace, options, name) for name in options.domains) else []


def quality_asset(raw: Asset, *further: str) -> Asset:
    """The asset that judges the examples of a family. `further`: options that limit what it reads."""
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
        promises=("every example was searched for every held-out text",),
        inputs=(("raw", raw), ("quality", quality), ("passages", EVAL_PASSAGES)),
        depends=partial(leaks_recipe, raw.family),
        partitioned=True,
        checks=(INTEGRITY, NO_LEAKS, LEAKS_AGAIN),
        absent=_nothing_held_out,
        feeds=drops_leaks,
        stage="leaks",
        kind="parquet",
        columns=LEAK_COLUMNS,
    )


# Blends: which item of which domain comes next, by weights, passes, budgets and a schedule. An index, which copies no token.


def merged_asset(part: Asset, description: str, *, promises: tuple[str, ...] = (), **attributes: Any) -> Asset:
    """The asset that merges the stores of all domains of ``<name>_by_domain`` into one store of the same streams and columns.

    Args:
        promises: what holds of what `merge_parts` writes.
        attributes: what else is not as in `part`.
    """
    counts = (*part.source.counts, *part.source.uncounted) if isinstance(part.source, FromRows) else ()
    merged = {
        "name": part.name.removesuffix("_by_domain"),
        "description": description,
        "write": merge_parts,
        "promises": promises,
        "inputs": (("domains", part),),
        "partitioned": False,
        "source": FromParts((part.name,), counts=counts),
    }
    return replace(part, **{**merged, **attributes})


def _no_blend(family: str, workspace: Workspace) -> str:
    return "" if getattr(workspace.family(FAMILIES[family]), "blend", None) else f"{family}.yaml has no blend"


def blend_asset(tokens: Asset) -> Asset:
    """The asset that orders the items of a family's domains."""
    return Asset(
        name=f"{tokens.family}_blend",
        family=tokens.family,
        description="""In which order, and how often, a trainer sees the items of all domains: two integers an item, and no token.

`BlendDataset` reads it. Another weight writes another order, and nothing else.""",
        write=write_blend_of,
        promises=("every item is a window or record of its domain",),
        inputs=(("tokens", tokens),),
        options=("blend",),
        checks=(INTEGRITY, MIXTURE),
        absent=partial(_no_blend, tokens.family),
        stage=BLEND,
        columns=BLEND_COLUMNS,
    )
