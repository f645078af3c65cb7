"""Fixtures of the museum."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy.typing as npt
import pytest

from prep_assets_tests.museum.gallery import Show
from prep_assets_tests.museum.labels import PICTURES
from prep_assets_tests.museum.pictures import picture

WRITE = "PREP_ASSETS_WRITE_DOCS"


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Show:
    """Compare an exhibit's picture with the one on its page; with ``PREP_ASSETS_WRITE_DOCS=1`` draw it."""

    def compare(**lines: tuple[Sequence[str], npt.ArrayLike]) -> None:
        drawn = picture({name.replace("_", " "): line for name, line in lines.items()})
        path = PICTURES / f"{request.node.name.removeprefix('test_')[:2]}.svg"
        if os.environ.get(WRITE) == "1":
            PICTURES.mkdir(parents=True, exist_ok=True)
            path.write_text(drawn, "utf-8")
        assert path.read_text("utf-8") == drawn, f"{path.name} is out of date: run this test with {WRITE}=1"

    return compare
