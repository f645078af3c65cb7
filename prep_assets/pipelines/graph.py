"""The graph: every asset, what feeds it, and how its store is built. Dagster's definitions and the command line are both made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from prep_assets.config.models import FAMILIES, Family, Preference, Pretrain, Rl, Sft
from prep_assets.errors import ConfigError, nearest
from prep_assets.pipelines import versions
from prep_assets.pipelines.later import later
from prep_assets.pipelines.workspace import Workspace
from prep_assets.stores.manifest import build_key

if TYPE_CHECKING:
    from prep_assets.pipelines.build import Build
    from prep_assets.pipelines.exporting.build import Exporting

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
        lambda workspace, domain: later("sources.raw_build")(workspace, kind, name, domain),
        lambda workspace, domain: later("sources.raw_recipe")(workspace, kind, domain),
        versions.RAW,
    )


ASSETS: Mapping[str, Asset] = {
    asset.name: asset
    for asset in (
        _raw("pretrain", Pretrain),
        Asset(
            "pretrain_tokens",
            "pretrain",
            True,
            ("pretrain_raw",),
            later("families.pretrain.tokens_build"),
            later("families.pretrain.tokens_recipe"),
            versions.PRETRAIN,
        ),
        _raw("sft", Sft),
        Asset(
            "sft_template",
            "sft",
            False,
            (),
            later("families.sft.certificate_build"),
            later("families.sft.certificate_recipe"),
            versions.SFT,
        ),
        Asset(
            "sft_tokens", "sft", True, ("sft_raw",), later("families.sft.tokens_build"), later("families.sft.tokens_recipe"), versions.SFT
        ),
        Asset(
            "sft_packed",
            "sft",
            False,
            ("sft_tokens",),
            later("families.sft_packed.packed_build"),
            later("families.sft_packed.packed_recipe"),
            versions.SFT,
        ),
        _raw("preference", Preference),
        Asset(
            "preferences",
            "preference",
            False,
            ("preference_raw",),
            later("families.preference.pairs_build"),
            later("families.preference.pairs_recipe"),
            versions.PREFERENCE,
        ),
        Asset(
            "preference_tokens",
            "preference",
            False,
            ("preferences",),
            later("families.preference.tokens_build"),
            later("families.preference.tokens_recipe"),
            versions.PREFERENCE,
        ),
        _raw("rl", Rl),
        Asset("rl_prompts", "rl", False, ("rl_raw",), later("families.rl.prompts_build"), later("families.rl.prompts_recipe"), versions.RL),
        Asset(
            "arithmetic_prompts",
            "rl",
            False,
            (),
            later("families.rl.arithmetic_build"),
            later("families.rl.arithmetic_recipe"),
            versions.RL,
        ),
        Asset(
            "rl_tokens",
            "rl",
            False,
            ("rl_prompts", "arithmetic_prompts"),
            later("families.rl.tokens_build"),
            later("families.rl.tokens_recipe"),
            versions.RL,
        ),
    )
}


GROUPS = Asset(
    "rl_groups", "rl", False, ("rl_raw",), later("families.rl_groups.groups_build"), later("families.rl_groups.groups_recipe"), versions.RL
)
"""Scored groups. It stands in the graph where a domain's schema gives them: nobody else has an empty store to build and to look at."""
EVERY: Mapping[str, Asset] = {**ASSETS, GROUPS.name: GROUPS}
"""All assets but exports, those among them that not every configuration has."""


def has_groups(workspace: Workspace) -> bool:
    """Whether the configuration has a domain of scored groups."""
    return workspace.has("rl") and bool(later("families.rl_domains.group_domains")(workspace.family(Rl)))


def assets_of(workspace: Workspace) -> Mapping[str, Asset]:
    """`ASSETS` of the families that have a configuration file, `GROUPS` where there are any, and the exports that the configuration asks for.

    Raises:
        ConfigError: an export that means nothing.
    """
    known = EVERY if has_groups(workspace) else ASSETS
    configured = {name: asset for name, asset in known.items() if workspace.has(asset.family)}
    return {**configured, **{each.asset: _export(each) for each in _exports(workspace)}}


def _exports(workspace: Workspace) -> tuple[Exporting, ...]:
    if not any(workspace.family(kind).exports for name, kind in FAMILIES.items() if workspace.has(name)):
        return ()
    return tuple(later("exporting.build.configured_exports")(workspace))


def _export(each: Exporting) -> Asset:
    build, recipe = partial(later("exporting.build.export_build"), each), partial(later("exporting.build.export_recipe"), each)
    return Asset(each.asset, each.family, EVERY[each.source].partitioned, (each.source,), build, recipe, versions.EXPORT)


def asset_named(name: str, workspace: Workspace | None = None) -> Asset:
    """The asset called `name`; with a workspace, also one of its exports.

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    if name in ASSETS:
        return ASSETS[name]
    known = EVERY if workspace is None else assets_of(workspace)
    if name == GROUPS.name and name not in known:
        raise ConfigError(f"no asset {name!r}: no domain of rl.yaml has a schema that gives a Group, as the schema group does")
    if name not in known:
        raise ConfigError(f"no asset {name!r}{nearest(name, known)}. There are: {', '.join(known)}")
    return known[name]


def upstream_of(workspace: Workspace, asset: Asset, partition: str) -> Iterator[tuple[Asset, str]]:
    """The stores that one store is made from: the same partition of a partitioned input, or all its partitions."""
    for name in asset.upstream:
        above = EVERY[name]
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
