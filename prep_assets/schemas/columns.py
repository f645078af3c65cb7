"""Columns that mean the same whatever the schema: a system prompt, tools, documents, variables of the template, a label, a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from prep_assets.disk.strict_json import loads
from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, SYSTEM, Sample, Turn, turn
from prep_assets.schemas.field_names import DOCUMENTS, LABELS, SYSTEM_PROMPT, TEMPLATE_OPTIONS, TOOLS
from prep_assets.schemas.fields import as_list, as_mapping, text_of, wrong_type
from prep_assets.schemas.tools import require_json, tools_at
from prep_assets.schemas.view import has_content, whole
from prep_assets.schemas.weights import as_weight, loss_weight_of


class Offered(TypedDict):
    """What a row offers its answers beside the conversation."""

    tools: tuple[Mapping[str, Any], ...]
    documents: tuple[Mapping[str, Any], ...]
    template_options: Mapping[str, Any]


def chat_sample(row: Mapping[str, Any], turns: Sequence[Turn], tools_key: str | None = "tools") -> Sample:
    """A conversation for a chat template, with all that the row's own columns say of it."""
    return Sample(weighted_by(row, turns), label=label_of(row), **offered(row, tools_key))


def plain_sample(row: Mapping[str, Any], turns: Sequence[Turn]) -> Sample:
    """Text that no template renders: nothing can be offered beside it."""
    return Sample(weighted_by(row, turns), label=label_of(row))


def offered(row: Mapping[str, Any], tools_key: str | None = "tools") -> Offered:
    """The tools, the documents and the variables of the template that a row has. ``tools`` is read in its other spellings too."""
    options = row.get(TEMPLATE_OPTIONS)
    if isinstance(options, str):
        options = _parsed(options)
    plain = whole(as_mapping(options, TEMPLATE_OPTIONS)) if has_content(options) else {}
    documents = _documents(row)
    for key, value in ((TEMPLATE_OPTIONS, plain), (DOCUMENTS, documents)):
        if value:
            require_json(value, "wrong_type", key)
    return {"tools": tools_of(row, tools_key), "documents": documents, "template_options": plain}


def tools_of(row: Mapping[str, Any], key: str | None) -> tuple[Mapping[str, Any], ...]:
    """The tools on offer, under `key`; under any of its spellings where that is ``tools``. Two different lists are refused."""
    keys = TOOLS if key == TOOLS[0] else (key,)
    found = [tools for each in keys if (tools := tools_at(row, each))]
    if any(tools != found[0] for tools in found):
        raise Refused("conflicting_tools", f"different tools stand under {' and '.join(repr(each) for each in keys if row.get(str(each)))}")
    return found[0] if found else ()


def with_system(turns: Sequence[Turn], system: str) -> tuple[Turn, ...]:
    """`turns` with a system turn from the row's own column in front; two different system prompts are refused."""
    if not system.strip():
        return tuple(turns)
    if not turns or turns[0].role != SYSTEM:
        return (turn(SYSTEM, system), *turns)
    if turns[0].text != system:
        raise Refused("two_systems", f"the chat begins with the system prompt {turns[0].text[:40]!r}, its column says {system[:40]!r}")
    return tuple(turns)


def with_system_of(row: Mapping[str, Any], turns: Sequence[Turn], key: str | None = SYSTEM_PROMPT) -> tuple[Turn, ...]:
    """`turns` after the system prompt that stands in a column of the row; an absent, null or blank column adds none."""
    return with_system(turns, "" if key is None else text_of(row, key, required=False))


def label_of(row: Mapping[str, Any]) -> bool | None:
    """Whether the row calls its answer good (true) or bad (false), under ``label`` or ``kto_tag``; `None` where it does not say."""
    labels = {key: row[key] for key in LABELS if row.get(key) is not None}
    for key, value in labels.items():
        if not isinstance(value, bool):
            wrong_type(value, key, "true or false, or to be listed under `ignore` where it does not judge the answer")
    if len(set(labels.values())) > 1:
        raise Refused("conflicting_labels", f"{' and '.join(f'{key} is {value}' for key, value in labels.items())}")
    return next(iter(labels.values()), None)


def weighted_by(row: Mapping[str, Any], turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """`turns` with the row's own loss weight on each of its answers, times the weight that a message has of its own. 1 changes nothing.

    A row of weight 0 is refused (``nothing_to_train``): a policy may train its questions and stop tokens, and it asks for neither.
    """
    weight = loss_weight_of(row, "")
    if weight is None or weight == 1:
        return tuple(turns)
    if not weight:
        raise Refused("nothing_to_train", "the record says of itself that it is not trained")
    return tuple(_scaled(each, weight) if each.role in (ASSISTANT, COMPLETION) else each for each in turns)


def _scaled(answer: Turn, weight: float) -> Turn:
    regions = (
        replace(
            r, loss_weight=weight if r.loss_weight is None else as_weight(weight * r.loss_weight, "the record's weight times its part's")
        )
        for r in answer.regions
    )
    return replace(answer, regions=tuple(regions))


def _documents(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = row.get(DOCUMENTS)
    listed = as_list(value, DOCUMENTS) if has_content(value) else ()
    return tuple(whole(as_mapping(each, f"{DOCUMENTS}[{i}]")) for i, each in enumerate(listed))


def _parsed(text: str) -> Any:
    try:
        return loads(text) if text.strip() else None
    except ValueError as error:
        raise Refused("wrong_type", f"{TEMPLATE_OPTIONS!r} is not JSON: {error}") from error
