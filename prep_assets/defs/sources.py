"""A sensor per family that watches its source files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import dagster as dg

from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Domain, Family
from prep_assets.defs.domains import domains, register
from prep_assets.defs.gone import close_gone, lost_stores
from prep_assets.defs.jobs import SECONDS, OutsideRun, family_job
from prep_assets.defs.site import Site
from prep_assets.errors import PrepAssetsError
from prep_assets.records.files import SourceFile, fingerprint
from prep_assets.records.folder import folder_sign
from prep_assets.records.remote import is_remote
from prep_assets.stores.manifest import digest

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
        minimum_interval_seconds=SECONDS,
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
