"""Rejections, derived again without the code that made them: which oracle judges a rejection, by its stage and reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from prep_assets.checks.sources_again import domain_source, files_of, reading_of
from prep_assets.config.family import Chat
from prep_assets.config.models import FAMILIES
from prep_assets.errors import CheckFailed, Refused
from prep_assets.pipeline.asset import Conversations, FromLines, FromRows, Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.sources import strings_in
from prep_assets.proofs import rejected_renders
from prep_assets.proofs.derive import MaskOptions, derive, examples_again
from prep_assets.proofs.formats import Format, definition_of, files, format_of, read_by, without
from prep_assets.proofs.rejected_rows import kept_fault, ruling
from prep_assets.proofs.second_reading import NoCall, conflicting_thoughts, read_again, shown_by, typed_tokens, untyped
from prep_assets.proofs.source_fields import Unlike
from prep_assets.proofs.source_rows import Reading
from prep_assets.proofs.source_texts import ANSWERS, REASONING, TEXT, Said
from prep_assets.samples import ASSISTANT, COMPLETION, MEDIA, THINKING, TOOL, USER, Example, Pair, Row, Sample, parts_of
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import selected_schema
from prep_assets.stores.lists import declared
from prep_assets.text.template import ChatTemplate

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
    schema = selected_schema(domain.schema_name, source.gives)
    if schema is None:
        return None
    for option, value in definition_of(schema.name).get("x-options", {}).items() if schema.name in files() else ():
        given = schema.options.get(option)
        if given is not None and (list(given.default) if isinstance(given.default, tuple) else given.default) != value:
            raise CheckFailed(
                f"option {option} of {schema.name!r} is {given.default!r} where it is not given, and {value!r} by its definition"
            )
    return format_of(schema.name, domain.options)


def given_rows(store: Store) -> tuple[Format, Callable[[Row], Row]] | None:
    """Return the definition of a domain's rows, and what of a row its schema is given; `None` for a user's schema."""
    definition, domain = _definition(store), domain_source(store).domain
    used = [*domain.where, *filter(None, [domain.domain_key])]
    return None if definition is None else (definition, lambda row: read_by(definition, without(row, domain.ignore), used))


def of_schema(store: Store) -> Oracle:
    """What the definition of a format says, and the rules beyond it."""
    if (opened := given_rows(store)) is None:
        return lambda reason, row: None
    domain, (definition, given), reading = domain_source(store).domain, opened, reading_of(store)

    def judge(reason: str, row: Row) -> Ruling:
        found = ruling(definition, given(row), reason)
        if found is None and reason == "empty_answer" and reading.gives == Pair.__name__:
            with suppress(Unlike):
                found = _answered(reading.texts(given(row)), given(row))
        # names in front of texts and weights of a user's function are beyond any definition
        return None if found and (domain.weigh is not None or reason == "name_before_reasoning") else found

    return judge


def _answered(said: Iterable[Said], row: Row) -> Ruling:
    """Judge a pair that is rejected since an answer is empty: right where each side says what the other does not, and no field is empty."""
    texts: dict[str, set[str]] = {}
    for each in said:
        texts.setdefault(each.side, set()).add(each.text.strip())
    chosen, rejected = (texts.get(side, set()) for side in ("chosen", "rejected"))
    return "each side has a text" if chosen - rejected and rejected - chosen and all(map(str.strip, strings_in(row))) else None


def kept_rows(store: Store) -> Kept | None:
    """Return what judges rows that the schema of a domain takes; `None` for a user's schema."""
    if (opened := given_rows(store)) is None:
        return None
    definition, given = opened
    return lambda row: kept_fault(definition, given(row))


class Misread(Exception):
    """A row whose example lacks one of its texts, so that no oracle can judge it by the example."""


