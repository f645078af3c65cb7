"""Where a tokenizer lets texts be cut, by what its file says."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.words import _SPLITS, cuts_before_spaces, cuts_unspaced, whole_tokens
from prep_assets_tests.tokenization.loaded import CONFIGS, load


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"\w+ \w+"}, "behavior": "Isolated", "invert": False}},
        {"pre_tokenizer": None},
        {"normalizer": {"type": "Prepend", "prepend": "▁"}},
    ],
    ids=["words in pairs", "no words", "a prefix for each text"],
)
def test_a_tokenizer_that_may_join_words(change: dict[str, Any]) -> None:
    spec = load(CONFIGS / "tokenizer").vocabulary.spec
    assert cuts_before_spaces(spec)
    assert not cuts_before_spaces({**spec, **change})


TOKEN = {"content": "<e>", "rstrip": False}
BYTES = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}
META = {"type": "Metaspace", "replacement": "\u2581"}
CL100K = next(pattern for pattern in _SPLITS if "{1,3}" in pattern)


def split(pattern: str, **more: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **more}


def of_words(*steps: dict[str, Any], normalizer: Any = None, tokens: Any = (TOKEN,), **model: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {"\u2581": 0, "a": 1, "\u2581a": 2}, **model}
    return {"model": model, "added_tokens": tokens, "normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


@pytest.mark.parametrize(
    ("spec", "cuts"),
    [
        (of_words(BYTES), True),
        ({**of_words(), "pre_tokenizer": BYTES}, True),
        ({**of_words(), "pre_tokenizer": None}, False),
        (of_words(BYTES, type="Unigram"), False),
        (of_words(BYTES, dropout=0.1), False),
        (of_words(BYTES, dropout=None), True),
        (of_words(BYTES, tokens=[TOKEN, {**TOKEN, "rstrip": True}]), False),
        (of_words(BYTES, tokens=[TOKEN, {**TOKEN, "content": "x y"}]), False),
        (of_words(BYTES, tokens=[TOKEN, {**TOKEN, "content": "\u00e9 y"}]), True),
        (of_words(BYTES, normalizer={"type": "NFC"}), True),
        (of_words(BYTES, normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]}), True),
        (of_words(BYTES, normalizer={"type": "NFD"}), False),
        (of_words(BYTES, normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}), False),
        (of_words({**BYTES, "use_regex": False}), False),
        (of_words({**BYTES, "add_prefix_space": True}), False),
        (of_words({"type": "ByteLevel", "use_regex": True}), True),
        (of_words({"type": "ByteLevel"}), False),
        (of_words(split(CL100K), {**BYTES, "use_regex": False}), True),
        (of_words(split(CL100K), {**BYTES, "use_regex": False, "add_prefix_space": True}), False),
        (of_words(split(CL100K, invert=True)), False),
        (of_words(split(CL100K, behavior="Removed")), False),
        (of_words({**split(CL100K), "pattern": {"String": CL100K}}), False),
        (of_words({**split(CL100K), "type": "Other"}), False),
        (of_words(split("x")), False),
        (of_words(split(CL100K), split("x")), False),
        (of_words(split(CL100K), split(r"\p{N}")), True),
        (of_words(split(r"\p{N}")), False),
        (of_words({"type": "Digits"}, BYTES), True),
        (of_words({"type": "Digits"}), False),
        (of_words({"type": "Punctuation"}, BYTES), False),
        (of_words(META), True),
        (of_words({**META, "split": False}), True),
        (of_words({**META, "split": False}, vocab={"\u2581": 0, "a\u2581": 1}), False),
        (of_words({**META, "split": False}, vocab={"\u2581": 0, "\u00e9\u2581": 1}), True),
        (of_words({**META, "split": True}, vocab={"\u2581": 0, "a\u2581": 1}), True),
        (of_words(META, vocab={"\u2581": 0, "a\u2581": 1}), True),
        (of_words({**META, "replacement": "_"}, vocab={"_": 0}), False),
        (of_words(META, vocab={"a": 0}), False),
        (of_words(META, ignore_merges=True), False),
        (of_words(META, BYTES), False),
    ],
)
def test_tokenizers_that_cut_before_spaces(spec: dict[str, Any], cuts: bool) -> None:
    assert cuts_before_spaces(spec) is cuts


def added(content: str, *, special: bool = False, single_word: bool = False) -> dict[str, Any]:
    return {"content": content, "special": special, "single_word": single_word}


@pytest.mark.parametrize(
    ("tokens", "steps", "whole"),
    [
        ([], (BYTES,), ()),
        (
            [added("</think>"), added("x.y"), added("a\nb"), added("A-"), added("9{")],
            (BYTES,),
            (b"</think>", b"x.y", b"a\nb", b"A-", b"9{"),
        ),
        ([added("<e"), added(".x"), added("a b"), added("a9Z"), added("é."), added("猫")], (BYTES,), ()),
        ([added("x.y", special=True)], (BYTES,), ()),
        ([added("é.x.é")], (BYTES,), ("é.x.é".encode(),)),
        ([added("x", single_word=True)], (BYTES,), None),
        ([added("x", special=True, single_word=True)], (BYTES,), ()),
        ([], (META,), None),
        ([added("x.y")], ({"type": "Digits"}, META), None),
    ],
)
def test_added_tokens_that_reach_over_the_end_of_a_word(tokens: Any, steps: Any, whole: Any) -> None:
    assert whole_tokens(of_words(*steps, tokens=tokens)) == whole


@pytest.mark.parametrize(
    ("tokens", "step", "cuts"),
    [
        ([], BYTES, True),
        ([], META, False),
        ([added("x"), added("，猫"), added("x.y")], BYTES, True),
        ([added("x", single_word=True)], BYTES, False),
        ([added("x"), added("猫，")], BYTES, False),
        ([added("a猫\nb", special=True)], BYTES, False),
        ([added("猫。")], META, False),
    ],
)
def test_an_added_token_that_reaches_from_a_letter_to_a_sign_forbids_cuts_between_them(tokens: Any, step: Any, cuts: bool) -> None:
    assert cuts_unspaced(of_words(step, tokens=tokens)) is cuts
