"""Whatever a template writes of a row is searched: found by rendering a row with an invented text in every field, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import jinja2
import pytest

from prep_assets.errors import Refused
from prep_assets.quality.overlap import RULES, Passages
from prep_assets.quality.private_data import private_data
from prep_assets.quality.steps import CONTEXT, Examples
from prep_assets.samples import Contrast, Example, Group, Pair, Prompt, Sample
from prep_assets.schemas.registry import convert_with

ROW: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "question", "name": "speaker"},
        {
            "role": "assistant",
            "reasoning_content": "thought",
            "content": "saying",
            "tool_calls": [
                {"id": "call", "type": "function", "function": {"name": "look", "arguments": {"word": "asked", "deep": [{"more": "x"}]}}}
            ],
        },
        {"role": "tool", "content": "result", "tool_call_id": "call", "name": "look"},
        {"role": "assistant", "content": "answer"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "looks",
                "parameters": {"type": "object", "properties": {"word": {"type": "string", "description": "a", "enum": ["b"]}}},
            },
        }
    ],
    "documents": [{"title": "name", "text": "page", "meta": {"from": "where"}}],
    "chat_template_kwargs": {"note": "option"},
}
TEMPLATE = (
    "{{ tools | tojson }}{{ documents | tojson }}{{ note }}"
    "{% for m in messages %}{{ m.role }}:{{ m.name }}{{ m.reasoning_content }}{{ m.content }}"
    "{{ m.tool_calls | tojson if m.tool_calls }}{{ m.tool_call_id }}{% endfor %}"
)
HELD = "the grey mill by the river turned its old wheel for three hundred years, until the flood came: x\ny"
PRIVATE = "maria.lopez@correo.es"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the texts of a row stand."""
    if isinstance(value, str):
        yield path
    else:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def with_text(path: Sequence[Any], text: str) -> dict[str, Any]:
    """The row with another text at a place."""
    row: dict[str, Any] = copy.deepcopy(ROW)
    inside: Any = row
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = text
    return row


def planted(text: str) -> Iterator[tuple[str, Sample]]:
    """The samples of rows with a text at each place where a render shows what stands there, and the schema takes it."""
    template = jinja2.Environment().from_string(TEMPLATE)
    for path in places(ROW):
        shown = template.render(**(row := with_text(path, "inventedword")), **row["chat_template_kwargs"])
        if "inventedword" in shown:
            try:
                sample = convert_with("messages", {})(with_text(path, text))
            except Refused:  # roles, types and names are not free
                continue
            assert isinstance(sample, Sample)
            yield ".".join(map(str, path)), sample


def of_families(sample: Sample) -> list[Example]:
    """The sample as every kind of example that has its context."""
    turns = sample.turns
    context: dict[str, Any] = {"tools": sample.tools, "documents": sample.documents, "template_options": sample.template_options}
    return [
        sample,
        Pair(turns[:-1], turns[-1:], turns[-1:], **context),
        Prompt(turns, "4", **context),
        Group(turns[:-1], (turns[-1:],), (1.0,), **context),
    ]


def test_the_places_are_those_of_every_field() -> None:
    found = [path for path, _ in planted("text")]
    assert len(found) >= 20
    for field in (
        "messages.0.content",
        "tool_calls.0.function.arguments.deep.0.more",
        "description",
        "documents.0.meta.from",
        "kwargs.note",
    ):
        assert any(field in path for path in found)


@pytest.mark.parametrize("rule", ["gpt3", "open_r1", "open_instruct", "dolma"])
def test_leaks_are_found_wherever_a_render_shows_them(rule: str) -> None:
    passages = Passages.of(RULES[rule], [[HELD.replace("\ny", "")]])
    for path, sample in planted(HELD):
        examples = of_families(sample)
        assert [*passages.leaks(Examples([path] * len(examples), examples))] == [0, 1, 2, 3], path


def test_private_data_are_found_wherever_a_render_shows_them() -> None:
    for path, sample in planted(PRIVATE):
        examples = of_families(sample)
        assert [*private_data().judge(Examples([path] * len(examples), examples)).found] == [0, 1, 2, 3], path


def test_what_rules_about_writing_judge_has_no_tools_and_documents() -> None:
    [sample] = [sample for path, sample in planted(HELD) if path == "documents.0.text"]
    examples = Examples(["r:0", "r:1"], [sample, Contrast("query", ("p",), instruction=HELD)])
    assert all(HELD in text for text in examples.texts)
    assert not any(HELD in text for text in examples.said)
    assert {role for role, _ in examples.parts[0]} >= {*CONTEXT}
    assert examples.said[1] == "query\n\np"
    assert RULES["gpt3"].text(examples.parts[0]) == examples.said[0]


def test_calls_are_searched_without_the_escapes_of_json() -> None:
    [sample] = [sample for path, sample in planted('one\n"two" 三') if path.endswith("arguments.word")]
    assert 'one\n"two" 三' in Examples(["r:0"], [sample]).texts[0]
