"""``semantic``: Cerebras Model Zoo's semantic data arrays, whose rows say of their own parts what is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from prep_assets.errors import Refused, nearest
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    DOCUMENT,
    IMAGE,
    PROMPT,
    SEPARATOR,
    SYSTEM,
    TEXT,
    TOOL,
    USER,
    Pair,
    Region,
    Row,
    Sample,
    Turn,
)
from prep_assets.schemas.fields import as_list, as_mapping, as_text, as_weight, needed, objects, value_at, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import pair, require_answer, separated

CHAT_TYPES = (SYSTEM, USER, ASSISTANT, TOOL)
PLAIN_TYPES = (PROMPT, COMPLETION)
ANSWER_TYPES = ("chosen", "rejected")
TYPES = (*CHAT_TYPES, *PLAIN_TYPES, *ANSWER_TYPES)

EXAMPLE = {
    "semantic_data_array": [
        {
            "type": "user",
            "content": [{"passage": "Aspirin thins the blood."}, {"question": "What does aspirin do?"}],
            "semantic_loss_weight": [1, 0],
        },
        {"type": "assistant", "content": [{"answer": "It thins the blood."}]},
    ]
}


@schema("semantic", gives=Sample | Pair, example=EXAMPLE)
def semantic(
    *,
    array_key: str = "semantic_data_array",
    pretraining: bool = False,
    semantic_loss_weight: Mapping[str, float] | None = None,
    semantic_drop_mask: Mapping[str, bool | int] | None = None,
    semantic_attention_mask: Mapping[str, bool | int] | None = None,
    separator: str | None = None,
) -> Convert:
    """Turns of named regions, each with its own loss weight, drop mask and attention mask.

    A region without a weight leaves it to the mask policy of its turn's type; an image region weighs 0.

    Options:
        array_key: array of turns.
        pretraining: join all turns to one document; untyped turns always are one.
        semantic_loss_weight: weight by region name, for turns without their own list; 0 counts.
        semantic_drop_mask: the same, for leaving regions out.
        semantic_attention_mask: the same, for attention.
        separator: what stands between a prompt and a completion, never trained; null: the tokenizer's `sep_token`, else `<|sep|>`; empty: nothing.
    """
    defaults = RegionDefaults(semantic_loss_weight or {}, semantic_drop_mask or {}, semantic_attention_mask or {})

    def convert(row: Row) -> Sample | Pair:
        turns = [turn for _, turn in objects(value_at(row, array_key), array_key)]
        if not turns:
            raise Refused("empty_text", f"{array_key!r} has no turns")
        typed = ["type" in turn for turn in turns]
        if pretraining or not any(typed):
            return _document(turns, array_key, defaults)
        if not all(typed):
            raise Refused("mixed_types", f"{array_key}[{typed.index(False)}] has no 'type', other turns have one")
        return _typed_example(turns, array_key, defaults, separator)

    return convert


def _document(turns: Sequence[Mapping[str, Any]], where: str, defaults: RegionDefaults) -> Sample:
    regions = [part for i, turn in enumerate(turns) for part in defaults.regions(turn, f"{where}[{i}]", pretraining=True)]
    if not any(region.text.strip() for region in regions):
        raise Refused("empty_text", f"{where!r} has no content")
    return Sample((Turn(DOCUMENT, tuple(regions)),))


def _typed_example(turns: Sequence[Mapping[str, Any]], where: str, defaults: RegionDefaults, separator: str | None) -> Sample | Pair:
    types = [_checked_type(turn, f"{where}[{i}]") for i, turn in enumerate(turns)]
    regions = [defaults.regions(turn, f"{where}[{i}]", pretraining=False) for i, turn in enumerate(turns)]
    if any(kind in ANSWER_TYPES for kind in types):
        return _pair(types, regions, where)
    if any(kind in PLAIN_TYPES for kind in types) and any(kind in CHAT_TYPES for kind in types):
        raise Refused("mixed_types", f"{where!r} mixes types with a chat template and without one: {' '.join(types)}")
    sample = Sample(separated([Turn(kind, tuple(region)) for kind, region in zip(types, regions, strict=True)], separator))
    if types[0] in CHAT_TYPES:
        require_answer(sample.turns)
    elif COMPLETION not in types:
        raise Refused("no_completion", f"{where!r} has types {' '.join(types)}")
    return sample


def _checked_type(turn: Row, where: str) -> str:
    kind = as_text(turn["type"], f"{where}.type")
    if kind not in TYPES:
        raise Refused("unknown_role", f"{where} has type {kind!r}{nearest(kind, TYPES)}; known: {', '.join(TYPES)}")
    return kind


def _pair(types: Sequence[str], regions: Sequence[Sequence[Region]], where: str) -> Pair:
    """The pair of a DPO array: all turns before the two answers are the prompt, and the chat template applies, as in Cerebras' DPO mode."""
    if sorted(types[-2:]) != [*ANSWER_TYPES] or any(kind in (*ANSWER_TYPES, COMPLETION) for kind in types[:-2]):
        raise Refused("role_order", f"{where!r} must be a prompt, then one chosen and one rejected; its types are {' '.join(types)}")
    roles = {PROMPT: USER, "chosen": ASSISTANT, "rejected": ASSISTANT}
    turns = [Turn(roles.get(kind, kind), tuple(region)) for kind, region in zip(types, regions, strict=True)]
    answers = dict(zip(types[-2:], turns[-2:], strict=True))
    for turn in turns[:-2]:
        needed(turn.text, "empty_prompt", where)
    return pair(tuple(turns[:-2]), (answers["chosen"],), (answers["rejected"],))


