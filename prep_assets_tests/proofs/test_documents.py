"""Masks of documents on tokens that are spelled out: each that is not what the regions say, in the words of the verdict."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from prep_assets.proofs import documents as module
from prep_assets.proofs import words as bytes_of_ids
from prep_assets.proofs.documents import (
    Cut,
    MaskedDocument,
    Text,
    cut_again,
    document_masks,
    documents_begin_with,
    parts_in_order,
    prove_texts,
    sentence_borders,
)
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.proofs.words import unproven_id
from prep_assets.samples import DOCUMENT, IMAGE, TEXT, Region, Sample, Turn, changed
from prep_assets.text.documents import cut_of
from prep_assets.text.engines import ReferenceEngine
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.proofs.shipped import spaced
from prep_assets_tests.proofs.words import vocabulary
from prep_assets_tests.proofs.words import vocabulary as sentence_vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, NAMES, load

# -- Masks of documents on tokens that are spelled out: each that is not what the regions say, in the words of the verdict ----------------

WORDS = vocabulary("<e>", "One", " two", " three", "\n", "<img>", " ")
EOS, ONE, TWO, THREE, LINE, IMG, BLANK = range(7)


def document(regions: list[tuple[str, float | None]], ids: list[int], mask: list[float], name: str = "a:0") -> MaskedDocument:
    made = tuple(Region(IMAGE if text == "@" else TEXT, text, weight) for text, weight in regions)
    return MaskedDocument(name, Sample((Turn(DOCUMENT, made),)), np.array(ids), np.array(mask, np.float32))


HALF = [("One two", 0.5), (" three", None)]
RIGHT = document(HALF, [ONE, TWO, THREE, EOS], [0.5, 0.5, 1, 1])


def test_documents_that_are_trained_as_their_regions_say() -> None:
    numbers = {"documents_masked": 2, "masked_tokens": 1}
    masked = document([("One", 0.0), (" two", 1.0)], [ONE, TWO, EOS], [0, 1, 1])
    summary = "2 documents are trained where their regions say so; 1 tokens are not trained"
    assert document_masks(WORDS, ())([RIGHT, masked]) == Verdict(True, summary, numbers)
    many = document_masks(WORDS, ())([masked] * 2000)
    assert many.summary == "2,000 documents are trained where their regions say so; 2,000 tokens are not trained"


def test_documents_that_nothing_ends() -> None:
    """The last token is of the text, whatever it weighs."""
    whole = replace(document(HALF, [ONE, TWO, THREE], [0.5, 0.5, 1]), ended=False)
    assert document_masks(WORDS, ())([whole]).passed
    short = replace(document(HALF, [ONE, TWO], [0.5, 0.5]), ended=False)
    assert not document_masks(WORDS, ())([short]).passed
    assert document_masks(WORDS, ())([replace(document([("One", 0.5), (" \n", 1.0)], [ONE, LINE], [0.5, 1]), ended=False)]).passed


@pytest.mark.parametrize(
    ("given", "image"),
    [
        (document([("One", 0.0), (" \n", 1.0), ("two", 0.0)], [ONE, LINE, TWO, EOS], [0, 1, 0, 0]), None),
        (document([("One", 0.1), ("@", 0.0), ("two", None)], [ONE, IMG, IMG, TWO, EOS], [0.1, 0, 0, 1, 1]), IMG),
        (document([("@", None), ("@", None), ("One", None)], [IMG, IMG, ONE, EOS], [0, 0, 1, 1]), IMG),
        (document([("@", None), ("One", 0.0), ("@", None)], [IMG, ONE, IMG, EOS], [0, 0, 0, 0]), IMG),
        (document([("@", None)], [IMG, EOS], [0, 1]), IMG),
        (document([], [EOS], [1]), None),
    ],
)
def test_what_is_right(given: MaskedDocument, image: int | None) -> None:
    assert document_masks(WORDS, () if image is None else (image,))([given]).passed


def test_regions_that_are_dropped_and_texts_that_are_normalized() -> None:
    dropped = Sample((Turn(DOCUMENT, (Region(TEXT, "gone", 0.0, drop=True), Region(TEXT, "ONE", 0.5))),))
    lower = vocabulary("<e>", "one", normalized=str.lower)
    given = MaskedDocument("a:0", dropped, np.array([1, 0]), np.array([0.5, 0.5], np.float32))
    assert document_masks(lower, ())([given]).passed


def hidden(ids: list[int], mask: list[float], *, image: bool = False) -> MaskedDocument:
    """One is trained, two is not attended, three is trained; with an image before it that is not attended either."""
    made = document([*([("@", None)] if image else []), ("One", None), (" two", 0.0), (" three", 0.0)], ids, mask)
    regions = [changed(each, attend=each.kind != IMAGE and each.text != " two") for each in made.sample.turns[0].regions]
    return replace(made, sample=Sample((Turn(DOCUMENT, tuple(regions)),)))


def test_documents_with_regions_that_are_not_attended() -> None:
    right = [hidden([ONE, TWO, THREE, EOS], [1, -1, 0, 0]), hidden([IMG, ONE, TWO, THREE, EOS], [-1, 1, -1, 0, 0], image=True)]
    verdict = document_masks(WORDS, [IMG])(right)
    assert verdict.numbers == {"documents_masked": 2, "masked_tokens": 7, "unattended_tokens": 3}
    assert verdict.passed and verdict.summary.endswith("; 7 tokens are not trained, 3 of them not attended")
    wrong = [
        hidden([ONE, TWO, THREE, EOS], [1, 0, 0, 0]),
        hidden([ONE, TWO, THREE, EOS], [1, -1, -1, 0]),
        hidden([ONE, TWO, THREE, EOS], [-2, -1, 0, 0]),
        hidden([ONE, TWO, THREE, EOS], [1, -2, 0, 0]),
        hidden([ONE, TWO, THREE, EOS], [1, -1, 0, -1]),
        hidden([IMG, ONE, TWO, THREE, EOS], [0, 1, -1, 0, 0], image=True),
    ]
    assert [document_masks(WORDS, [IMG])([each]).passed for each in wrong] == [False] * len(wrong)
    short = hidden([ONE, TWO, EOS], [1, -1, 0])
    lost, ended, gone = (document_masks(WORDS, [IMG])([each]).worst for each in (wrong[0], wrong[4], short))
    run = "run 1 is (0.0, 'twothree'), the source says (-1.0, 'two')"
    assert lost == Worst("a:0", run, (ONE, TWO, THREE, EOS), (1.0, 0.0, 0.0, 0.0))
    assert ended is not None and ended.note == "the end-of-text token weighs -1, the region before it 0"
    assert gone is not None and gone.note == "run 2 is 'nothing', the source says (0.0, 'three')"


# -- Tokenization identity of documents: bytes are compared only where the tokenizer's own decoder confirms them, and every fault is fou---

LATE = 3001
"""A document after those that the tokenizer's own decoder decodes, and not among those that are tokenized again."""


