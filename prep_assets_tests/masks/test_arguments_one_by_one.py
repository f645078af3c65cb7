"""Calls whose arguments a template writes one by one: cut by form where that is certain, and as they are when each is rendered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.proofs.derive import MaskOptions
from prep_assets.samples import ASSISTANT, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import Bound, bind_source
from prep_assets_tests.masks.test_shaped_batches import TOOLS, alike, rich_chats

NESTED = "v is mapping or (v is sequence and v is not string)"
SHOWN = f"(v | tojson if {NESTED} else v | string)"
WAYS = {
    "text unless nested": "{{ v | tojson if " + NESTED + " else v | string }}",
    "JSON unless text": "{{ v if v is string else v | tojson }}",
    "JSON": "{{ v | tojson }}",
    "tight JSON": "{{ v | tojson(separators=(',', ':')) if v is not string else v }}",
    "text in quotes": '{{ "\'" + v + "\'" if v is string else v | tojson }}',
    "shown as it is": "{% if v is mapping or v is not string and v is iterable %}{{ v | tojson }}{% else %}{{ v }}{% endif %}",
}


def source(value: str, loop: str = "c.function.arguments | items") -> str:
    """A template that writes arguments one by one, with `value` for each."""
    return (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call={{ c.function.name }}>\n{% for k, v in " + loop + " %}<p={{ k }}>\n" + value + "\n</p>\n"
        "{% endfor %}</call>{% endfor %}<|im_end|>\n{% endfor %}"
    )


def calls(*listed: dict[str, Any]) -> Sample:
    """A chat with a turn that makes these calls."""
    texts = [json.dumps({"name": "get", "arguments": each}, ensure_ascii=False) for each in listed]
    results = [Turn(TOOL, (Region("text", "ok"),)) for _ in listed]
    called = Turn(ASSISTANT, (Region("text", "I look."), *(Region(TOOL_CALL, text) for text in texts)))
    return Sample((turn(USER, "Go."), called, *results, turn(ASSISTANT, "Done.")), TOOLS)


def by_form(bound: Bound, *samples: Sample) -> int:
    return alike(bound, samples, MaskOptions())


EVERY = [
    {"city": "Rome", "days": 3},
    {"city": 'Ro"me\n\\ é中', "days": 0, "at": -1.5e-7, "far": 1e22, "big": 10**30},
    {"yes": True, "no": False, "none": None, "": 1} | {"nothing": "", "list": [], "object": {}},
    {"b": [1, {"c": None, "é": ["x", []]}], "a": {"z": [], "d": {"e": "f\n"}}, "items": "k", "x": ' "y'.strip()},
]


ASKED: list[dict[str, Any]] = [
    {"city": "Rome", "days": 3},
    {"x": 3, "y": "", "z": 0},
    {"a": "x"},
    {"a": [1, "x"], "b": {"x": 2}, "c": -1, "d": "d", "e": None},
]
ASKED += [{"b": "b", "a": "a", "B": 1}, {"x": "long enough to be cut off", "y": 2.0}]


@pytest.mark.parametrize("way", WAYS)
def test_every_type_is_written_as_the_template_writes_it(way: str) -> None:
    bound = bind_source(source(WAYS[way]))
    known = [{name: value for name, value in each.items() if name} for each in EVERY]
    assert by_form(bound, *[calls(each) for each in known], calls(known[0], known[3])) == 5
    assert by_form(bind_source(source(WAYS[way], "c.function.arguments.items()")), *[calls(each) for each in known]) == 4


@pytest.mark.parametrize(
    "odd",
    [
        {"city": " Rome"},
        {"city": "Rome\n"},
        {"city": " "},
        {"city ": "Rome"},
        {"": "Rome"},
        {"far": float("inf")},
        {"far": float("nan")},
        {str(number): number for number in range(9)},
        {"<|im_end|>": 1},
        {"city": "<|im_end|>"},
    ],
)
def test_odd_arguments_are_written_as_the_template_writes_them(odd: dict[str, Any]) -> None:
    most = list(odd.values()) if "far" not in odd else 1
    by_form(bind_source(source(WAYS["text unless nested"])), calls({"city": "Rome"}), calls(odd), calls({"most": most}))


@pytest.mark.parametrize(("name", "value"), [("im_end|", 1), ("x", "<|im_end|"), ("a", 5)])
def test_a_control_token_that_a_name_makes_with_the_template(name: str, value: Any) -> None:
    """The name is no content of a turn, so that a build takes such a token for the template's."""
    text = source("{{ v if v is string else v | tojson }}").replace("<p={{ k }}>", "<|{{ k }}>")
    bound = bind_source(text)
    chats = [calls({name: value}), calls({"city": "Rome"})]
    assert by_form(bound, *chats) == (1 if name == "im_end|" else 2)


