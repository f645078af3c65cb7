"""Renders taken apart: where each text stands, which white space is whose, and what cannot be taken apart."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any, cast

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs import rebuilt as module
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.rebuilt import ImplementationsDiffer, Rebuilder, RendersDiffer, slotted, sorts_arguments
from prep_assets.samples import Region, Sample, Turn, changed
from prep_assets.text.environment import MessageForm
from prep_assets_tests.proofs.conversations import PLAIN, chat, result, says, template, user

CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"))


def test_a_beginning_that_the_template_refuses() -> None:
    source = "{%- if messages|length < 2 -%}{{- raise_exception('too few') -}}{%- endif -%}" + PLAIN.strip()
    found = Rebuilder(template(source)).rebuild(CHAT)
    assert found.shape.until(1, True) is None and found.shape.until(2, False) is not None
    talk = chat(user("Hi"), says("Hello."), user("Bye"), says("Ciao."))
    assert [each.text for each in derive(talk, MaskOptions(), template(source.replace("< 2", "< 3"))).expected] == [
        "Hello.<|e|>",
        "Ciao.<|e|>",
    ]


def test_the_clock_stands_still() -> None:
    assert Rebuilder(template("{{- strftime_now('%Y-%m-%d') -}}" + PLAIN.strip())).rebuild(CHAT).text.startswith("2024-07-26<|s|>")


def test_few_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    rebuilder = Rebuilder(template())
    for mode in "abca":
        rebuilder.rebuild(chat(*CHAT.turns, template_options={"mode": mode}))
        assert len(rebuilder._shapes) in (1, 2)


def test_options_that_json_has_no_word_for() -> None:
    rebuilder = Rebuilder(template("{{- day -}}" + PLAIN.strip()))
    for day in (1, 2):
        found = rebuilder.rebuild(chat(*CHAT.turns, template_options={"day": date(2026, 1, day)}))
        assert found.shape.text.startswith(f"2026-01-0{day}<|s|>")


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
        *(
            (PLAIN, chat(user("Hi"), Turn("assistant", (Region("tool_call", text),))), f"turn 1: {text[:80]!r} is not a tool call")
            for text in ("{", "[]", '{"name": "f"}', f'{{"arguments": "{"x" * 80}"}}')
        ),
    ],
)
def test_what_is_not_shown_or_rendered(source: str, sample: Sample, says_why: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        Rebuilder(template(source)).rebuild(sample)
    assert str(raised.value) == says_why


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


CALL = {"name": "f", "arguments": {"a": ["x", 1]}}


@pytest.mark.parametrize(
    ("form", "content", "call", "thought"),
    [
        ({}, {"content": ""}, CALL, "reasoning_content"),
        (
            {"no_content": "null", "arguments": "text", "reasoning": "thinking"},
            {"content": None},
            {**CALL, "arguments": '{"a": ["x", 1]}'},
            "thinking",
        ),
        ({"no_content": "absent", "content": "parts"}, {}, CALL, "reasoning_content"),
        ({"content": "parts"}, {"content": [{"type": "text", "text": ""}]}, CALL, "reasoning_content"),
    ],
)
def test_messages_in_the_form_that_a_template_reads(form: dict[str, str], content: dict[str, object], call: object, thought: str) -> None:
    asked = Turn("user", (Region("text", "a"), Region("image", "1.png"), Region("text", "x", drop=True), Region("text", "b")), "Anna", None)
    called = says("~Hm.", '!f {"a": ["x", 1]}')
    messages, slots = slotted(chat(asked, called, Turn("tool", (Region("text", "4"),), "f", "c1")), MessageForm(**form), {"image": "<img>"})
    as_parts = form.get("content") == "parts"
    joined, result = ([{"type": "text", "text": text}] if as_parts else text for text in ("a<img>b", "4"))
    calls = [{"type": "function", "function": call}]
    assert messages == [
        {"role": "user", "content": joined, "name": "Anna"},
        {"role": "assistant", **content, thought: "Hm.", "tool_calls": calls},
        {"role": "tool", "content": result, "name": "f", "tool_call_id": "c1"},
    ]
    assert [(slot.turn, slot.kind, slot.text) for slot in slots if slot.text] == [
        (0, "text", "a<img>b"),
        (1, "thinking", "Hm."),
        *((1, "tool_call", leaf) for leaf in ("f", "x")),
        (2, "text", "4"),
    ]
    assert slots[0].parts == ((0, 0, 1), (1, 1, 6), (3, 6, 7))


def test_files_that_are_parts_of_their_own() -> None:
    asked = Turn(
        "user", (Region("text", "a"), Region("text", "b"), Region("image", "1.png"), Region("image", "2.png"), Region("text", "c"))
    )
    messages, slots = slotted(chat(asked), MessageForm(image_parts=True), {"image": "<img>"})
    parts = [{"type": "text", "text": "ab"}, {"type": "image"}, {"type": "image"}, {"type": "text", "text": "c"}]
    assert messages == [{"role": "user", "content": parts}]
    assert [slot.parts for slot in slots] == [((0, 0, 1), (1, 1, 2)), ((4, 0, 1),)]
    alone = chat(user("a"), Turn("user", (Region("image", "1.png"),)))
    contents = [message["content"] for message in slotted(alone, MessageForm(image_parts=True), {})[0]]
    assert contents == ["a", [{"type": "image"}]], "a text alone is one"


def test_what_a_turn_with_files_begins_and_ends_with_is_what_is_shown() -> None:
    shows = "{%- for p in m.content -%}{{- '<img>' if p.type == 'image' else p.text -}}{%- endfor -%}"
    source = CHATML.replace("{{- '<|s|>' + m.role + '\n' + SHOWN + '<|e|>\n' -}}", f"{{{{- m.role -}}}}{shows}{{{{- '<|e|>' -}}}}")
    asked = Turn("user", (Region("image", "1.png"), Region("text", "a"), Region("image", "2.png")))
    shape = Rebuilder(template(source, image="<img>")).rebuild(chat(asked, says("~Hm.", "A cat."))).shape
    assert [(block.begins_with, block.ends_with) for block in shape.blocks] == [("image", "image"), ("text", "text")]
    drawn = Rebuilder(template(source, image="<img>")).rebuild(chat(user("Hi"), changed(asked, role="assistant"))).shape
    [_, border], stops = drawn.borders, [drawn.text[slice(*each.stop)] for each in drawn.borders if each.stop]
    assert (border.start, border.by_prefix, stops) == (None, False, ["<|e|>"] * 2), "where a file begins no text says"
    marked = Rebuilder(template(image="<img>")).rebuild(chat(asked, says("~Hm.", "A cat."))).shape  # in one text
    assert [(block.begins_with, block.ends_with) for block in marked.blocks] == [("text", "text"), ("thinking", "text")]


# -- Where turns begin and end: seen in what is trained of whole conversations, and asked for directly ------------------------------------


AMID = "{{- messages[1].reasoning_content + messages[0].content + messages[1].content -}}"


def test_a_turn_amid_another_proves_nothing() -> None:
    source = "{{- messages[0].content -}}{%- for m in messages[1:] -%}{{- m.content -}}{%- endfor -%}"
    assert len(Rebuilder(template(source)).rebuild(chat(user("Hi"), says("Hello."))).shape.blocks) == 2
    found = Rebuilder(template(AMID)).rebuild(chat(user("Hi"), says("~Hm.", "Hello.")))
    with pytest.raises(CheckFailed) as raised:
        assert found.shape.borders
    assert str(raised.value) == "the template writes turn 0 amid turn 1, so nothing is proven"


# -- What a model generates, by the prefix property -------------------------------------------------------------------------------------

CHATML = "{%- for m in messages -%}{{- '<|s|>' + m.role + '\n' + SHOWN + '<|e|>\n' -}}{%- endfor -%}"
BRACKETS = "{%- for m in messages -%}{{- '[' + m.role + ']' + m.content -}}{%- endfor -%}"
ASKS_ON = "{%- if add_generation_prompt -%}{{- '<|s|>assistant\n' -}}{%- endif -%}"
FORGETS = "((m.reasoning_content or '') + m.content if loop.last else m.content)"
TALK = chat(user("Hi"), says("~Hm.", "Hello!"), user("Bye"), says("~So.", "Ciao."))


@pytest.mark.parametrize(
    ("source", "by_prefix", "trained"),
    [
        (CHATML.replace("SHOWN", "m.content") + ASKS_ON, [True, True], ["Hello!<|e|>", "Ciao.<|e|>"]),
        # the render before shows what the whole one does not
        (CHATML.replace("SHOWN", FORGETS) + ASKS_ON, [False, True], ["Hello!<|e|>", "So.Ciao.<|e|>"]),
        # a prompt that has nothing in common with a header
        (
            BRACKETS + ASKS_ON.replace("<|s|>assistant\n", "#"),
            [False, False],
            ["Hello!", "Ciao."],
        ),
        # no prompt has the header
        (CHATML.replace("SHOWN", "m.content"), [False, False], ["Hello!<|e|>", "Ciao.<|e|>"]),
        # a prompt that raises says nothing
        (
            CHATML.replace("SHOWN", "m.content") + "{%- if add_generation_prompt -%}{{- raise_exception('no') -}}{%- endif -%}",
            [False, False],
            ["Hello!<|e|>", "Ciao.<|e|>"],
        ),
    ],
)
def test_by_hand(source: str, by_prefix: list[bool], trained: list[str]) -> None:
    shape = Rebuilder(template(source)).rebuild(TALK).shape
    assert [border.by_prefix for border in shape.borders[1::2]] == by_prefix
    assert [each.text for each in derive(TALK, MaskOptions(), template(source)).expected] == trained


def test_an_answer_that_comes_first_begins_behind_its_header() -> None:
    first = chat(says("~Hm.", "Hello."), user("Bye"))
    plain = BRACKETS.replace("m.content", "(m.reasoning_content or '') + m.content") + ASKS_ON.replace("<|s|>assistant\n", "[assistant]")
    for source, trained in ((PLAIN, "<think>Hm.</think>\nHello.<|e|>"), (plain, "Hm.Hello.")):
        assert [each.text for each in derive(first, MaskOptions(), template(source)).expected] == [trained]
    with pytest.raises(CheckFailed, match=r"^nothing in the render says where turn 0 begins, so nothing is proven$"):
        derive(first, MaskOptions(), template(PLAIN.partition("{%- if add_")[0]))


# -- Borders of each turn, shown in the render ------------------------------------------------------------------------------------------

WRITES = (
    "{%- for m in messages -%}{{- HEAD + (m.reasoning_content if m.reasoning_content and loop.last else '') + m.content -}}"
    "{%- for call in m.tool_calls or [] -%}{{- '[' + call.function.name + ']' -}}{%- endfor -%}{{- END -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- PROMPT -}}{%- endif -%}"
)
THINKS = says("~Hm.", "So.")
CALLS = chat(user("Hi"), says("!f"), result("4"), says("Four."))
TWO = chat(user("Hi"), THINKS, user("Bye"), THINKS)
CALLED = chat(user("Hi"), says("Wait.", "!f"), user("Bye"))
NAMED = chat(user("Hi"), changed(THINKS, name="Ann"), user("Bye"), changed(THINKS, name="Ann"))


@pytest.mark.parametrize(
    ("sample", "head", "end", "prompt", "shows", "served"),
    [
        (
            TWO,
            "'<|s|>' + m.role + ': ' + ('<t></t>' if m.reasoning_content else '')",
            "",
            "'<|s|>assistant: <t>\n' + (raise_exception('no') if messages|length == 3 else '')",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟨<t></t>So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant: ⟨<t></t>Hm.So.‹<|e|>›¦",
            [3],
        ),
        (
            TWO,
            "'<|s|>' + m.role + ': ' + ('' if m.role == 'user' or loop.last else '<t>')",
            "",
            "'<|s|>assistant: ' + (raise_exception('no') if messages|length == 3 else '')",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟨<t>So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant: ⟨Hm.So.‹<|e|>›¦",
            [1, 3],
        ),
        (
            TWO,
            "'<|s|>' + m.role + ':\n' + ('<t>\n' if m.role == 'assistant' and loop.last else '')",
            "",
            "'<|s|>assistant:\n<t>\n'",
            "<|s|>user:\nHi‹<|e|>›¦<|s|>assistant:\n⟨So.‹<|e|>›¦<|s|>user:\nBye‹<|e|>›¦<|s|>assistant:\n<t>\n⟦Hm.So.‹<|e|>›¦",
            [3],
        ),
        (
            CALLS,
            "",
            "'<|e|>' if m.role == 'assistant' else ']'",
            "",
            "<|s|>user: Hi]¦<|s|>assistant: ⟦[f]‹<|e|>›¦<|s|>tool: 4]¦<|s|>assistant: ⟦Four.‹<|e|>›¦",
            [1, 3],
        ),
        (
            NAMED,
            "(messages|length|string if loop.first else '') + '<|s|>' + m.role + (' ' + m.name if m.name else '') + ': '",
            "",
            "",
            "4<|s|>user: Hi‹<|e|>›¦<|s|>assistant Ann: ⟨So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant Ann: ⟨Hm.So.‹<|e|>›¦",
            [],
        ),
        (
            TWO,
            "'<|s|>' + m.role + ':\n' + ('<t>\n' if m.role == 'assistant' else '')",
            "",
            "'<|s|>assistant:\n<t>\n\n</t>\n'",
            "<|s|>user:\nHi‹<|e|>›¦<|s|>assistant:\n⟨<t>\nSo.‹<|e|>›¦<|s|>user:\nBye‹<|e|>›¦<|s|>assistant:\n⟨<t>\nHm.So.‹<|e|>›¦",
            [],
        ),
        (chat(user("Hi"), says("@1.png", "So.")), "", "", "", "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟦<img>So.‹<|e|>›¦", [1]),
        (CALLED, "", "'|' if not loop.last else ''", "", "<|s|>user: Hi¦|<|s|>assistant: ⟨Wait.[f]¦|<|s|>user: Bye¦", []),
        (
            CALLS,
            "",
            "'\n' if not loop.last else ''",
            "",
            "<|s|>user: Hi¦\n‹<|s|>›assistant: ⟨[f]¦\n‹<|s|>›tool: 4¦\n‹<|s|>›assistant: ⟨Four.¦",
            [],
        ),
        (CALLS, "", "", "", "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟦[f]‹<|e|>›¦<|s|>tool: 4‹<|e|>›¦<|s|>assistant: ⟦Four.‹<|e|>›¦", [1, 3]),
        (TWO, "", "", "", "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟨So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant: ⟦Hm.So.‹<|e|>›¦", [1, 3]),
        (
            CALLS,
            "",
            "",
            "''",
            "<|s|>user: Hi‹<|e|>›¦⟨<|s|>assistant: [f]‹<|e|>›¦<|s|>tool: 4‹<|e|>›¦<|s|>assistant: Four.‹<|e|>›¦",
            [1, 2, 3],
        ),
        (
            CALLS,
            "",
            "(']' if m.role != 'assistant' else '') + '<|e|>'",
            "",
            "<|s|>user: Hi]‹<|e|>›¦<|s|>assistant: ⟦[f]‹<|e|>›¦<|s|>tool: 4]‹<|e|>›¦<|s|>assistant: ⟦Four.‹<|e|>›¦",
            [1, 3],
        ),
        (
            CALLS,
            "",
            "' <|e|>\n'",
            "",
            "<|s|>user: Hi ‹<|e|>›¦\n<|s|>assistant: ⟦[f] ‹<|e|>›¦\n<|s|>tool: 4 ‹<|e|>›¦\n<|s|>assistant: ⟦Four. ‹<|e|>›¦\n",
            [1, 3],
        ),
        (CALLS, "", "''", "", "<|s|>user: Hi‹¦<|s|>›assistant: ⟦[f]‹¦<|s|>›tool: 4‹¦<|s|>›assistant: ⟦Four.¦", [1, 3]),
        (
            CALLS,
            "",
            "'<|e|>' if not loop.last else '<|end|>'",
            "",
            "<|s|>user: Hi‹¦<|e|>›<|s|>assistant: ⟨[f¦]‹<|e|>›<|s|>tool: 4‹¦<|e|>›<|s|>assistant: ⟨Four.‹<|end|>›¦",
            [],
        ),
        (
            CALLS,
            "",
            "'<|e|><|end|>'",
            "",
            "<|s|>user: Hi‹<|e|><|end|>›¦<|s|>assistant: ⟦[f]‹<|e|><|end|>›¦<|s|>tool: 4‹<|e|><|end|>›¦<|s|>assistant: ⟦Four.‹<|e|><|end|>›¦",
            [1, 3],
        ),
        (
            CALLS,
            "",
            "'<|e|>' if not loop.last else ''",
            "",
            "<|s|>user: Hi‹¦<|e|>›<|s|>assistant: ⟨[f]‹¦<|e|>›<|s|>tool: 4‹¦<|e|>›<|s|>assistant: ⟨Four.¦",
            [],
        ),
        (
            NAMED,
            "'<|s|>' + m.role + (' ' + m.name if m.name else '') + ': '",
            "",
            "",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant Ann: ⟨So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant Ann: ⟨Hm.So.‹<|e|>›¦",
            [],
        ),
        (
            NAMED,
            "'<|s|>' + m.role + ('\nfrom ' + m.name if m.name else '') + ': '",
            "",
            "",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant\nfrom Ann: ⟨So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant\nfrom Ann: ⟨Hm.So.‹<|e|>›¦",
            [],
        ),
        (
            NAMED,
            "'<|s|>' + m.role + ': ' + (m.name + '> ' if m.name else '')",
            "",
            "",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟨Ann> So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant: ⟦Ann> Hm.So.‹<|e|>›¦",
            [1, 3],
        ),
        (
            TWO,
            "'<|s|>' + m.role + ': ' + ('<t>' if m.role == 'assistant' and loop.index > 2 else '')",
            "",
            "'<|s|>assistant: ' + ('<t>' if messages|length > 2 else '')",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: ⟨So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant: <t>⟦Hm.So.‹<|e|>›¦",
            [1, 3],
        ),
        (
            TWO,
            "'<|s|>' + m.role + ': ' + ('<t>' if m.role == 'assistant' and loop.index < 3 else '')",
            "",
            "'<|s|>assistant: ' + ('<t>' if messages|length < 3 and not loop else '')",
            "<|s|>user: Hi‹<|e|>›¦<|s|>assistant: <t>⟨So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>assistant: ⟦Hm.So.‹<|e|>›¦",
            [1, 3],
        ),
        (
            TWO,
            "'<|s|>' + (m.role if not m.reasoning_content else 'assistive') + ': '",
            "",
            "",
            "<|s|>user: Hi‹<|e|>›¦<|s|>⟨assistive: So.‹<|e|>›¦<|s|>user: Bye‹<|e|>›¦<|s|>⟨assistive: Hm.So.‹<|e|>›¦",
            [],
        ),
    ],
)
def test_where_turns_begin_and_end(sample: Sample, head: str, end: str, prompt: str, shows: str, served: list[int]) -> None:
    """Answers begin at ``⟦``, or at ``⟨`` where the prefix property does not say so; stops are in ``‹ ›``, and what is written for a turn ends at ``¦``."""
    parts = {"HEAD": head or "'<|s|>' + m.role + ': '", "END": end or "'<|e|>'", "PROMPT": prompt or "'<|s|>assistant: '"}
    source = WRITES
    for name, written in parts.items():
        source = source.replace(name, written)
    whole = Rebuilder(template(source, image="<img>")).rebuild(sample)
    blocks, marks = whole.shape.blocks, list[tuple[int, str]]()
    for block, after, border in zip(blocks, [*blocks[1:], None], whole.shape.borders, strict=True):
        marks += [(border.start, "⟦" if border.by_prefix else "⟨")] if border.start is not None else []
        marks += zip(border.stop or (), "‹›", strict=False)
        marks.append((whole.shape.closed(block, after), "¦"))
    made = {whole.real(at): "".join(mark for place, mark in marks if place == at) for at, _ in marks}
    assert "".join(made.get(at, "") + whole.text[at : at + 1] for at in range(len(whole.text) + 1)) == shows
    assert [turn for turn in range(1, len(sample.turns)) if whole.served(turn)] == served


@pytest.mark.parametrize("no_content", ["text", "null", "absent"])
def test_a_call_with_its_id_beside_a_text(no_content: str) -> None:
    call = {"id": "c1", "name": "f", "arguments": "so"}
    asked = Turn("assistant", (Region("text", "Wait."), Region("tool_call", json.dumps(call))))
    for arguments in ("text", "object"):
        messages, slots = slotted(chat(asked), MessageForm(no_content=no_content, arguments=arguments), {})
        function = {"name": "f", "arguments": "so"}
        assert messages == [
            {"role": "assistant", "content": "Wait.", "tool_calls": [{"type": "function", "id": "c1", "function": function}]}
        ]
        assert [(slot.text, slot.parts) for slot in slots] == [("Wait.", ((0, 0, 5),)), ("f", ((1, 0, 1),)), ("so", ((1, 0, 2),))]


def test_a_template_with_tags_of_its_own_is_rendered_again() -> None:
    sample = chat(user("Hi"), says("Hello."))
    rebuilder = Rebuilder(template(MARKS))
    found = rebuilder.rebuild(sample)
    assert found.tagged == rebuilder.rebuild(sample, rendered=found.text).tagged == ((10, 12), (33, 39))


@pytest.mark.parametrize(
    ("arguments", "sorted"),
    [
        ("a | dictsort", True),
        ("a.items()", False),
        ("[('zqfirst', 1)]", False),
        ("[('zqlast', 1)]", False),
        ("raise_exception('no')", False),
    ],
)
def test_whether_a_template_sorts_the_arguments_of_a_call(arguments: str, sorted: bool) -> None:
    each = "{%- set a = call.function.arguments -%}{%- for pair in ARGUMENTS -%}{{- pair[0] -}}{%- endfor -%}".replace(
        "ARGUMENTS", arguments
    )
    source = (
        "{%- for m in messages -%}{%- for call in m.tool_calls or [] -%}" + each + "{%- endfor -%}{{- m.content or '' -}}{%- endfor -%}"
    )
    for written in (source, source.replace("{{- m.content or '' -}}", "")):
        assert sorts_arguments(template(written)) is sorted


class Written:
    """Two implementations of a format that code writes, and what was asked of the second."""

    def __init__(self, error: str = "", other: str = "") -> None:
        self.error, self.other, self.asked = error, other, list[Any]()

    def render_again(self, messages: Any, tools: Any, options: Any, prompted: bool) -> str:
        if self.error:
            raise ZeroDivisionError(self.error)
        self.asked.append((tools, options, prompted))
        return "".join(f"<|s|>{message['content']}<|e|>" for message in messages) + self.other + "<|s|>" * prompted

    def generated(self, messages: Any, tools: Any, options: Any, prompted: bool) -> tuple[tuple[int, int], ...]:
        assert (tools, options, prompted) == self.asked[0]
        return ((len(messages), len(messages) + 1),)


def test_a_chat_that_code_writes() -> None:
    sample = chat(user("Hi"), says("Hello."), tools=({"name": "f"},), template_options={"mode": "m"})

    def rebuilder(renderer: Written) -> Rebuilder:
        return Rebuilder(replace(template(), renderer=cast(Any, renderer), options={"mode": "x", "day": 1}))

    text = "<|s|>Hi<|e|><|s|>Hello.<|e|>"
    for prompted, rendered in ((False, None), (False, text), (True, text + "<|s|>")):
        found = rebuilder(renderer := Written()).rebuild(sample, prompted=prompted, rendered=rendered)
        assert (found.text, found.tagged) == (text + "<|s|>" * prompted, ((2, 3),))
        assert renderer.asked == [([{"name": "f"}], {"mode": "m", "day": 1}, prompted)] * 2, "it, and one of invented words"
    with pytest.raises(ImplementationsDiffer) as differ:
        rebuilder(Written(other="?")).rebuild(sample, rendered=text)
    assert str(differ.value) == f"two renders of it differ: …{text[8:]!r}…, …{f'{text}?'[8:]!r}…"
    with pytest.raises(CheckFailed) as raised:
        rebuilder(Written("no " * 200)).rebuild(sample)
    assert str(raised.value) == f"template own: ZeroDivisionError: {'no ' * 100}, so nothing is proven"


def test_another_render_than_that_of_the_build() -> None:
    """Both are told, 20 characters before the place where they part and 40 behind."""
    longer = "#user: Hi" + "y" * 50
    for rendered, told, own in (
        ("#user: Ho!", "#user: Ho!", "#user: Hi"),
        ("", "", "#user: Hi"),
        (longer, longer[:49], "#user: Hi"),
    ):
        with pytest.raises(RendersDiffer) as raised:
            Rebuilder(template("{{- '#user: ' + messages[0].content -}}")).rebuild(chat(user("Hi")), rendered=rendered)
        assert str(raised.value) == f"two renders of it differ: …{told!r}…, …{own!r}…"


def test_a_prompted_chat_that_cannot_be_taken_apart_is_rendered_alike() -> None:
    shouts = Rebuilder(template(PLAIN.replace("+ m.content", "+ (m.content | upper)")))
    with pytest.raises(CheckFailed, match="depends on the content") as raised:
        shouts.rebuild(chat(user("Hi")), prompted=True, rendered="<|s|>user\nHI<|e|>\n<|s|>assistant\n")
    assert type(raised.value) is CheckFailed


@pytest.mark.parametrize(
    ("keeps", "margins"),
    [
        ("m.content", {0: (2, 1), 1: (3, 2), 2: (1, 0), 3: (0, 1)}),
        ("(m.content | trim)", dict.fromkeys(range(4), (0, 0))),
        ("m.content.lstrip()", {0: (0, 1), 1: (0, 2), 2: (0, 0), 3: (0, 1)}),
        ("m.content.rstrip()", {0: (2, 0), 1: (3, 0), 2: (1, 0), 3: (0, 0)}),
    ],
)
def test_white_space_around_texts_that_a_template_keeps(keeps: str, margins: dict[int, tuple[int, int]]) -> None:
    talk = chat(user("  Hi "), says(" \n So.  "), user(" Bye"), says("Ciao.\n"))
    assert Rebuilder(template(PLAIN.replace("+ m.content", f"+ {keeps}"))).rebuild(talk).shape.margins == margins


def test_control_tokens_that_begin_alike() -> None:
    found = Rebuilder(template(control=("<a>", "<a", "<a>b"))).tokens("<a>b<a><a")
    assert found == [(0, 4), (4, 7), (7, 9)]
    assert Rebuilder(template(control=())).tokens("<a>") == []


def test_an_answer_whose_header_nothing_shows() -> None:
    """It is its own text; of one that begins with reasoning nothing is proven, as what opens it may be the model's."""
    source = BRACKETS.replace("m.content", "(m.reasoning_content or '') + m.content + ';'") + ASKS_ON.replace("<|s|>assistant\n", "#")
    rebuilder = Rebuilder(template(source))
    shape = rebuilder.rebuild(chat(user("Hi"), says("Hello."))).shape
    assert [(border.start, border.by_prefix) for border in shape.borders] == [(None, False)] * 2
    with pytest.raises(CheckFailed, match=r"^nothing in the render says where turn 1 begins, so nothing is proven$"):
        assert rebuilder.rebuild(chat(user("Hi"), says("~Hm.", "Hello."))).shape.borders
