"""Execute a plan: build and check stores, then publish or block them. Small domains run in parallel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from msgspec import Struct, structs

from prep_assets.checks.bounds import as_result, judged_anew, keeps_fewer, only_rules_fail
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.checks.relations import part_of, verdicts_of_parts
from prep_assets.checks.sources_again import Unsound, parts_of
from prep_assets.config.models import FAMILIES
from prep_assets.data.tables import SHARD_BYTES
from prep_assets.engine.events import Accepted, Blocked, Candidate, Checked, Event, Planned, Progress, Skipped, Started, Written
from prep_assets.engine.plan import Step, StoreKey, keep_seconds, plan
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.graph.graph import EVERY, asset_and_partitions, holds, run_check, store_of, upstream_of
from prep_assets.pipeline.asset import Asset, Check, Store, StorePart
from prep_assets.pipeline.examples import text_bytes
from prep_assets.pipeline.tokens import FEWEST, opened
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.reference_ids import keep_words
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.files import in_words
from prep_assets.stores.manifest import Result, build_key, differences
from prep_assets.stores.remote import remote_of
from prep_assets.stores.table import TOKENS
from prep_assets.stores.version_folders import Published
from prep_assets.workers.pool import Pool, WorkerLost, portable
from prep_assets.workers.shards import Counts, Effort, Plan, Runner, Shard

# The checks of a store: one after the other, or in several processes if the store is large. Checks of every row then run on parts of the store, and the
# verdicts on the parts are merged in order.

T = TypeVar("T")
LARGE = 64 << 20
"""Bytes of payload. The checks of a smaller store are done sooner than workers start."""


def verdicts_of(workspace: Workspace, asset: Asset, published: Published, checks: Sequence[Check]) -> Iterator[tuple[str, Verdict]]:
    """Yield (name, verdict) of checks of an asset, in order."""
    large = len(checks) > 1 and published.bytes >= LARGE and EVERY.get(asset.name) is asset
    if not large or (runner := workspace.runner(workspace.family(FAMILIES[asset.family]))) is None:
        with _sharing(published, [check.name for check in checks]) as shared:
            for check in checks:
                yield check.name, run_check(check, workspace, shared)
        return
    verdicts, waiting = dict[str, Verdict](), [check.name for check in reversed(checks)]
    for new_verdicts in _by_workers(runner, workspace, asset, published, checks):
        verdicts |= new_verdicts
        while waiting and waiting[-1] in verdicts:
            yield waiting[-1], verdicts[waiting.pop()]


def _by_workers(
    runner: Runner, workspace: Workspace, asset: Asset, published: Published, checks: Sequence[Check]
) -> Iterator[Mapping[str, Verdict]]:
    """Yield the verdicts of checks as workers finish them."""
    travelling = workspace.travelling(FAMILIES[asset.family])
    work = partial(_carried_out, workspace=travelling, asset=asset.name, published=published, kept={})
    # as builds open it, whose workers go on with this
    ready = partial(opened, travelling, FAMILIES[asset.family]) if holds(asset.name, TOKENS) else None
    store, parts = store_of(workspace, published), list[Shard]()
    derived = [check for check in asset.checks if check.derived]
    with suppress(PrepAssetsError, OSError):  # what is wrong with the sources the checks say
        parts = parts_of(store) if asset.in_parts and {*derived} <= {*checks} else []
    parts = parts if len(parts) > 1 else []
    whole = _whole(published, [check for check in checks if not parts or not check.derived])
    with closing(runner.run_shards(_plan(published, (*whole, *parts), ready), work)) as results:
        for result in islice(results, len(whole)):
            yield result.counts["verdicts"]
        if not parts:
            next(results, None)  # lets it end by itself
            return
        with suppress(Unsound):
            yield verdicts_of_parts(store, (_require_sound(result.counts["found"]) for result in results))
            return
    # the checks of the whole store say what is wrong
    for result in runner.run_shards(_plan(published, _whole(published, derived), ready), work):
        yield result.counts["verdicts"]


def _whole(published: Published, checks: Sequence[Check]) -> list[Shard]:
    """Shards of checks on the whole store; checks that share a reading of its sources are one shard."""
    tasks = [[check.name for check in group] for _, group in groupby(checks, lambda check: check.derived is not None or check.name)]
    return [Shard(0, " and ".join(task), published.bytes, task) for task in tasks]


def _plan(published: Published, shards: Sequence[Shard], ready: Callable[[], object] | None) -> Plan:
    label = published.manifest.label
    return Plan([replace(shard, number=number, what=f"{label} {shard.what}") for number, shard in enumerate(shards)], None, ready=ready)


def _carried_out(
    task: StorePart | Sequence[str], folder: Path, *, workspace: Workspace, asset: str, published: Published, kept: dict[str, Any]
) -> dict[str, Any]:
    """The work of one shard: what is found of a part of a store, or the verdicts of some checks of all of it.

    Args:
        kept: see `Store.kept`.
    """
    if published.keeper is not None:  # the folder that it is fetched to is another one here
        published = workspace.place(asset, published.manifest.partition).backend.published(published.version)
    declared_asset = EVERY[asset]
    if not isinstance(task, StorePart):
        with _sharing(published, task) as shared:
            return {"verdicts": {check.name: run_check(check, workspace, shared) for check in declared_asset.checks if check.name in task}}
    try:
        return {"found": part_of(Store(workspace, declared_asset, published, task, kept))}
    except Exception:  # whatever a damaged store makes a reader raise
        return {"found": None}
    finally:
        keep_words()


def _require_sound(result: T | None) -> T:
    """Return the result on a part of a store; raise `Unsound` if there is none."""
    if result is None:
        raise Unsound
    return result


@contextmanager
def _sharing(published: Published, names: Collection[str]) -> Iterator[Published]:
    """A store for the checks of these names, which share what they derive. That holds the store open, and itself, until it is forgotten at the end."""
    evidence: dict[str, Any] = dict.fromkeys(names)
    try:
        yield replace(published, evidence=evidence)
    finally:
        evidence.clear()


# Domains in parallel: if the domains of a family are too small for shards, one worker builds and checks a whole domain.

LARGE_DOMAIN = FEWEST * SHARD_BYTES
"""Bytes of text. A domain that has as many is cut into shards; fewer in all of them are done sooner than workers start."""
PINNED = 8
"""How many times sooner the rows of a domain are pinned than all the rest is done."""
Chains = Mapping[tuple[Step, ...], int]
"""The steps of each domain, in order, and its bytes of text."""


def chains_of(workspace: Workspace, steps: Iterable[Step]) -> dict[str, Chains]:
    """By family, what workers carry out, each of them all steps of a domain; nothing where it is done sooner here, one step after the other.

    Args:
        steps: those with something to do.
    """
    todo = {(step.asset.name, step.partition): step for step in steps}
    domains = defaultdict[tuple[str, str], list[Step]](list)
    # what a bucket holds lies in a folder of each process; options of one run are not those of the stores that feed what was asked for
    if workspace.pool is not None and remote_of(workspace.stores) is None and not workspace.overrides:
        for step in todo.values():
            if step.partition and EVERY.get(step.asset.name) is step.asset:
                domains[step.asset.family, step.partition].append(step)
    if len(domains) < 2:
        return {}
    chains_by_family = defaultdict[str, dict[tuple[Step, ...], int]](dict)
    for (family, name), chain in domains.items():
        own = {(step.asset.name, step.partition) for step in chain}
        inputs = {(above.name, partition) for step in chain for above, partition in upstream_of(workspace, step.asset, step.partition)}
        size = _text_bytes(workspace, family, name)
        if size < LARGE_DOMAIN and inputs & todo.keys() <= own:
            chains_by_family[family][tuple(chain)] = size
    return {
        family: chains
        for family, chains in chains_by_family.items()
        if len(chains) > 1
        and sum(size // (PINNED if all(step.asset.stage == "raw" for step in chain) else 1) for chain, size in chains.items())
        >= LARGE_DOMAIN
        and workspace.runner(workspace.family(FAMILIES[family])) is workspace.pool
        and _travelling(workspace, family, chains) is not None
    }


def _tokenized(chains: Chains) -> bool:
    return any(holds(step.asset.name, TOKENS) for chain in chains for step in chain)


def _travelling(workspace: Workspace, family: str, chains: Chains) -> Workspace | None:
    """The workspace as it goes to workers; `None` where something of it cannot be opened, as each store that needs it says."""
    with suppress(PrepAssetsError):
        return workspace.travelling(FAMILIES[family], tokenized=_tokenized(chains))
    return None


def _text_bytes(workspace: Workspace, family: str, name: str) -> int:
    """Bytes of text of a domain, about; what cannot be told is large."""
    with suppress(PrepAssetsError, OSError):
        domain = workspace.family(FAMILIES[family]).domains[name]
        return sum(map(text_bytes, (*workspace.files(domain, fetch=False), *workspace.test_files(domain, fetch=False))))
    return LARGE_DOMAIN


def carried_out(workspace: Workspace, family: str, chains: Chains, how: _How) -> Iterator[Event]:
    """What happens when workers carry out the steps of some domains of a family: all of one domain, then all of the next."""
    kind, listed, total = FAMILIES[family], list(chains), sum(chains.values())
    travelling, runner = _travelling(workspace, family, chains), workspace.runner(workspace.family(kind))
    assert travelling is not None and runner is not None
    work = partial(_chain, workspace=travelling, how=how)
    ready = partial(opened, travelling, kind) if _tokenized(chains) else None
    remaining = [
        Shard(number, chain[0].partition, size, tuple(replace(step, standing=None) for step in chain))
        for number, (chain, size) in enumerate(chains.items())
    ]
    while remaining:
        try:
            with closing(runner.run_shards(Plan(tuple(remaining), None, whole=len(listed), ready=ready), work)) as results:
                for result in results:
                    remaining.pop(0)
                    yield from result.counts["events"]
                    if workspace.progress:
                        done = total - sum(shard.size for shard in remaining)
                        workspace.progress(f"{len(listed) - len(remaining):,} of {len(listed):,} domains", done, total)
        except WorkerLost as error:
            first, *rest = listed[remaining.pop(0).number]
            yield Blocked(first, f"{first.label}: {error}", {}, error=error)
            yield from (Skipped(step, first) for step in rest)


def _chain(task: Sequence[Step], folder: Path, *, workspace: Workspace, how: _How) -> Counts:
    """The work of one domain."""

    def portably(event: Any) -> Any:
        return structs.replace(event, error=portable(event.error)) if isinstance(event, Blocked) and event.error else event

    return {"events": list(map(portably, _carried_out_steps(workspace, task, Effort(), how)))}


# Executing a plan: every store is built, checked, and accepted or blocked. Stores become current in no other way.


def run(
    workspace: Workspace,
    steps: Iterable[Step],
    *,
    recheck: bool = False,
    publish: bool = False,
    review: bool = False,
    hand_over: bool = False,
) -> Iterator[Event]:
    """Execute a plan. A blocked store stops what is made from it, and nothing else.

    Args:
        workspace: with this run's options, which apply to the stores asked for.
        recheck: run the checks of stores that are current, too.
        publish: make what this run's options give current; else it is a draft.
        review: leave the stores asked for as drafts, which `accept` makes current.
        hand_over: leave the stores asked for to the caller, who makes each `Candidate` current.
    """
    plan = tuple(steps)
    yield Planned(plan, frozenset(_domains(workspace, ((step.asset, step.partition) for step in plan))))
    with nullcontext(workspace.pool) if workspace.pool else Pool() as pool:
        yield from _carried_out_steps(replace(workspace, pool=pool), plan, pool.effort, _How(recheck, publish, review, hand_over))


def _carried_out_steps(workspace: Workspace, plan: Sequence[Step], effort: Effort, how: _How) -> Iterator[Event]:
    """Execute whole domains in workers first, then the other steps one by one."""
    worker, failed = _Worker(workspace, effort, how), dict[tuple[str, str], Step]()

    def noted(events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, Blocked | Skipped):
                failed[event.step.asset.name, event.step.partition] = event.step if isinstance(event, Blocked) else event.because
            yield event

    for part in _in_turns(workspace, plan):
        # where something failed, each step is looked at for what it waits for
        chains = {} if failed else chains_of(workspace, [step for step in part if step.why or how.recheck])
        for family, family_chains in chains.items():
            for event in noted(carried_out(workspace, family, family_chains, how)):
                if isinstance(event, Accepted) and not event.draft:
                    worker.sound.add((event.step.asset.name, event.step.partition))
                yield event
        _prepare_workers(workspace, part)
        by_workers = {step for family_chains in chains.values() for chain in family_chains for step in chain}
        for step in [step for step in part if step not in by_workers]:
            inputs = [(above.name, partition) for above, partition in upstream_of(workspace, step.asset, step.partition)]
            cause = next((failed[key] for key in inputs if key in failed), None)
            yield from noted(worker.carry_out(step) if cause is None else [Skipped(step, cause)])


def _in_turns(workspace: Workspace, plan: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """The plan in parts, one after the other: what domains wait for, such as the passages of held-out texts, stands alone between what it is made of and the
    rest, so that domains are carried out beside each other before and after it."""
    planned = {(step.asset.name, step.partition): step for step in plan if step.why}

    def above(step: Step) -> list[Step]:
        keys = ((asset.name, partition) for asset, partition in upstream_of(workspace, step.asset, step.partition))
        return [planned[key] for key in keys if key in planned]

    awaited = next((each for step in planned.values() if step.partition for each in above(step) if not each.partition), None)
    if awaited is None:
        yield plan
        return
    needed, pending = set[Step](), [awaited]
    while pending:
        new = [each for each in above(pending.pop()) if each not in needed]
        needed.update(new)
        pending += new
    yield [step for step in plan if step in needed]
    yield [awaited]
    yield from _in_turns(workspace, [step for step in plan if step not in needed and step is not awaited])


def _prepare_workers(workspace: Workspace, plan: Sequence[Step]) -> None:
    """Start what workers are forked from where they will pin a large domain: this process hashes it first."""
    for step in plan if workspace.pool else ():
        if step.why and step.asset.stage == "raw" and _text_bytes(workspace, step.asset.family, step.partition) >= LARGE_DOMAIN:
            kind, travelling = FAMILIES[step.asset.family], _travelling(workspace, step.asset.family, {})
            if workspace.pool and travelling and workspace.runner(workspace.family(kind)) is workspace.pool:
                workspace.pool.prepare(partial(opened, travelling, kind))
            return


def _domains(workspace: Workspace, stores: Iterable[tuple[Asset, str]]) -> Iterator[tuple[str, str]]:
    """Family and domain of stores and of all that they are made from."""
    for asset, partition in stores:
        if partition:
            yield asset.family, partition
        yield from _domains(workspace, upstream_of(workspace, asset, partition))


class _How(Struct, frozen=True):
    """The options of `run`."""

    recheck: bool
    publish: bool
    review: bool
    hand_over: bool


class _Worker:
    """Carries out one step after the other.

    Attributes:
        how: the options of `run`.
        sound: asset and partition of the stores whose checks held, or whose files were compared with their manifests, since it began.
    """

    def __init__(self, workspace: Workspace, effort: Effort, how: _How) -> None:
        self._workspace, self._effort, self.how = workspace, effort, how
        self.sound: set[tuple[str, str]] = set()

    def carry_out(self, step: Step) -> Iterator[Event]:
        """Build and check one store, then accept or block it."""
        began, workspace = monotonic(), self._workspace if step.requested else self._workspace.plain
        verdicts: dict[str, Verdict] = {}
        published: Published | None = None
        try:
            if not step.why and not self.how.recheck and step.standing and (current := step.standing.published):
                if step.standing.ruled_anew:
                    with suppress(StoreError):  # a folder that can only be read
                        workspace.place(step.asset.name, step.partition).record(current, step.standing.results)
                yield Accepted(
                    step, replace(current, reused=True), {name: Verdict(*result) for name, result in step.standing.results.items()}
                )
                return
            yield Started(step)
            if step.why:
                yield from self._check_inputs(workspace, step)
            before = replace(self._effort)
            build = step.asset.build(workspace, step.partition)
            draft = (bool(build.overrides) and not self.how.publish) or (self.how.review and step.requested)
            published = build.propose(draft=draft, again=step.again)
            known = judged_anew(workspace, step.asset, published, published.results or {}, always=published.reused)
            if published.reused and not only_rules_fail(known):
                # its files are what its manifest says, and yet a check did not hold: only what is written again is worth another look
                published = build.propose(draft=draft, again=True)
                known = dict(published.results or {})
            if fewer := keeps_fewer(Store(workspace, step.asset, published)):
                published = replace(published, notes=(*published.notes, fewer))
            yield Written(step, published)
            recorded = {} if self.how.recheck or not published.reused else {name: Verdict(*result) for name, result in known.items()}
            verdicts |= {check.name: recorded[check.name] for check in step.asset.checks if check.name in recorded}
            open_checks = [check for check in step.asset.checks if check.name not in recorded]
            for name, verdict in verdicts_of(workspace, step.asset, published, open_checks):
                verdicts[name] = verdict
                yield Checked(step, name, verdict)
            event = self._conclude(step, published, verdicts, build.overrides, draft=draft)
            if isinstance(event, Accepted):
                event = replace(event, effort=self._effort.since(before), seconds=monotonic() - began)
                if not published.reused:
                    keep_seconds(workspace, step, event.seconds)
            yield event
        except (PrepAssetsError, OSError) as fault:
            error = fault if isinstance(fault, PrepAssetsError) else StoreError(f"{step.label}: {in_words(fault, workspace.stores)}")
            text = str(error)
            yield Blocked(step, text if text.startswith(step.label) else f"{step.label}: {text}", verdicts, published, error)

    def _conclude(
        self, step: Step, published: Published, verdicts: Mapping[str, Verdict], overrides: tuple[str, ...], *, draft: bool
    ) -> Accepted | Blocked:
        hand_over = self.how.hand_over and step.requested and not draft
        failed = {name: verdict for name, verdict in verdicts.items() if not verdict.passed}
        if failed or draft or hand_over:
            self._workspace.place(step.asset.name, step.partition).record(published, _results(verdicts))
        if failed:
            reasons = "\n".join(f"  {name}: {verdict.summary}" for name, verdict in failed.items())
            place = self._workspace.place(step.asset.name, step.partition)
            is_current = place.pointers.current == published.version
            what = "the published store fails its checks" if is_current else "not published, because it fails its checks"
            family = self._workspace.family(FAMILIES[step.asset.family])
            redacts = step.partition in family.domains and bool(family.domains[step.partition].redact)
            # what is left of private data must not stay in a store that nobody reads
            is_gone = False
            if redacts and not is_current:
                is_gone = place.discard(published.version)
            where = "deleted, since its domain is redacted" if is_gone else f"left in {published.where}"
            message = f"{step.label}: {what}. The store is {where}\n{reasons}"
            return Blocked(step, message, verdicts, None if is_gone else published)
        if draft:
            return Accepted(step, published, verdicts, overrides, draft)
        candidate = Candidate(step, published, verdicts, overrides)
        if hand_over:
            return candidate
        accepted = make_current(self._workspace, candidate)
        self.sound.add((step.asset.name, step.partition))
        return accepted

    def _check_inputs(self, workspace: Workspace, step: Step) -> Iterator[Event]:
        """Compare what a store is about to be made from with its manifest. What is damaged is built again first."""
        for above, partition in upstream_of(workspace, step.asset, step.partition):
            key = (above.name, partition)
            published = workspace.published(*key)
            if key in self.sound or published is None:
                continue
            try:
                published.verify()
            except StoreError as error:
                what = str(error).splitlines()[-1].strip()
                why = f"damaged: {what}"
                workspace.place(*key).set_aside(published, {INTEGRITY.name: Result(False, what)})
                for event in self.carry_out(Step(above, partition, "broken", why, requested=False)):
                    if isinstance(event, Blocked):
                        raise StoreError(event.reason) from error
                    yield event
            self.sound.add(key)


def make_current(workspace: Workspace, candidate: Candidate) -> Accepted:
    """Publish a store whose checks hold: from now on `current` leads to it.

    Raises:
        StoreError: it is not the store that was checked, is there no longer, or cannot be read; `current` stays what it is.
    """
    step = candidate.step
    workspace.place(step.asset.name, step.partition).accept(candidate.published, _results(candidate.verdicts))
    return Accepted(**{field.name: getattr(candidate, field.name) for field in fields(Accepted)})


def _results(verdicts: Mapping[str, Verdict]) -> dict[str, Result]:
    return {name: as_result(verdict) for name, verdict in verdicts.items()}


def check(workspace: Workspace, step: Step) -> Iterator[Event]:
    """Run every check on a published store once more, build nothing, and write down what they say."""
    verdicts: dict[str, Verdict] = {}
    place = workspace.place(step.asset.name, step.partition)
    try:
        published = place.current()
    except StoreError as error:
        yield Blocked(step, str(error), {})
        return
    if published is None:
        yield Blocked(step, f"{step.label} has no store", {})
        return
    for name, verdict in verdicts_of(workspace, step.asset, published, step.asset.checks):
        verdicts[name] = verdict
        yield Checked(step, name, verdict)
    with suppress(StoreError):  # a folder that can only be read
        place.record(published, _results(verdicts))
    if all(verdict.passed for verdict in verdicts.values()):
        yield Accepted(step, replace(published, reused=True), verdicts)
    else:
        yield Blocked(step, f"{step.label} fails its checks", verdicts, published)


# `build`: one call that brings assets up to date.

Tell = Callable[[Event], None]


class BuildFailed(PrepAssetsError):
    """Some stores could not be built, or fail a check. The message has the reason of each."""


class Built(Struct, frozen=True):
    """A store that holds.

    Attributes:
        asset, partition: what it is a store of.
        published: the store; `published.reused` where it was there already.
        overrides: what options of one run changed against the configuration file, e.g. ``packing.row_len``.
        draft: whether it is a draft, and not current.
    """

    asset: str
    partition: str
    published: Published
    overrides: tuple[str, ...] = ()
    draft: bool = False


def build(
    workspace: Workspace,
    *assets: str,
    partition: str | None = None,
    force: bool = False,
    recheck: bool = False,
    publish: bool = False,
    review: bool = False,
    tell: Tell = lambda event: None,
) -> list[Built]:
    """Bring assets up to date, with everything that they are made from: build, run the checks, accept or block.

    Args:
        workspace: where the configuration and the stores are, and the options of this run.
        assets: by name.
        partition: one domain of partitioned assets; all where left out.
        force: build those asked for even where they are current.
        recheck: run the checks of those that are current once more.
        publish: make what options of this run give current; else it is a draft.
        review: leave the stores asked for as drafts, which `accept` makes current.
        tell: is given each event.

    Returns:
        The stores asked for, in order.

    Raises:
        PrepAssetsError: what stopped the only store that could not be built.
        BuildFailed: several stores failed, or one fails its checks. What could be built is built.
        ConfigError: no such asset or partition, or options that do not apply.
    """
    steps = plan(workspace, stores_of(workspace, assets, partition), force=force)
    if review:
        _check_review(workspace, steps, publish)
    reporting = replace(workspace, progress=lambda what, done, total: tell(Progress(what, done, total)))
    built: list[Built] = []
    refused: list[Blocked] = []
    skipped: list[Skipped] = []
    for event in run(reporting, steps, recheck=recheck, publish=publish, review=review):
        tell(event)
        match event:
            case Accepted() if event.step.requested:
                built.append(Built(event.step.asset.name, event.step.partition, event.published, event.overrides, event.draft))
            case Blocked():
                refused.append(event)
            case Skipped():
                skipped.append(event)
    if len(refused) == 1 and not skipped and refused[0].error:
        raise refused[0].error
    if refused:
        raise BuildFailed(_reasons(refused, skipped))
    return built


def _check_review(workspace: Workspace, steps: Sequence[Step], publish: bool) -> None:
    """Raise where a draft would be made from what another draft replaces."""
    if publish:
        raise ConfigError("a store is published, or a draft for review: leave out one of them")
    asked = {(step.asset.name, step.partition): step for step in steps if step.requested and step.why}
    for step in asked.values():
        for above, partition in upstream_of(workspace, step.asset, step.partition):
            if (above.name, partition) in asked:
                source = asked[above.name, partition].label
                raise ConfigError(
                    f"{step.label} is made from {source}, so both cannot be drafts. Review {source} first, or name only {step.asset.name}"
                )


def accept(workspace: Workspace, asset: str, partition: str | None = None) -> list[Published]:
    """Make the drafts of an asset current, exactly as they are. They are not built again, and their files are compared with their manifests.

    Raises:
        ConfigError: no such asset, or no draft.
        StoreError: a check of a draft failed or did not run, its files are damaged, or it is not what the configuration asks for any more.
    """
    drafts = [(declared, key, workspace.place(declared.name, key).draft()) for declared, key in stores_of(workspace, [asset], partition)]
    found = [(declared, key, draft) for declared, key, draft in drafts if draft is not None]
    if not found:
        raise ConfigError(f"{asset} has no draft. Make one: prep-assets build {asset} --review")
    judged: list[dict[str, Result]] = []
    for declared, key, draft in found:
        results, label = judged_anew(workspace, declared, draft, draft.results or {}, always=True), draft.manifest.label
        if unseen := [check.name for check in declared.checks if check.name not in results]:
            raise StoreError(f"{label}: the draft was not checked: {', '.join(unseen)}. Build it again")
        if faults := [f"{name}: {result.summary}" for name, result in results.items() if not result.passed]:
            raise StoreError(f"{label}: the draft does not hold: {'; '.join(faults)}. Build it again, or change the rule that it breaks")
        recipe = declared.recipe(workspace.plain, key)
        if draft.manifest.config_key != build_key(recipe):
            changed = ", ".join(differences(draft.manifest.recipe, recipe)) or "another configuration"
            raise StoreError(f"{label}: since the draft was made, something changed: {changed}. Build it again")
        draft.verify()
        judged.append(results)
    for (declared, key, draft), results in zip(found, judged, strict=True):
        workspace.place(declared.name, key).accept(draft, results)
    return [draft for _, _, draft in found]


def stores_of(workspace: Workspace, assets: Iterable[str], partition: str | None = None) -> list[StoreKey]:
    """Every store of the assets, or those of one partition.

    Raises:
        ConfigError: no such asset or partition; the message names the nearest.
    """
    matches = (asset_and_partitions(workspace, name, partition) for name in assets)
    return [(asset, key) for asset, partitions in matches for key in partitions]


def _reasons(refused: list[Blocked], skipped: list[Skipped]) -> str:
    waiting_for: dict[Step, list[str]] = {}
    for skip in skipped:
        waiting_for.setdefault(skip.because, []).append(skip.step.label)
    lines = []
    for fault in refused:
        waiting = waiting_for.get(fault.step)
        lines.append(fault.reason + (f"\n  so not built: {', '.join(waiting)}" if waiting else ""))
    return "\n".join(lines)
