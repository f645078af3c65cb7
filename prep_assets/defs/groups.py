"""RL: scored groups, which stand in the graph where a domain's schema gives them."""

from typing import Any

import dagster as dg

from prep_assets.defs.building import build, declare
from prep_assets.defs.columns import GROUPS
from prep_assets.defs.options import options
from prep_assets.pipelines.graph import has_groups
from prep_assets.pipelines.workspace import Workspace

Options: Any = options("rl")


def groups() -> list[dg.AssetsDefinition]:
    """`rl_groups`, where the configuration has a domain of scored groups."""
    if not has_groups(Workspace.open()):
        return []

    @declare("rl_groups", kinds={"python", "numpy"}, columns=GROUPS)
    def rl_groups(context: dg.AssetExecutionContext, config: Options) -> dg.MaterializeResult[Any]:
        """Prompts with several responses and a reward for each, as token ids, masks and rewards: offline GRPO."""
        return build(context, config)

    return [rl_groups]
