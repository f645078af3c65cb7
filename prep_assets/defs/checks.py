"""Every check of `prep_assets.pipelines.checks` as a blocking Dagster check."""

from typing import Any

import dagster as dg

from prep_assets.config.models import FAMILIES
from prep_assets.defs.history import FAILED_PARTITIONS, failed_before
from prep_assets.defs.pictures import diff_block, picture
from prep_assets.errors import PrepAssetsError
from prep_assets.pipelines.checks import Check, checks_of, run_check
from prep_assets.pipelines.graph import asset_named, assets_of
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.verdict import Verdict, Worst

SHOWN_TOKENS = 600


def checks() -> list[dg.AssetChecksDefinition]:
    """One definition for each asset: all its checks in one step, each with a result of its own."""
    return [_checks_of(name, checks_of(name)) for name in assets_of(Workspace.open())]


def _checks_of(name: str, found: tuple[Check, ...]) -> dg.AssetChecksDefinition:
    specs = [dg.AssetCheckSpec(check.name, asset=name, description=check.description, blocking=True) for check in found]

    @dg.multi_asset_check(name=f"{name}_checks", specs=specs, can_subset=True)
    def run(context: dg.AssetCheckExecutionContext) -> Any:
        workspace = Workspace.open()
        partitions = _partitions(context, name, workspace)
        wanted = {key.name for key in context.selected_asset_check_keys}
        for check in found:
            if check.name in wanted:
                # what has failed stays in view until it passes: a run of other partitions must not cover it up
                carried = {each for each in failed_before(context.instance, name, check.name) if workspace.published(name, each)}
                chosen = [each for each in asset_named(name, workspace).partitions(workspace) if each in carried or each in partitions]
                yield _result(workspace, name, check, chosen)

    return run


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
    return [partition for partition in every if workspace.published(name, partition)]


def _result(workspace: Workspace, name: str, check: Check, partitions: list[str]) -> dg.AssetCheckResult:
    verdicts: dict[str, Verdict] = {}
    for partition in partitions:
        published = workspace.published(name, partition)
        missing = f"{workspace.place(name, partition).label} has no store"
        verdicts[partition] = run_check(check, workspace, published) if published else Verdict(False, missing, {}, Worst(name, missing))
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
    from prep_assets.pipelines.previews import Preview, token_texts

    ids = worst.ids[:SHOWN_TOKENS]
    texts = tuple(token_texts(vocabulary, [each])[0] if 0 <= each < vocabulary.size else f"⟨id {each}⟩" for each in ids)
    shown = Preview(f"{worst.where}: {worst.note}", texts, worst.weights[:SHOWN_TOKENS], tuple(range(len(texts))), ())
    return {"worst_row": dg.MetadataValue.md(diff_block(shown)), "worst_row_tokens": dg.MetadataValue.md(picture(shown))}
