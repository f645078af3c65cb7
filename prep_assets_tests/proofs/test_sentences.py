"""Borders of sentences on tokens that are spelled out: whole verdicts, and each border that is not where Punkt cuts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from prep_assets.proofs.documents import Text, check_sentences
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets_tests.proofs.words import vocabulary

TOKENS = ("<e>", "One", " two", ". ", "Three", "é")
WORDS = vocabulary(*TOKENS, byte_lengths=np.array([len(token.encode()) for token in TOKENS]), normalized=lambda text: text)
EOS, ONE, TWO, DOT, THREE, ACCENT = range(6)
CUT = ("One two. ", "é. ", "Three")
IDS = [ONE, TWO, DOT, ACCENT, DOT, THREE]


Document = tuple[Text, npt.NDArray[Any]]


def document(starts: list[int], sentences: tuple[str, ...] = CUT) -> Document:
    return Text("a:0", "".join(sentences), np.array(IDS, np.uint16), sentences), np.array(starts, np.uint8)


def test_sentences_that_begin_where_they_must() -> None:
    plain, around = document([1, 0, 0, 1, 0, 1, 0]), document([1, 0, 0, 0, 1, 0, 1, 0])
    one = Text("b:1", "One", np.array([ONE]), ("One",)), np.array([1, 0])
    numbers = {"documents_in_sentences": 2, "sentences": 4}
    assert check_sentences([plain, one], 0, WORDS) == Verdict(True, "2 documents have their 4 sentences", numbers)
    assert check_sentences([around], 1, WORDS).passed
    assert check_sentences([], 0, WORDS) == Verdict(
        True, "0 documents have their 0 sentences", {"documents_in_sentences": 0, "sentences": 0}
    )
    many = check_sentences([plain] * 1000, 0, WORDS)
    assert many.summary == "1,000 documents have their 3,000 sentences"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (document([0, 0, 0, 1, 0, 1, 0]), "its first token does not begin a sentence"),
        (document([0, 0, 0, 0, 0, 0, 0]), "its first token does not begin a sentence"),
        (document([2, 0, 0, 1, 0, 1, 0]), "its first token does not begin a sentence"),
        (document([1, 0, 0, 1, 0, 0, 0]), "2 sentences are marked, Punkt cuts it into 3"),
        (document([1, 0, 0, 1, 1, 1, 0]), "4 sentences are marked, Punkt cuts it into 3"),
        (document([1, 0, 1, 0, 0, 1, 0]), "sentence 1 begins at byte 7 of the text, Punkt says 9"),
        (document([1, 0, 0, 1, 1, 0, 0]), "sentence 2 begins at byte 11 of the text, Punkt says 13"),
        (document([1, 0, 0, 1, 0, 0, 1]), "sentence 2 begins at byte 18 of the text, Punkt says 13"),
        (document([1, 0, 0, 0, 1, 0, 1, 0]), "sentence 1 begins at byte 11 of the text, Punkt says 9"),
        (
            document([1, 0, 0, 1, 0, 1, 0], sentences=("One two. ", "e. ", "Three")),
            "sentence 2 begins at byte 13 of the text, Punkt says 12",
        ),
    ],
)
def test_a_border_elsewhere(given: Document, says: str) -> None:
    whole = Verdict(False, f"a:0: {says}", {"documents_cut": 1}, Worst("a:0", says, tuple(IDS)))
    assert check_sentences([document([1, 0, 0, 1, 0, 1, 0]), given], 0, WORDS) == whole


def test_a_long_text_is_counted_with_commas() -> None:
    text = Text("a:0", "", np.array([ACCENT] * 3000 + [ONE]), ("é" * 3000, "One"))
    assert (
        check_sentences([(text, np.array([1] + [0] * 3000 + [1]))], 0, WORDS).summary
        == "a:0: sentence 1 begins at byte 6,003 of the text, Punkt says 6,000"
    )
