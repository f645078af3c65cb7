"""Each text goes to the fast engine or to the reference, and nobody can tell from the ids."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.text.engines import Engines, RoutedEngine, choose_engine
from prep_assets.text.ids import digit_cuts
from prep_assets.text.suspects import TRIED, suspect_table, unequal_texts
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import Loaded, variant

Open = Callable[[str], Loaded]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KINDS = ["gpt2", "smollm", "mistral_v3", "qwen-like", "llama3-like"]

NASTY = [
    *(
        "e\u0301",
        "\u0301",
        "a\u0323\u0307",
        "\u0315\u0334",
        "\u1100\u1161\u11a8",
        "\uac01",
        "\u212b",
        "\u0344",
        "\ufb01",
        "\u0958",
        "\u0f73",
    ),
    *(
        "\u200d",
        "\ufe0f",
        "\U0001f469\u200d\U0001f680",
        "\U0001fae8",
        "\ud7ff",
        "\ue000",
        "\ufffd",
        "\ufdd0",
        "\U0010fffe",
        "\u0378",
        "\U000113c0",
    ),
    *(
        "\U00016100",
        "\U00016d40",
        "\U00011de0",
        "\U00016ff4",
        "\u0881",
        "\u0e81",
        "\u1ac1",
        "\x04",
        "\x7f",
        "\x85",
        "\xa0",
        "\u3000",
        "\u2028",
    ),
    *(
        "1",
        "12",
        "123456",
        "\u00bd",
        "\u00b2\u00b3",
        "\u0661\u0662",
        "\uff11\uff12",
        "\u2160",
        " 1",
        "  1",
        "\n1",
        "\n\n 12",
        "\t\t3",
        " \u00bd",
        "x\u00bd",
    ),
    *(" ", "  ", "\n", "\r\n", "\n\n\n", "\t", "'s", "'\u017f", "'ll", "the", " and", "\u4e2d\u6587", "<|endoftext|>", "<s>"),
]
TEXT = st.lists(st.sampled_from(NASTY) | st.characters(codec="utf-8"), max_size=12).map("".join)


@pytest.fixture(scope="module", params=KINDS)
def engines(request: pytest.FixtureRequest, open_tokenizer: Open) -> Engines:
    """The two that are not at hand are GPT-2's vocabulary with the published pattern and normalizer."""
    if "-" not in request.param:
        return open_tokenizer(request.param).engines
    gpt2 = open_tokenizer("gpt2").vocabulary
    split = {
        "type": "Split",
        "pattern": {"Regex": QWEN if request.param.startswith("qwen") else LLAMA3},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    normalizer = {"type": "NFC"} if request.param.startswith("qwen") else None
    return choose_engine(variant(gpt2, normalizer=normalizer, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level]}))


@settings(max_examples=examples(120))
@given(texts=st.lists(TEXT, max_size=6))
@example(texts=["", "a", "e\u0301", "", "\u00e9", "\U0001fae8"])
def test_ids_are_the_references(engines: Engines, texts: list[str]) -> None:
    assert isinstance(engines.first, RoutedEngine) and isinstance(engines.rest, RoutedEngine)
    for engine, reference in ((engines.first, engines.reference), (engines.rest, engines.rest_reference)):
        found, expected = engine.encode(texts), reference.encode(texts)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.offsets.tolist() == expected.offsets.tolist()


def test_plain_text_is_for_the_fast_engine(engines: Engines) -> None:
    texts = [
        "Hello, world! 1 + 1 = 2",
        "caf\u00e9 na\u00efve",
        "\u4e2d\u6587\u3002 \u043f\u0440\u0438\u0432\u0435\u0442",
        "",
        "\uac01\uc790 \U0001f44d",
    ]
    assert isinstance(engines.first, RoutedEngine)
    assert engines.first.odd([*texts, "\U000f0000"]).tolist() == [False] * len(texts) + [True]


def test_texts_that_are_not_composed_are_for_the_reference(shipped: Loaded) -> None:
    composing = choose_engine(variant(shipped.vocabulary, normalizer={"type": "NFC"})).first
    assert isinstance(composing, RoutedEngine)
    texts = ["e\u0301", "\u00e9", "q\u0301", "\u212b", "\u1100\u1161", "\uac00", "plain", "a\u0315\u0334"]
    assert composing.odd(texts).tolist() == [not unicodedata.is_normalized("NFC", text) for text in texts]


@settings(max_examples=examples(60))
@given(texts=st.lists(st.text(), min_size=1, max_size=5))
def test_the_check_for_composition_skips_only_composed_text(shipped_composing: RoutedEngine, texts: list[str]) -> None:
    whole = [text for text, odd in zip(texts, shipped_composing.odd(texts), strict=True) if not odd]
    assert all(unicodedata.is_normalized("NFC", text) for text in whole)


@pytest.fixture(scope="module")
def shipped_composing(shipped: Loaded) -> RoutedEngine:
    engine = choose_engine(variant(shipped.vocabulary, normalizer={"type": "NFC"})).first
    assert isinstance(engine, RoutedEngine)
    return engine


def test_what_is_not_tried_is_suspect() -> None:
    table = suspect_table(((65, 67),))
    tried = np.zeros(0x110000, bool)
    for first, end in TRIED:
        tried[first:end] = True
    assert table[65:67].all() and not table[67:0xD800].any() and table[~tried].all()
    assigned = [point for point in range(0x110000) if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")]
    assert tried[assigned].all()


def test_digits_are_cut_where_white_space_could_join() -> None:
    text = "a 1b  2 c\n\n3 d4 \u00e95 6"
    cuts = digit_cuts(np.frombuffer(text.encode(), np.uint8))
    assert [text.encode()[at : at + 1] for at in cuts] == [b"2", b"3", b"5"]


def test_results_are_compared_text_by_text(shipped: Loaded) -> None:
    one, other = (shipped.engines.first.encode(texts) for texts in (["a b", "c"], ["a b", "d"]))
    assert unequal_texts(one, other) == [1]
