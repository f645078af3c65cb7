"""Chats with tools, calls, reasoning and weights that are cut by form are those that are rendered one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.pipeline import conversations as plain_chats
from prep_assets.pipeline.conversations import PlainChats, ShapedChat, in_columns
from prep_assets.proofs.derive import MaskOptions
from prep_assets.samples import ASSISTANT, SYSTEM, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text import forms
from prep_assets.text.certify import policy_faults
from prep_assets.text.chats import ChatColumns, outline_of
from prep_assets_tests.effort import SOAK, examples
from prep_assets_tests.masks.bound import SHIPPED, Bound, bind, bind_source
from prep_assets_tests.masks.test_arbitrary_conversations import POLICIES
from prep_assets_tests.masks.test_plain_batches import outcome

ODD = ["<|im_end|>", "</think>", "<think>x</think>y", "<tool_response>", "</tool_call>", "a\ufdd0", "\udc80", "[/INST]", "", " \n", "null"]
WORDS = st.sampled_from(["Hi", "é中😀", 'a "b" \\', "\n\nSo.", "Well. ", "\tx\n", "{}", '{"name": 1}', "1"])
TEXTS = st.one_of(*[WORDS] * 9, st.sampled_from(ODD))
NAMES = st.sampled_from(["get", "add up", "a-b", '"'])
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.just(-1.5e-9)),
    lambda of: st.lists(of, max_size=2) | st.dictionaries(TEXTS, of, max_size=2),
    max_leaves=3,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["x", "path", "é"]) | TEXTS, VALUES, max_size=2)
WEIGHTS = st.sampled_from([None, None, None, 0.0, 0.5])


@st.composite
def answers(draw: st.DrawFn, calls: int) -> Turn:
    weight = draw(WEIGHTS)
    thoughts = [Region(THINKING, draw(TEXTS), weight)] if draw(st.booleans()) else []
    texts = [Region("text", draw(TEXTS), weight)] if not calls or draw(st.booleans()) else []
    made = [_call(draw, weight) for _ in range(calls)]
    return Turn(ASSISTANT, (*thoughts, *texts, *made))


def _call(draw: st.DrawFn, weight: float | None) -> Region:
    identity = {"id": "call12345"} if draw(st.booleans()) else {}
    call = {**identity, "name": draw(NAMES), "arguments": draw(ARGUMENTS)}
    return Region(TOOL_CALL, json.dumps(call, ensure_ascii=draw(st.booleans())), weight)


@st.composite
def rich_chats(draw: st.DrawFn) -> Sample:
    turns = [turn(SYSTEM, draw(TEXTS))] if draw(st.booleans()) else []
    for calls in draw(st.lists(st.sampled_from([0, 0, 1, 1, 2]), min_size=1, max_size=2)):
        turns += [turn(USER, draw(TEXTS)), draw(answers(calls))]
        for _ in range(calls):
            turns.append(Turn(TOOL, (Region("text", draw(TEXTS)),), draw(st.none() | NAMES), draw(st.sampled_from([None, "call12345"]))))
        turns += [draw(answers(0))] if calls else []
    tools = [
        {"type": "function", "function": {"name": draw(NAMES), "description": draw(TEXTS), "parameters": draw(ARGUMENTS)}}
        for _ in range(draw(st.integers(0, 2)))
    ]
    return Sample(tuple(turns), tuple(tools))


def alike(bound: Bound, samples: Sequence[Sample], options: MaskOptions, **limits: Any) -> int:
    """How many chats are cut by form: the same as if each were rendered."""
    if policy_faults(bound.template, train_on_eos=options.train_on_eos, train_headers=options.train_headers):
        options = MaskOptions()
    by_form: list[int] = []
    cut = PlainChats.cut

    def counted(self: PlainChats, chats: Sequence[Any], *, whole: bool) -> Any:
        found = cut(self, chats, whole=whole)
        by_form.append(0 if found is None else len(found.rows))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forms, "LEARN_AFTER", 1)
        patched.setattr(plain_chats, "ONE_IN", 1 << 40)
        patched.setattr(PlainChats, "cut", counted)
        batched = outcome(bound, list(samples), options, **limits)
        patched.setattr(PlainChats, "cut", lambda self, chats, whole: None)
        assert batched == outcome(bound, list(samples), options, **limits)
    return sum(by_form)


CALLS = json.dumps({"name": "get", "arguments": {"path": "/tmp/é", "lines": [1, 2.5]}}, ensure_ascii=False)
TOOLS = ({"type": "function", "function": {"name": "get", "description": "Reads.", "parameters": {"b": {}, "a": []}}},)
ACTS = Sample(
    (
        turn(USER, "Read it."),
        Turn(ASSISTANT, (Region(THINKING, "Hm.\n"), Region("text", "I look."), Region(TOOL_CALL, CALLS), Region(TOOL_CALL, CALLS))),
        *(Turn(TOOL, (Region("text", '{"é": "ok"}'),), "get") for _ in range(2)),
        Turn(ASSISTANT, (Region("text", "\nDone. "),)),
    ),
    TOOLS,
)


@pytest.mark.parametrize("name", ["deepseek-r1", "llama3", "mistral", "qwen", "qwen3"])
def test_in_batches_and_one_by_one(name: str) -> None:
    bound = bind(SHIPPED, name)

    @settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(rich_chats(), max_size=6),
        st.sampled_from(sorted(POLICIES)),
        st.sampled_from([None, 12, 60]),
        st.sampled_from(["drop", "end", "prompt", "turns"]),
    )
    def check(samples: list[Sample], policy: str, limit: int | None, truncation: str) -> None:
        alike(bound, samples, POLICIES[policy], max_seq_len=limit, truncation=truncation)

    check()


CALLED = Sample((ACTS.turns[0], Turn(ASSISTANT, (Region(TOOL_CALL, CALLS),)), Turn(TOOL, (Region("text", "ok"),)), ACTS.turns[-1]), TOOLS)


@pytest.mark.parametrize(("name", "kept"), [("qwen3", 6), ("qwen", 3), ("llama3", 3), ("glm4", 0), ("mistral", 0)])
def test_calls_are_cut_by_form(name: str, kept: int) -> None:
    """Mistral's template looks at ids of calls, GLM-4's at names of tools."""
    assert alike(bind(SHIPPED, name), [*[ACTS] * 3, *[CALLED] * 3], MaskOptions()) == kept


def test_reasoning_that_history_loses_is_counted() -> None:
    forgets = Sample((*ACTS.turns, turn(USER, "Thanks."), turn(ASSISTANT, "Welcome.")), TOOLS)
    bound = bind(SHIPPED, "qwen3")
    assert alike(bound, [forgets] * 4, MaskOptions()) == 4
    assert outcome(bound, [forgets] * 4, MaskOptions())[-1] == 4


def test_published(real_data: Path) -> None:
    sources = sorted((real_data / "chat_templates" / "trl").glob("*.jinja"))
    templates = [bind_source(source.read_text("utf-8")) for source in (sources if SOAK else sources[::4])]

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(templates), st.lists(rich_chats(), max_size=4))
    def check(bound: Bound, samples: list[Sample]) -> None:
        alike(bound, samples, MaskOptions())

    check()


def lists(asks: str) -> Bound:
    """A template that writes something of tools and of calls."""
    return bind_source(asks + "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")


def with_tools(*parameters: dict[str, Any]) -> list[Sample]:
    """Chats with a tool that has these parameters."""
    tools = [{"type": "function", "function": {"name": "get", "description": "Reads.", "parameters": each}} for each in parameters]
    return [Sample((turn(USER, "Hi"), turn(ASSISTANT, "Well.")), (tool,)) for tool in tools]


ASKED = with_tools({"b": {}, "a": []}, {}, {"x": [1, 1.5e-7, None, True]}, {"A": "é b"}, {"x": {"y": "<|im|>"}}) + [
    Sample((turn(USER, "Hi"), turn(ASSISTANT, "Well.")), ({"name": "get", "x": 1},)) for _ in range(2)
]


@pytest.mark.parametrize(
    "asks",
    [
        "{% for t in tools %}{{ t.function.name }}{{ t | tojson }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson if t.function is defined else '' }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson if t | length > 1 else '' }}{% endfor %}",
        "{% for t in tools %}{% for k in t %}{% endfor %}{{ t | tojson }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson }}{{ t['type'] }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson if 'type' in t else '' }}{% endfor %}",
        "{% for t in tools %}{{ t.get('x', '') }}{{ t | tojson }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson }}{{ t.items() | list | length }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson if t == tools[0] else '' }}{% endfor %}",
        "{% for t in tools %}{{ t }}{% endfor %}",
        "{% for t in tools %}{{ (t | tojson) | upper }}{% endfor %}",
        "{% for t in tools %}{{ (t | tojson) | replace(' ', '') }}{% endfor %}",
        "{% for t in tools %}{{ t | tojson }}{{ t | tojson(indent=2) }}{% endfor %}",
        "{{ tools | tojson }}",
    ],
)
def test_a_look_into_a_tool_changes_nothing(asks: str) -> None:
    alike(lists(asks), ASKED * 2, MaskOptions())


@pytest.mark.parametrize(
    ("how", "count"),
    [("", 7), ("(indent=4)", 7), ("(sort_keys=true)", 7), ("(separators=(',', ':'))", 7), ("(indent=1, sort_keys=true)", 0)],
)
def test_json_is_written_as_the_template_writes_it(how: str, count: int) -> None:
    assert alike(lists("{% for t in tools %}{{ t | tojson" + how + " }}{% endfor %}"), ASKED, MaskOptions()) == count


def test_a_chat_with_more_than_columns_hold_is_none() -> None:
    for region in (Region("image", "x.png"), Region("text", "a", attend=False), Region("text", "a", drop=True), Region(TOOL_CALL, "{}")):
        assert in_columns(Sample((turn(USER, "Hi"), Turn(ASSISTANT, (region,))))) is None
    assert in_columns(Sample((turn(USER, "Hi"),), documents=({"text": "a"},))) is None
    assert in_columns(Sample((turn(USER, "Hi"), turn(ASSISTANT, "\u2003" * 17)), TOOLS)) is None
    assert in_columns(Sample((Turn(USER, (Region("text", "Hi"),), " Ann"), turn(ASSISTANT, "Well")))) is None
    chat = in_columns(ACTS)
    assert chat is not None
    assert isinstance(chat, ShapedChat) and chat.form.sample(chat.texts) == chat.whole == ACTS


@pytest.mark.parametrize(
    ("token", "of_json", "of_space"), [("<|end|>", True, True), ("}}", False, True), ('"]', False, True), ("<e>\n", False, False)]
)
def test_a_control_token_that_json_or_white_space_may_begin(token: str, of_json: bool, of_space: bool) -> None:
    """Such a token may stand half in a text, half in what the template writes beside it."""
    chats = [in_columns(CALLED), in_columns(Sample((turn(USER, "Hi\n"), turn(ASSISTANT, "Well")))), in_columns(Sample((turn(USER, "Hi"),)))]
    encoder: Any = SimpleNamespace(vocabulary=SimpleNamespace(control={token: 1}))
    cutter = PlainChats(bind(SHIPPED, "qwen").template, encoder, MaskOptions(), ())
    assert [
        cutter._keeps_control_tokens_apart(outline_of(ChatColumns.of([chat]).kinds[0]), spaced)
        for chat, spaced in zip(chats, (False, True, False), strict=True)
    ] == [of_json, of_space, True]


def test_a_needle_that_begins_in_white_space_is_found() -> None:
    """The text in its column is without the line break that the template's string begins with."""
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('\\nEND')[0] }}<|im_end|>\n{% endfor %}"
    said = [
        Sample((turn(USER, "Hi"), Turn(ASSISTANT, (Region("text", text, 0.5),)))) for text in ("\nSo.", "\nEND of it", "\nYes", "\nNo.")
    ]
    assert alike(bind_source(source), said, MaskOptions()) == 3


def test_forms_are_forgotten_when_they_hold_too_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MOST_TEXTS", 8)
    few = Sample((turn(USER, "Hi"), Turn(ASSISTANT, (Region("text", "Well", 0.5),))))
    assert alike(bind(SHIPPED, "qwen3"), [ACTS, few, CALLED, ACTS, few] * 2, MaskOptions()) == 10
