"""`build`: one call that brings assets up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from prep_assets.assets.graph import asset_and_partitions
from prep_assets.assets.workspace import Workspace
from prep_assets.engine.events import Accepted, Event, Progress, Refused, Skipped
from prep_assets.engine.planning import Step, Store, plan
from prep_assets.engine.running import run
from prep_assets.errors import PrepAssetsError
from prep_assets.stores.published import Published

Tell = Callable[[Event], None]


class BuildFailed(PrepAssetsError):
    """Some stores could not be built, or fail a check. The message has the reason of each."""


@dataclass(frozen=True, slots=True)
class Built:
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
    tell: Tell = lambda event: None,
) -> list[Built]:
    """Bring assets up to date, with everything that they are made from: build, run the checks, accept or refuse.

    Args:
        workspace: where the configuration and the stores are, and the options of this run.
        assets: by name.
        partition: one domain of partitioned assets; all where left out.
        force: build those asked for even where they are current.
        recheck: run the checks of those that are current once more.
        publish: make what options of this run give current; else it is a draft.
        tell: is given each event.

    Returns:
        The stores asked for, in order.

    Raises:
        PrepAssetsError: what stopped the only store that could not be built.
        BuildFailed: several stores were refused, or one fails its checks. What could be built is built.
        ConfigError: no such asset or partition, or options that do not apply.
    """
    steps = plan(workspace, stores_of(workspace, assets, partition), force=force)
    reporting = replace(workspace, progress=lambda what, done, total: tell(Progress(what, done, total)))
    built: list[Built] = []
    refused: list[Refused] = []
    skipped: list[Skipped] = []
    for event in run(reporting, steps, recheck=recheck, publish=publish):
        tell(event)
        match event:
            case Accepted() if event.step.requested:
                built.append(Built(event.step.asset.name, event.step.partition, event.published, event.overrides, event.draft))
            case Refused():
                refused.append(event)
            case Skipped():
                skipped.append(event)
    if len(refused) == 1 and not skipped and refused[0].error:
        raise refused[0].error
    if refused:
        raise BuildFailed(_reasons(refused, skipped))
    return built


def stores_of(workspace: Workspace, assets: Iterable[str], partition: str | None = None) -> list[Store]:
    """Every store of the assets, or those of one partition.

    Raises:
        ConfigError: no such asset or partition; the message names the nearest.
    """
    found = (asset_and_partitions(workspace, name, partition) for name in assets)
    return [(asset, each) for asset, partitions in found for each in partitions]


def _reasons(refused: list[Refused], skipped: list[Skipped]) -> str:
    waiting_for: dict[Step, list[str]] = {}
    for each in skipped:
        waiting_for.setdefault(each.because, []).append(each.step.label)
    lines = []
    for fault in refused:
        waiting = waiting_for.get(fault.step)
        lines.append(fault.reason + (f"\n  so not built: {', '.join(waiting)}" if waiting else ""))
    return "\n".join(lines)
