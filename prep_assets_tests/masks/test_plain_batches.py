"""Chats cut by form, in batches, are those that are rendered one by one: the same tokens, weights and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import TemplateError
from prep_assets.pipeline import conversations as plain_chats
from prep_assets.pipeline.conversations import PlainChats
from prep_assets.proofs.chat_blocks import derived_forms, moved
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.samples import ASSISTANT, SYSTEM, THINKING, USER, PlainChat, Region, Sample, Turn, turn
from prep_assets.text import forms
from prep_assets.text.certify import policy_faults
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, Bound, bind, bind_source, run
from prep_assets_tests.masks.test_arbitrary_conversations import POLICIES

TEXTS = st.text("aé中 \n<|>.", max_size=6) | st.sampled_from(
    ["Hi", "<|im_end|>", "</think>", "x</s>", " Hello! ", "\n\nWell.", "a\ufdd0", "\udc80"]
)
ROLES = st.sampled_from([(USER, ASSISTANT), (SYSTEM, USER, ASSISTANT), (USER, ASSISTANT, USER, ASSISTANT)])


@st.composite
def chats(draw: st.DrawFn) -> Sample:
    made = PlainChat(roles := draw(ROLES), tuple(draw(TEXTS) for _ in roles)).sample()
    if draw(st.integers(0, 5)):
        return made
    thoughtful = Turn(ASSISTANT, (Region(THINKING, "Hm."), Region("text", "So it is.")))
    return Sample((*made.turns, turn(USER, "Why?"), thoughtful))


def outcome(bound: Bound, samples: list[Sample], options: MaskOptions, **limits: Any) -> list[Any]:
    found = run(bound, samples, options, **limits)
    return [
        found.kept,
        found.encoded.ids.tolist(),
        found.encoded.loss.tolist(),
        found.encoded.offsets.tolist(),
        found.refused,
        found.control_tokens,
        found.left_out,
    ]


@pytest.mark.parametrize("name", ["alpaca", "chatml", "llama3", "mistral", "plain", "qwen3"])
def test_in_batches_and_one_by_one(name: str) -> None:
    bound = bind(SHIPPED, name)
    assert name in CONTROL

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(chats(), max_size=12),
        st.sampled_from(sorted(POLICIES)),
        st.sampled_from([None, 12, 40]),
        st.sampled_from(["drop", "end", "start", "prompt", "turns"]),
    )
    def check(samples: list[Sample], policy: str, limit: int | None, truncation: str) -> None:
        options = POLICIES[policy]
        if policy_faults(bound.template, train_on_eos=options.train_on_eos, train_headers=options.train_headers):
            options = MaskOptions()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(forms, "LEARN_AFTER", 1)
            batched = outcome(bound, samples, options, max_seq_len=limit, truncation=truncation)
            patched.setattr(PlainChats, "cut", lambda self, chats, whole: None)
            assert batched == outcome(bound, samples, options, max_seq_len=limit, truncation=truncation)

    check()


@pytest.mark.parametrize("name", sorted(CONTROL))
def test_the_second_derivation_by_form_is_that_of_each_chat(name: str) -> None:
    bound = bind(SHIPPED, name)
    options = MaskOptions(train_on_eos="all")
    known = derived_forms(bound.template, options, options, prompted=False)

    @settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(ROLES, st.data())
    def check(roles: tuple[str, ...], data: st.DataObject) -> None:
        texts = [data.draw(st.text(" a\né.", min_size=1).filter(str.strip)) for _ in roles]
        located = known.of(roles, any(text != text.strip() for text in texts))
        if located is not None:
            found = moved(located.words, located.form, located.form.shown(texts))
            assert found == derive(PlainChat(roles, tuple(texts)).sample(), options, bound.template)

    check()
    assert known.of((USER, ASSISTANT), False) is not None


LOOKS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.replace('needle', 'pin') }}<|im_end|>\n{% endfor %}"


def test_a_text_that_the_template_changes_is_refused() -> None:
    samples = [Sample((turn(USER, "Hi"), turn(ASSISTANT, text))) for text in ("Hello", "Well", "a needle", "Bye")]
    assert run(bind_source(LOOKS), samples).kept == [0, 1, 3]


def test_another_render_by_the_library_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [Sample((turn(USER, "Hi"), turn(ASSISTANT, text))) for text in ("Hello", "Well", "a needle", "Bye")]
    monkeypatch.setattr(PlainChats, "_minijinja_renders", lambda self, chats, written: True)
    monkeypatch.setattr(plain_chats, "ONE_IN", 1)
    with pytest.raises(TemplateError, match=r"refuses .*a needle"):
        run(bind_source(LOOKS), samples)
