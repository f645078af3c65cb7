"""Images in renders: their placeholder stands for them, never their path, and where it stands is known."""

from __future__ import annotations

import pytest

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, PROMPT, TEXT, USER, Region, Sample, Turn
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SPECIAL = {"eos_token": "<eos>"}


def template(image: str, source: str = CHATML) -> ChatTemplate:
    return ChatTemplate("own", source, SPECIAL, {}, ("<|im_start|>", "<|im_end|>", "<img>", "<eos>"), image=image)


def picture(path: str = "a/1.png", **more) -> Region:
    return Region(IMAGE, path, **more)


def text(words: str, **more) -> Region:
    return Region(TEXT, words, **more)


@pytest.mark.parametrize("patches", [1, 3])
@pytest.mark.parametrize(
    "sample",
    [
        Sample((Turn(PROMPT, (picture(),)), Turn(COMPLETION, (text("A dog."),)))),
        Sample((Turn(DOCUMENT, (text("Left"), picture(), text("right"))),)),
        Sample((Turn(PROMPT, (picture(), text("What?", drop=True))), Turn(COMPLETION, (text("It."), picture("b.png"))))),
        Sample((Turn(USER, (text("Who? "), picture())), Turn(ASSISTANT, (text("Kane."),)))),
        Sample((Turn(USER, (picture(), picture("b.png"), text(" Who?"))), Turn(ASSISTANT, (picture("c.png"), text("Kane."))))),
    ],
)
def test_the_placeholder_stands_where_the_image_stood_and_the_path_nowhere(sample: Sample, patches: int) -> None:
    rendered = render(sample, template("<img>" * patches))
    regions = [region for turn in sample.turns for region in turn.regions if region.kind == IMAGE]
    assert not any(region.text in rendered.text for region in regions)
    assert [region for _, _, region in rendered.images] == regions
    assert [rendered.text[start:end] for start, end, _ in rendered.images] == ["<img>" * patches] * len(regions)
    assert rendered.text.count("<img>") == patches * len(regions)
    assert not any(low < end and start < high for low, high in rendered.content for start, end, _ in rendered.images)


def test_the_whole_text_of_an_untemplated_sample() -> None:
    sample = Sample((Turn(PROMPT, (picture(), text("What? "))), Turn(COMPLETION, (text("A dog."),))))
    assert render(sample, template("<img><img>")).text == "<img><img>What? A dog.<eos>"


def test_a_dropped_image_is_not_there() -> None:
    sample = Sample((Turn(USER, (picture(drop=True), text("Who?"))), Turn(ASSISTANT, (text("Kane."),))))
    rendered = render(sample, template("<img>"))
    assert rendered.images == () and "<img>" not in rendered.text


@pytest.mark.parametrize(("first", "second"), [(USER, ASSISTANT), (PROMPT, COMPLETION)])
def test_without_an_image_token_a_sample_with_an_image_is_refused(first: str, second: str) -> None:
    sample = Sample((Turn(first, (picture(), text("Who?"))), Turn(second, (text("Kane."),))))
    with pytest.raises(Refused) as refused:
        render(sample, template(""))
    assert refused.value.reason == "no_image_token" and "image_token" in refused.value.detail


def test_a_document_without_any_template() -> None:
    sample = Sample((Turn(DOCUMENT, (text("Left"), picture())),))
    with pytest.raises(Refused, match="image_token"):
        render(sample, None)


def test_placeholders_that_are_not_told_from_typed_text_are_content_no_more() -> None:
    """The text of the token, typed by somebody, is content; only the template's own and the placeholders are not."""
    sample = Sample((Turn(USER, (picture(), text("is <img> a tag?"))), Turn(ASSISTANT, (text("Yes."),))))
    rendered = render(sample, template("<img>"))
    outside = [rendered.text[low:high] for low, high in rendered.content]
    assert outside == ["is <img> a tag?", "Yes."]
    assert len(rendered.images) == 1