@pytest.fixture(scope="module", params=[*NAMES, "spaced"])
def loaded_vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """Each of the tokenizers in turn; the real ones only where they are at hand."""
    name = request.param
    if name == "spaced":
        return spaced()
    return load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name).vocabulary


@pytest.fixture(scope="module")
def many(loaded_vocabulary: Vocabulary) -> tuple[Text, ...]:
    """Documents with more tokens than the vocabulary has before `LATE`."""
    words = "The cat sat on the mat \u732b\U0001f408 \ufffd caf\u00e9 \u00a0 and the dog did not. "
    texts = [f"{' ' * (i % 3)}{words}{i}" for i in range(LATE + 300)]
    flat = ReferenceEngine(loaded_vocabulary.spec).encode(texts)
    assert flat.offsets[LATE - 500] > loaded_vocabulary.size
    return tuple(Text(f"{i}", text, flat.ids[flat.offsets[i] : flat.offsets[i + 1]]) for i, text in enumerate(texts))


def prove(texts: Sequence[Text], loaded_vocabulary: Vocabulary) -> tuple[bool, str]:
    verdict = prove_texts(texts, loaded_vocabulary)
    assert not verdict.passed or verdict.numbers["documents_decoded"] == len(texts)
    return verdict.passed, verdict.worst.where if verdict.worst else ""


def with_table(loaded_vocabulary: Vocabulary, table: Sequence[bytes]) -> Vocabulary:
    """The same tokenizer with another idea of the bytes behind its ids."""
    changed = replace(loaded_vocabulary)
    changed.__dict__.update(token_bytes=tuple(table), hash=f"{hash(tuple(table))}")
    return changed


def test_documents_as_they_are_pass(many: tuple[Text, ...], loaded_vocabulary: Vocabulary) -> None:
    assert prove(many, loaded_vocabulary) == (True, "")


