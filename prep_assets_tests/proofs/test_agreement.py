"""Two derivations of a mask, side by side: every difference is told, that of white space too."""

from __future__ import annotations

import pytest

from prep_assets.proofs.derive import Derived, Expected, Weighted, disagreement

TEXT = "<u>Hi there<a> Well, well.<e>\n"
ANSWER = (14, 29)


def derived(*trained: Weighted, text: str = TEXT) -> Derived:
    expected = tuple(Expected(text[start:end], weight, "", start, end) for start, end, weight in trained)
    return Derived(text, expected, (), 0, ())


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([], []),
        ([(14, 29, 1.0)], [(14, 29, 1.0)]),
        ([(14, 20, 1.0), (20, 29, 1.0)], [(14, 29, 1.0)]),
        ([(14, 29, 1.0)], [(14, 16, 1.0), (16, 26, 1.0), (26, 29, 1.0)]),
        ([(0, 3, 0.5), (14, 29, 1.0)], [(0, 3, 0.5), (14, 29, 1.0)]),
        ([(3, 11, 2.0), (11, 29, 1.0)], [(3, 11, 2.0), (11, 29, 1.0)]),
    ],
)
def test_they_agree(mine: list[Weighted], theirs: list[Weighted]) -> None:
    assert disagreement(derived(*mine), TEXT, theirs) is None
    assert disagreement(derived(*theirs), TEXT, mine) is None


@pytest.mark.parametrize(
    ("derivation", "build", "says"),
    [
        ([], [(14, 29, 1.0)], "' Well, well.<e>' has loss weight 1 by its marks and 0 by its frames"),
        ([(14, 29, 1.0)], [], "' Well, well.<e>' has loss weight 0 by its marks and 1 by its frames"),
        ([(14, 29, 1.0)], [(14, 26, 1.0)], "'<e>' has loss weight 0 by its marks and 1 by its frames"),
        ([(14, 29, 1.0)], [(13, 29, 1.0)], "'>' has loss weight 1 by its marks and 0 by its frames"),
        ([(14, 29, 0.5)], [(14, 29, 0.25)], "' Well, well.<e>' has loss weight 0.25 by its marks and 0.5 by its frames"),
        ([(3, 5, 1.0), (14, 29, 1.0)], [(3, 5, 1.0)], "' Well, well.<e>' has loss weight 0 by its marks and 1 by its frames"),
        ([(3, 5, 1.0), (14, 29, 1.0)], [(14, 29, 1.0)], "'Hi' has loss weight 0 by its marks and 1 by its frames"),
        (
            [(3, 5, 1.0), (6, 8, 1.0), (14, 29, 1.0)],
            [(3, 5, 1.0), (14, 29, 1.0)],
            "'th' has loss weight 0 by its marks and 1 by its frames",
        ),
        ([(15, 29, 1.0)], [(14, 29, 1.0)], "' ' has loss weight 1 by its marks and 0 by its frames"),
        ([(14, 29, 1.0)], [(15, 29, 1.0)], "' ' has loss weight 0 by its marks and 1 by its frames"),
        ([(0, 30, 1.0)], [(0, 29, 1.0), (29, 30, 0.5)], "'\\n' has loss weight 0.5 by its marks and 1 by its frames"),
    ],
)
def test_they_differ(derivation: list[Weighted], build: list[Weighted], says: str | None) -> None:
    assert disagreement(derived(*derivation), TEXT, build) == says


def test_a_long_stretch_is_shown_by_its_beginning() -> None:
    long = "x" * 81
    told = disagreement(derived(text=long), long, [(0, 81, 1.0)])
    assert told == f"{'x' * 80!r} has loss weight 1 by its marks and 0 by its frames"


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (TEXT.replace("there", "where"), "…'<u>Hi where<a> Well, well.<e>\\n'…, …'<u>Hi there<a> Well, well.<e>\\n'…"),
        (TEXT + "more", "…'e<a> Well, well.<e>\\nmore'…, …'e<a> Well, well.<e>\\n'…"),
        (TEXT[:-1], "…'re<a> Well, well.<e>'…, …'re<a> Well, well.<e>\\n'…"),
    ],
)
def test_two_renders_differ(build: str, says: str) -> None:
    assert disagreement(derived(), build, []) == f"two renders of it differ: {says}"


def test_of_a_long_render_the_place_is_shown() -> None:
    one, other = "a" * 100 + "b" * 100, "a" * 100 + "c" * 100
    assert disagreement(derived(text=other), one, []) == (f"two renders of it differ: …{'a' * 20 + 'b' * 40!r}…, …{'a' * 20 + 'c' * 40!r}…")
