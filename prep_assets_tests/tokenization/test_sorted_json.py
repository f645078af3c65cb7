"""Quick JSON is the standard library's to the letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.text.ids import sorted_json
from prep_assets_tests.tokenization.loaded import Loaded

Open = Callable[[str], Loaded]
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=5) | st.sampled_from(["\x7f", "\u2028", "</s>", '"\\\b\f\n\r\t\x1f'])
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats() | st.sampled_from([1e16, 1e-5, 0.1, True])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)
LARGE = st.dictionaries(TEXTS, st.integers(0, 1 << 24), max_size=6) | st.lists(TEXTS | st.lists(TEXTS, max_size=3), max_size=6)


@given(VALUES | LARGE | st.dictionaries(TEXTS, LARGE, max_size=3))
def test_it_is_what_the_standard_library_writes(value: Any) -> None:
    assert sorted_json(value) == json.dumps(value, sort_keys=True, ensure_ascii=False)


@pytest.mark.parametrize("name", ["shipped", "mistral_v3"])
def test_so_it_is_of_a_whole_tokenizer(open_tokenizer: Open, name: str) -> None:
    spec = open_tokenizer(name).vocabulary.spec
    assert sorted_json(spec) == json.dumps(spec, sort_keys=True, ensure_ascii=False)
