"""``semantic``: Cerebras Model Zoo's semantic data array itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import Refused, nearest
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, PROMPT, SYSTEM, TOOL, USER, Pair, Region, Sample, Turn
from prep_assets.schemas.fields import as_list, as_mapping, as_text, needed, value_at
from prep_assets.schemas.pairs import pair
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_answer
from prep_assets.schemas.semantic_regions import RegionDefaults

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
) -> Convert:
    """Turns of named regions, each with its own loss weight, drop mask and attention mask.

    A region without a weight leaves it to the mask policy of its turn's type; an image region weighs 0.

    Options:
        array_key: field with the array of turns.
        pretraining: join all turns to one document whatever their type, as pretraining mode does; untyped turns always are one.
        semantic_loss_weight: weight by region name, for turns without their own list; 0 counts.
        semantic_drop_mask: the same, for leaving regions out.
        semantic_attention_mask: the same, for attention.
    """
    defaults = RegionDefaults(semantic_loss_weight or {}, semantic_drop_mask or {}, semantic_attention_mask or {})

    def convert(row: Mapping[str, Any]) -> Sample | Pair:
        array = as_list(value_at(row, array_key), array_key)
        turns = [as_mapping(turn, f"{array_key}[{i}]") for i, turn in enumerate(array)]
        if not turns:
            raise Refused("empty_text", f"{array_key!r} has no turns")
        typed = ["type" in turn for turn in turns]
        if pretraining or not any(typed):
            return _document(turns, array_key, defaults)
        if not all(typed):
            raise Refused("mixed_types", f"{array_key}[{typed.index(False)}] has no 'type', other turns have one")
        return _typed(turns, array_key, defaults)

    return convert


def _document(turns: Sequence[Mapping[str, Any]], where: str, defaults: RegionDefaults) -> Sample:
    regions = [r for i, turn in enumerate(turns) for r in defaults.regions(turn, f"{where}[{i}]", pretraining=True)]
    if not any(region.text.strip() for region in regions):
        raise Refused("empty_text", f"{where!r} has no content")
    return Sample((Turn(DOCUMENT, tuple(regions)),))


def _typed(turns: Sequence[Mapping[str, Any]], where: str, defaults: RegionDefaults) -> Sample | Pair:
    types = [_type(turn, f"{where}[{i}]") for i, turn in enumerate(turns)]
    regions = [defaults.regions(turn, f"{where}[{i}]", pretraining=False) for i, turn in enumerate(turns)]
    if any(kind in ANSWER_TYPES for kind in types):
        return _pair(types, regions, where)
    if any(kind in PLAIN_TYPES for kind in types) and any(kind in CHAT_TYPES for kind in types):
        raise Refused("mixed_types", f"{where!r} mixes types with a chat template and without one: {' '.join(types)}")
    sample = Sample(tuple(Turn(kind, tuple(region)) for kind, region in zip(types, regions, strict=True)))
    if types[0] in CHAT_TYPES:
        require_answer(sample.turns)
    elif COMPLETION not in types:
        raise Refused("no_completion", f"{where!r} has types {' '.join(types)}")
    return sample


def _type(turn: Mapping[str, Any], where: str) -> str:
    kind = as_text(turn["type"], f"{where}.type")
    if kind not in TYPES:
        raise Refused("unknown_role", f"{where} has type {kind!r}{nearest(kind, TYPES)}; known: {', '.join(TYPES)}")
    return kind


def _pair(types: Sequence[str], regions: Sequence[Sequence[Region]], where: str) -> Pair:
    """DPO arrays: every turn before the answers is the prompt, and the chat template applies, as in Cerebras' DPO mode."""
    if sorted(types[-2:]) != [*ANSWER_TYPES] or any(kind in (*ANSWER_TYPES, COMPLETION) for kind in types[:-2]):
        raise Refused("role_order", f"{where!r} must be a prompt, then one chosen and one rejected; its types are {' '.join(types)}")
    roles = {PROMPT: USER, "chosen": ASSISTANT, "rejected": ASSISTANT}
    turns = [Turn(roles.get(kind, kind), tuple(region)) for kind, region in zip(types, regions, strict=True)]
    sides = dict(zip(types[-2:], turns[-2:], strict=True))
    for turn in turns[:-2]:
        needed(turn.text, "empty_prompt", where)
    return pair(tuple(turns[:-2]), (sides["chosen"],), (sides["rejected"],))
