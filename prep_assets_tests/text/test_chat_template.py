"""Chat templates: loading, rendering as transformers does, and what a template cannot do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, Refused, TemplateError
from prep_assets.samples import Sample, turn
from prep_assets.text.environment import FROZEN_CLOCK
from prep_assets.text.load_template import load_template, named_templates
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples

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


def test_what_the_shipped_templates_write(vocabulary: Vocabulary) -> None:
    assert {name: load_template(name, vocabulary).render(CHAT, generation_prompt=True) for name in ("plain", "chatml", "tokenizer")} == {
        "plain": "<|user|>\nHi<|endoftext|><|assistant|>\nHello!<|endoftext|><|assistant|>\n",
        "chatml": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>assistant\n",
        "tokenizer": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>assistant\n",
    }


def test_every_named_template_loads_by_name(vocabulary: Vocabulary) -> None:
    assert set(named_templates()) >= {"plain", "chatml"}
    for name, source in named_templates().items():
        assert load_template(name, vocabulary).source == source


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
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ strftime_now.__self__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ (messages | first).__class__ }}",
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
        "{{ messages + 1 }}",
        "{{ 1 / 0 }}",
        "{{ '{}'.format() }}",
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


@pytest.mark.parametrize("name", ["enable_thinkin", "tools", "strftime_now"])
def test_an_option_that_the_template_does_not_read_stops_the_build(vocabulary: Vocabulary, name: str) -> None:
    """A misspelt option was passed on, and ignored."""
    with pytest.raises(TemplateError, match=f"template_options: template qwen3 does not read '{name}'.*It reads: .*enable_thinking"):
        load_template("qwen3", vocabulary, options={name: False})
    assert load_template("qwen3", vocabulary, options={"enable_thinking": False}).options


def test_a_near_miss_is_named(vocabulary: Vocabulary) -> None:
    with pytest.raises(TemplateError, match="did you mean 'enable_thinking'"):
        load_template("qwen3", vocabulary, options={"enable_thinkin": False})


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
