"""Rejections by a chat template, each of a chat that has the fault and of one that has not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from prep_assets.proofs.rejected_renders import ruling
from prep_assets.samples import Region, Sample, Turn, changed
from prep_assets_tests.cells import cells
from prep_assets_tests.proofs import conversations
from prep_assets_tests.proofs.conversations import PLAIN, chat, says, template, user
from prep_assets_tests.proofs.test_rebuilt import AMID, MARKS, Written

CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"))
NEEDS = "{%- if mode is not defined -%}{{- raise_exception('no') -}}{%- endif -%}"
TOOLS = "{%- for tool in tools or [] -%}{{- tool | tojson -}}{%- endfor -%}" + PLAIN
RENDERED = "transformers renders it, "
ONE = RENDERED + "and every text stands in it once"
OTHERWISE = "transformers writes it otherwise without its options"
TOOL = {"name": "f", "description": "Finds a cat."}


@pytest.mark.parametrize("kind", ["image", "audio", "video"])
def test_a_file_without_a_token_explains_one_reason(kind: str) -> None:
    template = cast(Any, SimpleNamespace(marks={}))
    sample = Sample((Turn("user", (Region("text", "What is it?"), Region(kind, "1.bin"))), Turn("assistant", (Region("text", "A cat."),))))
    assert ruling(f"no_{kind}_token", sample, template) == ""
    assert ruling("no_stop_token", sample, template) is None


@cells(
    ("reason", "source", "sample", "says"),
    [
        ("lone_surrogate", PLAIN, chat(user("Hi \ud800")), ""),
        ("noncharacter", PLAIN, chat(user("Hi \ufdd0")), ""),
        ("noncharacter", PLAIN, CHAT, None),
        ("lone_surrogate", PLAIN, CHAT, None),
        ("template_refuses", "{{- raise_exception('never') -}}", CHAT, ""),
        ("template_drops_content", "{{- raise_exception('never') -}}", CHAT, None),
        ("template_refuses", PLAIN, CHAT, "transformers renders it"),
        ("template_drops_content", PLAIN, CHAT, ONE),
        ("template_drops_content", "{{- messages[-1].content -}}", CHAT, ""),
        ("template_drops_content", PLAIN, chat(says("!f", "Hello.")), ONE),
        ("template_drops_content", PLAIN, chat(user("Hi"), says("~Hm.", "!f")), ONE),
        ("template_drops_content", PLAIN.replace("| tojson", "| tojson + call.function.name"), chat(says("!f", "Hello.")), ONE),
        ("template_drops_content", PLAIN.replace("tojson", "tojson(indent=1)"), chat(says("!f", "Hello.")), ONE),
        ("template_drops_content", PLAIN.replace("call.function | tojson", "'f f'"), chat(says("!f", "Hello.")), None),
        ("template_drops_content", PLAIN.replace("thought + m.content", "thought"), chat(user(" "), says("~Hm.", "Hello.")), ""),
        ("template_drops_content", PLAIN.replace("thought + m.content", "m.content"), CHAT, None),
        ("template_drops_content", PLAIN + "{{- messages[0].content -}}", CHAT, None),
        ("template_rewrites_content", PLAIN.replace("+ m.content", "+ (m.content | upper)"), CHAT, ""),
        ("mask_not_provable", PLAIN.replace("+ m.content", "+ (m.content | upper)"), CHAT, None),
        ("template_reorders_content", PLAIN, CHAT, RENDERED + "with its texts in their order"),
        ("template_reorders_content", PLAIN, chat(user("Hi"), says("Hello.", "!f")), RENDERED + "with its texts in their order"),
        ("template_reorders_content", PLAIN, chat(user("Hi"), says("Hello.", '!f {"a": "x"}')), None),
        ("template_reorders_content", PLAIN.replace("in messages", "in messages | reverse"), CHAT, None),
        ("template_reorders_content", PLAIN.replace("thought + m.content", "m.content + thought"), CHAT, None),
        ("mask_not_provable", PLAIN, CHAT, RENDERED + "and the renders before and after each answer say what is trained"),
        ("mask_not_provable", PLAIN, chat(user("Hi")), None),
        ("mask_not_provable", AMID, chat(user("Hi"), says("~Hm.", "Hello.")), None),
        ("unknown_template_option", PLAIN, changed(CHAT, template_options={"mode": "m"}), None),
        ("unknown_template_option", "{{- mode -}}" + PLAIN, changed(CHAT, template_options={"mode": "m"}), OTHERWISE),
        ("unknown_template_option", "{{- mode -}}" + PLAIN, changed(CHAT, template_options={"mode": "m", "other": 1}), None),
        ("unknown_template_option", NEEDS + PLAIN, changed(CHAT, template_options={"mode": "m"}), None),
        ("template_drops_tools", PLAIN, changed(CHAT, tools=(TOOL,)), ""),
        ("template_drops_tools", TOOLS, changed(CHAT, tools=(TOOL,)), RENDERED + "with names and descriptions of all tools"),
        ("template_drops_tools", TOOLS.replace("tool |", "tool.name |"), changed(CHAT, tools=(TOOL,)), ""),
        ("template_drops_tools", TOOLS.replace("tool |", "tool.description |"), changed(CHAT, tools=(TOOL,)), ""),
        ("template_drops_documents", PLAIN, changed(CHAT, documents=({"title": "t"},)), ""),
        ("template_drops_documents", TOOLS.replace("tools", "documents"), changed(CHAT, documents=({"title": "t"},)), None),
        ("template_drops_names", PLAIN, chat(changed(user("Hi"), name="Anna")), ""),
        ("template_drops_names", PLAIN.replace("m.role +", "(m.name or '') + m.role +"), chat(changed(user("Hi"), name="Anna")), None),
    ],
)  # fmt: skip
def test_a_right_chat_and_one_with_the_fault(reason: str, source: str, sample: Sample, says: str | None) -> None:
    assert ruling(reason, sample, template(source)) == says


@pytest.mark.parametrize(
    ("tojson", "text", "says"),
    [("| string", "é ☃", ONE), ("| tojson", 'é ☃ "x"', ONE), ("| tojson", "a\nb", ONE), ("| length | string", "é ☃", "")],
)
def test_a_text_in_json(tojson: str, text: str, says: str) -> None:
    """As it is, or with its quotes and breaks escaped, by Jinja's filter or by one that escapes all but ASCII."""
    sample, source = chat(user(text)), "{%- for m in messages -%}{{- m.content FILTER -}}{%- endfor -%}".replace("FILTER", tojson)
    assert ruling("template_drops_content", sample, template(source)) == says
    if tojson == "| tojson":
        escaped = template("{%- for m in messages -%}{{- m.content | tojson(ensure_ascii=true) -}}{%- endfor -%}")
        assert ruling("template_drops_content", sample, escaped) == ONE


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        ("m.reasoning_content", ONE),
        ("m.reasoning_content and loop.last", ONE),  # left out of history
        ("m.reasoning_content and false", None),
    ],
)
def test_where_reasoning_is_shown(shown: str, says: str | None) -> None:
    talk = chat(user("Hi"), conversations.says("~Hm.", "Hello."), user("Bye"), conversations.says("~So.", "Ciao."))
    source = PLAIN.replace("and m.reasoning_content -%}", f"and {shown} -%}}")
    assert ruling("template_drops_content", talk, template(source)) == says
    assert ruling("template_drops_content", talk, template(source.replace("thought + m.content", "thought + thought + m.content"))) is None


