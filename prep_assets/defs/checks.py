"""Every check of `prep_assets.pipelines.proving.checks` as a blocking Dagster check. A store for which all of them hold is made current."""

from typing import Any

import dagster as dg

from prep_assets.config.models import FAMILIES
from prep_assets.defs.history import FAILED_PARTITIONS, failed_before
from prep_assets.defs.io_manager import checks_step
from prep_assets.defs.pictures import diff_block, picture
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.pipelines.graph import asset_named, assets_of
from prep_assets.pipelines.proving.checks import Check, checks_of, run_check
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.stores.published import Published

SHOWN_TOKENS = 600


def checks() -> list[dg.AssetChecksDefinition]:
    """One definition for each asset: all its checks in one step, each with a result of its own."""
    return [_checks_of(name, checks_of(name)) for name in assets_of(Workspace.open())]


def _checks_of(name: str, found: tuple[Check, ...]) -> dg.AssetChecksDefinition:
    specs = [dg.AssetCheckSpec(check.name, asset=name, description=check.description, blocking=True) for check in found]

    @dg.multi_asset_check(name=checks_step(name), specs=specs, can_subset=True)
    def run(context: dg.AssetCheckExecutionContext) -> Any:
        workspace = Workspace.open()
        partitions = _partitions(context, name, workspace)
        wanted = {key.name for key in context.selected_asset_check_keys}
        every = asset_named(name, workspace).partitions(workspace)
        stores = {each: store for each in every if (store := _latest(workspace, name, each))}
        proposed = {
            each: store
            for each, store in stores.items()
            if each in partitions and isinstance(store, Published) and workspace.place(name, each).candidate()
        }
        failed: set[str] = set()
        for check in found:
            # what has failed stays in view until it passes: a run of other partitions must not cover it up
            carried = failed_before(context.instance, name, check.name) & set(stores)
            # nothing is published on some of its checks, whichever were asked for
            chosen = [each for each in every if each in carried or each in partitions] if check.name in wanted else list(proposed)
            verdicts = {each: _verdict(workspace, name, each, check, stores.get(each)) for each in chosen}
            failed |= {each for each, verdict in verdicts.items() if not verdict.passed}
            if check.name in wanted:
                yield _result(workspace, name, check, verdicts)
        for each, store in proposed.items():
            if each not in failed:
                place = workspace.place(name, each)
                place.accept(store)
                context.log.info(f"{place.label}: every check holds, published: {store.directory}")

    return run


def _latest(workspace: Workspace, name: str, partition: str) -> Published | Verdict | None:
    """The store that was built last, a candidate or else the current one; what is wrong with it where its manifest cannot be read."""
    place = workspace.place(name, partition)
    try:
        return place.candidate() or place.current()
    except StoreError as error:
        return Verdict(False, str(error), {}, Worst(place.label, str(error)))


def _partitions(context: dg.AssetCheckExecutionContext, name: str, workspace: Workspace) -> list[str]:
    """The partitions that this run has built, in the order of the configuration; all that have a store where the check runs alone."""
    asset = asset_named(name, workspace)
    every = asset.partitions(workspace)
    if not asset.partitioned:
        return [""]
    tags = context.run.tags
    if "dagster/partition" in tags:
        return [tags["dagster/partition"]]
    if "dagster/asset_partition_range_start" in tags:
        start, end = (every.index(tags[f"dagster/asset_partition_range_{edge}"]) for edge in ("start", "end"))
        return list(every[start : end + 1])
    return [partition for partition in every if _latest(workspace, name, partition)]


def _verdict(workspace: Workspace, name: str, partition: str, check: Check, found: Published | Verdict | None) -> Verdict:
    if isinstance(found, Verdict):
        return found
    missing = f"{workspace.place(name, partition).label} has no store"
    return run_check(check, workspace, found) if found else Verdict(False, missing, {}, Worst(name, missing))


def _result(workspace: Workspace, name: str, check: Check, verdicts: dict[str, Verdict]) -> dg.AssetCheckResult:
    failed = {partition: verdict for partition, verdict in verdicts.items() if not verdict.passed}
    shown = failed or verdicts
    summary = "; ".join(f"{partition}: {verdict.summary}" if partition else verdict.summary for partition, verdict in shown.items())
    metadata: dict[str, Any] = {}
    for verdict in verdicts.values():
        for key, value in verdict.numbers.items():
            metadata[key] = metadata.get(key, 0) + value
    worst = next((verdict.worst for verdict in failed.values() if verdict.worst), None)
    if worst is not None:
        metadata |= _worst_row(workspace, name, worst)
    if failed and asset_named(name, workspace).partitioned:
        metadata[FAILED_PARTITIONS] = dg.MetadataValue.json(list(failed))
    return dg.AssetCheckResult(
        passed=bool(verdicts) and not failed,
        asset_key=name,
        check_name=check.name,
        severity=dg.AssetCheckSeverity.ERROR,
        description=summary[:2000] or "no store to look at",
        metadata=metadata,
    )


def _worst_row(workspace: Workspace, name: str, worst: Worst) -> dict[str, Any]:
    """The row that fails, with its tokens as they are."""
    if not worst.ids:
        return {"worst_row": dg.MetadataValue.text(f"{worst.where}: {worst.note}")}
    try:
        vocabulary = workspace.vocabulary(workspace.family(FAMILIES[asset_named(name, workspace).family]))
    except PrepAssetsError:
        return {"worst_row": dg.MetadataValue.text(f"{worst.where}: {worst.note}")}
    from prep_assets.pipelines.preview_row import Preview, token_texts

    ids = worst.ids[:SHOWN_TOKENS]
    texts = tuple(token_texts(vocabulary, [each])[0] if 0 <= each < vocabulary.size else f"⟨id {each}⟩" for each in ids)
    shown = Preview(f"{worst.where}: {worst.note}", texts, worst.weights[:SHOWN_TOKENS], tuple(range(len(texts))), ())
    return {"worst_row": dg.MetadataValue.md(diff_block(shown)), "worst_row_tokens": dg.MetadataValue.md(picture(shown))}
