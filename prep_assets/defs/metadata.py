"""What Dagster shows of a store: counts and metrics (plotted over time), where it is, a look inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import dagster as dg
import numpy as np

from prep_assets.assets.by_engine import by_engine
from prep_assets.assets.graph import EVERY, store_of
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.defs.pictures import diff_block, mixture_picture, picture
from prep_assets.errors import PrepAssetsError
from prep_assets.stores.published import Published

SHOWN_FILES = 20
SHOWN_REFUSED, SHOWN_CHARACTERS = 10, 160
SHARE = "share_"
SHOWN_DOMAINS = 200
MEASURED_TOKENS = 200_000_000
"""Most tokens of a store whose lengths and trained tokens are counted by domain each time."""


def store_metadata(workspace: Workspace, published: Published) -> dict[str, Any]:
    """Metadata of a materialization, what people look at first: what is trained, what was refused, its report, a row, what it is made of; then
    figures."""
    from prep_assets.reports.facts import made_from, refused_by_reason

    manifest = published.manifest
    every = {key: value for key, value in {**manifest.counts, **manifest.metrics}.items() if isinstance(value, int | float)}
    numbers = {key: _rounded(value) for key, value in every.items() if not key.removeprefix("dev_").startswith(SHARE)}
    rows = numbers.get("rows", numbers.get("kept"))
    share = {"trained_share": numbers.pop("trained_fraction")} if "trained_fraction" in numbers else _share(numbers)
    looks = _look_inside(workspace, published)
    chain = made_from(workspace, [published])
    reasons = refused_by_reason(chain)
    return {
        **share,
        "refused_records": sum(reasons.values()),
        **({"refused_by_reason": dg.MetadataValue.json(reasons)} if reasons else {}),
        "report": dg.MetadataValue.md(report_link(manifest.asset, manifest.partition)),
        **looks,
        **(_refused(published, chain) if reasons else {}),
        **_mixture(published),
        **_by_domain(workspace, published),
        **_by_engine(workspace, published),
        **({"dagster/row_count": rows} if rows is not None else {}),
        **dict(sorted(numbers.items())),
        "path": dg.MetadataValue.path(published.where),
        "content_hash": data_version(published),
        "build_key": manifest.build_key[:20],
        "reused": published.reused,
        "bytes": sum(entry["bytes"] for entry in manifest.files.values()),
    }


def report_link(asset: str, partition: str) -> str:
    """Markdown: the page of a store, and the command that writes it as a file."""
    from prep_assets.reports.address import page_address

    return f"[open]({page_address(asset, partition)}) while `prep-assets view` runs\n\n`prep-assets report {which(asset, partition)}`"


def which(asset: str, partition: str) -> str:
    """How commands name a store."""
    return f"{asset} -p {partition}" if partition else asset


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)


def _share(numbers: Mapping[str, float]) -> dict[str, float]:
    there = numbers.get("tokens") and "trained_tokens" in numbers
    return {"trained_share": _rounded(numbers["trained_tokens"] / numbers["tokens"])} if there else {}


def _refused(published: Published, chain: Sequence[tuple[Asset, list[Published]]]) -> dict[str, Any]:
    """The first records that were refused between the sources and this store."""
    from prep_assets.reports.facts import refusals
    from prep_assets.reports.visible import one_line

    first = [
        dg.TableRecord(
            {
                "record (from 0)": one_line(each.id),
                "reason": one_line(f"{each.stage}/{each.reason}"),
                "detail": one_line(each.detail)[:SHOWN_CHARACTERS],
                "payload": one_line(each.payload)[:SHOWN_CHARACTERS],
                "store": store,
            }
        )
        for store, each in islice(refusals(chain), SHOWN_REFUSED)
    ]
    quarantine = {"quarantine": dg.MetadataValue.path(str(published.quarantine))} if published.quarantine else {}
    return {"refused": dg.MetadataValue.table(first), **quarantine}


def _by_domain(workspace: Workspace, published: Published) -> dict[str, Any]:
    """A table of the domains, and a picture of the lengths of their documents. Masks are read for it, so not of the largest stores."""
    if published.manifest.asset not in EVERY or published.manifest.counts.get("tokens", 0) > MEASURED_TOKENS:
        return {}
    from prep_assets.defs.pictures import lengths_picture
    from prep_assets.reports.facts import measure
    from prep_assets.reports.opened import streams

    try:
        opened = streams(published)
    except PrepAssetsError:
        return {}
    measured = [each for each in measure(opened) if each.documents]
    if not measured:
        return {}
    several = len(opened) > 1
    records = [
        dg.TableRecord({"domain": each.domain, **({"stream": each.stream} if several else {}), each.unit: each.total,
                        "trained": f"{each.share:.1%}" if each.share is not None else "", "documents": each.documents, "median": each.median,
                        "longest": each.longest})
        for each in measured[:SHOWN_DOMAINS]
    ]  # fmt: skip
    lengths = np.concatenate([part.lengths for stream in opened for part in stream.parts()])
    return {"lengths": dg.MetadataValue.md(lengths_picture(lengths, opened[0].unit)), "by_domain": dg.MetadataValue.table(records)}


def _by_engine(workspace: Workspace, published: Published) -> dict[str, int]:
    """How many documents are for which engine."""
    try:
        found = by_engine(store_of(workspace, published)) if published.manifest.asset in EVERY else {}
    except PrepAssetsError:
        return {}
    return {f"documents_by_{name}": count for name, count in found.items()}


def data_version(published: Published) -> str:
    """The data version of a store: it follows its content and nothing else."""
    return published.manifest.content_hash[:32]


def _mixture(published: Published) -> dict[str, Any]:
    shares = {key.removeprefix(SHARE): value for key, value in published.manifest.metrics.items() if key.startswith(SHARE)}
    if not shares:
        return {}
    weights = published.manifest.recipe["packing"]["weights"]
    return {"mixture": dg.MetadataValue.md(mixture_picture(shares, weights or {}))}


def _look_inside(workspace: Workspace, published: Published) -> dict[str, Any]:
    if published.manifest.asset not in EVERY or not (published.manifest.counts.get("rows") or published.manifest.counts.get("kept")):
        return {}
    from prep_assets.assets.previews import Preview

    try:
        shown = store_of(workspace, published).preview(0)
    except PrepAssetsError:
        return {}
    if isinstance(shown, Preview):
        return {"preview": dg.MetadataValue.md(diff_block(shown)), "preview_row": dg.MetadataValue.md(picture(shown))}
    # a source may have many thousands of files, and metadata is a row of the event log
    return {"preview": dg.MetadataValue.json({key: each[:SHOWN_FILES] if isinstance(each, list) else each for key, each in shown.items()})}
