"""Chats derived by form are those derived one by one; masks compared as bytes are those compared as texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from prep_assets.errors import CheckFailed
from prep_assets.proofs import plain_forms
from prep_assets.proofs.mask import Row, prove_masks
from prep_assets.proofs.plain_forms import PlainDerivation
from prep_assets.proofs.trained_texts import MaskOptions, derive, expected_texts
from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets_tests.masks.bound import SHIPPED, bind, bind_source, run
from prep_assets_tests.masks.test_plain_batches import chats

LOOKS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | replace('e', 'E') }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize("name", ["alpaca", "chatml", "llama3", "qwen3"])
def test_by_form_and_by_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind(SHIPPED, name)
    monkeypatch.setattr(plain_forms, "ONE_IN", 1 << 40)
    derivation = PlainDerivation(MaskOptions(), bound.template, typed_controls=False)

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(chats())
    def check(sample: Sample) -> None:
        try:
            expected = derive(sample, MaskOptions(), bound.template)
        except CheckFailed:
            return  # such a row is never stored
        assert derivation(sample) == expected

    check()


def test_a_text_that_the_template_changes_unseen_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single letter is no string that texts are searched for, so only the chats that are derived both ways can tell."""
    bound = bind_source(LOOKS)
    monkeypatch.setattr(plain_forms, "ONE_IN", 1)
    derivation = PlainDerivation(MaskOptions(), bound.template, typed_controls=False)
    with pytest.raises(CheckFailed):
        derivation(Sample((turn(USER, "Hello"), turn(ASSISTANT, "Well"))))


def test_masks_compared_as_bytes() -> None:
    bound = bind(SHIPPED, "chatml")
    sample = Sample((turn(USER, "What is it?"), turn(ASSISTANT, "It is é and 中."), turn(USER, "So?"), turn(ASSISTANT, "So.")))
    found = run(bound, [sample])
    right = Row("right", found.ids(0), found.loss(0), expected_texts(sample, MaskOptions(), bound.template))
    many = [right] * (2 * bound.vocabulary.size // len(right.ids) + 1)
    assert prove_masks(many, bound.vocabulary).passed
    for change in (lambda mask: np.roll(mask, 1), lambda mask: mask * 0.5, lambda mask: np.zeros_like(mask), np.ones_like):
        verdict = prove_masks([*many, replace(right, id="wrong", mask=change(right.mask))], bound.vocabulary)
        assert not verdict.passed
        assert verdict.worst is not None
        assert verdict.worst.where == "wrong"
    other = right.ids.copy()
    trained = np.flatnonzero(right.mask)
    other[trained[0]] = other[trained[1]]
    assert not prove_masks([*many, replace(right, ids=other)], bound.vocabulary).passed
