"""Chats derived by form are those derived one by one."""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import product
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings

from prep_assets.errors import CheckFailed
from prep_assets.proofs import chat_blocks as module
from prep_assets.proofs.chat_blocks import PlainDerivation, answers_derivation, derived_forms, moved
from prep_assets.proofs.derive import Derived, MaskOptions, derive
from prep_assets.samples import ASSISTANT, USER, Sample, changed, turn
from prep_assets.text.chats import outlined
from prep_assets_tests.corpus.chats import ODD, chats, rich_chats
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import SHIPPED, bind, bind_source
from prep_assets_tests.proofs.conversations import CONTROL, PLAIN, TRIMS, template


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
    for text in ("<|im_end|>", "\udc80"):
        typed = Sample((turn(USER, text),))
        assert prompt(typed) == derive(typed, MaskOptions(), bound.template, prompted=True)


def test_what_is_derived_by_itself_is_so_under_the_same_options() -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    own = bind_source(source + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}").template
    sample, seen = Sample((turn(USER, "<|im_end|>?"), turn(ASSISTANT, "Hello."))), list[Derived]()
    for typed, prompted, prompts in product((False, True), repeat=3):
        options = {"typed_controls": typed, "prompted": prompted, "prompts": prompts}
        seen.append(derive(sample, MaskOptions(), own, **options))
        assert PlainDerivation(MaskOptions(), own, **options)(sample) == seen[-1]
    assert len({*seen}) == 8


@pytest.mark.parametrize("source", [PLAIN, TRIMS])
def test_white_space_around_texts(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around all of them, some or none; the template keeps it or takes it away."""
    without_sample(monkeypatch)
    derivation = PlainDerivation(MaskOptions(), template(source), typed_controls=False)
    monkeypatch.setattr(derivation, "_alone", Mock(side_effect=AssertionError))
    for texts in product(("Hi", " Hi\n"), ("Hello.", "\tHello. ")):
        sample = Sample(tuple(map(turn, (USER, ASSISTANT), texts)))
        assert derivation(sample) == derive(sample, MaskOptions(), template(source))


SEARCHES = "{% for m in messages %}<|s|>{{ m.role }}\n{{ m.content.replace('[a]', 'x y') }}<|e|>\n{% endfor %}"


def test_a_text_with_what_a_template_looks_for_is_derived_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one with a control token, or with nothing in it; of code nobody knows what it looks for."""
    without_sample(monkeypatch)
    own = replace(template(SEARCHES), training="{% if '[b]' in messages[0].content %}{{ 1 / 0 }}{% endif %}")
    derivation = PlainDerivation(MaskOptions(), own, typed_controls=False)
    assert derivation.looked_for == ("[a]", "[b]", "x y", *CONTROL) and not derivation.alone
    by_itself = Mock(side_effect=derivation._alone)
    monkeypatch.setattr(derivation, "_alone", by_itself)
    plain, odd = ("So.", " So\n", "[", "xy", "<e>"), ("So [b].", "[b]", " ", "", "<|s|>", "x y", "\udc80")
    for place, text in product((0, 1), (*plain, *odd)):
        texts = ["Hi", "Well"]
        texts[place] = text
        sample = Sample(tuple(map(turn, (USER, ASSISTANT), texts)))
        try:
            expected = derive(sample, MaskOptions(), own)
        except CheckFailed:
            with pytest.raises(CheckFailed):
                derivation(sample)
        else:
            assert derivation(sample) == expected
    alone = [
        each.args[0].turns[place].text
        for place in (0, 1)
        for each in by_itself.call_args_list
        if each.args[0].turns[1 - place].text in ("Hi", "Well")
    ]
    assert {*alone} - {"Hi", "Well"} == {*odd} and not {*plain} & {*alone}
    code = PlainDerivation(MaskOptions(), replace(own, renderer=Mock()), typed_controls=False)
    assert code.looked_for == CONTROL and code.alone


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
