"""Tokenizers by name; the real ones only where they are at hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prep_assets_tests.tokenization.loaded import CONFIGS, NAMES, Loaded, load


@pytest.fixture(scope="session")
def open_tokenizer(request: pytest.FixtureRequest) -> Callable[[str], Loaded]:
    """``open_tokenizer("gpt2")``; ``shipped`` is always there."""

    def find(name: str) -> Loaded:
        return load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name)

    return find


@pytest.fixture(scope="session")
def shipped(open_tokenizer: Callable[[str], Loaded]) -> Loaded:
    return open_tokenizer("shipped")


@pytest.fixture(scope="session", params=NAMES)
def tokenizer(request: pytest.FixtureRequest, open_tokenizer: Callable[[str], Loaded]) -> Loaded:
    """Each of the four in turn."""
    return open_tokenizer(request.param)
