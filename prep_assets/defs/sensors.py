"""Sensors and schedules: of source files, of stores that were built elsewhere, of runs that fail."""

from __future__ import annotations

import json
import os
import smtplib
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.message import EmailMessage
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg

from prep_assets.config.family import Domain, Family
from prep_assets.config.models import FAMILIES
from prep_assets.data.files import SourceFile, fingerprint, folder_sign, is_remote
from prep_assets.defs.materialize import SECONDS as SENSOR_SECONDS
from prep_assets.defs.materialize import OutsideRun, close_gone, damaged, family_job, lost_stores
from prep_assets.defs.metadata import data_version, evaluations, latest, materialization, recorded_version, store_metadata
from prep_assets.defs.site import Site, domains, register
from prep_assets.engine.plan import Step
from prep_assets.engine.scrub import BYTES, Damage, scrub
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.graph.graph import family_assets
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.bucket import bucket_of
from prep_assets.stores.manifest import digest

# A sensor per family that watches its source files.

LOST, FOUND = ":lost", ":found"
"""Where the cursor remembers what is lost, and how files look in which domains are found; no domain has such a name."""


def silent(note: str) -> None:
    """Notes that are dropped."""


def sources_sensor(site: Site, family: str) -> dg.SensorDefinition:
    """The sensor of one family. It also notices stores that are gone, and closes runs whose process is."""
    known = domains(site, family)
    partitions = known.get_partition_keys() if isinstance(known, dg.StaticPartitionsDefinition) else None

    @dg.sensor(
        name=site.named(f"{family}_sources"),
        job=family_job(site, "refresh", family, partitioned=True),
        minimum_interval_seconds=SENSOR_SECONDS,
        description=f"Watches the sources in configs/{family}.yaml: a new or changed file rebuilds its domain once it has stopped growing.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        close_gone(context.instance)
        before = json.loads(context.cursor or "{}")
        workspace, signs = settled(site.open(), family, before.get(FOUND, ""))
        register(context.instance, site, workspace, family)
        found = look(workspace, family, context.cursor, partitions=partitions, tell=context.log.warning)
        failures, gone = lost_stores(site, workspace, context.instance, family, set(before.get(LOST, ())))
        cursor = {**json.loads(found.cursor or "{}"), LOST: sorted(gone), **({FOUND: signs} if signs else {})}
        OutsideRun(context.instance, site.named(f"{family}_sources")).record(failures)
        return found._replace(cursor=json.dumps(cursor, sort_keys=True))

    return watch


def sign_of(file: SourceFile) -> str:
    """A cheap sign of a file's change: what a list says of an object in a bucket, else what the file itself says."""
    return file.listed or fingerprint(file)


def settled(workspace: Workspace, family: str, before: str) -> tuple[Workspace, str]:
    """The workspace, and how the files look in which it finds domains; empty where there are none.

    It looks for domains only in files that look as they did the last time, and in no remote file that no run has read as it is now.

    Args:
        before: how these files looked at the last look.
    """
    signs, unread = dict[str, str](), False
    for label, domain in workspace.declared(FAMILIES[family]).domains.items():
        try:
            found = [workspace.files(domain, fetch=False), workspace.test_files(domain, fetch=False)] if domain.domains else []
            for files in found:
                known = {(pin.name, pin.fingerprint) for pin in workspace.remembered(files)}
                signs.update({file.url: sign_of(file) for file in files})
                unread |= any(is_remote(file.url) and (file.name, signs[file.url]) not in known for file in files)
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
    """Compare the source files with what the cursor remembers.

    The cursor holds, for each domain, the content that was last asked to be built (``done``), a hash of the files' signs at the last look
    (``seen``), and how many looks in a row did not reach a source (``missed``). A domain is rebuilt when its files look the same on two looks
    in a row, so one that is being written waits, and when their content differs from what was built, so a file that was only touched does not
    count. A source that cannot be looked at changes nothing: it is named, and looked at again.

    Args:
        sign: cheap sign of a file's change; an empty one means that there is none, and the content is hashed at each look.
        partitions: the domains that the code location has loaded; another one waits until it is loaded again. `None`: all.
        tell: is given what a look that asks for runs has to say of other domains.
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
            now[name] = _look_at(workspace, configured, domain, known, sign)
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


def _look_at(
    workspace: Workspace, family: Family, domain: Domain, known: Mapping[str, Any], sign: Callable[[SourceFile], str]
) -> dict[str, Any]:
    """What to remember of a domain. Its files and its images have ``settled`` when they look as they did the last time; only then are they
    hashed, once. The files of benchmarks count as files of every domain."""
    files, test_files = workspace.files(domain, fetch=False), workspace.test_files(domain, fetch=False)
    benchmarks, images = workspace.benchmarks(family, fetch=False), workspace.image_folder(domain)
    signs = {file.url: sign(file) for file in (*files, *test_files, *benchmarks)}
    seen = digest([signs, folder_sign(images) if images is not None else None])
    memory = {"done": known.get("done"), "asked": known.get("asked", 0), "seen": seen}
    if known.get("seen") != seen:
        return memory
    if known.get("settled") != seen or not all(signs.values()):
        contents = [each for found in (files, test_files, benchmarks) for each in _contents(workspace, found, signs)]
        memory["done"] = digest([*contents, *([workspace.image_pin(domain)] if images is not None else [])])
    return {**memory, "settled": seen}


def _contents(workspace: Workspace, files: tuple[SourceFile, ...], signs: Mapping[str, str]) -> list[dict[str, str | int]]:
    """What goes into a build's identity of each file. A remote file is not read for it, which may take hours: unless it was pinned with the sign
    that it has now, the sign stands for its content, and the run that is asked for finds out."""
    away = {file.url for file in files if is_remote(file.url) and signs[file.url]}
    known = {(pin.name, pin.fingerprint): pin for pin in workspace.remembered(files)} if away else {}
    here = {pin.name: pin for pin in workspace.pins(tuple(file for file in files if file.url not in away))}
    pins = (known.get((file.name, signs[file.url])) if file.url in away else here[file.name] for file in files)
    return [pin.identity if pin else {"name": file.name, "sign": signs[file.url]} for file, pin in zip(files, pins, strict=True)]


def _is_pinned(workspace: Workspace, family: str, name: str, content: str) -> bool:
    """Whether the raw asset already holds exactly this content."""
    raw = workspace.published(f"{family}_raw", name)
    if raw is None:
        return False
    recipe = raw.manifest.recipe
    beside = [*recipe.get("benchmarks", {}).get("files", ()), *([recipe["images"]] if "images" in recipe else [])]
    return digest([*recipe["files"], *recipe["test_files"], *beside]) == content


# Refresh without anybody asking: sensors on sources, a nightly schedule per family, automation inside the graph, and a scrub by the hour.

HOUR = 3600
SCRUB_SECONDS = 30
"""How long one look reads; a sensor may take a minute."""


def sound(site: Site, families: Sequence[str]) -> list[str]:
    """The families whose configuration means something; the others have assets that say what is wrong, and nothing starts them."""
    found = []
    for family in families:
        with suppress(PrepAssetsError):
            found += [family] if family_assets(site.declared(), family) else []
    return found


def schedules(site: Site, families: Sequence[str]) -> list[dg.ScheduleDefinition]:
    """A schedule for each family: rebuild what its sources and options ask for. What has not changed is not built again."""
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
    """Follows the assets' automation conditions (see `prep_assets.defs.assets`)."""
    return dg.AutomationConditionSensorDefinition(
        site.named("rebuild_downstream"),
        target=dg.AssetSelection.all() if not site.prefix else dg.AssetSelection.key_prefixes(list(site.prefix)),
        minimum_interval_seconds=SENSOR_SECONDS,
        description="Rebuilds assets when what they are made from has changed and its blocking checks hold.",
    )


def scrubber(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """Damage to a store becomes a failed check of it and of those made from it, and a run that builds them again; damage to a source only failed checks."""
    # what is built again is chosen from all assets of a family
    jobs = {family: family_job(site, "mend", family) for family in families}
    job_of = {asset: jobs[family].name for family in families for asset in family_assets(site.declared(), family)}

    @dg.sensor(
        name=site.named("scrub"),
        jobs=list(jobs.values()),
        minimum_interval_seconds=HOUR,
        description="Reads 1 GiB of stores, in buckets too, and of sources on this machine again each hour, in rotation; builds again what has rotted.",
    )
    def read_again(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = scrub(site.open(), BYTES, SCRUB_SECONDS)
        failures = [
            damaged(site, *store, ("made from what is damaged: " if at else "") + damage.what)
            for damage in found.damaged
            for at, store in enumerate(_stores(damage))
        ]
        OutsideRun(context.instance, site.named("scrub")).record(failures)
        # what is built again is checked and looked at again, so the same damage may be asked about twice
        again = digest([context.cursor, *(damage.what for damage in found.damaged)])[:16]
        requests = [
            dg.RunRequest(
                f"scrub:{asset}:{partition}:{again}",
                job_name=job_of[asset],
                asset_selection=[site.key(asset)],
                partition_key=partition or None,
            )
            for asset, partition in dict.fromkeys(store for damage in found.damaged if not damage.source for store in _stores(damage))
        ]
        summary = f"read {found.read:,} of {found.total:,} bytes, {len(found.damaged)} files damaged"
        return dg.SensorResult(requests, skip_reason=None if requests else summary, cursor=str(int(context.cursor or 0) + 1))

    return read_again


def _stores(damage: Damage) -> list[tuple[str, str]]:
    """Asset and partition of what is damaged, and of what is made from it where that is a store."""
    built = () if damage.source else (label.rstrip("]").partition("[") for label in damage.built)
    return [(damage.asset, damage.partition), *((asset, partition) for asset, _, partition in built)]


# A sensor that records stores which were built outside Dagster: on the command line, from Python, by another instance.

NAME = "built_elsewhere"
AT_ONCE = 100
"""Stores that one look records: a sensor may take a minute, and each store has pictures drawn of it."""
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def recorder(site: Site, families: Sequence[str]) -> dg.SensorDefinition:
    """The sensor. It starts no run, so it is on from the beginning: what `prep-assets build` made stands in the graph half a minute later."""

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
        if bucket_of(workspace.stores) is not None:
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
    """The stores on disk whose `current` was replaced at a time or later, in the order in which that happened.

    So what a store was made from comes before it, as it did when it was built. The first of each pair is the time, in nanoseconds.
    """
    found = []
    for family in families:
        for asset in family_assets(workspace, family).values():
            for partition in asset.partitions(workspace):
                pointer = workspace.place(asset.name, partition).directory / "current"
                try:
                    when = pointer.lstat().st_mtime_ns
                except OSError:
                    continue
                if when >= since:
                    found.append((when, Step(asset, partition, "current", "", requested=True)))
    return sorted(found, key=lambda each: each[0])


def record(instance: dg.DagsterInstance, site: Site, workspace: Workspace, step: Step, checks: OutsideRun) -> bool:
    """Record a store and its checks, unless Dagster knows it; whether it did."""
    try:
        published = workspace.published(step.asset.name, step.partition)
    except PrepAssetsError:
        return False  # damaged: its own check says so
    if published is None or data_version(published) == recorded_version(latest(instance, site.key(step.asset.name), step.partition)):
        return False
    metadata = {"built_elsewhere": True, **store_metadata(workspace, published)}
    instance.report_runless_asset_event(materialization(instance, site, workspace, step, published, metadata))
    results = {name: Verdict(*result) for name, result in (published.results or {}).items()}
    checks.record(evaluations(instance, site, workspace, step, results))
    return True


# Notifications of runs that fail: by a webhook as Slack has them, or by e-mail.

TELL, SMTP = "PREP_ASSETS_TELL", "PREP_ASSETS_SMTP"
"""Environment variables: whom to tell, addresses divided by commas (``https://…`` of a webhook, ``mailto:NAME@HOST``); and the mail server, as
``smtp://USER:PASSWORD@HOST:PORT``, or ``smtps://`` for one that speaks TLS from the start."""
UI = "PREP_ASSETS_UI_URL"
"""Where the web UI is, for a link to the run."""
SECONDS = 20
SHOWN = 2000


def failures(site: Site) -> dg.SensorDefinition:
    """The sensor that follows all runs of the code location."""

    @dg.run_failure_sensor(
        name=site.named("tell_of_failures"),
        description=f"Tells of runs that fail, to the webhooks and e-mail addresses in {TELL}.",
    )
    def tell_of_failures(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        whom = [each.strip() for each in os.environ.get(TELL, "").split(",") if each.strip()]
        if not whom:
            return dg.SkipReason(f"{TELL} names nobody")
        subject = f"prep-assets: run {context.dagster_run.run_id[:8]} of {context.dagster_run.job_name} failed"
        reasons = [f"{event.step_key}: {_reason(event)}" for event in context.get_step_failure_events()]
        server = os.environ.get(UI)
        link = [f"{server.rstrip('/')}/runs/{context.dagster_run.run_id}"] if server else []
        text = "\n\n".join([*(reasons or [context.failure_event.message or "no reason is given"]), *link])
        for address in whom:
            tell(address, subject, text)
        return None

    return tell_of_failures


def tell(address: str, subject: str, text: str) -> None:
    """Send a message.

    Raises:
        ConfigError: the address is of another kind, or there is no mail server for it.
        OSError: the message was not accepted.
    """
    scheme, _, rest = address.partition(":")
    if scheme in ("https", "http"):
        body = json.dumps({"text": f"*{subject}*\n```{text}```"}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=SECONDS).close()
    elif scheme == "mailto":
        _mail(rest, subject, text)
    else:
        raise ConfigError(f"{TELL} holds an address that is neither https:// nor mailto: ({scheme}:…)")


def _mail(to: str, subject: str, text: str) -> None:
    server = urlsplit(os.environ.get(SMTP, ""))
    if server.scheme not in ("smtp", "smtps") or not server.hostname:
        raise ConfigError(f"{TELL} names an e-mail address, so {SMTP} must be smtp://USER:PASSWORD@HOST:PORT or smtps://…")
    message = EmailMessage()
    message["Subject"], message["To"], message["From"] = subject, to, unquote(server.username or "") or to
    message.set_content(text)
    kind = smtplib.SMTP_SSL if server.scheme == "smtps" else smtplib.SMTP
    with kind(server.hostname, server.port or 0, timeout=SECONDS) as connection:
        connection.ehlo()
        if server.scheme == "smtp" and connection.has_extn("starttls"):
            connection.starttls()
        if server.password:
            connection.login(unquote(server.username or ""), unquote(server.password))
        connection.send_message(message)


def _reason(event: dg.DagsterEvent) -> str:
    """The last cause of a failed step, which is the sentence that helps."""
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return (error.message if error else event.message or "").strip()[:SHOWN]
