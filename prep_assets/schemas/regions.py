"""Rows that say of their own parts what is trained: ``semantic`` of Cerebras, ``sections`` of AstrAI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from prep_assets.config.base import Model
from prep_assets.config.loading import parse
from prep_assets.errors import ConfigError, Refused, nearest
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
    Group,
    Pair,
    Region,
    Row,
    Sample,
    Turn,
    changed,
)
from prep_assets.schemas.fields import as_list, as_mapping, as_text, as_weight, needed, objects, value_at, weighted, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rewards import rewards_for
from prep_assets.schemas.turns import ChatFormat, common_prompt, pair, require_answer, require_open_end, separated

# ``semantic``: Cerebras Model Zoo's semantic data arrays.


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


# ``sections``: AstrAI's declarative input, any fields of a record trained or masked.


SECTIONS_EXAMPLE = {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]}
TRAIN, MASK, ROLE, VALUE = "train", "mask", "$role", "value"
WEIGHTS = {TRAIN: 1.0, MASK: 0.0}
"""Loss weights of actions; with ``$role`` the mask policy decides."""
SOURCES = (("chosen", "rejected"), ("prompts", "responses", "rewards"))
CHAT = ({"field": "messages", "action": ROLE, "template": True},)


@schema("sections", gives=Sample | Pair | Group, example=SECTIONS_EXAMPLE)
def sections(
    *,
    sections: Sequence[Mapping[str, Any]] | None = None,
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    min_chars: int = 0,
    max_chars: int | None = None,
) -> Convert:
    """Fields of a record one after another, each with an action; or several such outputs of one record.

    Options:
        sections: array of `{field, action, template, add_special_tokens}`; null for a chat in `messages`. A message's own weight wins.
        sources: outputs by name, each `{sections, list_field, mask_key}`; `mask_key` is not used.
        min_chars: shortest field, if every section is plain and trained.
        max_chars: longest field, likewise; null: no bound.
    """
    if sources:
        if sections:
            raise ConfigError("both sections and sources are given; AstrAI ignores sections then. Remove one of them")
        _require_unbounded(min_chars, max_chars)
        return _convert_sources(parse_sources(sources))
    parsed = parse_sections(sections or CHAT, "sections")
    if any(section.action == VALUE for section in parsed) or all(section.action == MASK for section in parsed):
        raise ConfigError("sections train nothing: at least one needs action 'train' or '$role', and none may have 'value'")
    is_text = not any(section.template or section.action == MASK for section in parsed)
    if not is_text:
        _require_unbounded(min_chars, max_chars)

    def convert(row: Row) -> Sample:
        turns = _turns(row, parsed)
        if is_text:
            for length in (len(turn.text) for turn in turns):
                if length < min_chars or (max_chars is not None and length > max_chars):
                    reason = "too_short" if length < min_chars else "too_long"
                    raise Refused(reason, f"a section has {length} characters; min_chars is {min_chars}, max_chars is {max_chars}")
            return Sample((Turn(DOCUMENT, tuple(region for turn in turns for region in turn.regions)),))
        return Sample(turns)

    return convert


def _convert_sources(sources: Mapping[str, Source]) -> Convert:
    if "chosen" in sources:
        return lambda row: pair(*common_prompt(*(_turns(row, sources[side].sections) for side in ("chosen", "rejected"))))
    prompts, (responses,), (rewards,) = (sources[name].sections for name in ("prompts", "responses", "rewards"))

    def convert(row: Row) -> Group:
        prompt = _turns(row, prompts, trains=False)
        require_open_end(prompt, prompts[0].field)
        values = as_list(value_at(row, responses.field), responses.field)
        answers = tuple(_response(value, responses, f"{responses.field}[{i}]") for i, value in enumerate(values))
        return Group(prompt, answers, rewards_for(value_at(row, rewards.field), rewards.field, len(answers)))

    return convert


def _turns(row: Row, parsed: Sequence[Section], *, trains: bool = True) -> tuple[Turn, ...]:
    """The turns of all sections. Masked sections that the record lacks are left out; a record that trains nothing is rejected."""
    turns = tuple(turn for section in parsed for turn in _section_turns(row, section))
    if trains and not any(region.loss_weight != 0 for turn in turns for region in turn.regions):
        fields = ", ".join(repr(section.field) for section in parsed if section.action != MASK)
        raise Refused(
            "nothing_to_train",
            f"the record has no text under {fields}; it has {', '.join(map(repr, row)) or 'no fields, ignored ones aside'}",
        )
    if not turns:
        raise Refused("empty_prompt", f"the record has no text under {', '.join(repr(section.field) for section in parsed)}")
    return turns


def _section_turns(row: Row, section: Section) -> tuple[Turn, ...]:
    if section.template:
        turns = chat_turns(value_at(row, section.field), section.field, section.action)
        if section.action != MASK:
            require_answer(turns)
        return turns
    text = plain_text(row.get(section.field), section.field)
    return (plain_turn(text, section.action),) if text.strip() else ()


def _response(value: object, section: Section, where: str) -> tuple[Turn, ...]:
    if not section.template:
        return (changed(plain_turn(needed(plain_text(value, where), "empty_answer", where), section.action), role=COMPLETION),)
    turns = chat_turns(value, where, section.action)
    require_answer(turns)
    return turns


def plain_turn(text: str, action: str) -> Turn:
    """The turn of a field without a template: a prompt if masked, otherwise a completion."""
    return Turn(PROMPT if action == MASK else COMPLETION, (Region(TEXT, text, WEIGHTS.get(action)),))


def chat_turns(value: object, where: str, action: str) -> tuple[Turn, ...]:
    """The turns of a list of messages. ``train`` and ``mask`` set the loss weight of messages that have none."""
    turns = ChatFormat().turns(value, where)
    weight = WEIGHTS.get(action)
    return turns if weight is None else tuple(weighted(turn, weight) for turn in turns)


def plain_text(value: object, where: str) -> str:
    """`value` as text: a string, a number as `str` writes it, ``""`` for null."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return "" if value is None else as_text(value, where)


