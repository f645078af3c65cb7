"""What chats of one shape must have become, which have tools, calls or reasoning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.plain_forms import PlainDerivation, PlainForm, PlainForms, _ends_between, derived_of
from prep_assets.proofs.shaped_forms import outlined
from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import SHIPPED, bind
from prep_assets_tests.masks.test_shaped_batches import ODD, TOOLS, rich_chats
from prep_assets_tests.proofs.conversations import template
from prep_assets_tests.proofs.test_shaped_forms import shape


def test_a_template_that_looks_into_the_invented_tools_has_no_form() -> None:
    source = "{{ tools[0] | tojson }}{{ '!' if tools[0].b }}{% for m in messages %}<|s|>{{ m.role }}: {{ m.content }}<|e|>{% endfor %}"
    asked = shape(turn(USER, "Hi"), turn(ASSISTANT, "Well"))
    assert PlainForms(template(source), MaskOptions()).of(asked) is None
    form = PlainForms(template(source.replace("tools[0].b", "false")), MaskOptions()).of(asked)
    assert form is not None
    assert form.keeps_edges
    assert form.frames == ("", "<|s|>user: ", "<|e|><|s|>assistant: ", "<|e|>")
    texts = [json.dumps(TOOLS[0]), "Hi", "Well"]
    assert form.shown(texts) == texts


def test_shapes_keep_the_policy_where_plain_samples_carry_weights_that_say_the_same() -> None:
    source = "{{ tools[0] | tojson if tools }}{% for m in messages %}<|s|>{{ m.role }}: {{ m.content }}<|e|>{% endfor %}"
    rounds = [turn(USER, "Hi"), turn(ASSISTANT, "Well."), turn(USER, "So?"), turn(ASSISTANT, "So.")]
    asked = outlined(Sample(tuple(rounds), (TOOLS[0],)))
    policies = MaskOptions(), MaskOptions(train_turns="last")
    derivation = PlainDerivation(policies[0], template(source), typed_controls=False, forms=policies[1])
    assert asked is not None
    found, plain = derivation.form(asked.form, edged=False), derivation.form(("user", "assistant") * 2, edged=False)
    assert found is not None and len(found.stretches) == 2
    assert plain is not None and len(plain.stretches) == 1


def test_tools_are_spelled_as_the_template_spells_them() -> None:
    source = "{{ tools[0] | tojson(indent=2) }}{% for m in messages %}<|s|>{{ m.role }}: {{ m.content }}<|e|>{% endfor %}"
    form = PlainForms(template(source), MaskOptions()).of(shape(turn(USER, "Hi"), turn(ASSISTANT, "Well")))
    assert form is not None
    assert form.shown([json.dumps(TOOLS[0]), "Hi", "Well"]) == [json.dumps(TOOLS[0], indent=2), "Hi", "Well"]


@pytest.mark.parametrize(
    ("places", "between"),
    [({}, True), ({"controls": (((0, 1), (1, 1)),)}, True), ({"controls": (((0, 0), (0, 2)),)}, False)]
    + [({"stretches": (((0, 1), (1, end), 1.0, ""),)}, end == 1) for end in (1, 2)]
    + [({"shortenable": (((0, end), (1, 0), USER),)}, end == 1) for end in (1, 2)],
)
def test_places_amid_a_text_are_seen(places: dict[str, Any], between: bool) -> None:
    whole: dict[str, Any] = {"stretches": (), "controls": (), "shortenable": ()}
    assert _ends_between(PlainForm(("a", "b"), (0,), ((False, False),), True, **(whole | places))) is between


def test_the_spelling_of_each_text_of_many_chats() -> None:
    form = PlainForm(("", "", ""), (1, 0), ((False, False),) * 2, True, (), (), (), False, ({"indent": 2}, {}))
    assert form.all_shown([("a", '{"b": 1}'), ("c", "[]")]) == [['{\n  "b": 1\n}', "[]"], ["a", "c"]]


@pytest.mark.parametrize("name", ["llama3", "qwen", "qwen3"])
def test_the_second_derivation_by_form_is_that_of_each_chat(name: str) -> None:
    bound = bind(SHIPPED, name)
    forms = PlainForms(bound.template, MaskOptions(train_on_eos="all"))

    @settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
    @given(rich_chats())
    def check(sample: Sample) -> None:
        chat = outlined(sample)
        form = forms.of(chat.form) if chat else None
        if chat is None or form is None or any(each in text for text in chat.texts for each in ODD[:8]):
            return
        found, expected = derived_of(form, form.shown(chat.texts)), derive(sample, forms.options, bound.template)
        assert (found.text, found.expected, found.controls) == (expected.text, expected.expected, expected.controls)

    check()
