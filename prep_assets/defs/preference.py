"""Preferences: raw pairs → JSONL for reward models and DPO → tokens of both sides."""

from typing import Any

import dagster as dg

from prep_assets.defs.building import build, declare
from prep_assets.defs.columns import MASKED_TOKENS, PAIRS, SOURCES
from prep_assets.defs.options import options

Options: Any = options("preference")


@declare("preference_raw", kinds={"python", "file"}, columns=SOURCES)
def preference_raw(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Source files of preference pairs, pinned by content hash."""
    return build(context, config)


@declare("preferences", kinds={"python", "json"}, columns=PAIRS)
def preferences(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Pairs of all domains as `preferences.jsonl`, and a held-out `preferences_test.jsonl` that shares no prompt with it.

    Answers with a label (KTO) go to `unpaired.jsonl` and `unpaired_test.jsonl`.
    """
    return build(context, config)


@declare("preference_tokens", kinds={"python", "numpy"}, columns=MASKED_TOKENS)
def preference_tokens(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Both sides of every training pair as token ids, loss on the answer and its stop token only."""
    return build(context, config)