@pytest.mark.parametrize("at", [0, LATE])
def test_another_token_is_found(many: tuple[Text, ...], loaded_vocabulary: Vocabulary, at: int) -> None:
    texts = list(many)
    ids = texts[at].ids.copy()
    ids[len(ids) // 2] = ids[len(ids) // 2 - 1]
    texts[at] = replace(texts[at], ids=ids)
    assert prove(texts, loaded_vocabulary) == (False, f"{at}")


def test_the_bytes_of_each_id_are_those_of_the_tokenizers_own_decoder(loaded_vocabulary: Vocabulary) -> None:
    assert unproven_id(loaded_vocabulary) is None


def test_two_ids_whose_bytes_are_mistaken_for_each_other_are_noticed(loaded_vocabulary: Vocabulary) -> None:
    table = loaded_vocabulary.token_bytes
    assert table is not None
    partial = [number for number, own in enumerate(table) if own and 0x80 <= own[0] < 0xF5 and own[0] not in (0xC0, 0xC1)]
    for one, other in (partial[:2], partial[-2:], (300, 301)):
        swapped = list(table)
        swapped[one], swapped[other] = table[other], table[one]
        assert unproven_id(with_table(loaded_vocabulary, swapped)) is not None, (table[one], table[other])


# -- documents of bytes -----------------------------------------------------------------------------------------------------------------


@dataclass
class Bytes:
    """A tokenizer whose ids are bytes. What a proof asks of a `Vocabulary`, and of an engine."""

    prefix_space: str = "never"
    size: int = 256
    token_bytes: Any = tuple(bytes([byte]) for byte in range(256))
    name: str = "bytes"
    hash: str = "bytes"
    decoded: list[int] = field(default_factory=list)

    def normalized(self, text: str) -> str:
        return unicodedata.normalize("NFC", text)

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        self.decoded.append(len(rows))
        return [bytes(ids).decode(errors="replace") for ids in rows]


class Agrees:
    """Tokenizes again: as the store has it, so that only its bytes can be wrong; `more` beside it for texts that begin a document."""

    def __init__(self, loaded_vocabulary: Any, engines: Any) -> None:
        self.by_reference = 1234 if engines else 0

    def encode(self, texts: Sequence[str], first: Any, early: Any) -> Flat:
        ids = [
            number for text, begins in zip(texts, first, strict=True) for number in (list(text.encode()) if begins else [1, *text.encode()])
        ]
        lengths = [len(text.encode()) + (not begins) for text, begins in zip(texts, first, strict=True)]
        return Flat(np.array(ids, np.uint32), np.cumsum([0, *lengths]))


@pytest.fixture
def ids_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IdsAgain", Agrees)


def made(*texts: str, at: int = -1, ids: Sequence[int] = ()) -> list[Text]:
    """Documents and their bytes; the one at a place may have others."""
    return [Text(f"{i}", text, np.array(ids if i == at else list(text.encode()), np.uint32)) for i, text in enumerate(texts)]


def verdict_of(texts: Sequence[Text], loaded_vocabulary: Any = None, engines: Any = None, batch: int = 2) -> Verdict:
    return prove_texts(texts, loaded_vocabulary or Bytes(), engines, batch=batch)


def figures(decoded: int, compared: int, cut: int = 0, by_reference: int = 0) -> dict[str, int]:
    return {"documents_decoded": decoded, "documents_compared": compared, "documents_cut": cut, "texts_by_reference": by_reference}


@pytest.mark.usefixtures("ids_agree")
def test_parts_are_tokenized_each_for_itself() -> None:
    """After a control token a tokenizer may begin otherwise: here with a 1. Composed text is not composed across parts."""
    cut = Text("cut", "unused", np.array([1, *b"ab", 1, *b"c"]), ("ab", "c"))
    none = Bytes(token_bytes=None)
    assert verdict_of([cut, *made("x"), cut], none) == Verdict(
        True, "3 documents have the tokenizer's ids, 0 decode to their text; 2 are cut into parts", figures(0, 3, 2)
    )
    marked = Bytes(token_bytes=(b"", b"", *Bytes().token_bytes[2:]))
    marked.decode_batch = lambda rows: [bytes(ids).decode().replace("\1", "") for ids in rows]  # type: ignore[method-assign]
    composed = Text("cut", "unused", np.array([1, *b"e", 1, *"\u0301".encode()]), ("e", "\u0301"))
    assert verdict_of([composed], marked).passed
    apart = verdict_of([replace(composed, ids=np.array([1, *"\u00e9".encode()]), parts=("e\u0301",))], marked)
    assert apart.summary == "cut: 3 ids differ from the tokenizer's 4"
    thousand = Text("cut", "unused", np.arange(1000), tuple("x" * 1000))
    assert verdict_of([thousand], none).summary == "cut: 1,000 ids differ from the tokenizer's 2,000"


class Blind(Agrees):
    """Never finds other ids: what is left to the comparison of bytes."""

    expected: ClassVar[list[Text]] = []

    def encode(self, texts: Sequence[str], first: Any, early: Any) -> Flat:
        rows = [next(each for each in self.expected if each.text == text).ids for text in texts]
        return Flat(np.concatenate(rows).astype(np.uint32), np.cumsum([0, *map(len, rows)]))


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Text]], list[Text]]:
    def expect(texts: list[Text]) -> list[Text]:
        monkeypatch.setattr(Blind, "expected", texts)
        return texts

    monkeypatch.setattr(module, "IdsAgain", Blind)
    return expect


