"""A blend of the domains of a family: windows of documents, or records of chats, in the order in which they are trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.config.models import FAMILIES, Pretrain, Sft
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError
from prep_assets.extensions.blends.order import Phase, blend
from prep_assets.extensions.blends.proofs import check_blend
from prep_assets.extensions.blends.store import BLEND, TOKENS, BlendStore, open_blend, windows_in, write_blend
from prep_assets.graph.pretrain import PRETRAIN_TOKENS
from prep_assets.graph.sft import SFT_TOKENS
from prep_assets.pipeline.asset import BLEND_COLUMNS, Asset, Check, Store, Target
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import Draft
from prep_assets.stores.table import Table, open_stream


def blend_options(workspace: Workspace, family: str) -> dict[str, Any]:
    """The options of a family's blend; empty where its configuration has none."""
    model = workspace.family(FAMILIES[family])
    return model.blend.model_dump() if isinstance(model, Pretrain | Sft) and model.blend else {}


def training_streams(workspace: Workspace, family: str) -> dict[str, Table]:
    """The training stream of each domain of a family."""
    asset, stem = TOKENS[family]
    domains = sorted(workspace.family(FAMILIES[family]).domains)
    return {name: open_stream(workspace.built(asset, name).directory, stem.format(name)) for name in domains}


def item_lengths(streams: Mapping[str, Table], window: int) -> dict[str, npt.NDArray[np.int64]]:
    """The tokens of each item of each domain: of windows, or of records where `window` is 0."""
    if not window:
        return {name: store.lengths for name, store in streams.items()}
    return {
        name: np.broadcast_to(np.int64(window), windows_in(len(store.columns["tokens"].values), window)) for name, store in streams.items()
    }


def write_blend_of(target: Target, quarantine: Quarantine) -> Draft:
    """Choose and order the items of all domains; nothing is copied."""
    family = target.asset.family
    options = blend_options(target.workspace, family)
    window, streams = options.get("window", 0), training_streams(target.workspace, family)
    for name, store in streams.items():
        if len(store.images):
            raise ConfigError(
                f"blend: {name} has {len(store.images):,} images, which its items would lose. Leave the blend out, or the domain"
            )
    asked = options["schedule"] or [options]
    phases = [Phase(phase["tokens"], phase["weights"]) for phase in asked]
    try:
        blended = blend(item_lengths(streams, window), phases, epochs=options["epochs"], seed=options["seed"], shuffle=options["shuffle"])
    except ConfigError as error:
        raise ConfigError(f"blend: {error}") from error
    ends = np.cumsum([sum(share.records for share in shares) for shares in blended.phases]).tolist()
    write_blend(target.payload, blended.domain, blended.item, blended.domains, ends, window)
    per_domain = {name: sum(shares[number].tokens for shares in blended.phases) for number, name in enumerate(blended.domains)}
    tokens = sum(per_domain.values())
    counts = {"items": len(blended.item), "tokens": tokens, **({"phases": len(ends)} if options["schedule"] else {})}
    metrics = {f"share_{name}": of_domain / max(1, tokens) for name, of_domain in per_domain.items()}
    metrics |= {f"epochs_{name}": of_domain / max(1, len(streams[name].columns["tokens"].values)) for name, of_domain in per_domain.items()}
    return Draft(counts, metrics)


def blend_verdict(store: Store, blend: BlendStore) -> Verdict:
    """Hold an order of a store's items to the options of the store."""
    asset = TOKENS[store.asset.family][0]
    for domain, content in store.recipe["tokens"].items():
        store.above(asset, domain, content)
    streams = training_streams(store.workspace, store.asset.family)
    offered = {name: len(stream.columns["tokens"].values) for name, stream in streams.items()}
    claimed = {**store.manifest.counts, **store.manifest.metrics}
    window = blend.window
    # a window needs the token after it as well
    lengths = {name: np.full(max(0, offered[name] - 1) // window, window) if window else stream.lengths for name, stream in streams.items()}
    return check_blend(blend, lengths, offered, store.recipe["blend"], claimed)


MIXTURE = Check(
    "mixture",
    "Every item is the window or record that options and seed put there, derived again; so are shares and epochs.",
    lambda store: blend_verdict(store, open_blend(store.directory)),
)


def _no_blend(family: str, workspace: Workspace) -> str:
    return "" if blend_options(workspace, family) else f"{family}.yaml has no blend"


def blend_asset(tokens: Asset) -> Asset:
    """The asset that orders the items of a family's domains."""
    return Asset(
        name=f"{tokens.family}_blend",
        family=tokens.family,
        description="""In which order, and how often, a trainer sees the items of all domains: two integers an item, and no token.

`BlendDataset` reads it. Another weight writes another order, and nothing else.""",
        write=write_blend_of,
        promises=("every item is a window or record of its domain",),
        inputs=(("tokens", tokens),),
        options=("blend",),
        checks=(INTEGRITY, MIXTURE),
        absent=partial(_no_blend, tokens.family),
        stage=BLEND,
        columns=BLEND_COLUMNS,
    )


ASSETS = (blend_asset(PRETRAIN_TOKENS), blend_asset(SFT_TOKENS))
