"""Every asset with its checks, made from the graph, and the pages of a family as an asset."""

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg

from prep_assets.config.loading import yaml_values
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.dagster.materialize import check_only, materialize
from prep_assets.extensions.dagster.metadata import WARNINGS, code_version, warns
from prep_assets.extensions.dagster.site import Nothing, Partitions, Site, domains, found_domains, options
from prep_assets.graph.graph import ASSETS, EVERY, family_assets
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.plugins import ours
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import Published

ABOUT_PAGES = """Pages about the family's stores: what they hold, rows with masks and both derivations of them, refused records, lineage.

Each page is one file that holds its data and needs no network. `prep-assets report` writes the same."""
PAGES = ".reports"
"""Folder of pages in the folder of stores."""
SINGLE_RUN = dg.BackfillPolicy.single_run()
WHERE = dg.DagsterType(lambda context, value: True, "Where", typing_type=Place)
"""Type of inputs: the place of upstream stores, which the engine opens after it built what is missing."""
POOL = "prep_assets"
"""The pool of steps that build: a step may use all cores and gigabytes of memory, so a limit on the pool keeps runs from piling up."""


def report_asset(site: Site, family: str, assets: Sequence[Asset]) -> dg.AssetsDefinition:
    """The asset ``<family>_report``: pages of the current stores; it builds no store."""

    @dg.asset(
        key=site.key(f"{family}_report"),
        deps=[site.key(asset.name) for asset in assets],
        group_name=site.group or family,
        kinds={"python", "html"},
        owners=list(site.owners),
        tags={"prep_assets/family": family, **site.tags},
        description=ABOUT_PAGES,
        backfill_policy=SINGLE_RUN,  # without, Dagster refuses a range of partitions that is selected with it
        required_resource_keys={site.resource, site.io_manager_key},
    )
    def body(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]
        pages_of = import_module(ours("commands")["report"].module)  # those that `prep-assets report` writes

        workspace = site.in_run(context)
        stores = {asset.name: _stores(workspace, asset) for asset in assets}
        pages: list[Path] = []
        folder = workspace.stores / PAGES / family
        pages_of.write_site(workspace, {name: published for name, published in stores.items() if published}, folder, written=pages.append)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.url((folder / pages_of.INDEX).resolve().as_uri()),
                **{page.stem: dg.MetadataValue.path(str(page)) for page in pages},
                "pages": len(pages),
            }
        )

    return body


def _stores(workspace: Workspace, asset: Asset) -> list[Published]:
    stores = (workspace.published(asset.name, partition) for partition in asset.partitions(workspace))
    return [store for store in stores if store is not None]


def family_definitions(site: Site, family: str) -> list[dg.AssetsDefinition]:
    """The assets of one family, and its report.

    An invalid configuration gives the same assets, each of which shows the error, so that other families load.
    """
    workspace = site.declared()
    try:
        partitions = domains(site, family)
        assets = list(family_assets(workspace, family).values())
        # a model of many fields, which takes longer to make than all else here
        run_config = options(family, workspace.declared(FAMILIES[family]))
        found = (_asset(site, workspace, asset, partitions, run_config if asset.name in EVERY else Nothing) for asset in assets)
        return [*found, report_asset(site, family, assets)]
    except PrepAssetsError as error:
        logging.getLogger("prep_assets").error("%s", error)
        return [_broken_asset(site, workspace, asset, str(error)) for asset in ASSETS.values() if asset.family == family]


def _spec(site: Site, asset: Asset, **options: Any) -> dg.AssetSpec:
    return dg.AssetSpec(
        site.key(asset.name),
        group_name=site.group or asset.family,
        kinds={"python", asset.kind},
        owners=list(site.owners),
        tags={"prep_assets/family": asset.family, **site.tags},
        **options,
    )


def _dep(site: Site, asset: Asset, above: Asset) -> dg.AssetDep:
    """What an asset reads: the same partition, but of another family all of them."""
    everything = dg.AllPartitionMapping() if above.partitioned and above.family != asset.family else None
    return dg.AssetDep(site.key(above.name), partition_mapping=everything)


def _project_assets(site: Site, asset: Asset) -> list[dg.AssetKey]:
    """Assets of the project that write the source files of an asset."""
    return list(dict.fromkeys(key for keys in site.upstream.values() for key in keys)) if asset.name.endswith("_raw") else []


