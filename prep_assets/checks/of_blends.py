"""The check of a blend, against the streams that it is made of."""

from __future__ import annotations

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.pipeline.asset import Check, Store
from prep_assets.pipeline.blends import TOKENS, training_streams
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.blended import check_blend
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.blends import BlendStore, open_blend


def blend_verdict(store: Store, blend: BlendStore) -> Verdict:
    """Hold an order of a store's items to the options of the store."""
    asset = TOKENS[store.asset.family][0]
    for domain, content in store.recipe["tokens"].items():
        if store.workspace.content(asset, domain) != content:
            raise StoreError(f"{asset}[{domain}] was built again since. Make the blend again: {build_command(store.asset.name)}")
    streams = training_streams(store.workspace, store.asset.family)
    offered = {name: stream.tokens for name, stream in streams.items()}
    claimed = {**store.manifest.counts, **store.manifest.metrics}
    window = blend.window
    # a window needs the token after it as well
    lengths = {
        name: np.full(max(0, stream.tokens - 1) // window, window) if window else np.diff(stream.ends, prepend=0)
        for name, stream in streams.items()
    }
    return check_blend(blend, lengths, offered, store.recipe["blend"], claimed)


MIXTURE = Check(
    "mixture",
    "Every item is the window or record that options and seed put there, derived again; so are shares and epochs.",
    lambda store: blend_verdict(store, open_blend(store.directory)),
)
