"""Blends: which item of which domain a trainer sees next, by weights, passes, budgets and a schedule. An index, which copies no token."""

from __future__ import annotations

from functools import partial

import numpy as np

from prep_assets.checks.of_blends import BLEND
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.graph.previews import Preview, check_row, record_name, token_texts
from prep_assets.pipeline.asset import BLEND_COLUMNS, Asset, Store
from prep_assets.pipeline.blends import BLEND as STAGE
from prep_assets.pipeline.blends import blend_options, training_streams, write_blend_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.blends import open_blend


def _absent(family: str, workspace: Workspace) -> str:
    return "" if blend_options(workspace, family) else f"{family}.yaml has no blend"


def blend_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Item `row`: its tokens, and the documents that they are of."""
    blend = open_blend(store.directory)
    check_row(store, row, len(blend))
    domain, item = blend.domains[int(blend.domain[row])], int(blend.item[row])
    tokens = training_streams(store.workspace, store.asset.family)[domain]
    span = slice(item * blend.window, (item + 1) * blend.window) if blend.window else tokens.span(item, item + 1)
    span = slice(span.start, min(span.stop, span.start + limit))
    first, last = np.searchsorted(tokens.ends, [span.start, span.stop - 1], "right").tolist()
    origins, positions = list[tuple[int, str]](), np.arange(span.start, span.stop)
    for record in range(first, last + 1):
        begin = tokens.span(record, record + 1).start
        place = max(0, begin - span.start)
        origins.append((place, record_name(store, domain, int(tokens.file[record]), int(tokens.row[record]))))
        positions[place:] = np.arange(span.start + place - begin, span.stop - begin)
    ids = np.asarray(tokens.arrays["tokens"][span]).tolist()
    weights = tuple(tokens.weights(span).astype(float).tolist()) if "loss_mask" in tokens.arrays else ()
    what = "window" if blend.window else "record"
    title = f"{store.asset.name} item {row:,} of {len(blend):,}: {what} {item:,} of {domain}, {len(ids):,} tokens"
    return Preview(title, token_texts(store.vocabulary, ids), weights, tuple(positions.tolist()), tuple(origins), tuple(ids))


def blend_asset(tokens: Asset) -> Asset:
    """The asset that orders the items of a family's domains."""
    return Asset(
        name=f"{tokens.family}_blend",
        family=tokens.family,
        description="""In which order, and how often, a trainer sees the items of all domains: two integers an item, and no token.

`BlendDataset` reads it. Another weight writes another order, and nothing else.""",
        write=write_blend_of,
        inputs=(("tokens", tokens),),
        options=("blend",),
        checks=(INTEGRITY, BLEND),
        preview=blend_preview,
        absent=partial(_absent, tokens.family),
        stage=STAGE,
        columns=BLEND_COLUMNS,
    )