def _asset(site: Site, workspace: Workspace, asset: Asset, partitions: Partitions, Options: type[dg.Config]) -> dg.AssetsDefinition:
    partitions_def = partitions if asset.partitioned else None
    columns = [dg.TableColumn(name, kind, description=description) for name, kind, description in asset.columns]
    spec = _spec(
        site,
        asset,
        description=asset.description,
        code_version=code_version(workspace, asset),
        metadata={"columns": dg.TableSchema(columns)} if columns else {},
        automation_condition=_automation(asset),
        freshness_policy=_freshness(workspace, asset),
    )
    # Dagster 1.13 cannot load inputs of a partitioned asset in a run without partitions, such as one of checks only
    inputs = () if asset.partitioned else asset.upstream(workspace)

    @dg.multi_asset(
        name=site.named(asset.name),
        outs={asset.name: dg.AssetOut.from_spec(spec, io_manager_key=site.io_manager_key, is_required=False)},
        ins={name: dg.AssetIn(site.key(name), dagster_type=WHERE) for name in inputs},
        deps=[*(_dep(site, asset, EVERY[name]) for name in asset.upstream(workspace) if name not in inputs), *_project_assets(site, asset)],
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=spec.key, description=check.description, blocking=True, partitions_def=partitions_def)
            for check in asset.checks
        ]
        + [
            dg.AssetCheckSpec(
                WARNINGS, asset=spec.key, description="Metrics are inside the limits that warn.", partitions_def=partitions_def
            )
            for _ in range(warns(workspace, asset))
        ],
        # so that checks can run without materializing
        can_subset=True,
        partitions_def=partitions_def,
        backfill_policy=SINGLE_RUN,
        required_resource_keys={site.resource, site.io_manager_key},
        pool=POOL,
    )
    def body(context: dg.AssetExecutionContext, config: Options, **upstream: Any) -> Iterator[Any]:  # type: ignore[valid-type]
        if context.op_execution_context.selected_asset_keys:
            yield from materialize(context, config, site, asset, upstream)
        else:
            yield from check_only(context, site, asset)
        # evaluations are recorded by partition; an output per check says that it ran
        for key in context.op_execution_context.selected_asset_check_keys:
            yield dg.Output(None, f"{spec.key.to_python_identifier()}_{key.name}")

    return body


def _automation(asset: Asset) -> dg.AutomationCondition[Any] | None:
    """Rebuild when upstream assets have changed and none of their blocking checks fails. Sensors handle sources.

    `all_deps_blocking_checks_passed` would build a packed table as soon as the checks of one domain pass; here none may fail. Upstream assets that
    Dagster has not recorded are no reason to wait: they were built on the command line, or are built first.
    """
    if not asset.inputs:
        return None
    condition = dg.AutomationCondition
    failed = condition.check_failed() & ~condition.will_be_requested()
    fails = condition.any_deps_match(condition.any_checks_match(failed, blocking_only=True)).with_label("any_deps_blocking_checks_failed")
    return condition.eager().without(~condition.any_deps_missing()) & ~fails


def _freshness(workspace: Workspace, asset: Asset) -> dg.FreshnessPolicy | None:
    hours = workspace.family(FAMILIES[asset.family]).refresh.fresh_for
    return None if hours is None else dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=hours))


def _broken_asset(site: Site, workspace: Workspace, asset: Asset, fault: str) -> dg.AssetsDefinition:
    """An asset of a family with an invalid configuration: it stays in the graph, and shows the error."""
    spec = _spec(site, asset, description=f"**Invalid configuration.**\n\n```\n{fault}\n```")

    @dg.multi_asset(
        name=site.named(asset.name),
        specs=[
            spec.replace_attributes(
                deps=[*(site.key(above.name) for _, above in asset.inputs if above.absent is None), *_project_assets(site, asset)]
            )
        ],
        partitions_def=_listed_domains(site, workspace, asset.family) if asset.partitioned else None,
        backfill_policy=SINGLE_RUN,
    )
    def body(context: dg.AssetExecutionContext) -> None:
        raise dg.Failure(fault, allow_retries=False)

    return body


def _listed_domains(site: Site, workspace: Workspace, family: str) -> Partitions | None:
    """The domains of an invalid configuration, as far as it can be parsed."""
    try:
        path = workspace.configs / f"{family}.yaml"
        listed = yaml_values(path.read_text("utf-8"), path)["domains"]
        if any("domains" in domain for domain in listed.values()):
            return found_domains(site, family)
        return dg.StaticPartitionsDefinition([str(name) for name in listed]) if listed else None
    except Exception:  # assets of the family show the error; they must load all the same
        return None


def families(workspace: Workspace) -> list[str]:
    """The families that have a configuration file."""
    return [family for family in FAMILIES if workspace.has(family)]
