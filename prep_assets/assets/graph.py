"""The graph: every asset, what feeds it, and how its store is built. Dagster's definitions and the command line are both made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from prep_assets.assets import versions
from prep_assets.assets.later import later
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Family, Preference, Pretrain, Rl, Sft
from prep_assets.errors import ConfigError, nearest

if TYPE_CHECKING:
    from prep_assets.assets.build import Build
    from prep_assets.assets.exports import Exporting


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
        options: what of the family's configuration its recipe depends on, dotted, apart from what one domain says; `domains` where it reads all.
    """

    name: str
    family: str
    partitioned: bool
    upstream: tuple[str, ...]
    build: Callable[[Workspace, str], Build]
    recipe: Callable[[Workspace, str], Mapping[str, Any]]
    version: str
    options: tuple[str, ...] = ()

    def partitions(self, workspace: Workspace) -> tuple[str, ...]:
        """Its partitions, in the order of the configuration; ``("",)`` where it has none."""
        return tuple(workspace.family(FAMILIES[self.family]).domains) if self.partitioned else ("",)


TOKENIZER = ("tokenizer", "tokenizer_revision", "tokenizer_loader")
REASONING = ("reasoning", "reasoning_tags")
TEMPLATE = (*TOKENIZER, "template", "template_options")
IMAGES = ("image_token", "image_patches")
MASK = (
    "mask",
    "mask_default",
    "train_on_eos",
    "train_turns",
    "train_thinking",
    "train_tool_calls",
    "train_headers",
    "special_in_content",
    "truncation",
    "truncation_keeps_stop",
)
"""Options of the sft family that decide the loss mask."""


def _raw(family: str, kind: type[Family]) -> Asset:
    name = f"{family}_raw"
    return Asset(
        name,
        family,
        True,
        (),
        lambda workspace, domain: later("raw.raw_build")(workspace, kind, name, domain),
        lambda workspace, domain: later("raw.raw_recipe")(workspace, kind, domain),
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
            later("pretrain_tokens.tokens_build"),
            later("pretrain_tokens.tokens_recipe"),
            versions.PRETRAIN,
            (*TOKENIZER, *IMAGES, "bos", "preprocessing", "output", "test_fraction"),
        ),
        _raw("sft", Sft),
        Asset(
            "sft_template",
            "sft",
            False,
            (),
            later("sft_tokens.certificate_build"),
            later("sft_tokens.certificate_recipe"),
            versions.SFT,
            (*TEMPLATE, *IMAGES),
        ),
        Asset(
            "sft_tokens",
            "sft",
            True,
            ("sft_raw",),
            later("sft_tokens.tokens_build"),
            later("sft_tokens.tokens_recipe"),
            versions.SFT,
            (
                *TEMPLATE,
                *REASONING,
                "expand",
                *IMAGES,
                *MASK,
                "preprocessing",
                "test_fraction",
                "output.dtype",
                "output.max_tokens_per_shard",
            ),
        ),
        Asset(
            "sft_packed",
            "sft",
            False,
            ("sft_tokens",),
            later("sft_packed.packed_build"),
            later("sft_packed.packed_recipe"),
            versions.SFT,
            ("packing", "output"),
        ),
        _raw("preference", Preference),
        Asset(
            "preferences",
            "preference",
            False,
            ("preference_raw",),
            later("preferences.pairs_build"),
            later("preferences.pairs_recipe"),
            versions.PREFERENCE,
            (*REASONING, "domains", "max_per_source", "test_fraction", "seed", "shuffle", "form", "preprocessing.deduplicate"),
        ),
        Asset(
            "preference_tokens",
            "preference",
            False,
            ("preferences",),
            later("preferences.tokens_build"),
            later("preferences.tokens_recipe"),
            versions.PREFERENCE,
            (*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "output"),
        ),
        _raw("rl", Rl),
        Asset(
            "rl_prompts",
            "rl",
            False,
            ("rl_raw",),
            later("rl_prompts.prompts_build"),
            later("rl_prompts.prompts_recipe"),
            versions.RL,
            (*REASONING, "domains", "test_fraction", "form", "preprocessing.deduplicate"),
        ),
        Asset(
            "arithmetic_prompts",
            "rl",
            False,
            (),
            later("rl_prompts.arithmetic_build"),
            later("rl_prompts.arithmetic_recipe"),
            versions.RL,
            ("arithmetic",),
        ),
        Asset(
            "rl_tokens",
            "rl",
            False,
            ("rl_prompts", "arithmetic_prompts"),
            later("rl_prompts.tokens_build"),
            later("rl_prompts.tokens_recipe"),
            versions.RL,
            (*TEMPLATE, *REASONING, "preprocessing.max_seq_len", "output"),
        ),
    )
}


GROUPS = Asset(
    "rl_groups",
    "rl",
    False,
    ("rl_raw",),
    later("rl_groups.groups_build"),
    later("rl_groups.groups_recipe"),
    versions.RL,
    (*TEMPLATE, *REASONING, "domains", "test_fraction", "preprocessing.deduplicate", "preprocessing.max_seq_len", "output"),
)
"""Scored groups. It is in the graph where a domain's schema gives them; elsewhere its store would always be empty."""
EVERY: Mapping[str, Asset] = {**ASSETS, GROUPS.name: GROUPS}
"""All assets but exports, those among them that not every configuration has."""


def has_groups(workspace: Workspace) -> bool:
    """Whether the configuration has a domain of scored groups."""
    return workspace.has("rl") and bool(later("reading.rl_domains.group_domains")(workspace.family(Rl)))


def assets_of(workspace: Workspace) -> Mapping[str, Asset]:
    """Every asset that the configuration has: those of each family that has a file, and the exports that it asks for.

    Raises:
        ConfigError: a configuration that means nothing.
    """
    families = [family for family in FAMILIES if workspace.has(family)]
    known = {name: asset for family in families for name, asset in family_assets(workspace, family).items()}
    return {**{name: asset for name, asset in known.items() if name in EVERY}, **known}


def family_assets(workspace: Workspace, family: str) -> Mapping[str, Asset]:
    """The assets of one family: those of `ASSETS`, `GROUPS` where there are any, and its exports.

    Raises:
        ConfigError: the family's configuration means nothing.
    """
    own = {name: asset for name, asset in ASSETS.items() if asset.family == family}
    if family == GROUPS.family and has_groups(workspace):
        own[GROUPS.name] = GROUPS
    return {**own, **{each.asset: _export(each) for each in exports_of(workspace, family)}}


def exports_of(workspace: Workspace, family: str) -> tuple[Exporting, ...]:
    """The exports that one family's configuration asks for; what makes them is imported only where there are any."""
    return tuple(later("exports.family_exports")(workspace, family)) if workspace.family(FAMILIES[family]).exports else ()


def _export(each: Exporting) -> Asset:
    build, recipe = partial(later("exports.export_build"), each), partial(later("exports.export_recipe"), each)
    options = (f"exports.{each.asset.removeprefix(f'{each.family}_export_')}",)
    return Asset(each.asset, each.family, EVERY[each.source].partitioned, (each.source,), build, recipe, versions.EXPORT, options)


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
