"""Pretraining: raw documents → token streams."""

from typing import Any

import dagster as dg

from prep_assets.defs.building import build, declare
from prep_assets.defs.columns import SOURCES, TOKENS
from prep_assets.defs.options import options

Options: Any = options("pretrain")


@declare("pretrain_raw", kinds={"python", "file"}, columns=SOURCES)
def pretrain_raw(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Source files of pretraining documents, pinned by content hash.

    Nothing is copied: the store lists names, sizes, hashes and row counts, and quarantine lists every row that cannot be read.
    """
    return build(context, config)


@declare("pretrain_tokens", kinds={"python", "numpy"}, columns=TOKENS)
def pretrain_tokens(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """One flat token stream per domain, an end-of-text token after every document.

    Trainers read `<domain>_train.h5` (dataset `tokens`) or `<domain>_train/shard_0000/sequence.bin`.
    """
    return build(context, config)
