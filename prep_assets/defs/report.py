"""The pages of a family as an asset: one HTML file for each asset that has a store, and a first page that lists them."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.site import Site
from prep_assets.stores.published import Published

DESCRIPTION = """Pages about the family's stores: what they hold, rows with masks and both derivations of them, refused records, lineage.

Each page is one file that holds its data and needs no network. `prep-assets report` writes the same."""
FOLDER = ".reports"
"""Folder of pages among the stores."""


def report_asset(site: Site, family: str, assets: Sequence[Asset]) -> dg.AssetsDefinition:
    """The asset ``<family>_report``. Nothing is built for it: it shows the stores that are current."""

    @dg.asset(
        key=site.key(f"{family}_report"),
        deps=[site.key(asset.name) for asset in assets],
        group_name=site.group or family,
        kinds={"python", "html"},
        owners=list(site.owners),
        tags={"prep_assets/family": family, **site.tags},
        description=DESCRIPTION,
        required_resource_keys={site.resource},
    )
    def body(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        from prep_assets.reports.server import INDEX, write_site

        workspace: Workspace = getattr(context.resources, site.resource).open()
        stores = {asset.name: _stores(workspace, asset) for asset in assets}
        pages: list[Path] = []
        folder = workspace.stores / FOLDER / family
        write_site(workspace, {name: each for name, each in stores.items() if each}, folder, written=pages.append)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.url((folder / INDEX).resolve().as_uri()),
                **{page.stem: dg.MetadataValue.path(str(page)) for page in pages},
                "pages": len(pages),
            }
        )

    return body


def _stores(workspace: Workspace, asset: Asset) -> list[Published]:
    found = (workspace.published(asset.name, each) for each in asset.partitions(workspace))
    return [each for each in found if each is not None]
