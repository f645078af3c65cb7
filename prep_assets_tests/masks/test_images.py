"""Images in conversations: never trained, always found, and the mask around them proven, whatever stands beside them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, PROMPT, TEXT, USER, Region, Sample, Turn, changed
from prep_assets.text.load_template import load_template
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.corpus.policies import POLICIES, REASONS
from prep_assets_tests.effort import examples, thinned
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, Bound, Outcome, assert_proven, bind, run, supported, trained, with_options
from prep_assets_tests.masks.strategies import samples

TOKEN = "<|picture|>"


@cache
def bind_images(name: str, patches: int) -> Bound:
    """A named template with the shipped tokenizer, to which an image token is added."""
    bound = bind(SHIPPED, name)
    backend = Tokenizer.from_str(bound.vocabulary.backend.to_str())
    backend.add_special_tokens([TOKEN])
    vocabulary = Vocabulary(f"pictures for {name}", backend, bound.vocabulary.special, None)
    return Bound(vocabulary, bound.engines, load_template(name, vocabulary, image=TOKEN * patches))


def image(number: int, **more) -> Region:
    return Region(IMAGE, f"https://example.org/{number}.png", **more)


def text(words: str, **more) -> Region:
    return Region(TEXT, words, **more)


@st.composite
def with_images(draw: st.DrawFn, of: st.SearchStrategy[Sample]) -> Sample:
    """A sample with images put anywhere among its regions, some with a loss weight, some dropped, one path more than once."""
    sample = draw(of)
    turns = []
    for turn in sample.turns:
        regions = list(turn.regions)
        for _ in range(draw(st.integers(0, 2))):
            new = image(
                draw(st.integers(0, 3)),
                loss_weight=draw(st.sampled_from([None, 0.0, 1.0])),
                drop=draw(st.sampled_from([False] * 4 + [True])),
            )
            regions.insert(draw(st.integers(0, len(regions))), new)
        turns.append(changed(turn, regions=tuple(regions)))
    return changed(sample, turns=tuple(turns))


plain_text = st.sampled_from(["A dog.", " a ", "", "\n", f"typed {TOKEN} here", TOKEN, "<|im_end|>", "été 🐕"])
untemplated = st.one_of(
    st.lists(plain_text.map(text), min_size=1, max_size=3).map(lambda regions: Sample((Turn(DOCUMENT, tuple(regions)),))),
    st.tuples(plain_text, plain_text).map(lambda both: Sample((Turn(PROMPT, (text(both[0]),)), Turn(COMPLETION, (text(both[1]),))))),
)


def assert_placed(bound: Bound, source: Sample, outcome: Outcome, patches: int) -> None:
    """The images of a kept sample: in the order of the render, on runs of the token, which is nowhere else and never trained."""
    placed, token = outcome.encoded.images, bound.vocabulary.control[TOKEN]
    if not outcome.kept:
        assert len(placed) == 0
        return
    shown = [region.text for turn in source.turns for region in turn.regions if region.kind == IMAGE and not region.drop]
    assert sorted(placed.paths) == sorted(shown)  # some templates move turns
    covered = [at for start, length in zip(placed.start, placed.length, strict=True) for at in range(start, start + length)]
    assert np.flatnonzero(outcome.ids(0) == token).tolist() == covered
    assert placed.length.tolist() == [patches] * len(shown)
    assert not outcome.loss(0)[covered].any()


@pytest.mark.parametrize("patches", [1, 3])
@pytest.mark.parametrize("name", thinned(["chatml", "qwen", "qwen3", "llama3", "mistral", "gemma", "plain", "deepseek-r1", "llama2"]))
def test_proven_or_refused(name: str, patches: int) -> None:
    bound = bind_images(name, patches)

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        with_images(samples((*CONTROL[name], TOKEN)) | untemplated),
        st.sampled_from(sorted(POLICIES)),
        st.sampled_from(["text", "strip", "refuse", "allow"]),
    )
    def check(sample: Sample, policy: str, special) -> None:
        options = supported(bound, POLICIES[policy])
        if sample.turns[0].role == DOCUMENT:
            options = replace(options, mask={**options.mask, DOCUMENT: "train"})
        outcome = assert_proven(bound, [sample], options, special)
        assert set(outcome.reasons) <= {*REASONS, "image_token_in_content", "needs_template"}
        assert_placed(bound, sample, outcome, patches)

    check()


def chat(*answer: Region) -> Sample:
    return Sample((Turn(USER, (text("Draw."),)), Turn(ASSISTANT, answer)))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((image(1), text(" A dog.")), [" A dog.<|im_end|>"]),
        ((text("Here: "), image(1)), ["Here: ", "<|im_end|>"]),
        ((text("One "), image(1), image(2, loss_weight=1.0), text(" two.")), ["One ", " two.<|im_end|>"]),
    ],
)
def test_what_is_trained_around_an_image(answer: tuple[Region, ...], expected: list[str]) -> None:
    bound = bind_images("chatml", 2)
    outcome = assert_proven(bound, [chat(*answer)])
    assert trained(bound, outcome) == expected


def test_an_answer_of_nothing_but_images_trains_nothing() -> None:
    assert run(bind_images("chatml", 1), [chat(image(1, loss_weight=1.0))]).reasons == {"nothing_to_train": 1}


def test_without_a_token_the_record_is_refused_and_the_others_are_not() -> None:
    outcome = run(bind(SHIPPED, "chatml"), [chat(image(1), text("x")), chat(text("x"))])
    assert outcome.kept == [1] and outcome.reasons == {"no_image_token": 1}


@pytest.mark.parametrize("special", ["text", "strip", "refuse", "allow"])
def test_a_typed_token_is_no_image(special) -> None:
    bound = bind_images("chatml", 1)
    source = Sample((Turn(USER, (image(1), text(f"Is {TOKEN} a tag?"))), Turn(ASSISTANT, (text("Yes."),))))
    outcome = run(bound, [source], None, special)
    expected = {"refuse": "control_token_in_content", "allow": "image_token_in_content"}.get(special)
    if expected:
        assert outcome.reasons == {expected: 1}
    else:
        assert_placed(bound, source, outcome, 1)
        assert outcome.control_tokens == 1


def long_chat(before: int, after: int) -> Sample:
    return Sample((Turn(USER, (text("w " * before), image(1), text(" v" * after))), Turn(ASSISTANT, (text("Yes."),))))


@pytest.mark.parametrize("patches", [1, 4])
@pytest.mark.parametrize("truncation", ["start", "end", "prompt", "turns"])
def test_truncation_leaves_an_image_whole_or_takes_it_whole(truncation, patches: int) -> None:
    """Every limit that cuts somewhere: kept records list exactly the images whose tokens they still have."""
    bound, token = bind_images("chatml", patches), "https://example.org/1.png"
    source = Sample((*long_chat(6, 6).turns, *long_chat(5, 2).turns))
    options = with_options(mask={}, mask_default="train")
    whole = run(bound, [source], options)
    reasons = set()
    for limit in range(2, len(whole.ids(0))):
        outcome = run(bound, [source], options, max_seq_len=limit, truncation=truncation)
        reasons |= set(outcome.reasons)
        if not outcome.kept:
            continue
        ids, placed = outcome.ids(0), outcome.encoded.images
        held = np.flatnonzero(ids == bound.vocabulary.control[TOKEN])
        assert held.tolist() == [at for start in placed.start for at in range(start, start + patches)]
        assert set(placed.paths) <= {token} and len(ids) <= limit
    assert ("image_cut" in reasons) == (patches > 1 and truncation in ("start", "end"))


@pytest.mark.parametrize("special", ["text", "strip", "refuse", "allow"])
def test_control_tokens_in_a_path_are_no_content(special) -> None:
    bound, path = bind_images("chatml", 1), f"https://example.org/<|im_end|>{TOKEN}.png"
    source = Sample(
        (Turn(USER, (Region(IMAGE, path), text("What?<|im_end|>" if special == "strip" else "What?"))), Turn(ASSISTANT, (text("It."),)))
    )
    outcome = assert_proven(bound, [source], None, special)
    assert outcome.encoded.images.paths == (path,) and outcome.control_tokens == (special == "strip")
