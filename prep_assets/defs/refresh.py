"""Refresh: a sensor per family that watches its source files, a nightly schedule per family, and automation inside the graph."""

import json
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import dagster as dg

from prep_assets.config.models import FAMILIES, Domain
from prep_assets.defs.partitions import domains
from prep_assets.errors import PrepAssetsError
from prep_assets.pipelines.graph import assets_of
from prep_assets.pipelines.workspace import Workspace
from prep_assets.records.files import SourceFile, fingerprint
from prep_assets.stores.manifest import digest

SECONDS = 30


@cache
def job_of(family: str) -> Any:
    """The domain-partitioned assets of a family: what a changed source file touches directly."""
    selection = [name for name, asset in assets_of(Workspace.open()).items() if asset.family == family and asset.partitioned]
    tags = {"prep_assets/family": family}
    return dg.define_asset_job(f"refresh_{family}", selection=selection, tags=tags)


@cache
def final_job_of(family: str) -> Any:
    """The unpartitioned assets of a family. Each first brings up to date what it is made from."""
    selection = [name for name, asset in assets_of(Workspace.open()).items() if asset.family == family and not asset.partitioned]
    return dg.define_asset_job(f"rebuild_{family}", selection=selection, tags={"prep_assets/family": family})


def sensors() -> list[dg.SensorDefinition]:
    """One sensor for each family that is configured."""
    return [_sensor(family) for family in FAMILIES if Workspace.open().has(family)]


def _sensor(family: str) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{family}_sources",
        job=job_of(family),
        minimum_interval_seconds=SECONDS,
        description=f"Watches the sources in configs/{family}.yaml: a new or changed file rebuilds its domain once it has stopped growing.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return look(Workspace.open(), family, context.cursor, partitions=domains(family).get_partition_keys())

    return watch


def look(
    workspace: Workspace,
    family: str,
    cursor: str | None,
    sign: Callable[[SourceFile], str] = fingerprint,
    partitions: Collection[str] | None = None,
) -> dg.SensorResult:
    """Compare the source files with what the cursor remembers.

    The cursor holds, for each domain, the content hash that was last asked to be built (``done``) and the files' signs at the last look
    (``seen``). A domain is rebuilt when its files look the same on two looks in a row, so one that is being written waits, and when their
    content differs from what was built, so a file that was only touched does not count.

    Args:
        sign: cheap sign of a file's change; an empty one means that there is none, and the content is hashed at each look.
        partitions: the domains that the code location has loaded; another one waits until it is loaded again. `None`: all.
    """
    before: dict[str, Any] = json.loads(cursor) if cursor else {}
    now: dict[str, Any] = {}
    requests, notes = [], []
    for name, domain in workspace.family(FAMILIES[family]).domains.items():
        known = before.get(name, {})
        if partitions is not None and name not in partitions:
            notes.append(f"{name}: new in the configuration, waits until the code location is reloaded")
            continue
        try:
            now[name] = _look_at(workspace, domain, known, sign)
        except PrepAssetsError as error:
            notes.append(f"{name}: {error}")
            now[name] = {**known, "seen": None}
            continue
        if "settled" not in now[name]:
            notes.append(f"{name}: new or changed, waits for the next look")
        content = now[name]["done"]
        if content != known.get("done") and not _is_pinned(workspace, family, name, content):
            # a run key is remembered for ever: it carries the content, and a number for content that comes back
            now[name]["asked"] += 1
            requests.append(dg.RunRequest(run_key=f"{family}:{name}:{content[:32]}:{now[name]['asked']}", partition_key=name))
    skip = None if requests else "; ".join(notes) or "no new or changed source files"
    return dg.SensorResult(run_requests=requests, skip_reason=skip, cursor=json.dumps(now, sort_keys=True))


def _look_at(workspace: Workspace, domain: Domain, known: Mapping[str, Any], sign: Callable[[SourceFile], str]) -> dict[str, Any]:
    """What to remember of a domain. Its files have ``settled`` when they look as they did the last time; only then are they hashed, once."""
    files = (*workspace.files(domain), *workspace.test_files(domain))
    seen = {file.url: sign(file) for file in files}
    memory = {"done": known.get("done"), "asked": known.get("asked", 0), "seen": seen}
    if known.get("seen") != seen:
        return memory
    if known.get("settled") != seen or not all(seen.values()):
        memory["done"] = digest([pin.identity for pin in workspace.pins(files)])
    return {**memory, "settled": seen}


def _is_pinned(workspace: Workspace, family: str, name: str, content: str) -> bool:
    """Whether the raw asset already holds exactly this content."""
    raw = workspace.published(f"{family}_raw", name)
    if raw is None:
        return False
    recipe = raw.manifest.recipe
    return digest([*recipe["files"], *recipe["test_files"]]) == content


def schedules() -> list[dg.ScheduleDefinition]:
    """A schedule for each family: rebuild what its sources and options ask for. What has not changed is not built again."""
    found = []
    workspace = Workspace.open()
    for family in filter(workspace.has, FAMILIES):
        refresh = workspace.family(FAMILIES[family]).refresh
        found.append(_schedule(family, refresh.every, refresh.timezone))
    return found


def _schedule(family: str, every: str, timezone: str) -> dg.ScheduleDefinition:
    unpartitioned = any(asset.family == family and not asset.partitioned for asset in assets_of(Workspace.open()).values())

    @dg.schedule(
        name=f"nightly_{family}",
        cron_schedule=every,
        execution_timezone=timezone,
        job=final_job_of(family) if unpartitioned else job_of(family),
        description=f"Rebuilds the {family} family where its sources or options have changed.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> Any:
        when = context.scheduled_execution_time.isoformat()
        if unpartitioned:
            return dg.RunRequest(run_key=f"{family}:{when}")
        return [dg.RunRequest(run_key=f"{family}:{name}:{when}", partition_key=name) for name in domains(family).get_partition_keys()]

    return nightly


def automation() -> dg.SensorDefinition:
    """Follows the assets' automation conditions (see `prep_assets.defs.building.automation`)."""
    return dg.AutomationConditionSensorDefinition(
        "rebuild_downstream",
        target=dg.AssetSelection.all(),
        minimum_interval_seconds=SECONDS,
        description="Rebuilds assets when what they are made from has changed and its blocking checks hold.",
    )