def read_as_said(store: Store, gives: type) -> Callable[[Row], Example]:
    """Return what converts a row by its schema, and compares the turns with the texts that the row has on a second reading.

    Raises:
        Misread: a text of the row stands in no turn of its role.
    """
    convert, reading = converter(domain_source(store).domain, gives), reading_of(store, gives)
    whole = reading_of(store, gives, tags=store.recipe.get("reasoning_tags", ()), calls=True)

    def read(row: Row) -> Example:
        example = apply(convert, row)
        turns = [(turn.role, turn.text) for part in parts_of(example) for turn in part]
        for said in reading.texts(row) if reading.known else ():
            whose = "" if said.side.partition("[")[0] in ANSWERS else said.role  # of an answer, each text is the answer's
            if said.kind == TEXT and not any(said.text.strip() in text and _may_say(role, whose) for role, text in turns):
                raise Misread(
                    f"{said.path!r} says {said.text.strip()[:60]!r}, and no turn of role {said.role} of what its schema makes of it"
                )
        if more := whole.surplus(row, example):
            raise Misread(more)
        return example

    return read


def _may_say(role: str, said: str) -> bool:
    """Whether a turn of this role may say what a row says in that one: an answer is one, and no other text is."""
    return said not in (USER, ASSISTANT, TOOL) or (said == ASSISTANT) == (role in (ASSISTANT, COMPLETION))


def rendered_chats(store: Store) -> Conversations:
    """Return what a template renders of a row of a chat."""
    read, images = read_as_said(store, Sample), files_of(store).ready_again

    def chat(row: Row) -> list[tuple[Sample, bool]]:
        sample = read(row)
        if not isinstance(sample, Sample):
            return []
        return [(images(sample), False)]

    return chat


def _rendered(store: Store) -> tuple[ChatTemplate, Conversations] | None:
    """Return the template of a store and what it renders of a row; `None` for a store without one."""
    source = store.asset.source
    if not isinstance(source, FromRows | FromLines) or source.rendered is None:
        return None
    template = store.workspace.template(cast("Chat", store.workspace.family(FAMILIES[store.asset.family])))
    return template, source.rendered(store)


def _by_examples(judge: Oracle) -> Oracle:
    """What judges rows by their examples: one that lacks a text of its row contradicts the rejection, and none can tell of a row that gives no example."""

    def ruled(reason: str, row: Row) -> Ruling:
        try:
            return judge(reason, row)
        except Misread as misread:
            return str(misread)
        except NoCall:
            return "" if reason == "bad_typed_call" else None
        except (CheckFailed, Refused, Unlike):
            return None

    return ruled


def of_render(store: Store) -> Oracle:
    """What the reference renders of a row: a fault in one of its conversations holds, none in any of them contradicts it."""
    if (opened := _rendered(store)) is None:
        return lambda reason, row: None
    template, rendered = opened
    again = partial(derive, options=MaskOptions(), template=template, prompts=True)
    expands = store.recipe.get("expand") == "turns"
    typed = typed_tokens(store.vocabulary.control)
    stripped = typed if store.recipe.get("special_in_content") == "strip" else None

    @_by_examples
    def judge(reason: str, row: Row) -> Ruling:
        read = [(read_again(sample, store.recipe, **shown_by(template)), prompted) for sample, prompted in rendered(row)]
        treated = read if stripped is None else [(untyped(sample, stripped), prompted) for sample, prompted in read]
        if reason == "control_token_in_content":
            return "" if any(untyped(each, typed) != each for each, _ in read) else "none of its texts holds a control token"
        if expands:
            treated = [(each, prompted) for sample, prompted in treated for each in examples_again(sample, store.recipe, again)]
        found = [rejected_renders.ruling(reason, sample, template, prompted=prompted) for sample, prompted in treated]
        return "" if "" in found else None if None in found or not found else found[0]

    return judge


def of_tokens(store: Store) -> Oracle:
    """Whether what is tokenized of a row or of a line is what it says; why its tokens are rejected, the second derivation says."""
    source = store.asset.source
    read: Callable[[Row], Any] = lambda row: None  # noqa: E731
    if isinstance(source, FromRows):
        read = read_as_said(store, source.gives)
    elif isinstance(source, FromLines) and source.rendered is not None:
        read = _lines_as_said(reading_of(store), source.rendered(store))

    @_by_examples
    def judge(reason: str, row: Row) -> Ruling:
        example = read(row)
        is_document = store.asset.family == "pretrain" and isinstance(example, Sample) and example.tokenized is None
        if reason == "lossy_tokenizer" and is_document and store.vocabulary.token_bytes is not None:
            regions = [region for turn in example.turns for region in turn.regions if region.kind not in MEDIA and not region.drop]
            again = [store.vocabulary.backend.encode(region.text, add_special_tokens=False).ids for region in regions]
            if all(store.vocabulary.decode(ids) == region.text for ids, region in zip(again, regions, strict=True)):
                return "the ids of each of its texts decode to the text"
        return None

    return judge


