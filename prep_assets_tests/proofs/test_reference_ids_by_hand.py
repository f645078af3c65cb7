"""The reference's ids again, with words that are counted by hand: what is tokenized, remembered, forgotten and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.caches import CACHES
from prep_assets.proofs import reference_ids as module
from prep_assets.proofs import words
from prep_assets.proofs.reference_ids import ReferenceIds
from prep_assets.stores import arrays as columns
from prep_assets.stores.files import Kept
from prep_assets.text import engines
from prep_assets.text.engines import choose_engine
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.peak import peak
from prep_assets_tests.proofs.shipped import SHIPPED, normalizing, rows

TALE = [
    "The cat sat on the mat, and the dog did not.",
    "",
    "cat",
    " the  cat's 12345 e\u0301 caf\u00e9 (x) \u732b .",
    "the cat sat",
    "Supercalifragilisticexpialidocious the cat \U0001f408\U0001f408 \ufffd.",
]


class Noting:
    """An engine that notes the texts that it encodes, and gives the ids of another."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.texts = engine, list[list[str]]()

    def encode(self, texts: list[str]) -> Flat:
        self.texts.append(list(texts))
        return self.engine.encode(texts)  # type: ignore[no-any-return]

    def char_spans(self, text: str) -> Any:
        return self.engine.char_spans(text)


def noting(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary = SHIPPED) -> tuple[ReferenceIds, Noting]:
    """A `ReferenceIds`, and its engine."""
    again = ReferenceIds(vocabulary)
    rest = Noting(again._rest)
    monkeypatch.setattr(again, "_rest", rest)
    monkeypatch.setattr(again, "_first", rest)
    return again, rest


def whole(texts: list[str], vocabulary: Vocabulary = SHIPPED) -> list[list[int]]:
    return [vocabulary.backend.encode(text, add_special_tokens=False).ids if text else [] for text in texts]


@pytest.mark.parametrize("held", [1 << 18, 200])
@pytest.mark.parametrize("longest", [64, 4, 0])
@pytest.mark.parametrize("run", [4096, 2, 1])
def test_whatever_is_remembered_ids_are_the_same(monkeypatch: pytest.MonkeyPatch, held: int, longest: int, run: int) -> None:
    for name, value in {
        "RUN": run,
        "WHOLE_EVERY": 3,
        "WHOLE_MOST": longest,
        "OVERLAP": longest,
    }.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(words, "MOST_BYTES", held)
    monkeypatch.setattr(words, "LONGEST_HELD", longest)
    again, _ = noting(monkeypatch)
    for texts in (TALE, TALE[::-1], [*TALE, *TALE], [], [""]):
        assert rows(again.encode(texts)) == whole(texts)
        known, held_now = again.words.known, again.words.held
        assert all(len(part) <= longest for part in known)
        assert known == {part: number for number, part in enumerate(known)} and len(held_now.offsets) == len(known) + 1
    assert again.cuts


def test_what_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    """New words in one text where they may be cut on either side, all others each for itself; every so many texts whole as well."""
    monkeypatch.setattr(words, "LONGEST_HELD", 6)
    monkeypatch.setattr(module, "WHOLE_EVERY", 2)
    again, rest = noting(monkeypatch)
    again.encode(["the cat sat", "a cat", "doggie", "verylong cat"])
    assert rest.texts == [[" cat sat"], ["the", "a", "doggie", "verylong"], ["the cat sat", "doggie"]]
    assert list(again.words.known) == [b"the", b" cat", b" sat", b"a", b"doggie"]
    rest.texts.clear()
    again.encode(["the cat sat", "a  b\x7f (x)", "x\u00e9 ~ verylong"])
    assert rest.texts == [["  b\x7f (x verylong"], [")", "x\u00e9 ~"], ["the cat sat", "x\u00e9 ~ verylong"]]
    rest.texts.clear()
    again.encode(["doggie.\n\nA cat's 1,234 +1- x=y", "doggie.\n\nA"])
    assert rest.texts == [[".\n\nA's 1,234 +1 x=y"], ["-"], ["doggie.\n\nA cat's 1,234 +1- x=y"]]
    rest.texts.clear()
    again.encode(["doggie cat"])
    assert rest.texts == [["doggie cat"]], "nothing is new"


