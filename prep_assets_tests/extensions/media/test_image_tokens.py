"""What must stand for an image: the first derivation, which is compared with transformers' processors, over sides around every border of the rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from prep_assets.errors import CheckFailed, Refused
from prep_assets.extensions.media.options import (
    Fixed,
    Idefics3,
    ImageRule,
    InternVL,
    LlavaNext,
    MelFrames,
    Qwen2VL,
    Qwen2VLVideo,
    Qwen3VLVideo,
)
from prep_assets.extensions.media.proofs.tokens import (
    LARGEST,
    check_images,
    check_packed_images,
    check_references,
    counted_again,
    expected_text,
)
from prep_assets.extensions.media.rules import placeholder_of
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import AUDIO, IMAGE, TEXT, USER, Region, Sample, Turn, changed
from prep_assets.stores.images import Image, ImageBlock, Images, ImageWriter, open_images
from prep_assets.stores.table import Pieces, Table
from prep_assets_tests.proofs.tables import packed, store, with_column

SIDES = [
    *(1, 2, 9, 10, 13, 14, 15, 20, 27, 28, 29, 41, 42, 55, 56, 57, 70, 98, 99, 100, 101, 200, 201, 280, 333, 400, 420, 640),
    *(1000, 2000, 2800, 4096, 5000),
]
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


FILM: dict[str, Any] = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 602_112}
FILMS: tuple[dict[str, Any], ...] = (
    {},
    {"fps": 2.0},
    {"fps": 3.7, "min_frames": 1, "max_frames": 16, "temporal_patch_size": 3},
    {"fps": 0.5, "min_frames": 2, "temporal_patch_size": 1, "merge_size": 1},
    {"fps": 30, "min_frames": 8, "max_frames": 10, "patch_size": 16, "max_pixels": 25_165_824},
    {"fps": 2, "max_video_tokens": 100, "min_pixels": 100_352},
    {"fps": 1, "max_video_tokens": 768, "max_frames": 4},
    {"fps": 2, "max_video_tokens": 128_000, "min_pixels": 1, "temporal_patch_size": 3},
    {"fps": 30, "max_video_tokens": 128_000, "min_pixels": 1, "min_frames": 5, "max_frames": 5, "max_pixels": 12_544},
)
LENGTHS = ((1, 1.0), (2, 1.0), (3, 24.0), (4, 3.0), (7, 2.5), (20, 8.0), (91, 30.0), (250, 25.0), (901, 29.97))


@pytest.mark.parametrize("numbers", FILMS, ids=range(len(FILMS)))
@pytest.mark.parametrize("kind", [Qwen2VLVideo, Qwen3VLVideo])
def test_two_derivations_of_video_agree(kind: type[Qwen2VLVideo], numbers: dict[str, Any]) -> None:
    rule = kind(rule="qwen3_vl_video" if kind is Qwen3VLVideo else "qwen2_vl_video", **{**FILM, **numbers})  # type: ignore[arg-type]
    for (frames, rate), width, height in product(LENGTHS, (1, 20, 41, 56, 300, 640, 1920), (9, 28, 57, 480, 1000)):
        try:
            wanted = placeholder_of(rule, "\0", frames, rate, width, height)
        except Refused as refusal:
            many = r"\d+ frames are too few for the processor"
            why = many if refusal.reason == "video_length" else r"\d+ x \d+ pixels are refused by the processor"
            with pytest.raises(CheckFailed, match=f"^{why}$"):
                expected_text(rule, "\0", (frames, rate, width, height))
        else:
            assert expected_text(rule, "\0", (frames, rate, width, height)) == wanted, (frames, rate, width, height)


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
        assert str(raised.value) == f"{path[:200]!r} has 24,000 samples or frames, 16,000 per second, its row says {seconds:g} seconds"
    with pytest.raises(CheckFailed, match="nothing says the size of 'far'"):
        counted(changed(sound, text="far", size=(1.0,)))
    assert counted(PICTURE) == PICTURE and counted(changed(sound, drop=True)) == changed(sound, drop=True)
    fixed = Fixed(rule="fixed", tokens=2)
    always = counted_again(chat(sound), {"audio": fixed}, {"audio": "<a>"}, size_of).turns[0].regions[0]
    assert always == changed(sound, size=(24_000, 16_000), placeholder="<a><a>")


# -- Images of streams and packed tables whose tokens are written out: 9 is the image token, 8 stands beside it ---------------------------

TWO = Fixed(rule="fixed", tokens=2)
TILES = InternVL(rule="internvl", image_seq_length=2, tile_height=10, tile_width=10, min_patches=1, max_patches=2, begin="", end="")
"""2 tokens of an image as high as it is wide, 6 of one twice as wide."""
A, B, C = Image("a.png", "aa", (10, 10)), Image("b.png", None, (20, 10)), Image("c.png", "cc", (10, 10))


def images_in(folder: Path, *found: tuple[int, int, int, Image]) -> Images:
    """Images by record, start, length and what they are."""
    folder.mkdir(parents=True)
    writer = ImageWriter(folder, "train")
    record, start, length, images = zip(*found, strict=True)
    writer.append(ImageBlock(np.array(record), np.array(start), np.array(length), images), 0)
    writer.close()
    return open_images(folder, "train")


def stream(images: Images, *records: list[int]) -> Table:
    return store(*records, masks=[[0.0] * len(record) for record in records], images=images)


@pytest.fixture
def chats(tmp_path: Path) -> Table:
    images = images_in(tmp_path / "chats", (0, 1, 2, A), (2, 0, 6, B), (2, 7, 2, C))
    return stream(images, [1, 9, 9, 2], [3, 4], [9, 9, 9, 9, 9, 9, 5, 9, 9, 6])


def check(store: Any, token: int, rule: ImageRule | None = None) -> Verdict:
    return check_images(store, {"image": token}, {} if rule is None else {"image": rule})


def fails(verdict: Verdict, fault: str, images: int = 3) -> None:
    assert verdict == Verdict(False, fault, {"images": images}, Worst("images", fault))


def test_an_image_must_have_a_resolution_where_the_rule_asks_for_one(tmp_path: Path) -> None:
    path = "long/" * 50
    store = stream(images_in(tmp_path / "chats", (0, 0, 2, Image(path, None))), [9, 9])
    fails(check(store, 9, TILES), f"image 0, {path[:100]!r}, has no resolution", 1)
    assert check(store, 9, TWO).passed
    three = Fixed(rule="fixed", tokens=3)
    fails(check(store, 9, three), f"image 0, {path[:100]!r}, has 2 tokens; its resolution None gives 3", 1)
    thousands = replace(store.images, record=np.zeros(1, int))
    many = Fixed(rule="fixed", tokens=1234)
    fails(check(replace(store, images=thousands), 9, many), f"image 0, {path[:100]!r}, has 2 tokens; its resolution None gives 1,234", 1)


ROWS = [[9, 9, 2, 4, 9, 9], [5, 9, 9, 6, 9, 9]]
"""The end of the first record and of the third one of another domain; the rest of that, and padding of the image token."""
PIECES = {"row": [0, 0, 1], "row_offset": [0, 3, 0], "length": [3, 3, 4], "source": [0, 1, 1], "record": [0, 1, 2], "start": [1, 0, 6]}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    images = images_in(tmp_path / "packed", (0, 0, 2, A), (0, 4, 2, B), (1, 1, 2, C))
    return packed({"tokens": ROWS, "loss_mask": np.zeros((2, 6))}, PIECES, ("one", "two"), images)


@pytest.fixture
def records(tmp_path: Path, chats: Table) -> dict[str, Table]:
    other = images_in(tmp_path / "other", (0, 0, 1, C), (1, 1, 2, B), (1, 3, 1, A), (2, 0, 6, B), (2, 7, 2, C))
    return {"one": chats, "two": stream(other, [9], [4, 9, 9, 9, 1], [9, 9, 9, 9, 9, 9, 5, 9, 9, 6])}


def test_a_packed_table(table: Table) -> None:
    sound = Verdict(True, "3 images stand where the image token does, untrained", {"images": 3})
    assert check(table, 9) == sound
    assert check(table, 9, TWO) == sound
    fails(check(table, 9, TILES), "image 1, 'b.png', has 2 tokens; its resolution (20, 10) gives 6")
    wrong = np.array(ROWS)
    wrong[1, 3] = 9
    fails(check(with_column(table, "tokens", wrong), 9), "token 9 is the image token, and no image stands there")
    wrong[0, 1], wrong[1, 3] = 8, 6
    fails(check(with_column(table, "tokens", wrong), 9), "token 1 of an image is another token")
    fails(check(with_column(table, "loss_mask", np.eye(2, 6, 1)), 9), "a token of an image is trained")
    mixed = with_column(table, "tokens", [[9, 8, 2, 4, 9, 8], [5, 8, 9, 6, 9, 9]])
    assert check(mixed, 9, Fixed(rule="fixed", tokens=1, end="<e>")).passed
    fails(check(mixed, 9, Fixed(rule="fixed", tokens=1)), "token 1 of an image is another token")
    outside = replace(table.images, start=np.array([0, 4, 3]))
    fails(check(replace(table, images=outside), 9), "an image does not stand inside its record")


def test_images_of_records(table: Table, records: dict[str, Table]) -> None:
    assert check_packed_images(table, records) == Verdict(True, "3 packed images are those of their records", {"packed_images": 3})
    many = replace(table, pieces=Pieces(("one", "two"), {field: np.repeat(values[:1], 1500) for field, values in PIECES.items()}))
    problem = "3 images, the records have 1,500 in the pieces that are packed"
    assert check_packed_images(many, records) == Verdict(False, problem, {"packed_images": 3}, Worst("images", problem))
    none = stream(open_images(Path(), "train"), [1, 2, 3, 4])
    assert check_packed_images(table, {**records, "one": none}).summary == "3 images, the records have 2 in the pieces that are packed"


def test_references_are_compared_with_those_read_again() -> None:
    sound = Image("b.wav", "34", (16, 8), "audio")
    assert check_references([]) == Verdict(True, "0 references are those of their files", {"files": 0})
    assert check_references([(A, A), (sound, sound)]) == Verdict(True, "2 references are those of their files", {"files": 2})
    for found in (
        structs.replace(sound, sha256="35"),
        structs.replace(sound, size=(16, 9)),
        structs.replace(sound, kind="image", size=None),
    ):
        verdict = check_references([(A, A), (sound, found), (B, A)])
        problem = f"audio 1 is stored as {sound.line().decode().strip()}, its file is {found.line().decode().strip()}"
        assert verdict == Verdict(False, problem, {"files": 2}, Worst("b.wav", problem))


def test_audio_and_images_have_tokens_of_their_own_kind(tmp_path: Path) -> None:
    sound, rule = Image("b.wav", None, (32, 16), "audio"), MelFrames(rule="mel_frames", sampling_rate=16, hop_length=1, chunk_length=4)
    store = stream(images_in(tmp_path / "mixed", (0, 0, 2, A), (0, 3, 8, sound)), [9, 9, 2, *[8] * 8])
    ids, rules = {"image": 9, "audio": 8}, {"image": TILES, "audio": rule}
    assert check_images(store, ids, rules) == Verdict(True, "2 images stand where the image token does, untrained", {"images": 2})
    slower = rule.model_copy(update={"hop_length": 2})
    for counted in ({**rules, "audio": slower}, {"audio": slower}):
        fails(check_images(store, ids, counted), "image 1, 'b.wav', has 8 tokens; its length (32, 16) gives 4", 2)
    path = "long/" * 50
    named = images_in(tmp_path / "named", (0, 0, 2, A), (0, 3, 8, structs.replace(sound, path=path)))
    swapped = stream(named, [9, 9, 2, *[9] * 8])
    fails(check_images(swapped, ids), f"image 1, {path[:100]!r}, is audio, and has no token of that kind", 2)
    swapped = stream(store.images, [8, 8, 2, *[9] * 8])
    fails(check_images(swapped, ids), f"image 0, {A.path!r}, is image, and has no token of that kind", 2)
    fails(check_images(store, {"image": 9}), "token 3 of an image is another token", 2)
    unknown = images_in(tmp_path / "unknown", (0, 0, 2, A), (0, 3, 8, structs.replace(sound, size=None)))
    fails(check_images(replace(store, images=unknown), ids, rules), "image 1, 'b.wav', has no length", 2)
