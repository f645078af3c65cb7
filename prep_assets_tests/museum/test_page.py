"""docs/museum.md is made of the exhibits' docstrings, and every number has its exhibit."""

from __future__ import annotations

import os

from prep_assets_tests.museum.labels import PAGE, PICTURES, ROOMS, labels, page

WRITE = "PREP_ASSETS_WRITE_DOCS"
EXHIBITS = [label for file in ROOMS.values() for label in labels(file)]


def test_the_page_is_made_of_the_labels() -> None:
    if os.environ.get(WRITE) == "1":
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page(), f"docs/museum.md is out of date: run this test with {WRITE}=1"


def test_every_number_has_one_exhibit() -> None:
    assert sorted(label.number for label in EXHIBITS) == list(range(1, len(EXHIBITS) + 1))


def test_every_picture_belongs_to_an_exhibit() -> None:
    assert {path.name for path in PICTURES.glob("*.svg")} <= {label.picture.name for label in EXHIBITS}
