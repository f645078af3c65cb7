"""Mask builders of the user's own: a function from the sample of a row to the loss weights of its turns, or of their regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import Example, Sample, Turn
from prep_assets.schemas.own_function import own_function
from prep_assets.schemas.registry import Convert
from prep_assets.schemas.weights import as_weight


def weighed_by(path: str, convert: Convert) -> Convert:
    """The row function `convert`, whose samples get the weights that the function at `path`, ``package.module:function``, gives.

    It returns one entry a turn: a weight for all of it, `None` to leave the turn as it is, or one of these for each of its regions.

    Raises:
        ConfigError: the function does not exist.
    """
    function = own_function("weigh:", path)

    def weighed(row: Mapping[str, Any]) -> Example | None:
        sample = convert(row)
        if not isinstance(sample, Sample):
            return sample
        if sample.tokenized is not None:
            raise Refused("token_ids", f"the record brings token ids with their own weights; {path!r} weighs turns")
        weights = function(sample)
        if len(weights) != len(sample.turns):
            raise Refused("length_mismatch", f"{path!r} gives {len(weights)} weights for {len(sample.turns)} turns")
        turns = (_weighed(turn, found, f"turn {at}") for at, (turn, found) in enumerate(zip(sample.turns, weights, strict=True)))
        return replace(sample, turns=tuple(turns))

    return weighed


def _weighed(turn: Turn, found: Any, where: str) -> Turn:
    weights = found if isinstance(found, list | tuple) else [found] * len(turn.regions)
    if len(weights) != len(turn.regions):
        raise Refused("length_mismatch", f"{where} has {len(turn.regions)} regions, and the function gives {len(weights)} weights")
    regions = (
        region if weight is None else replace(region, loss_weight=as_weight(weight, where))
        for region, weight in zip(turn.regions, weights, strict=True)
    )
    return replace(turn, regions=tuple(regions))
