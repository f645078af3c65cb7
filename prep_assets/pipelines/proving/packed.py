"""Checks of packed tables."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from prep_assets.config.models import Sft
from prep_assets.errors import StoreError
from prep_assets.pipelines.commands import materialize_command
from prep_assets.pipelines.families import sft
from prep_assets.pipelines.proving.every_store import together
from prep_assets.pipelines.proving.token_rows import image_verdicts
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.images import check_packed_images
from prep_assets.quality.packed_mask import check_pieces
from prep_assets.quality.rows import check_packed
from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.stores.packed import open_packed
from prep_assets.stores.published import Published, open_published
from prep_assets.stores.tokens import open_tokens


def _packed_tables(published: Published) -> list[str]:
    return [name for name in ("sft_packed", "sft_dev_packed") if (published.directory / f"{name}.documents").is_dir()]


def packed_rows(workspace: Workspace, published: Published) -> Verdict:
    vocabulary = workspace.vocabulary(workspace.family(Sft))
    tables = [open_packed(published.directory, name) for name in _packed_tables(published)]
    sound = (check_packed(table, vocabulary_size=vocabulary.size, pad_id=vocabulary.pad_id) for table in tables)
    return together(chain(sound, image_verdicts(workspace, workspace.family(Sft), tables)))


def packed_mask(workspace: Workspace, published: Published) -> Verdict:
    verdicts = []
    recipe = published.manifest.recipe
    for name in _packed_tables(published):
        packed = open_packed(published.directory, name)
        split = "train" if name == "sft_packed" else "dev"
        stores = {}
        for domain in packed.sources:
            tokens = open_published(workspace.stores, sft.TOKENS, domain)
            if tokens.manifest.content_hash != recipe["tokens"][domain]:
                raise StoreError(
                    f"sft_tokens[{domain}] was built again since this table was packed. Pack it again: {materialize_command('sft_packed')}"
                )
            stores[domain] = open_tokens(tokens.directory, split)
        verdicts.append(check_pieces(packed, stores, once=not recipe["packing"].get("epochs")))
        if len(packed.images) or any(len(store.images) for store in stores.values()):
            verdicts.append(check_packed_images(packed, stores))
    return together(iter(verdicts))


def packed_accounting(workspace: Workspace, published: Published) -> Verdict:
    counts = published.manifest.counts
    verdicts = []
    for name in _packed_tables(published):
        prefix = "" if name == "sft_packed" else "dev_"
        packed = open_packed(published.directory, name)
        used, trained = int(np.sum(packed.documents["length"])), sum(int((mask != 0).sum()) for _, _, mask in packed.blocks())
        claimed = (counts[f"{prefix}rows"], counts[f"{prefix}tokens"], counts[f"{prefix}trained_tokens"])
        found = (len(packed), used, trained)
        numbers = {"rows": found[0], "tokens": found[1], "trained_tokens": found[2], "tokens_left_out": counts[f"{prefix}tokens_left_out"]}
        summary = f"{found[0]:,} rows hold {found[1]:,} tokens, {found[2]:,} trained; {counts[f'{prefix}tokens_left_out']:,} left out"
        if found != claimed:
            text = f"rows, tokens, trained tokens are {found}, the manifest says {claimed}"
            verdicts.append(Verdict(False, text, numbers, Worst(name, text)))
        else:
            verdicts.append(
                _mixed_total(workspace, published, name, packed.sources, used, counts[f"{prefix}tokens_left_out"], numbers, summary)
            )
    return together(iter(verdicts))


def _mixed_total(
    workspace: Workspace,
    published: Published,
    name: str,
    sources: tuple[str, ...],
    used: int,
    left_out: int,
    numbers: dict[str, Any],
    summary: str,
) -> Verdict:
    """Without weights, epochs or limits, everything that the domains hold must be in rows or counted as left out."""
    packing = published.manifest.recipe["packing"]
    if any(packing.get(key) for key in ("weights", "epochs", "max_items")):
        return Verdict(True, summary, numbers)
    split = "train" if name == "sft_packed" else "dev"
    offered = sum(open_tokens(open_published(workspace.stores, sft.TOKENS, source).directory, split).tokens for source in sources)
    if offered != used + left_out:
        text = f"the domains hold {offered:,} tokens, but {used:,} are packed and {left_out:,} counted as left out"
        return Verdict(False, text, numbers, Worst(name, text))
    return Verdict(True, summary, numbers)
