"""The examples that one conversation becomes: one for each answer where its render loses reasoning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import (
    Derived,
    Expected,
    MaskOptions,
    Weighted,
    derive,
    disagreement,
    examples_again,
    pattern,
    untemplated,
    with_placeholders,
)
from prep_assets.samples import AUDIO, COMPLETION, DOCUMENT, IMAGE, PROMPT, SEPARATOR, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets_tests.cells import cells
from prep_assets_tests.proofs.conversations import chat, marked, says, template, user

# -- The examples that one conversation becomes: one for each answer where its render loses reasoning -------------------------------------

OPTIONS: dict[str, Any] = {"mask": {"assistant": "train"}, "mask_default": "mask", "train_thinking": True, "train_tool_calls": True}
ROUNDS = chat(user("1?"), says("~Hm.", "One."), user("2?"), says("~So.", "Two."), user("3?"), says("Three."), user("Bye"))


def whole(sample: Sample) -> Derived:
    return Derived(" ".join(region.text for turn in sample.turns for region in turn.regions), (), (), 0, ())


def last_only(sample: Sample) -> Derived:
    """Shows reasoning of the last turn alone."""
    last = len(sample.turns) - 1
    shows = [r.text for at, turn in enumerate(sample.turns) for r in turn.regions if at == last or r.kind != THINKING]
    return replace(whole(sample), text=" ".join(shows))


def shown(samples: list[Sample]) -> list[list[tuple[str, float | None]]]:
    return [[(turn.text, turn.regions[0].loss_weight) for turn in sample.turns] for sample in samples]


def test_one_example_for_each_answer() -> None:
    found = examples_again(ROUNDS, OPTIONS, last_only)
    assert shown(found) == [
        [("1?", None), ("Hm.One.", None)],
        [("1?", 0.0), ("Hm.One.", 0.0), ("2?", None), ("So.Two.", None)],
        [("1?", 0.0), ("Hm.One.", 0.0), ("2?", 0.0), ("So.Two.", 0.0), ("3?", None), ("Three.", None)],
    ]
    assert [region.loss_weight for turn in found[1].turns for region in turn.regions] == [0.0, 0.0, 0.0, None, None, None]
    assert all(each.tools == ROUNDS.tools for each in found)


@pytest.mark.parametrize(
    ("first", "options", "examples"),
    [
        (says("~Hm.", "One."), {}, 2),
        (says("~ ", "One."), {}, 1),  # no reasoning that could be lost
        (Turn("assistant", (Region(THINKING, "Hm.", drop=True), Region(TEXT, "One."))), {}, 1),
        (says("~Hm.", "One.", weights={0: 0.0, 1: 0.0}), {}, 1),
        (says("~Hm.", "One.", weights={0: 0.5, 1: 0.0}), {}, 2),
        (says("~Hm.", "One.", weights={1: 0.0}), {"train_thinking": False}, 1),
        (says("~Hm.", "!f", weights={0: 0.0}), {}, 2),
        (Turn("assistant", (Region(THINKING, "Hm.", 0.0), Region(IMAGE, "a.png", 1.0))), {}, 1),
        (Turn("assistant", (Region(THINKING, "Hm.", 0.0), Region(TEXT, "x", drop=True))), {}, 1),
        (says("~Hm.", "One."), {"mask": {}, "mask_default": "train"}, 2),
        (says("~Hm.", "One."), {"mask": {"assistant": "mask"}}, 1),
        (says("~Hm.", "One.", role="narrator"), {"mask_default": "train"}, 1),
    ],
)
def test_which_answers_are_trained(first: Turn, options: dict[str, Any], examples: int) -> None:
    second = says("Two.", weights={0: 1.0})
    assert len(examples_again(chat(user("1?"), first, user("2?"), second), {**OPTIONS, **options}, last_only)) == examples


def test_reasoning_is_lost_of_one_answer_and_kept_of_another() -> None:
    assert len(examples_again(chat(*ROUNDS.turns[:4]), OPTIONS, last_only)) == 2
    assert examples_again(chat(*ROUNDS.turns[:4]), OPTIONS, whole) == [chat(*ROUNDS.turns[:4])]


@pytest.mark.parametrize(("unserved", "examples"), [((), 1), ((1,), 2), ((0,), 1), ((0, 3), 2)])
def test_an_answer_behind_a_prompt_that_no_server_sends_ends_an_example(unserved: tuple[int, ...], examples: int) -> None:
    sample = chat(user("1?"), says("One."), user("2?"), says("Two."))
    assert len(examples_again(sample, OPTIONS, lambda given: replace(whole(given), unserved=unserved))) == examples


def test_the_last_turn_ends_an_example_where_something_is_trained_behind_the_last_answer_or_nowhere() -> None:
    assert examples_again(ROUNDS, {**OPTIONS, "mask": {}}, last_only) == [ROUNDS]
    found = examples_again(ROUNDS, {**OPTIONS, "mask": {}, "mask_default": "train"}, last_only)
    assert [len(each.turns) for each in found] == [2, 4, 6, 7] and found[3].turns[6] == ROUNDS.turns[6]


def test_one_template_with_two_tokenizers() -> None:
    """Whose control tokens differ: a template is known by its source and by these."""
    source = "{% for m in messages %}<a>{{ m.content }}<b>{% endfor %}"
    sample = chat(user("Hi"), says("Ho"))
    for control in (("<b>",), ("<a>", "<b>")):
        found = derive(sample, MaskOptions(), template(source, control=control))
        assert [found.text[slice(*where)] for where in found.controls] == [*control] * 2


# -- Turns that stand end to end: `⟦ ⟧` around what is trained, `‹ ›` around what truncation may shorten ----------------------------------

ASKED = says("Why?", role=PROMPT)
TEXTS = MaskOptions({"document": "train", "completion": "train"})


def derived(*turns: Turn, image: str = "", eos: str = "<|end|>", **options: Any) -> Derived:
    policy = MaskOptions(**{"mask": TEXTS.mask, **options})
    return untemplated(chat(*turns), policy, template(image=image, eos=eos))


@cells(
    ("turns", "options", "shown"),
    [
        ([says("One.", role=DOCUMENT)], {}, "⟦One.<|end|>⟧"),
        ([says("One.", role=DOCUMENT)], {"mask": {}}, "‹One.›<|end|>"),
        ([says("One.", role=DOCUMENT)], {"train_on_eos": "none"}, "⟦One.⟧…<|end|>"),
        ([says("One.", role=DOCUMENT)], {"eos": ""}, "⟦One.⟧…"),
        ([ASKED, says("So.", role=COMPLETION)], {}, "‹Why?›⟦So.<|end|>⟧"),
        ([ASKED, says("So.", role=COMPLETION)], {"mask": {}, "mask_default": "train"}, "⟦Why?So.<|end|>⟧"),
        ([ASKED, says("So.", role=COMPLETION)], {"mask": {}, "train_on_eos": "all"}, "‹Why?›‹So.›⟦<|end|>⟧"),
        ([says("a", "b", weights={0: 0.5}, role=DOCUMENT)], {}, "0.5⟦a⟧…⟦b<|end|>⟧"),
        ([says("a", "b", "c", weights={0: 0.0, 1: 0.0}, role=DOCUMENT)], {}, "‹ab›⟦c<|end|>⟧"),
        ([says("a", "b", "c", weights={0: 0.0, 2: 0.0}, role=DOCUMENT)], {}, "‹a›⟦b⟧…‹c›<|end|>"),
        ([says("~a", "b", role=DOCUMENT)], {}, "⟦ab<|end|>⟧"),
        ([says("~a", "b", role=DOCUMENT)], {"train_thinking": False}, "a⟦b<|end|>⟧"),
        ([says("One.", role=COMPLETION), says("Two.", role=COMPLETION)], {}, "⟦One.<|end|>Two.<|end|>⟧"),
        ([says("One.", role=COMPLETION), says("Two.", role=COMPLETION)], {"train_turns": "last"}, "‹One.›<|end|>⟦Two.<|end|>⟧"),
        ([says("One.", role=COMPLETION), says("Two.", role=COMPLETION)], {"train_on_eos": "last"}, "⟦One.⟧…<|end|>⟦Two.<|end|>⟧"),
        ([says("One.", role=COMPLETION), ASKED], {"train_turns": "last"}, "⟦One.<|end|>⟧‹Why?›"),
        ([says(each, role=COMPLETION) for each in "abc"], {"train_turns": "last"}, "‹a›<|end|>‹b›<|end|>⟦c<|end|>⟧"),
        ([says(each, role=COMPLETION) for each in "abc"], {"train_on_eos": "last"}, "⟦a⟧…<|end|>⟦b⟧…<|end|>⟦c<|end|>⟧"),
        ([Turn(DOCUMENT, (Region(TEXT, "gone", drop=True),))], {"train_on_eos": "all"}, "<|end|>"),
        ([Turn(DOCUMENT, (Region(TEXT, "gone", drop=True), Region(TEXT, "kept")))], {}, "⟦kept<|end|>⟧"),
        ([Turn(DOCUMENT, (Region("quote", "own kind", 0.0),))], {}, "‹own kind›<|end|>"),
        ([Turn(DOCUMENT, (Region(TOOL_CALL, "{}"), Region(THINKING, "t", 0.0)))], {"train_tool_calls": False}, "{}t<|end|>"),
        ([says("@1.png", role=DOCUMENT)], {"image": "<img>"}, "<img><|end|>"),
        ([says("See ", "@1.png", ".", role=DOCUMENT)], {"image": "<img>"}, "⟦See ⟧…<img>⟦.<|end|>⟧"),
        ([says("See ", "@1.png", ".", role=DOCUMENT)], {"image": "<img>", "mask": {}}, "‹See ›<img>‹.›<|end|>"),
    ],
)
def test_what_is_trained(turns: list[Turn], options: dict[str, Any], shown: str) -> None:
    assert marked(derived(*turns, **options)) == shown


@pytest.mark.parametrize(
    ("own", "special", "written", "controls"),
    [
        ("", {}, "<|sep|>", []),
        ("", {"sep_token": "<|s|>"}, "<|s|>", ["<|s|>"]),
        ("\n", {"sep_token": "<|s|>"}, "\n", []),
        ("<|e|>", {}, "<|e|>", ["<|e|>"]),
    ],
)
def test_a_separator_is_its_own_text_or_the_tokenizers_token(own: str, special: dict[str, str], written: str, controls: list[str]) -> None:
    asked = Turn(PROMPT, (Region(TEXT, "Why?"), Region(SEPARATOR, own, 0.0)))
    found = untemplated(chat(asked, says("So.", role=COMPLETION)), TEXTS, replace(template(), special={"eos_token": "<|end|>", **special}))
    assert marked(found) == f"‹Why?{written}›⟦So.<|end|>⟧"
    assert [found.text[slice(*where)] for where in found.controls] == [*controls, "<|end|>"] and found.typed == 0


def test_a_tokenizer_without_an_end_of_text_token() -> None:
    found = untemplated(chat(says("One.", role=DOCUMENT)), TEXTS, replace(template(), special={}))
    assert marked(found) == "⟦One.⟧…"


def test_roles_of_what_may_be_shortened() -> None:
    assert derived(ASKED, says("So.", role=COMPLETION), mask={}).shortenable == ((0, 4, PROMPT), (4, 7, COMPLETION))


@pytest.mark.parametrize(
    ("turns", "options", "controls", "typed"),
    [
        ([says("One.", role=DOCUMENT)], {}, ["<|end|>"], 0),
        ([says("One.", role=DOCUMENT)], {"eos": "</s>"}, [], 0),  # no control token ends it
        ([says("One.", role=DOCUMENT)], {"eos": ""}, [], 0),
        ([says("<|s|>", "@1.png", "<img>", "@2.png", role=DOCUMENT)], {"image": "<img>"}, ["<img>", "<img>", "<|end|>"], 2),
        ([ASKED, says("So.", role=COMPLETION), says("@1.png", role=DOCUMENT)], {"image": "<img>"}, ["<|end|>", "<img>", "<|end|>"], 0),
    ],
)
def test_control_tokens(turns: list[Turn], options: dict[str, Any], controls: list[str], typed: int) -> None:
    found = derived(*turns, **options)
    assert ([found.text[slice(*where)] for where in found.controls], found.typed) == (controls, typed)
    assert list(found.controls) == sorted(found.controls)


def test_of_control_tokens_that_begin_alike_the_longest_counts() -> None:
    assert pattern(template(control=("<a>", "<b>", "<a><a>"))).findall("<a><a><a><b>") == ["<a><a>", "<a>", "<b>"]
    assert pattern(template(control=())).findall("<a>") == []


# -- Two derivations of a mask, side by side: every difference is told, that of white space too -------------------------------------------

AGREED_TEXT = "<u>Hi there<a> Well, well.<e>\n"


def agreed_derived(*trained: Weighted, text: str = AGREED_TEXT) -> Derived:
    expected = tuple(Expected(text[start:end], weight, "", start, end) for start, end, weight in trained)
    return Derived(text, expected, (), 0, ())


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([(14, 20, 1.0), (20, 29, 1.0)], [(14, 29, 1.0)]),
        ([(14, 29, 1.0)], [(14, 16, 1.0), (16, 26, 1.0), (26, 29, 1.0)]),
        ([(3, 11, 2.0), (11, 29, 1.0)], [(3, 11, 2.0), (11, 29, 1.0)]),
    ],
)
def test_they_agree(mine: list[Weighted], theirs: list[Weighted]) -> None:
    assert disagreement(agreed_derived(*mine), AGREED_TEXT, theirs) is None
    assert disagreement(agreed_derived(*theirs), AGREED_TEXT, mine) is None


@pytest.mark.parametrize(
    ("derivation", "build", "says"),
    [
        ([], [(14, 29, 1.0)], "' Well, well.<e>' has loss weight 1 by its marks and 0 by its frames"),
        ([(14, 29, 1.0)], [(13, 29, 1.0)], "'>' has loss weight 1 by its marks and 0 by its frames"),
        ([(14, 29, 0.5)], [(14, 29, 0.25)], "' Well, well.<e>' has loss weight 0.25 by its marks and 0.5 by its frames"),
        ([(3, 5, 1.0), (14, 29, 1.0)], [(14, 29, 1.0)], "'Hi' has loss weight 0 by its marks and 1 by its frames"),
        ([(15, 29, 1.0)], [(14, 29, 1.0)], "' ' has loss weight 1 by its marks and 0 by its frames"),
        ([(0, 30, 1.0)], [(0, 29, 1.0), (29, 30, 0.5)], "'\\n' has loss weight 0.5 by its marks and 1 by its frames"),
    ],
)
def test_they_differ(derivation: list[Weighted], build: list[Weighted], says: str | None) -> None:
    assert disagreement(agreed_derived(*derivation), AGREED_TEXT, build) == says


def test_another_render_is_told_before_any_weight() -> None:
    other = AGREED_TEXT.replace("there", "these")
    assert disagreement(agreed_derived(), other, [(14, 29, 1.0)]) == f"two renders of it differ: …{other!r}…, …{AGREED_TEXT!r}…"


def test_of_a_long_difference_the_first_80_characters_are_shown() -> None:
    text = "".join(map(chr, range(200, 300)))
    says = f"{text[:80]!r} has loss weight 1 by its marks and 0 by its frames"
    assert disagreement(agreed_derived(text=text), text, [(0, 100, 1.0)]) == says


# -- Placeholders put into a derivation that has one token for each image: every place behind one moves -----------------------------------

PLACED_TEXT = "<|s|>See <img> and <img>!<|e|><img>So.<|e|>"
DERIVED = Derived(
    PLACED_TEXT,
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


def test_a_stretch_across_an_image_has_its_placeholder() -> None:
    across = replace(DERIVED, expected=(Expected("See <img> and", -1.0, "", 5, 18),))
    assert marked(with_placeholders(across, IMAGES, template(image="<img>"))).startswith("<|s|>‹-1⟦See ›<img><img> and⟧…")


def test_images_and_audio_stand_in_their_order() -> None:
    own = replace(template(image="<img>"), audio="<|s|>")
    heard = [Region(AUDIO, "0", placeholder="<|s|><|s|>"), *IMAGES]
    found = with_placeholders(DERIVED, heard, own)
    assert marked(found) == "<|s|><|s|>‹See ›<img><img>0.5⟦ and ⟧…<img>‹!›<|e|>[<|s|>x<img>]‹⟦So›.<|e|>⟧"
    with pytest.raises(CheckFailed) as raised:
        with_placeholders(DERIVED, [*IMAGES, heard[0]], own)
    wanted = ["<img>", "<img>", "<img>", "<|s|>"]
    assert str(raised.value) == f"template own writes 4 marks for {wanted}, or in another order, so nothing is proven"


# -- The policies that give a text its loss weight, and how stretches are joined ----------------------------------------------------------


def test_a_recipe_that_is_older_than_an_option_has_its_default() -> None:
    assert MaskOptions.of({"train_turns": "last", "expand": "none"}) == MaskOptions(train_turns="last")
