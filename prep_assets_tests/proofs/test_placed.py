"""Placeholders put into a derivation that has one token for each image: every place behind one moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected, with_placeholders
from prep_assets.samples import AUDIO, IMAGE, Region
from prep_assets_tests.proofs.conversations import marked, template

TEXT = "<|s|>See <img> and <img>!<|e|><img>So.<|e|>"
DERIVED = Derived(
    TEXT,
    (Expected(" and ", 0.5, "", 14, 19), Expected("So.<|e|>", 1.0, "<|e|>", 35, 43)),
    ((0, 5), (9, 14), (19, 24), (25, 30), (30, 35), (38, 43)),
    3,
    ((5, 9, "user"), (24, 25, "user"), (35, 37, "assistant")),
)
IMAGES = [Region(IMAGE, "1", placeholder="<img><img>"), Region(IMAGE, "2"), Region(IMAGE, "3", placeholder="[<|s|>x<img>]")]


def test_each_image_has_its_own() -> None:
    assert marked(DERIVED) == "<|s|>‹See ›<img>0.5⟦ and ⟧…<img>‹!›<|e|><img>‹⟦So›.<|e|>⟧"
    found = with_placeholders(DERIVED, IMAGES, template(image="<img><img><img>"))
    assert marked(found) == "<|s|>‹See ›<img><img>0.5⟦ and ⟧…<img><img><img>‹!›<|e|>[<|s|>x<img>]‹⟦So›.<|e|>⟧"
    tokens = [found.text[slice(*where)] for where in found.controls]
    assert tokens == ["<|s|>", "<img>", "<img>", "<img>", "<img>", "<img>", "<|e|>", "<|s|>", "<img>", "<|e|>"]
    assert list(found.controls) == sorted(found.controls)
    assert found.typed == 3 and [each.stop for each in found.expected] == ["", "<|e|>"]


def test_one_token_for_each_changes_nothing() -> None:
    one = [Region(IMAGE, "1", placeholder="<img>")] * 3
    assert with_placeholders(DERIVED, one, template(image="<img>")) == DERIVED
    without = Derived("One.<|e|>", (Expected("One.", 1.0, "", 0, 4),), ((4, 9),), 0, ())
    assert with_placeholders(without, [], template(image="<img>")) == without


@pytest.mark.parametrize("images", [IMAGES[:2], [*IMAGES, IMAGES[0]], []])
def test_a_template_that_writes_another_number_of_images(images: list[Region]) -> None:
    with pytest.raises(CheckFailed) as raised:
        with_placeholders(DERIVED, images, template(image="<img>"))
    assert str(raised.value) == f"template own writes 3 marks for {['<img>'] * len(images)}, or in another order, so nothing is proven"


def test_images_and_audio_stand_in_their_order() -> None:
    own = replace(template(image="<img>"), audio="<|s|>")
    heard = [Region(AUDIO, "0", placeholder="<|s|><|s|>"), *IMAGES]
    found = with_placeholders(DERIVED, heard, own)
    assert marked(found) == "<|s|><|s|>‹See ›<img><img>0.5⟦ and ⟧…<img>‹!›<|e|>[<|s|>x<img>]‹⟦So›.<|e|>⟧"
    with pytest.raises(CheckFailed) as raised:
        with_placeholders(DERIVED, [*IMAGES, heard[0]], own)
    wanted = ["<img>", "<img>", "<img>", "<|s|>"]
    assert str(raised.value) == f"template own writes 4 marks for {wanted}, or in another order, so nothing is proven"
