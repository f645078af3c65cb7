"""RL: raw questions → prompts with a verifiable answer → tokenized prompts; and the arithmetic curriculum."""

from typing import Any

import dagster as dg

from prep_assets.defs.building import build, declare
from prep_assets.defs.columns import PROMPTS, SOURCES, TOKENS
from prep_assets.defs.options import options

Options: Any = options("rl")


@declare("rl_raw", kinds={"python", "file"}, columns=SOURCES)
def rl_raw(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Source files of questions with known answers, pinned by content hash."""
    return build(context, config)


@declare("rl_prompts", kinds={"python", "json"}, columns=PROMPTS)
def rl_prompts(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Prompts with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`."""
    return build(context, config)


@declare("arithmetic_prompts", kinds={"python", "json"}, columns=PROMPTS)
def arithmetic_prompts(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """A seeded curriculum of arithmetic questions that even a weak policy can partly solve."""
    return build(context, config)


@declare("rl_tokens", kinds={"python", "numpy"}, columns=TOKENS)
def rl_tokens(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
    """Training prompts as token ids, ended by the template's generation prompt: what a rollout starts from."""
    return build(context, config)
