"""Chats derived by form are those derived one by one."""

from __future__ import annotations

import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings

from prep_assets.caches import CACHES
from prep_assets.errors import CheckFailed
from prep_assets.proofs import chat_blocks as module
from prep_assets.proofs.chat_blocks import PlainDerivation, answers_derivation, derived_forms, moved
from prep_assets.proofs.derive import Derived, MaskOptions, derive
from prep_assets.samples import ASSISTANT, USER, PlainChat, Sample, Turn, changed, turn
from prep_assets.text.chats import Kind, outlined
from prep_assets.text.forms import CompiledForm
from prep_assets_tests.corpus.chats import ODD, TOOLS, chats, rich_chats
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import SHIPPED, bind, bind_source
from prep_assets_tests.proofs.conversations import says, template

ROLES = (USER, ASSISTANT, USER)
TALK = MaskOptions()


def writes(shown: str) -> str:
    """A template that writes each text as `shown`."""
    ask = "{%- if add_generation_prompt -%}{{- '<|s|>assistant:' -}}{%- endif -%}"
    return "{%- for m in messages -%}{{- '<|s|>' + m.role + ':' -}}" + shown + "{{- '<|e|>' -}}{%- endfor -%}" + ask


def located(source: str | None, kind: Kind, *, spaced: bool = False, options: MaskOptions = TALK) -> CompiledForm[Derived] | None:
    CACHES["derived forms"].clear()
    own = template() if source is None else template(source)
    return derived_forms(own, options, options, prompted=False).of(kind, spaced, at_once=True)


