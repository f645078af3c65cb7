"""The books: every record that was read is kept, or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prep_assets.assets.reading.pinned import domain_of, read_sources
from prep_assets.assets.stage import Check, FromLines, FromParts, Store
from prep_assets.assets.writing.groups import splits
from prep_assets.exports.source import SIDES, Pairs
from prep_assets.proofs.accounting import account
from prep_assets.proofs.verdict import Verdict
from prep_assets.records.quarantine import Refusal, read_quarantine
from prep_assets.schemas.field_names import NEUTRAL
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import open_lines
from prep_assets.stores.tokens import TokenStore


def accounting(store: Store) -> Verdict:
    """The counts of a store whose records come from rows or lines."""
    ignored = [f"{name}/{path}" for name, domain in store.family.domains.items() for path in domain.ignore]
    for name, found in store.manifest.counts.get("fields_passed_over", {}).items():
        if store.family.domains[name].speaker_names == "leave_out":
            ignored += [f"{name}/{path}" for path in found if path.endswith(".name")]
    return account(
        store.manifest.counts,
        _refusals(store),
        stored=_stored(store),
        available=_available(store),
        neutral=NEUTRAL,
        ignored=ignored,
        recounted=_tokens(store),
    )


def raw_accounting(store: Store) -> Verdict:
    """The counts of a store of source files."""
    sources = read_sources(store.published)
    rows = sum(entry["rows"] for which in ("files", "test_files") for entry in sources[which])
    refused = sum(1 for _ in _refusals(store))
    return account(store.manifest.counts, _refusals(store), stored=rows - refused, available=rows)


def _refusals(store: Store) -> Iterable[Refusal]:
    return read_quarantine(store.published.quarantine) if store.published.quarantine else ()


def _stored(store: Store) -> int:
    """Records that are really in a store."""
    lines = sorted(store.directory.glob("*.jsonl"))
    if lines:
        return sum(len(open_lines(store.directory, path.stem)) for path in lines)
    if store.holds(GroupStore):
        return sum(len(open_groups(folder)) for folder in splits(store.directory).values())
    streams = store.streams()
    if store.holds(Pairs):
        return sum(len(stream) for name, stream in streams.items() if name.endswith(SIDES[0]))
    if store.recipe.get("expand") == "turns":
        return sum(int(stream.begins_row.sum()) for stream in streams.values())
    return sum(len(stream) for stream in streams.values())


def _tokens(store: Store) -> dict[str, int]:
    """Tokens, trained tokens and held-out records that are really in a store, where it has streams of tokens."""
    streams = store.streams()
    if not streams:
        return {}
    found = {"tokens": sum(len(stream.arrays["tokens"]) for stream in streams.values())}
    if all("loss_mask" in stream.arrays for stream in streams.values()):
        found["trained_tokens"] = sum(_trained(stream) for stream in streams.values())
    return found | {"kept_dev": sum(int(stream.begins_row.sum()) for name, stream in streams.items() if name == "dev")}


def _trained(stream: TokenStore) -> int:
    return sum(int(np.count_nonzero(stream.arrays["loss_mask"][tokens])) for _, tokens in stream.blocks())


def _available(store: Store) -> int | None:
    """Records that the stage before offers; `None` where the configuration reads only some of them."""
    source = store.asset.source
    if isinstance(source, FromLines):
        return sum(len(open_lines(store.above(asset, store.partition).directory, name)) for asset, name in source.files.values())
    if isinstance(source, FromParts):
        parts = [store.above(source.assets[0], name) for name in store.domains]
        return sum(int(part.manifest.counts["kept"]) for part in (*parts, *map(store.above, source.assets[1:])))
    names, family = store.domains, store.family
    if any(domain_of(family, name).max_items for name in names) or getattr(family, "max_per_source", None):
        return None
    return sum(int(store.above(store.raw, name).manifest.counts["read"]) for name in names)


ACCOUNTING = Check(
    "accounting", "Records read = records kept + records refused, and each refused one is in quarantine with its reason.", accounting
)
RAW_ACCOUNTING = Check("accounting", "Rows read = readable rows + rows in quarantine, over all source files.", raw_accounting)
