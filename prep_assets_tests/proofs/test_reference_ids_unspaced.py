"""Long text without spaces is cut between letters and signs: the ids are those of the whole, and the library gets no more than a window at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from prep_assets.proofs import reference_ids
from prep_assets.proofs.reference_ids import ReferenceIds
from prep_assets.proofs.words import _FINER, _SPLITS, UNSPACED, Words, cuts_unspaced
from prep_assets.text.engines import ReferenceEngine
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import CONFIGS, load

PIECES = [
    "猫",
    "我们",
    "。",
    "，",
    "、",
    "！？",
    "：；",
    "\n",
    "\n\n",
    " ",
    "\u3000",
    "かな",
    "カ゛",
    "が\u3099",
    "한",
    "abc",
    "12",
    "!",
    "龥",
    "\u4dc0",
    "\u0301",
    "'s",
    "「",
    "」",
]


@pytest.fixture(scope="module", params=["shipped", "gpt2", "smollm"])
def both(request: pytest.FixtureRequest) -> tuple[ReferenceEngine, ReferenceIds]:
    """The library, and what cuts texts for it."""
    name = request.param
    vocabulary = load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name).vocabulary
    return ReferenceEngine(vocabulary.spec), ReferenceIds(vocabulary)


@settings(max_examples=examples(20), deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), min_size=2, max_size=4))
def test_cut_text_has_the_ids_of_the_whole(both: tuple[ReferenceEngine, ReferenceIds], texts: list[str]) -> None:
    library, cutting = both
    whole, cuts, cutting.words = library.encode(texts), cutting.cuts, Words()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LONG_PART", "WHOLE_MOST", "OVERLAP"):
            patch.setattr(reference_ids, name, 1)
        found = cutting.encode(texts)
    assert found.ids.tolist() == whole.ids.tolist() and found.offsets.tolist() == whole.offsets.tolist()
    assert cutting.cuts == cuts  # a difference makes it give texts to the library whole


@pytest.mark.parametrize("pattern", sorted(_SPLITS))
@settings(max_examples=examples(60), deadline=None)
@given(text=st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_known_pattern_joins_what_is_cut(pattern: str, text: str) -> None:
    steps = [Split(Regex(each), "isolated") for each in (*sorted(_FINER), pattern)]
    ends = [0, *(found.end() for found in UNSPACED.finditer(text.encode())), len(text.encode())]
    parts = [text.encode()[start:end].decode() for start, end in pairwise(ends)]
    for split in (Sequence(steps), steps[-1]):
        assert [word for part in parts for word, _ in split.pre_tokenize_str(part)] == [word for word, _ in split.pre_tokenize_str(text)]


def test_the_library_gets_long_text_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some fifty times what it is given, and was given all of a text without spaces."""
    vocabulary, given = load(CONFIGS / "tokenizer").vocabulary, list[int]()
    encode = ReferenceEngine.encode
    monkeypatch.setattr(ReferenceEngine, "encode", lambda self, texts: (given.extend(map(len, texts)), encode(self, texts))[1])
    for name, value in {"LONG_PART": 300, "WHOLE_MOST": 1200, "OVERLAP": 60}.items():
        monkeypatch.setattr(reference_ids, name, value)
    assert ReferenceIds(vocabulary).encode(["我们喜欢猫，也喜欢狗。" * 1000]).ids.size
    assert max(given) < 1000


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("猫，", True),
        ("か。", True),
        ("カ！", True),
        ("猫\n", True),
        ("龥，", False),
        ("猫猫", False),
        ("，猫", False),
        ("ー、", False),
        ("猫 ", False),
    ],
)
def test_where_text_without_spaces_is_cut(text: str, cut: bool) -> None:
    assert bool(UNSPACED.search(text.encode())) == cut


def test_an_added_token_that_reaches_over_such_a_place_forbids_it() -> None:
    vocabulary = load(CONFIGS / "tokenizer").vocabulary
    spec = vocabulary.spec
    assert cuts_unspaced(spec)
    over = {**spec["added_tokens"][0], "content": "猫，"}
    assert not cuts_unspaced({**spec, "added_tokens": [*spec["added_tokens"], over]})


@pytest.mark.parametrize(("unspaced", "bounds"), [(True, [0, 2, 11, 23, 32, 38]), (False, [0, 2, 32, 38])])
def test_only_long_parts_are_cut_between_letters_and_signs(monkeypatch: pytest.MonkeyPatch, unspaced: bool, bounds: list[int]) -> None:
    monkeypatch.setattr(reference_ids, "LONG_PART", 6)
    data = ("ab" + "中。" * 5 + "中。").encode()
    assert reference_ids._cuts(data, np.array([0, 2, 32, 38]), np.full(3, -1), None, unspaced).tolist() == bounds


def test_windows_end_between_letters_and_signs_only_where_texts_may_be_cut_there() -> None:
    text = "中。文! x".encode()
    assert (
        reference_ids._cut_after(text, 0, True),
        reference_ids._cut_after(text, 0, False),
        reference_ids._cut_after(text, 10, True),
    ) == (3, 10, len(text))
