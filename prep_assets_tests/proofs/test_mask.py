"""Mask alignment on rows whose tokens are spelled out: each wrong mask, in the words of the verdict."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mask as module
from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.mask import (
    Conversation,
    IdentityProof,
    MaskProof,
    expected_ids,
    first_wrong,
    prove_identity,
    prove_masks,
    straddled,
)
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.proofs.words import record, vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, load

TOKENS = ("<e>", "<s>", "user", "bot", "\n", "Hi", " there", "Hel", "lo", ".", "\ufffd", " ")
WORDS = vocabulary(*TOKENS)
RENDER = ["<s>", "user", "\n", "Hi", " there", "<e>", "\n", "<s>", "bot", "\n", "Hel", "lo", ".", "<e>", "\n"]
ANSWER = Expected("Hello.<e>", 1.0, "<e>", 0, 9)


def row(trained: dict[int, float] | range, expected: Any = (ANSWER,), tokens: list[str] = RENDER, **more: Any) -> Conversation:
    weights = trained if isinstance(trained, dict) else dict.fromkeys(trained, 1.0)
    mask = np.array([weights.get(at, 0.0) for at in range(len(tokens))], np.float32)
    return record("a:0", np.array([TOKENS.index(token) for token in tokens], np.int64), mask, tuple(expected), **more)


RIGHT = row(range(10, 14))


def test_right_masks() -> None:
    numbers = {"rows_checked": 2, "rows_failed": 0, "trained_tokens": 8}
    summary = "8 trained tokens of 2 rows decode to exactly the trained texts and their stop token '<e>'"
    assert prove_masks([RIGHT, RIGHT], WORDS) == Verdict(True, summary, numbers)
    assert prove_masks([RIGHT, RIGHT], WORDS, batch=1) == Verdict(True, summary, numbers)
    thousands = prove_masks([RIGHT] * 1000, WORDS, batch=300)
    assert thousands.summary == "4,000 trained tokens of 1,000 rows decode to exactly the trained texts and their stop token '<e>'"
    assert prove_masks([], WORDS).summary == "0 trained tokens of 0 rows decode to exactly the trained texts and no stop token"


@pytest.mark.parametrize(
    ("given", "at", "derivations"),
    [
        (row(range(10, 13)), 13, (("Hello.", "Hello.<e>"),)),
        (row(range(10, 13), tokens=RENDER[:13]), 12, (("Hello.", "Hello.<e>"),)),
        (row(range(10, 12), tokens=RENDER[:13]), 12, (("Hello", "Hello.<e>"),)),
        (row(range(11, 14)), 10, (("lo.<e>", "Hello.<e>"),)),
        (row(range(10, 15)), 14, (("Hello.<e>\n", "Hello.<e>"),)),
        (row({3: 1, 4: 1, 10: 1, 11: 1, 12: 1, 13: 1}), 3, (("Hi there", "Hello.<e>"), ("Hello.<e>", ""))),
    ],
)
def test_the_worst_row_has_both_derivations_and_the_token_at_which_they_part(given: Conversation, at: int, derivations: Any) -> None:
    worst = prove_masks([RIGHT, given], WORDS).worst
    assert worst is not None and (worst.at, worst.derivations) == (at, derivations)


@pytest.mark.parametrize(
    ("runs", "expected", "at"),
    [
        ([(10, 14)], ["Hello.<e>", "Hello.<e>"], -1),  # one is not trained at all
        ([(3, 5), (10, 14)], ["Hello.<e>"], 3),
        ([(3, 5), (11, 14)], ["Hi there", "Hello.<e>"], 10),
        ([(3, 5), (10, 13)], ["Hi there", "Hello.<e>"], 13),
        ([(10, 15)], ["Hello.<e>\n\n"], 14),  # where the row ends
        ([(3, 5), (10, 14)], ["Hi there", "Help"], 11),
        ([(3, 5), (10, 14)], ["Hi there", "Hell<e>"], 11),
        ([(3, 5), (10, 14)], ["Hi there", "Hello<e>"], 12),
        ([(3, 5), (10, 14)], ["Hi there\ufffd", "\ufffdHello.<e>"], -1),  # but for a part of a character
    ],
)
def test_the_first_token_that_is_wrong(runs: list[tuple[int, int]], expected: list[str], at: int) -> None:
    decoded = [WORDS.decode(RIGHT.ids[start:end].tolist()) for start, end in runs]
    for texts, wanted in ((decoded, expected), ([f"\ufffd{text}" if at < 0 else text for text in decoded], expected)):
        assert first_wrong(RIGHT.ids, runs, texts, wanted, WORDS) == at


def test_a_verdict_says_what_was_counted() -> None:
    proof = MaskProof(WORDS)
    figures = dict(zip(proof.numbers, (1001, 0, 1002, 1003, 1004, 1005, 1006), strict=True))
    proof.proven(figures, ["<s>", "<e>"])
    says = "1,002 trained tokens of 1,001 rows decode to exactly the trained texts and their stop tokens '<e>', '<s>'"
    says += "; the prefix property says where the answers of 1,004 rows begin and end; tags in the template say the same of 1,003 rows"
    says += (
        "; 1,005 tokens without attention decode to exactly the texts without it; 1,006 answers stand behind a prompt that no server sends"
    )
    assert proof.verdict() == Verdict(True, says, figures)


LONG = "Hi there" * 10
HELD = Expected("Hi there", -1.0)
WRONG: list[tuple[Conversation, str]] = [
    (row({}), "0 trained stretches, the source has 1 trained texts; trained: []"),
    (row({}, (Expected("Hi", 0.5),)), "0 trained stretches, the source has 1 trained texts; trained: []"),
    (row({3: 1, 4: 1, 10: 1}), "2 trained stretches, the source has 1 trained texts; trained: ['Hi there', 'Hel']"),
    (
        row(range(10), (ANSWER,) * 2, ["Hi", " there"] * 10),
        f"1 trained stretches, the source has 2 trained texts; trained: [{(LONG * 2)[:40]!r}]",
    ),
    (
        row(range(20), (ANSWER,) * 2, ["Hi", " there"] * 10),
        f"1 trained stretches, the source has 2 trained texts; trained: [{(LONG * 2)[:60]!r}]",
    ),
    (
        row({3: -1, 10: 1}),
        "2 trained or unattended stretches, the source has 1 trained or unattended texts; trained or unattended: ['Hi', 'Hel']",
    ),
    (row({}, (HELD,)), "0 trained or unattended stretches, the source has 1 trained or unattended texts; trained or unattended: []"),
    (row(dict.fromkeys(range(10, 14), 0.5)), "loss weight 0.5 on 'Hello.<e>', to which the source gives loss weight 1"),
    (row(dict.fromkeys(range(10, 14), -1.0)), "no attention on 'Hello.<e>', to which the source gives loss weight 1"),
    (row(dict.fromkeys(range(10, 14), -1.5)), "loss weight 0.5 and no attention on 'Hello.<e>', to which the source gives loss weight 1"),
    (row({3: 1, 4: 1}, (HELD,)), "loss weight 1 on 'Hi there', to which the source gives no attention"),
    (row(range(1), (Expected(LONG, 0.25),)), f"loss weight 1 on {LONG[:40]!r}, to which the source gives loss weight 0.25"),
    (row(range(10, 13)), "the trained text ends 'Hello.', without '<e>', which ends the turn"),
    (
        row(range(20), (Expected(LONG, 1.0, "<e>"),), ["Hi", " there"] * 10),
        f"the trained text ends {(LONG)[-40:]!r}, without '<e>', which ends the turn",
    ),
    (row(range(11, 14)), "trained …'lo.<e>'…, the source says …'Hello.<e>'… (character 0)"),
    (row({3: -1}, (HELD,)), "unattended …'Hi'…, the source says …'Hi there'… (character 2)"),
    (
        row(range(20), (Expected(f"{LONG[:30]}!"),), ["Hi", " there"] * 10),
        f"trained …{(LONG * 2)[10:70]!r}…, the source says …{f'{LONG[10:30]}!'!r}… (character 30)",
    ),
    (row(range(9, 14)), "the template's white space before 'Hello.<e>' is trained"),
    (row(range(10, 15)), "the template's white space after 'Hello.<e>' is trained"),
    (row({2: -1, 3: -1, 4: -1}, (HELD,)), "the template's white space before 'Hi there' is unattended"),
]
"""Wrong rows, and what is said of them."""


@pytest.mark.parametrize(("given", "says"), WRONG)
def test_a_wrong_mask(given: Conversation, says: str) -> None:
    verdict = prove_masks([RIGHT, given, given], WORDS)
    assert (verdict.passed, verdict.summary) == (False, f"2 of 3 rows train the wrong tokens; first a:0: {says}")
    assert verdict.numbers["rows_failed"] == 2 and verdict.worst is not None
    assert (verdict.worst.note, verdict.worst.ids, verdict.worst.weights) == (says, tuple(given.ids.tolist()), tuple(given.mask.tolist()))


def test_a_mask_of_another_length() -> None:
    short = record("a:0", RIGHT.ids, RIGHT.mask[:-1], (ANSWER,))
    assert prove_masks([short], WORDS).summary == "1 of 1 rows train the wrong tokens; first a:0: 15 tokens, 14 mask values"


def test_white_space_of_the_text_itself_is_trained() -> None:
    own = Expected("\nHello.<e>\n", 1.0, "")
    assert prove_masks([row(range(9, 15), (own,))], WORDS).passed
    led = Expected(" there<e>", 1.0, "<e>")
    assert prove_masks([row(range(4, 6), (led,))], WORDS).passed, "a token that begins with a space"


TWO = ("Hi", ".", "<e>", " ", "  ", " Lo", "  Lo", "\n", "<s>")
FIRST = Expected("Hi.<e>", 1.0, "<e>", 0, 6)


def two(tokens: list[str], *expected: Expected) -> Conversation:
    """A row of two answers, all of whose tokens are trained."""
    return record("a:0", np.array([TWO.index(token) for token in tokens]), np.ones(len(tokens), np.float32), expected)


def verdict_of(given: Conversation, **tokenizer: Any) -> tuple[bool, str]:
    found = prove_masks([given], vocabulary(*TWO, **tokenizer))
    return found.passed, found.worst.note if found.worst else ""


@pytest.mark.parametrize(
    "given",
    [
        two(["Hi", ".", "<e>", " Lo", "<e>"], FIRST, Expected("Lo<e>", 1.0, "<e>", 7, 12)),
        two(["Hi", ".", "<e>", " Lo", "<e>", " Lo", "<e>"], FIRST, *[Expected("Lo<e>", 1.0, "<e>")] * 2),
        two(["Hi", ".", "\n", " Lo"], Expected("Hi.\n"), Expected("Lo")),  # of its white space the first has some
    ],
)
def test_a_token_that_holds_what_stands_between_two_answers_parts_them(given: Conversation) -> None:
    assert verdict_of(given) == (True, "")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            two(["Hi", ".", "<e>", " ", " Lo", "<e>"], FIRST, Expected(" Lo<e>", 1.0, "<e>")),
            "the template's white space before ' Lo<e>' is trained",
        ),
        (two(["Hi", ".", "\n", " ", " Lo"], Expected("Hi.\n"), Expected("Lo")), "the template's white space before 'Lo' is trained"),
        (two(["Hi", ".", "<e>", " Lo", "  "], FIRST, Expected("Lo ")), ""),  # a token that is the text's own in part
        (two(["Hi", ".", "<e>", " Lo", " ", " "], FIRST, Expected("Lo ")), "the template's white space after 'Lo ' is trained"),
        (two(["Hi", ".", "<e>", "<s>", " Lo"], FIRST, Expected("Lo")), "trained …'<s> Lo'…, the source says …'Lo'… (character 0)"),
        (two([" Lo"], FIRST, Expected("Lo")), "1 trained stretches, the source has 2 trained texts; trained: [' Lo']"),
    ],
)
def test_white_space_between_two_answers_is_not_trained(given: Conversation, says: str) -> None:
    assert verdict_of(given) == (not says, says)


@pytest.mark.parametrize(
    ("tokens", "scheme", "right"),
    [
        ([" ", "Hi"], "first", True),
        ([" ", " ", "Hi"], "first", False),
        (["Hi", "<s>", " ", "Hi"], "first", False),
        (["Hi", "<s>", " ", "Hi"], "always", True),
        ([" ", "Hi"], "always", True),
        ([" ", "Hi"], "never", False),
        (["<s>", "Hi", " ", "Hi"], "always", False),
    ],
)
def test_a_space_of_the_tokenizers_own_may_be_trained(tokens: list[str], scheme: str, right: bool) -> None:
    given = two(tokens, Expected("Hi"))
    given.mask[: max(0, len(tokens) - 2 - (tokens.count(" ") > 1))] = 0
    assert verdict_of(given, prefix_space=scheme)[0] is right


def test_a_character_of_several_tokens_parts_no_answers() -> None:
    pieces = [b"Hi", b"\xf0\x9f", b"\x98\x80", b" Lo"]

    def decode(ids: Any) -> str:
        return b"".join(pieces[each] for each in ids).decode(errors="replace")

    words = vocabulary(*TWO)
    words.decode, words.decode_batch = decode, lambda rows: [decode(ids) for ids in rows]
    given = record("a:0", np.arange(4), np.ones(4, np.float32), (Expected("Hi\U0001f600"), Expected("Lo")))
    assert module.trained_runs(given, words) == [(0, 3), (3, 4)]
    assert prove_masks([given], words).passed


def test_a_tokenizer_that_writes_its_spaces_otherwise() -> None:
    def normalized(text: str) -> str:
        return "▁" + text.replace(" ", "▁")

    given = two(["Hi", "<s>", " Lo"], Expected("Hi<s>Lo"))
    assert verdict_of(given, normalized=normalized) == (True, "")
    assert not verdict_of(two(["Hi", "<s>", " Lo"], Expected("Hi<s>La")), normalized=normalized)[0]


def test_a_space_of_the_tokenizers_own_stands_amid_a_text() -> None:
    given = two(["Hi", "<s>", " Lo"], Expected("Hi<s>Lo"))
    exact = (b"",)
    assert verdict_of(given, prefix_space="always", token_bytes=exact)[0]
    assert not verdict_of(given, prefix_space="first", token_bytes=exact)[0]


BROKEN = ["Hi", " there", "Hel", "\ufffd"]


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        # the cut goes through a character at the end
        (row(range(2, 4), (Expected("Hel\ufffd"),), BROKEN, cut="end"), True),
        (row(range(2, 4), (Expected("Hel"),), BROKEN, cut="end"), True),
        (row(range(2, 4), (Expected("Hel"),), BROKEN), False),
        (row(range(2, 3), (Expected("Hel"),), BROKEN, cut="end"), True),
        # and a stop token takes the place of the rest
        (row(range(2, 4), (Expected("Hel\ufffd<e>", 1.0, "<e>"),), ["Hi", " there", "Hel", "<e>"], cut="end"), True),
        # or at the beginning
        (row(range(3), (Expected("lo."),), ["\ufffd", "lo", "."], cut="start"), True),
        (row(range(3), (Expected("\ufffdlo."),), ["\ufffd", "lo", "."], cut="start"), True),
        (row(range(3), (Expected("lo."),), ["\ufffd", "lo", "."]), False),
        (row(range(3), (Expected("lo."),), [" ", "lo", "."], cut="start"), True),
        # nowhere else
        (row({0: 1, 1: 1, 3: 1}, (Expected("Hel"), Expected("Hi")), ["Hel", "\ufffd", ".", "Hi"], cut="end"), False),
        (row(range(2), (Expected("Hel"),), ["Hel", "\ufffd", "."], cut="end"), False),
        (row({0: 1, 2: 1, 3: 1}, (Expected("Hi"), Expected("lo")), ["Hi", ".", "\ufffd", "lo"], cut="start"), False),
        (row({1: 1, 2: 1}, (Expected("lo"),), [".", "\ufffd", "lo"], cut="start"), False),
        (row({0: 1, 2: 1, 3: 1}, (Expected("Hi"), Expected("lo")), ["Hi", ".", " ", "lo"], cut="start"), False),
    ],
)
def test_rows_that_were_cut(given: Conversation, passes: bool) -> None:
    assert prove_masks([given], WORDS).passed is passes


@pytest.mark.parametrize(
    ("weights", "says"),
    [({10: 1.0, 11: 1.0, 12: 1.0, 13: 1.0}, ""), ({9: 1.0, 10: 1.0, 11: 1.0, 12: 1.0, 13: 1.0}, "token 9 weighs 0, the row says 1")],
)
def test_a_row_that_says_its_weights_has_them_token_by_token(weights: dict[int, float], says: str) -> None:
    said = np.array([weights.get(at, 0.0) for at in range(len(RENDER))], np.float32)
    verdict = prove_masks([row(range(10, 14), weights=said)], WORDS)
    assert (verdict.worst.note if verdict.worst else "") == says
    short = prove_masks([row(range(10, 14), weights=said[:-1])], WORDS).worst
    assert short is not None and short.note == "15 mask values, the row brings 14"


def test_so_many_rows_are_decoded_at_once_and_a_long_one_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    words, sizes = vocabulary(*TOKENS), list[int]()
    monkeypatch.setattr(words, "decode_batch", lambda rows: (sizes.append(len(rows)), WORDS.decode_batch(rows))[1])
    assert prove_masks([RIGHT] * 5, words, batch=2).passed and sizes == [2, 2, 1]
    monkeypatch.setattr(module, "LONG", len(RENDER) * 3)
    sizes.clear()
    assert prove_masks([RIGHT, row({}, (), RENDER * 4), *[RIGHT] * 4], words).passed and sizes == [1, 0, 3, 1]


def test_a_record_without_tokens() -> None:
    assert prove_masks([record("a:0", np.zeros(0, np.int64), np.zeros(0, np.int8), ())], WORDS).passed


def test_weights_are_compared_as_they_are_stored() -> None:
    """0.1 of a store is not quite 0.1 of a row."""
    tenth = np.array([0, 0.1])
    given = record("a:0", np.array([0, 5]), tenth, (Expected("Hi", 0.1),), weights=tenth.astype(np.float32))
    assert prove_masks([given], WORDS).passed
    stored = record("a:0", np.array([0, 5]), tenth.astype(np.float32), (Expected("Hi", 0.1),))
    assert prove_masks([stored], WORDS).passed


def test_a_tokenizer_that_changes_texts_trains_what_it_makes_of_them() -> None:
    """A line break that is a space to the model failed every chat that had one."""
    changes = vocabulary("<e>", "One ", "two", normalized=lambda text: text.replace("\n", " ").lower())
    for source, passed in (("one\nTwo<e>", True), ("one\n\nTwo<e>", True), ("one\nthree<e>", False)):
        given = record("a:0", np.array([1, 2, 0]), np.ones(3), (Expected(source, 1.0, "<e>"),))
        assert prove_masks([given], changes).passed == passed
        exact = vocabulary("<e>", "One ", "two", normalized=changes.normalized, token_bytes=(b"<e>", b"One ", b"two"))
        assert not prove_masks([given], exact).passed


HIDDEN = Expected("Hi there", -1.0)
BOTH = {3: -1.0, 4: -1.0, 10: 1.0, 11: 1.0, 12: 1.0, 13: 1.0}


def test_tokens_without_attention() -> None:
    right = row(BOTH, (HIDDEN, ANSWER))
    verdict = prove_masks([right, RIGHT], WORDS)
    assert verdict.passed and verdict.numbers["unattended_tokens"] == 2 and verdict.numbers["trained_tokens"] == 8
    assert verdict.summary.endswith("and their stop token '<e>'; 2 tokens without attention decode to exactly the texts without it")
    proof = MaskProof(WORDS)
    proof.proven({"rows_checked": 2, "trained_tokens": 8, "unattended_tokens": 1200})
    assert "; 1,200 tokens without attention" in proof.verdict().summary


# -- Identity of conversations on a tokenizer of whole words: each row that is not the reference's, in the words of the verdict -----------

TEXT = "<|im_start|>user\nHi there<|im_end|>\n"
CONTROLS = ((0, 12), (25, 35))


@pytest.fixture(scope="module")
def shipped() -> Vocabulary:
    return load(CONFIGS / "tokenizer").vocabulary


def plain(vocabulary: Vocabulary, text: str) -> list[int]:
    return list(vocabulary.backend.encode(text, add_special_tokens=False).ids)


def right(vocabulary: Vocabulary) -> list[int]:
    start, end = (vocabulary.control[token] for token in ("<|im_start|>", "<|im_end|>"))
    return [start, *plain(vocabulary, "user\nHi there"), end, *plain(vocabulary, "\n")]


def test_rows_that_are_the_reference_s(shipped: Vocabulary) -> None:
    numbers = {"rows_tokenized_again": 2, "control_tokens_in_content": 3}
    rows = [record("a:0", np.array(right(shipped)), text=TEXT, controls=CONTROLS, typed=typed) for typed in (0, 3)]
    assert prove_identity(rows, shipped) == Verdict(True, "2 rows have the reference tokenizer's ids of their render", numbers)
    assert prove_identity(rows * 600, shipped).summary.startswith("1,200 rows have")
    assert prove_identity([record("a:0", np.zeros(0, np.int64))], shipped).passed, "a render without a character"
    whole, cut = rows[0], record("a:1", np.array([5]), text=TEXT, controls=CONTROLS)
    cut = replace(cut, left=replace(cut.left, ids=cut.ids, taken=7))
    found = prove_identity([cut, whole, cut], shipped)
    assert found.passed and found.numbers == {"rows_tokenized_again": 3, "control_tokens_in_content": 0, "tokens_cut_away": 14}
    assert not prove_identity([replace(cut, ids=np.array([6]))], shipped).passed


def test_ids_are_counted_until_a_row_differs(shipped: Vocabulary) -> None:
    proof, good = IdentityProof(shipped), record("a:0", np.array(plain(shipped, "Hi there")), text="Hi there", typed=1)
    for _ in range(2):
        proof.proven({"rows_tokenized_again": 3, "control_tokens_in_content": 1})
        proof.add([good, good])
    assert proof.verdict().passed and proof.numbers == {"rows_tokenized_again": 10, "control_tokens_in_content": 6, "tokens_cut_away": 0}
    proof.add([good, replace(good, id="a:1", ids=good.ids[:1]), good])
    proof.add([replace(good, id="a:2", ids=good.ids[:1])])
    proof.proven({"rows_tokenized_again": 3})
    assert proof.worst is not None and proof.worst.where == "a:1" and proof.numbers["rows_tokenized_again"] == 12


def test_of_a_render_the_text_between_its_control_tokens_is_tokenized() -> None:
    """And whether it begins a document is known: there a tokenizer may write a space of its own."""
    asked: list[Any] = []

    def encode(texts: list[bytes], first: Any) -> Flat:
        asked.extend(zip(texts, [each is True for each in first.tolist()], strict=True))
        return Flat(np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32), np.cumsum([0, *map(len, texts)]))

    reference: Any = SimpleNamespace(encode_utf8=encode)
    renders = {"ab<e>c<s><s>d": ((2, 5), (6, 9), (9, 12)), "<e>é": ((0, 3),), "<s>": ((0, 3),), "": (), "x": ()}
    found = [*expected_ids([Derived(text, (), controls, 0, ()) for text, controls in renders.items()], WORDS, reference)]
    assert [each.tolist() for each in found] == [[97, 98, 0, 99, 1, 1, 100], [0, *"é".encode()], [1], [], [120]]
    assert {each.dtype for each in found} == {np.dtype(np.uint32)}
    assert asked == [(b"ab", True), (b"c", False), (b"d", False), ("é".encode(), False), (b"x", True)]


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        *((lambda whole, at=at: [*whole[:at], whole[at] + 1, *whole[at + 1 :]], at) for at in (0, 3, 12, 19)),
        (lambda whole: whole[:16], 16),
        (lambda whole: [*whole, 5, 6], 20),
    ],
)
def test_ids_that_differ(shipped: Vocabulary, stored: Any, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one place, or from the end of the shorter on: with five tokens on either side."""
    text = "Ten red apples and ten green pears are in one basket on this long table."
    whole = plain(shipped, text)
    stored = stored(whole)
    wanted, written = (shipped.decode(ids[max(0, place - 5) : place + 5]) for ids in (whole, stored))
    says = f"{len(stored)} ids, the reference tokenizer gives {len(whole)}; from token {place} on they differ: …{written!r}…, the render has …{wanted!r}…"
    right = record("a:0", np.array(whole), text=text)
    rows = [right, record("a:1", np.array(stored), text=text, typed=1), right]
    worst = Worst("a:1", says, tuple(stored), at=min(place, len(stored) - 1), derivations=((written, wanted),))
    numbers = {"rows_tokenized_again": 2, "control_tokens_in_content": 1}
    for together in (module.BATCH_CHARACTERS, 1):
        monkeypatch.setattr(module, "BATCH_CHARACTERS", together)
        assert prove_identity(rows, shipped) == Verdict(False, f"a:1: {says}", numbers, worst)


