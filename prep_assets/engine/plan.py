"""The plan: which stores are built, in which order and why; and which options of one run can mean anything for an asset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prep_assets.config.models import FAMILIES
from prep_assets.engine.status import State, Status, Statuses
from prep_assets.errors import ConfigError
from prep_assets.graph.graph import EVERY, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.manifest import build_key

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
    standing: Status | None = field(default=None, compare=False, repr=False)

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.asset.name}[{self.partition}]" if self.partition else self.asset.name


def plan(workspace: Workspace, stores: Iterable[Store], *, force: bool = False, look: Statuses | None = None) -> list[Step]:
    """Everything that must be built so that `stores` are current, what feeds others first; the stores asked for are always in it.

    Args:
        force: build those asked for even where they are current.
        look: what is known of the stores; a new one where left out.

    Raises:
        ConfigError: options of this run that do not apply to the assets asked for; or something upstream is out of date and `on_missing` is fail.
    """
    look, wanted = look or Statuses(workspace), list(stores)
    look.ahead(wanted)
    if workspace.overrides:
        for asset, partition in wanted:
            check_overrides(workspace, asset, partition)
    requested = {(asset.name, partition) for asset, partition in wanted}
    steps: dict[tuple[str, str], Step] = {}
    for asset, partition in wanted:
        _add(workspace, asset, partition, look, requested, force, steps)
    _check_on_missing(workspace, list(steps.values()))
    return list(steps.values())


def _add(
    workspace: Workspace,
    asset: Asset,
    partition: str,
    look: Statuses,
    requested: set[tuple[str, str]],
    force: bool,
    steps: dict[tuple[str, str], Step],
) -> None:
    """Put a store into the plan behind what it is made from; nothing above a store that is current is looked at."""
    key = (asset.name, partition)
    if key in steps:
        return
    for above, above_partition in upstream_of(workspace, asset, partition):
        if (above.name, above_partition) in requested or look.at(above, above_partition).state != "current":
            _add(workspace, above, above_partition, look, requested, force, steps)
    standing, forced = look.at(asset, partition), force and key in requested
    options = key in requested and bool(workspace.overrides.get(asset.family))
    published_overrides = ", ".join(standing.overrides) if key in requested else ""
    why = standing.why or (
        "asked for again"
        if forced
        else "with options of this run"
        if options
        else f"published with options of one run: {published_overrides}"
        if published_overrides
        else ""
    )
    steps[key] = Step(asset, partition, standing.state, why, key in requested, forced or standing.state == "failed", standing)


def _check_on_missing(workspace: Workspace, steps: list[Step]) -> None:
    behind = [step for step in steps if not step.requested and workspace.family(FAMILIES[step.asset.family]).on_missing == "fail"]
    if behind:
        named = ", ".join(f"{step.label} ({step.why})" for step in behind)
        names = ", ".join(dict.fromkeys(step.asset.name for step in steps if step.requested))
        commands = "\n".join(f"  {build_command(step.asset.name, step.partition)}" for step in behind)
        raise ConfigError(f"{names} is made from {named}, and on_missing is fail. Build that first:\n{commands}")


HOW = ("engine", "on_missing", "workers", "cluster")
"""Options that say how to build and change no byte; they apply to every asset."""


def check_overrides(workspace: Workspace, asset: Asset, partition: str) -> None:
    """Raise on options of this run that change nothing about a store, instead of ignoring them.

    An option counts as ignored when the recipe stays the same without it, although it is not what the file says.

    Raises:
        ConfigError: it names the options, and the assets that take them.
    """
    faults = []
    for family, options in workspace.overrides.items():
        for path in list(_leaves(options)):
            if family != asset.family or (path[0] not in HOW and _ignored(workspace, asset, partition, path)):
                faults.append(f"  {'.'.join(path)}: {_remedy(asset, family, path)}")
    if faults:
        label = workspace.place(asset.name, partition).label
        raise ConfigError(f"{label} does not depend on these options of this run:\n" + "\n".join(faults))


def _ignored(workspace: Workspace, asset: Asset, partition: str, path: tuple[str, ...]) -> bool:
    without = workspace.plain.overriding(asset.family, _without(workspace.overrides[asset.family], path))
    kind = FAMILIES[asset.family]
    configured = workspace.family(kind)
    try:
        if without.family(kind) == configured:  # the option says what the file says
            return False
    except ConfigError:  # the others need it
        return False
    return build_key(asset.recipe(without, partition)) == build_key(asset.recipe(workspace, partition))


def _remedy(asset: Asset, family: str, path: tuple[str, ...]) -> str:
    names = [peer.name for peer in EVERY.values() if peer.family == family and takes(peer, ".".join(path))]
    if asset.name in names or not names:
        return "it changes nothing, as the other options are"
    return f"it is an option of {', '.join(names)}"


def takes(asset: Asset, key: str) -> bool:
    """Whether an option, e.g. ``packing.row_len``, can change the asset's store."""
    return any(key == option or key.startswith(f"{option}.") for option in asset.options)


def _leaves(options: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield *above, key


def _without(options: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {key: value for key, value in options.items() if key != first}
    return {**options, first: _without(options[first], tuple(rest))}
