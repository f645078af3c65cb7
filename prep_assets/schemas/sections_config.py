"""AstrAI's ``input.sections`` / ``input.sources`` dialect, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import ConfigError, nearest

TRAIN, MASK, ROLE, VALUE = "train", "mask", "$role", "value"
ACTIONS = (TRAIN, MASK, ROLE, VALUE)
WEIGHTS = {TRAIN: 1.0, MASK: 0.0}
"""Loss weights of actions; ``$role`` leaves it to the mask policy."""
SECTION_KEYS = ("field", "action", "template", "add_special_tokens")
SOURCE_KEYS = ("sections", "list_field", "mask_key")
SOURCES = (("chosen", "rejected"), ("prompts", "responses", "rewards"))

CHAT = ({"field": "messages", "action": ROLE, "template": True},)


@dataclass(frozen=True, slots=True)
class Section:
    """One field of a record: whether it is trained (`action`), and whether it is a list of messages for the chat template."""

    field: str
    action: str
    template: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """What makes one output of a record with several, such as ``chosen``."""

    sections: tuple[Section, ...]
    list_field: bool = False


def parse_sections(specs: Sequence[Mapping[str, Any]], where: str) -> tuple[Section, ...]:
    """Sections as AstrAI writes them.

    Raises:
        ConfigError: an unknown key or action, no sections, plain and templated sections in one record, ``$role`` without a template, or
            special tokens asked for anywhere but at the start (a record is tokenized once, so they cannot stand inside it).
    """
    sections = tuple(_section(spec, f"{where}[{i}]", first=i == 0) for i, spec in enumerate(specs))
    if not sections:
        raise ConfigError(f"{where} is empty: name at least one field")
    if len({section.template for section in sections}) > 1:
        raise ConfigError(f"{where} mixes sections with and without template: a record is either rendered by the chat template or not")
    return sections


def parse_sources(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Source]:
    """Sources as AstrAI writes them: chosen and rejected, or prompts, responses and rewards.

    Raises:
        ConfigError: other sources, an unknown key, or a source that does not suit its name.
    """
    if sorted(specs) not in [sorted(names) for names in SOURCES]:
        raise ConfigError(f"sources are {', '.join(specs) or 'empty'}; known: {' or '.join('+'.join(names) for names in SOURCES)}")
    sources = {name: _source(spec, f"sources.{name}") for name, spec in specs.items()}
    for name, source in sources.items():
        is_value = [section.action for section in source.sections] == [VALUE]
        if is_value != (name == "rewards") or any(section.action == VALUE for section in source.sections) != is_value:
            raise ConfigError(f"sources.{name}: action 'value' is for rewards, and rewards have exactly one section with it")
        if source.list_field != (name == "responses") and name != "rewards":
            raise ConfigError(f"sources.{name}: list_field must be {str(name == 'responses').lower()}")
        if name == "responses" and len(source.sections) != 1:
            raise ConfigError(f"sources.responses has {len(source.sections)} sections, needs one")
    return sources


def _section(spec: Mapping[str, Any], where: str, *, first: bool) -> Section:
    _require_known(spec, SECTION_KEYS, where)
    field, action, template = spec.get("field"), spec.get("action"), spec.get("template", False)
    if not isinstance(field, str) or not isinstance(template, bool):
        raise ConfigError(f"{where} needs a field name and template true or false; they are {field!r} and {template!r}")
    if action not in ACTIONS:
        raise ConfigError(f"{where} has action {action!r}{nearest(str(action), ACTIONS) or '.'} Allowed: {', '.join(ACTIONS)}")
    if action == ROLE and not template:
        raise ConfigError(f"{where} has action '$role' without a template: only messages have roles. Use 'train' or 'mask'")
    special = first and not template
    if spec.get("add_special_tokens", special) is not special:
        raise ConfigError(f"{where}: add_special_tokens can only be {str(special).lower()} here: a record is tokenized once, as a whole")
    return Section(field, action, template)


def _source(spec: Mapping[str, Any], where: str) -> Source:
    _require_known(spec, SOURCE_KEYS, where)
    sections, list_field = spec.get("sections"), spec.get("list_field", False)
    if not isinstance(sections, list | tuple) or not isinstance(list_field, bool):
        raise ConfigError(f"{where} needs an array of sections, and list_field true or false; they are {sections!r} and {list_field!r}")
    return Source(parse_sections(sections, f"{where}.sections"), list_field)


def _require_known(spec: object, keys: Sequence[str], where: str) -> None:
    if not isinstance(spec, Mapping):
        raise ConfigError(f"{where} is {spec!r}, needs a mapping with {', '.join(keys)}")
    for key in spec:
        if key not in keys:
            raise ConfigError(f"{where} has no key {key!r}{nearest(str(key), keys) or '.'} Allowed: {', '.join(keys)}")
