"""What is known of stores without looking at a row: counts from the sources on, lineage, checks, and how to build them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prep_assets.assets.graph import EVERY, asset_named, upstream_of
from prep_assets.assets.reading.pinned import read_sources
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import PrepAssetsError
from prep_assets.records.quarantine import Refusal, read_quarantine
from prep_assets.reports.rows import Stream
from prep_assets.stores.published import Published

Steps = list[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One domain of one stream in figures."""

    stream: str
    domain: str
    unit: str
    documents: int
    total: int
    trained: int | None
    median: int
    p95: int
    longest: int

    @property
    def share(self) -> float | None:
        """How much of it is trained."""
        return None if self.trained is None else self.trained / max(1, self.total)


@dataclass(frozen=True, slots=True)
class Stage:
    """The stores of one asset that others are made from, and the source files that a raw one pins."""

    asset: str
    stores: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, int, int, str], ...]


def measure(streams: Sequence[Stream]) -> list[Measured]:
    """Every domain of every stream."""
    found = []
    for stream in streams:
        for part in stream.parts():
            lengths = np.sort(part.lengths)
            last = len(lengths) - 1
            middle, most, longest = (int(lengths[int(last * at)]) if last >= 0 else 0 for at in (0.5, 0.95, 1))
            trained = None if part.trained is None else int(part.trained.sum())
            found.append(Measured(stream.name, part.domain, stream.unit, len(lengths), int(lengths.sum()), trained, middle, most, longest))
    return found


def made_from(workspace: Workspace, stores: Sequence[Published]) -> list[tuple[Asset, list[Published]]]:
    """Every asset that stores are made from and their own, what feeds others first, with the current stores of each."""
    found: dict[str, dict[str, Published]] = {}

    def visit(published: Published) -> None:
        manifest = published.manifest
        if manifest.partition in found.get(manifest.asset, {}):
            return
        for above, partition in upstream_of(workspace, asset_named(manifest.asset, workspace), manifest.partition):
            try:
                store = workspace.published(above.name, partition)
            except PrepAssetsError:
                store = None
            if store is not None:
                visit(store)
        found.setdefault(manifest.asset, {})[manifest.partition] = published

    for published in stores:
        visit(published)
    return [(asset_named(name, workspace), list(each.values())) for name, each in found.items()]


def refusals(chain: Sequence[tuple[Asset, list[Published]]]) -> Iterator[tuple[str, Refusal]]:
    """Every record that was refused on the way, with the store that refused it."""
    for _, stores in chain:
        for published in stores:
            if published.quarantine:
                for refusal in read_quarantine(published.quarantine):
                    yield published.manifest.label, refusal


def refused_by_reason(chain: Sequence[tuple[Asset, list[Published]]]) -> dict[str, int]:
    """How many records were refused on the way, by reason."""
    return _added_up(published.manifest.counts.get("refused", {}) for _, stores in chain for published in stores)


def accounting(chain: Sequence[tuple[Asset, list[Published]]]) -> Steps:
    """From the records that were read to the rows that are stored: (kind, label, records)."""
    steps: Steps = []
    for asset, stores in chain:
        counts = total_counts(stores)
        refused = _added_up(published.manifest.counts.get("refused", {}) for published in stores)
        if "read" in counts and (not asset.upstream or not steps):
            steps.append(("read", f"{asset.name}: read", counts["read"]))
        steps += [("refused", f"{asset.name}: {reason}", count) for reason, count in sorted(refused.items())]
        if "kept" in counts:
            steps.append(("kept", f"{asset.name}: kept", counts["kept"]))
        if asset.name == "sft_packed":
            steps.append(("kept", f"sft_packed: records in {counts['rows']:,} rows", counts["records"] + counts.get("dev_records", 0)))
    return steps


def total_counts(stores: Iterable[Published]) -> dict[str, int]:
    """The counts of several stores, added up."""
    return _added_up(published.manifest.counts for published in stores)


def _added_up(counts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update({key: value for key, value in each.items() if isinstance(value, int)})
    return dict(total)


def lineage(chain: Sequence[tuple[Asset, list[Published]]]) -> list[Stage]:
    """The stores that others are made from, with their content hashes."""
    return [
        Stage(
            asset.name,
            tuple((published.manifest.partition, published.manifest.content_hash) for published in stores),
            tuple(
                (entry["name"], int(entry["rows"]), int(entry["size"]), entry["sha256"])
                for published in stores
                if not asset.upstream and asset.name.endswith("_raw")
                for which in ("files", "test_files")
                for entry in read_sources(published)[which]
            ),
        )
        for asset, stores in chain
    ]


def shares(published: Published) -> tuple[dict[str, float], dict[str, float]]:
    """What each domain is of a packed table, and the weights that were asked for."""
    manifest = published.manifest
    realised = {key.removeprefix("share_"): float(value) for key, value in manifest.metrics.items() if key.startswith("share_")}
    return realised, dict(manifest.recipe["packing"]["weights"] or {}) if realised else {}


def is_export(published: Published) -> bool:
    """Whether a store holds a trainer's files."""
    return published.manifest.asset not in EVERY
