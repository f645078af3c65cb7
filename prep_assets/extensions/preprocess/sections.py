"""``sections``: AstrAI's declarative input, any fields of a record trained or masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from prep_assets.config.base import Model
from prep_assets.config.loading import parse
from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.rl.schemas import rewards_for
from prep_assets.samples import COMPLETION, DOCUMENT, PROMPT, TEXT, Group, Pair, Region, Row, Sample, Turn, changed
from prep_assets.schemas.fields import as_list, as_text, needed, value_at, weighted
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, common_prompt, pair, require_answer, require_open_end

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
        detail = f"the record has no text under {fields}; it has {', '.join(map(repr, row)) or 'no fields, ignored ones aside'}"
        raise Refused("nothing_to_train", detail)
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
