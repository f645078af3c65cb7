"""What the configuration says about reasoning in the text of answers."""

from __future__ import annotations

from typing import Any

from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Chat
from prep_assets.templates.reasoning import InlineReasoning


def inline_reasoning(workspace: Workspace, family: Chat) -> InlineReasoning:
    """How a family reads it before its template renders."""
    return InlineReasoning(family.reasoning, family.reasoning_tags, workspace.template(family).shows_thinking)


def unrendered_reasoning(family: Chat) -> InlineReasoning:
    """How a family reads it for rows that a trainer renders: a block stays in the text, which every trainer's template takes."""
    return InlineReasoning(family.reasoning, family.reasoning_tags, shown=False)


def reasoning_recipe(family: Chat) -> dict[str, Any]:
    """The options that decide it."""
    return family.model_dump(include={"reasoning", "reasoning_tags"})
