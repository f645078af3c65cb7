"""Rows that are read many at a time, in columns, are what their schema makes of each, and what the most obvious reading says."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.extensions.preference.lines import preference_row
from prep_assets.samples import ASSISTANT, USER, Pair, PlainChat, PlainPair, Sample
from prep_assets.schemas import reader as reading
from prep_assets.schemas.reader import Account, Reader, apply, plain_rows_of, without_speakers
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.effort import examples

texts = st.text(min_size=1, max_size=20).filter(str.strip)


KEYS = {"messages": ("messages", "role", "content"), "sharegpt": ("conversations", "from", "value")}


TAGS = st.sampled_from(["user", "assistant", "system", "human", "gpt", "tool", 5, None, ["user"]])


ARGUMENTS = st.sampled_from([{}, {"a": [{"b": 1}]}, '{"a": 1}', "{", None, 5])


TOOL_LISTS = st.sampled_from(["[]", [{"name": "f"}], '[{"name": "f"}]', "", None, [], {"a": 1}, "["])


TEXTS = st.sampled_from(["a", "b", " a\n", "é", "", " ", None, 5, [{"type": "text", "text": "a"}]])


CALLS = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {"name": st.sampled_from(["f", " f", 5])}, optional={"arguments": ARGUMENTS, "parameters": ARGUMENTS}
        )
    },
    optional={
        "type": st.sampled_from(["function", "x"]),
        "id": st.sampled_from(["1", "2", None]),
        "name": st.just("f"),
        "index": st.just(0),
    },
)
BESIDE_TEXT: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["n", b"n"]),
    "tool_call_id": st.sampled_from(["1", "2"]),
    "reasoning_content": st.sampled_from(["r", b"r", "", 5, {"a": 1}, None]),
    "thinking": st.sampled_from(["r", "s"]),
    "tool_calls": st.lists(CALLS, max_size=2) | st.just("f") | st.none(),
    "functions": st.just([{"name": "g"}]),
}


def rows_of(schema: str) -> st.SearchStrategy[dict[str, Any]]:
    column, role, content = KEYS[schema]
    usual = [("user", "assistant"), ("human", "gpt")][schema == "sharegpt"]
    plain = st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=2).map(
        lambda texts: [{role: tag, content: text} for text in texts for tag in usual]
    )
    odd = st.lists(st.fixed_dictionaries({role: TAGS, content: TEXTS}, optional=BESIDE_TEXT), max_size=3)
    called = st.tuples(st.fixed_dictionaries({}, optional=BESIDE_TEXT), st.fixed_dictionaries({}, optional={"name": st.just("n")})).map(
        lambda beside: [
            {role: usual[0], content: "a"},
            {role: usual[1], content: "b", **beside[0]},
            {role: usual[1], content: "c", **beside[1]},
        ]
    )
    plain |= called
    beside = {"id": st.integers(0, 3), "source": st.just("s"), "weight": st.sampled_from([0, 1]), "tools": TOOL_LISTS, "system": TEXTS}
    return st.fixed_dictionaries({column: plain | plain | plain | odd | st.sampled_from([None, "text", {}])}, optional=beside)


IGNORED = [(), ("id",), ("tools", "messages.tool_calls"), ("messages.name", "conversations.name")]
CELLS = list(product(enumerate(KEYS), enumerate(IGNORED), enumerate(["keep", "leave_out"])))
"""`make test` tries every other cell, in which each two values still meet."""


@pytest.mark.parametrize(
    ("schema", "ignore", "speakers"),
    [pytest.param(*(value for _, value in cell), marks=[pytest.mark.soak] if sum(at for at, _ in cell) % 2 else []) for cell in CELLS],
)
def test_many_at_a_time(schema: str, ignore: tuple[str, ...], speakers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_FEW", 2)
    convert = convert_with(schema, {}, gives=Sample)
    convert = convert if speakers == "keep" else without_speakers("leave_out", convert)
    without_views = 0

    def read(row: Any) -> Any:
        nonlocal without_views
        without_views += type(row) is dict
        return convert(row)

    read.plain_rows = plain_rows_of(convert)  # type: ignore[attr-defined]

    def in_columns(rows: list[dict[str, Any]]) -> int:
        """How many rows are read in columns, twice; each gives what it gives alone."""
        many, alone, count = Reader(read, Account(ignore)), Account(ignore), 0
        for found, row in zip([*many.rows(rows), *many.rows(rows)], rows * 2, strict=True):
            count += isinstance(found, PlainChat)
            try:
                expected: Any = apply(Reader(convert, alone), row)  # a reader of one row tracks all of it
            except Refused as refusal:
                assert isinstance(found, Refused) and (found.reason, found.detail, found.stage) == (
                    refusal.reason,
                    refusal.detail,
                    refusal.stage,
                )
            else:
                assert (found.sample() if isinstance(found, PlainChat) else found) == expected
        assert (many.account.counts, many.account.unknown) == (alone.counts, alone.unknown)
        return count

    column, role, content = KEYS[schema]
    asks, answers = ("human", "gpt") if schema == "sharegpt" else ("user", "assistant")
    plain = {column: [{role: asks, content: "a"}, {role: answers, content: "b"}]}
    twice = {column: [*plain[column], {role: answers, content: "c"}], "tools": [{"name": "f"}]}
    odd = {column: [*plain[column], {role: "nobody", content: "c"}]}
    binary = {column: [*plain[column][:1], {role: answers, content: "b", "reasoning_content": b"r", "name": b"n"}]}
    assert in_columns([plain, twice, odd, binary] * 3) == 5 or "." in str(ignore)  # all but the first, which shows what is read
    assert without_views or "." in str(ignore)

    @settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(rows_of(schema), max_size=8))
    def check(rows: list[dict[str, Any]]) -> None:
        in_columns(rows)

    check()


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


LETTERS = st.sampled_from(["a", "b", "c"])
chats = st.lists(st.tuples(LETTERS, LETTERS), min_size=1, max_size=3)


@given(chats, LETTERS, LETTERS, chats)
def test_the_implicit_prompt_is_the_longest_common_beginning(shared, good, bad, rest) -> None:
    """Built from its parts, so that the parts are known: shared exchanges, one question, and then two different answers."""
    if good == bad:
        return
    before = [message(role, text) for pair in shared for role, text in zip((USER, ASSISTANT), pair, strict=True)] + [message(USER, "q")]
    after = [message(role, text) for pair in rest for role, text in zip((USER, ASSISTANT), pair, strict=True)]
    row = {"chosen": [*before, message(ASSISTANT, good), *after], "rejected": [*before, message(ASSISTANT, bad)]}
    pair = apply(convert_with("preference"), row)
    assert [message(turn.role, turn.text) for turn in pair.prompt] == before
    assert [message(turn.role, turn.text) for turn in pair.chosen] == [message(ASSISTANT, good), *after]


SIDE_TEXTS = st.sampled_from(["a", "b", " a\n", "", " ", "<think>b</think>c", "\n\nAssistant: d", "é"])


ROLES = st.sampled_from(["user", "user", "assistant", "assistant", "system", "developer", "tool", "human"])


MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": SIDE_TEXTS}, optional={"name": st.just("n")})


ANSWERS = st.one_of(SIDE_TEXTS, st.lists(MESSAGES, max_size=2), SIDE_TEXTS.map(lambda text: [{"role": "assistant", "content": text}]))


PROMPTS = st.one_of(st.none(), SIDE_TEXTS, st.lists(MESSAGES, max_size=3), SIDE_TEXTS.map(lambda text: [{"role": "user", "content": text}]))


DIALOGUES = st.lists(st.tuples(st.sampled_from(["\n\nHuman:", "\n\nAssistant:", ""]), SIDE_TEXTS).map("".join), max_size=3).map("".join)


SIDES = SIDE_TEXTS.map(lambda text: [{"role": "user", "content": "a"}, {"role": "assistant", "content": text}])


SCORES = st.sampled_from([1, 2.0, 3, None, True])


ROWS = {
    "preference": st.fixed_dictionaries({"prompt": PROMPTS, "chosen": ANSWERS, "rejected": ANSWERS}),
    "hh": st.fixed_dictionaries({"chosen": DIALOGUES, "rejected": DIALOGUES}),
    "ultrafeedback": st.fixed_dictionaries(
        {"prompt": SIDE_TEXTS, "chosen": SIDES | ANSWERS, "rejected": SIDES | ANSWERS, "score_chosen": SCORES, "score_rejected": SCORES}
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

    check()
    assert isinstance(plain_of(reader, USUAL[schema]), PlainPair)


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
