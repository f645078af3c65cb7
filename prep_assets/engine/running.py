"""Carrying out a plan: each store is built, checked, and accepted or refused. This is the only way by which a store becomes current."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from time import monotonic

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.graph import upstream_of
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.disk.faults import in_words
from prep_assets.engine.beside import CarryOut, carried_out, chains_of
from prep_assets.engine.checking import verdicts as verdicts_of
from prep_assets.engine.events import Accepted, Candidate, Checked, Event, Planned, Refused, Skipped, Started, Written
from prep_assets.engine.planning import Step
from prep_assets.engine.standing import failures
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.checked import Result
from prep_assets.stores.published import Published
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Effort


def run(
    workspace: Workspace, steps: Iterable[Step], *, recheck: bool = False, publish: bool = False, hand_over: bool = False
) -> Iterator[Event]:
    """Carry out a plan. A store that is refused stops what is made from it, and nothing else.

    Args:
        workspace: with this run's options, which apply to the stores asked for.
        recheck: run the checks of stores that are current, too.
        publish: make what this run's options give current; else it is a draft.
        hand_over: leave the stores asked for to the caller, who makes each `Candidate` current.
    """
    plan = tuple(steps)
    yield Planned(plan, frozenset(_domains(workspace, ((step.asset, step.partition) for step in plan))))
    with nullcontext(workspace.pool) if workspace.pool else Pool() as pool:
        yield from _carried_out(replace(workspace, pool=pool), plan, pool.effort, _How(recheck, publish, hand_over))


def _carried_out(workspace: Workspace, plan: tuple[Step, ...], effort: Effort, how: _How) -> Iterator[Event]:
    worker = _Worker(workspace, effort, how)
    failed: dict[tuple[str, str], Step] = {}
    for event in _in_order(workspace, plan, worker, failed, partial(_of_one_domain, how=how)):
        match event:
            case Refused(step):
                failed[step.asset.name, step.partition] = step
            case Skipped(step, because):
                failed[step.asset.name, step.partition] = because
            case _:
                pass
        yield event


def _in_order(
    workspace: Workspace, plan: tuple[Step, ...], worker: _Worker, failed: Mapping[tuple[str, str], Step], by_workers: CarryOut
) -> Iterator[Event]:
    """First what workers carry out of whole domains, then one step after the other."""
    chains = chains_of(workspace, [step for step in plan if step.why or worker.how.recheck])
    for family, each in chains.items():
        for event in carried_out(workspace, family, each, by_workers):
            if isinstance(event, Accepted) and not event.draft:
                worker.sound.add((event.step.asset.name, event.step.partition))
            yield event
    elsewhere = {step for each in chains.values() for chain in each for step in chain}
    for step in plan:
        if step in elsewhere:
            continue
        cause = next((failed[key] for key in _inputs(workspace, step) if key in failed), None)
        if cause is None:
            yield from worker.carry_out(step)
        else:
            yield Skipped(step, cause)


def _of_one_domain(workspace: Workspace, steps: Sequence[Step], how: _How) -> Iterator[Event]:
    return _carried_out(workspace, tuple(steps), Effort(), how)


def _domains(workspace: Workspace, stores: Iterable[tuple[Asset, str]]) -> Iterator[tuple[str, str]]:
    """Family and domain of stores and of all that they are made from."""
    for asset, partition in stores:
        if partition:
            yield asset.family, partition
        yield from _domains(workspace, upstream_of(workspace, asset, partition))


def _inputs(workspace: Workspace, step: Step) -> Iterator[tuple[str, str]]:
    for above, partition in upstream_of(workspace, step.asset, step.partition):
        yield above.name, partition


@dataclass(frozen=True, slots=True)
class _How:
    """The options of `run`."""

    recheck: bool
    publish: bool
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
        """Build, check, and accept or refuse one store."""
        began, workspace = monotonic(), self._workspace if step.requested else self._workspace.plain
        verdicts: dict[str, Verdict] = {}
        published: Published | None = None
        try:
            if not step.why and not self.how.recheck and step.standing and (current := step.standing.published):
                yield Accepted(step, _reused(current), {name: Verdict(*result) for name, result in step.standing.results.items()})
                return
            yield Started(step)
            if step.why:
                yield from self._check_inputs(workspace, step)
            before = replace(self._effort)
            build = step.asset.build(workspace, step.partition)
            draft = bool(build.overrides) and not self.how.publish
            published = build.propose(draft=draft, again=step.again)
            if published.reused and failures(published):
                # its files are what its manifest says, and yet a check did not hold: only what is written again is worth another look
                published = build.propose(draft=draft, again=True)
            yield Written(step, published)
            known = published.results or {}
            recorded = {} if self.how.recheck or not published.reused else {name: Verdict(*result) for name, result in known.items()}
            verdicts |= {check.name: recorded[check.name] for check in step.asset.checks if check.name in recorded}
            open_checks = [check for check in step.asset.checks if check.name not in recorded]
            for name, verdict in verdicts_of(workspace, step.asset, published, open_checks):
                verdicts[name] = verdict
                yield Checked(step, name, verdict)
            event = self._conclude(step, published, verdicts, build.overrides, draft=draft)
            yield replace(event, effort=self._effort.since(before), seconds=monotonic() - began) if isinstance(event, Accepted) else event
        except (PrepAssetsError, OSError) as fault:
            error = fault if isinstance(fault, PrepAssetsError) else StoreError(f"{step.label}: {in_words(fault, workspace.stores)}")
            text = str(error)
            yield Refused(step, text if text.startswith(step.label) else f"{step.label}: {text}", verdicts, published, error)

    def _conclude(
        self, step: Step, published: Published, verdicts: Mapping[str, Verdict], overrides: tuple[str, ...], *, draft: bool
    ) -> Accepted | Refused:
        hand_over = self.how.hand_over and step.requested and not draft
        failed = {name: verdict for name, verdict in verdicts.items() if not verdict.passed}
        if failed or draft or hand_over:
            self._workspace.place(step.asset.name, step.partition).record(published, _results(verdicts))
        if failed:
            reasons = "\n".join(f"  {name}: {verdict.summary}" for name, verdict in failed.items())
            message = f"{step.label}: not published, because it fails its checks. The store is left in {published.where}\n{reasons}"
            return Refused(step, message, verdicts, published)
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
                    if isinstance(event, Refused):
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
    return Accepted(**{each.name: getattr(candidate, each.name) for each in fields(Accepted)})


def _results(verdicts: Mapping[str, Verdict]) -> dict[str, Result]:
    return {name: Result(verdict.passed, verdict.summary) for name, verdict in verdicts.items()}


def _reused(published: Published) -> Published:
    return replace(published, reused=True)


def check(workspace: Workspace, step: Step) -> Iterator[Event]:
    """Run every check on a published store once more, build nothing, and write down what they say."""
    verdicts: dict[str, Verdict] = {}
    place = workspace.place(step.asset.name, step.partition)
    try:
        published = place.current()
    except StoreError as error:
        yield Refused(step, str(error), {})
        return
    if published is None:
        yield Refused(step, f"{step.label} has no store", {})
        return
    for name, verdict in verdicts_of(workspace, step.asset, published, step.asset.checks):
        verdicts[name] = verdict
        yield Checked(step, name, verdict)
    with suppress(StoreError):  # a folder that can only be read
        place.record(published, _results(verdicts))
    if all(verdict.passed for verdict in verdicts.values()):
        yield Accepted(step, _reused(published), verdicts)
    else:
        yield Refused(step, f"{step.label} fails its checks", verdicts, published)