# -- Of a wrong mask, the first token that is wrong: words whose characters are counted by hand -------------------------------------------


@pytest.mark.parametrize(
    ("text", "stretches", "found"),
    [
        ("He said so", [(2, 10, 1.0)], False),  # " said" begins with the white space of what is trained
        ("He said so", [(3, 10, 1.0)], False),  # and so it does where the white space is not: it takes the weight of the word
        ("He said so", [(5, 10, 1.0)], True),  # "said" is half trained
        ("He said so", [(0, 3, 1.0)], False),  # trained white space before a word that is not
        ("He said so", [(2, 3, 1.0)], True),  # unless nothing else of the trained text is left
        ("He said so", [(0, 3, 0.5), (3, 10, 1.0)], True),
        ("He said so", [(0, 5, 1.0), (5, 10, 1.0)], False),  # of one weight
        ("I said", [(0, 2, 1.0)], False),
        (" said so", [(0, 1, 1.0)], True),  # nothing else of it is left here either
    ],
)
def test_tokens_on_both_sides_of_a_border(text: str, stretches: list[tuple[int, int, float]], found: bool) -> None:
    derived = Derived(text, tuple(Expected(text[start:end], weight, "", start, end) for start, end, weight in stretches), (), 0, ())
    assert straddled(derived, load(CONFIGS / "tokenizer").vocabulary) is found
