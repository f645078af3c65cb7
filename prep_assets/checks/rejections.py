"""Rejections, derived again without the code that made them: which oracle judges a rejection, by its stage and reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prep_assets.checks.sources_again import domain_source, images_again
from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed, Refused
from prep_assets.pipeline.asset import FromRows, Store
from prep_assets.pipeline.examples import converter
from prep_assets.proofs import rejected_renders
from prep_assets.proofs.formats import Format, format_of, read_by, without
from prep_assets.proofs.rejected_rows import kept_fault, ruling
from prep_assets.proofs.second_reading import read_again, shown_by
from prep_assets.samples import ASSISTANT, THINKING, Pair, Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import selected_schema
from prep_assets.text.conversation import control_pattern, treat

Row = Mapping[str, Any]
Ruling = str | None
"""``""``: derived; `None`: no oracle can tell, so the rejection is only repeated by the same code; otherwise why the row is right."""
Oracle = Callable[[str, Row], Ruling]
"""Reason and fields of a rejected row → ruling."""
Kept = Callable[[Row], str]
"""Fields of a row that its schema takes → why it must be rejected; ``""`` where nothing says so."""


def _definition(store: Store) -> Format | None:
    """Return the definition of a domain's rows; `None` for a user's schema."""
    domain, source = domain_source(store).domain, store.asset.source
    assert isinstance(source, FromRows)
    schema = selected_schema(domain.schema_name, source.gives, or_labels=source.gives is Pair)
    return None if schema is None else format_of(schema.name, domain.options)


def of_schema(store: Store) -> Oracle:
    """What the definition of a format says, and the rules beyond it."""
    definition, domain = _definition(store), domain_source(store).domain
    if definition is None:
        return lambda reason, row: None
    used = [*domain.where, *([domain.domain_key] if domain.domain_key else [])]

    def judge(reason: str, row: Row) -> Ruling:
        given = read_by(definition, without(row, domain.ignore), used)
        found = ruling(definition, given, reason)
        # names in front of texts and weights of a user's function are beyond any definition
        return None if found and (domain.weigh is not None or reason == "name_before_reasoning") else found

    return judge


def kept_rows(store: Store) -> Kept | None:
    """Return what judges rows that the schema of a domain takes; `None` for a user's schema."""
    definition, domain = _definition(store), domain_source(store).domain
    if definition is None:
        return None
    used = [*domain.where, *([domain.domain_key] if domain.domain_key else [])]
    return lambda row: kept_fault(definition, read_by(definition, without(row, domain.ignore), used))


def of_render(store: Store) -> Oracle:
    """What the reference renders of a chat. Only stores of whole chats: a pair or a group is rendered in parts."""
    if store.asset.name != "sft_tokens" or store.recipe["expand"] == "turns":
        return lambda reason, row: None
    template = store.workspace.template(store.workspace.family(Sft))
    convert, images = converter(domain_source(store).domain, Sample), images_again(store)
    stripped = control_pattern(store.vocabulary.control) if store.recipe["special_in_content"] == "strip" else None

    def judge(reason: str, row: Row) -> Ruling:
        try:
            sample = apply(convert, row)
            if not isinstance(sample, Sample):
                return None
            sample = treat(read_again(images(sample), store.recipe, **shown_by(template)), stripped, "strip")[0]
        except (CheckFailed, Refused):
            return None
        return rejected_renders.ruling(reason, sample, template)

    return judge


def of_reasoning(store: Store) -> Oracle:
    """Whether an answer of a chat is nothing but reasoning, by a second reading of tags."""
    if store.asset.name != "sft_tokens":
        return lambda reason, row: None
    shown, convert = shown_by(store.workspace.template(store.workspace.family(Sft))), converter(domain_source(store).domain, Sample)

    def judge(reason: str, row: Row) -> Ruling:
        sample = apply(convert, row)
        if not isinstance(sample, Sample):
            return None
        turns = read_again(sample, store.recipe, **shown).turns
        empty = any(turn.role == ASSISTANT and all(region.kind == THINKING for region in turn.regions) for turn in turns)
        return "" if empty else "an answer stands behind the reasoning of every turn"

    return judge


ORACLES: Mapping[str, Callable[[Store], Oracle]] = {"schema": of_schema, "render": of_render, "reasoning/empty_answer": of_reasoning}
"""By ``stage/reason``, or by stage for all its other reasons: what derives a rejection again. For stores that are made from rows."""


def rulings(store: Store) -> Oracle:
    """Return what judges the rejections of a store, by ``stage/reason``."""
    opened: dict[str, Oracle] = {}

    def judge(why: str, row: Row) -> Ruling:
        stage, _, reason = why.partition("/")
        name = next((each for each in (why, stage) if each in ORACLES), None)
        if name is None:
            return None
        if name not in opened:
            opened[name] = ORACLES[name](store)
        return opened[name](reason, row)

    return judge
