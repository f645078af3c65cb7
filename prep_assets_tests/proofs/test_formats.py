"""Definitions of row formats: each schema has one, which takes its rows, and of rows that the schema rejects only those whose reason is listed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.proofs.formats import Format, defined, definition_of, files, format_of, plain, read_by, resolved, without
from prep_assets.proofs.rejected_rows import beyond, kept_fault, ruling
from prep_assets.proofs.row_rules import no_json, number, own_space, several_tools, unstorable_weight
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.rejected_rows import DETAILS, REFUSED, TEXT_PART
from prep_assets_tests.corpus.rows import ANSWER, CALL, CASES, USER, chat, said
from prep_assets_tests.effort import examples

Row = Mapping[str, Any]
ROWS = [(name, schemas()[name].example, {}) for name in defined()]
LOGGED = {"request_key": "request", "response_key": "response"}
ROWS += [
    ("anthropic", {"request": schemas()["anthropic"].example, "response": {"role": "assistant", "content": "Yes."}}, LOGGED),
    ("openai_responses", {"request": {"input": "Hi"}, "response": {"output": schemas()["openai_responses"].example["input"][4:]}}, LOGGED),
]
FUNCTION = {"name": "f", "description": "d"}
OFFERS = {**chat(USER, ANSWER), "tools": [{"type": "function", "function": FUNCTION}]}
CALLS_WITH_A_MARK = [
    {"from": "function_call", "value": '{"name": "f", "arguments": {"a": "<image>"}}'},
    {"from": "observation", "value": "4"},
]
ROWS += [
    *(("messages", {**OFFERS, "functions": functions}, {}) for functions in ([FUNCTION], json.dumps([FUNCTION]), FUNCTION)),
    ("messages", chat(USER, {**ANSWER, "reasoning": "ox", "reasoning_details": DETAILS}), {}),
    ("messages", chat(USER, said("assistant", None, tool_calls=[CALL]), said("tool", "4"), ANSWER), {}),
    ("messages", chat(said("user", "<img>"), ANSWER, images=["1.jpg"]), {"image_token": "<img>"}),
    ("messages", {**OFFERS, **chat({**USER, "tools": [FUNCTION]}, ANSWER)}, {}),
    ("sharegpt", {"conversations": [{"from": "human", "value": "<image>"}, *CALLS_WITH_A_MARK], "images": ["1.jpg"]}, {}),
]
ROWS += [(name, case[0], dict(*case[1:-1])) for name, cases in CASES.items() for case in cases if name in schemas()]


def judged(name: str, options: Mapping[str, Any], row: Row) -> tuple[str | None, Row]:
    """Why the schema rejects a row (`None`: it does not), and the row without the fields that would have to be under `ignore`."""
    account = Account()
    try:
        apply(Reader(convert_with(name, options), account), copy.deepcopy(row))
    except Refused as refusal:
        return refusal.reason, row
    read = without(row, [*account.unknown])
    return (None, row) if read == row else judged(name, options, read)  # without what another field of the same path may need


def fault(name: str, options: Mapping[str, Any], row: Row) -> str | None:
    """What the definition says of what the schema does with a row: ``""`` if it agrees, `None` if it cannot tell."""
    definition = format_of(name, options)
    assert definition is not None
    reason, read = judged(name, options, row)
    return kept_fault(definition, read) if reason is None else ruling(definition, read, reason)


def test_every_schema_has_a_definition_with_its_options() -> None:
    assert defined() == sorted(schemas()), "add prep_assets/proofs/formats/<schema>.json, see docs/development.md"
    for name in defined():
        definition = json.loads(files()[name].read_text("utf-8"))
        jsonschema_rs.meta.validate(definition)
        own = {option: parameter.default for option, parameter in schemas()[name].options.items()}
        listed = {key: value for key, value in definition["x-options"].items() if key in own}
        assert listed == {key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}, name
        assert listed.keys() == definition["x-options"].keys() or definition["x-nested"]


def test_every_reason_has_a_rule_or_none() -> None:
    for name in defined():
        assert all(rule is None or callable(rule) for rule in beyond(name).values()), name


OF_OTHERS = {"nlg_read_hook", "sections"}
"""Schemas whose definitions take rows in two forms, of which a rule knows one."""


def said_by_rules(name: str, definition: Format, row: Row) -> list[bool | None]:
    """What each rule says of a row that its definition accepts. None may fail: it would count as one that cannot tell, and hide a mistake."""
    rules = () if name in OF_OTHERS else beyond(definition.reasons).values()
    return [rule(row, definition) for rule in rules if rule not in (None, no_json)]


@cells("number", range(len(ROWS)))
def test_rows_that_a_schema_takes_are_accepted(number: int) -> None:
    name, row, options = ROWS[number]
    assert fault(name, options, row) == ""
    definition = format_of(name, options)
    assert definition is not None
    read = judged(name, options, row)[1]
    accepted = definition.of(read)
    assert isinstance(accepted, tuple)
    listed = {**beyond(accepted[0].reasons), "so": None}
    assert not any(said_by_rules(name, *accepted)) or judged(name, options, row)[0]
    # and for no reason may such a row be rejected
    reason, rule = [*listed.items()][number % len(listed)]
    is_chat = definition_of(accepted[0].reasons).get("x-chat") is not None
    whose = "of the chat that it is, the definition of 'messages'" if is_chat else f"the definition of {accepted[0].name!r}"
    says, found = f"{whose} accepts it, and ", ruling(definition, read, reason)
    if reason == "so" and not definition_of(accepted[0].reasons).get("x-open"):
        assert found == f"{says}no rule beyond it rejects a row for 'so'"
    else:
        assert found is None or (rule is not None and found == f"{says}a second reading finds no {reason!r}") or rule is no_json


UNTOLD = {
    *(("preference", "empty_answer"), ("preference", "role_order"), ("semantic", "wrong_type"), ("tokenized", "wrong_type")),
    ("llama3_chat", "leftover_text"),
}
"""Reasons whose rules do not know every form that such a row may have."""


@cells(("name", "number"), [(name, number) for name, (_, cases) in REFUSED.items() for number in range(len(cases))])
def test_rows_that_a_schema_refuses_are_not_or_the_reason_is_listed(name: str, number: int) -> None:
    row, cases = REFUSED[name]
    changed, reason, *options = cases[number]
    definition = format_of(name, options[0] if options else {})
    assert definition is not None
    if isinstance(accepted := definition.of({**row, **changed}), tuple):
        said_by_rules(name, *accepted)
    found, kept = ruling(definition, {**row, **changed}, reason), kept_fault(definition, {**row, **changed})
    listed = {**({reason: None} if definition_of(definition.name).get("x-open") else {}), **beyond(definition.name)}
    assert found == "" or (found is None and (listed[reason] is None or (name, reason) in UNTOLD))
    # a schema that takes the row is told so
    if found == "" and reason not in ("order_contradicted", "mixed_conversations"):  # which neutral fields say of any format
        said = f"the definition of '(?:{definition.name}|messages)' does not accept it|a second reading finds '[a-z_]+'"
        assert re.fullmatch(f"(?:of the chat that it is, )?(?:{said})", kept)


OF_MARKS = ("leading_text", "empty_turn", "empty_answer")
OF_CALLS = (
    "several_agents",
    "length_mismatch",
    "no_assistant_turn",
    "several_prompts",
    "positive_logprob",
    "logprobs_all_zero",
    "missing_field",
)
MARKED = {"chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b"}
RIGHT: Mapping[str, tuple[Row, Mapping[str, Any], Sequence[str]]] = {
    "preference": (MARKED, {}, (*OF_MARKS, "empty_prompt", "prompts_differ")),
    "compared": (
        {"response1": MARKED["chosen"], "response2": MARKED["rejected"], "overall_preference": 1},
        {},
        (*OF_MARKS, "empty_prompt", "prompts_differ"),
    ),
    "dpo_read_hook": (MARKED, {}, (*OF_MARKS, "empty_prompt", "prompts_differ", "role_order", "equal_answers", "no_assistant_turn")),
    "group_list": (
        {"prompt": MARKED["chosen"] + "\n\nHuman: r", "responses": ["a", "b"], "rewards": [1, 2]},
        {"marked_prompt": True},
        (*OF_MARKS, "contradicting_rewards"),
    ),
    "group_pair": ({"prompt": "q", "responses": ["a", "b"], "rewards": [1, 2]}, {}, ("equal_answers",)),
    "group": (
        {"prompt": "q", "responses": ["a"], "rewards": [1], "l": [[-1.0]], "i": [[1]]},
        {"logprobs_key": "l", "token_ids_key": "i"},
        OF_CALLS[4:5],
    ),
    "llama3_chat": (schemas()["llama3_chat"].example, {}, ("leftover_text", "unknown_role", "empty_answer", "no_assistant_turn")),
    "messages": (
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "tools": [{"name": "f"}]},
        {},
        ("conflicting_tools", "weighted_space"),
    ),
    **{name: (schemas()[name].example, {}, OF_CALLS) for name in ("agent_steps", "verifiers_trace")},
    **{name: (schemas()[name].example, {}, ("missing_field", "role_order", "two_systems")) for name in ("anthropic", "openai_responses")},
}
"""Right rows of a schema, its options, and reasons for which they may not be rejected."""


@pytest.mark.parametrize(
    ("of_row", "of_answer", "untold"),
    [
        *(({}, each, False) for each in ({}, {"reasoning_content": " x"})),
        *(({}, each, True) for each in ({"reasoning_content": " "}, {"content": [*TEXT_PART, {"type": "text", "text": "\n"}]})),
        *(({key: ["1.png"]}, {}, True) for key in ("images", "videos", "audios", "image")),
        ({}, {"train_detail": [{"begin_offset": 0, "end_offset": 0, "train": 1}]}, True),
    ],
)
def test_white_space_of_its_own(of_row: Row, of_answer: Row, untold: bool) -> None:
    definition = format_of("messages", {})
    assert definition is not None
    assert own_space({**chat(USER, {**ANSWER, **of_answer}), **of_row}, definition) is (None if untold else False)


WEIGHTS = [(0, False), (1, False), (True, False), (1e-15, False), (0.9e-15, None), (1e-30, None), (0.9e-30, True), (-1, True)]
WEIGHTS += [(1e15, False), (1.1e15, None), (1e30, None), (1.1e30, True)]


@pytest.mark.parametrize(("weight", "wrong"), WEIGHTS)
def test_weights_that_no_store_holds(weight: float, wrong: bool | None) -> None:
    """Of those whose product with another may be too large or too small nobody can tell."""
    ids = {"input_ids": [65, 66, 67]}
    rows = [("messages", chat(USER, {**ANSWER, "weight": weight})), ("messages", {**chat(USER, ANSWER), "weight": weight})]
    rows += [("tokenized", {**ids, key: [0, 1, weight]}) for key in ("loss_mask", "assistant_masks")]
    for name, row in rows:
        definition = format_of(name, {})
        assert definition is not None and unstorable_weight(row, definition) is wrong
    together = {**ids, "loss_mask": [0, 1, weight], "assistant_masks": [0, 1, weight]}
    assert fault("tokenized", {}, together) == "" or wrong is None


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        *(
            ("5", Fraction(5)),
            ("−5", Fraction(-5)),
            ("+$5.", Fraction(5)),
            ("$-.5", Fraction(-1, 2)),
            ("1,000,000.5", Fraction(2000001, 2)),
        ),
        *((text, None) for text in ("", ".", "$", "1,00", ",100", "5..", "--5", "1e3", "5 kg", "٣")),
    ],
)
def test_a_number_as_people_write_it(text: str, is_number: Fraction | None) -> None:
    assert number(text) == is_number


@pytest.mark.parametrize(("tool", "differ"), [(FUNCTION, False), ({**FUNCTION, "function": {"name": "g"}}, True)])
def test_a_tool_and_what_wraps_it(tool: Row, differ: bool) -> None:
    definition = format_of("messages", {})
    assert definition is not None
    row = {**chat(USER, ANSWER), "tools": [{"type": "function", "function": tool}], "functions": [tool]}
    assert several_tools(row, definition) is differ


def test_of_a_row_that_no_rule_makes_a_chat_of_nothing_is_said() -> None:
    definition, row = format_of("openai_responses", {}), schemas()["openai_responses"].example
    assert definition is not None
    broken = {**row, "input": [*row["input"], b"x"]}
    assert isinstance(definition.of(broken), tuple)
    assert kept_fault(definition, broken) == "" and ruling(definition, broken, "role_order") is None


ACCEPTS = "the definition of 'distilled' accepts it, and a second reading "


@cells(("name", "reason"), [(name, reason) for name, (_, _, reasons) in RIGHT.items() for reason in reasons])
def test_a_right_row_may_not_be_rejected(name: str, reason: str) -> None:
    row, options, _ = RIGHT[name]
    definition = format_of(name, options)
    assert definition is not None and kept_fault(definition, row) == ""
    assert re.search(f"a second reading finds no '{reason}'|no rule beyond it", ruling(definition, row, reason) or "")


def test_a_field_that_decides_what_is_trained_is_passed_over_nowhere() -> None:
    definition, row = format_of("distilled", {}), schemas()["distilled"].example
    assert definition is not None
    for value, says in ((1, ""), (0, ""), *((nothing, f"{ACCEPTS}finds no 'unsupported_column'") for nothing in (None, "", [], {}))):
        for column in ("weight", "note"):
            field = value if column == "weight" else [{"weight": value}]
            assert ruling(definition, {**row, column: field}, "unsupported_column") == says


USERS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("key", "values", "found"),
    [
        *(("index", values, True) for values in ([1, 0], [2, 1], [1, None, 0], [0, 2, 1])),
        *(("idx", values, False) for values in ([0, 1], [7, 3], [2, 0], [1, 1], [True, False], [1.0, 0.0], ["1", "0"], [1], [2])),
        *(("date", values, True) for values in ([2, 1.5], ["2026-01-02", "2026-01-01"], ["2026-01-02T00:00Z", "2026-01-02T00:30+01:00"])),
        *(
            ("created", values, False)
            for values in ([1, 2], [2, "2026-01-01"], ["b", "a"], ["2026-01-02T00:00Z", "2026-01-01"], [True, False])
        ),
    ],
)
def test_what_numbers_and_times_say_of_the_order(key: str, values: Sequence[Any], found: bool) -> None:
    """As the schema says: numbers count from 0 or 1 on; others are those of a data set."""
    row = {"messages": [{**said, key: value} for said, value in zip([*USERS, *USERS], values, strict=False)]}
    row["messages"] += USERS[len(row["messages"]) % 2 :]
    assert judged("messages", {}, row)[0] == ("order_contradicted" if found else None)
    assert fault("messages", {}, row) == ""
    assert bool(ruling(format_of("messages", {}) or pytest.fail(), row, "order_contradicted")) is not found


@pytest.mark.parametrize(("said", "fits"), [("abc", False), ("abcd", True), ("abcdef", True), ("abcdefg", False)])
def test_how_long_a_text_is_by_the_options(said: str, fits: bool) -> None:
    definition = format_of("text", {"min_chars": 4, "max_chars": 6})
    assert definition is not None and (kept_fault(definition, {"text": said}) == "") is fits


@pytest.mark.parametrize(
    ("row", "found"),
    [
        *(({"a": value}, True) for value in (float("nan"), b"", date(2026, 1, 1))),
        *((row, None) for row in ({"a": 2.0}, {"a": [{"b": 1}, {"b": -0.0}]}, {"weight": {"a": 1.0}}, {"score": [(3.0, {"at": 3.0})]})),
        *((row, False) for row in ({"a": 2.5, "b": 2}, {"loss_weight": 2.0}, {"a": {"score": 1.0}}, {"scores": [1.0, [2.0]]}, {})),
    ],
)
def test_what_has_no_place_in_json(row: Row, found: bool | None) -> None:
    """A whole number that is a fraction to JSON may be an id, unless its field measures."""
    definition = format_of("text", {})
    assert definition is not None and no_json(row, definition) is found


def test_a_definition_by_another_may_have_columns_and_reasons_of_its_own() -> None:
    names = [name for name in defined() if {"x-schema", "x-columns"} <= definition_of(name).keys()]
    for name in names:
        found = resolved(name, {})
        assert found is not None and (found[0], found[2]) == (definition_of(name)["x-schema"], name)
    assert names


@pytest.mark.parametrize("own", [True, False, None])
@pytest.mark.parametrize("others", [(), (True,), (False,), (None,), (None, False), (False, None), (False, True)])
def test_a_row_that_one_of_several_definitions_accepts(own: bool | None, others: Sequence[bool | None]) -> None:
    """None can be judged wrong while one of them cannot be asked."""
    more = [Format(f"{at}", {}, {}, (), lambda row, fits=fits: fits) for at, fits in enumerate(others)]  # type: ignore[misc]
    whole, row = Format("own", {}, {}, (), lambda row: own, others=more), {"a": 1}
    accepts = next((each for each, fits in zip([whole, *more], [own, *others], strict=True) if fits), None)
    assert whole.of(row) == ((accepts, row) if accepts else None if None in (own, *others) else False)


@pytest.mark.parametrize(
    ("row", "fits"),
    [
        *(
            ({"text": text, "created": created}, True)
            for text in ("a", "a\ud800")
            for created in (None, 5, 1.5, True, "x", [1], {"a": [None]})
        ),
        *(({"text": "a\ud800", key: "x"}, False) for key in ("a", 5)),
        *(({"text": value}, False) for value in (date(2026, 1, 1), b"\xff", 5, None, ["\ud800", 5])),
        *(({**chat(said("user", "\ud800"), {**ANSWER, "weight": weight}), "tools": None}, True) for weight in (1, 0.5, True, None)),
        ({**chat(said("user", "\ud800"), {**ANSWER, "weight": date(2026, 1, 1)})}, False),
        *(({"text": "a", "created": value}, True) for value in (date(2026, 1, 1), [[{"x": b"\xff"}]])),  # which no model reads
    ],
)
def test_values_of_tables_that_json_does_not_have(row: Row, fits: bool) -> None:
    definition = format_of("messages" if "messages" in row else "text", {})
    assert definition is not None and bool(definition.of(row)) is fits and definition.of(row) is not None


def test_calls_in_a_text_are_json() -> None:
    definition = format_of("sharegpt", {"function_tag": "act"})
    assert definition is not None
    for value, fits in (('{"name": "f", "arguments": {}}', True), ("f(1)", False), ('{"arguments": {}}', False)):
        row = {"conversations": [{"from": "human", "value": "q"}, {"from": "act", "value": value}]}
        assert bool(definition.of(row)) is fits


# Rows as a schema reads them.


@pytest.mark.parametrize(
    ("row", "path", "left"),
    [
        ({"a": 1, "b": 2}, "a", {"b": 2}),
        ({"a": {"b": [{"c": 1, "d": 2}, {"c": 3}, 5]}}, "a.b.c", {"a": {"b": [{"d": 2}, {}, 5]}}),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", {"a": {"b": 2}}),  # a name with a dot comes first
        ({"a.b": {"c": 1, "d": 2}}, "a.b.c", {"a.b": {"d": 2}}),
        ({"t": {"x": {"n": 1, "m": 2}, "y": {"n": 1}}}, "t.*.n", {"t": {"x": {"m": 2}, "y": {}}}),
        ({"a": 5}, "a.b", {"a": 5}),
        ({"a": 5}, "b", {"a": 5}),
    ],
)
def test_a_row_without_a_path(row: Row, path: str, left: Row) -> None:
    assert without(row, [path]) == left
    assert without(row, []) == row


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"q", "q"),
        (b"\xff", b"\xff"),
        (["a", b"b", [b"c"]], ["a", "b", ["c"]]),
        ({"image": {"bytes": b"x", "path": b"p"}}, {"image": {"bytes": b"x", "path": "p"}}),
        ({"role": [b"user", "tool"], "content": ["q", None]}, [{"role": "user", "content": "q"}, {"role": "tool"}]),
        ({"m": {"from": ["a"], "value": [{"x": b"y"}]}}, {"m": [{"from": "a", "value": {"x": "y"}}]}),
        *(
            (value, value)
            for value in ({"role": ["a"], "content": ["q", "r"]}, {"role": ["a"], "content": "q"}, {"x": ["a"], "y": ["b"]}, {}, 5, None)
        ),
    ],
)
def test_a_value_as_a_schema_reads_it(value: Any, read: Any) -> None:
    assert plain(value) == read


def test_a_row_of_a_table_is_accepted_as_its_schema_reads_it() -> None:
    definition, columns = format_of("messages", {}), {"role": [b"user", "assistant"], "content": ["q", b"a"]}
    assert definition is not None
    assert definition.of({"messages": columns}) == (definition, {"messages": ROLES})
    assert definition.of({"messages": {**columns, "role": ["user", b"\xff"]}}) is False


def test_another_name_of_a_schema_has_its_definition() -> None:
    named = [(alias, name) for name in defined() for alias in definition_of(name).get("x-aliases", ())]
    assert named and all(resolved(alias, {}) == resolved(name, {}) is not None for alias, name in named)
    assert resolved("no schema", {}) is None


ROLES = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("row", "lifted"),
    [
        ({"a": {"b": ROLES}}, {"a.b": ROLES}),
        ({"a": {"b": ROLES, "id": 5, "note": ""}}, {"a.b": ROLES}),  # with what says nothing
        ({"a": {"b": ROLES, "note": "x"}}, {"a.b": ROLES, "a": {"note": "x"}}),
        ({"a": [{"b": ROLES[0], "id": 1}, {"b": ROLES[1]}]}, {"a.b": ROLES}),
        ({"a": [{"b": ROLES[0]}, {"c": 1}]}, {"a.b": [ROLES[0], None], "a": [{}, {"c": 1}]}),
        ({"a.b": ROLES, "a": {"b": 5}}, {"a.b": ROLES, "a": {"b": 5}}),
        ({"a.b": None, "a": {"b": ROLES}}, {"a.b": ROLES}),
        *((row, row) for row in ({"a": {"c": 1}}, {"a": [ROLES[0], 5]}, {"a": 5}, {})),
    ],
)
def test_values_at_a_dotted_path(row: Row, lifted: Row) -> None:
    definition = format_of("messages", {"messages_key": "a.b"})
    assert definition is not None and definition.lifted(row) == lifted
    whole = format_of("messages", {})
    assert whole is not None and whole.lifted(row) is row


@pytest.mark.parametrize(
    ("row", "used", "read"),
    [
        ({"text": "a", "quality": 3}, ["quality"], {"text": "a"}),
        ({"text": "a", "quality": 3}, [], {"text": "a", "quality": 3}),
        ({"text": "a", "id": 3}, ["id"], {"text": "a", "id": 3}),  # which the definition takes
        *(({"text": "a", "weight": weight}, ["weight"], {"text": "a"}) for weight in (1, True)),
        ({"text": "a", "weight": 2}, ["weight"], {"text": "a", "weight": 2}),
        ({"text": "a", "marks": {"train": 1, "x": 2}}, ["marks.train", "marks.x"], {"text": "a", "marks": {}}),
        ({"text": "a", "marks": {"train": 0}}, ["marks.train"], {"text": "a", "marks": {"train": 0}}),
    ],
)
def test_fields_that_only_choose_rows(row: Row, used: Sequence[str], read: Row) -> None:
    definition = format_of("text", {})
    assert definition is not None and read_by(definition, row, used) == read


# Random alterations.

VALUES = (None, "", " ", "x", "user", "assistant", 0, 5, -1.5, True, False, [], {}, ["x"], [{}], {"x": "y"}, {"type": "text", "text": "x"})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a row."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def altered(row: Any, path: Sequence[Any], change: str, value: Any) -> Any:
    """A row with one place dropped, doubled or replaced."""
    row = copy.deepcopy(row)
    holder = row
    for key in path[:-1]:
        holder = holder[key]
    if change == "drop":
        del holder[path[-1]]
    elif change == "double" and isinstance(holder, list):
        holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
    elif change == "swap" and isinstance(holder, list):
        holder.insert(0, holder.pop(path[-1]))
    else:
        holder[path[-1]] = copy.deepcopy(value)
    return row


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_altered_rows_are_judged_alike(data: st.DataObject) -> None:
    name, row, options = data.draw(st.sampled_from(ROWS))
    row = copy.deepcopy(dict(row))
    for _ in range(data.draw(st.integers(1, 2))):
        if listed := [*places(row)]:
            change = data.draw(st.sampled_from(["drop", "double", "swap", "set", "set"]))
            row = altered(row, data.draw(st.sampled_from(listed)), change, data.draw(st.sampled_from(VALUES)))
    try:
        found = fault(name, options, row)
    except PrepAssetsError:
        return  # options that do not go with such a row
    assert not found, (found, judged(name, options, row)[0])