def test_words_that_a_tokenizer_composes_are_tokenized_in_one_text_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = normalizing(SHIPPED)
    again, rest = noting(monkeypatch, vocabulary)
    texts = ["the e\u0301tude cat"]
    assert rows(again.encode(texts)) == whole(texts, vocabulary)
    assert rest.texts == [[" e\u0301tude cat"], ["the"], texts]


def test_a_run_whose_bytes_do_not_add_up_is_tokenized_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the cat sat on the mat"]
    for wrong in (SHIPPED.backend.encode(" mat").ids[-1], SHIPPED.backend.encode(" cat").ids[0]):
        for change in (1, -1):
            again, rest = noting(monkeypatch)
            again._lengths[wrong] += change
            assert rows(again.encode(texts)) == whole(texts) and again.cuts
            assert rest.texts[1] == ["the", " cat", " sat", " on", " the", " mat"]


def test_beginnings_are_encoded_as_beginnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tokenizer begins a document otherwise: here with one id more."""

    class First(Noting):
        def encode(self, texts: list[str]) -> Flat:
            flat = super().encode(texts)
            more = np.insert(flat.ids, flat.offsets[:-1], 7)
            return Flat(more.astype(np.uint32), flat.offsets + np.arange(len(flat.offsets)))

    again, rest = noting(monkeypatch)
    first = First(again._rest.engine)  # type: ignore[attr-defined]
    monkeypatch.setattr(again, "_first", first)
    texts = ["the cat sat", "the cat", "cat", "a cat"]
    wanted = [[7, *ids] if begins else ids for ids, begins in zip(whole(texts), (True, False, True, True), strict=True)]
    assert rows(again.encode(texts, np.array([True, False, True, True]))) == wanted
    assert first.texts == [["the", "cat", "a"]] and again.cuts
    assert rows(again.encode(texts)) == [[7, *ids] for ids in whole(texts)]
    assert rows(again.encode(["猫。犬 x y"])) == [[7, *whole(["猫。犬 x y"])[0]]] and first.texts[-1] == ["猫。犬 x"]
    again.words.held.ids[again.words.held.offsets[again.words.known[b" cat"]]] += 1  # whole texts then say that it does not hold
    assert rows(again.encode(texts, np.array([True, False, True, True]))) == wanted and again.cuts is False
    assert (first.texts[-1], rest.texts[-1]) == (["the cat sat", "cat", "a cat"], ["the cat"])
    assert rows(again.encode(texts)) == [[7, *ids] for ids in whole(texts)]


def test_texts_of_one_beginning_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    again, _ = noting(monkeypatch)
    monkeypatch.setattr(module, "one_after_the_other", None)
    assert rows(again.encode(TALE)) == whole(TALE)


def test_only_the_reference_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_routed_or_reference", None)
    assert rows(ReferenceIds(SHIPPED).encode(TALE)) == whole(TALE)


def test_a_tokenizer_without_merges_gets_whole_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenizers import Tokenizer, models

    vocabulary = Vocabulary("unigram", Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), (" b", -1.0)], unk_id=0)), {}, None)
    again, rest = noting(monkeypatch, vocabulary)
    assert again.cuts is False and rows(again.encode(["a b", "", "a"])) == [[1, 2], [], [1]]
    assert rest.texts == [[], ["a b", "", "a"]]


@pytest.mark.parametrize("stretch", [1, 2, 5])
def test_results_do_not_depend_on_stretches(monkeypatch: pytest.MonkeyPatch, stretch: int) -> None:
    monkeypatch.setattr(columns, "STRETCH", stretch)
    again, _ = noting(monkeypatch)
    assert rows(again.encode(TALE)) == whole(TALE) and again.cuts


def test_characters_of_tokens() -> None:
    again = ReferenceIds(SHIPPED)
    engines = choose_engine(SHIPPED, reference_only=True)
    assert again.char_spans("the cat", first=True) == engines.reference.char_spans("the cat")[1]
    assert again.char_spans("the cat", first=False) == engines.rest_reference.char_spans("the cat")[1]
    again._first, again._rest = (SimpleNamespace(char_spans=lambda text, side=side: (text, side)) for side in "fr")  # type: ignore[assignment]
    assert (again.char_spans("x", first=True), again.char_spans("x", first=False)) == ("f", "r")


def test_the_last_tokenizer_is_kept() -> None:
    CACHES["reference ids"].clear()
    one = module.reference_ids(SHIPPED)
    other = module.reference_ids(normalizing(SHIPPED))
    assert one is not other and list(CACHES["reference ids"].values()) == [other]
    assert module.reference_ids(normalizing(SHIPPED)) is other


def test_words_are_on_disk_for_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(words, "KEPT_WORDS", Kept(str(tmp_path), 4))
    CACHES["reference ids"].clear()
    module.reference_ids(SHIPPED).encode(TALE)
    module.keep_words()
    CACHES["reference ids"].clear()
    again = module.reference_ids(SHIPPED)
    rest = Noting(again._rest)
    monkeypatch.setattr(again, "_rest", rest)
    monkeypatch.setattr(again, "_first", rest)
    assert rows(again.encode(TALE[:1])) == whole(TALE[:1])
    assert rest.texts == [TALE[:1]], "as a whole, and no word of it"
    again.cuts, again.words.fresh = False, 1000
    (kept,) = tmp_path.iterdir()
    kept.unlink()
    module.keep_words()
    assert not list(tmp_path.iterdir()), "words that do not stand for themselves are not kept"


def test_words_on_disk_are_of_one_tokenizer_and_one_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {module._key("a"), module._key("b")}
    for changed in (module, words):
        (tmp_path / "code.py").write_text("another")
        with monkeypatch.context() as patch:
            patch.setattr(changed, "__file__", str(tmp_path / "code.py"))
            keys.add(module._key("a"))
    assert len(keys) == 4


def cuts(data: bytes, bounds: list[int], whole: Any, token: list[int] | None = None) -> list[int]:
    tokens = np.full(len(bounds) - 1, -1) if token is None else np.array(token)
    return module._cuts(data, np.array(bounds), tokens, whole, False).tolist()  # type: ignore[no-any-return]


def test_where_words_are_cut() -> None:
    data, bounds = "ab cd\x7f e~ f\u00e9 g! h".encode(), [0, 4, 4, 11, 18]
    assert cuts(data, bounds, None) == [0, 2, 4, 9, 11, 16, 18]
    assert cuts(data, bounds, ()) == [0, 2, 4, 8, 9, 11, 15, 16, 18]
    assert cuts(data, bounds, [b"g!", b"e~"]) == [0, 2, 4, 9, 11, 16, 18]
    assert cuts(data, [0, 5, 11, 18], (), [-1, 7, -1]) == [0, 2, 5, 11, 15, 16, 18], "a control token is one part"
    assert cuts(data, [0, 5, 11, 18], (), [8, -1, 7]) == [0, 5, 8, 9, 11, 18], "two"
    assert cuts(b"g!x.", [0, 4], [b"g!"]) == [0, 3, 4], "a token at the very beginning"
    assert cuts(b"ag!x. ", [0, 6], [b"!x."]) == [0, 2, 5, 6], "a cut before a token, and one after it"
    texts = ("ab c", "abc", " a b", "\u00e9 a b", "", "a  b", "~ x", "! x")
    assert [module._cut_after(text.encode(), 0, False) for text in texts] == [2, 3, 2, 4, 0, 1, 1, 1]


def flat(*texts: list[int]) -> Flat:
    return Flat(np.array([each for text in texts for each in text], np.uint32), np.cumsum([0, *map(len, texts)]))


def test_results_put_together() -> None:
    one, other = flat([1, 2], [], [3]), flat([4], [5, 6])
    assert rows(words.concatenated(one, other)) == [[1, 2], [], [3], [4], [5, 6]]
    assert rows(module.interleaved(one, other, np.array([False, True, True, False, True]))) == [[4], [1, 2], [], [5, 6], [3]]
    assert rows(module.one_after_the_other(flat([1], [2]), flat([3], [4, 5], []), np.array([True, False, True]))) == [[1, 3], [4, 5], [2]]


def same_whole(again: ReferenceIds, found: Flat, texts: list[bytes]) -> bool:
    return again._same_uncut(found, b"".join(texts), np.cumsum([0, *map(len, texts)]), np.full(len(texts), -1))


@pytest.mark.parametrize(("number", "same"), [(0, False), (1, True), (2, False), (3, True), (4, False)])
@pytest.mark.parametrize("change", [lambda ids: ids[:-1], lambda ids: [*ids, 7], lambda ids: [7, *ids[1:]]])
def test_every_so_many_texts_are_tokenized_whole_as_well(
    monkeypatch: pytest.MonkeyPatch, number: int, same: bool, change: Callable[[list[int]], list[int]]
) -> None:
    monkeypatch.setattr(module, "WHOLE_EVERY", 2)
    again, _ = noting(monkeypatch)
    texts = ["the cat sat", "a cat", "dog on the mat", "verylong cat", "it"]
    ids = whole(texts)
    encoded = [text.encode() for text in texts]
    assert same_whole(again, flat(*ids), encoded)
    ids[number] = change(ids[number])
    assert same_whole(again, flat(*ids), encoded) is same


@pytest.mark.parametrize(("most", "overlap"), [(20, 10), (1, 0), (200, 50), (30, 1000)])
def test_all_of_a_long_text_is_compared(monkeypatch: pytest.MonkeyPatch, most: int, overlap: int) -> None:
    """Of texts of more than 262,144 characters only the beginning was."""
    monkeypatch.setattr(module, "WHOLE_MOST", most)
    monkeypatch.setattr(module, "OVERLAP", overlap)
    again, rest = noting(monkeypatch)
    text = " ".join(f"the {number}th cat, caf\u00e9 \u732b" for number in range(20))
    [ids] = whole([text])
    assert same_whole(again, flat(ids), [text.encode()])
    longest = len(", caf\u00e9 \u732b the")
    assert all(len(window) <= most + overlap + 2 * longest for texts in rest.texts for window in texts), "windows are no longer than said"
    for at in range(len(ids)):
        assert not same_whole(again, flat([*ids[:at], 7, *ids[at + 1 :]]), [text.encode()]), "another id"
        assert not same_whole(again, flat(ids[:at] + ids[at + 1 :]), [text.encode()]), "one too few"
    assert not same_whole(again, flat([*ids, 7]), [text.encode()])


def test_a_text_of_just_so_many_characters_is_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE_MOST", len("the cat sat"))
    again, rest = noting(monkeypatch)
    assert same_whole(again, flat(*whole(["the cat sat"])), [b"the cat sat"])
    assert rest.texts == [["the cat sat"]]


def test_a_window_that_ends_where_words_join_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where both windows agree with themselves: the text has one id as a whole, and one for each of two parts."""
    for name, value in {"WHOLE_MOST": 1, "OVERLAP": 4}.items():
        monkeypatch.setattr(module, name, value)
    again, rest = noting(monkeypatch)
    joins = {"aa bb": [9], "aa": [1], " bb": [2], "": []}
    monkeypatch.setattr(rest, "engine", SimpleNamespace(encode=lambda texts: flat(*(joins[text] for text in texts))))
    assert not same_whole(again, flat([1, 2]), [b"aa bb"]) and not same_whole(again, flat([9]), [b"aa bb"])


