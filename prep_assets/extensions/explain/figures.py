"""Figures of stores: counts from the sources on, lengths and trained tokens by domain, what a store is made from, when it was built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import asset_named, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import Table
from prep_assets.stores.version_folders import Published

Steps = list[tuple[str, str, int]]
"""Steps from records read to rows stored: kind, label, records."""


class Measured(Struct, frozen=True):
    """Figures of one domain of a stream; lengths are in `unit`."""

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
        """The trained share, 0 to 1."""
        return None if self.trained is None else self.trained / max(1, self.total)


def measure(streams: Sequence[Table]) -> list[Measured]:
    """Measure every domain of every stream."""
    measured = []
    for stream in streams:
        of = stream.documents
        for number, domain in enumerate(of.domains):
            chosen = of.domain == number
            lengths = np.sort(of.lengths[chosen])
            last = len(lengths) - 1
            middle, most, longest = (int(lengths[int(last * quantile)]) if last >= 0 else 0 for quantile in (0.5, 0.95, 1))
            trained = None if of.trained is None else int(of.trained[chosen].sum())
            measured.append(
                Measured(
                    stream.name, domain or stream.name, stream.schema.unit, len(lengths), int(lengths.sum()), trained, middle, most, longest
                )
            )
    return measured


def made_from(workspace: Workspace, stores: Sequence[Published]) -> list[tuple[Asset, list[Published]]]:
    """The assets of `stores` and of everything upstream, upstream first, each with its current stores."""
    stores_by_asset: dict[str, dict[str, Published]] = {}

    def visit(published: Published) -> None:
        manifest = published.manifest
        if manifest.partition in stores_by_asset.get(manifest.asset, {}):
            return
        for above, partition in upstream_of(workspace, asset_named(manifest.asset, workspace), manifest.partition):
            try:
                store = workspace.published(above.name, partition)
            except PrepAssetsError:
                store = None
            if store is not None:
                visit(store)
        stores_by_asset.setdefault(manifest.asset, {})[manifest.partition] = published

    for published in stores:
        visit(published)
    return [(asset_named(name, workspace), list(by_partition.values())) for name, by_partition in stores_by_asset.items()]


def refusals(sources: Sequence[tuple[Asset, list[Published]]]) -> Iterator[tuple[str, Refusal]]:
    """Yield every rejected record, with the label of the store that rejected it."""
    for _, stores in sources:
        for published in stores:
            if published.quarantine:
                for rejection in read_quarantine(published.quarantine):
                    yield published.manifest.label, rejection


def accounting(sources: Sequence[tuple[Asset, list[Published]]]) -> Steps:
    """Steps from records read to rows stored: (kind, label, records)."""
    steps: Steps = []
    for asset, stores in sources:
        counts = total_counts(stores)
        if "read" in counts and (not asset.inputs or not steps):
            steps.append(("read", f"{asset.name}: read", counts["read"]))
        steps += [("refused", f"{asset.name}: {reason}", count) for reason, count in sorted(refused_counts(stores).items())]
        if "kept" in counts:
            steps.append(("kept", f"{asset.name}: kept", counts["kept"]))
        if asset.name == "sft_packed":
            steps.append(("kept", f"sft_packed: records in {counts['rows']:,} rows", counts["records"] + counts.get("dev_records", 0)))
    return steps


def total_counts(stores: Iterable[Published]) -> dict[str, int]:
    """The counts of several stores, summed."""
    return _sum_counts(published.manifest.counts for published in stores)


def refused_counts(stores: Iterable[Published]) -> dict[str, int]:
    """Rejected records of several stores, by reason."""
    return _sum_counts(published.manifest.counts.get("refused", {}) for published in stores)


def _sum_counts(counts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    total = Counter[str]()
    for entry in counts:
        total.update({key: value for key, value in entry.items() if isinstance(value, int)})
    return dict(total)


def shares(published: Published) -> tuple[dict[str, float], dict[str, float]]:
    """The token shares of a packed table by domain, and the configured weights."""
    manifest = published.manifest
    realised = {key.removeprefix("share_"): float(value) for key, value in manifest.metrics.items() if key.startswith("share_")}
    return realised, dict(manifest.recipe["packing"]["weights"] or {}) if realised else {}


def binned(lengths: npt.NDArray[np.int64], bins: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], bool]:
    """Counts of lengths in at most `bins` bins, the bin edges, and whether the scale is logarithmic."""
    low, high = int(lengths.min()), int(lengths.max())
    wide = high > 50 * max(1, low)
    edges = np.geomspace(max(1, low), high + 1, bins + 1) if wide else np.linspace(low, high + 1, min(bins, high - low + 1) + 1)
    counts, _ = np.histogram(np.maximum(lengths, 1 if wide else lengths), edges)
    return counts, edges, wide


def items(every: Iterable[Table]) -> str:
    """What is counted in the rows of streams: pieces of records, lines or documents."""
    kinds = {stream.schema.documents for stream in every}
    return kinds.pop() if len(kinds) == 1 else "documents"


def built_at(workspace: Workspace, published: Published) -> str:
    """When a store was written, in UTC."""
    place = workspace.place(published.manifest.asset, published.manifest.partition)
    try:
        written = place.backend.written(published.version)
    except (OSError, PrepAssetsError):
        return ""
    return datetime.fromtimestamp(written / 1e9, UTC).strftime("%Y-%m-%d %H:%M")
