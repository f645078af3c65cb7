"""The reference's ids of every row: words that were met before are looked up, and nothing else is taken on trust."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from prep_assets.caches import CACHES
from prep_assets.proofs import reference_ids, words
from prep_assets.proofs import reference_ids as module
from prep_assets.proofs.documents import Text, prove_texts
from prep_assets.proofs.mask import prove_identity
from prep_assets.proofs.reference_ids import ReferenceIds
from prep_assets.proofs.words import _FINER, _SPLITS, UNSPACED, Words, cuts_unspaced, whole_tokens
from prep_assets.text.engines import Engines, ReferenceEngine, choose_engine
from prep_assets.text.ids import Flat
from prep_assets.text.suspects import edge_set
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.peak import peak
from prep_assets_tests.proofs.shipped import SHIPPED, normalizing, rows, spaced
from prep_assets_tests.proofs.words import record
from prep_assets_tests.tokenization.loaded import CONFIGS, NAMES, load

WORDS = st.sampled_from(
    [
        *("the", " cat", "  sat", "\n", "\n\n ", "'s", " 12", "345", "\t", "é", "e\u0301", " \u0308", "猫", "，", " .", "!!"),
        *("\u00a0", "x\u3000", "_", "▁"),
    ]
)
TEXTS = st.lists(
    st.one_of(st.lists(WORDS, max_size=12).map("".join), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)), max_size=6
)


@pytest.fixture(scope="module", params=[*NAMES, "spaced"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    name = request.param
    if name == "spaced":
        return spaced()
    return load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name).vocabulary


def same(texts: list[str], first: list[bool], engines: Engines, again: ReferenceIds) -> bool:
    flat = again.encode(texts, np.array(first, bool))
    by = {True: engines.reference, False: engines.rest_reference}
    wanted = {
        begins: iter(rows(engine.encode([text for text, own in zip(texts, first, strict=True) if own is begins])))
        for begins, engine in by.items()
    }
    return again.cuts and rows(flat) == [next(wanted[begins]) for begins in first]


def test_every_edge_text(vocabulary: Vocabulary) -> None:
    texts = [text for text in edge_set() if text]
    texts += [f"and {text} then {text}" for text in texts]
    # where there is nothing to compose, the other tokenizer is this one
    decomposed = [text for at, text in enumerate(texts) if at % 16 == 0 or not unicodedata.is_normalized("NFC", text)]
    for tokenizer, some in ((vocabulary, texts), (normalizing(vocabulary), decomposed)):
        assert same(some, [i % 2 == 0 for i in range(len(some))], choose_engine(tokenizer, reference_only=True), ReferenceIds(tokenizer))


def test_any_texts(vocabulary: Vocabulary) -> None:
    tokenizers = [(choose_engine(each, reference_only=True), ReferenceIds(each)) for each in (vocabulary, normalizing(vocabulary))]

    @settings(max_examples=examples(60))
    @given(TEXTS, st.data())
    def check(texts: list[str], data: st.DataObject) -> None:
        texts = [text for text in texts if text]
        first = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
        utf8 = [text.encode() for text in texts]
        before = [again.least(utf8) for _, again in tokenizers]
        assert all(same(texts, first, engines, again) for engines, again in tokenizers)
        for (engines, again), fewest in zip(tokenizers, before, strict=True):
            counts = np.diff(engines.rest_reference.encode(texts).offsets)
            known = counts if engines.reference is engines.rest_reference else np.zeros(len(texts))
            assert (fewest <= counts).all() and again.least(utf8).tolist() == known.tolist()

    check()


def uncanonical(ids: Any, vocabulary: Vocabulary) -> Any:
    """Other ids for the same text: some token as the two that make it."""
    table = vocabulary.token_bytes
    assert table is not None
    of = {own: number for number, own in reversed(list(enumerate(table))) if own}
    for at, token in enumerate(ids.tolist()):
        own = table[token]
        for cut in range(1, len(own)):
            if own[:cut] in of and own[cut:] in of:
                return np.concatenate([ids[:at], [of[own[:cut]], of[own[cut:]]], ids[at + 1 :]])
    raise AssertionError("no token can be cut in two")


def with_added(*contents: str, **flags: bool) -> Vocabulary:
    """The shipped tokenizer with words of its own, which are found in text."""
    from tokenizers import AddedToken, Tokenizer

    backend = Tokenizer.from_str(SHIPPED.backend.to_str())
    backend.add_tokens([AddedToken(content, normalized=False, **flags) for content in contents])
    return Vocabulary(f"with {contents} {flags}", backend, SHIPPED.special, None)


def test_added_tokens_that_reach_over_the_end_of_a_word() -> None:
    texts = ["x.y.x.y, x.yx", "so x=y</think>", "a<think>b</think>.\n\nc</thi", "</think></think>x.y"]
    for contents, flags, cut in (
        (("<think>", "</think>", "x.y", ".x"), {}, (b"<think>", b"</think>", b"x.y")),
        (("<think>", "y."), {"lstrip": True}, (b"<think>", b"y.")),
        (("x.y",), {"single_word": True}, None),
    ):
        vocabulary = with_added(*contents, **flags)
        assert whole_tokens(vocabulary.spec) == cut
        assert same(texts, [True, False, True, False], choose_engine(vocabulary, reference_only=True), ReferenceIds(vocabulary))


@pytest.mark.parametrize("at", [5, 233, 299])
def test_other_ids_for_the_same_text_are_found_in_every_row(vocabulary: Vocabulary, at: int) -> None:
    """Audit, section 3: such ids decode to the text, and only every fiftieth row was tokenized again."""
    texts = [f"The {i}th cat sat on the mat." for i in range(300)]
    flat = choose_engine(vocabulary, reference_only=True).reference.encode(texts)
    rows = [flat.ids[start:end] for start, end in pairwise(flat.offsets.tolist())]
    other = uncanonical(rows[at], vocabulary)
    assert vocabulary.decode(other) == vocabulary.decode(rows[at])
    documents = [Text(f"{i}", text, ids) for i, (text, ids) in enumerate(zip(texts, rows, strict=True))]
    chats = [record(f"{i}", ids, text=text) for i, (text, ids) in enumerate(zip(texts, rows, strict=True))]
    assert prove_texts(documents, vocabulary).passed and prove_identity(chats, vocabulary).passed
    documents[at], chats[at] = replace(documents[at], ids=other), replace(chats[at], ids=other)
    for verdict in (prove_texts(documents, vocabulary), prove_identity(chats, vocabulary)):
        assert not verdict.passed and verdict.worst is not None and verdict.worst.where == f"{at}"


def test_a_wrong_token_of_a_tokenizer_that_normalizes_is_found() -> None:
    """Audit W15: rows of such tokenizers were not decoded, and the summary counted them as if they had been."""
    vocabulary = normalizing(load(CONFIGS / "tokenizer").vocabulary)
    flat = choose_engine(vocabulary, reference_only=True).reference.encode([f"The {i}th cafe\u0301." for i in range(300)])
    rows = [record(f"{i}", flat.ids[a:b], text=f"The {i}th cafe\u0301.") for i, (a, b) in enumerate(pairwise(flat.offsets.tolist()))]
    verdict = prove_identity(rows, vocabulary)
    assert verdict.passed and verdict.numbers["rows_tokenized_again"] == 300
    wrong = rows[233].ids.copy()
    wrong[1] += 1
    verdict = prove_identity([*rows[:233], replace(rows[233], ids=wrong), *rows[234:]], vocabulary)
    assert not verdict.passed and verdict.worst is not None and verdict.worst.where == "233"


@pytest.mark.parametrize("vocabulary", [SHIPPED, spaced()], ids=["shipped", "spaced"])
def test_a_tokenizer_whose_words_join_after_all_is_found_out(vocabulary: Vocabulary) -> None:
    """Should it ever be thought safe and be none, whole texts say so."""
    again = ReferenceIds(vocabulary)
    again.words.ids_of([b" cat"], lambda parts: Flat(np.array([7], np.uint32), np.array([0, 1])))
    found = again.encode(["the cat", "a dog"])
    assert again.cuts is False
    expected = choose_engine(vocabulary, reference_only=True).reference.encode(["the cat", "a dog"])
    assert (found.ids.tolist(), found.offsets.tolist()) == (expected.ids.tolist(), expected.offsets.tolist())


# -- The reference's ids again, with words that are counted by hand: what is tokenized, remembered, forgotten and compared ----------------


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


def flat(*texts: list[int]) -> Flat:
    return Flat(np.array([each for text in texts for each in text], np.uint32), np.cumsum([0, *map(len, texts)]))


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


@pytest.mark.parametrize(("most", "overlap"), [(20, 10), (1, 0), (200, 50), pytest.param(30, 1000, marks=pytest.mark.soak)])
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


def test_a_long_text_takes_a_few_times_its_size() -> None:
    """It took thirteen times its size, without what the library takes."""
    again = ReferenceIds(SHIPPED)
    text = " ".join(np.random.default_rng(0).permutation([f"word{number % 300}" for number in range(1 << 17)]))
    again.encode([text[: 1 << 14]])
    assert peak(lambda: again.encode([text])) < 7 * len(text)
    assert again.cuts


@pytest.mark.parametrize(
    ("vocabulary", "accented", "alone"),
    [
        (SHIPPED, "é", ["a", ";", "."]),
        (normalizing(SHIPPED), "e\u0301", ["a", ";", "."]),
        (with_added("<t>"), "é", ["a", ";", "."]),
        (spaced(), "é", ["a"]),
    ],
    ids=["shipped", "composing", "added", "spaced"],
)
def test_new_words_that_may_be_cut_on_both_sides_are_tokenized_together(
    monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary, accented: str, alone: list[str]
) -> None:
    """Their ids are told apart by the bytes of each, as this tokenizer spells them."""
    again, rest = noting(monkeypatch, vocabulary)
    text = f"a cat sat; {accented}猫x <t>y ! on."
    [ids] = rows(rest.engine.encode([text]))
    assert rows(again.encode([text])) == [ids]
    together = text[1:] if ";" not in alone else f" cat sat {accented}猫x <t>y on !"
    assert rest.texts == [[together], alone, [text]]


# -- Ids of texts with control tokens between them: those of the texts, and each token's own, whatever it spells and whichever its numbe---

Piece = str | tuple[int, str]
"""A text, or the id of a control token and what it spells."""
TALK: list[Piece] = [(3, "<u>"), "the cat sat", (0, "</u> x"), (3, "<u>"), "", " cat, the dog", (7, "cat"), (0, "</u> x")]


def encoded(again: ReferenceIds, pieces: list[Piece], first: list[bool] | None = None) -> list[list[int]]:
    data = [(piece if isinstance(piece, str) else piece[1]).encode() for piece in pieces]
    token = np.array([-1 if isinstance(piece, str) else piece[0] for piece in pieces], np.int64)
    begins = np.ones(len(pieces), bool) if first is None else np.array(first)
    return rows(again.encode_pieces(b"".join(data), np.cumsum([0, *map(len, data)]), token, begins))


def expected(pieces: list[Piece], vocabulary: Vocabulary = SHIPPED) -> list[list[int]]:
    return [whole([piece], vocabulary)[0] if isinstance(piece, str) else [piece[0]] for piece in pieces]


def test_control_tokens_are_their_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE_EVERY", 1)
    again, _ = noting(monkeypatch)
    assert encoded(again, TALK) == expected(TALK) and again.cuts
    assert {*again.words.known} == {b"the", b" cat", b" sat", b",", b" the", b" dog"}, "what a control token spells is no word"
    assert encoded(again, TALK[:1]) == [[3]] and encoded(again, []) == []
    assert encoded(ReferenceIds(spaced()), TALK) == expected(TALK, spaced())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(["the cat", "", " a b", "x, y!\n"]) | st.tuples(st.integers(0, 5), st.sampled_from(["<u>", "a b", "é"]))))
def test_any_pieces(pieces: list[Piece]) -> None:
    assert encoded(ReferenceIds(SHIPPED), pieces) == expected(pieces)
    assert not module.whole_ids(SHIPPED).cuts and module.whole_ids(SHIPPED).least([b"the cat", b""]).tolist() == [0, 0]
    assert ReferenceIds(SHIPPED).least([]).tolist() == []


# -- Long text without spaces is cut between letters and signs: the ids are those of the whole, and the library gets no more than a wind---

PIECES = [
    *(
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
    ),
    *("\u4dc0", "\u0301", "'s", "「", "」"),
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
    for name, value in {"LONG_PART": 300, "WHOLE_MOST": 1200, "OVERLAP": 60, "WHOLE_EVERY": 1}.items():
        monkeypatch.setattr(reference_ids, name, value)
    assert ReferenceIds(vocabulary).encode(["So.", "我们喜欢猫，也喜欢狗。" * 1000, "No."]).ids.size
    assert max(given) < 1000


def test_only_long_text_is_cut_between_letters_and_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no control token behind it, whatever that spells."""
    monkeypatch.setattr(module, "LONG_PART", 20)
    pieces: list[Piece] = ["猫，" * 5, (3, "猫。" * 3), "猫。", "cat"]
    again = ReferenceIds(SHIPPED)
    assert encoded(again, pieces) == expected(pieces) and again.cuts
    assert {*again.words.known} == {("猫，" * 4 + "猫").encode(), "，".encode(), "猫。".encode(), b"cat"}


