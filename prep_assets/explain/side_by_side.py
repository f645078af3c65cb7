"""`compare`: the stores of two folders side by side: figures, refusals, leaks, and which records only one of them has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from prep_assets.checks.bounds import metrics_of
from prep_assets.errors import ConfigError, nearest
from prep_assets.explain.changes import Difference, compare
from prep_assets.explain.where import has_records
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published


class Pair(Struct, frozen=True):
    """A store in two folders.

    Attributes:
        label: its asset and domain.
        before, after: what is current there; `None` where it has none.
        figures: metric → its values, for those that differ; `None` where a side has none.
        difference: of their records; `None` where they are equal, only on one side, or are none.
    """

    label: str
    before: Published | None
    after: Published | None
    figures: dict[str, tuple[float | None, float | None]]
    difference: Difference | None

    @property
    def same(self) -> bool:
        """Whether both sides hold the same bytes."""
        return self.before is not None and self.after is not None and self.before.manifest.content_hash == self.after.manifest.content_hash


def side_by_side(before: Workspace, after: Workspace, only: Sequence[str] = (), *, examples: int = 0) -> Iterator[Pair]:
    """Compare every store that either folder has, in the order of the graph.

    Args:
        before, after: two configurations, or one, each with its folder of stores.
        only: assets; empty: all.
        examples: how many records of each store to show.

    Raises:
        ConfigError: no such asset, or neither folder has a store.
    """
    sides = [assets_of(workspace) for workspace in (before, after)]
    assets = {**sides[1], **sides[0]}
    if unknown := [name for name in only if name not in assets]:
        raise ConfigError(f"no asset {unknown[0]!r}{nearest(unknown[0], assets) or '.'}")
    found = False
    for name in only or assets:
        partitions = dict.fromkeys(
            partition
            for workspace, side in zip((before, after), sides, strict=True)
            if name in side
            for partition in side[name].partitions(workspace)
        )
        for partition in partitions:
            old, new = (workspace.published(name, partition) for workspace in (before, after))
            if old is None and new is None:
                continue
            found = True
            figures = [metrics_of(side[name], store) if store else {} for side, store in zip(sides, (old, new), strict=True)]
            differing = {
                key: (figures[0].get(key), figures[1].get(key))
                for key in {**figures[1], **figures[0]}
                if figures[0].get(key) != figures[1].get(key)
            }
            pair = Pair(before.place(name, partition).label, old, new, differing, None)
            if old and new and not pair.same and has_records(old):
                difference = compare(after, old, new, examples=examples, of_before=before)
                pair = Pair(pair.label, old, new, differing, difference)
            yield pair
    if not found:
        raise ConfigError(f"neither {before.stores} nor {after.stores} has a store of {', '.join(only) or 'any asset'}")


def as_json(pair: Pair, difference: Any) -> dict[str, Any]:
    """A pair as JSON; `difference` is that of its records, as JSON."""
    state = "same" if pair.same else "added" if pair.before is None else "removed" if pair.after is None else "changed"
    figures = {name: {"before": old, "after": new} for name, (old, new) in pair.figures.items()}
    return {"store": pair.label, "state": state, "figures": figures, "records": difference}
