"""The regions of one turn of a semantic data array, with their weights and masks resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TEXT, Region
from prep_assets.schemas.fields import as_list, as_mapping, as_text, value_at, wrong_type
from prep_assets.schemas.weights import as_weight


@dataclass(frozen=True, slots=True)
class RegionDefaults:
    """Weights and masks by region name, for turns that have no list of their own.

    Resolution for each region, as in Cerebras Model Zoo: the turn's own list, else these, else the default of the type. Unlike there, a
    weight of 0 here counts.
    """

    loss_weight: Mapping[str, float]
    drop: Mapping[str, bool | int]
    attend: Mapping[str, bool | int]

    def regions(self, turn: Mapping[str, Any], where: str, *, pretraining: bool) -> list[Region]:
        """Regions of `turn`. An empty region is refused (``empty_region``); in pretraining it is left out, for it holds nothing."""
        content = as_list(value_at(turn, "content", where), f"{where}.content")
        weights, drops, attends = (_mask(turn, key, where, len(content)) for key in ("loss_weight", "drop_mask", "attention_mask"))
        regions: list[Region] = []
        for number, item in enumerate(content):
            place = f"{where}.content[{number}]"
            name, value, tagged = _named_value(as_mapping(item, place), place)
            if value is None or value == "":
                if pretraining:
                    continue
                raise Refused("empty_region", f"{place} has an empty {name!r}")
            text = as_text(value, f"{place}.{name}")
            weight = _weight(self.loss_weight.get(name) if weights is None else weights[number], place, name)
            drop = _flag(self.drop.get(name, False) if drops is None else drops[number], place)
            attend = _flag(self.attend.get(name, True) if attends is None else attends[number], place)
            bare = Region(name, text, weight, attend, drop)
            regions.extend(self._tagged(bare, pretraining) if tagged else [bare])
        if not regions and not pretraining:
            raise Refused("empty_region", f"{where}.content has no regions")
        return regions

    def _tagged(self, region: Region, pretraining: bool) -> list[Region]:
        """`region` between the tags of its name. A path cannot carry tags, so an image gets text regions around it."""
        name, weight, attend, drop = region.kind, region.loss_weight, region.attend, region.drop
        opening, closing = (f"<|{name}|>", f"<|{name}|>") if pretraining else (f"<{name}>", f"</{name}>")
        if name != IMAGE:
            return [Region(name, f"{opening}{region.text}{closing}", weight, attend, drop)]
        return [Region(TEXT, opening, weight, attend, drop), region, Region(TEXT, closing, weight, attend, drop)]


def _named_value(item: Mapping[str, Any], where: str) -> tuple[str, Any, bool]:
    names = [name for name in item if name != "include_tags"]
    if len(names) != 1:
        raise Refused("wrong_type", f"{where} names {len(names)} regions ({', '.join(map(str, names))}), needs one")
    return names[0], item[names[0]], _flag(item.get("include_tags", False), f"{where}.include_tags")


def _mask(turn: Mapping[str, Any], key: str, where: str, regions: int) -> Sequence[Any] | None:
    value = turn.get(f"semantic_{key}")
    if value is None:
        return None
    place = f"{where}.semantic_{key}"
    if len(mask := as_list(value, place)) != regions:
        raise Refused("length_mismatch", f"{place!r} has {len(mask)} entries for {regions} regions of 'content'")
    return mask


def _weight(value: Any, where: str, name: str) -> float | None:
    """An image is a path, not tokens to predict, so it weighs 0 where nobody says otherwise."""
    if value is None:
        return 0.0 if name == IMAGE else None
    return as_weight(value, f"{where} loss weight")


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    return wrong_type(value, where, "true, false, 0 or 1")
