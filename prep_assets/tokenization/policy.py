"""Mask policies: which regions carry loss, and whether the token that ends an assistant's turn does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT
from prep_assets.templates.rendering import Span

Action = Literal["train", "mask"]


@dataclass(frozen=True, slots=True)
class MaskPolicy:
    """Which tokens are trained.

    Attributes:
        roles: role → ``train`` or ``mask``.
        default: action for a role that is not listed.
        train_on_eos: whether the stop token after a trained turn is trained (``turn``) or not (``none``).
    """

    roles: Mapping[str, Action] = field(default_factory=lambda: {ASSISTANT: "train", COMPLETION: "train", DOCUMENT: "train"})
    default: Action = "mask"
    train_on_eos: Literal["turn", "none"] = "turn"

    def weight(self, span: Span) -> float:
        """Loss weight of a region: its own where the source gives one, else its role's."""
        if span.region.loss_weight is not None:
            return float(span.region.loss_weight)
        return 1.0 if self.roles.get(span.role, self.default) == "train" else 0.0
