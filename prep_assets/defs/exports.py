"""Exports: files for trainers, one asset for each that a family's configuration asks for."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from prep_assets.config.models import FAMILIES
from prep_assets.defs.building import build, declare
from prep_assets.pipelines.workspace import Workspace

if TYPE_CHECKING:
    from prep_assets.pipelines.exporting.build import Exporting

KINDS = {"cerebras": "hdf5", "hf_arrow": "huggingface", "packed_parquet": "parquet", "tlfs": "hdf5", "verl": "parquet"}
"""What the web UI shows beside the asset's name; raw arrays where nothing is said."""


class Fixed(dg.Config):
    """An export has no options of one run: they stand in the configuration file, which names the asset."""


def exports() -> list[dg.AssetsDefinition]:
    """The exports that the configuration asks for; none as shipped."""
    workspace = Workspace.open()
    if not any(workspace.family(kind).exports for name, kind in FAMILIES.items() if workspace.has(name)):
        return []
    from prep_assets.pipelines.exporting.build import configured_exports

    return [_asset(each) for each in configured_exports(workspace)]


def _asset(each: "Exporting") -> dg.AssetsDefinition:
    from prep_assets.exports import exports as formats

    def export(context: dg.AssetExecutionContext, config: Fixed) -> dg.MaterializeResult[Any]:
        return build(context, config)

    summary = formats()[each.format].summary
    export.__doc__ = f"{each.source} as files of {each.format}, {each.stream}.\n\n{summary}"
    tags = {"prep_assets/format": each.format}
    return declare(each.asset, kinds={"python", KINDS.get(each.format, "numpy")}, tags=tags)(export)