@pytest.mark.parametrize(("reason", "says"), [("template_refuses", None), ("mask_not_provable", None), ("template_drops_content", ONE)])
def test_a_chat_that_code_writes(reason: str, says: str | None) -> None:
    """Of two implementations of a format either may refuse a chat, or not say what is trained."""
    written = replace(template(), renderer=cast(Any, Written()))
    written.__dict__["form"] = template().form
    assert ruling(reason, chat(user("Hi"), conversations.says("Hello.")), written) == says


def test_tags_of_a_training_variant_say_what_is_trained() -> None:
    marked = replace(template(), training=MARKS)
    assert ruling("mask_not_provable", CHAT, marked) == RENDERED + "and the generation tags of its template say what is trained"


ASKS = "{%- if not add_generation_prompt -%}{{- raise_exception('no') -}}{%- endif -%}{{- mode | default('') -}}" + TOOLS


@pytest.mark.parametrize(
    ("reason", "sample", "says"),
    [
        ("template_refuses", CHAT, "transformers renders it"),
        ("template_drops_content", CHAT, ONE),
        ("unknown_template_option", changed(CHAT, template_options={"mode": "m"}), OTHERWISE),
        ("template_drops_tools", changed(CHAT, tools=(TOOL,)), RENDERED + "with names and descriptions of all tools"),
    ],
)
def test_a_chat_that_ends_with_the_generation_prompt(reason: str, sample: Sample, says: str) -> None:
    assert ruling(reason, sample, template(ASKS), prompted=True) == says
    assert ruling(reason, sample, template(ASKS)) == ("" if reason == "template_refuses" else None)


def test_an_option_of_the_configuration_is_not_judged() -> None:
    chosen = replace(template("{{- mode -}}" + PLAIN), options={"mode": "x"})
    assert ruling("unknown_template_option", changed(CHAT, template_options={"mode": "m"}), chosen) is None
