"""Masks of documents on tokens that are spelled out: each that is not what the regions say, in the words of the verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prep_assets.proofs.documents import MaskedDocument, check_document_masks
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import DOCUMENT, IMAGE, TEXT, Region, Sample, Turn, changed
from prep_assets_tests.proofs.words import vocabulary

WORDS = vocabulary("<e>", "One", " two", " three", "\n", "<img>", " ")
EOS, ONE, TWO, THREE, LINE, IMG, BLANK = range(7)


def document(regions: list[tuple[str, float | None]], ids: list[int], mask: list[float], name: str = "a:0") -> MaskedDocument:
    made = tuple(Region(IMAGE if text == "@" else TEXT, text, weight) for text, weight in regions)
    return MaskedDocument(name, Sample((Turn(DOCUMENT, made),)), np.array(ids), np.array(mask, np.float32))


HALF = [("One two", 0.5), (" three", None)]
RIGHT = document(HALF, [ONE, TWO, THREE, EOS], [0.5, 0.5, 1, 1])


def test_documents_that_are_trained_as_their_regions_say() -> None:
    numbers = {"documents_masked": 2, "masked_tokens": 1}
    masked = document([("One", 0.0), (" two", 1.0)], [ONE, TWO, EOS], [0, 1, 1])
    summary = "2 documents are trained where their regions say so; 1 tokens are not trained"
    assert check_document_masks([RIGHT, masked], WORDS, ()) == Verdict(True, summary, numbers)
    many = check_document_masks([masked] * 2000, WORDS, ())
    assert many.summary == "2,000 documents are trained where their regions say so; 2,000 tokens are not trained"


def test_documents_that_nothing_ends() -> None:
    """The last token is of the text, whatever it weighs."""
    whole = replace(document(HALF, [ONE, TWO, THREE], [0.5, 0.5, 1]), ended=False)
    assert check_document_masks([whole], WORDS, ()).passed
    short = replace(document(HALF, [ONE, TWO], [0.5, 0.5]), ended=False)
    assert not check_document_masks([short], WORDS, ()).passed
    assert check_document_masks([replace(document([("One", 0.5), (" \n", 1.0)], [ONE, LINE], [0.5, 1]), ended=False)], WORDS, ()).passed


@pytest.mark.parametrize(
    ("given", "image"),
    [
        (document([("One", 0.0), (" \n", 1.0), ("two", 0.0)], [ONE, LINE, TWO, EOS], [0, 1, 0, 0]), None),
        (document([("One", None), (" two", None)], [ONE, TWO, EOS], [1, 1, 1]), None),
        (document([("One", 0.1), ("@", 0.0), ("two", None)], [ONE, IMG, IMG, TWO, EOS], [0.1, 0, 0, 1, 1]), IMG),
        (document([("@", None), ("@", None), ("One", None)], [IMG, IMG, ONE, EOS], [0, 0, 1, 1]), IMG),
        (document([("One", 0.5), ("@", None)], [ONE, IMG, EOS], [0.5, 0, 0.5]), IMG),
        (document([("@", None), ("One", 0.0), ("@", None)], [IMG, ONE, IMG, EOS], [0, 0, 0, 0]), IMG),
        (document([("One", 0.0), ("<img>", 0.0)], [ONE, IMG, EOS], [0, 0, 0]), None),
        (document([("@", None)], [IMG, EOS], [0, 1]), IMG),
        (document([], [EOS], [1]), None),
        (document([("", 0.0), ("One", None)], [ONE, EOS], [1, 1]), None),
    ],
)
def test_what_is_right(given: MaskedDocument, image: int | None) -> None:
    assert check_document_masks([given], WORDS, () if image is None else (image,)).passed


@pytest.mark.parametrize(
    ("given", "image", "says"),
    [
        (document(HALF, [ONE, TWO, THREE, EOS], [1, 1, 1, 1]), None, "run 0 is (1.0, 'Onetwothree'), the source says (0.5, 'Onetwo')"),
        (document(HALF, [ONE, TWO, THREE, EOS], [0.5, 1, 1, 1]), None, "run 0 is (0.5, 'One'), the source says (0.5, 'Onetwo')"),
        (document(HALF, [ONE, TWO, EOS], [0.5, 0.5, 1]), None, "run 1 is 'nothing', the source says (1.0, 'three')"),
        (
            document(HALF, [ONE, TWO, THREE, ONE, EOS], [0.5, 0.5, 1, 0, 1]),
            None,
            "run 2 is (0.0, 'One'), the source says 'nothing'",
        ),
        (document(HALF, [ONE, TWO, THREE, EOS], [0.5, 0.5, 1, 0]), None, "the end-of-text token weighs 0, the region before it 1"),
        (document([("One", 0.25)], [ONE, EOS], [0.25, 1]), None, "the end-of-text token weighs 1, the region before it 0.25"),
        (
            document([("One", 1.0), ("@", None)], [ONE, IMG, EOS], [1, 1, 1]),
            IMG,
            "run 0 is (1.0, 'One<img>'), the source says (1.0, 'One')",
        ),
        (
            document([("One", 0.0), ("@", None)], [ONE, IMG, EOS], [0, 0, 0]),
            None,
            "run 0 is (0.0, 'One<img>'), the source says (0.0, 'One')",
        ),
    ],
)
def test_what_is_wrong(given: MaskedDocument, image: int | None, says: str) -> None:
    worst = Worst("a:0", says, tuple(given.ids.tolist()), tuple(given.mask.astype(float).tolist()))
    assert check_document_masks([RIGHT, given, RIGHT], WORDS, () if image is None else (image,)) == Verdict(
        False, f"a:0: {says}", {"documents_masked": 1}, worst
    )


def test_long_runs_are_shown_by_their_beginning() -> None:
    wrong = document([("One" * 100, 0.5)], [ONE] * 101 + [EOS], [0.5] * 102)
    worst = check_document_masks([wrong], WORDS, ()).worst
    shown = [f"{(0.5, 'One' * count)!r}"[:120] for count in (101, 100)]
    assert worst is not None and worst.note == f"run 0 is {shown[0]}, the source says {shown[1]}"


def test_regions_that_are_dropped_and_texts_that_are_normalized() -> None:
    dropped = Sample((Turn(DOCUMENT, (Region(TEXT, "gone", 0.0, drop=True), Region(TEXT, "ONE", 0.5))),))
    lower = vocabulary("<e>", "one", normalized=str.lower)
    given = MaskedDocument("a:0", dropped, np.array([1, 0]), np.array([0.5, 0.5], np.float32))
    assert check_document_masks([given], lower, ()).passed


def hidden(ids: list[int], mask: list[float], *, image: bool = False) -> MaskedDocument:
    """One is trained, two is not attended, three is trained; with an image before it that is not attended either."""
    made = document([*([("@", None)] if image else []), ("One", None), (" two", 0.0), (" three", 0.0)], ids, mask)
    regions = [changed(each, attend=each.kind != IMAGE and each.text != " two") for each in made.sample.turns[0].regions]
    return replace(made, sample=Sample((Turn(DOCUMENT, tuple(regions)),)))


def test_documents_with_regions_that_are_not_attended() -> None:
    right = [hidden([ONE, TWO, THREE, EOS], [1, -1, 0, 0]), hidden([IMG, ONE, TWO, THREE, EOS], [-1, 1, -1, 0, 0], image=True)]
    verdict = check_document_masks(right, WORDS, [IMG])
    assert verdict.numbers == {"documents_masked": 2, "masked_tokens": 7, "unattended_tokens": 3}
    assert verdict.passed and verdict.summary.endswith("; 7 tokens are not trained, 3 of them not attended")
    wrong = [
        hidden([ONE, TWO, THREE, EOS], [1, 0, 0, 0]),
        hidden([ONE, TWO, THREE, EOS], [1, -1, -1, 0]),
        hidden([ONE, TWO, THREE, EOS], [-2, -1, 0, 0]),
        hidden([ONE, TWO, THREE, EOS], [1, -2, 0, 0]),
        hidden([ONE, TWO, THREE, EOS], [1, -1, 0, -1]),
        hidden([IMG, ONE, TWO, THREE, EOS], [0, 1, -1, 0, 0], image=True),
    ]
    assert [check_document_masks([each], WORDS, [IMG]).passed for each in wrong] == [False] * len(wrong)