def _require_unbounded(min_chars: int, max_chars: int | None) -> None:
    """Raise if bounds on characters are set for chats, pairs or groups, which have no plain text to measure."""
    if min_chars or max_chars is not None:
        raise ConfigError("min_chars and max_chars measure plain sections that are trained, all of them; here others stand. Leave them out")


class Section(Model):
    """One field of a record, its `action`, and whether it is a list of messages for the chat template."""

    field: str
    action: Literal["train", "mask", "$role", "value"]
    template: bool = False
    add_special_tokens: bool | None = None


class Source(Model):
    """The sections of one output of a record, such as ``chosen``."""

    sections: tuple[Section, ...]
    list_field: bool = False
    mask_key: str | None = None


def parse_sections(specs: Sequence[Mapping[str, Any]], where: str) -> tuple[Section, ...]:
    """Parse sections as AstrAI writes them.

    Raises:
        ConfigError: an unknown key or action, no sections, plain and templated sections in one record, ``$role`` without a template, or
            special tokens anywhere but at the start (a record is tokenized once, so they cannot be inside it).
    """
    sections: tuple[Section, ...] = parse(Source, {"sections": specs}, where).sections
    _check_sections(sections, where)
    return sections


def _check_sections(sections: Sequence[Section], where: str) -> None:
    if not sections:
        raise ConfigError(f"{where} is empty: name at least one field")
    if len({section.template for section in sections}) > 1:
        raise ConfigError(f"{where} mixes sections with and without template: a record is either rendered by the chat template or not")
    for i, section in enumerate(sections):
        if section.action == ROLE and not section.template:
            raise ConfigError(f"{where}[{i}] has action '$role' without a template: only messages have roles. Use 'train' or 'mask'")
        special = i == 0 and not section.template
        if section.add_special_tokens not in (None, special):
            raise ConfigError(
                f"{where}[{i}]: add_special_tokens can only be {str(special).lower()} here: a record is tokenized once, as a whole"
            )


def parse_sources(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Source]:
    """Parse sources as AstrAI writes them: chosen and rejected, or prompts, responses and rewards.

    Raises:
        ConfigError: other sources, an unknown key, or a source that does not suit its name.
    """
    if sorted(specs) not in [sorted(names) for names in SOURCES]:
        raise ConfigError(f"sources are {', '.join(specs) or 'empty'}; known: {' or '.join('+'.join(names) for names in SOURCES)}")
    sources: dict[str, Source] = {name: parse(Source, spec, f"sources.{name}") for name, spec in specs.items()}
    for name, source in sources.items():
        _check_sections(source.sections, f"sources.{name}.sections")
        is_value = [section.action for section in source.sections] == [VALUE]
        if is_value != (name == "rewards") or any(section.action == VALUE for section in source.sections) != is_value:
            raise ConfigError(f"sources.{name}: action 'value' is for rewards, and rewards have exactly one section with it")
        if source.list_field != (name == "responses") and name != "rewards":
            raise ConfigError(f"sources.{name}: list_field must be {str(name == 'responses').lower()}")
        if name == "responses" and len(source.sections) != 1:
            raise ConfigError(f"sources.responses has {len(source.sections)} sections, needs one")
    return sources
