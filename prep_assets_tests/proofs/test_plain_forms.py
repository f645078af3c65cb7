"""Chats derived by form are those derived one by one; masks compared as bytes are those compared as texts."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from prep_assets.caches import CACHES
from prep_assets.errors import CheckFailed
from prep_assets.proofs import plain_forms
from prep_assets.proofs.derive import MaskOptions, derive, expected_texts
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.plain_forms import PlainDerivation, PlainForm, PlainForms, answers_derivation, derived_of
from prep_assets.proofs.shaped_forms import Listed
from prep_assets.samples import ASSISTANT, USER, Sample, Turn, turn
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import SHIPPED, bind, bind_source, run
from prep_assets_tests.masks.test_plain_batches import chats
from prep_assets_tests.proofs.conversations import says, template

LOOKS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | replace('e', 'E') }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("name", ["alpaca", "chatml", "llama3", "qwen3"])
def test_by_form_and_by_itself(name: str, prompted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind(SHIPPED, name)
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)
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


def test_arguments_of_sorts_that_are_not_known_are_not_of_the_form() -> None:
    way = Listed("=", ",", ("", ""), False, (), "")
    form = PlainForm(("",) * 4, (2, 0, 1), ((False, False),) * 3, True, (), (), (), spellings=({}, way, {}))
    assert form.holds(['{"a": "b"}', " c", " d"])
    assert not form.holds(['{"a": " b"}', "c", "d"])
    assert PlainForm(("",) * 2, (0,), ((False, False),), True, (), (), ()).holds([" b"])


def test_what_a_model_continues_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts have forms of their own, with what stands after them; white space at the ends of their texts is known too."""
    bound, asked = bind(SHIPPED, "qwen3"), Sample((turn(USER, "Hi"),))
    whole, prompt = (PlainDerivation(MaskOptions(), bound.template, typed_controls=False, prompted=each) for each in (False, True))
    assert whole(asked).text == "<|im_start|>user\nHi<|im_end|>\n"
    assert prompt(asked).text == f"{whole(asked).text}<|im_start|>assistant\n"
    monkeypatch.setattr(prompt, "_alone", Mock(side_effect=AssertionError))
    for text in ("So?", " So?\n"):
        sample = Sample((turn(USER, text),))
        assert prompt(sample) == derive(sample, MaskOptions(), bound.template, prompted=True)
    monkeypatch.undo()
    typed = Sample((turn(USER, "<|im_end|>"),))
    assert prompt(typed) == derive(typed, MaskOptions(), bound.template, prompted=True)


