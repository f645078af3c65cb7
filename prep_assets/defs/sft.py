"""SFT: raw instructions and chats → masked tokens → packed rows."""

from typing import Any

import dagster as dg

from prep_assets.defs.building import build, declare
from prep_assets.defs.columns import MASKED_TOKENS, PACKED, SOURCES
from prep_assets.defs.options import options

Options: Any = options("sft")


@declare("sft_raw", kinds={"python", "file"}, columns=SOURCES)
def sft_raw(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Source files of instructions and chats, pinned by content hash."""
    return build(context, config)


@declare("sft_template", kinds={"python", "json"})
def sft_template(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Certificate of the chat template: what it makes of system prompts, reasoning and tools, and how masks are proven."""
    return build(context, config)


@declare("sft_tokens", kinds={"python", "numpy"}, columns=MASKED_TOKENS)
def sft_tokens(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Token ids and loss mask of every conversation, one store per domain.

    Each conversation is rendered once by the chat template and tokenized once; the mask follows from where its regions stand in the render.
    """
    return build(context, config)


@declare("sft_packed", kinds={"python", "hdf5"}, columns=PACKED)
def sft_packed(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """All domains mixed and packed into rows of one length, tokens and loss mask aligned.

    Trainers read `sft_packed.h5` (datasets `tokens` and `loss_mask`, both (N, row_len)); `sft_packed.documents` says which record is where.
    """
    return build(context, config)
