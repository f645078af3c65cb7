"""Renders taken apart: where each text stands, which white space is whose, and what cannot be taken apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.rebuilt import Block, Borders, Rebuilder, Slot, blocks_of, slotted
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets.text.environment import MessageForm
from prep_assets_tests.proofs.conversations import PLAIN, TRIMS, chat, result, says, template, user
from prep_assets_tests.proofs.trained_conversations import ESCAPES, NO_STOP, NOTHINK

CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"))


def test_a_beginning_that_the_template_refuses() -> None:
    source = "{%- if messages|length < 2 -%}{{- raise_exception('too few') -}}{%- endif -%}" + PLAIN.strip()
    found = Rebuilder(template(source)).rebuild(CHAT)
    assert found.beginning(1, prompted=True) is None and found.beginning(2, prompted=False) is not None


@pytest.mark.parametrize(
    ("source", "texts", "margins"),
    [
        (PLAIN, (" Hi \n", "x "), {0: (1, 2), 1: (0, 1)}),
        (TRIMS, (" Hi \n", "x "), {0: (0, 0), 1: (0, 0)}),
        (PLAIN, ("Hi", "x"), {}),
        (PLAIN.replace("+ m.content", "+ m.content + ' '"), ("Hi  ", "x"), {0: (0, 2), 1: (0, 0)}),
    ],
)
def test_white_space_of_the_texts_themselves(source: str, texts: tuple[str, str], margins: dict[int, tuple[int, int]]) -> None:
    assert Rebuilder(template(source)).rebuild(chat(user(texts[0]), says(texts[1]))).margins == margins


@pytest.mark.parametrize(
    ("source", "parts", "wanted"),
    [
        (PLAIN, ("  a ", " b \n"), {0: (2, 0), 1: (0, 2)}),
        (PLAIN, (" ", "\n a", "b ", " "), {1: (2, 0), 2: (0, 1)}),  # what a region of nothing but space has is not its neighbour's
        (PLAIN.replace("+ m.content", "+ m.content.lstrip('\\n')"), ("\n Hi ",), {0: (1, 1)}),
        (PLAIN.replace("+ m.content", "+ (m.content if m.role == 'user' or m.content[0] == ' ' else '')"), (" Hi ",), {0: (0, 0)}),
    ],
)
def test_white_space_of_the_regions_in_a_text(source: str, parts: tuple[str, ...], wanted: dict[int, tuple[int, int]]) -> None:
    found = Rebuilder(template(source)).rebuild(chat(user("Well?"), says(*parts)))
    assert {region: found.own_margins(1, region) for region in wanted} == wanted


@pytest.mark.parametrize("prompted", [False, True])
def test_white_space_before_the_prompt_is_the_template_s(prompted: bool) -> None:
    source = "{%- for m in messages -%}{{- m.content -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '\n\n' -}}{%- endif -%}"
    assert Rebuilder(template(source)).rebuild(chat(user("Hi ")), prompted=prompted).margins == {0: (0, 1)}


def test_the_clock_stands_still() -> None:
    assert Rebuilder(template("{{- strftime_now('%Y-%m-%d') -}}" + PLAIN.strip())).rebuild(CHAT).text.startswith("2024-07-26<|s|>")


def test_options_that_json_has_no_word_for() -> None:
    rebuilder = Rebuilder(template("{{- day -}}" + PLAIN.strip()))
    for day in (1, 2):
        found = rebuilder.rebuild(chat(*CHAT.turns, template_options={"day": date(2026, 1, day)}))
        assert found.invented_text.startswith(f"2026-01-0{day}<|s|>")


def test_the_same_shape_with_another_prompt_tools_or_options_is_rendered_anew() -> None:
    rebuilder = Rebuilder(
        template("{{- (tools or []) | length -}}{{- (documents or []) | length -}}{{- mode | default('') -}}" + PLAIN.strip())
    )
    first = rebuilder.rebuild(CHAT).text
    assert first.startswith("00<|s|>")
    assert rebuilder.rebuild(CHAT, prompted=True).text == first + "<|s|>assistant\n"
    tools = chat(*CHAT.turns, tools=({"name": "f"},))
    assert rebuilder.rebuild(tools).text.startswith("10<|s|>")
    assert rebuilder.rebuild(chat(*CHAT.turns, documents=({"title": "t"},))).text.startswith("01<|s|>")
    assert rebuilder.rebuild(chat(*CHAT.turns, template_options={"mode": "m"})).text.startswith("00m<|s|>")


ASKS = "{%- if messages[0].content OF -%}{{- 'x' -}}{%- endif -%}"
OTHERWISE = ", so it depends on the content and nothing is proven"


@pytest.mark.parametrize(
    ("source", "text", "writes", "gives"),
    [
        (PLAIN.replace("+ m.content", "+ (m.content | upper)"), "Hi there", "<|s|>user\nHI THERE<|e|>\n", "<|s|>user\nZQAQZ<|e|>\n"),
        (PLAIN.replace("+ m.content", "+ (m.content if m.content != 'Hi' else 'Ho')"), "Hi", "<|s|>user\nHo<|e|>\n", "Hi<|e|>\n"),
        (ASKS.replace("OF", "== 'Hi'") + PLAIN.strip(), "Hi", "x<|s|>user\nHi<|e|>\n", "<|s|>user\n"),
        (PLAIN.strip() + ASKS.replace("OF", "== 'Hi'"), "Hi", "<|s|>user\nHi<|e|>\nx", ""),
        (ASKS.replace("OF", "!= 'zqaqz'") + "{{- 'b' + messages[0].content -}}" + "a" * 70, "Hi", f"xbHi{'a' * 36}", "b"),
        (
            "z" * 30 + "{{- messages[0].content -}}" + ASKS.replace("OF", "!= 'zqaqz'") + "a" * 70,
            "Hi",
            f"{'z' * 20}Hix{'a' * 37}",
            f"Hi{'a' * 58}",
        ),
        ("zqbqz{{- messages[0].content -}}", "Hi", "zqbqzHi", ""),
    ],
)
def test_what_cannot_be_taken_apart(source: str, text: str, writes: str, gives: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        Rebuilder(template(source)).rebuild(chat(user(text)))
    assert str(raised.value) == f"template own writes …{writes!r}… where another text in its place gives {gives!r}{OTHERWISE}"


@pytest.mark.parametrize(
    ("source", "sample", "says_why"),
    [
        ("{{- messages[-1].content -}}", chat(user("Hi" * 40), says("Hello.")), f"template own does not show {'Hi' * 30!r} of turn 0"),
        ("{{- raise_exception('never') -}}", chat(user("Hi")), "template own: never, so nothing is proven"),
    ],
)
def test_what_is_not_shown_or_rendered(source: str, sample: Sample, says_why: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        Rebuilder(template(source)).rebuild(sample)
    assert str(raised.value) == says_why


def test_reasoning_may_be_left_out_and_blanks_are_not_looked_for() -> None:
    source = PLAIN.replace("m.reasoning_content -%}", "m.reasoning_content and loop.last -%}")
    assert len(Rebuilder(template(source)).rebuild(CHAT).places) == 3
    assert len(Rebuilder(template("{{- messages[1].content -}}")).rebuild(chat(user(" "), says("x"))).places) == 1


def test_escapes() -> None:
    found = Rebuilder(template(ESCAPES)).rebuild(chat(user('é "q"'), says("x")))
    assert [found.text[place.start : place.end] for place in found.places] == ['é \\"q\\"', "x"]
    ascii_only = ESCAPES.replace("(m.content | tojson)", "(m.content | replace('é', '\\\\u00e9'))")
    again = Rebuilder(template(ascii_only)).rebuild(chat(user("é"), says("x")))
    assert [again.text[place.start : place.end] for place in again.places] == ["\\u00e9", "x"]


def test_a_text_that_is_shown_twice() -> None:
    source = "{%- for m in messages -%}{{- m.content + '/' + m.content + '<|e|>' -}}{%- endfor -%}"
    found = Rebuilder(template(source)).rebuild(chat(user("Hi"), result("x")))
    assert [(place.slot, found.text[place.start : place.end]) for place in found.places] == [(0, "Hi"), (0, "Hi"), (1, "x"), (1, "x")]


MARKS = PLAIN.strip().replace(" + thought + m.content -}}", " -}}{%- generation -%}{{- thought + m.content -}}{%- endgeneration -%}")


def test_what_a_variant_marks_counts_where_it_renders_the_same() -> None:
    sample = chat(user("Hi"), says("Hello."))
    plain = template()
    for variant, tagged in (
        (MARKS, ((10, 12), (33, 39))),
        (MARKS.replace("'<|s|>'", "'<|s|> '"), None),
        ("{{- raise_exception('no') -}}", None),
        (PLAIN.strip(), None),
    ):
        bound = replace(plain, training=variant)
        found = Rebuilder(bound).rebuild(sample)
        assert (found.text, found.tagged) == (Rebuilder(plain).rebuild(sample).text, tagged)
        assert Rebuilder(bound).rebuild(sample, rendered=found.text).tagged == tagged
    prompted = Rebuilder(replace(plain, training=MARKS)).rebuild(sample, prompted=True)
    assert prompted.text.endswith("<|s|>assistant\n") and prompted.tagged == ((10, 12), (33, 39))


@pytest.mark.parametrize("dash", ["", "-", "+"])
def test_tags_are_known_however_they_are_written(dash: str) -> None:
    source = f"{{%{dash} generation {dash}%}}{{{{ messages[0].content }}}}{{%{dash} endgeneration {dash}%}}"
    assert Rebuilder(template(source)).rebuild(chat(user("Hi")), rendered="Hi").tagged == ((0, 2),)


# -- Messages with slots: in each form that a template may read ---------------------------------------------------------------------------

FORM = MessageForm(reasoning="thought")
PARTS = replace(FORM, content="parts")
IMAGES = replace(FORM, image_parts=True)


def filled(sample: Sample, form: MessageForm = FORM, image: str = "<i>") -> list[dict[str, Any]]:
    """Each slot filled with its number."""
    made = slotted(sample, form, {"image": image})
    return made.filled([f"#{number}" for number in range(len(made.slots))])


def slots(sample: Sample, form: MessageForm = FORM) -> tuple[Slot, ...]:
    return slotted(sample, form, {"image": "<i>"}).slots


def function(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", **more, "function": {"name": name, "arguments": arguments}}


def test_names_and_ids() -> None:
    sample = Sample((Turn("tool", (Region(TEXT, "4"),), "f", "id1"), Turn("user", (Region(TEXT, "x"),))))
    assert filled(sample) == [{"role": "tool", "content": "#0", "name": "f", "tool_call_id": "id1"}, {"role": "user", "content": "#1"}]


CALL = says('!f {"n": 2, "s": "a", "l": ["b", {"c": "d"}], "t": true, "o": null}')


@pytest.mark.parametrize(("no_content", "content"), [("text", {"content": "#0"}), ("null", {"content": None}), ("absent", {})])
def test_calls_without_text(no_content: Any, content: dict[str, Any]) -> None:
    shift = 1 if no_content == "text" else 0
    form = replace(FORM, no_content=no_content)
    arguments = {"n": 2, "s": f"#{1 + shift}", "l": [f"#{2 + shift}", {"c": f"#{3 + shift}"}], "t": True, "o": None}
    assert filled(chat(CALL), form) == [{"role": "assistant", **content, "tool_calls": [function(f"#{shift}", arguments)]}]
    wanted = [Slot(0, TOOL_CALL, text, ((0, 0, len(text)),)) for text in ("f", "a", "b", "d")]
    assert list(slots(chat(CALL), form)) == ([Slot(0, TEXT, "", ())] if shift else []) + wanted


def test_calls_beside_text_and_reasoning() -> None:
    sample = chat(says("~Hm.", "Let me.", "!f", "!g"), result("4"))
    forms = [replace(FORM, no_content=no_content) for no_content in ("text", "null", "absent")]  # there is content
    assert filled(sample, forms[0]) == filled(sample, forms[1]) == filled(sample, forms[2])
    assert filled(sample) == [
        {"role": "assistant", "content": "#1", "thought": "#0", "tool_calls": [function("#2", {}), function("#3", {})]},
        {"role": "tool", "content": "#4"},
    ]
    assert [(slot.kind, slot.text, slot.parts) for slot in slots(sample)] == [
        (THINKING, "Hm.", ((0, 0, 3),)),
        (TEXT, "Let me.", ((1, 0, 7),)),
        (TOOL_CALL, "f", ((2, 0, 1),)),
        (TOOL_CALL, "g", ((3, 0, 1),)),
        (TEXT, "4", ((0, 0, 1),)),
    ]


def test_arguments_as_text() -> None:
    form = replace(FORM, arguments="text", no_content="absent")
    assert filled(chat(says('!f {"é": ["a"]}')), form) == [{"role": "assistant", "tool_calls": [function("#0", '{"é": ["#1"]}')]}]
    own = chat(Turn("assistant", (Region(TOOL_CALL, '{"name": "f", "arguments": "n=2"}'),)))
    assert filled(own, form) == [{"role": "assistant", "tool_calls": [function("#0", "#1")]}]


def test_ids_of_calls() -> None:
    with_id, without = ('{"name": "f", "arguments": {}, "id": "x"}', '{"name": "f", "arguments": {}, "id": ""}')
    sample = chat(Turn("assistant", (Region(TOOL_CALL, with_id), Region(TOOL_CALL, without))))
    form = replace(FORM, no_content="absent")
    assert filled(sample, form) == [{"role": "assistant", "tool_calls": [function("#0", {}, id="x"), function("#1", {})]}]


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "f"}', '"' + "x" * 90 + '"', "7"])
def test_what_is_not_a_tool_call(text: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        slots(chat(user("x"), Turn("assistant", (Region(TOOL_CALL, text),))))
    assert str(raised.value) == f"turn 1: {text[:80]!r} is not a tool call"


PICTURES = chat(says("See ", "@a.png", "@b.png", " there", role="user"))


def test_images_as_text() -> None:
    assert filled(PICTURES) == [{"role": "user", "content": "#0"}]
    assert slots(PICTURES) == (Slot(0, TEXT, "See <i><i> there", ((0, 0, 4), (1, 4, 7), (2, 7, 10), (3, 10, 16))),)


@pytest.mark.parametrize("form", [IMAGES, replace(PARTS, image_parts=True)])
def test_images_as_parts(form: MessageForm) -> None:
    content = [{"type": "text", "text": "#0"}, {"type": "image"}, {"type": "image"}, {"type": "text", "text": "#1"}]
    assert filled(PICTURES, form) == [{"role": "user", "content": content}]
    assert slots(PICTURES, form) == (Slot(0, TEXT, "See ", ((0, 0, 4),)), Slot(0, TEXT, " there", ((3, 0, 6),)))


def test_texts_as_parts() -> None:
    assert filled(PICTURES, PARTS) == [{"role": "user", "content": [{"type": "text", "text": "#0"}]}]
    assert filled(chat(user("Hi")), PARTS) == [{"role": "user", "content": [{"type": "text", "text": "#0"}]}]
    assert filled(chat(user("Hi")), IMAGES) == [{"role": "user", "content": "#0"}]
    assert filled(chat(Turn("user", ())), PARTS) == [{"role": "user", "content": [{"type": "text", "text": ""}]}]
    assert filled(chat(Turn("user", ()))) == [{"role": "user", "content": "#0"}]


def test_dropped_regions() -> None:
    regions = (Region(TEXT, "x", drop=True), Region(IMAGE, "a", drop=True), Region(THINKING, "t", drop=True), Region(TEXT, "Hi"))
    assert slots(chat(Turn("user", regions)), IMAGES) == (Slot(0, TEXT, "Hi", ((3, 0, 2),)),)
    assert filled(chat(Turn("user", regions)), IMAGES) == [{"role": "user", "content": "#0"}]


# -- Where turns begin and end: seen in what is trained of whole conversations, and asked for directly ------------------------------------

BORDER_CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"), says("See you."))
REFUSES = "{{- raise_exception('no') -}}"
ONLY_PROMPTED = "{%- if not add_generation_prompt -%}" + REFUSES + "{%- endif -%}{{- '<|s|>' + messages[0].content + '<|s|>' -}}"
HARMONY = """
{%- for m in messages -%}
  {{- '<|s|>' + m.role + '|' + m.content + ('<|end|>' if m.role == 'assistant' and loop.last else '<|e|>') -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|s|>assistant|' -}}{%- endif -%}
"""


def taken_apart(source: str, sample: Sample) -> tuple[Any, list[Block], Borders]:
    rebuilder = Rebuilder(template(source))
    chat = rebuilder.rebuild(sample)
    return chat, blocks_of(chat), Borders(rebuilder)


def test_a_turn_amid_another_proves_nothing() -> None:
    source = "{{- messages[0].content -}}{%- for m in messages[1:] -%}{{- m.content -}}{%- endfor -%}"
    amid = "{{- messages[1].reasoning_content + messages[0].content + messages[1].content -}}"
    assert len(taken_apart(source, chat(user("Hi"), says("Hello.")))[1]) == 2
    with pytest.raises(CheckFailed) as raised:
        taken_apart(amid, chat(user("Hi"), says("~Hm.", "Hello.")))
    assert str(raised.value) == "the template writes turn 0 amid turn 1, so nothing is proven"


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        (PLAIN, "<|s|>assistant\n"),
        (ONLY_PROMPTED, "<|s|>Well?<|s|>"),
        (NOTHINK, "<|s|>assistant\n<think>"),
        ("{{- raise_exception('no') -}}", ""),
    ],
)
def test_what_stands_before_an_answer_to_a_lone_question(source: str, prompt: str) -> None:
    assert Borders(Rebuilder(template(source))).lone_prompt == prompt


@pytest.mark.parametrize(("source", "stops"), [(PLAIN, {"<|e|>"}), (HARMONY, {"<|e|>", "<|end|>"}), (NO_STOP, {"<|s|>"}), (REFUSES, set())])
def test_what_ends_answers(source: str, stops: set[str]) -> None:
    borders = Borders(Rebuilder(template(source)))
    assert borders.answer_stops == stops
    assert borders.answer_stops is borders.answer_stops


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (PLAIN, [("<think>", "<|e|>"), ("", "<|e|>")]),
        (HARMONY.replace("m.content", "(m.reasoning_content or '') + m.content"), [("", "<|e|>"), ("", "<|end|>")]),
        (PLAIN.replace("'<|e|>\\n'", "' <|e|>\\n'"), [("<think>", "<|e|>"), ("", "<|e|>")]),
        (PLAIN.replace("'<|e|>\\n'", "'<|e|><|end|>\\n'"), [("<think>", "<|e|><|end|>"), ("", "<|e|><|end|>")]),
        (NO_STOP, [("<think>", "<|s|>"), ("", None)]),
    ],
)
def test_where_answers_begin_and_end(source: str, texts: list[tuple[str, str | None]]) -> None:
    found, blocks, borders = taken_apart(source, BORDER_CHAT)
    for number, (before, stop) in zip((1, 3), texts, strict=True):
        block, after = blocks[number], blocks[number + 1] if number + 1 < len(blocks) else None
        assert found.invented_text[borders.start(found, blocks[number - 1], block) : block.start] == before
        where = borders.stop(found, block, after)
        assert (None if where is None else found.invented_text[slice(*where)]) == stop


def test_an_answer_of_calls_where_nothing_says_where_it_begins() -> None:
    source = (
        "{%- for m in messages -%}{{- '[' + loop.length|string + ']' + m.content -}}"
        "{%- for c in m.tool_calls or [] -%}{{- c.function | tojson -}}{%- endfor -%}{{- '<|e|>' -}}{%- endfor -%}"
    )
    found, blocks, borders = taken_apart(source, chat(user("Hi"), says("!f"), result("1"), says("x")))
    assert borders.start(found, blocks[2], blocks[3]) == blocks[3].start


BRACKETS = """
{%- for m in messages -%}
  {{- '<|s|>' + m.role + '|' + m.content -}}
  {%- for call in m.tool_calls or [] -%}{{- '<c>' + call.function.name + '</c>' -}}{%- endfor -%}
  {{- 'LAST' if loop.last and m.role == 'assistant' else 'EARLIER' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|s|>assistant|' -}}{%- endif -%}
"""


@pytest.mark.parametrize(
    ("last", "earlier", "stops"),
    [
        ("<|e|>", "<|e|>", ["<|e|>", "<|e|>", "<|e|>"]),
        ("<|end|>", "<|e|>", ["<|e|>", "<|e|>", "<|end|>"]),
        ("\n<|end|>", "\n<|e|>", ["<|e|>", "<|e|>", "<|end|>"]),
        ("<|e|><|end|>", "<|e|>", ["<|e|>", "<|e|>", "<|e|><|end|>"]),
        ("<|e|>\n<|end|>", "<|e|>\n", ["<|e|>", "<|e|>", "<|e|>"]),
        ("", "<|e|>", ["<|e|>", "<|e|>", None]),
    ],
)
def test_a_call_ends_behind_its_brackets_as_a_text_does(last: str, earlier: str, stops: list[str | None]) -> None:
    source = BRACKETS.replace("LAST", last).replace("EARLIER", earlier)
    control = ("<|e|>", "<|end|>", "<|s|>", "<c>", "</c>")
    called = Turn("assistant", (Region(TOOL_CALL, '{"name": "get", "arguments": {}}'),) * 2)
    sample = chat(user("Hi"), called, result("4"), says("Four."), user("And?"), says("Five."))
    rebuilder = Rebuilder(template(source, control=control))
    found = rebuilder.rebuild(sample)
    blocks, borders = blocks_of(found), Borders(rebuilder)
    where = [
        borders.stop(found, block, after) for block, after in zip(blocks, [*blocks[1:], None], strict=True) if block.role == "assistant"
    ]
    assert [span and found.invented_text[slice(*span)] for span in where] == stops
