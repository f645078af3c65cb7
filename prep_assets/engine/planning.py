"""The plan: which stores are built, in which order and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prep_assets.assets.commands import build_command
from prep_assets.assets.graph import upstream_of
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.engine.overrides import check_overrides
from prep_assets.engine.standing import Look, Standing, State
from prep_assets.errors import ConfigError

Store = tuple[Asset, str]
"""An asset and one of its partitions, ``""`` where it has none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One store of a plan.

    Attributes:
        asset: what it is a store of.
        partition: of which domain; ``""`` where the asset has one store.
        state: what the store is now.
        why: the reason to build it; empty where nothing needs to be done.
        requested: whether it was asked for; the others are what those are made from.
        again: whether it is built anew even where it is sound.
        standing: what was found when it was looked at.
    """

    asset: Asset
    partition: str
    state: State
    why: str
    requested: bool
    again: bool = False
    standing: Standing | None = field(default=None, compare=False, repr=False)

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.asset.name}[{self.partition}]" if self.partition else self.asset.name


def plan(workspace: Workspace, stores: Iterable[Store], *, force: bool = False, look: Look | None = None) -> list[Step]:
    """Everything that must be built so that `stores` are current, what feeds others first; the stores asked for are always in it.

    Args:
        force: build those asked for even where they are current.
        look: what is known of the stores; a new one where left out.

    Raises:
        ConfigError: options of this run that do not apply to the assets asked for; or something upstream is out of date and `on_missing` is fail.
    """
    look, wanted = look or Look(workspace), list(stores)
    if workspace.overrides:
        for asset, partition in wanted:
            check_overrides(workspace, asset, partition)
    requested = {(asset.name, partition) for asset, partition in wanted}
    found: dict[tuple[str, str], Step] = {}
    for asset, partition in wanted:
        _add(workspace, asset, partition, look, requested, force, found)
    _check_on_missing(workspace, list(found.values()))
    return list(found.values())


def _add(
    workspace: Workspace,
    asset: Asset,
    partition: str,
    look: Look,
    requested: set[tuple[str, str]],
    force: bool,
    found: dict[tuple[str, str], Step],
) -> None:
    """Put a store into the plan behind what it is made from; nothing above a store that is current is looked at."""
    key = (asset.name, partition)
    if key in found:
        return
    for above, each in upstream_of(workspace, asset, partition):
        if (above.name, each) in requested or look.at(above, each).state != "current":
            _add(workspace, above, each, look, requested, force, found)
    standing, forced = look.at(asset, partition), force and key in requested
    options = key in requested and bool(workspace.overrides.get(asset.family))
    own = ", ".join(standing.overrides) if key in requested else ""
    why = standing.why or (
        "asked for again"
        if forced
        else "with options of this run"
        if options
        else f"published with options of one run: {own}"
        if own
        else ""
    )
    found[key] = Step(asset, partition, standing.state, why, key in requested, forced or standing.state == "failed", standing)


def _check_on_missing(workspace: Workspace, steps: list[Step]) -> None:
    behind = [step for step in steps if not step.requested and workspace.family(FAMILIES[step.asset.family]).on_missing == "fail"]
    if behind:
        named = ", ".join(f"{step.label} ({step.why})" for step in behind)
        names = ", ".join(dict.fromkeys(step.asset.name for step in steps if step.requested))
        commands = "\n".join(f"  {build_command(step.asset.name, step.partition)}" for step in behind)
        raise ConfigError(f"{names} is made from {named}, and on_missing is fail. Build that first:\n{commands}")
