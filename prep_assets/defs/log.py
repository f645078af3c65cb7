"""What a run's log says while the engine works."""

from __future__ import annotations

import time

import dagster as dg

from prep_assets.engine.events import Accepted, Candidate, Checked, Event, Planned, Refused, Skipped, Started, Written

LONG, SECONDS_BETWEEN = 1 << 24, 300.0
"""Bytes of work for which progress is logged, and the longest silence in seconds."""


def log_event(context: dg.AssetExecutionContext, event: Event) -> None:
    """The gist of an event, in the run's log."""
    match event:
        case Planned(steps):
            first = [step for step in steps if not step.requested]
            if first:
                named = ", ".join(f"{step.label} ({step.why})" for step in first)
                context.log.info(f"building first what it is made from: {named}")
        case Started(step):
            context.log.info(f"{step.label}: {step.why or 'checked again'}")
        case Written(step, published):
            what = "nothing to do, the store is there" if published.reused else "written"
            context.log.info(f"{step.label}: {what}: {published.where}")
            for note in published.notes:
                context.log.warning(f"{step.label}: {note}")
        case Checked(step, name, verdict) if not verdict.passed:
            context.log.error(f"{step.label}: {name} does not hold: {verdict.summary}")
        case Accepted(step, published, _, overrides, True):
            changed = ", ".join(overrides)
            context.log.warning(f"{step.label}: a draft with {changed}; current has not moved. The draft is in {published.where}")
        case Candidate():
            pass  # the IO manager says when it is published
        case Accepted(step, published):
            context.log.info(f"{step.label}: every check holds, published: {published.where}")
        case Refused(_, reason):
            context.log.error(reason)
        case Skipped(step, because):
            context.log.error(f"{step.label}: not built, because {because.label} could not be")


class LogProgress:
    """Reports long work to the run's log, at each further tenth and every few minutes."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._log, self._reported = context.log, dict[str, tuple[int, float]]()

    def __call__(self, what: str, done: int, total: int) -> None:
        work, _, figures = what.partition(": ")
        share, now = min(100, 100 * done // total) if total else 100, time.monotonic()
        tenth, before = self._reported.get(work, (0, now))
        if total > LONG and (share // 10 > tenth or now - before > SECONDS_BETWEEN):
            self._log.info(f"{work}: {share} %" + (f", {figures}" if figures else ""))
            before = now
        self._reported[work] = share // 10, before
