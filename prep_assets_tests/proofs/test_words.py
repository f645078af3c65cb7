"""Words and their ids: each is tokenized once, the longest unused go first, and what is on disk is what was put there."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.caches import CACHES
from prep_assets.proofs import words as module
from prep_assets.proofs.words import _SPLITS, ByteTable, Words, cuts_before_spaces, cuts_unspaced, is_proven, unproven_id, whole_tokens
from prep_assets.text.ids import Flat
from prep_assets_tests.cells import cells

# -- Where a tokenizer lets texts be cut, by what its file says ---------------------------------------------------------------------------


TOKEN = {"content": "<e>", "rstrip": False}
BYTES = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}
META = {"type": "Metaspace", "replacement": "\u2581"}
CL100K = next(pattern for pattern in _SPLITS if "{1,3}" in pattern)


def split(pattern: str, **more: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **more}


def of_words(*steps: dict[str, Any], normalizer: Any = None, tokens: Any = (TOKEN,), **model: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {"\u2581": 0, "a": 1, "\u2581a": 2}, **model}
    return {"model": model, "added_tokens": tokens, "normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


@cells(
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


# -- The bytes of ids, proven by a decoder: of a tokenizer of bytes and a few longer tokens -----------------------------------------------

MORE = (
    b"the",
    b" cat",
    "\u732b".encode(),
    "\u732b".encode()[1:],
    b"\xf1\x80",
    b"\x80\x80",
    b"x\xc3",
    b"\xff\xfe",
    b"\xa9 ",
    b"\xed\xa0\x80",
)
TABLE = tuple(bytes([byte]) for byte in range(256)) + MORE


class Decoder:
    """A tokenizer that decodes by a table of its own; `table` is what is said of it."""

    def __init__(self, own: Sequence[bytes] = TABLE, table: Any = TABLE) -> None:
        self.own, self.token_bytes, self.size, self.hash = own, table, len(own), f"{own}{table}"
        self.calls: list[list[list[int]]] = []

    def decode_batch(self, rows: list[list[int]]) -> list[str]:
        self.calls.append(rows)
        return [b"".join(self.own[each] for each in ids).decode(errors="replace") for ids in rows]


def vocabulary(own: Sequence[bytes] = TABLE, table: Any = TABLE) -> Any:
    return Decoder(own, table)


def other(at: int, data: bytes) -> tuple[bytes, ...]:
    return (*TABLE[:at], data, *TABLE[at + 1 :])


@pytest.mark.parametrize("run", [256, 1, 7])
def test_a_table_that_is_right(monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    monkeypatch.setattr(module, "_RUN", run)
    sound = vocabulary()
    assert unproven_id(sound) is None
    assert sound.calls[1] == [], "no text of a run was doubtful"
    decoded = {token for row in sound.calls[0] for token in row}
    never = {256 + MORE.index(b"\xff\xfe"), 256 + MORE.index(b"\xed\xa0\x80")}
    assert set(range(128)) | {number for number in range(256, len(TABLE)) if number not in never} <= decoded, "each id is in a text"
    assert len(sound.calls[0]) == ceil(len(list(module._cases(TABLE))) / run)


@pytest.mark.parametrize("at", [0, 10, 65, 0xC3, 0xE4, 0xF1, 0x80, 0xA9, *(256 + number for number in range(7)), 264])
@pytest.mark.parametrize("run", [256, 1])
def test_an_id_that_decodes_to_something_else(monkeypatch: pytest.MonkeyPatch, run: int, at: int) -> None:
    """Whole characters and parts of one, alone and among others."""
    monkeypatch.setattr(module, "_RUN", run)
    wrong = other(at, b"?" if at >= 256 else b"!!")
    found = unproven_id(vocabulary(wrong))
    assert found is not None and (at < 256 or found == at), "a byte may stand in the texts of others"


def test_a_tokenizer_without_bytes_or_lines() -> None:
    assert unproven_id(vocabulary(table=None)) == 0
    lines = tuple(own for own in TABLE if own != b"\n")
    alone = vocabulary(lines, lines)
    assert unproven_id(alone) is None and max(map(len, alone.calls[0])) <= 7
    for at in (64, 65):
        assert unproven_id(vocabulary((*lines[:at], b"!!", *lines[at + 1 :]), lines)) == at
    assert unproven_id(vocabulary((*lines[:-1], b"?"), lines)) is None, "bytes that UTF-8 never has are in no text"


def test_only_a_tokenizer_whose_bytes_are_right_is_proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next process asks the disk, and so does this one for another object with the same hash."""
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    right, wrong = vocabulary(), vocabulary(other(65, b"!!"))
    for _ in range(2):
        CACHES["proven token bytes"].clear()
        assert is_proven(right) and not is_proven(wrong)
    assert (len(right.calls), len(wrong.calls)) == (2, 4)