def test_a_long_text_takes_a_few_times_its_size() -> None:
    """It took thirteen times its size, without what the library takes."""
    again = ReferenceIds(SHIPPED)
    text = " ".join(np.random.default_rng(0).permutation([f"word{number % 300}" for number in range(1 << 17)]))
    again.encode([text[: 1 << 14]])
    assert peak(lambda: again.encode([text])) < 7 * len(text)
    assert again.cuts


def test_bytes_of_ids() -> None:
    added = [{"id": 4, "content": "<\u00e9>"}]

    def lengths(**model: Any) -> list[int]:
        vocabulary: Any = SimpleNamespace(size=5, spec={"model": model, "added_tokens": added})
        found = module._byte_lengths(vocabulary)
        assert found.dtype == np.int64
        return found.tolist()

    assert lengths(vocab={"ab": 0, "\u0120c": 2}) == [2, 0, 2, 0, 4]
    assert lengths(vocab={"\u2581b": 0, "<0xC3>": 1, "\u00e9": 2, "x<0xC3>": 3}, byte_fallback=True) == [2, 1, 2, 7, 4]


def test_without_its_sources_nothing_is_found_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(words.Words, "keep", lambda self, key: kept.append(key))
    CACHES["reference ids"].clear()
    monkeypatch.setattr(words, "__file__", "/nowhere/word_cuts.py")
    found = module.reference_ids(SHIPPED)
    assert found.cuts and not found.words.known
    module.keep_words()
    assert kept == []
