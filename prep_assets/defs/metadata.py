"""What Dagster shows.

Of a store: counts and metrics (plotted over time), where it is, a look inside. Of a check: its figures; where it fails, the wrong token in its
row, both derivations, and what looks closer.
"""

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
from prep_assets.config.models import FAMILIES
from prep_assets.defs.pictures import diff_block, mixture_picture, picture
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.published import Published

SHOWN_FILES = 20
SHOWN_REFUSED, SHOWN_CHARACTERS = 10, 160
SHARE = "share_"
SHOWN_DOMAINS = 200
MEASURED_TOKENS = 200_000_000
"""Most tokens of a store whose lengths and trained tokens are counted by domain, and documents by engine, each time."""
SHOWN_TOKENS, SHOWN_BEFORE = 600, 24
"""Tokens of a row that fails, and how many of these stand before the wrong one."""
SHOWN_STRETCHES = 12


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
        found = by_engine(store_of(workspace, published), MEASURED_TOKENS) if published.manifest.asset in EVERY else {}
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


def check_metadata(workspace: Workspace, asset: Asset, verdict: Verdict, partition: str = "") -> dict[str, Any]:
    """Metadata of a check: its figures, and where it fails, the row that fails most plainly, with its tokens as they are and the wrong one in red,
    both derivations, and what looks closer: a page of the store that was not published, with both derivations of every mask."""
    if verdict.passed or verdict.worst is None:
        return dict(verdict.numbers)
    from prep_assets.reports.address import page_address

    closer = {
        "look_closer": f"prep-assets report {which(asset.name, partition)} --candidate",
        "report": dg.MetadataValue.url(page_address(asset.name, partition, candidate=True)),
    }
    return {**_worst_row(workspace, asset, verdict.worst), **closer, **verdict.numbers}


def _worst_row(workspace: Workspace, asset: Asset, worst: Worst) -> dict[str, Any]:
    text = dg.MetadataValue.text(f"{worst.where}: {worst.note}")
    derivations = _derivations(worst)
    if not worst.ids:
        return {"worst_row": text, **derivations}
    try:
        vocabulary = workspace.vocabulary(workspace.family(FAMILIES[asset.family]))
    except PrepAssetsError:
        return {"worst_row": text, **derivations}
    from prep_assets.assets.previews import Preview, token_texts

    first = max(0, worst.at - SHOWN_BEFORE)
    ids = worst.ids[first : first + SHOWN_TOKENS]
    texts = tuple(token_texts(vocabulary, [each])[0] if 0 <= each < vocabulary.size else f"⟨id {each}⟩" for each in ids)
    known = 0 <= worst.at < len(worst.ids)
    wrong = worst.at - first if known else -1
    token = f"token {worst.at:,} of {len(worst.ids):,}: {texts[wrong]!r}, id {ids[wrong]}" if known else ""
    weight = (
        f", loss weight {worst.weights[worst.at]:g}{' (not attended)' * (worst.weights[worst.at] < 0)}" if known and worst.weights else ""
    )
    shown = Preview(f"{worst.where}: {worst.note}", texts, worst.weights[first : first + SHOWN_TOKENS], tuple(range(len(texts))), ())
    return {
        **({"wrong_token": token + weight} if known else {}),
        "worst_row": dg.MetadataValue.md(diff_block(shown, wrong)),
        **derivations,
        "worst_row_tokens": dg.MetadataValue.md(picture(shown, wrong)),
    }


def _derivations(worst: Worst) -> dict[str, Any]:
    """What is stored beside what the source says, stretch by stretch, from the first that differs on."""
    if not worst.derivations:
        return {}
    from prep_assets.reports.visible import one_line

    differs = next((at for at, (stored, source) in enumerate(worst.derivations) if stored != source), 0)
    rows = [
        dg.TableRecord({"stored": one_line(stored)[:SHOWN_CHARACTERS], "from the source": one_line(source)[:SHOWN_CHARACTERS],
                        "": "equal" if stored == source else "differs"})
        for stored, source in worst.derivations[differs : differs + SHOWN_STRETCHES]
    ]  # fmt: skip
    return {"derivations": dg.MetadataValue.table(rows)}