@pytest.mark.parametrize("several", [1 << 18, 4, 1], ids=["at once", "in parts", "one by one"])
def test_bytes_that_only_decode_alike(blind: Any, monkeypatch: pytest.MonkeyPatch, several: int) -> None:
    monkeypatch.setattr(module, "DECODED", several)
    monkeypatch.setattr(module, "TOGETHER", 4 * several)
    texts = blind(made("First document", "\ufffd", "Second", "\ufffdA", at=3, ids=[255, 65]))
    what = "its ids stand for other bytes, which only look like its text"
    numbers = {"documents_decoded": 2, "documents_compared": 4}
    loaded_vocabulary = Bytes(size=13)  # the first two documents have 17 ids
    assert verdict_of(texts, loaded_vocabulary) == Verdict(False, f"3: {what}", numbers, Worst("3", what, (255, 65)))
    assert loaded_vocabulary.decoded[-1] == 1, "only the suspect"
    assert verdict_of(texts, Bytes(size=25)).passed, "the decoder cannot tell"
    assert not verdict_of(texts, Bytes(size=24)).passed
    monkeypatch.setattr(bytes_of_ids, "is_proven", lambda _: False)
    assert verdict_of(texts, Bytes(size=13)).passed, "nobody has proven the bytes of ids"


LATER = "0123456789" * 6


@pytest.mark.parametrize(
    ("text", "ids", "scheme", "says"),
    [
        (
            f"{LATER}a{LATER}",
            f"{LATER}b{LATER}",
            "never",
            f"decodes to …{f'{LATER[40:]}b{LATER[:39]}'!r}…, the text is …{f'{LATER[40:]}a{LATER[:39]}'!r}… (character 60)",
        ),
        ("One", "One!", "never", "decodes to …'One!'…, the text is …'One'… (character 3)"),
        ("x" * 2000, "x" * 1999, "never", f"decodes to …{'x' * 20!r}…, the text is …{'x' * 21!r}… (character 1,999)"),
        # the space that a tokenizer puts before a text
        ("One", " One", "never", "decodes to …' One'…, the text is …'One'… (character 0)"),
        *(("One", " One", scheme, "") for scheme in ("first", "always")),
        ("One", "  One", "first", "decodes to …' One'…, the text is …'One'… (character 0)"),
        (" One", " One", "first", ""),
        (" One", "  One", "first", "decodes to …'  One'…, the text is …' One'… (character 1)"),
        ("One", "One", "first", ""),
    ],
)
def test_a_text_that_its_ids_do_not_decode_to(blind: Any, text: str, ids: str, scheme: str, says: str) -> None:
    """By the tokenizer's own decoder, and by the bytes of the ids of documents that come later."""
    first, second = blind([*made(text, "Later", at=0, ids=list(ids.encode()))])
    verdict = verdict_of([first, second], Bytes(prefix_space=scheme))
    assert verdict.summary == (f"0: {says}" if says else "2 documents have the tokenizer's ids, 2 decode to their text")
    assert verdict.worst is None or verdict.worst == Worst("0", says, tuple(ids.encode()))
    late = verdict_of([second, replace(first, id="1")], Bytes(size=1, prefix_space=scheme), batch=1)
    assert late.summary == (f"1: {says}" if says else verdict.summary)


