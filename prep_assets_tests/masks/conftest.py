"""What the tests of masks share."""

import pytest

from prep_assets_tests.masks import chatml
from prep_assets_tests.masks.bound import Bound


@pytest.fixture(scope="session")
def bound() -> Bound:
    """The template that `chatml.py` describes, with its tokenizer."""
    return chatml.bound()
