"""Chats with tools, calls, reasoning and weights that are cut by form are those that are rendered one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import TemplateError
from prep_assets.pipeline import rendering
from prep_assets.pipeline.rendering import BlockRenderer, ShapedChat, in_columns
from prep_assets.proofs.chat_blocks import derived_forms, moved
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.samples import ASSISTANT, THINKING, TOOL_CALL, USER, PlainChat, Region, Sample, Turn, turn
from prep_assets.text import forms
from prep_assets.text.chats import ChatColumns, outline_of
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.chats import ACTS, CALLED, EVERY, NESTED, ROLES, TOOLS, WAYS, calls, chats, rich_chats, source
from prep_assets_tests.corpus.policies import POLICIES
from prep_assets_tests.effort import SOAK, examples
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, Bound, bind, bind_source, run, supported


def alike(bound: Bound, samples: Sequence[Sample], options: MaskOptions, **limits: Any) -> int:
    """How many chats are cut by form: the same as if each were rendered."""
    options = supported(bound, options)
    by_form: list[int] = []
    render_block = BlockRenderer.render_block

    def counted(self: BlockRenderer, chats: Sequence[Any], *, whole: bool) -> Any:
        found = render_block(self, chats, whole=whole)
        by_form.append(0 if found is None else len(found.rows))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forms, "LEARN_AFTER", 1)
        patched.setattr(rendering, "ONE_IN", 1 << 40)
        patched.setattr(BlockRenderer, "render_block", counted)
        batched = outcome(bound, list(samples), options, **limits)
        patched.setattr(BlockRenderer, "render_block", lambda self, chats, whole: None)
        assert batched == outcome(bound, list(samples), options, **limits)
    return sum(by_form)


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


@pytest.mark.parametrize(
    ("token", "of_json", "of_space"), [("<|end|>", True, True), ("}}", False, True), ('"]', False, True), ("<e>\n", False, False)]
)
def test_a_control_token_that_json_or_white_space_may_begin(token: str, of_json: bool, of_space: bool) -> None:
    """Such a token may stand half in a text, half in what the template writes beside it."""
    chats = [in_columns(CALLED), in_columns(Sample((turn(USER, "Hi\n"), turn(ASSISTANT, "Well")))), in_columns(Sample((turn(USER, "Hi"),)))]
    encoder: Any = SimpleNamespace(vocabulary=SimpleNamespace(control={token: 1}))
    cutter = BlockRenderer(bind(SHIPPED, "qwen").template, encoder, MaskOptions(), ())
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


# -- Chats cut by form, in batches, are those that are rendered one by one: the same tokens, weights and refusals -------------------------


def outcome(bound: Bound, samples: list[Sample], options: MaskOptions, **limits: Any) -> list[Any]:
    found = run(bound, samples, options, **limits)
    return [
        found.kept,
        found.encoded.ids.tolist(),
        found.encoded.loss.tolist(),
        found.encoded.offsets.tolist(),
        found.refused,
        found.control_tokens,
        found.left_out,
    ]


@pytest.mark.parametrize("name", ["alpaca", "chatml", "llama3", "mistral", "plain", "qwen3"])
def test_plain_in_batches_and_one_by_one(name: str) -> None:
    bound = bind(SHIPPED, name)
    assert name in CONTROL

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(chats(), max_size=12),
        st.sampled_from(sorted(POLICIES)),
        st.sampled_from([None, 12, 40]),
        st.sampled_from(["drop", "end", "start", "prompt", "turns"]),
    )
    def check(samples: list[Sample], policy: str, limit: int | None, truncation: str) -> None:
        options = supported(bound, POLICIES[policy])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(forms, "LEARN_AFTER", 1)
            batched = outcome(bound, samples, options, max_seq_len=limit, truncation=truncation)
            patched.setattr(BlockRenderer, "render_block", lambda self, chats, whole: None)
            assert batched == outcome(bound, samples, options, max_seq_len=limit, truncation=truncation)

    check()


@pytest.mark.parametrize("name", sorted(CONTROL))
def test_the_second_derivation_by_form_is_that_of_each_chat(name: str) -> None:
    bound = bind(SHIPPED, name)
    options = MaskOptions(train_on_eos="all")
    known = derived_forms(bound.template, options, options, prompted=False)

    @settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(ROLES, st.data())
    def check(roles: tuple[str, ...], data: st.DataObject) -> None:
        texts = [data.draw(st.text(" a\né.", min_size=1).filter(str.strip)) for _ in roles]
        located = known.of(roles, any(text != text.strip() for text in texts))
        if located is not None:
            found = moved(located.derived, located.layout, located.layout.shown(texts))
            assert found == derive(PlainChat(roles, tuple(texts)).sample(), options, bound.template, prompts=True)

    check()
    assert known.of((USER, ASSISTANT), False) is not None


LOOKS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.replace('needle', 'pin') }}<|im_end|>\n{% endfor %}"


def test_another_render_by_the_library_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [Sample((turn(USER, "Hi"), turn(ASSISTANT, text))) for text in ("Hello", "Well", "a needle", "Bye")]
    monkeypatch.setattr(BlockRenderer, "_minijinja_renders", lambda self, chats, written: True)
    monkeypatch.setattr(rendering, "ONE_IN", 1)
    with pytest.raises(TemplateError, match=r"refuses .*a needle"):
        run(bind_source(LOOKS), samples)


# -- Calls whose arguments a template writes one by one: cut by form where that is certain, and as they are when each is rendered ---------

SHOWN = f"(v | tojson if {NESTED} else v | string)"


def by_form(bound: Bound, *samples: Sample) -> int:
    return alike(bound, samples, MaskOptions())


ARGUMENT_ASKED: list[dict[str, Any]] = [
    {"city": "Rome", "days": 3},
    {"x": 3, "y": "", "z": 0},
    {"a": "x"},
    {"a": [1, "x"], "b": {"x": 2}, "c": -1, "d": "d", "e": None},
]
ARGUMENT_ASKED += [{"b": "b", "a": "a", "B": 1}, {"x": "long enough to be cut off", "y": 2.0}]


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


@cells(
    "asks",
    [
        *("{{ v if v else '' }}", "{{ SHOWN if v or v is none else 'zero' }}", "{{ 'many' if v is number and v > 3 else SHOWN }}"),
        *("{{ 'three' if v == 3 else SHOWN }}", "{{ 'odd' if v is integer and v is odd else SHOWN }}"),
        *("{{ '-' if v == '' else SHOWN }}", "{{ 'many' if v is number and v + 0 > 3 else SHOWN }}"),
        *("{{ 'many' if v is number and 1 + v > 3 else SHOWN }}",),
        *("{{ messages[v:] | length if v is integer and v is not boolean else SHOWN }}",),
        *("{{ 'long' if SHOWN | length > 9 else SHOWN }}", "{{ SHOWN if '-' not in ('<' ~ v ~ '>') else 'less' }}"),
        *("{{ SHOWN if SHOWN | first != '-' else 'less' }}", "{{ v | length if v is string else SHOWN }}"),
        *("{{ v | upper if v is string else SHOWN }}", "{{ SHOWN }}{{ SHOWN if loop.index == 3 }}"),
        *("{{ SHOWN }}{{ loop.length if loop.length == 5 }}", "{{ SHOWN }}{{ k | length }}"),
        *("{{ SHOWN }}{{ k | title if k != 'x' else '' }}", "{{ v | int if v is number else SHOWN }}{{ v * 2 if v is number }}"),
        *(
            "{% if v is sequence and v is not string and v is not mapping %}{% for x in v %}{{ x }}{% endfor %}{% else %}{{ SHOWN }}{% endif %}",
        ),
        *("{{ v.x if v is mapping else SHOWN }}", "{{ {3: 'three'}[v] if v is number and v in [3] else SHOWN }}"),
        *("{{ SHOWN }}{{ c.function.arguments | length }}", "{{ SHOWN }}{{ c.function.arguments.city }}"),
        *("{{ SHOWN }}{{ c.function.arguments | tojson }}", "{{ SHOWN }}{{ k }}", "<|im_end|>{{ SHOWN }}"),
    ],
)
def test_a_look_into_arguments_changes_nothing(asks: str) -> None:
    by_form(bind_source(source(asks.replace("SHOWN", SHOWN))), *map(calls, ARGUMENT_ASKED))


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
    by_form(bind_source(source(WAYS["text unless nested"], loop)), *map(calls, ARGUMENT_ASKED))


@pytest.mark.parametrize("way", ["text unless nested", "text in quotes"])
def test_argument_in_batches_and_one_by_one(way: str) -> None:
    bound = bind_source(source(WAYS[way]))

    @settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(rich_chats(), max_size=6))
    def check(samples: list[Sample]) -> None:
        alike(bound, samples, MaskOptions())

    check()


def test_reasoning_that_truncation_cuts_away_is_not_the_templates() -> None:
    """Of a chat that is too long only the newest rounds are left; what they lose is counted once, in blocks of any size."""
    thinks = Sample(
        (
            turn(USER, "Hi"),
            Turn(ASSISTANT, (Region(THINKING, "Hm " * 40), Region("text", "Yes."))),
            turn(USER, "And?"),
            turn(ASSISTANT, "No."),
        )
    )
    twice = Sample((turn(USER, "Hey " * 60), turn(ASSISTANT, "Oh."), *thinks.turns))
    bound = bind(SHIPPED, "qwen3")
    for sample, limit, lost in ((thinks, 1000, 1), (thinks, 24, 0), (twice, 1000, 1), (twice, 60, 1)):
        assert alike(bound, [sample] * 4, MaskOptions(), max_seq_len=limit, truncation="turns") in (0, 4)
        for count in (1, 4):
            assert run(bound, [sample] * count, max_seq_len=limit, truncation="turns").left_out == lost * count, (limit, count)


def test_a_chat_with_more_than_columns_hold_is_none() -> None:
    for region in (Region("image", "x.png"), Region("text", "a", attend=False), Region("text", "a", drop=True), Region(TOOL_CALL, "{}")):
        assert in_columns(Sample((turn(USER, "Hi"), Turn(ASSISTANT, (region,))))) is None
    assert in_columns(Sample((turn(USER, "Hi"),), documents=({"text": "a"},))) is None
    assert in_columns(Sample((turn(USER, "Hi"), turn(ASSISTANT, "\u2003" * 17)), TOOLS)) is None
    assert in_columns(Sample((Turn(USER, (Region("text", "Hi"),), " Ann"), turn(ASSISTANT, "Well")))) is None
    chat = in_columns(ACTS)
    assert chat is not None
    assert isinstance(chat, ShapedChat) and chat.form.sample(chat.texts) == chat.whole == ACTS
