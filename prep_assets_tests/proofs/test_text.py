"""Tokenization identity of documents: bytes are compared only where the tokenizer's own decoder confirms them, and every fault is found."""

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
from prep_assets.proofs.documents import Text, prove_texts
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.proofs.words import unproven_id
from prep_assets.text.engines import ReferenceEngine
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, NAMES, load

LATE = 3001
"""A document after those that the tokenizer's own decoder decodes, and not among those that are tokenized again."""


@pytest.fixture(scope="module", params=NAMES)
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """Each of the four tokenizers in turn; the real ones only where they are at hand."""
    name = request.param
    return load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name).vocabulary


@pytest.fixture(scope="module")
def many(vocabulary: Vocabulary) -> tuple[Text, ...]:
    """Documents with more tokens than the vocabulary has before `LATE`."""
    words = "The cat sat on the mat \u732b\U0001f408 \ufffd caf\u00e9 \u00a0 and the dog did not. "
    texts = [f"{' ' * (i % 3)}{words}{i}" for i in range(LATE + 300)]
    flat = ReferenceEngine(vocabulary.spec).encode(texts)
    assert flat.offsets[LATE - 500] > vocabulary.size
    return tuple(Text(f"{i}", text, flat.ids[flat.offsets[i] : flat.offsets[i + 1]]) for i, text in enumerate(texts))


def prove(texts: Sequence[Text], vocabulary: Vocabulary) -> tuple[bool, str]:
    verdict = prove_texts(texts, vocabulary)
    assert not verdict.passed or verdict.numbers["documents_decoded"] == len(texts)
    return verdict.passed, verdict.worst.where if verdict.worst else ""


def with_table(vocabulary: Vocabulary, table: Sequence[bytes]) -> Vocabulary:
    """The same tokenizer with another idea of the bytes behind its ids."""
    changed = replace(vocabulary)
    changed.__dict__.update(token_bytes=tuple(table), hash=f"{hash(tuple(table))}")
    return changed


def test_documents_as_they_are_pass(many: tuple[Text, ...], vocabulary: Vocabulary) -> None:
    assert prove(many, vocabulary) == (True, "")


