"""What Dagster shows of a store: counts and metrics (plotted over time), where it is, a look inside; and of a check that fails."""

from __future__ import annotations

import base64
from typing import Any

import dagster as dg
import numpy as np

from prep_assets.assets.graph import EVERY, store_of
from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.defs.mixture import mixture_picture
from prep_assets.defs.pictures import diff_block, picture
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.published import Published

SHOWN_FILES = 20
SHOWN_TOKENS = 600
SHARE = "share_"
SHOWN_DOMAINS = 200
MEASURED_TOKENS = 200_000_000
"""Tokens of a store of which lengths and trained tokens are counted by domain each time."""


def store_metadata(workspace: Workspace, published: Published) -> dict[str, Any]:
    """Metadata of a materialization, what people look at first: a row, what is trained, what was refused, what it is made of; then figures."""
    manifest = published.manifest
    every = {key: value for key, value in {**manifest.counts, **manifest.metrics}.items() if isinstance(value, int | float)}
    numbers = {key: value for key, value in every.items() if not key.removeprefix("dev_").startswith(SHARE)}
    rows = numbers.get("rows", numbers.get("kept"))
    refused = dict(manifest.counts.get("refused", {}))
    looks = _look_inside(workspace, published)
    metadata: dict[str, Any] = {
        **{key: looks[key] for key in ("preview",) if key in looks},
        **(
            {"trained_share": numbers["trained_tokens"] / numbers["tokens"]}
            if numbers.get("tokens") and "trained_tokens" in numbers
            else {}
        ),
        "refused_records": sum(refused.values()),
    }
    if refused:
        metadata["refused_by_reason"] = dg.MetadataValue.json(refused)
        metadata["quarantine"] = dg.MetadataValue.path(str(published.quarantine))
    return {
        **metadata,
        **_mixture(published),
        **_by_domain(workspace, published),
        **looks,
        **({"dagster/row_count": rows} if rows is not None else {}),
        **dict(sorted(numbers.items())),
        "path": dg.MetadataValue.path(published.where),
        "content_hash": data_version(published),
        "build_key": manifest.build_key[:20],
        "reused": published.reused,
        "bytes": sum(entry["bytes"] for entry in manifest.files.values()),
        "report": f"prep-assets report {_which(manifest.asset, manifest.partition)}",
    }


def _which(asset: str, partition: str) -> str:
    return f"{asset} -p {partition}" if partition else asset


def _by_domain(workspace: Workspace, published: Published) -> dict[str, Any]:
    """A table of the domains, and a picture of the lengths of their documents. Masks are read for it, so not of the largest stores."""
    if published.manifest.asset not in EVERY or published.manifest.counts.get("tokens", 0) > MEASURED_TOKENS:
        return {}
    from prep_assets.reports.charts import histogram, standalone
    from prep_assets.reports.facts import measure
    from prep_assets.reports.opened import streams

    try:
        opened = streams(published)
    except PrepAssetsError:
        return {}
    measured = [each for each in measure(opened) if each.documents]
    if not measured:
        return {}
    records = [
        dg.TableRecord({"domain": each.domain, "stream": each.stream, "documents": each.documents, each.unit: each.total,
                        "trained share": round(each.share, 4) if each.share is not None else "", "median": each.median, "longest": each.longest})
        for each in measured[:SHOWN_DOMAINS]
    ]  # fmt: skip
    lengths = np.concatenate([part.lengths for stream in opened for part in stream.parts()])
    drawn = base64.b64encode(standalone(histogram(lengths, opened[0].unit)).encode()).decode()
    return {
        "by_domain": dg.MetadataValue.table(records),
        "lengths": dg.MetadataValue.md(f"Lengths of documents in {opened[0].unit}\n\n![lengths](data:image/svg+xml;base64,{drawn})"),
    }


def data_version(published: Published) -> str:
    """The data version of a store: it follows its content and nothing else."""
    return published.manifest.content_hash[:32]


def _mixture(published: Published) -> dict[str, Any]:
    shares = {key.removeprefix(SHARE): value for key, value in published.manifest.metrics.items() if key.startswith(SHARE)}
    if not shares:
        return {}
    asked = published.manifest.recipe["packing"]["weights"]
    return {"mixture": dg.MetadataValue.md(mixture_picture(shares, asked or {}))}


def _look_inside(workspace: Workspace, published: Published) -> dict[str, Any]:
    if published.manifest.asset not in EVERY or not (published.manifest.counts.get("rows") or published.manifest.counts.get("kept")):
        return {}
    from prep_assets.assets.previews.row import Preview

    try:
        shown = store_of(workspace, published).preview(0)
    except PrepAssetsError:
        return {}
    if isinstance(shown, Preview):
        return {"preview": dg.MetadataValue.md(diff_block(shown)), "preview_row": dg.MetadataValue.md(picture(shown))}
    # a source may have many thousands of files, and metadata is a row of the event log
    return {"preview": dg.MetadataValue.json({key: each[:SHOWN_FILES] if isinstance(each, list) else each for key, each in shown.items()})}


def check_metadata(workspace: Workspace, asset: Asset, verdict: Verdict, partition: str = "") -> dict[str, Any]:
    """Metadata of a check: its figures, and where it fails, the row that fails most plainly, with its tokens as they are, and the command that
    looks closer: a page of the store that was not published, with both derivations of every mask."""
    if verdict.passed or verdict.worst is None:
        return dict(verdict.numbers)
    command = f"prep-assets report {_which(asset.name, partition)} --candidate"
    return {**_worst_row(workspace, asset, verdict.worst), "look_closer": command, **verdict.numbers}


def _worst_row(workspace: Workspace, asset: Asset, worst: Worst) -> dict[str, Any]:
    text = {"worst_row": dg.MetadataValue.text(f"{worst.where}: {worst.note}")}
    if not worst.ids:
        return text
    try:
        vocabulary = workspace.vocabulary(workspace.family(FAMILIES[asset.family]))
    except PrepAssetsError:
        return text
    from prep_assets.assets.previews.row import Preview, token_texts

    ids = worst.ids[:SHOWN_TOKENS]
    texts = tuple(token_texts(vocabulary, [each])[0] if 0 <= each < vocabulary.size else f"⟨id {each}⟩" for each in ids)
    shown = Preview(f"{worst.where}: {worst.note}", texts, worst.weights[:SHOWN_TOKENS], tuple(range(len(texts))), ())
    return {"worst_row": dg.MetadataValue.md(diff_block(shown)), "worst_row_tokens": dg.MetadataValue.md(picture(shown))}
