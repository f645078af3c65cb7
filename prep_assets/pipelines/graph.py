"""The graph: every asset, what feeds it, and how its store is built. Dagster's definitions and the command line are both made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from prep_assets.config.models import FAMILIES, Family, Preference, Pretrain, Rl, Sft
from prep_assets.errors import ConfigError, nearest
from prep_assets.pipelines import exporting, preference, pretrain, rl, sft
from prep_assets.pipelines.build import Build
from prep_assets.pipelines.sources import raw_build, raw_recipe
from prep_assets.pipelines.workspace import Workspace
from prep_assets.stores.manifest import build_key

State = Literal["missing", "stale", "current"]


@dataclass(frozen=True, slots=True)
class Asset:
    """One node.

    Attributes:
        name: its asset key, and the folder of its stores.
        family: whose configuration it reads.
        partitioned: whether each domain is a partition.
        upstream: assets whose stores it reads.
        build: workspace and partition (``""`` where it has none) → how to make its store.
        recipe: the same → what its store depends on.
        version: code version; it counts up when the same input gives other bytes.
    """

    name: str
    family: str
    partitioned: bool
    upstream: tuple[str, ...]
    build: Callable[[Workspace, str], Build]
    recipe: Callable[[Workspace, str], Mapping[str, Any]]
    version: str

    def partitions(self, workspace: Workspace) -> tuple[str, ...]:
        """Its partitions, in the order of the configuration; ``("",)`` where it has none."""
        return tuple(workspace.family(FAMILIES[self.family]).domains) if self.partitioned else ("",)


def _raw(family: str, kind: type[Family]) -> Asset:
    name = f"{family}_raw"
    return Asset(
        name,
        family,
        True,
        (),
        lambda workspace, domain: raw_build(workspace, kind, name, domain),
        lambda workspace, domain: raw_recipe(workspace, kind, domain),
        "1",
    )


ASSETS: Mapping[str, Asset] = {
    asset.name: asset
    for asset in (
        _raw("pretrain", Pretrain),
        Asset("pretrain_tokens", "pretrain", True, ("pretrain_raw",), pretrain.tokens_build, pretrain.tokens_recipe, pretrain.VERSION),
        _raw("sft", Sft),
        Asset("sft_template", "sft", False, (), sft.certificate_build, sft.certificate_recipe, sft.VERSION),
        Asset("sft_tokens", "sft", True, ("sft_raw",), sft.tokens_build, sft.tokens_recipe, sft.VERSION),
        Asset("sft_packed", "sft", False, ("sft_tokens",), sft.packed_build, sft.packed_recipe, sft.VERSION),
        _raw("preference", Preference),
        Asset("preferences", "preference", False, ("preference_raw",), preference.pairs_build, preference.pairs_recipe, preference.VERSION),
        Asset("preference_tokens", "preference", False, ("preferences",), preference.tokens_build, preference.tokens_recipe, preference.VERSION),
        _raw("rl", Rl),
        Asset("rl_prompts", "rl", False, ("rl_raw",), rl.prompts_build, rl.prompts_recipe, rl.VERSION),
        Asset("arithmetic_prompts", "rl", False, (), rl.arithmetic_build, rl.arithmetic_recipe, rl.VERSION),
        Asset("rl_tokens", "rl", False, ("rl_prompts", "arithmetic_prompts"), rl.tokens_build, rl.tokens_recipe, rl.VERSION),
    )
}


def assets_of(workspace: Workspace) -> Mapping[str, Asset]:
    """`ASSETS`, and after them the exports that the workspace's configuration asks for.

    Raises:
        ConfigError: an export that means nothing.
    """
    return {**ASSETS, **{each.asset: _export(each) for each in exporting.configured_exports(workspace)}}


def _export(each: exporting.Exporting) -> Asset:
    build, recipe = partial(exporting.export_build, each), partial(exporting.export_recipe, each)
    return Asset(each.asset, each.family, ASSETS[each.source].partitioned, (each.source,), build, recipe, exporting.VERSION)


def asset_named(name: str, workspace: Workspace | None = None) -> Asset:
    """The asset called `name`; with a workspace, also one of its exports.

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    if name in ASSETS:
        return ASSETS[name]
    known = ASSETS if workspace is None else assets_of(workspace)
    if name not in known:
        raise ConfigError(f"no asset {name!r}{nearest(name, known)}. There are: {', '.join(known)}")
    return known[name]


def upstream_of(workspace: Workspace, asset: Asset, partition: str) -> Iterator[tuple[Asset, str]]:
    """The stores that one store is made from: the same partition of a partitioned input, or all its partitions."""
    for name in asset.upstream:
        above = ASSETS[name]
        same = asset.partitioned and above.partitioned
        for each in (partition,) if same else above.partitions(workspace):
            yield above, each


def state(workspace: Workspace, asset: Asset, partition: str) -> State:
    """Whether a store is what the configuration and the sources of this moment ask for.

    It is ``stale`` when its recipe has changed (options, code, tokenizer, template, source files) or anything that it was made from is not
    current. A store that a run made with overridden options counts as current: somebody asked for it.
    """
    published = workspace.published(asset.name, partition)
    if published is None:
        return "missing"
    if any(state(workspace, above, each) != "current" for above, each in upstream_of(workspace, asset, partition)):
        return "stale"
    return "current" if published.manifest.config_key == build_key(asset.recipe(workspace.plain, partition)) else "stale"


def out_of_date(workspace: Workspace, asset: Asset, partition: str = "") -> list[tuple[Asset, str, State]]:
    """Everything above a store that is not current, what feeds others first. The store itself is not in the list."""
    found: dict[tuple[str, str], tuple[Asset, str, State]] = {}
    for above, each in upstream_of(workspace, asset, partition):
        for entry in out_of_date(workspace, above, each):
            found.setdefault((entry[0].name, entry[1]), entry)
        now = state(workspace, above, each)
        if now != "current":
            found.setdefault((above.name, each), (above, each, now))
    return list(found.values())