@pytest.mark.parametrize("at", [0, LATE])
def test_another_token_is_found(many: tuple[Text, ...], vocabulary: Vocabulary, at: int) -> None:
    texts = list(many)
    ids = texts[at].ids.copy()
    ids[len(ids) // 2] = ids[len(ids) // 2 - 1]
    texts[at] = replace(texts[at], ids=ids)
    assert prove(texts, vocabulary) == (False, f"{at}")


@pytest.mark.parametrize("shift", [1, -1])
def test_a_token_that_belongs_to_the_next_document_is_found(many: tuple[Text, ...], vocabulary: Vocabulary, shift: int) -> None:
    texts = list(many)
    left, right = texts[LATE], texts[LATE + 1]
    both, cut = np.concatenate([left.ids, right.ids]), len(left.ids) + shift
    texts[LATE : LATE + 2] = [replace(left, ids=both[:cut]), replace(right, ids=both[cut:])]
    assert prove(texts, vocabulary) == (False, f"{LATE}")


def test_bytes_that_only_look_like_the_text_are_found(many: tuple[Text, ...], vocabulary: Vocabulary) -> None:
    assert vocabulary.token_bytes is not None
    stray = vocabulary.token_bytes.index(b"\xff") if b"\xff" in vocabulary.token_bytes else vocabulary.token_bytes.index(b"\x80")
    assert vocabulary.decode([stray]) == "\ufffd"
    texts = list(many)
    texts[LATE] = replace(texts[LATE], text="\ufffd", ids=np.array([stray], np.uint32))
    assert prove(texts, vocabulary) == (False, f"{LATE}")


def test_the_bytes_of_each_id_are_those_of_the_tokenizers_own_decoder(vocabulary: Vocabulary) -> None:
    assert unproven_id(vocabulary) is None


def test_two_ids_whose_bytes_are_mistaken_for_each_other_are_noticed(vocabulary: Vocabulary) -> None:
    table = vocabulary.token_bytes
    assert table is not None
    partial = [number for number, own in enumerate(table) if own and 0x80 <= own[0] < 0xF5 and own[0] not in (0xC0, 0xC1)]
    for one, other in (partial[:2], partial[-2:], (300, 301)):
        swapped = list(table)
        swapped[one], swapped[other] = table[other], table[one]
        assert unproven_id(with_table(vocabulary, swapped)) is not None, (table[one], table[other])


def test_where_the_bytes_are_not_confirmed_documents_are_decoded(many: tuple[Text, ...], vocabulary: Vocabulary) -> None:
    assert vocabulary.token_bytes is not None
    wrong = with_table(vocabulary, [own + b"x" for own in vocabulary.token_bytes])
    assert prove(many, wrong) == (True, "")
    texts = list(many)
    texts[LATE] = replace(texts[LATE], text=texts[LATE].text + "x")
    assert prove(texts, wrong) == (False, f"{LATE}")


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

    def __init__(self, vocabulary: Any, engines: Any) -> None:
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


def verdict_of(texts: Sequence[Text], vocabulary: Any = None, engines: Any = None, batch: int = 2) -> Verdict:
    return prove_texts(texts, vocabulary or Bytes(), engines, batch=batch)


def figures(decoded: int, compared: int, cut: int = 0, by_reference: int = 0) -> dict[str, int]:
    return {"documents_decoded": decoded, "documents_compared": compared, "documents_cut": cut, "texts_by_reference": by_reference}


@pytest.mark.usefixtures("ids_agree")
def test_what_is_said_of_sound_documents() -> None:
    texts = made(*(f"One {i}" for i in range(1001)))
    says = "1,001 documents have the tokenizer's ids, 1,001 decode to their text"
    assert verdict_of(texts) == Verdict(True, says, figures(1001, 1001))
    with_engine = "; 1,234 texts were tokenized by the reference library, the others by bytes"
    assert verdict_of(texts, None, SimpleNamespace(first=Bytes())) == Verdict(True, says + with_engine, figures(1001, 1001, 0, 1234))
    undecoded = Bytes(token_bytes=None)
    assert verdict_of(texts, undecoded) == Verdict(True, says.replace("1,001 decode", "0 decode"), figures(0, 1001))
    assert undecoded.decoded == []
    assert verdict_of([]) == Verdict(True, "0 documents have the tokenizer's ids, 0 decode to their text", figures(0, 0))


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


@pytest.mark.usefixtures("ids_agree")
@pytest.mark.parametrize(("at", "decoded", "compared"), [(0, 0, 1), (1, 0, 2), (2, 2, 3), (3, 2, 4), (4, 4, 5)])
def test_other_ids(at: int, decoded: int, compared: int) -> None:
    """The first document that fails is shown, and what was looked at before it is counted."""
    texts = made("ab", "cd", "ef", "gh", "ij", at=at, ids=[3, 4, 5])
    what = "3 ids differ from the tokenizer's 2"
    numbers = {"documents_decoded": decoded, "documents_compared": compared}
    assert verdict_of(texts) == Verdict(False, f"{at}: {what}", numbers, Worst(f"{at}", what, (3, 4, 5)))


@pytest.mark.usefixtures("ids_agree")
def test_the_same_ids_cut_elsewhere_are_other_ids() -> None:
    texts = made("ab", "cd", "e")
    texts[1:] = [replace(texts[1], ids=texts[1].ids[:1]), replace(texts[2], ids=np.array([*b"de"], np.int32))]
    verdict = verdict_of(texts, batch=3)
    assert verdict.summary == "1: 1 ids differ from the tokenizer's 2"
    assert verdict.numbers == {"documents_decoded": 0, "documents_compared": 2}


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


LONG = "x" * 1230 + "".join(map(chr, range(97, 123))) * 3
WRONG = [
    ("Hello", "Hallo", "decodes to …'Hallo'…, the text is …'Hello'… (character 1)"),
    ("Hello", "Hell", "decodes to …'Hell'…, the text is …'Hello'… (character 4)"),
    ("Hell", "Hello", "decodes to …'Hello'…, the text is …'Hell'… (character 4)"),
    (
        LONG,
        LONG[:1256] + "!" + LONG[1257:],
        f"decodes to …{LONG[1236:1256] + '!' + LONG[1257:1296]!r}…, the text is …{LONG[1236:1296]!r}… (character 1,256)",
    ),
    ("e\u0301", "f\u0301", "decodes to …'f\u0301'…, the text is …'\u00e9'… (character 0)"),
]


@pytest.mark.parametrize("size", [256, 2], ids=["decoded", "bytes"])
@pytest.mark.parametrize("several", [1 << 18, 4], ids=["at once", "in parts"])
@pytest.mark.parametrize(("text", "stored", "what"), WRONG)
def test_other_texts(blind: Any, monkeypatch: pytest.MonkeyPatch, size: int, several: int, text: str, stored: str, what: str) -> None:
    """By the decoder or by the bytes of each id, of all documents at once or of a long one in parts."""
    monkeypatch.setattr(module, "DECODED", several)
    monkeypatch.setattr(module, "TOGETHER", 4 * several)
    texts = blind(made("First document", "Second", text, "Last", at=2, ids=list(stored.encode())))
    numbers = {"documents_decoded": 2, "documents_compared": 4}
    assert verdict_of(texts, Bytes(size=size)) == Verdict(False, f"2: {what}", numbers, Worst("2", what, tuple(stored.encode())))


@pytest.mark.parametrize("several", [1 << 18, 4, 1], ids=["at once", "in parts", "one by one"])
def test_bytes_that_only_decode_alike(blind: Any, monkeypatch: pytest.MonkeyPatch, several: int) -> None:
    monkeypatch.setattr(module, "DECODED", several)
    monkeypatch.setattr(module, "TOGETHER", 4 * several)
    texts = blind(made("First document", "\ufffd", "Second", "\ufffdA", at=3, ids=[255, 65]))
    what = "its ids stand for other bytes, which only look like its text"
    numbers = {"documents_decoded": 2, "documents_compared": 4}
    vocabulary = Bytes(size=13)  # the first two documents have 17 ids
    assert verdict_of(texts, vocabulary) == Verdict(False, f"3: {what}", numbers, Worst("3", what, (255, 65)))
    assert vocabulary.decoded[-1] == 1, "only the suspect"
    assert verdict_of(texts, Bytes(size=25)).passed, "the decoder cannot tell"
    assert not verdict_of(texts, Bytes(size=24)).passed
    monkeypatch.setattr(bytes_of_ids, "is_proven", lambda _: False)
    assert verdict_of(texts, Bytes(size=13)).passed, "nobody has proven the bytes of ids"


def test_the_bytes_of_ids_are_proven_once(blind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bytes_of_ids, "is_proven", lambda each: asked.append(each) or True)
    vocabulary = Bytes(size=2)
    assert verdict_of(blind(made("ab", "c", "d", "e", "", "")), vocabulary).passed
    assert asked == [vocabulary] and set(vocabulary.decoded) == {0}


@pytest.mark.parametrize("size", [1000, 2], ids=["decoded", "bytes"])
@pytest.mark.parametrize("several", [1 << 18, 1, 2], ids=["at once", "one by one", "in parts"])
@pytest.mark.parametrize(
    ("prefix", "text", "stored", "passes"),
    [
        ("always", "Hello", " Hello", True),
        ("first", "Hello", " Hello", True),
        ("never", "Hello", " Hello", False),
        ("always", "Hello", "  Hello", False),
        ("always", " Hello", " Hello", True),
        ("always", " Hello", "  Hello", False),
        ("always", "Hello", "Hello", True),
        ("never", "Hello", "Hello", True),
        ("always", "", "", True),
        ("always", "", " ", True),
        ("always", "a b c", "a b c", True),
        ("always", "a b", "ab", False),
    ],
)
def test_the_space_in_front(
    blind: Any, monkeypatch: pytest.MonkeyPatch, size: int, several: int, prefix: str, text: str, stored: str, passes: bool
) -> None:
    monkeypatch.setattr(module, "DECODED", several)
    monkeypatch.setattr(module, "TOGETHER", 4 * several)
    texts = blind(made("The first one", text, at=1, ids=list(stored.encode())))
    assert verdict_of(texts, Bytes(prefix, size)).passed == passes


def test_documents_come_in_batches_of_256() -> None:
    vocabulary = Bytes()
    calls: list[int] = []
    vocabulary.decode_batch = lambda rows: calls.append(len(rows)) or [bytes(ids).decode() for ids in rows]  # type: ignore[method-assign, func-returns-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "IdsAgain", Agrees)
        assert prove_texts(made(*["a"] * 256, ""), vocabulary).passed
    assert calls == [256, 1]