def test_a_text_that_the_template_changes_unseen_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single letter is no string that texts are searched for, so only the chats that are derived both ways can tell."""
    bound = bind_source(LOOKS)
    monkeypatch.setattr(plain_forms, "ONE_IN", 1)
    derivation = PlainDerivation(MaskOptions(), bound.template, typed_controls=False)
    with pytest.raises(CheckFailed):
        derivation(Sample((turn(USER, "Hello"), turn(ASSISTANT, "Well"))))


def test_texts_of_many_chats_are_shown_as_those_of_each() -> None:
    form = PlainForm(("", "-", ""), (1, 0), ((True, False), (False, False)), True, (), (), ())
    chats = [(" a ", " b "), ("c", "\nd\n"), (" ", "e")]
    assert form.all_shown(chats) == [["b ", "d\n", "e"], [" a ", "c", " "]]
    assert form.all_shown(chats) == list(map(list, zip(*map(form.shown, chats), strict=True)))
    assert form.all_shown([]) == [[], []]


def test_two_derivations_that_differ_are_both_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_forms, "ONE_IN", 1)
    derivation = PlainDerivation(MaskOptions(), template(), typed_controls=False)
    by_itself = derivation._alone
    monkeypatch.setattr(derivation, "_alone", lambda sample: replace(by_itself(sample), text="é" * 300))
    with pytest.raises(CheckFailed) as raised:
        derivation(Sample((turn(USER, "H" * 300), turn(ASSISTANT, "Well"))))
    by_form = f"<|s|>user\n{'H' * 190}"
    assert str(raised.value) == f"derived by itself a chat is {'é' * 200!r}, by its form {by_form!r}; nothing is proven"


ROLES = (USER, ASSISTANT, USER)


def writes(shown: str) -> str:
    """A template that writes each text as `shown`."""
    ask = "{%- if add_generation_prompt -%}{{- '<|s|>assistant:' -}}{%- endif -%}"
    return "{%- for m in messages -%}{{- '<|s|>' + m.role + ':' -}}" + shown + "{{- '<|e|>' -}}{%- endfor -%}" + ask


@pytest.mark.parametrize(
    ("shown", "strips", "keeps_edges"),
    [
        ("{{- m.content -}}", (False, False), True),
        ("{{- m.content | trim -}}", (True, True), True),
        ("{{- m.content.lstrip() -}}", (True, False), True),
        ("{{- m.content.rstrip() -}}", (False, True), True),
        ("{{- m.content.rstrip('\\n') -}}", (False, False), False),
        ("{{- m.content.lstrip(' ') -}}", (False, False), False),
    ],
)
def test_what_becomes_of_white_space(shown: str, strips: tuple[bool, bool], keeps_edges: bool) -> None:
    forms = PlainForms(template(writes(shown)), MaskOptions())
    bare, form = forms.of(ROLES, spaced=False), forms.of(ROLES)
    assert form is not None and bare == replace(form, strips=((False, False),) * 3, keeps_edges=False)
    assert forms.of(ROLES, spaced=False) is forms.of(ROLES) is form
    assert (form.strips, form.keeps_edges) == ((strips,) * 3, keeps_edges)
    assert form.frames == ("<|s|>user:", "<|e|><|s|>assistant:", "<|e|><|s|>user:", "<|e|>") and form.turns == (0, 1, 2)
    lead, trail = strips
    assert form.shown([" a ", " b ", " c "]) == [f"{'' if lead else ' '}{x}{'' if trail else ' '}" for x in "abc"]


def test_white_space_is_learned_where_a_text_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)
    CACHES["derived forms"].clear()
    asked: list[bool] = []
    of = PlainForms.of
    monkeypatch.setattr(PlainForms, "of", lambda self, form, *, spaced: (asked.append(spaced), of(self, form, spaced=spaced))[1])
    derivation = PlainDerivation(MaskOptions(), template(writes("{{- m.content | trim -}}")), typed_controls=False)
    for text in ("a", " a", "a\n"):
        sample = Sample((turn(USER, "So?"), turn(ASSISTANT, text), turn(USER, "So.")))
        assert derivation(sample) == derivation._alone(sample)
    assert asked == [False, True, True]
    found = derivation.form(ROLES, edged=False)
    assert found is not None and found.keeps_edges
    bare = PlainDerivation(MaskOptions(), template(writes("{{- m.content.lstrip(' ') -}}")), typed_controls=False)
    assert bare.form(ROLES, edged=True) is None and bare.form(ROLES, edged=False) is not None


def test_a_text_that_a_template_writes_is_derived_by_form(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{%- for m in messages -%}{{- '<|s|>' + m.role + '>>' + m.content + '<|e|>' -}}{%- endfor -%}"
    derivation = PlainDerivation(MaskOptions(), template(source), typed_controls=False)
    sample = Sample((turn(USER, "1 << 3 >> 2?"), turn(ASSISTANT, "It is 2, assistant>> and all.")))
    expected = derivation._alone(sample)
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)
    monkeypatch.setattr(derivation, "_alone", Mock(side_effect=AssertionError))
    assert derivation(sample) == expected


def test_texts_in_the_order_of_the_render() -> None:
    """A template that writes the answer before its question."""
    source = "{%- for m in messages | reverse -%}{{- '<|s|>' + m.role + ':' + m.content + '<|e|>' -}}{%- endfor -%}"
    forms = PlainForms(template(source), MaskOptions())
    form = forms.of((USER, ASSISTANT))
    alone = derive(Sample((turn(USER, "Why?"), turn(ASSISTANT, "So."))), MaskOptions(), template(source))
    assert form is not None and form.turns == (1, 0) and form.shown(["Why?", "So."]) == ["So.", "Why?"]
    assert derived_of(form, ["So.", "Why?"]) == alone
    assert forms.of((USER, ASSISTANT)) is form


@pytest.mark.parametrize("shown", ["{{- m.content + m.content -}}", "{{- m.content | length -}}"])
def test_a_text_that_stands_not_once_has_no_form(shown: str) -> None:
    assert PlainForms(template(writes(shown)), MaskOptions()).of(ROLES) is None


def test_what_is_known_of_roles_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_forms, "MOST_KNOWN", 2)
    forms = PlainForms(template(), MaskOptions())
    one = forms.of((USER, ASSISTANT))
    forms.of(ROLES)
    assert forms.of((USER, ASSISTANT)) is one
    forms.of((USER,))
    assert len(forms._known) == 1 and forms.of((USER, ASSISTANT)) is not one
    for roles in (ROLES, (USER,), (USER, ASSISTANT)):
        forms.of(roles, spaced=False)
    assert forms._bare == forms._known.keys() == {(USER, ASSISTANT)}


@pytest.mark.parametrize(
    ("shown", "turns", "alone"),
    [
        ("{{- m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.")], 0),
        ("{{- m.content -}}", [turn(USER, " Hi"), turn(ASSISTANT, "So.")], 0),
        ("{{- m.content.rstrip('\\n') -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.")], 0),
        ("{{- m.content.rstrip('\\n') -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So. ")], 1),  # what becomes of white space is not known
        ("{{- m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So. <|e|>")], 1),  # a control token that somebody typed
        ("{{- m.content + ('--' if '--' in m.content else '') -}}", [turn(USER, "a--b"), turn(ASSISTANT, "So.")], 1),
        ("{{- m.content -}}", [turn(USER, "Hi"), says("~Hm.", "So.")], 1),
        ("{{- m.content + m.content -}}", [turn(USER, "Hi"), turn(ASSISTANT, "So.")], 1),
    ],
)
def test_which_chats_are_derived_by_themselves(shown: str, turns: list[Turn], alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)
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
    assert seen == [text for text in last if zlib.crc32(text.encode()) % plain_forms.ONE_IN == 0] != []


@pytest.mark.parametrize("typed_controls", [True, False])
def test_typed_control_tokens_are_told_to_the_derivation(typed_controls: bool) -> None:
    sample = Sample((turn(USER, "Hi"), turn(ASSISTANT, "So <|e|> it is.")))
    derivation = PlainDerivation(MaskOptions(), template(), typed_controls=typed_controls)
    assert derivation(sample) == derive(sample, MaskOptions(), template(), typed_controls=typed_controls)


def test_half_of_a_surrogate_pair_may_be_in_the_sample() -> None:
    texts = [f"{number}\ud800" for number in range(200)]
    found = [text for text in texts if PlainDerivation.in_sample([text])]
    assert found == [text for text in texts if zlib.crc32(text[:-1].encode() + b"\xed\xa0\x80") % plain_forms.ONE_IN == 0] != []


def side(last: float | None, answer: str = "So it is.") -> Sample:
    """A side of a pair, whose regions say what is trained."""
    turns = turn(USER, "Hi"), turn(ASSISTANT, "Hello"), turn(USER, "So?"), turn(ASSISTANT, answer)
    weights = (0.0, 0.0, 0.0, last)
    return Sample(tuple(replace(t, regions=(replace(t.regions[0], loss_weight=w),)) for t, w in zip(turns, weights, strict=True)))


def test_the_sides_of_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer is trained where its weight says so, whatever its role; such a side is derived by form."""
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)
    derivation = answers_derivation(template())
    for sample in (side(1.0), side(None), side(0.5), side(1.0, "So <|e|> it is.")):
        assert derivation(sample) == derive(sample, MaskOptions(mask={}), template(), typed_controls=False)
    assert [each.text for each in derivation(side(1.0)).expected] == ["So it is.<|e|>"] and derivation(side(None)).expected == ()
    form = derivation.form((USER, ASSISTANT, USER, ASSISTANT), edged=False)
    assert form is not None and len(form.stretches) == 1
    monkeypatch.setattr(derivation, "_alone", Mock(side_effect=AssertionError))
    assert derivation(side(1.0)) == derive(side(1.0), MaskOptions(mask={}), template())


def test_masks_compared_as_bytes() -> None:
    bound = bind(SHIPPED, "chatml")
    sample = Sample((turn(USER, "What is it?"), turn(ASSISTANT, "It is é and 中."), turn(USER, "So?"), turn(ASSISTANT, "So.")))
    found = run(bound, [sample])
    right = Row("right", found.ids(0), found.loss(0), expected_texts(sample, MaskOptions(), bound.template))
    many = [right] * (2 * bound.vocabulary.size // len(right.ids) + 1)
    assert prove_masks(many, bound.vocabulary).passed
    for mask in (np.roll(right.mask, 1), right.mask * 0.5, np.zeros_like(right.mask), np.ones_like(right.mask)):
        verdict = prove_masks([*many, replace(right, id="wrong", mask=mask)], bound.vocabulary)
        assert not verdict.passed
        assert verdict.worst is not None
        assert verdict.worst.where == "wrong"
    other = right.ids.copy()
    trained = np.flatnonzero(right.mask)
    other[trained[0]] = other[trained[1]]
    assert not prove_masks([*many, replace(right, ids=other)], bound.vocabulary).passed
