"""Assets that several families have: verdicts on the examples of a domain, of each entry point of `prep_assets.verdicts`; the stores of all domains as
one; and the order in which a trainer sees the items of all domains (`*_blend`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from prep_assets import plugins
from prep_assets.checks.of_packed import MIXTURE
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.models import FAMILIES
from prep_assets.pipeline.asset import BLEND_COLUMNS, Asset, FromParts, FromRows
from prep_assets.pipeline.blends import BLEND, write_blend_of
from prep_assets.pipeline.merging import merge_parts
from prep_assets.pipeline.workspace import Workspace


def verdict_assets(raw: Asset, *further: str) -> dict[str, Asset]:
    """The assets that judge the rows of a family, by their last words, which an entry point gives; what reads the rows has them among its inputs.

    Args:
        further: options that limit which rows are read.
    """
    entries, found = plugins.entries("verdicts"), dict[str, Asset]()

    def add(name: str) -> Asset:
        if name not in found:
            before = {each: add(each) for each in plugins.part_of(entries[name], "AFTER") if each in entries}
            found[name] = plugins.part_of(entries[name], "verdict_asset")(raw, before, further)
        return found[name]

    for name in entries:
        add(name)
    return found


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
    return "" if workspace.family(FAMILIES[family]).of_some("blend") else f"{family}.yaml has no blend"


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
