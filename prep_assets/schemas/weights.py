"""Loss weights that a row gives to its own messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import TEXT, THINKING, TOOL_CALL, Region, Turn
from prep_assets.schemas.field_names import FLAGS, WEIGHTS
from prep_assets.schemas.fields import as_number, inside, wrong_type


def loss_weight_of(message: Mapping[str, Any], where: str) -> float | None:
    """The weight that `message` (or a content part, or a row) asks for, `None` where it asks for none.

    Read are ``loss_weight`` (LLaMA-Factory v1), ``weight`` (OpenAI fine-tuning) and ``loss_mask``, and the booleans ``train`` and ``training``
    (Axolotl) and ``loss`` (ms-swift). Refuses a weight that `as_weight` does not take (``bad_weight``) and two fields that disagree (``conflicting_weights``).
    """
    asked = {key: as_weight(message[key], inside(where, key)) for key in WEIGHTS if message.get(key) is not None}
    for key in FLAGS:
        if (flag := message.get(key)) is not None:
            asked[key] = float(flag) if isinstance(flag, bool) else wrong_type(flag, inside(where, key), "true or false")
    if len(set(asked.values())) > 1:
        raise Refused("conflicting_weights", f"{where or 'the record'}: {', '.join(f'{key} = {value:g}' for key, value in asked.items())}")
    return next(iter(asked.values()), None)


LEAST, MOST = 1e-30, 1e30
"""Weights that are stored as float32; of a smaller one nothing would be left, and a larger one would be infinite."""


def as_weight(value: object, where: str) -> float:
    """`value` as a loss weight: 0, or a number from `LEAST` to `MOST`; true and false are 1 and 0."""
    weight = float(value) if isinstance(value, bool) else as_number(value, where)
    if weight != 0 and not LEAST <= weight <= MOST:
        raise Refused("bad_weight", f"{where!r} is {weight:g}; a loss weight is 0, or from {LEAST:g} to {MOST:g}")
    return weight


def weighted(turn: Turn, weight: float) -> Turn:
    """`turn` with this weight wherever the row itself gives none, such as 0 for an answer that is part of a prompt."""
    return replace(turn, regions=tuple(r if r.loss_weight is not None else replace(r, loss_weight=weight) for r in turn.regions))


def refuse_weighted_space(turn: Turn) -> None:
    """Refuse (``weighted_space``) white space with a weight or an attention of its own beside reasoning or a tool call: in a render nothing tells it from the
    template's own white space there, so its weight would be lost."""
    for left, right in pairwise(turn.regions):
        for space, other in ((left, right), (right, left)):
            if (
                space.kind == TEXT
                and space.text.isspace()
                and other.kind in (THINKING, TOOL_CALL)
                and (space.loss_weight, space.attend) != (other.loss_weight, other.attend)
            ):
                raise Refused(
                    "weighted_space",
                    f"a turn of role {turn.role} has white space of weight {_said(space)} beside a region {other.kind!r} of weight "
                    f"{_said(other)}. Give both one weight, or leave the white space out",
                    stage="schema",
                )


def _said(region: Region) -> str:
    return f"{region.loss_weight}{'' if region.attend else ' and no attention'}"
