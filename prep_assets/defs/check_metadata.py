"""What Dagster shows of a check: its figures; where it fails, the wrong token in its row, both derivations, and what looks closer."""

from __future__ import annotations

from typing import Any

import dagster as dg

from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.defs.metadata import SHOWN_CHARACTERS, which
from prep_assets.defs.pictures import diff_block, picture
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.verdict import Verdict, Worst

SHOWN_TOKENS, SHOWN_BEFORE = 600, 24
"""Tokens of a row that fails, and how many of these stand before the wrong one."""
SHOWN_STRETCHES = 12


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
    weight = f", loss weight {worst.weights[worst.at]:g}" if known and worst.weights else ""
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
