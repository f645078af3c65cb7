"""Layouts give what the template itself renders, with the same spans and stops, or know nothing; and what a template asks about texts is noted."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, SYSTEM, USER, PlainChat
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.layouts import outline, plain_chat
from prep_assets.templates.load import load_template, named_templates
from prep_assets.templates.questions import _apart, word
from prep_assets.templates.rendering import render
from prep_assets.templates.search import Search
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import SHIPPED, bind, bind_source

EDGES = st.text(" \n\t\r\x0b\x1c\x85\u00a0\u2003", max_size=3)
TYPED = ["<|im_end|>", "</think>", "<think>", "[INST]", "<tool_response>", "</s>", "### Response:", "<|user|>", "user", "assistant"]
WORDS = st.text(max_size=12) | st.sampled_from(TYPED) | st.text("aé中😀 \n{%}'\"\\<|>", max_size=8)
TEXTS = st.tuples(EDGES, WORDS, EDGES).map("".join)
ROUNDS = [(USER, ASSISTANT) * count for count in (1, 2, 4)]
FORMS = [
    *ROUNDS,
    *((SYSTEM, *roles) for roles in ROUNDS),
    (USER,),
    (USER, USER, ASSISTANT),
    (ASSISTANT, USER, ASSISTANT),
    (PROMPT, COMPLETION),
]


@st.composite
def plain_chats(draw: st.DrawFn) -> PlainChat:
    roles = draw(st.sampled_from(FORMS))
    return PlainChat(roles, tuple(draw(st.lists(TEXTS, min_size=len(roles), max_size=len(roles)))))


def by_layout(template: ChatTemplate, chat: PlainChat) -> bool:
    """Whether the layout writes a chat; where it does, it must be what the template renders."""
    layout = template.layouts.of(chat.roles)
    if layout is None or any(not text.strip() for text in chat.texts) or Search(template.layouts.needles).suspects([chat]):
        return False
    if not layout.keeps_edges and any(text != text.strip() for text in chat.texts):
        return False
    found, expected = layout.render(chat.texts), render(chat.sample(), template)
    assert outline(found) == outline(expected)
    return True


@pytest.mark.parametrize("name", sorted(named_templates()))
def test_shipped(name: str) -> None:
    template = bind(SHIPPED, name).template

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(plain_chats())
    def check(chat: PlainChat) -> None:
        by_layout(template, chat)

    check()
    assert by_layout(template, PlainChat((USER, ASSISTANT, USER, ASSISTANT), ("Hi", "Hello!", "How are you?", "Well.")))


def test_published(real_data: Path) -> None:
    sources = sorted((real_data / "chat_templates" / "trl").glob("*.jinja"))
    templates = [replace(bind_source(source.read_text("utf-8")).template, name=source.stem) for source in sources]

    @settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(templates), plain_chats())
    def check(template: ChatTemplate, chat: PlainChat) -> None:
        by_layout(template, chat)

    check()
    known = [by_layout(template, PlainChat((USER, ASSISTANT), ("Hi", "Hello!"))) for template in templates]
    assert sum(known) >= len(templates) - 3


@pytest.mark.parametrize(
    "asks",
    [
        "{{ m.content if m.content | length < 40 else 'long' }}",
        "{{ m.content[:20] }}",
        "{{ m.content | upper }}",
        "{{ m.content if m.content == m.content | lower else '' }}",
        "{{ m.content.split()[0] }}",
        "{{ m.content if m.content < 'w' else 'x' }}",
        "{% for c in m.content %}{{ c }}{% endfor %}",
        "{{ '%20s' % m.content }}",
        "{{ m.content.replace(' ', '_') }}",
        "{{ m.content.strip('.') }}",
        "{{ [m.content] }}",
        "{{ m.content if loop.changed(m.content) else '' }}",
        "{{ m.content if m != messages[0] else 'first' }}",
        "{{ m.content if ('a' + m.content) is in ['ab'] else 'no' }}",
        "{{ m.content if m.content | length > 1 else 'short' }}",
        "{{ m.content if m.content | length != 3 else 'three' }}",
        "{{ m.content if 5 < m.content | length else 'short' }}",
        "{{ m.content if m.content | length == true else 'one' }}",
        "{{ m.content if m.content | length is even else 'odd' }}",
        "{{ m.content }}{{ m.content | length }}",
        "{{ m.content if (m.content | length) is number else '' }}",
        "{{ m.content }}{{ messages[:m.content | length] | length }}",
        "{{ m.content }}{{ 'x' if m.content | length + 1 > 5 }}",
        "{{ 'x' if '<think>' in '<th' ~ m.content else m.content }}",
        "{{ 'x' if 'a>' in m.content ~ '>' else m.content }}",
        "{{ 'x' if 'a-b' in m.content ~ '-' ~ m.content else m.content }}",
        "{{ 'x' if 'needle' in messages[0].content ~ messages[1].content else m.content }}",
        "{{ 'x' if '<a>' ~ m.content == '<a>b' else m.content }}",
        "{{ m.content }}{{ (m.content ~ '<a>').find('<a>') }}",
    ],
)
def test_what_other_texts_may_answer_otherwise_leaves_the_template_in_charge(asks: str) -> None:
    template = ChatTemplate("asking", "{% for m in messages %}" + asks + "{{ eos_token }}{% endfor %}", {"eos_token": "</s>"})
    assert template.layouts.of((USER, ASSISTANT)) is None


@pytest.mark.parametrize(
    ("asks", "needle"),
    [
        ("{{ 'x' if 'needle' in m.content else m.content }}", "needle"),
        ("{{ 'x' if m.content.startswith('needle') else m.content }}", "needle"),
        ("{{ m.content.split('needle')[-1] }}", "needle"),
        ("{{ m.content | replace('needle', 'x') }}", "needle"),
        ("{{ 'x' if m.content | trim == 'needle' else m.content }}", "needle"),
        ("{{ 'x' if m.content in ['needle', 'thread'] else m.content }}", "thread"),
        ("{% macro shown(text) %}{{ 'x' if 'needle' in text else text }}{% endmacro %}{{ shown(m.content) }}", "needle"),
        ("{{ m.content if m.content | trim | length > 0 and '<a>' in '<a></a>' ~ m.content else 'x' }}", "<a>"),
        ("{{ ('<a>' ~ m.content ~ '<b>').split('</a>')[-1] }}", "</a>"),
        ("{{ m.content if 0 < ('<a>' ~ m.content) | length and '>' in m.content ~ '>' else 'x' }}", ">"),
        ("{% set text %}{{ m.content }}{% endset %}{{ 'x' if 'needle' in text else text }}", "needle"),
    ],
)
def test_what_a_template_searches_for_is_noted(asks: str, needle: str) -> None:
    template = ChatTemplate("asking", "{% for m in messages %}" + asks + "{{ eos_token }}{% endfor %}", {"eos_token": "</s>"})
    assert template.layouts.of((USER, ASSISTANT)) is not None
    assert needle in template.layouts.needles
    assert not by_layout(template, PlainChat((USER, ASSISTANT), ("Hi", f"a {needle} in hay")))


PIECES = st.text("ab<", max_size=4)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.text("ab<", min_size=1, max_size=4), st.lists(PIECES, min_size=2, max_size=4), st.lists(PIECES.filter(bool), min_size=4, max_size=4)
)
def test_what_is_apart_from_texts_is_found_in_fixed_parts_alone(needle: str, fixed: list[str], texts: list[str]) -> None:
    words = [word(number) for number in range(len(fixed) - 1)]
    value = "".join(chain.from_iterable(zip_longest(fixed, words, fillvalue="")))
    other = "".join(chain.from_iterable(zip_longest(fixed, texts[: len(words)], fillvalue="")))
    if _apart(needle, value) and not any(needle in text for text in texts):
        assert other.split(needle) == [part.replace("\0", "") for part in _with(value, words, texts).split(needle)]


def _with(value: str, words: list[str], texts: list[str]) -> str:
    """A value with its texts set apart from what stands beside them."""
    for each, text in zip(words, texts, strict=False):
        value = value.replace(each, f"\0{text}\0")
    return value


def test_white_space_that_only_some_templates_strip_is_not_guessed() -> None:
    template = ChatTemplate(
        "lines", "{% for m in messages %}{{ m.content.strip('\\n') }}{{ eos_token }}{% endfor %}", {"eos_token": "</s>"}
    )
    layout = template.layouts.of((USER, ASSISTANT))
    assert layout is not None
    assert not layout.keeps_edges


def test_what_becomes_of_white_space_is_learned_when_it_is_asked_for() -> None:
    source = "{% for m in messages %}{{ m.content | trim }}{{ eos_token }}{% endfor %}"
    layouts = ChatTemplate("trims", source, {"eos_token": "</s>"}).layouts
    bare = layouts.of((USER, ASSISTANT), spaced=False)
    assert bare is not None and not bare.keeps_edges
    full = layouts.of((USER, ASSISTANT))
    assert full is not None and full == replace(bare, trims=((True, True),) * 2, keeps_edges=True)
    assert layouts.of((USER, ASSISTANT), spaced=False) is full


def test_a_plain_chat_is_its_sample(tmp_path: Path) -> None:
    chat = PlainChat((SYSTEM, USER, ASSISTANT), ("Be short.", "Hi", "Hello"))
    assert plain_chat(chat.sample()) == chat
    assert plain_chat(replace(chat.sample(), tools=({"name": "add"},))) is None
    with pytest.raises(Refused):
        render(chat.sample(), load_template("gemma", bind(SHIPPED, "gemma").vocabulary))
