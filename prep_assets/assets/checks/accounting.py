"""The books: every record that was read is kept, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence

from prep_assets.assets import preferences as preference
from prep_assets.assets import rl_groups
from prep_assets.assets import rl_prompts as rl
from prep_assets.assets.checks.every_store import family_of, open_streams
from prep_assets.assets.graph import EVERY
from prep_assets.assets.raw import domain_of, read_sources
from prep_assets.assets.reading.rl_domains import group_domains, prompt_domains
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Family, Rl
from prep_assets.proofs.accounting import account
from prep_assets.proofs.verdict import Verdict
from prep_assets.records.quarantine import read_quarantine
from prep_assets.schemas.field_names import NEUTRAL
from prep_assets.stores.groups import open_groups
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Published, open_published


def accounting(workspace: Workspace, published: Published) -> Verdict:
    refusals = read_quarantine(published.quarantine) if published.quarantine else ()
    ignored = [f"{name}/{path}" for name, domain in family_of(workspace, published).domains.items() for path in domain.ignore]
    available = _available(workspace, published)
    return account(published.manifest.counts, refusals, stored=_stored(published), available=available, neutral=NEUTRAL, ignored=ignored)


def raw_accounting(workspace: Workspace, published: Published) -> Verdict:
    sources = read_sources(published)
    rows = sum(entry["rows"] for which in ("files", "test_files") for entry in sources[which])
    refusals = list(read_quarantine(published.quarantine)) if published.quarantine else []
    return account(published.manifest.counts, refusals, stored=rows - len(refusals), available=rows)


def _stored(published: Published) -> int:
    """Records that are really in a store."""
    lines = sorted(published.directory.glob("*.jsonl"))
    if lines:
        return sum(len(open_lines(published.directory, path.stem)) for path in lines)
    streams = open_streams(published)
    if published.manifest.asset == "preference_tokens":
        streams = {"chosen": streams["chosen"]}
    if published.manifest.asset == rl_groups.GROUPS:
        return sum(len(open_groups(folder)) for folder in rl_groups.splits(published).values())
    if published.manifest.recipe.get("expand") == "turns":
        return sum(int(store.begins_row.sum()) for store in streams.values())
    return sum(len(store) for store in streams.values())


def _available(workspace: Workspace, published: Published) -> int | None:
    """Records that the stage before offers, counted by that stage; `None` where the configuration reads only some of them."""
    manifest = published.manifest
    family = family_of(workspace, published)
    if manifest.asset == "preference_tokens":
        return int(open_published(workspace.stores, preference.PAIRS).manifest.counts["train"])
    if manifest.asset == "rl_tokens":
        prompts, arithmetic = (open_published(workspace.stores, asset).manifest.counts for asset in (rl.PROMPTS, rl.ARITHMETIC))
        return int(prompts["train"]) + int(arithmetic["kept"])
    (raw,) = EVERY[manifest.asset].upstream
    names = [manifest.partition] if manifest.partition else _domains_of(family, manifest.asset)
    if any(domain_of(family, name).max_items for name in names) or getattr(family, "max_per_source", None):
        return None
    return sum(int(open_published(workspace.stores, raw, name).manifest.counts["read"]) for name in names)


def _domains_of(family: Family, asset: str) -> Sequence[str]:
    """The domains that an asset without partitions reads."""
    if not isinstance(family, Rl):
        return sorted(family.domains)
    return group_domains(family) if asset == rl_groups.GROUPS else prompt_domains(family)