def test_an_added_token_that_reaches_over_such_a_place_forbids_it() -> None:
    vocabulary = load(CONFIGS / "tokenizer").vocabulary
    spec = vocabulary.spec
    assert cuts_unspaced(spec)
    over = {**spec["added_tokens"][0], "content": "猫，"}
    assert not cuts_unspaced({**spec, "added_tokens": [*spec["added_tokens"], over]})


def test_places_of_tokens_at_the_start_of_a_document_and_behind_a_control_token() -> None:
    """Only at the start this tokenizer writes a space of its own."""
    again = ReferenceIds(spaced())
    assert [again.char_spans("x", first=first) for first in (True, False)] == [[(0, 1), (0, 1)], [(0, 1)]]


@pytest.mark.parametrize(
    ("most", "unspaced", "ends"),
    [
        (0, False, "猫。 ab"),
        (0, True, "猫"),
        (4, True, "猫。 ab"),
        (8, False, "猫。 ab"),
        (9, False, "猫。 ab cd"),
        (99, True, "猫。 ab cd"),
    ],
)
def test_the_first_cut_of_a_text(most: int, unspaced: bool, ends: str) -> None:
    assert module._cut_after("猫。 ab cd".encode(), most, unspaced) == len(ends.encode())


def test_words_are_kept_for_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each tokenizer's own, where new ones came and none proved wrong."""
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    other, cached = normalizing(SHIPPED), CACHES["reference ids"]

    def known(vocabulary: Vocabulary = SHIPPED) -> set[bytes]:
        cached.clear()
        return {*module.reference_ids(vocabulary).words.known}

    assert known() == set()
    module.keep_words()
    assert not (tmp_path / "words").exists(), "there is none"
    for cuts, kept in ((False, set()), (True, {b"the", b" cat"})):
        reference = module.reference_ids(SHIPPED)
        reference.encode(["the cat"])
        reference.cuts = cuts
        module.keep_words()
        assert known() == kept
    assert [*(tmp_path / "words").iterdir()] and known(other) == set() and known() == {b"the", b" cat"}
    monkeypatch.setattr(Words, "keep", lambda *_: pytest.fail("nothing is new"))
    module.keep_words()
    cached.clear()


def test_the_key_of_words_on_disk_is_of_the_code_that_cuts_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And of the tokenizer; there is none where code cannot be read."""
    key = module._key("a")
    assert key is not None and key == module._key("a") != module._key("b")
    for each in (module, words):
        with monkeypatch.context() as patch:
            (tmp_path / "own.py").write_text("other code")
            patch.setattr(each, "__file__", str(tmp_path / "own.py"))
            assert module._key("a") not in (None, key)
            patch.setattr(each, "__file__", str(tmp_path / "gone.py"))
            assert module._key("a") is None
