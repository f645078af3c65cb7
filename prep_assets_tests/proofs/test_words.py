"""Words and their ids: each is tokenized once, the longest unused go first, and what is on disk is what was put there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prep_assets.proofs import words as module
from prep_assets.proofs.words import Parts, Words
from prep_assets.stores.files import Kept
from prep_assets.text.ids import Flat


class Counted:
    """Gives each word its bytes for ids, and notes which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []

    def __call__(self, parts: list[bytes]) -> Flat:
        self.asked.append(parts)
        return Flat(np.frombuffer(b"".join(parts), np.uint8).astype(np.uint32), np.cumsum([0, *map(len, parts)]))


def spelled(found: Parts) -> list[bytes]:
    ids, starts, counts = found
    return [bytes(ids[start : start + count].tolist()) for start, count in zip(starts, counts, strict=True)]


def test_each_word_is_tokenized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_HELD", 4)
    words, tokenized = Words(), Counted()
    for some in ([b"a", b"longer", b"four"], [b"four", b"b", b"longer", b"a"], [b"b", b"a"], []):
        assert spelled(words.ids_of(some, tokenized)) == some
    assert tokenized.asked == [[b"a", b"four", b"longer"], [b"b", b"longer"]]
    assert words.known == {b"a": 0, b"four": 1, b"b": 2} and words.fresh == 3


def test_those_that_were_not_met_for_the_longest_time_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bytes, once there are too many of them: those of a word and of its ids, and some for each."""
    monkeypatch.setattr(module, "EACH", 2)
    monkeypatch.setattr(module, "MOST_BYTES", 28)
    words, tokenized = Words(), Counted()
    for some in ([b"a"], [b"b"], [b"c"], [b"a", b"d"]):
        words.ids_of(some, tokenized)
    assert words.known == {b"a": 0, b"b": 1, b"c": 2, b"d": 3}, "28 bytes are not too many"
    assert spelled(words.ids_of([b"c", b"e", b"a"], tokenized)) == [b"c", b"e", b"a"]
    assert len(words.known) == 2 and {*words.known} <= {b"a", b"c", b"e"}
    asked = len(tokenized.asked)
    kept = list(words.known)
    assert spelled(words.ids_of(kept, tokenized)) == kept and len(tokenized.asked) == asked
    words.ids_of([b"x", b"y"], tokenized)
    assert len(words.known) == 4
    words.ids_of([b"z"], tokenized)
    assert len(words.known) == 2 and b"z" in words.known, "the two that were left are counted with what they take"
    words.ids_of([b"a" * 11], tokenized)
    assert words.known == {}, "one that takes more than half"
    for some in (b"z", b"a", b"b", b"c"):
        assert spelled(words.ids_of([some], tokenized)) == [some]
    assert words.known == {b"z": 0, b"a": 1, b"b": 2, b"c": 3}, "nothing was left that counts"
    words.ids_of([b"d"], tokenized)
    assert words.known == {b"c": 0, b"d": 1}


def test_what_is_kept_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_WORDS", Kept(str(tmp_path), 4))
    monkeypatch.setattr(module, "EACH", 0)
    words, tokenized = Words(), Counted()
    words.ids_of([b"the", "é".encode(), b"\n"], tokenized)
    assert Words.found("key").known == {}
    words.keep("key")
    found = Words.found("key")
    assert spelled(found.ids_of([b"\n", b"the", b"x"], tokenized)) == [b"\n", b"the", b"x"]
    assert tokenized.asked[1:] == [[b"x"]] and Words.found("other").known == {}
    monkeypatch.setattr(module, "MOST_BYTES", 35)
    found.ids_of([b"y"], tokenized)
    assert {*found.known} <= {b"y", b"x", b"the", b"\n"} and b"y" in found.known, "what came from disk is counted too"
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert Words.found("key").known == {}


def test_a_few_new_words_are_not_worth_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_WORDS", Kept(str(tmp_path), 4))
    words, tokenized = Words(), Counted()
    words.keep("key")
    assert not list(tmp_path.iterdir()), "nothing to keep"
    for count, there in ((31, True), (2, False), (1, True)):
        words.ids_of([bytes([len(words.known) + number]) for number in range(count)], tokenized)
        words.keep("key")
        assert bool(list(tmp_path.iterdir())) is there
        assert words.fresh == (0 if there else count)
        for path in tmp_path.iterdir():
            path.unlink()
