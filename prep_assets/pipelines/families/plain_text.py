"""What rows of strings or plain messages cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import THINKING, TOOL_CALL, Turn


def refuse_structure(turns: tuple[Turn, ...], tools: tuple[Mapping[str, Any], ...], stage: str) -> None:
    """Refuse (``not_plain_text``) tools on offer, reasoning and tool calls: left out, an answer would be to another prompt."""
    if tools:
        raise Refused("not_plain_text", f"{len(tools)} tools are on offer; rows of this family have text only", stage=stage)
    for each in turns:
        for region in each.regions:
            if region.kind in (THINKING, TOOL_CALL) and not region.drop:
                detail = f"a {region.kind} region in a turn of role {each.role}; rows of this family have text only"
                raise Refused("not_plain_text", detail, stage=stage)
