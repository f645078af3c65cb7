"""Pairs that are read in columns are what their schema makes of them, and what the most obvious reading says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.assets.writing.preference_rows import preference_row
from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import Refused
from prep_assets.proofs.plain_reading import pair_lines
from prep_assets.samples import Pair, PlainPair
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets_tests.effort import examples

TAGS = [tag for pair in REASONING_TAGS for tag in pair]
TEXTS = st.sampled_from(["a", "b", " a\n", "", " ", "<think>b</think>c", "\n\nAssistant: d", "é"])
ROLES = st.sampled_from(["user", "user", "assistant", "assistant", "system", "developer", "tool", "human"])
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": TEXTS}, optional={"name": st.just("n")})
ANSWERS = st.one_of(TEXTS, st.lists(MESSAGES, max_size=2), TEXTS.map(lambda text: [{"role": "assistant", "content": text}]))
PROMPTS = st.one_of(st.none(), TEXTS, st.lists(MESSAGES, max_size=3), TEXTS.map(lambda text: [{"role": "user", "content": text}]))
DIALOGUES = st.lists(st.tuples(st.sampled_from(["\n\nHuman:", "\n\nAssistant:", ""]), TEXTS).map("".join), max_size=3).map("".join)
SIDES = TEXTS.map(lambda text: [{"role": "user", "content": "a"}, {"role": "assistant", "content": text}])
SCORES = st.sampled_from([1, 2.0, 3, None, True])
ROWS = {
    "preference": st.fixed_dictionaries({"prompt": PROMPTS, "chosen": ANSWERS, "rejected": ANSWERS}),
    "hh": st.fixed_dictionaries({"chosen": DIALOGUES, "rejected": DIALOGUES}),
    "ultrafeedback": st.fixed_dictionaries(
        {"prompt": TEXTS, "chosen": SIDES | ANSWERS, "rejected": SIDES | ANSWERS, "score_chosen": SCORES, "score_rejected": SCORES}
    ),
}
USUAL: dict[str, dict[str, Any]] = {
    "preference": {"prompt": [{"role": "user", "content": "p"}], "chosen": "c", "rejected": "r"},
    "hh": {"chosen": "\n\nHuman: p\n\nAssistant: c", "rejected": "\n\nHuman: p\n\nAssistant: r"},
    "ultrafeedback": {
        "prompt": "p",
        "chosen": [{"role": "user", "content": "p "}, {"role": "assistant", "content": " c"}],
        "rejected": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}],
        "score_chosen": 2,
        "score_rejected": 1.0,
    },
}


def reader_of(schema: str, ignore: tuple[str, ...] = (), **options: Any) -> Reader:
    """A reader that has seen a row of the usual columns, as the first row of a file."""
    reader = Reader(convert_with(schema, options, gives=Pair), Account(ignore))
    apply(reader, {**USUAL[schema], **dict.fromkeys(ignore, "x")})
    return reader


def plain_of(reader: Reader, row: dict[str, Any]) -> PlainPair | None:
    [found] = reader.rows([row])
    return found if isinstance(found, PlainPair) else None


def line_of(example: object, form: Any) -> dict[str, Any] | None:
    try:
        return preference_row(example, form)
    except Refused:
        return None


@pytest.mark.parametrize("schema", ROWS)
def test_read_in_columns(schema: str) -> None:
    reader = reader_of(schema)

    @settings(max_examples=examples(150))
    @given(ROWS[schema])
    def check(row: dict[str, Any]) -> None:
        plain = plain_of(reader, row)
        try:
            pair = apply(reader, row)
        except Refused:
            pair = None
        if plain is not None:
            assert isinstance(plain, PlainPair) and plain.pair() == pair
        for form in ("text", "messages"):
            made = line_of(pair, form)
            assert plain is None or line_of(plain, form) == made
            [line] = pair_lines([row], schema, {}, form, TAGS)
            assert line is None or (line == made and list(line) == list(made or ()))

    check()
    assert isinstance(plain_of(reader, USUAL[schema]), PlainPair)
    lines = [*pair_lines([USUAL[schema]], schema, {}, "text", TAGS), *pair_lines([USUAL[schema]], schema, {}, "messages", TAGS)]
    assert schema == "ultrafeedback" or None not in lines
    assert pair_lines([{**USUAL[schema], "more": 1}], schema, {}, "text", TAGS) == [None]


@pytest.mark.parametrize("schema", ROWS)
def test_columns_beside_the_texts(schema: str) -> None:
    row = USUAL[schema]
    reader = reader_of(schema, ("mine",))
    assert isinstance(plain_of(reader, {**row, "mine": "x"}), PlainPair) and reader.account.counts["mine"] == 2
    used = Reader(convert_with(schema, {}, gives=Pair), Account(("mine",), ["mine"]))
    apply(used, {**row, "mine": "x"})
    # what is ignored is counted in each row, whether a condition uses it or not
    assert isinstance(plain_of(used, {**row, "mine": "x"}), PlainPair) and used.account.counts["mine"] == 2
    assert plain_of(reader, {**row, "other": "x"}) is None  # columns that no row had yet
    columns: list[dict[str, Any]] = [{"system": "s"}, {"tools": [], "margin": None}]
    for beside in columns:
        apply(reader, row | beside) if schema == "preference" else None
        assert plain_of(reader, row | beside) is None
    assert plain_of(reader_of(schema, ("mine.inner",)), {**row, "mine.inner": "x"}) is None


def test_texts_without_tags() -> None:
    reasoning = InlineReasoning("auto", REASONING_TAGS, shown=True)
    assert reasoning.leaves(("a", "< think>")) and not reasoning.leaves(("a", f"b{TAGS[-1]}"))


def test_options_that_read_otherwise() -> None:
    for schema, options in (
        ("preference", {"template": False}),
        ("hh", {"split_turns": True}),
        ("ultrafeedback", {"prompt_check": "column"}),
    ):
        row = {**USUAL[schema], **({"prompt": "p"} if schema == "preference" else {})}
        reader = Reader(convert_with(schema, options, gives=Pair), Account())
        apply(reader, row)
        assert plain_of(reader, row) is None
    margin = reader_of("ultrafeedback", min_margin=0.5)
    assert (
        plain_of(margin, USUAL["ultrafeedback"]) is not None and plain_of(margin, {**USUAL["ultrafeedback"], "score_rejected": 1.6}) is None
    )
