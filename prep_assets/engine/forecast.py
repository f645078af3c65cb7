"""What a build would do, before it is done: which values change, what each store holds now, how long it took, and what is out of date afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from msgspec import Struct

from prep_assets.engine.execute import seconds_of
from prep_assets.engine.plan import Step
from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import assets_of, upstream_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.files import dumps
from prep_assets.stores.manifest import differences

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
    return Forecast(step, tuple(changes), figures, seconds_of(workspace, step.asset.name, step.partition))


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
