"""The IO manager: publishes the stores that assets describe, and hands out published ones.

An asset returns `{partition: Build}` (or one `Build`): how to make its stores. `handle_output` makes them one after another, so memory
holds one at a time; each is written and audited on its own (see `prep_assets.stores.published`), and one that is there already is left
alone. A store becomes current when its checks hold: in the step of its checks, or here at once where the run has no such step.
`load_input` gives handles, never data: `{partition: Published}` in the order of the partitions, or one `Published`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from prep_assets.defs.mixture import mixture_picture
from prep_assets.defs.pictures import diff_block, picture
from prep_assets.errors import PrepAssetsError
from prep_assets.pipelines.build import Build
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.graph import EVERY
from prep_assets.pipelines.proving.checks import checks_of, run_check
from prep_assets.pipelines.workspace import Workspace
from prep_assets.stores.manifest import digest
from prep_assets.stores.published import Place, Published

SHOWN_FILES = 20
SHARE = "share_"


class StoreIOManager(dg.ConfigurableIOManager):
    """Stores in `PREP_ASSETS_STORE_DIR`, by default `data/stores`: memory-mapped `bin` or HDF5, as each build's configuration says."""

    def handle_output(self, context: dg.OutputContext, obj: Build | Mapping[str, Build]) -> None:
        builds = {"": obj} if isinstance(obj, Build) else dict(obj)
        if context.has_asset_partitions and set(builds) != set(context.asset_partition_keys):
            asked, got = sorted(context.asset_partition_keys), sorted(builds)
            raise dg.Failure(f"{context.asset_key.to_user_string()}: asked for partitions {asked}, got {got}", allow_retries=False)
        done: dict[str, Published] = {}
        for partition, build in builds.items():
            done[partition] = _publish(context, build)
        hashes = {partition: store.manifest.content_hash for partition, store in done.items()}
        version = hashes[""] if set(hashes) == {""} else next(iter(hashes.values())) if len(hashes) == 1 else digest(hashes)
        # what the asset was made from may have been built by this very step, after Dagster noted the versions of its inputs
        context.step_context.fetch_external_input_asset_version_info()
        context.step_context.set_data_version(context.asset_key, dg.DataVersion(version[:32]))

    def load_input(self, context: dg.InputContext) -> Published | dict[str, Published]:
        name = context.asset_key.to_user_string()
        workspace = Workspace.open()
        if not context.has_asset_partitions:
            return _required(workspace, name, "")
        # Dagster gives the keys of a range in no particular order
        wanted = set(context.asset_partition_keys)
        ordered = [key for key in context.asset_partitions_def.get_partition_keys() if key in wanted]
        return {key: _required(workspace, name, key) for key in ordered}


def checks_step(asset: str) -> str:
    """Name of the step that runs an asset's checks."""
    return f"{asset}_checks"


def _publish(context: dg.OutputContext, build: Build) -> Published:
    place = build.place
    context.log.info(f"{place.label}: build key {build.key[:20]}")
    try:
        published = build.propose()
        if not _checked_later(context, place.asset):
            _accept_checked(published, place)
    except PrepAssetsError as error:
        text = str(error)
        raise dg.Failure(text if text.startswith(place.label) else f"{place.label}: {text}", allow_retries=False) from error
    context.log.info(f"{place.label}: {'nothing to do, the store is there' if published.reused else 'written'}: {published.directory}")
    metadata = store_metadata(published)
    step = context.step_context
    if place.partition:
        step.add_asset_metadata(asset_key=context.asset_key, metadata=metadata, partition_key=place.partition)
    else:
        context.add_output_metadata(metadata)
    return published


def _checked_later(context: dg.OutputContext, asset: str) -> bool:
    """Whether a step of this run checks the store, and accepts it if its checks hold."""
    steps = context.step_context.dagster_run.step_keys_to_execute
    checking = checks_step(asset)
    return context.step_context.job_def.graph.has_node_named(checking) and (not steps or checking in steps)


def _accept_checked(published: Published, place: Place) -> None:
    if place.candidate() is None:  # it is current already
        return
    workspace = Workspace.open()
    failed = {check.name: verdict for check in checks_of(place.asset) if not (verdict := run_check(check, workspace, published)).passed}
    if failed:
        reasons = "\n".join(f"  {name}: {verdict.summary}" for name, verdict in failed.items())
        raise PrepAssetsError(f"not published, because it fails its checks. The store is left in {published.directory}\n{reasons}")
    place.accept(published)


def _required(workspace: Workspace, name: str, partition: str) -> Published:
    found = workspace.published(name, partition)
    if found is None:
        where = workspace.place(name, partition)
        command = materialize_command(name, partition)
        raise dg.Failure(f"{where.label}: no store in {where.directory}. Build it with:\n  {command}", allow_retries=False)
    return found


def store_metadata(published: Published) -> dict[str, Any]:
    """What Dagster shows of a materialization: counts and metrics (plotted over time), where it is, a look inside."""
    manifest = published.manifest
    numbers = {key: value for key, value in {**manifest.counts, **manifest.metrics}.items() if isinstance(value, int | float)}
    rows = numbers.get("rows", numbers.get("kept"))
    refused = dict(manifest.counts.get("refused", {}))
    metadata: dict[str, Any] = {
        **({"dagster/row_count": rows} if rows is not None else {}),
        **dict(sorted(numbers.items())),
        "refused_records": sum(refused.values()),
        "path": dg.MetadataValue.path(str(published.directory)),
        "content_hash": manifest.content_hash[:32],
        "build_key": manifest.build_key[:20],
        "reused": published.reused,
        "bytes": sum(entry["bytes"] for entry in manifest.files.values()),
    }
    if refused:
        metadata["refused_by_reason"] = dg.MetadataValue.json(refused)
        metadata["quarantine"] = dg.MetadataValue.path(str(published.quarantine))
    return {**metadata, **_mixture(published), **_look_inside(published)}


def _mixture(published: Published) -> dict[str, Any]:
    shares = {key.removeprefix(SHARE): value for key, value in published.manifest.metrics.items() if key.startswith(SHARE)}
    if not shares:
        return {}
    asked = published.manifest.recipe["packing"]["weights"]
    return {"mixture": dg.MetadataValue.md(mixture_picture(shares, asked or {}))}


def _look_inside(published: Published) -> dict[str, Any]:
    if published.manifest.asset not in EVERY or not (published.manifest.counts.get("rows") or published.manifest.counts.get("kept")):
        return {}
    from prep_assets.pipelines.preview_row import Preview
    from prep_assets.pipelines.previews import preview

    try:
        shown = preview(Workspace.open(), published, 0)
    except PrepAssetsError:
        return {}
    if isinstance(shown, Preview):
        return {"preview": dg.MetadataValue.md(diff_block(shown)), "preview_row": dg.MetadataValue.md(picture(shown))}
    # a source may have many thousands of files, and metadata is a row of the event log
    return {"preview": dg.MetadataValue.json({key: each[:SHOWN_FILES] if isinstance(each, list) else each for key, each in shown.items()})}
