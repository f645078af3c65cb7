"""The plan: which stores are built, in which order and why; which options of one run can mean anything for an asset; what a build would change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec import Struct

from prep_assets.checks.bounds import only_rules_fail
from prep_assets.config.models import FAMILIES
from prep_assets.engine.status import State, Status, Statuses
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.graph.graph import EVERY, assets_of, require_known_rules, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.files import Kept, dumps, loads
from prep_assets.stores.manifest import build_key, differences, digest, label_of

StoreKey = tuple[Asset, str]
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
        return label_of(self.asset.name, self.partition)


def plan(workspace: Workspace, stores: Iterable[StoreKey], *, force: bool = False, look: Statuses | None = None) -> list[Step]:
    """Everything that must be built so that `stores` are current, what feeds others first; the stores asked for are always in it.

    Args:
        force: build those asked for even where they are current.
        look: what is known of the stores; a new one where left out.

    Raises:
        ConfigError: options of this run that do not apply to the assets asked for; rules of assets or reasons that there are not; or something upstream
            is out of date and `on_missing` is fail.
    """
    look, wanted = look or Statuses(workspace), list(stores)
    for family in dict.fromkeys(asset.family for asset, _ in wanted):
        require_known_rules(workspace, family)
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
    again = forced or (standing.state == "failed" and not only_rules_fail(standing.results))
    steps[key] = Step(asset, partition, standing.state, why, key in requested, again, standing)


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
        raise ConfigError(f"{label} itself has no such options:\n" + "\n".join(faults))


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
    remedy = (
        f". What it would change: prep-assets impact --set {family}.{'.'.join(path)}=VALUE. To build a second {asset.name} with it, write it in "
        f"{family}.NAME.yaml: prep-assets --variant NAME {build_command(asset.name, '').removeprefix('prep-assets ')}"
    )
    return f"it is an option of {', '.join(names)}" + (remedy if not _made_from(asset).isdisjoint(names) else "")


def _made_from(asset: Asset) -> set[str]:
    return {name for _, above in asset.inputs for name in (above.name, *_made_from(above))}


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


# What a build would do, before it is done: which values change, what each store holds now, how long it took, and what is out of date afterwards.

_TOOK = Kept("took", 4096)
SHOWN = 40
"""Characters of a value."""
FIGURES = ("read", "kept", "rows", "tokens", "trained_tokens")
_HASH = re.compile(r'"([0-9a-f]{8})[0-9a-f]{24,}"')


class Change(Struct, frozen=True):
    """A key of a recipe whose value changes, with both values as short JSON; empty where there is none."""

    key: str
    old: str
    new: str


class Forecast(Struct, frozen=True):
    """What a build would do with one store.

    Attributes:
        changes: what changes in its recipe; what it is made from counts as it is now.
        figures: what the current store holds: records, rows, tokens.
        seconds: how long it took when it was last built on this machine; `None` if that is not known.
    """

    step: Step
    changes: tuple[Change, ...]
    figures: Mapping[str, int]
    seconds: float | None


def forecasts(workspace: Workspace, steps: Iterable[Step]) -> list[Forecast]:
    """What the steps of a plan that have something to do would do."""
    return [_forecast(workspace if step.requested else workspace.plain, step) for step in steps if step.why]


def _forecast(workspace: Workspace, step: Step) -> Forecast:
    current, changes = step.standing.published if step.standing else None, list[Change]()
    if current is not None:
        with suppress(PrepAssetsError):  # what feeds it is missing
            recipe = step.asset.recipe(workspace, step.partition)
            old, keys = current.manifest.recipe, differences(current.manifest.recipe, recipe)
            changes = [Change(key, _short(old, key), _short(recipe, key)) for key in keys]
    figures = {name: current.manifest.counts[name] for name in FIGURES if name in current.manifest.counts} if current else {}
    took = _TOOK.find(_kept_name(workspace, step))
    return Forecast(step, tuple(changes), figures, None if took is None else float(loads(took)))


def keep_seconds(workspace: Workspace, step: Step, seconds: float) -> None:
    """Note how long a store was built and checked on this machine."""
    _TOOK.keep(_kept_name(workspace, step), dumps(round(seconds, 3)).encode())


def _kept_name(workspace: Workspace, step: Step) -> str:
    return digest([str(workspace.where), step.asset.name, step.partition])


def _short(recipe: Mapping[str, Any], key: str) -> str:
    """The value under a dotted key. Keys may hold dots themselves, as those of files do."""
    parts, value = key.split("."), cast(Any, recipe)
    while parts:
        heads = [".".join(parts[:count]) for count in range(len(parts), 0, -1)] if isinstance(value, Mapping) else []
        head = next((head for head in heads if head in value), None)
        if head is None:
            return ""
        value, parts = value[head], parts[head.count(".") + 1 :]
    text = _HASH.sub(r"\1…", dumps(value))
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def out_of_date_then(workspace: Workspace, steps: Sequence[Step]) -> Iterator[str]:
    """The stores that the plan leaves out and that are made from what it builds, such as exports; upstream first."""
    planned = {(step.asset.name, step.partition) for step in steps}
    changing = {(step.asset.name, step.partition) for step in steps if step.why}
    for asset in assets_of(workspace).values():
        for partition in asset.partitions(workspace):
            key = asset.name, partition
            inputs = {(above.name, name) for above, name in upstream_of(workspace, asset, partition)}
            if key not in planned and inputs & changing and workspace.place(*key).exists:
                changing.add(key)
                yield workspace.place(*key).label