class RegionDefaults(Struct, frozen=True):
    """Loss weights and masks by region name, for turns without lists of them.

    For each region, as in Cerebras Model Zoo, the turn's list comes first, then these defaults, then the default of the turn's type. Unlike in Model
    Zoo, a weight of 0 in these defaults counts.
    """

    loss_weight: Mapping[str, float]
    drop: Mapping[str, bool | int]
    attend: Mapping[str, bool | int]

    def regions(self, turn: Row, where: str, *, pretraining: bool) -> list[Region]:
        """The regions of `turn`. An empty region is rejected (``empty_region``), or left out in pretraining."""
        content = as_list(value_at(turn, "content", where), f"{where}.content")
        weights, drops, attends = (_mask_of(turn, key, where, len(content)) for key in ("loss_weight", "drop_mask", "attention_mask"))
        regions: list[Region] = []
        for number, named_region in enumerate(content):
            place = f"{where}.content[{number}]"
            names = [name for name in as_mapping(named_region, place) if name != "include_tags"]
            if len(names) != 1:
                raise Refused("wrong_type", f"{place} names {len(names)} regions ({', '.join(map(str, names))}), needs one")
            if names == [SEPARATOR]:
                raise Refused("unknown_part", f"{place} is called {SEPARATOR!r}, which is not the name of a region")
            [name], value, tagged = names, named_region[names[0]], _flag(named_region.get("include_tags", False), f"{place}.include_tags")
            if value is None or value == "":
                if pretraining:
                    continue
                raise Refused("empty_region", f"{place} has an empty {name!r}")
            text = as_text(value, f"{place}.{name}")
            weight = self.loss_weight.get(name) if weights is None else weights[number]
            if weight is not None:
                weight = as_weight(weight, f"{place} loss weight")
            elif name == IMAGE:  # a path, not tokens to predict
                weight = 0.0
            drop = _flag(self.drop.get(name, False) if drops is None else drops[number], place)
            attend = _flag(self.attend.get(name, True) if attends is None else attends[number], place)
            untagged = Region(name, text, weight, attend, drop)
            regions.extend(self._add_tags(untagged, pretraining) if tagged else [untagged])
        if not regions and not pretraining:
            raise Refused("empty_region", f"{where}.content has no regions")
        return regions

    def _add_tags(self, region: Region, pretraining: bool) -> list[Region]:
        """`region` between tags of its name. An image, whose text is a path, gets them as text regions around it."""
        name, weight, attend, drop = region.kind, region.loss_weight, region.attend, region.drop
        opening, closing = (f"<|{name}|>", f"<|{name}|>") if pretraining else (f"<{name}>", f"</{name}>")
        if name != IMAGE:
            return [Region(name, f"{opening}{region.text}{closing}", weight, attend, drop)]
        return [Region(TEXT, opening, weight, attend, drop), region, Region(TEXT, closing, weight, attend, drop)]


def _mask_of(turn: Row, key: str, where: str, regions: int) -> Sequence[Any] | None:
    value = turn.get(f"semantic_{key}")
    if value is None:
        return None
    place = f"{where}.semantic_{key}"
    if len(mask := as_list(value, place)) != regions:
        raise Refused("length_mismatch", f"{place!r} has {len(mask)} entries for {regions} regions of 'content'")
    return mask


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    return wrong_type(value, where, "true, false, 0 or 1")