def test_what_is_looked_for_in_the_digits_of_a_number() -> None:
    bound = bind_source(source("{{ 'some' if v is number and '12' in v | string else SHOWN }}".replace("SHOWN", SHOWN)))
    chats = [calls({"days": number}) for number in (3, 1.25, 512, 0.12, 120)]
    assert by_form(bound, *chats, calls({"city": "x12"}), calls({"in": [12]})) == 4


@pytest.mark.parametrize(
    "asks",
    [
        "{{ v if v else '' }}",
        "{{ SHOWN if v or v is none else 'zero' }}",
        "{{ 'many' if v is number and v > 3 else SHOWN }}",
        "{{ 'three' if v == 3 else SHOWN }}",
        "{{ 'odd' if v is integer and v is odd else SHOWN }}",
        "{{ '-' if v == '' else SHOWN }}",
        "{{ 'many' if v is number and v + 0 > 3 else SHOWN }}",
        "{{ 'many' if v is number and 1 + v > 3 else SHOWN }}",
        "{{ messages[v:] | length if v is integer and v is not boolean else SHOWN }}",
        "{{ 'long' if SHOWN | length > 9 else SHOWN }}",
        "{{ SHOWN if '-' not in ('<' ~ v ~ '>') else 'less' }}",
        "{{ SHOWN if SHOWN | first != '-' else 'less' }}",
        "{{ v | length if v is string else SHOWN }}",
        "{{ v | upper if v is string else SHOWN }}",
        "{{ SHOWN }}{{ SHOWN if loop.index == 3 }}",
        "{{ SHOWN }}{{ loop.length if loop.length == 5 }}",
        "{{ SHOWN }}{{ k | length }}",
        "{{ SHOWN }}{{ k | title if k != 'x' else '' }}",
        "{{ v | int if v is number else SHOWN }}{{ v * 2 if v is number }}",
        "{% if v is sequence and v is not string and v is not mapping %}{% for x in v %}{{ x }}{% endfor %}{% else %}{{ SHOWN }}{% endif %}",
        "{{ v.x if v is mapping else SHOWN }}",
        "{{ {3: 'three'}[v] if v is number and v in [3] else SHOWN }}",
        "{{ SHOWN }}{{ c.function.arguments | length }}",
        "{{ SHOWN }}{{ c.function.arguments.city }}",
        "{{ SHOWN }}{{ c.function.arguments | tojson }}",
        "{{ SHOWN }}{{ k }}",
        "<|im_end|>{{ SHOWN }}",
    ],
)
def test_a_look_into_arguments_changes_nothing(asks: str) -> None:
    by_form(bind_source(source(asks.replace("SHOWN", SHOWN))), *map(calls, ASKED))


@pytest.mark.parametrize(
    "loop",
    [
        "c.function.arguments | dictsort",
        "(c.function.arguments | items | list)[::-1]",
        "(c.function.arguments | items | list)[:2]",
        "c.function.arguments.get('x', [])",
    ],
)
def test_arguments_in_another_order_change_nothing(loop: str) -> None:
    by_form(bind_source(source(WAYS["text unless nested"], loop)), *map(calls, ASKED))


@pytest.mark.parametrize("way", ["text unless nested", "text in quotes"])
def test_in_batches_and_one_by_one(way: str) -> None:
    bound = bind_source(source(WAYS[way]))

    @settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(rich_chats(), max_size=6))
    def check(samples: list[Sample]) -> None:
        alike(bound, samples, MaskOptions())

    check()
