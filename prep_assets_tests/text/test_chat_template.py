"""Chat templates: loading, rendering as transformers does, what they run in, and what a template cannot do."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, Refused, TemplateError
from prep_assets.proofs.certificate import form_again
from prep_assets.samples import Sample, turn
from prep_assets.text import minijinja_blocks as blocks
from prep_assets.text import template as template_module
from prep_assets.text.conversation import strings
from prep_assets.text.environment import FROZEN_CLOCK, MessageForm
from prep_assets.text.load_template import load_template, named_templates
from prep_assets.text.minijinja_blocks import END, Spelled, blocks_of, only_writes
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate
from prep_assets.text.template_options import effective, without_effect
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.cells import cells
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.effort import examples

# Chat templates: loading, rendering as transformers does, and what a template cannot do.


CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]


def own(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate("own", source, {"eos_token": "</s>"}, options)


@pytest.fixture(scope="module")
def reference() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(CONFIGS / "tokenizer")


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(max_size=12)), min_size=1, max_size=4), st.booleans())
def test_renders_are_those_of_transformers(reference: Any, vocabulary: Vocabulary, chat: list[tuple[str, str]], prompt: bool) -> None:
    messages = [{"role": role, "content": content} for role, content in chat]
    for name in ("plain", "chatml", "tokenizer"):
        template = load_template(name, vocabulary)
        options = {"tokenize": False, "add_generation_prompt": prompt, "chat_template": template.source}
        assert template.render(messages, generation_prompt=prompt) == reference.apply_chat_template(messages, **options)


# loading


def test_a_file_is_found_beside_the_configuration(tmp_path: Path, vocabulary: Vocabulary) -> None:
    (tmp_path / "mine.jinja").write_text("{{ messages[0].content }}é", "utf-8")
    assert load_template("mine.jinja", vocabulary, base=tmp_path).render(CHAT) == "Hié"


def test_options_and_special_tokens_reach_the_template(vocabulary: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{{ eos_token }}{{ enable_thinking }}{{ tools }}{{ documents }}")
    template = load_template("mine.jinja", vocabulary, base=tmp_path, options={"enable_thinking": False})
    assert template.render(CHAT) == "<|endoftext|>FalseNoneNone"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chatlm", r"no chat template 'chatlm'; did you mean 'chatml'\?.*Known: tokenizer, .*chatml.*plain.*\.jinja"),
        ("zzz", r"no chat template 'zzz'\. Known: tokenizer, "),
        ("mine.jinja", r"no chat template at .*/mine\.jinja"),
    ],
)
def test_no_such_template(tmp_path: Path, vocabulary: Vocabulary, name: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        load_template(name, vocabulary, base=tmp_path)


def test_a_tokenizer_without_a_template(vocabulary: Vocabulary) -> None:
    with pytest.raises(TemplateError, match=r"tokenizer tokenizer has no chat template; name one of: .*chatml.*plain"):
        load_template("tokenizer", replace(vocabulary, chat_template=None))


def test_a_template_that_is_no_jinja_says_where() -> None:
    with pytest.raises(TemplateError, match="chat template own: line 2: "):
        own("{% for m in messages %}\n{% endif %}").render(CHAT)


# identity


def test_the_hash_is_of_what_decides_the_render(vocabulary: Vocabulary) -> None:
    template = own("a", flag=True)
    assert replace(template, name="other").hash == template.hash
    others = [replace(template, source="b"), replace(template, special={"eos_token": "<end>"}), replace(template, options={"flag": False})]
    assert len({template.hash, *(other.hash for other in others)}) == 4


def test_the_clock_stands_still() -> None:
    """On any day the render is that of one day."""
    template = own("{{ strftime_now('%d %B %Y, %H:%M') }}")
    assert template.render(CHAT) == FROZEN_CLOCK.strftime("%d %B %Y, %H:%M") == "26 July 2024, 00:00"


# what a template cannot do


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ strftime_now.__self__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ messages | attr('__class__') }}",
    ],
)
def test_attributes_are_out_of_reach(source: str) -> None:
    try:
        assert own(source).render(CHAT) == ""
    except Refused as refusal:
        assert refusal.reason == "template_refuses"


@pytest.mark.parametrize("source", ["{{ messages.append(1) }}", "{{ messages[0].update({'role': 'x'}) }}", "{{ messages[0].pop('role') }}"])
def test_messages_cannot_be_changed(source: str) -> None:
    chat = [dict(message) for message in CHAT]
    with pytest.raises(Refused, match="template_refuses"):
        own(source).render(chat)
    assert chat == CHAT


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[9].content }}",
        "{{ 1 / 0 }}",
        "{{ messages[0]['content'].nothing() }}",
        "{{ range(10 ** 9) }}",
        "{{ 'x' | int('y', base=99) }}{{ messages[0].content.index('zzz') }}",
    ],
)
def test_whatever_fails_inside_a_template_is_about_the_record(source: str) -> None:
    with pytest.raises(Refused, match="template_refuses: template own: ") as caught:
        own(source).render(CHAT)
    assert caught.value.stage == "render"
    assert str(caught.value).endswith("; take a template that writes such a chat, or leave it out")


# what a model continues from, and where it stops


@pytest.mark.parametrize(
    ("name", "prompt", "stop"),
    [
        ("plain", "<|assistant|>\n", "<|endoftext|>"),
        ("chatml", "<|im_start|>assistant\n", "<|im_end|>"),
        ("tokenizer", "<|im_start|>assistant\n", "<|im_end|>"),
    ],
)
def test_generation_prompt_and_stop_token(vocabulary: Vocabulary, name: str, prompt: str, stop: str) -> None:
    template = load_template(name, vocabulary)
    assert (template.generation_prompt, template.stop_token) == (prompt, stop)


def test_a_template_without_either(vocabulary: Vocabulary) -> None:
    template = replace(load_template("chatml", vocabulary), source="{% for m in messages %}{{ m.content }}\n{% endfor %}")
    assert (template.generation_prompt, template.stop_token) == ("", "")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ messages[0].content }}\n{{ raise_exception('no such role') }}", "line 2: no such role"),
        ("\n\n{{ messages[0].nothing.at_all }}", "line 3: 'dict object' has no attribute 'nothing'"),
        ("{{ messages[0].content + 1 }}", "line 1: can only concatenate str"),
    ],
)
def test_a_refusal_says_the_line_of_the_template(source: str, says: str) -> None:
    with pytest.raises(Refused, match="template own: ") as caught:
        own(source).render(CHAT)
    assert says in caught.value.detail


def test_a_refusal_keeps_nothing_that_its_callers_have_open() -> None:
    """A store that is open keeps its version from being deleted."""

    class Store: ...

    def caller() -> ReferenceType[Store]:
        store = Store()
        with suppress(Refused):
            own("{{ raise_exception('no') }}").render(CHAT)
        return ref(store)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["enable_thinkin", "tools", "strftime_now"])
def test_an_option_that_the_template_does_not_read_stops_the_build(vocabulary: Vocabulary, name: str) -> None:
    """A misspelt option was passed on, and ignored."""
    with pytest.raises(TemplateError, match=f"template_options: template qwen3 does not read '{name}'.*It reads: .*enable_thinking"):
        load_template("qwen3", vocabulary, options={name: False})
    assert load_template("qwen3", vocabulary, options={"enable_thinking": False}).options


SETS = (
    "{% if messages[0].role == 'system' %}{% set system_message = messages[0].content %}{% else %}{% set system_message = '' %}{% endif %}"
    "{{ system_message }}{% if tools %}{{ style | default('plain') }}{% endif %}"
    "{% for m in messages %}{{ m.content }}{% if terse is defined and terse is true %}!{% endif %}{% endfor %}"
)
"""A template that sets `system_message` in both branches; `style` counts with tools only."""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"system_message": "Be brief."}, "template own sets 'system_message' itself.* It reads: style, terse$"),
        ({"sytle": "x"}, "template own does not read 'sytle'; did you mean 'style'.* It reads: style, terse$"),
        ({"system_mesage": "x"}, r"does not read 'system_mesage'\. It reads: style, terse$"),
        ({"terse": "true"}, "takes 'terse' as true or false, and 'true' is text, which changes nothing"),
        ({"style": "x", "terse": True}, ""),
        ({"terse": False, "style": "plain"}, ""),  # the defaults
    ],
)
def test_an_option_that_changes_no_render_is_named(options: dict[str, Any], says: str) -> None:
    found = without_effect(own(SETS), options)
    assert re.search(says, found) if says else not found


def test_options_of_trls_templates(real_data: Path, vocabulary: Vocabulary) -> None:
    """By hand, from the text of each template: the options that its authors document in it."""
    wanted = {
        "llama3_1": ["builtin_tools", "custom_tools", "date_string", "tools_in_user_message"],
        "qwen3": ["enable_thinking"],
        "qwen3_6": ["add_vision_id", "enable_thinking", "preserve_thinking"],
        "gptoss": ["builtin_tools", "model_identity", "reasoning_effort"],
        "nemotron_3_super": ["enable_thinking", "low_effort", "truncate_history_thinking"],
        "gemma3": [],
    }
    for name, options in wanted.items():
        template = load_template(str(real_data / "chat_templates" / "trl" / f"{name}.jinja"), vocabulary)
        assert list(effective(template)) == options


def test_variables_are_those_that_change_a_render(vocabulary: Vocabulary, tmp_path: Path) -> None:
    source = (
        "{% set a = 1 %}{% if b is not defined %}{% set b = 2 %}{% endif %}{{ a }}{{ b }}{{ c }}{{ eos_token }}{{ strftime_now('%Y') }}"
        "{% for m in messages %}{% generation %}{{ m.content ~ d }}{% endgeneration %}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
    )
    (tmp_path / "mine.jinja").write_text(source, "utf-8")
    template = load_template("mine.jinja", vocabulary, base=tmp_path)
    assert template.variables == {"b", "c", "d", "eos_token"}
    plain = template.render(CHAT)
    assert [name for name in "abcd" if template.with_options({name: "X"}).render(CHAT) != plain] == ["b", "c", "d"]


def test_a_row_with_an_option_that_the_template_does_not_read_is_refused(vocabulary: Vocabulary) -> None:
    template, turns = load_template("qwen3", vocabulary), (turn("user", "1?"), turn("assistant", "1."))
    plain = render(Sample(turns), template)
    assert render(Sample(turns, template_options={"enable_thinking": None, "other": None}), template) == plain
    with pytest.raises(Refused, match=r"unknown_template_option: chat_template_kwargs: .*'enable_thinkin'; did you mean 'enable_thinking'"):
        render(Sample(turns, template_options={"enable_thinkin": True}), template)


@pytest.mark.parametrize("source", ["{{ " + "[" * 30_000, "{% if a %}" * 3000, "{{ " + "not " * 20_000 + "a }}"])
def test_a_template_that_is_nested_too_deeply_is_told_in_words(vocabulary: Vocabulary, tmp_path: Path, source: str) -> None:
    (tmp_path / "deep.jinja").write_text(source)
    with pytest.raises(TemplateError, match=r"chat template deep\.jinja"):
        load_template("deep.jinja", vocabulary, base=tmp_path, options={"a": 1})


def test_a_template_file_that_is_no_text_is_told_in_words(vocabulary: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "raw.jinja").write_bytes(b"{{ messages }}\xff")
    with pytest.raises(ConfigError, match=r"raw.jinja: byte 14 is not UTF-8"):
        load_template("raw.jinja", vocabulary, base=tmp_path)


# What templates run in: the form of messages that a template reads, and MiniJinja beside Jinja.


EACH = "{% for m in messages %}<|{{ m.role }}|>"
LAST = "<|end|>{% endfor %}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}ARGUMENTS{% endfor %}"

SMALL = {
    "text": (EACH + "{{ m.content }}" + LAST, MessageForm()),
    "parts": (EACH + "{% for p in m.content %}{{ p.text }}{% endfor %}" + LAST, MessageForm(content="parts")),
    "images": (
        EACH + "{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' if p.type == 'image' else '' }}{% endfor %}" + LAST,
        MessageForm(content="parts", image_parts=True),
    ),
    "thinking": (EACH + "{{ m.thinking }}{{ m.content }}" + LAST, MessageForm(reasoning="thinking", shows_reasoning=True)),
    "reasoning": (EACH + "{{ m.reasoning }}{{ m.content }}" + LAST, MessageForm(reasoning="reasoning", shows_reasoning=True)),
    "both keys": (EACH + "{{ m.thinking or m.reasoning_content }}{{ m.content }}" + LAST, MessageForm(shows_reasoning=True)),
    "mapping": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + LAST,
        MessageForm(shows_calls=True),
    ),
    "arguments as text": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}") + LAST,
        MessageForm(shows_calls=True, arguments="text"),
    ),
    "a mapping written as Python writes it": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments }}") + LAST,
        MessageForm(shows_calls=True, arguments="text"),
    ),
    "null beside calls": (
        EACH
        + "{% if m.content is none %}"
        + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
        + "{% else %}{{ m.content }}{% endif %}"
        + LAST,
        MessageForm(shows_calls=True, no_content="null"),
    ),
    "ids": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}{{ c.id }}") + LAST,
        MessageForm(shows_calls=True),
    ),
    "ids or nothing": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}{{ '' + c.id }}") + LAST,
        MessageForm(shows_calls=True),
    ),
    "calls beside tools": (
        EACH + "{{ m.content }}{% if tools %}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + "{% endif %}" + LAST,
        MessageForm(shows_calls=True),
    ),
    "no content beside calls": (
        EACH
        + "{% if 'content' not in m %}"
        + CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}")
        + "{% else %}{{ m.content }}{% endif %}"
        + LAST,
        MessageForm(shows_calls=True, arguments="text", no_content="absent"),
    ),
    "tools alone": ("{{ tools }}" + EACH + "{{ m.content }}" + LAST, MessageForm()),
    "documents": ("{{ documents | tojson }}" + EACH + "{{ m.content }}" + LAST, MessageForm(shows_documents=True)),
    "a list written as JSON": (EACH + "{{ m.content if m.content is string else m.content | tojson }}" + LAST, MessageForm()),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_templates(name: str) -> None:
    source, form = SMALL[name]
    template = ChatTemplate(name, source, {})
    assert template.form == form and form_again(template).items() <= asdict(form).items()


# MiniJinja renders a block of conversations as Jinja renders each, or is not asked.

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CALL: dict[str, Any] = {"type": "function", "function": {"name": "get", "arguments": {"b": 1, "a": ["é<", None, True, 1.5e-7], "c": 'x"'}}}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": "get", "description": "Reads <it>.", "parameters": {"type": "object", "properties": {"é": {}}}},
    }
]
HI, WELL, BYE = (
    {"role": "user", "content": "Hi  \n"},
    {"role": "assistant", "content": "Well, 'é' <b>"},
    {"role": "user", "content": " Bye"},
)
CHATS: list[list[dict[str, Any]]] = [
    [HI],
    [HI, WELL],
    [{"role": "system", "content": "Be short"}, HI, WELL, BYE, WELL],
    [
        HI,
        {"role": "assistant", "content": "Look:", "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "content": "ok"},
        WELL,
    ],
    [HI, WELL, BYE, {"role": "assistant", "content": "<think>\nHm\n</think>\n\nSo"}],
]


def agrees(template: ChatTemplate) -> int:
    """How many conversations MiniJinja renders, all of them as Jinja does."""
    found, count = blocks_of(template), 0
    for chat in CHATS:
        for tools in ([], TOOLS):
            try:
                expected = template.render(chat, tools=tools)
            except Refused:
                expected = None
            text = found.text([chat] * 2, [tools] * 2 if tools else ()) if found else None
            assert text in (None, None if expected is None else f"{expected}{END}" * 2)
            count += text is not None
    return count


@pytest.mark.parametrize("name", sorted(set(named_templates()) - {"deepseek-r1"}))
def test_shipped_templates_are_alike(name: str) -> None:
    assert agrees(ChatTemplate(name, named_templates()[name], SPECIAL)) > 2


def test_published_templates_are_alike(real_data: Path) -> None:
    found = {
        path.stem: agrees(ChatTemplate(path.stem, path.read_text("utf-8"), SPECIAL))
        for path in (real_data / "chat_templates" / "trl").glob("*.jinja")
    }
    assert sum(count > 0 for count in found.values()) >= 42


def written(source: str, **content: Any) -> str | None:
    """What MiniJinja makes of a template for one message; `None` where it is not asked, or refuses. Jinja must say the same."""
    template = ChatTemplate("own", source, SPECIAL)
    found = blocks_of(template)
    text = found.text([[{"role": "user", "content": "Hi", **content}]]) if found else None
    assert text is None or text == template.render([{"role": "user", "content": "Hi", **content}]) + END
    return text


LOOP = "{% for m in messages %}BODY{% endfor %}"


@pytest.mark.parametrize(
    "body",
    [
        "{{ m.content }}\n",
        "  {% if m.x %}\n  x\n  {% endif %}  \n{{- m.content -}}  \n y",
        "{% generation %}{{ m.content }}{% endgeneration %}\n",
        "{%- generation -%} {{ m.content }} {%- endgeneration -%} z",
        "{% if m.x %}{{ m.x | tojson }}{{ m.x | tojson(indent=2) }}{{ m.x | tojson(separators=(',', ':'), sort_keys=true) }}{% endif %}",
        "{{ m.x | tojson(ensure_ascii=true) if m.x }}",
        "{{ strftime_now('%d %b %Y') }}",
        "{{ m.content.strip().split('i')[0] }}{{ m.nothing | default('x') }}{{ messages | length }}{{ tools is none }}",
        "{% macro shown(t) %}<{{ t }}>{% endmacro %}{{ shown(m.content) }}{{ eos_token }}",
        "{{ '' if tools is iterable and tools | length > 0 }}{{ m.content }}",
    ],
)
def test_what_is_alike(body: str) -> None:
    assert written("\n " + LOOP.replace("BODY", body) + "\n\n", x={"b": [1, "é<>&'"], "a": 1e22}) is not None


@pytest.mark.parametrize(
    "body",
    [
        *("{{ m.content | upper }}", "{{ m.content.isupper() }}", "{{ m.content | sort }}", "{{ m.content is lower }}"),
        *("{{ m.content * 3 }}", "{{ 7 / 2 }}", "{{ cycler('a') }}", "{% include 'x' ignore missing %}", "{{ m.content }}\r\n"),
    ],
)
def test_what_may_differ_is_for_jinja(body: str) -> None:
    assert written(LOOP.replace("BODY", body)) is None


@cells(
    ("source", "expected"),
    [
        (named_templates()["plain"], True),
        (LOOP.replace("BODY", "{{ '<' + m.role + '>' ~ m['content'] }}"), True),
        (LOOP.replace("BODY", "{{ m.role }}{{ m.content | trim }}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% if m.content %}x{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{{ raise_exception(m.content) if m.role == 'x' }}"), False),
        (LOOP.replace("BODY", "{% if m.role == 'x' %}{{ raise_exception(m.content) }}{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% if m == messages[0] %}x{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% if loop.changed(m.role) %}x{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{{ loop.previtem }}"), False),
        (LOOP.replace("BODY", "{{ m }}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{{ messages }}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% for n in messages %}{{ n['con' + 'tent'] }}{% endfor %}"), False),
        (LOOP.replace("BODY", "{{ m.content[0] }}"), False),
        (LOOP.replace("BODY", "{{ m.content == 'x' }}"), False),
        (LOOP.replace("BODY", "{{ m.content * 2 }}"), False),
        (LOOP.replace("BODY", "{{ (m.content, 1) }}"), False),
        (LOOP.replace("BODY", "{% for c in m.content %}{{ c }}{% endfor %}"), False),
        (LOOP.replace("BODY", "{% set x = m.content %}{{ x }}"), False),
        ("{% set ms = messages %}" + LOOP.replace("messages", "ms").replace("BODY", "{{ m.content }}"), False),
        ("{% for m in messages if m.content %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", False),
        ("{% for m, n in messages %}{{ m.content }}{% endfor %}", False),
        ("{% macro x(m) %}{{ m.content }}{% endmacro %}" + LOOP.replace("BODY", "{{ x(m) }}"), False),
    ],
)
def test_templates_that_only_write(source: str, expected: bool) -> None:
    assert only_writes(ChatTemplate("own", source, SPECIAL).parsed) is expected


def test_one_that_is_refused_leaves_the_block_to_jinja() -> None:
    source = LOOP.replace("BODY", "{{ raise_exception('no') if m.content == 'No' else m.content }}")
    assert written(source) == f"Hi{END}"
    found = blocks_of(ChatTemplate("own", source, SPECIAL))
    assert found is not None and found.text([[{"content": "Hi"}], [{"content": "No"}]]) is None


GROWS = "{% set ns = namespace(s='x', l=['x']) %}{% for i in range(60) %}STEP{% endfor %}{{ ns.s }}"


@pytest.mark.parametrize(
    "step",
    [
        *("{% set ns.s = ns.s ~ ns.s %}", "{% set ns.s = ns.s + ns.s %}", "{% set ns.l = ns.l + ns.l %}"),
        *("{% set ns.s = [ns.s, ns.s] | join %}", "{% set ns.s = ''.join([ns.s, ns.s]) %}"),
        *("{% set ns.s = 'ab' | replace('a', ns.s) | replace('b', ns.s) %}",),
        *("{% set ns.s = 'ab'.replace('a', ns.s).replace('b', ns.s) %}", "{% set ns.s = '%s%s' % (ns.s, ns.s) %}"),
        *("{% set ns.s = '%s%s' | format(ns.s, ns.s) %}", "{% set ns.s = '{}{}'.format(ns.s, ns.s) %}"),
        *("{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = t %}", "{{ ns.s }}{{ ns.s }}{% set ns.s = ns.s ~ ns.s %}"),
    ],
)
def test_a_text_that_doubles_is_ended_while_it_is_small(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(template_module, "LARGEST", 1 << 12)
    with pytest.raises(Refused, match="one operation of a template makes at most 4,096 characters or elements"):
        own(GROWS.replace("STEP", step)).render(CHAT)


@pytest.mark.parametrize(
    "source",
    [
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% for i in range(2) recursive %}{{ loop([1]) }}{% endfor %}",
    ],
)
def test_a_macro_without_end_is_said_in_words(source: str) -> None:
    with pytest.raises(Refused, match="template_refuses: template own: line 1: a macro or a loop calls itself without end"):
        own(source).render(CHAT)


def test_a_loop_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FUEL", 10_000)
    source = LOOP.replace("BODY", "{{ m.content }}{% if 'x' in m.content %}{% for i in range(9000) %}{{ i }}{% endfor %}{% endif %}")
    found = blocks_of(ChatTemplate("ends", source, SPECIAL))
    assert found is not None and found.text([[{"content": "Hi"}]]) == f"Hi{END}"
    assert found.text([[{"content": "x"}]]) is None


def test_json_that_is_known_is_not_made_anew() -> None:
    template = ChatTemplate(
        "own", "{% for t in tools or [] %}{{ t | tojson }}{{ t | tojson(indent=1) }}{{ t.f | tojson }}{% endfor %}", SPECIAL
    )
    tool = {"f": {"a": "é"}, "b": [1]}
    found = blocks_of(template)
    assert found is not None
    assert found.text([[HI]], [[Spelled(tool, '{"f": {"a": "é"}, "b": [1]}')]]) == template.render([HI], tools=[tool]) + END
    assert list(strings(Spelled(tool, ""))) == ["é"]


# Names of transformers that are private, or may go: a version without them must fail here, and not in somebody's build.


KNOWN = {("transformers.utils", "sentencepiece_model_pb2_new")}
ALONE = """
import sys
from prep_assets.text.environment import chat_template_utils
found = chat_template_utils()
assert not any(name.partition(".")[0] == "transformers" for name in sys.modules), "importing all of it takes a second"
import transformers
import transformers.utils.chat_template_utils as whole
assert whole is not found and transformers.__version__ and chat_template_utils() is found
print(found._compile_jinja_template("{{ [1, 'a'] | tojson }}").render(), found.__file__ == whole.__file__)
"""


def imported(path: Path) -> set[tuple[str, str]]:
    """What a module takes from transformers, beside its public classes."""
    source = path.read_text("utf-8")
    tree = ast.parse(source if "transformers." in source else "")  # to parse every file takes seconds
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    named = {(node.module or "", each.name) for node in found for each in node.names}
    return {(module, name) for module, name in named if module.startswith("transformers.")}


def test_private_names_are_the_known_ones() -> None:
    assert set().union(*map(imported, (ROOT / "prep_assets").rglob("*.py"))) == KNOWN


def test_templates_are_compiled_without_the_rest_of_transformers() -> None:
    said = subprocess.run([sys.executable, "-c", ALONE], check=True, capture_output=True, text=True).stdout
    assert said.split("\n")[0] == '[1, "a"] True'


def test_a_near_miss_is_named(vocabulary: Vocabulary) -> None:
    with pytest.raises(TemplateError, match="did you mean 'enable_thinking'"):
        load_template("qwen3", vocabulary, options={"enable_thinkin": False})


def test_what_the_shipped_templates_write(vocabulary: Vocabulary) -> None:
    assert {name: load_template(name, vocabulary).render(CHAT, generation_prompt=True) for name in ("plain", "chatml", "tokenizer")} == {
        "plain": "<|user|>\nHi<|endoftext|><|assistant|>\nHello!<|endoftext|><|assistant|>\n",
        "chatml": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>assistant\n",
        "tokenizer": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>assistant\n",
    }