def test_a_table_that_is_not_right_gives_no_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    CACHES["proven token bytes"].clear()
    for own, ready in ((TABLE, True), (other(65, b"!!"), False)):
        table = ByteTable(vocabulary(own))
        assert [table.is_ready(each) for each in (len(TABLE), 1)] == [False, ready]
        assert (table.take(np.array([256, 65], np.uint32)) is None) is not ready
    taken = ByteTable(vocabulary()).is_ready(len(TABLE) + 1)
    assert taken and not ByteTable(vocabulary(table=None)).is_ready(len(TABLE) + 1)


def test_the_longest_unused_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, cache = list[bytes](), Words()

    def tokenized(words: list[bytes]) -> Flat:
        asked.extend(words)
        return Flat(np.array(list(map(int, words)), np.uint32), np.arange(len(words) + 1))

    def ids_of(*words: bytes) -> list[int]:
        ids, starts, counts = cache.ids_of([*words], tokenized)
        assert counts.tolist() == [1] * len(words)
        return ids[starts].tolist()  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "MOST_BYTES", 10 * (module.EACH + 2 + 4))
    words = [b"%02d" % number for number in range(12)]
    for word in words[:10]:
        assert ids_of(word) == [int(word)]
    assert ids_of(words[0], words[10]) == [0, 10]
    assert [*cache.known] == [words[0], *words[7:11]], "half of what is allowed"
    assert ids_of(words[1], *words[7:]) == [1, 7, 8, 9, 10, 11]
    assert asked == [*words[:11], words[1], words[11]]
    assert ids_of(*words[2:6]) == [2, 3, 4, 5] and len(cache.known) == 5, "what it takes is counted anew"


def spelled(words: list[bytes]) -> Flat:
    """Ids of words: their bytes."""
    return Flat(np.frombuffer(b"".join(words), np.uint8).astype(np.uint32), np.cumsum([0, *map(len, words)]))


def unasked(words: list[bytes]) -> Flat:
    raise AssertionError(words)


def test_words_on_disk_are_those_that_were_put_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    kept, long = Words(), b"x" * (module.LONGEST_HELD + 1)
    for words in ([b"a", b"bc", long], [b"a", b"def"]):
        kept.ids_of(words, spelled)
    assert (list(kept.known), kept.fresh) == ([b"a", b"bc", b"def"], 3), "a long one is not held"
    kept.keep("key")
    assert kept.fresh == 0
    found = Words.found("key")
    assert (list(found.known), found.fresh) == ([b"a", b"bc", b"def"], 0)
    ids, starts, counts = found.ids_of([b"def", b"a"], unasked)
    assert [ids[start : start + count].tolist() for start, count in zip(starts, counts, strict=True)] == [[*b"def"], [*b"a"]]
    assert found._bytes == 3 * module.EACH + (1 + 2 + 3) * (1 + 4)
    assert list(Words.found("other").known) == []
    monkeypatch.setattr(module, "MOST_BYTES", 4 * (module.EACH + 10) - 1)
    found.ids_of([b"a", b"gh"], spelled)
    assert list(found.known) == [b"a", b"gh"], "what was not asked for since it was found goes first"


@pytest.mark.parametrize(("known", "fresh", "is_kept"), [(32, 2, False), (31, 2, True), (32, 3, True), (4, 0, False)])
def test_words_are_written_where_enough_of_them_are_new(
    known: int, fresh: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    words = Words()
    words.ids_of([b"%d" % number for number in range(known)], spelled)
    words.fresh = fresh
    words.keep("key")
    assert (len(Words.found("key").known) == known) is is_kept and words.fresh == (0 if is_kept else fresh)
