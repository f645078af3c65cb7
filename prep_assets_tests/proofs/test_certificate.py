"""Certificates against renders of other chats, and against facts that are written down by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prep_assets.proofs.certificate import (
    _CHATS,
    _findings_fault,
    _judged,
    certified,
    check_certificate,
    ends_answers_alone,
    writes_unserved,
)
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.text.certify import certify
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.effort import thinned
from prep_assets_tests.graph.every_template import OWN
from prep_assets_tests.masks.bound import SHIPPED, bind, bind_source
from prep_assets_tests.proofs import conversations
from prep_assets_tests.text.matrix.cells import Entry, _encoder, published, shipped, small

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
DEFAULT = "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
ANSWERS = "{% set answers = messages | selectattr('role', 'equalto', 'assistant') | list %}"
ALTERNATE = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
THINKS = TURNS.replace("{{ m.content", "{{ m.reasoning_content or '' }}{{ m.content")
PLAIN: dict[str, Any] = {
    "renders": True,
    "stop_token": "<|im_end|>",
    "begins_with": "<|im_start|>",
    "generation_tags": False,
    "proofs": ["offsets of one render", "the render built anew", "decoding of trained tokens"],
    "generation_prompt": "<|im_start|>assistant\n",
    "prefix_stable": True,
    "grows": True,
    "system": "rendered",
    "default_system": "",
    "alternation": False,
    "trims": False,
    "thinking": "not rendered",
    "tools": "not rendered",
}


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        (TURNS + PROMPT, {}),
        (TURNS, {"generation_prompt": "", "grows": True}),
        (DEFAULT + TURNS + PROMPT, {"system": "injected", "default_system": "Be kind."}),
        (
            DEFAULT + TURNS.replace("\n{{", "\n{{ m.content if m.role == 'user' }}{{") + PROMPT,
            {"system": "injected", "default_system": "Be kind."},
        ),
        (NO_SYSTEM + TURNS + PROMPT, {"system": "refused"}),
        (TURNS.replace("in messages", "in messages if m.role != 'system'") + PROMPT, {"system": "refused"}),
        (NO_SYSTEM + ALTERNATE + TURNS + PROMPT, {"system": "refused", "alternation": True}),
        (TURNS.replace("m.content", "m.content | trim") + PROMPT, {"trims": True}),
        ("{{ messages | length }}" + TURNS + PROMPT, {"begins_with": "", "prefix_stable": False, "grows": False}),
        (TURNS + "{{ '!' if messages | length == 1 }}" + PROMPT, {"grows": False}),
        (TURNS + "{{ '!' if messages | length == 2 }}" + PROMPT, {"prefix_stable": False}),
        (TURNS + "{{ '!' if messages | length == 3 }}" + PROMPT, {"prefix_stable": False, "grows": False}),
        (TURNS.replace("<|im_end|>", "") + PROMPT, {"stop_token": ""}),
        (THINKS + PROMPT, {"thinking": "kept"}),
        (
            ANSWERS + TURNS.replace("{{ m.content", "{{ m.reasoning_content if m == answers[-1] }}{{ m.content") + PROMPT,
            {"thinking": "kept in the last turn"},
        ),
        ("{{ tools or '' }}" + TURNS.replace("{{ m.content", "{{ m.tool_calls }}{{ m.content") + PROMPT, {"tools": "rendered"}),
        ("{{ tools or '' }}" + TURNS + PROMPT, {}),
        (
            "{% generation %}{% endgeneration %}" + TURNS + PROMPT,
            {"generation_tags": True, "proofs": [*PLAIN["proofs"], "generation tags"]},
        ),
    ],
)
def test_by_hand(source: str, facts: dict[str, object]) -> None:
    assert certified(bind_source(source).template) == {**PLAIN, **facts}


STRICT = """{% if messages[-1].role == 'tool' %}{{ raise_exception('no') }}{% endif %}{% for m in messages %}{%
if loop.first and m.role not in ('system', 'user') or loop.index0 and m.role != 'tool' and
(m.role == 'assistant') == (messages[loop.index0 - 1].role in ('assistant', 'system')) %}{{ raise_exception('no') }}{% endif %}{% endfor %}"""


def test_chats_that_a_strict_template_renders() -> None:
    """A question comes first, an answer behind each question or result, and no result at the end."""
    source = STRICT + "{{ tools or '' }}" + THINKS.replace("{{ m.content", "{{ m.tool_calls or '' }}{{ m.content") + PROMPT
    assert certified(bind_source(source).template) == {**PLAIN, "thinking": "kept", "tools": "rendered", "alternation": True}


def test_reasoning_and_tools() -> None:
    found = certified(bind(SHIPPED, "qwen3").template)
    assert (found["thinking"], found["tools"]) == ("kept in the last turn", "rendered")


@pytest.mark.parametrize(
    ("source", "unserved"),
    [
        (TURNS + PROMPT, False),
        (TURNS, False),  # its header is generated
        (TURNS + PROMPT.replace("assistant\n", "assistant\n<think>"), True),
        ("{{ raise_exception('no') }}", False),
    ],
)
def test_prompts_that_no_server_sends(source: str, unserved: bool) -> None:
    assert writes_unserved(bind_source(source).template) is unserved


@pytest.mark.parametrize(
    ("source", "alone"),
    [
        (THINKS + PROMPT, True),
        (THINKS.replace("or '' }}", "or '' }}{{ '<|im_end|>' if m.reasoning_content }}") + PROMPT, False),
        (TURNS.replace("{{ m.content", "{{ m.tool_calls or '' }}{{ m.content") + PROMPT, True),
        (TURNS.replace("{{ m.content", "{{ m.tool_calls or '' }}{{ '<|im_end|>' if m.tool_calls }}{{ m.content") + PROMPT, False),
        (TURNS.replace("{{ m.content", "{{ m.tool_calls ~ '<|im_end|>' if tools and m.tool_calls }}{{ m.content") + PROMPT, False),
        (TURNS + PROMPT, True),
        ("<|im_start|>{{ tools or '' }}<|im_end|>" + TURNS.replace("{{ m.content", "{{ m.tool_calls or '' }}{{ m.content") + PROMPT, True),
        ("{{ raise_exception('no') }}", True),
    ],
)
def test_a_token_that_stands_inside_of_an_answer_as_well(source: str, alone: bool) -> None:
    assert ends_answers_alone(bind_source(source).template, "<|im_end|>") is alone


@pytest.mark.parametrize("field", PLAIN)
def test_another_value_of_any_field_fails(field: str) -> None:
    template = bind_source(TURNS + PROMPT).template
    certificate = certify(template).as_dict()
    says = f"21 facts about {template.name} are those that renders of other chats show"
    assert check_certificate(certificate, template) == Verdict(True, says, {"facts_checked": 21})
    verdict = check_certificate({**certificate, field: "else"}, template)
    assert not verdict.passed and verdict.summary == f"{field} is 'else' in the certificate, renders show {PLAIN[field]!r}"


@pytest.mark.parametrize(
    "change",
    ["left out", "no_stop_token: of a user", "template_refuses: no", "template_drops_content: no", "unserved_prompt: turn 2 ", "right"],
)
def test_another_judgement_of_a_kind_of_chats_fails(change: str) -> None:
    template = bind_source((NO_SYSTEM if change == "right" else "") + TURNS + PROMPT).template
    certificate = certify(template).as_dict()
    assert check_certificate(certificate, template).passed
    kinds = {kind: said for kind, said in certificate["chats"].items() if kind != "system"}
    if change != "left out":
        kinds = {kind: change if kind == "system" else said for kind, said in certificate["chats"].items()}
    assert not check_certificate({**certificate, "chats": kinds}, template).passed
    says = "the certificate says 'no' of tool call; renders of such a chat show 'template_drops_content: or template_drops_tools:'"
    calls = {**certificate["chats"], "tool call": "no"}
    assert check_certificate({**certificate, "chats": calls}, template).summary == says


LETTERS = {"right": "r", "template_drops_content": "c", "template_drops_tools": "t", "template_refuses": "x"}
LETTERS |= {"unserved_prompt": "u", "template_reorders_content": "o", "no_stop_token": "s"}


@pytest.mark.parametrize(
    ("source", "judged"),
    [
        (TURNS + PROMPT, "r r r r c c ct ct ct ct ct ct t"),
        (TURNS.replace("<|im_end|>", "") + PROMPT, "s s s s c c ct ct ct ct ct ct t"),
        (THINKS + PROMPT, "r r r r r r ct ct ct ct ct ct t"),
        (
            ANSWERS + TURNS.replace("{{ m.content", "{{ m.reasoning_content if m == answers[-1] }}{{ m.content") + PROMPT,
            "r r r r r cu ct ct ct ct ct ct t",
        ),
        (
            "{{ tools or '' }}" + TURNS.replace("{{ m.content", "{{ m.tool_calls or '' }}{{ m.content") + PROMPT,
            "r r r r c c r r r cr r r r",
        ),
        (TURNS.replace("in messages", "in messages | reverse") + PROMPT, "u u os u c c ct ct ct ct ct ct t"),
        (NO_SYSTEM + ALTERNATE + TURNS + PROMPT, "r x r r c c x x x x x ct t"),
    ],
)
def test_what_may_be_said_of_each_kind_of_chats(source: str, judged: str) -> None:
    """By its letters in `LETTERS`."""
    may = (_judged(sample, bind_source(source).template)[0] for sample in _CHATS.values())
    assert " ".join("".join(LETTERS[said.partition(":")[0]] for said in each) for each in may) == judged


def test_another_judgement_of_tool_calls_fails() -> None:
    template = bind(SHIPPED, "qwen3").template
    certificate = certify(template).as_dict()
    for change in (
        {"chats": {**certificate["chats"], "tool call": "bad_tool_call: no"}},
        {"stops": {**certificate["stops"], "tool call": "no"}},
    ):
        assert not check_certificate({**certificate, **change}, template).passed


def test_answers_end_with_one_token_at_the_end_and_with_another_before() -> None:
    source = TURNS.replace("<|im_end|>", "{{ '<|return|>' if loop.last else '<|im_end|>' }}") + PROMPT
    template = bind_source(source, added=["<|return|>"]).template
    certificate = certify(template).as_dict()
    stops = {"last answer": "<|return|>", "earlier answer": "<|im_end|>"}
    assert certificate["stops"] == stops and check_certificate(certificate, template).passed
    assert not check_certificate({**certificate, "stops": dict(zip(stops, reversed(stops.values()), strict=True))}, template).passed


def by_code(first: Any, second: Any) -> ChatTemplate:
    """A template that two implementations in code write, which marks no answer; the token that ends one follows another."""

    def render(own: Any) -> Any:
        def rendered(messages: Any, tools: Any, options: Any, prompted: bool) -> str:
            shown = [f"<|s|>{each['role']}\n{each['content']}{own(each['content'])}<|e|><|end|>" for each in messages]
            return f"{[*tools] or ''}{''.join(shown)}{'<|s|>assistant' * prompted}"

        return rendered

    code: Any = SimpleNamespace(render=render(first), render_again=render(second), generated=lambda *_: None, proofs=("own marks",))
    return replace(conversations.template(f"code {first} {second}"), renderer=code)


def nothing(text: str) -> str:
    return ""


def raises(text: str) -> str:
    raise ValueError(text)


@pytest.mark.parametrize(
    ("first", "second", "may"),
    [
        (nothing, nothing, ("right",)),
        (nothing, lambda text: "!", ("renderers_differ:",)),
        (raises, nothing, ("renderers_differ:",)),
        (nothing, raises, ("renderers_differ:",)),
        (raises, raises, ("template_refuses:",)),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "tools unused"])
def test_two_implementations_of_a_format_write_the_same(kind: str, first: Any, second: Any, may: tuple[str, ...]) -> None:
    assert _judged(_CHATS[kind], by_code(first, second))[0] == may


def test_facts_about_code_that_writes_chats() -> None:
    facts = {
        "stop_token": "<|end|>",
        "begins_with": "<|s|>",
        "generation_prompt": "<|s|>assistant",
        "proofs": [*PLAIN["proofs"], "own marks"],
    }
    assert certified(by_code(nothing, nothing)) == {**PLAIN, **facts}
    tagged = replace(by_code(nothing, nothing), source="{% generation %}")
    assert certified(tagged)["generation_tags"] is False
    assert certified(replace(by_code(nothing, nothing), source="other", control=("<|other|>",)))["stop_token"] == ""
    # which tokens it never writes is not known
    assert _findings_fault({"stop_token": "<|end|>", "findings": []}, tagged, {"eos_token": "<|end|>"}, ()) == ""


@pytest.mark.parametrize("kind", ["last answer", "earlier answer"])
@pytest.mark.parametrize("said", ["", "<|im_start|>"])
def test_another_stop_fails(kind: str, said: str) -> None:
    template = bind_source(TURNS + PROMPT).template
    certificate = certify(template).as_dict()
    verdict = check_certificate({**certificate, "stops": {**certificate["stops"], kind: said}}, template)
    assert not verdict.passed and verdict.summary.startswith("the certificate says that answers end with ")
    assert verdict == Verdict(False, verdict.summary, {"facts_checked": 21}, Worst("certificate.json", verdict.summary))


@pytest.mark.parametrize("change", [{"reasoning": "thought"}, {"shows_calls": False}, {"content": "parts"}, {"no_content": "null"}])
def test_another_form_of_messages_fails(change: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    template = bind(SHIPPED, "qwen3").template
    certificate = certify(template).as_dict()
    monkeypatch.setitem(template.__dict__, "form", replace(template.form, **change))  # type: ignore[arg-type]
    verdict = check_certificate(certificate, template)
    assert not verdict.passed and f"{next(iter(change))} of messages is " in verdict.summary


def test_findings_are_about_the_end_of_text_token_and_tokens_that_are_not_trained() -> None:
    template = bind_source(TURNS + PROMPT).template
    certificate = certify(template).as_dict()
    special = {"eos_token": "<|im_end|>"}
    assert not check_certificate(certificate, template, special=special).passed
    named = {**certificate, "findings": ["control tokens that nobody writes: '<|im_start|>'. Their embeddings may be untrained"]}
    assert check_certificate(named, template, special=special).passed
    assert check_certificate(certificate, template, special=special, own=[template]).passed
    assert not check_certificate(named, template, special=special, own=[template]).passed
    assert not check_certificate(named, template, special={"eos_token": "</s>"}).passed
    twice = {**named, "findings": [*named["findings"], *named["findings"]]}
    others = {**named, "findings": [named["findings"][0].replace("start", "end")]}
    for wrong, tokens in ((certificate, special), (twice, special), (others, special), (named, {**special, "bos_token": "<|im_start|>"})):
        untrained = "" if "bos_token" in tokens else "<|im_start|>"
        says = f"the tokens that may be untrained are {untrained}, and the findings are {wrong['findings']}"
        assert check_certificate(wrong, template, special=tokens).summary == says
    stopped = {**certificate, "findings": ["a server that stops at eos_token only never stops"]}
    says = f"the tokens that may be untrained are <|im_end|>, <|im_start|>, and the findings are {stopped['findings']}"
    assert check_certificate(stopped, template, special={}).summary == says
    stops = f"answers end with '<|im_end|>' and the eos_token is '</s>', and the findings are {named['findings']}"
    assert check_certificate(named, template, special={"eos_token": "</s>"}).summary == stops
    assert check_certificate(certificate, template, special={}).summary == stops.replace("</s>", "").replace(str(named["findings"]), "[]")


@pytest.mark.parametrize("number", [6, 7])
def test_of_many_tokens_that_are_not_trained_some_are_named(number: int) -> None:
    added = [f"<|{at}|>" for at in range(number)]
    bound = bind_source("".join(added) + TURNS + PROMPT, added=added)
    certificate = certify(bound.template, bound.vocabulary).as_dict()
    assert check_certificate(certificate, bound.template, special=bound.vocabulary.special).passed


def of_entry(entry: Entry) -> ChatTemplate:
    vocabulary, _ = _encoder(entry.model)
    return ChatTemplate(entry.name, entry.source, vocabulary.special, {}, tuple(sorted(vocabulary.control)), entry.model.image)


@pytest.mark.parametrize("entry", thinned([*shipped().values(), *small().values()]), ids=lambda entry: entry.name)
def test_shipped_and_small_templates(entry: Entry) -> None:
    template, (vocabulary, _) = of_entry(entry), _encoder(entry.model)
    verdict = check_certificate(certify(template, vocabulary).as_dict(), template, special=vocabulary.special)
    assert verdict.passed, verdict.summary


@pytest.mark.parametrize("name", OWN)
def test_odd_templates(name: str) -> None:
    template = bind_source(OWN[name]).template
    certificate = certify(template)
    assert not certificate.renders or check_certificate(certificate.as_dict(), template).passed


@pytest.mark.skipif("PREP_ASSETS_TEST_DATA" not in os.environ, reason="TRL's templates are in a folder that PREP_ASSETS_TEST_DATA names")
def test_published_templates() -> None:
    for entry in published(Path(os.environ["PREP_ASSETS_TEST_DATA"])).values():
        template, (vocabulary, _) = of_entry(entry), _encoder(entry.model)
        verdict = check_certificate(certify(template, vocabulary).as_dict(), template, special=vocabulary.special)
        assert verdict.passed, (entry.name, verdict.summary)