def _lines_as_said(reading: Reading, rendered: Conversations) -> Callable[[Row], None]:
    def read(row: Row) -> None:
        texts = [region.text for sample, _ in rendered(row) for turn in sample.turns for region in turn.regions]
        for said in reading.texts(row):
            if said.kind in (TEXT, REASONING) and not any(said.text.strip() in text for text in texts):
                raise Misread(f"{said.path!r} says {said.text.strip()[:60]!r}, and no turn of what is tokenized of the line")

    return read


def of_reasoning(store: Store) -> Oracle:
    """Whether an answer is nothing but reasoning, has other reasoning beside its text, or something else between the tags of a call, by a second reading."""
    if (opened := _rendered(store)) is None:
        return lambda reason, row: None
    template, rendered = opened

    @_by_examples
    def judge(reason: str, row: Row) -> Ruling:
        if reason == "conflicting_reasoning":
            shown = template.form.shows_reasoning
            conflict = any(conflicting_thoughts(sample, store.recipe, shown=shown) for sample, _ in rendered(row))
            return "" if conflict else "the reasoning in the text of each answer is that beside it"
        turns = [turn for sample, _ in rendered(row) for turn in read_again(sample, store.recipe, **shown_by(template)).turns]
        if reason == "bad_typed_call":
            return "what stands between the tags of calls is JSON of a name and of arguments"
        empty = any(turn.role == ASSISTANT and all(region.kind == THINKING for region in turn.regions) for turn in turns)
        return "" if empty else "an answer stands behind the reasoning of every turn"

    return judge


def of_sizes(store: Store) -> Oracle:
    """Whether a document of one text is blank, or has too few or too many characters."""
    domain, sizes = domain_source(store).domain, store.recipe["preprocessing"]
    key, strip = domain.options.get("text_key", "text"), domain.options.get("strip", domain.schema_name == "text_read_hook")

    def judge(reason: str, row: Row) -> Ruling:
        text = row.get(key) if domain.schema_name in ("text", "text_read_hook") else None
        if not isinstance(text, str):
            return None
        text = text.strip() if strip else text
        fewest, most = sizes["min_chars"], sizes["max_chars"]
        fits = len(text) >= fewest and text.strip() if reason == "too_short" else most is None or len(text) <= most
        return f"it has {len(text):,} characters, as the options allow" if fits else ""

    return judge


ORACLES: Mapping[str, Callable[[Store], Oracle]] = {
    "schema": of_schema,
    "pretrain/too_short": of_sizes,
    "pretrain/too_many_chars": of_sizes,
    "render": of_render,
    "tokenize": of_tokens,
    "reasoning/empty_answer": of_reasoning,
    "reasoning/bad_typed_call": of_reasoning,
    "reasoning/conflicting_reasoning": of_reasoning,
}
"""By ``stage/reason``, or by stage for all its other reasons: what derives a rejection again. For stores that are made from rows."""


def rulings(store: Store) -> Oracle:
    """Return what judges the rejections of a store, by ``stage/reason``."""
    opened: dict[str, Oracle] = {}
    source = store.asset.source
    oracles = {**ORACLES, **{lists.name: lists.judge for lists in declared().values()}}
    if isinstance(source, FromRows):
        oracles |= source.oracles

    def judge(why: str, row: Row) -> Ruling:
        stage, _, reason = why.partition("/")
        name = next((each for each in (why, stage) if each in oracles), None)
        if name is None:
            return None
        if name not in opened:
            opened[name] = oracles[name](store)
        return opened[name](reason, row)

    return judge