@pytest.mark.parametrize("several", [1, 4])
def test_a_space_before_a_text_that_is_judged_in_parts(blind: Any, monkeypatch: pytest.MonkeyPatch, several: int) -> None:
    monkeypatch.setattr(module, "DECODED", several)
    monkeypatch.setattr(module, "TOGETHER", 0)
    for scheme, text, ids, passes in (
        ("first", "One two", " One two", True),
        ("never", "One two", " One two", False),
        ("first", " One two", " One two", True),
        ("first", "One two", " One  two", False),
        ("first", "One two", " One tw", False),
    ):
        texts = blind(made("x", text, at=1, ids=list(ids.encode())))
        assert verdict_of(texts, Bytes(size=1, prefix_space=scheme), batch=1).passed is passes, (scheme, text, ids)


@pytest.mark.usefixtures("ids_agree")
@pytest.mark.parametrize("at", range(5))
def test_the_first_document_with_other_ids(at: int) -> None:
    """What stands before it was compared, and the batches before its own were decoded."""
    texts = made("One", "Two", "Three", "Four", "Five")
    texts[at] = replace(texts[at], ids=np.array([*b"Thousand", *range(1000)]))
    texts[4] = replace(texts[4], ids=texts[4].ids[1:]) if at < 4 else texts[4]
    what = f"1,008 ids differ from the tokenizer's {len(texts[at].text)}"
    numbers = {"documents_decoded": at // 3 * 3, "documents_compared": at + 1}
    assert verdict_of(texts, batch=3) == Verdict(False, f"{at}: {what}", numbers, Worst(f"{at}", what, (*b"Thousand", *range(1000))))


@pytest.mark.usefixtures("ids_agree")
def test_which_engine_tokenized_the_texts() -> None:
    engines = SimpleNamespace(first=SimpleNamespace(name="swift"))
    said = "1 documents have the tokenizer's ids, 1 decode to their text"
    by = "; 1,234 texts were tokenized by the reference library, the others by swift"
    assert verdict_of(made("One"), engines=engines) == Verdict(True, said + by, figures(1, 1, 0, 1234))


def test_what_is_told_of_texts_to_who_tokenizes_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part alone; whether it begins a text, and whether its document is among the first tokens."""
    told = list[Any]()

    class Told(Agrees):
        def encode(self, texts: Sequence[str], first: Any, early: Any) -> Flat:
            told.extend(zip(texts, first.tolist(), early.tolist(), strict=True))
            return super().encode(texts, first, early)

    monkeypatch.setattr(module, "IdsAgain", Told)
    texts = [*made("One"), Text("1", "unused", np.array([1, *b"a", 1, *b"b"]), ("a", "b"), early=True), *made("Two")]
    verdict_of([*texts, replace(texts[0], early=True)], batch=4)
    assert told == [("One", True, False), ("a", False, True), ("b", False, True), ("Two", True, False), ("One", True, True)]


# -- A document that was cut for fill-in-the-middle, put together again from either order -------------------------------------------------

SENTINELS = {"prefix": 90, "suffix": 91, "middle": 92}


@pytest.mark.parametrize(
    ("ids", "parts"),
    [([1, 2, 3], None), ([], None), ([90, 1, 2, 91, 5, 92, 3, 4], [[1, 2], [3, 4], [5]]), ([90, 91, 5, 6, 92, 1, 2], [[], [1, 2], [5, 6]])],
)
def test_parts_in_the_order_of_the_text(ids: list[int], parts: list[list[int]] | None) -> None:
    assert parts_in_order(ids, SENTINELS) == parts


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([1, 90, 91, 92], [(1, 90), (2, 91), (3, 92)]),
        ([90, 1, 92, 2, 91], [(0, 90), (2, 92), (4, 91)]),
        ([90, 91, 92] * 3, [(0, 90), (1, 91), (2, 92), (3, 90), (4, 91), (5, 92)]),
    ],
)
def test_sentinels_that_are_not_one_each_in_order(ids: list[int], found: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError) as raised:
        parts_in_order(ids, SENTINELS)
    assert str(raised.value) == f"sentinels {found} (place, id), needs [90, 91, 92] in this order from place 0"


@pytest.mark.parametrize(("rate", "spm_rate", "seed"), [(1.0, 0.3, 0), (0.6, 0.5, 1), (0.0, 0.5, 1)])
def test_each_document_is_cut_where_its_id_says(rate: float, spm_rate: float, seed: int) -> None:
    for number in range(1, 400):
        cut = cut_of(record := f"a/b:c.jsonl:{number}", number % 7, rate=rate, spm_rate=spm_rate, seed=seed)
        assert cut_again(record, number % 7, {"rate": rate, "spm_rate": spm_rate, "seed": seed}) == (
            cut and (cut.start, cut.end, cut.suffix_first)
        )


# -- Borders of sentences on tokens that are spelled out: whole verdicts, and each border that is not where Punkt cuts --------------------

TOKENS = ("<e>", "One", " two", ". ", "Three", "é")
SENTENCE_WORDS = sentence_vocabulary(
    *TOKENS, byte_lengths=np.array([len(token.encode()) for token in TOKENS]), normalized=lambda text: text
)
SENTENCE_EOS, SENTENCE_ONE, SENTENCE_TWO, DOT, SENTENCE_THREE, ACCENT = range(6)
SENTENCES = ("One two. ", "é. ", "Three")
IDS = [SENTENCE_ONE, SENTENCE_TWO, DOT, ACCENT, DOT, SENTENCE_THREE]


def sentence_document(starts: list[int], sentences: tuple[str, ...] = SENTENCES) -> Cut:
    return Cut(Text("a:0", "".join(sentences), np.array(IDS, np.uint16), sentences), np.array(starts, np.uint8))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (sentence_document([0, 0, 0, 1, 0, 1, 0]), "its first token does not begin a sentence"),
        (sentence_document([0, 0, 0, 0, 0, 0, 0]), "its first token does not begin a sentence"),
        (sentence_document([1, 0, 0, 1, 0, 0, 0]), "2 sentences are marked, Punkt cuts it into 3"),
        (sentence_document([1, 0, 1, 0, 0, 1, 0]), "sentence 1 begins at byte 7 of the text, Punkt says 9"),
        (sentence_document([1, 0, 0, 1, 0, 0, 1]), "sentence 2 begins at byte 18 of the text, Punkt says 13"),
        (
            sentence_document([1, 0, 0, 1, 0, 1, 0], sentences=("One two. ", "e. ", "Three")),
            "sentence 2 begins at byte 13 of the text, Punkt says 12",
        ),
    ],
)
def test_a_border_elsewhere(given: Cut, says: str) -> None:
    whole = Verdict(False, f"a:0: {says}", {"documents_in_sentences": 1, "sentences": 3}, Worst("a:0", says, tuple(IDS)))
    assert sentence_borders(0, SENTENCE_WORDS)([sentence_document([1, 0, 0, 1, 0, 1, 0]), given]) == whole


def test_what_stands_before_a_text_is_of_its_first_sentence() -> None:
    right, wrong = sentence_document([1, 0, 0, 0, 0, 1, 0, 1, 0]), sentence_document([1, 0, 1, 0, 0, 0, 0, 1, 0])
    assert sentence_borders(2, SENTENCE_WORDS)([right]).passed
    assert sentence_borders(2, SENTENCE_WORDS)([wrong]).summary == "a:0: sentence 1 begins at byte 0 of the text, Punkt says 9"


# -- What documents must begin with, read from the definition of a post-processor ---------------------------------------------------------

START_IDS = {"<s>": 1, "[CLS]": 2, "<b>": 3}
BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
START_TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE = {"type": "TemplateProcessing", "single": [BOS, START_TEXT]}


def start_vocabulary(processor: Any) -> Any:
    return SimpleNamespace(
        spec={"post_processor": processor}, backend=SimpleNamespace(token_to_id=START_IDS.get), special={"bos_token": "<b>"}
    )


@pytest.mark.parametrize(
    ("processor", "first"),
    [
        (TEMPLATE, 1),
        ({"type": "TemplateProcessing", "single": [START_TEXT, BOS]}, None),
        ({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]"}}, BOS, START_TEXT]}, 2),
        ({"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["x", 9]}, 2),
        ({"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["x", 9]}, 1),
        ({"type": "ByteLevel"}, None),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]}, 1),
    ],
)
def test_what_the_tokenizer_writes_itself(processor: Any, first: int | None) -> None:
    assert documents_begin_with(start_vocabulary(processor), "auto") == first
    assert documents_begin_with(start_vocabulary(processor), "true") == 3
    assert documents_begin_with(start_vocabulary(processor), "false") is None
