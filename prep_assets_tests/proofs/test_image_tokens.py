"""What must stand for an image: the first derivation, which is compared with transformers' processors, over sides around every border of the rules."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from prep_assets.config.base import Fixed, Idefics3, ImageRule, InternVL, LlavaNext, MelFrames, Qwen2VL
from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.image_tokens import LARGEST, counted_again, expected_text
from prep_assets.samples import AUDIO, IMAGE, TEXT, USER, Region, Sample, Turn, changed
from prep_assets.text.images import placeholder_of

SIDES = (
    1,
    2,
    9,
    10,
    13,
    14,
    15,
    20,
    27,
    28,
    29,
    41,
    42,
    55,
    56,
    57,
    70,
    98,
    99,
    100,
    101,
    200,
    201,
    280,
    333,
    400,
    420,
    640,
    1000,
    2000,
    2800,
    4096,
    5000,
)
LLAVA: dict[str, Any] = {"rule": "llava_next", "image_size": 28, "patch_size": 7, "num_additional_image_tokens": 1}
INTERN: dict[str, Any] = {"rule": "internvl", "image_seq_length": 2, "tile_height": 20, "tile_width": 30}
IDEFICS: dict[str, Any] = {"rule": "idefics3", "image_seq_len": 2}
RULES: list[ImageRule] = [
    Fixed(rule="fixed", tokens=3, begin="<b>", end="<e>"),
    Qwen2VL(rule="qwen2_vl", patch_size=14, merge_size=2, min_pixels=3136, max_pixels=100_000),
    Qwen2VL(rule="qwen2_vl", patch_size=7, merge_size=3, min_pixels=1, max_pixels=2000),
    Qwen2VL(rule="qwen2_vl", patch_size=5, merge_size=1, min_pixels=10_000, max_pixels=10_000),
    LlavaNext(**LLAVA, image_grid_pinpoints=((28, 56), (56, 28), (56, 56)), vision_feature_select_strategy="default"),
    LlavaNext(**LLAVA, image_grid_pinpoints=((84, 28), (28, 84), (56, 56), (56, 28), (28, 56)), vision_feature_select_strategy="full"),
    InternVL(**INTERN, min_patches=1, max_patches=6, begin="<b>", end="<e>"),
    InternVL(**INTERN, min_patches=2, max_patches=2),
    InternVL(**INTERN, min_patches=3, max_patches=12),
    InternVL(**INTERN, min_patches=1, max_patches=1),
    InternVL(**{**INTERN, "tile_height": 10, "tile_width": 20}, min_patches=1, max_patches=4),
    Idefics3(**IDEFICS, longest_edge=400, tile=100),
    Idefics3(**IDEFICS, longest_edge=5000, tile=500),
    Idefics3(**IDEFICS, longest_edge=333, tile=50, do_image_splitting=False),
    Idefics3(**IDEFICS, longest_edge=57, tile=14),
    Idefics3(**IDEFICS, longest_edge=100, tile=100),
    Idefics3(**IDEFICS, longest_edge=8, tile=1),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.rule}")
def test_two_derivations_agree(rule: ImageRule) -> None:
    for width, height in product(SIDES, SIDES):
        try:
            wanted = placeholder_of(rule, "\0", width, height)
        except Refused:
            with pytest.raises(CheckFailed, match=f"^{width} x {height} pixels are refused by the processor$"):
                expected_text(rule, "\0", (width, height))
        else:
            assert expected_text(rule, "\0", (width, height)) == wanted, (width, height)


def test_the_longest_shape_that_is_not_refused() -> None:
    rule = RULES[1]
    assert expected_text(rule, "\0", (200, 1)) and expected_text(rule, "\0", (1, 200))
    with pytest.raises(CheckFailed):
        expected_text(rule, "\0", (201, 1))


def test_an_image_of_the_largest_size_is_not_resized_again() -> None:
    """By a share that is no exact number it would lose a line, and with it a row of tiles."""
    rule = Idefics3(**IDEFICS, longest_edge=LARGEST, tile=37)
    for width, height in ((LARGEST, 186), (186, LARGEST)):
        assert expected_text(rule, "\0", (width, height)) == placeholder_of(rule, "\0", width, height)


def test_an_even_side_makes_a_square_no_square() -> None:
    rule = Idefics3(**IDEFICS, longest_edge=9, tile=1)
    assert expected_text(rule, "\0", (5, 5)) == placeholder_of(rule, "\0", 5, 5)
    assert "<row_10_col_9>" in expected_text(rule, "\0", (5, 5))


PICTURE = Region(IMAGE, "a.png")
QWEN = RULES[1]
TOKENS = {"image": "<i>"}


def chat(*regions: Region) -> Sample:
    return Sample((Turn(USER, regions), Turn(USER, regions[::-1])), label=True)


def test_each_image_that_is_shown_is_counted() -> None:
    text, dropped, other = Region(TEXT, "a.png"), changed(PICTURE, drop=True), Region(IMAGE, "b.png", size=(28, 56))
    sizes = {"a.png": (280, 280), "b.png": None}
    found = counted_again(chat(text, PICTURE, dropped, other), {"image": QWEN}, TOKENS, lambda _, path: sizes[path])
    first = changed(PICTURE, size=(280, 280), placeholder="<i>" * 100)
    second = changed(other, placeholder="<i>" * 6)
    assert found == chat(text, first, dropped, second)
    sample = chat(PICTURE)
    assert counted_again(sample, {}, TOKENS, lambda _, path: sizes[path]) is sample


def test_a_fixed_number_asks_for_no_resolution() -> None:
    def never(kind: str, path: str) -> None:
        raise AssertionError(path)

    placed = changed(PICTURE, placeholder="<b><i><i><i><e>")
    assert counted_again(chat(PICTURE), {"image": RULES[0]}, TOKENS, never) == chat(placed)
    sized = changed(PICTURE, size=(3, 4))
    assert counted_again(chat(sized), {"image": RULES[0]}, TOKENS, never) == chat(changed(placed, size=None))


def test_resolutions_that_are_unknown_or_differ() -> None:
    path = "long/" * 60
    with pytest.raises(CheckFailed) as raised:
        counted_again(chat(changed(PICTURE, text=path)), {"image": QWEN}, TOKENS, lambda *_: None)
    assert str(raised.value) == f"nothing says the size of {path[:200]!r}"
    with pytest.raises(CheckFailed) as raised:
        counted_again(chat(changed(PICTURE, text=path, size=(28, 28))), {"image": QWEN}, TOKENS, lambda *_: (28, 56))
    assert str(raised.value) == f"{path[:200]!r} has (28, 56) pixels, its row says (28, 28)"


MEL = MelFrames(rule="mel_frames", sampling_rate=16_000, hop_length=160, chunk_length=30)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        *(
            ((samples, 16_000), tokens)
            for samples, tokens in ((321, 1), (16_000, 25), (48_000, 75), (480_000, 750), (640, 1), (960, 1), (961, 2))
        ),
        *(((44_100, 44_100), 25), ((8000, 8000), 25), ((1_323_000, 44_100), 750)),
    ],
)
def test_audio_has_a_token_for_every_four_frames(size: tuple[int, int], tokens: int) -> None:
    """As transformers' Qwen2AudioProcessor writes them."""
    assert expected_text(MEL, "<a>", size) == "<a>" * tokens


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ((320, 16_000), "0.02 seconds are too short to be heard"),
        ((480_001, 16_000), "30.0001 seconds are more than the 30 that the processor hears"),
        ((1_323_001, 44_100), "30 seconds are more than the 30 that the processor hears"),
    ],
)
def test_audio_that_is_not_heard(size: tuple[int, int], says: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        expected_text(MEL, "<a>", size)
    assert str(raised.value) == says


def test_audio_is_counted_by_its_file_and_its_row_may_say_how_long_it_is() -> None:
    asked: list[tuple[str, str]] = []

    def size_of(kind: str, path: str) -> tuple[int, int] | None:
        asked.append((kind, path))
        return None if path == "far" else (24_000, 16_000)

    def counted(region: Region) -> Region:
        return counted_again(chat(region), {"audio": MEL}, {"audio": "<a>"}, size_of).turns[0].regions[0]

    sound = Region(AUDIO, "a.wav")
    found = changed(sound, size=(24_000, 16_000), placeholder="<a>" * 37)
    assert [counted(changed(sound, size=said)) for said in (None, (1.5,), (23_199 / 16_000,), (24_801 / 16_000,))] == [found] * 4
    assert {*asked} == {("audio", "a.wav")}
    path = "long/" * 60
    for seconds in (23_198 / 16_000, 24_802 / 16_000):
        with pytest.raises(CheckFailed) as raised:
            counted(changed(sound, text=path, size=(seconds,)))
        assert str(raised.value) == f"{path[:200]!r} has 24,000 samples at 16,000 Hz, its row says {seconds:g} seconds"
    with pytest.raises(CheckFailed, match="nothing says the size of 'far'"):
        counted(changed(sound, text="far", size=(1.0,)))
    assert counted(PICTURE) == PICTURE and counted(changed(sound, drop=True)) == changed(sound, drop=True)
    fixed = Fixed(rule="fixed", tokens=2)
    always = counted_again(chat(sound), {"audio": fixed}, {"audio": "<a>"}, size_of).turns[0].regions[0]
    assert always == changed(sound, size=(24_000, 16_000), placeholder="<a><a>")
