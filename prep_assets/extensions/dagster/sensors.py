"""Sensors and schedules: changed sources, nightly rebuilds, scrubbing, stores built elsewhere, failed runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dagster as dg

from prep_assets.config.family import Domain, Family
from prep_assets.config.models import FAMILIES
from prep_assets.data.addresses import is_remote
from prep_assets.data.files import SourceFile, fingerprint
from prep_assets.data.pins import folder_sign
from prep_assets.engine.plan import Step
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.dagster.materialize import RUNNING, OutsideRun, close_gone, damaged, family_job, lost_stores
from prep_assets.extensions.dagster.materialize import SECONDS as SENSOR_SECONDS
from prep_assets.extensions.dagster.metadata import data_version, evaluations, latest, materialization, recorded_version, store_metadata
from prep_assets.extensions.dagster.site import Site, domains, register
from prep_assets.extensions.keep.scrub import BYTES, Damage, scrub
from prep_assets.graph.graph import family_assets
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.manifest import digest
from prep_assets.stores.remote import remote_of

# A sensor per family watches its source files.

LOST, FOUND = ":lost", ":found"
"""Cursor keys of lost stores, and of the signs of files that name domains; no domain has such a name."""


def silent(note: str) -> None:
    """Drop a note."""


def sources_sensor(site: Site, family: str) -> dg.SensorDefinition:
    """The sensor of a family's sources. It also records lost stores, and closes runs whose process is gone."""
    domain_partitions = domains(site, family)
    partitions = domain_partitions.get_partition_keys() if isinstance(domain_partitions, dg.StaticPartitionsDefinition) else None

    @dg.sensor(
        name=site.named(f"{family}_sources"),
        job=family_job(site, "refresh", family, partitioned=True),
        minimum_interval_seconds=SENSOR_SECONDS,
        description=f"Watches the sources in configs/{family}.yaml: a new or changed file rebuilds its domain once it has stopped growing.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_gone(context.instance)
        memory = json.loads(context.cursor or "{}")
        workspace, signs = settled(site.open(), family, memory.get(FOUND, ""))
        register(context.instance, site, workspace, family)
        result = look(workspace, family, context.cursor, partitions=partitions, tell=context.log.warning)
        failures, lost = lost_stores(site, workspace, context.instance, family, set(memory.get(LOST, ())))
        cursor = {**json.loads(result.cursor or "{}"), LOST: sorted(lost), **({FOUND: signs} if signs else {})}
        OutsideRun(context.instance, site.named(f"{family}_sources")).record(failures)
        return result._replace(cursor=json.dumps(cursor, sort_keys=True))

    return watch


def sign_of(file: SourceFile) -> str:
    """A cheap fingerprint of a file: from the listing of a bucket, else from the file itself."""
    return file.listed or fingerprint(file)


def settled(workspace: Workspace, family: str, before: str) -> tuple[Workspace, str]:
    """The workspace, and a hash of the signs of files that name its domains; empty where no files do.

    The workspace reads domains only from files that are unchanged since the last tick, and from remote files only as a run has read them.

    Args:
        before: that hash at the last tick.
    """
    signs, unread = dict[str, str](), False
    for label, domain in workspace.declared(FAMILIES[family]).domains.items():
        try:
            file_sets = [workspace.files(domain, fetch=False), workspace.test_files(domain, fetch=False)] if domain.domains else []
            for files in file_sets:
                pinned = {(pin.name, pin.fingerprint) for pin in workspace.remembered(files)}
                signs.update({file.url: sign_of(file) for file in files})
                unread |= any(is_remote(file.url) and (file.name, signs[file.url]) not in pinned for file in files)
        except PrepAssetsError as error:
            signs[label] = str(error)
    now = digest(signs) if signs else ""
    return (workspace if now == before and not unread else replace(workspace, looks=False)), now


def look(
    workspace: Workspace,
    family: str,
    cursor: str | None,
    sign: Callable[[SourceFile], str] = sign_of,
    partitions: Collection[str] | None = None,
    tell: Callable[[str], None] = silent,
) -> dg.SensorResult:
    """Compare the source files with the cursor, and request runs of changed domains.

    The cursor holds, by domain, the content that was last requested (``done``), a hash of the files' signs at the last tick (``seen``), and the
    number of ticks in a row that failed to reach a source (``missed``). A domain is rebuilt when its signs are equal on two ticks in a row, so
    a file that is being written waits, and when its content differs from what was built, so a touched file does not count. An unreachable
    source changes nothing: it is named, and tried again.

    Args:
        sign: cheap fingerprint of a file; empty where there is none, and the content is hashed at every tick.
        partitions: domains that the code location has loaded; others wait until it is reloaded. `None`: all.
        tell: called with the notes on other domains where runs are requested.
    """
    before: dict[str, Any] = json.loads(cursor) if cursor else {}
    now: dict[str, Any] = {}
    requests, notes = [], []
    configured = workspace.family(FAMILIES[family])
    for name, domain in configured.domains.items():
        known = before.get(name, {})
        if domain.domains:
            notes.append(
                f"{name}: its domains are not known yet: the next look finds those of local files, a run of the family those of remote ones"
            )
            continue
        if partitions is not None and name not in partitions:
            notes.append(f"{name}: new in the configuration, waits until the code location is reloaded")
            continue
        try:
            now[name] = _domain_memory(workspace, configured, domain, known, sign)
        except PrepAssetsError as error:
            missed = known.get("missed", 0) + 1
            notes.append(
                f"{name}: {error}"
                + (f" (so at the last {missed} looks)" if missed > 1 else "")
                + "; nothing is built, and the next look tries again"
            )
            now[name] = {**known, "seen": None, "missed": missed}
            continue
        if "settled" not in now[name]:
            notes.append(f"{name}: new or changed, waits for the next look")
        content = now[name]["done"]
        if content != known.get("done") and not _is_pinned(workspace, family, name, content):
            # a run key is never forgotten: it carries the content, and a number for content that comes back
            now[name]["asked"] += 1
            requests.append(dg.RunRequest(run_key=f"{family}:{name}:{content[:32]}:{now[name]['asked']}", partition_key=name))
    removed = sorted(name for name in before if name not in configured.domains and not name.startswith(":"))
    if removed:
        notes.append(f"{', '.join(removed)}: removed from the configuration; to delete the stores: prep-assets prune --removed")
    for note in notes if requests else ():
        tell(note)
    skip = None if requests else "; ".join(notes) or "no new or changed source files"
    return dg.SensorResult(run_requests=requests, skip_reason=skip, cursor=json.dumps(now, sort_keys=True))


def _domain_memory(
    workspace: Workspace, family: Family, domain: Domain, known: Mapping[str, Any], sign: Callable[[SourceFile], str]
) -> dict[str, Any]:
    """The cursor's entry of a domain. Its files and images have ``settled`` when their signs are those of the last tick; only then are they
    hashed, once. Files of benchmarks count as files of every domain."""
    files, test_files = workspace.files(domain, fetch=False), workspace.test_files(domain, fetch=False)
    benchmarks, images = workspace.benchmarks(family, fetch=False), workspace.media_folder(domain)
    signs = {file.url: sign(file) for file in (*files, *test_files, *benchmarks)}
    seen = digest([signs, folder_sign(images) if images is not None else None])
    memory = {"done": known.get("done"), "asked": known.get("asked", 0), "seen": seen}
    if known.get("seen") != seen:
        return memory
    if known.get("settled") != seen or not all(signs.values()):
        contents = [content for file_set in (files, test_files, benchmarks) for content in _contents(workspace, file_set, signs)]
        memory["done"] = digest([*contents, *([workspace.media_pin(domain)] if images is not None else [])])
    return {**memory, "settled": seen}


def _contents(workspace: Workspace, files: tuple[SourceFile, ...], signs: Mapping[str, str]) -> list[dict[str, str | int]]:
    """The part of a build's identity that comes from files. Remote files are not read, which may take hours: unless one was pinned with its
    current sign, the sign stands for its content, and the requested run finds out."""
    remote = {file.url for file in files if is_remote(file.url) and signs[file.url]}
    remembered = {(pin.name, pin.fingerprint): pin for pin in workspace.remembered(files)} if remote else {}
    local_pins = {pin.name: pin for pin in workspace.pins(tuple(file for file in files if file.url not in remote))}
    pins = (remembered.get((file.name, signs[file.url])) if file.url in remote else local_pins[file.name] for file in files)
    return [pin.identity if pin else {"name": file.name, "sign": signs[file.url]} for file, pin in zip(files, pins, strict=True)]


def _is_pinned(workspace: Workspace, family: str, name: str, content: str) -> bool:
    """Whether the raw asset already pins this content."""
    raw = workspace.published(f"{family}_raw", name)
    if raw is None:
        return False
    recipe = raw.manifest.recipe
    additional = [*recipe.get("benchmarks", {}).get("files", ()), *([recipe["images"]] if "images" in recipe else [])]
    return digest([*recipe["files"], *recipe["test_files"], *additional]) == content


# Automatic refresh: a nightly schedule per family, automation inside the graph, and an hourly scrub.

HOUR = 3600
SCRUB_SECONDS = 30
"""Seconds that one tick reads; a sensor may take a minute."""


def sound(site: Site, families: Sequence[str]) -> list[str]:
    """The families with a valid configuration; the others get assets that show the error, and no jobs."""
    valid = []
    for family in families:
        with suppress(PrepAssetsError):
            valid += [family] if family_assets(site.declared(), family) else []
    return valid


def schedules(site: Site, families: Sequence[str]) -> list[dg.ScheduleDefinition]:
    """A schedule per family that rebuilds what changed in sources or options."""
    return [_schedule(site, family) for family in families]


def _schedule(site: Site, family: str) -> dg.ScheduleDefinition:
    refresh = site.declared().family(FAMILIES[family]).refresh
    partitions = domains(site, family)

    @dg.schedule(
        name=site.named(f"nightly_{family}"),
        cron_schedule=refresh.every,
        execution_timezone=refresh.timezone,
        job=family_job(site, "rebuild", family),
        description=f"Rebuilds the {family} family where its sources or options have changed, all domains in one run.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> Any:
        if isinstance(partitions, dg.StaticPartitionsDefinition):
            keys = partitions.get_partition_keys()
        else:
            register(context.instance, site, site.open(), family)
            keys = partitions.get_partition_keys(dynamic_partitions_store=context.instance)
        when = context.scheduled_execution_time.isoformat()
        whole = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        return dg.RunRequest(run_key=f"{family}:{when}", tags=whole)

    return nightly


def automation(site: Site) -> dg.SensorDefinition:
    """The sensor that evaluates automation conditions (see `prep_assets.extensions.dagster.assets`)."""
    return dg.AutomationConditionSensorDefinition(
        site.named("rebuild_downstream"),
        target=dg.AssetSelection.all() if not site.prefix else dg.AssetSelection.key_prefixes(list(site.prefix)),
        minimum_interval_seconds=SENSOR_SECONDS,
        description="Rebuilds assets when what they are made from has changed and its blocking checks hold.",
    )


def scrubber(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """The sensor of damage: a damaged store fails its check and those of stores made from it, and all are rebuilt; a damaged source only fails checks."""
    # jobs of all assets of a family, of which runs select some
    jobs = {family: family_job(site, "mend", family) for family in families}
    job_of = {asset: jobs[family].name for family in families for asset in family_assets(site.declared(), family)}

    @dg.sensor(
        name=site.named("scrub"),
        jobs=list(jobs.values()),
        minimum_interval_seconds=HOUR,
        description="Reads 1 GiB of stores, in buckets too, and of sources on this machine again each hour, in rotation; builds again what has rotted.",
    )
    def read_again(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        result = scrub(site.open(), BYTES, SCRUB_SECONDS)
        failures = [
            damaged(site, *store, ("made from what is damaged: " if index else "") + damage.what)
            for damage in result.damaged
            for index, store in enumerate(_stores(damage))
        ]
        OutsideRun(context.instance, site.named("scrub")).record(failures)
        # the cursor is in the run key, since the same damage may recur after a rebuild
        occurrence = digest([context.cursor, *(damage.what for damage in result.damaged)])[:16]
        requests = [
            dg.RunRequest(
                f"scrub:{asset}:{partition}:{occurrence}",
                job_name=job_of[asset],
                asset_selection=[site.key(asset)],
                partition_key=partition or None,
            )
            for asset, partition in dict.fromkeys(store for damage in result.damaged if not damage.source for store in _stores(damage))
        ]
        summary = f"read {result.read:,} of {result.total:,} bytes, {len(result.damaged)} files damaged"
        return dg.SensorResult(requests, skip_reason=None if requests else summary, cursor=str(int(context.cursor or 0) + 1))

    return read_again


def _stores(damage: Damage) -> list[tuple[str, str]]:
    """(asset, partition) of a damaged store and of the stores made from it."""
    built = () if damage.source else (label.rstrip("]").partition("[") for label in damage.built)
    return [(damage.asset, damage.partition), *((asset, partition) for asset, _, partition in built)]


# A sensor that records stores built outside Dagster: on the command line, from Python, by another instance.

NAME = "built_elsewhere"
AT_ONCE = 100
"""Most stores that one tick records: a sensor may take a minute, and charts are drawn of every store."""
UNDER_WAY = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, *RUNNING]


def recorder(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """The sensor. It starts no runs, so it is on by default: what `prep-assets build` built is in the graph half a minute later."""

    @dg.sensor(
        name=site.named(NAME),
        target=None,
        minimum_interval_seconds=SENSOR_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Records stores on this machine that were built outside Dagster, e.g. by `prep-assets build`, with what their checks said. Starts no run.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if context.instance.get_runs_count(dg.RunsFilter(statuses=UNDER_WAY)):
            return dg.SensorResult(skip_reason="runs are under way, which record what they build", cursor=context.cursor)
        workspace = site.open()
        for family in families:
            register(context.instance, site, workspace, family)
        if remote_of(workspace.stores) is not None:
            return dg.SensorResult(skip_reason="the stores are in a bucket, where only Dagster's own builds are recorded")
        since = int(context.cursor or 0)
        changed = changed_stores(workspace, families, since)
        checks = OutsideRun(context.instance, site.named(NAME))
        recorded = [step.label for _, step in changed[:AT_ONCE] if record(context.instance, site, workspace, step, checks)]
        message = f"recorded {', '.join(recorded)}" if recorded else "no store was built outside Dagster"
        later = len(changed) - AT_ONCE
        more = f"; later looks record {later} more" if later > 0 else ""
        last = changed[:AT_ONCE][-1][0] if changed else since
        return dg.SensorResult(skip_reason=message + more, cursor=str(last))

    return look


def changed_stores(workspace: Workspace, families: Sequence[str], since: int) -> list[tuple[int, Step]]:
    """(time, step) of stores whose `current` was replaced at `since` or later, in ns, ascending.

    So upstream stores come first, as they were built.
    """
    changed = []
    for family in families:
        for asset in family_assets(workspace, family).values():
            for partition in asset.partitions(workspace):
                pointer = workspace.place(asset.name, partition).directory / "current"
                try:
                    when = pointer.lstat().st_mtime_ns
                except OSError:
                    continue
                if when >= since:
                    changed.append((when, Step(asset, partition, "current", "", requested=True)))
    return sorted(changed, key=lambda entry: entry[0])


def record(instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, checks: OutsideRun) -> bool:
    """Record a store and its checks, unless Dagster knows it; return whether it was recorded."""
    try:
        published = workspace.published(step.asset.name, step.partition)
    except PrepAssetsError:
        return False  # damaged: its own check says so
    if published is None or data_version(published) == recorded_version(latest(instance, site.key(step.asset.name), step.partition)):
        return False
    metadata = store_metadata(workspace, published, built_elsewhere=True)
    instance.report_runless_asset_event(materialization(instance, site, workspace, step, published, metadata))
    results = {name: Verdict(*result) for name, result in (published.results or {}).items()}
    checks.record(evaluations(instance, site, workspace, step, results))
    return True
