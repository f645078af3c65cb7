"""Options that one run sets over the configuration file: which asset they can mean anything for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prep_assets.assets.graph import EVERY
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.stores.manifest import build_key

HOW = ("engine", "on_missing", "workers", "cluster")
"""Options that say how to build and change no byte; they apply to every asset."""


def check_overrides(workspace: Workspace, asset: Asset, partition: str) -> None:
    """Refuse options of this run that change nothing about a store: they would be accepted and ignored.

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
    names = [each.name for each in EVERY.values() if each.family == family and takes(each, ".".join(path))]
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