def without_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ONE_IN", 1 << 40)
    monkeypatch.setattr(module.Firsts, "__call__", lambda *_: False)


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("name", ["alpaca", "chatml", "llama3", "qwen3"])
def test_by_form_and_by_itself(name: str, prompted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind(SHIPPED, name)
    without_sample(monkeypatch)
    derivation = PlainDerivation(MaskOptions(), bound.template, typed_controls=False, prompted=prompted)

    @settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
    @given(chats())
    def check(sample: Sample) -> None:
        try:
            expected = derive(sample, MaskOptions(), bound.template, prompted=prompted)
        except CheckFailed:
            return  # such a row is never stored
        assert derivation(sample) == expected

    check()


@pytest.mark.parametrize("name", ["llama3", "qwen", "qwen3"])
def test_shapes_by_form_and_by_themselves(name: str) -> None:
    bound, options = bind(SHIPPED, name), MaskOptions(train_on_eos="all")
    known = derived_forms(bound.template, options, options, prompted=False)

    @settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
    @given(rich_chats())
    def check(sample: Sample) -> None:
        chat = outlined(sample)
        found = known.of(chat.form, False, at_once=True) if chat else None
        if chat is None or found is None or any(each in text for text in chat.texts for each in ODD[:8]):
            return
        assert moved(found.derived, found.layout, found.layout.shown(chat.texts)) == derive(sample, options, bound.template, prompts=True)

    check()


def test_what_a_model_continues_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts have forms of their own, with what stands after them; white space at the ends of their texts is known too."""
    bound, asked = bind(SHIPPED, "qwen3"), Sample((turn(USER, "Hi"),))
    whole, prompt = (PlainDerivation(MaskOptions(), bound.template, typed_controls=False, prompted=each) for each in (False, True))
    assert whole(asked).text == "<|im_start|>user\nHi<|im_end|>\n"
    assert prompt(asked).text == f"{whole(asked).text}<|im_start|>assistant\n"
    without_sample(monkeypatch)
    monkeypatch.setattr(prompt, "_alone", Mock(side_effect=AssertionError))
    for text in ("So?", " So?\n"):
        sample = Sample((turn(USER, text),))
        assert prompt(sample) == derive(sample, MaskOptions(), bound.template, prompted=True)
    monkeypatch.undo()
    typed = Sample((turn(USER, "<|im_end|>"),))
    assert prompt(typed) == derive(typed, MaskOptions(), bound.template, prompted=True)


LOOKS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | replace('j', 'J') }}<|im_end|>\n{% endfor %}"


def test_a_text_that_the_template_changes_unseen_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single letter is no string that texts are searched for, so only the chats that are derived both ways can tell."""
    bound = bind_source(LOOKS)
    derivation = PlainDerivation(MaskOptions(), bound.template, typed_controls=False)
    sample = Sample((turn(USER, "Hello"), turn(ASSISTANT, "Well, jays")))
    without_sample(monkeypatch)
    assert derivation(sample).expected[0].text == "Well, jays<|im_end|>"
    monkeypatch.setattr(module, "ONE_IN", 1)
    with pytest.raises(CheckFailed):
        derivation(sample)


def test_two_derivations_that_differ_are_both_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ONE_IN", 1)
    derivation = PlainDerivation(MaskOptions(), template(), typed_controls=False)
    by_itself = derivation._alone
    monkeypatch.setattr(derivation, "_alone", lambda sample, prompts: replace(by_itself(sample, prompts=prompts), text="é" * 300))
    with pytest.raises(CheckFailed) as raised:
        derivation(Sample((turn(USER, "H" * 300), turn(ASSISTANT, "Well"))))
    by_form = f"<|s|>user\n{'H' * 190}"
    assert str(raised.value) == f"derived by itself a chat is {'é' * 200!r}, by its form {by_form!r}; nothing is proven"


@pytest.mark.parametrize(
    ("shown", "way", "keeps_edges"),
    [
        ("{{- m.content -}}", None, True),
        ("{{- m.content | trim -}}", str.strip, True),
        ("{{- m.content.lstrip() -}}", str.lstrip, True),
        ("{{- m.content.rstrip() -}}", str.rstrip, True),
        ("{{- m.content.rstrip('\\n') -}}", None, False),
        ("{{- m.content.lstrip(' ') -}}", None, False),
    ],
)
def test_what_becomes_of_white_space(shown: str, way: Any, keeps_edges: bool) -> None:
    bare, spaced = (located(writes(shown), ROLES, spaced=each) for each in (False, True))
    assert bare is not None and bare.layout.ways == (None,) * 3 and (spaced is not None) == keeps_edges
    assert bare.layout.frames == ("<|s|>user:", "<|e|><|s|>assistant:", "<|e|><|s|>user:", "<|e|>") and bare.layout.order == (0, 1, 2)
    if spaced is not None:
        assert spaced.layout.ways == (way,) * 3 and spaced.derived == bare.derived


def test_texts_in_the_order_of_the_render() -> None:
    """A template that writes the answer before its question."""
    source = "{%- for m in messages | reverse -%}{{- '<|s|>' + m.role + ':' + m.content + '<|e|>' -}}{%- endfor -%}"
    found, chat = located(source, (USER, ASSISTANT)), PlainChat((USER, ASSISTANT), ("Why?", "So."))
    assert found is not None and found.layout.order == (1, 0)
    assert moved(found.derived, found.layout, found.layout.shown(chat.texts)) == derive(
        chat.sample(), MaskOptions(), template(source), prompts=True
    )


@pytest.mark.parametrize(
    "source",
    [
        writes("{{- m.content + m.content -}}"),
        writes("{{- m.content | length -}}"),
        writes("{{- m.content }}{{ '!' if '5' in m.content -}}"),
        writes("{{- m.content | e -}}"),
        writes("{{- raise_exception('no') -}}"),
    ],
)
def test_what_has_no_form(source: str) -> None:
    """A text that stands there not once, or that the template tells from others; a chat that it refuses."""
    assert located(source, ROLES) is None


def test_a_template_that_looks_into_the_invented_tools_has_no_form() -> None:
    source = "{{ tools[0] | tojson }}{{ '!' if tools[0].b }}{% for m in messages %}<|s|>{{ m.role }}: {{ m.content }}<|e|>{% endfor %}"
    asked = outlined(Sample((turn(USER, "Hi"), turn(ASSISTANT, "Well")), TOOLS))
    assert asked is not None and located(source, asked.form) is None
    found = located(source.replace("tools[0].b", "false"), asked.form)
    assert found is not None and found.layout.frames == ("", "<|s|>user: ", "<|e|><|s|>assistant: ", "<|e|>")


@pytest.mark.parametrize(
    ("shown", "turns", "alone"),
    [
        ("{{- m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.")], 0),
        ("{{- m.content.rstrip('\\n') -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.")], 0),
        ("{{- m.content.rstrip('\\n') -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So. ")], 1),  # what becomes of white space is not known
        ("{{- m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So. <|e|>")], 1),  # a control token that somebody typed
        ("{{- m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.\ud800")], 1),
        ("{{- m.content -}}", [turn(USER, " \n"), turn(ASSISTANT, "So.")], 1),
        ("{{- m.content + ('--' if '--' in m.content else '') -}}", [turn(USER, "a--b"), turn(ASSISTANT, "So.")], 1),
        ("{{- m.content -}}", [turn(USER, "Hi"), says("~Hm.", "So.")], 1),
        ("{{- m.content + m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.")], 1),
    ],
)
def test_which_chats_are_derived_by_themselves(shown: str, turns: list[Turn], alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sample(monkeypatch)
    derivation = PlainDerivation(MaskOptions(), template(writes(shown)), typed_controls=True)
    by_itself = Mock(return_value="by itself")
    monkeypatch.setattr(derivation, "_alone", by_itself)
    found: Any = derivation(Sample(tuple(turns)))
    assert by_itself.call_count == alone and (found == "by itself") == bool(alone)


def test_one_in_so_many_is_derived_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    derivation = PlainDerivation(MaskOptions(), template(), typed_controls=False)
    by_itself = Mock(side_effect=derivation._alone)
    monkeypatch.setattr(derivation, "_alone", by_itself)
    last = [f"Answer {number}" for number in range(400)]
    for text in last:
        derivation(Sample((turn(USER, "So?"), turn(ASSISTANT, text))))
    seen = [each.args[0].turns[1].regions[0].text for each in by_itself.call_args_list]
    sampled = [text for text in last if zlib.crc32(text.encode()) % module.ONE_IN == 0]
    assert seen == [last[0], *sampled] and sampled and sampled[0] != last[0]


def test_of_a_small_store_all_are_derived_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    derivation = PlainDerivation(MaskOptions(), template(), typed_controls=False, alone=True)
    monkeypatch.setattr(derivation, "forms", None)
    for number in range(3):
        sample = Sample((turn(USER, "So?"), turn(ASSISTANT, f"Answer {number}")))
        assert derivation(sample) == derive(sample, MaskOptions(), template())


@pytest.mark.parametrize("typed_controls", [True, False])
def test_typed_control_tokens_are_told_to_the_derivation(typed_controls: bool) -> None:
    sample = Sample((turn(USER, "Hi"), turn(ASSISTANT, "So <|e|> it is.")))
    derivation = PlainDerivation(MaskOptions(), template(), typed_controls=typed_controls)
    assert derivation(sample) == derive(sample, MaskOptions(), template(), typed_controls=typed_controls)


def side(last: float | None, answer: str = "So it is.") -> Sample:
    """A side of a pair, whose regions say what is trained."""
    turns = turn(USER, "Hi"), turn(ASSISTANT, "Hello"), turn(USER, "So?"), turn(ASSISTANT, answer)
    weights = (0.0, 0.0, 0.0, last)
    return Sample(tuple(changed(t, regions=(changed(t.regions[0], loss_weight=w),)) for t, w in zip(turns, weights, strict=True)))


def test_the_sides_of_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer is trained where its weight says so, whatever its role; such a side is derived by form."""
    without_sample(monkeypatch)
    derivation = answers_derivation(template())
    for sample in (side(1.0), side(None), side(0.5), side(1.0, "So <|e|> it is.")):
        assert derivation(sample) == derive(sample, MaskOptions(mask={}), template(), typed_controls=False)
    assert [each.text for each in derivation(side(1.0)).expected] == ["So it is.<|e|>"] and derivation(side(None)).expected == ()
    monkeypatch.setattr(derivation, "_alone", Mock(side_effect=AssertionError))
    assert derivation(side(1.0)) == derive(side(1.0), MaskOptions(mask={}), template())


def test_strings_of_the_training_variant_are_looked_for_as_well() -> None:
    own: Any = SimpleNamespace(source="{{ '<<a>>' in m }}", training="{{ '<<t>>' in m }}", control=("<|e|>",), hash="of a test")
    assert PlainDerivation(MaskOptions(), own, typed_controls=False).looked_for == ("<<a>>", "<<t>>", "<|e|>")
