"""What a store is made with, for the head of its page: tokenizer, chat template, mask policy, packing; by the recipes of its lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prep_assets.config.family import Chat, Family
from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import family_of
from prep_assets.pipeline.asset import Asset, tokenizer_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published


def made_with(workspace: Workspace, name: str, sources: Sequence[tuple[Asset, list[Published]]]) -> list[tuple[str, str]]:
    """(what, value) of the stores in `sources`, those of the asset `name` last."""
    recipes = [store.manifest.recipe for _, stores in sources for store in stores]
    tokenizers = dict.fromkeys(recipe["tokenizer"]["sha256"] for recipe in recipes if isinstance(recipe.get("tokenizer"), Mapping))
    templates = dict.fromkeys(str(recipe["template"]) for recipe in recipes if recipe.get("template"))
    family = family_of(workspace, name)
    made = [
        *_named("Tokenizer", family.tokenizer, tokenizers, _configured(workspace, family, "tokenizer")),
        *_named("Chat template", getattr(family, "template", ""), templates, _configured(workspace, family, "template")),
    ]
    if policy := next((recipe for recipe in recipes if "train_on_eos" in recipe), None):
        made.append(("Mask policy", MaskPolicy.of(policy).in_words()))
    if packing := next((recipe["packing"] for recipe in reversed(recipes) if "packing" in recipe), None):
        made.append(("Packing", f"{packing['strategy']}, rows of {packing['row_len']:,} tokens"))
    return made


def _configured(workspace: Workspace, family: Family, what: str) -> str:
    """The hash of the tokenizer or template that the configuration names now; empty where it cannot be opened."""
    with suppress(PrepAssetsError):
        if what == "tokenizer":
            return str(tokenizer_recipe(workspace, family)["sha256"])
        if isinstance(family, Chat):
            return workspace.template(family).hash
    return ""


def _named(what: str, option: str, digests: Iterable[str], configured: str) -> Iterator[tuple[str, str]]:
    """Hashes, each with the name that the configuration gives it, without a local path."""
    name = Path(option).name if option.startswith(("/", ".")) else option
    name = "the tokenizer's own" if (what, option) == ("Chat template", "tokenizer") else name
    for digest in digests:
        yield what, f"{name} ({digest[:12]})" if digest == configured else f"{digest[:12]}, not the one configured now"
