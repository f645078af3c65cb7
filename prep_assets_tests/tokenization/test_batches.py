"""A batch is its examples, one after the other, and each refusal says which example and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.samples import COMPLETION, PROMPT, TEXT, USER, Region, Sample, Turn, document, turn
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import MaskPolicy, Rendered
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import TEXT_WITH_CONTROL, Loaded, chats, variant

Open = Callable[[str], Loaded]
KINDS = ["shipped", "smollm", "mistral_v3", "normalizing"]


@pytest.fixture(scope="module", params=KINDS)
def tools(request: pytest.FixtureRequest, open_tokenizer: Open) -> tuple[Vocabulary, Engines]:
    if request.param == "normalizing":
        vocabulary = variant(open_tokenizer("shipped").vocabulary, normalizer={"type": "NFC"})
        return vocabulary, choose_engine(vocabulary)
    loaded = open_tokenizer(request.param)
    return loaded.vocabulary, loaded.engines


TURNS = st.lists(TEXT_WITH_CONTROL, max_size=3).map(
    lambda texts: Sample(tuple(turn(PROMPT if i % 2 == 0 else COMPLETION, text) for i, text in enumerate(texts)) or document("").turns)
)
CHATS = chats(TEXT_WITH_CONTROL).map(lambda chat: Sample(tuple(turn(role, content) for role, content in chat)))
EXAMPLES = st.lists(TURNS | CHATS | TEXT_WITH_CONTROL.map(document), max_size=6)


def rendered(samples: Sequence[Sample], template: ChatTemplate) -> list[Rendered]:
    return [render(sample, template if sample.turns[0].role in ("system", "user") else None) for sample in samples]


@settings(max_examples=examples(60), deadline=None)
@given(samples=EXAMPLES, limit=st.none() | st.integers(1, 60), trains=st.booleans())
@example(
    samples=[Sample((turn(PROMPT, "a"), turn(COMPLETION, "▁"))), Sample((turn(PROMPT, "Hi"), turn(COMPLETION, "\x04")))] * 2,
    limit=None,
    trains=True,
)
@example(samples=[document(""), document("a"), document("")], limit=None, trains=False)
def test_a_batch_is_its_examples_one_after_the_other(
    tools: tuple[Vocabulary, Engines], samples: list[Sample], limit: int | None, trains: bool
) -> None:
    vocabulary, engines = tools
    encoder = Encoder(vocabulary, engines, MaskPolicy(), max_seq_len=limit, trains=trains)
    batch = rendered(samples, load_template("chatml", vocabulary))
    whole, alone = encoder.encode(batch), [encoder.encode([one]) for one in batch]
    assert whole.ids.tolist() == [token for one in alone for token in one.ids.tolist()]
    assert whole.loss.tolist() == [weight for one in alone for weight in one.loss.tolist()]
    assert np.diff(whole.offsets).tolist() == [length for one in alone for length in np.diff(one.offsets).tolist()]
    assert whole.kept.tolist() == [position for position, one in enumerate(alone) if len(one.kept)]
    refused = [(position, *_said(refusal)) for position, one in enumerate(alone) for _, refusal in one.refused]
    assert [(position, *_said(refusal)) for position, refusal in whole.refused] == refused
    assert sorted([*whole.kept.tolist(), *(position for position, _ in whole.refused)]) == list(range(len(batch)))


def _said(refusal: Exception) -> tuple[str, str, str]:
    return refusal.reason, refusal.detail, refusal.stage  # type: ignore[attr-defined]


def test_an_empty_batch(tokenizer: Loaded) -> None:
    found = Encoder(tokenizer.vocabulary, tokenizer.engines, MaskPolicy()).encode([])
    assert (found.ids.tolist(), found.loss.tolist(), found.offsets.tolist(), found.kept.tolist(), found.refused) == ([], [], [0], [], ())


# each reason, on purpose


def cut_word(loaded: Loaded) -> tuple[str, str, str]:
    """A word that is one token, in three parts."""
    table = loaded.vocabulary.token_bytes
    assert table is not None
    word = next(
        text.decode() for text in table if len(text) >= 5 and text.isalpha() and loaded.ordinary([text.decode()]) == [[table.index(text)]]
    )
    return word[:1], word[1:3], word[3:]


def parts(*texts: str) -> Sample:
    return Sample(tuple(turn(PROMPT if i % 2 == 0 else COMPLETION, text) for i, text in enumerate(texts)))


def test_every_reason_in_one_batch(open_tokenizer: Open) -> None:
    """smollm has no token for U+0004, so its text cannot be given back."""
    loaded = open_tokenizer("smollm")
    first, middle, last = cut_word(loaded)
    good, bad_half, inside = parts("Q:\n", "A"), parts(first, middle + last), parts(first, middle, last)
    untrained = Sample((Turn(USER, (Region(TEXT, "Hi"),)),))
    samples = [good, document("word " * 50), untrained, document("a\x04b"), bad_half, inside, good, document(""), good]
    batch = rendered(samples, load_template("chatml", loaded.vocabulary))
    found = Encoder(loaded.vocabulary, loaded.engines, MaskPolicy(), max_seq_len=20).encode(batch)
    assert [(position, refusal.reason, refusal.stage) for position, refusal in found.refused] == [
        (1, "too_long", "tokenize"),
        (2, "nothing_to_train", "tokenize"),
        (3, "lossy_tokenizer", "tokenize"),
        (4, "mask_border_inside_token", "tokenize"),
        (5, "mask_border_inside_token", "tokenize"),
        (7, "nothing_to_train", "tokenize"),
    ]
    details = {position: refusal.detail for position, refusal in found.refused}
    (long,) = loaded.ordinary(["word " * 50])
    assert details[1] == f"{len(long)} tokens, max_seq_len is 20"
    assert all(repr(first + middle + last) in details[position] for position in (4, 5))
    (tokens,) = loaded.ordinary(["Q:\nA"])
    assert found.kept.tolist() == [0, 6, 8]
    assert found.ids.tolist() == tokens * 3
    assert found.offsets.tolist() == [0, len(tokens), 2 * len(tokens), 3 * len(tokens)]
    assert found.loss.tolist() == [*[0.0] * (len(tokens) - 1), 1.0] * 3


@pytest.mark.parametrize("length", [1, 7, 19, 20])
def test_an_example_of_just_the_limit_is_kept(shipped: Loaded, length: int) -> None:
    text = "a" + " a" * 19
    (tokens,) = shipped.ordinary([text])
    assert len(tokens) == 20
    encoder = Encoder(shipped.vocabulary, shipped.engines, MaskPolicy(), max_seq_len=length)
    found = encoder.encode([render(document(text), None)])
    assert [refusal.reason for _, refusal in found.refused] == ([] if length == 20 else ["too_long"])


@pytest.mark.parametrize("text", ["a▁b", "▁", "▁▁ Hello"])
def test_sentencepiece_loses_its_own_space_character(open_tokenizer: Open, text: str) -> None:
    loaded = open_tokenizer("mistral_v3")
    assert loaded.vocabulary.decode(loaded.engines.rest.encode([text]).ids) != text
    found = Encoder(loaded.vocabulary, loaded.engines, MaskPolicy()).encode([render(document(text), None)])
    assert [refusal.reason for _, refusal in found.refused] == ["lossy_tokenizer"]


def test_a_lossy_example_does_not_touch_the_next(open_tokenizer: Open) -> None:
    """Its tokens are three bytes short of its text, and its end is trained."""
    loaded = open_tokenizer("mistral_v3")
    batch = [render(parts("Hi", " a▁"), None), render(parts("Hello there.", "\nYes"), None)]
    found = Encoder(loaded.vocabulary, loaded.engines, MaskPolicy()).encode(batch)
    assert [(position, refusal.reason) for position, refusal in found.refused] == [(0, "lossy_tokenizer")]
    assert found.kept.tolist() == [1]
    assert loaded.vocabulary.decode(found.ids[found.loss != 0]) == "\nYes"


def test_prompts_have_nothing_to_train(shipped: Loaded) -> None:
    batch = [render(Sample((turn(USER, "Hi"),)), load_template("chatml", shipped.vocabulary))]
    assert len(Encoder(shipped.vocabulary, shipped.engines, MaskPolicy(), trains=False).encode(batch).kept) == 1
    assert len(Encoder(shipped.vocabulary, shipped.engines, MaskPolicy(), trains=True).encode(batch).kept) == 0
