"""Each corruption does what its name says, or nothing, and leaves what it was given as it is."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mutations as imported
from prep_assets.proofs.documents import MaskedDocument
from prep_assets.proofs.groups import Margin, Rollout, Scores, Stepwise, check_margins, check_rewards, check_sampled, check_steps
from prep_assets.proofs.mask import Row
from prep_assets.proofs.merged import MergedRows
from prep_assets.proofs.rows import Line
from prep_assets.proofs.selection import Selected
from prep_assets.proofs.teachers import Taught, check_teacher
from prep_assets.samples import Sample, Sampled
from prep_assets.stores.images import Image
from prep_assets.stores.tokens import TokenStore
from prep_assets_tests.proofs.words import vocabulary


@pytest.fixture
def kit() -> Any:
    """The module, read anew, so that what makes its tables runs in each test."""
    spec = importlib.util.find_spec(imported.__name__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(value: Any) -> Any:
    """Arrays as lists, whatever holds them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Row):
        return value.ids.tolist(), value.mask.tolist()
    if isinstance(value, MaskedDocument):
        return value.mask.tolist()
    if isinstance(value, Scores):
        return value.rewards.tolist(), value.responses
    if isinstance(value, Taught):
        return value.counts.tolist(), value.ids.tolist(), value.logprobs.tolist(), list(value.source)
    if isinstance(value, MergedRows):
        return value.origin.tolist(), list(value.lines)
    if isinstance(value, TokenStore):
        return {key: each.tolist() for key, each in value.arrays.items()}, value.ends.tolist(), value.file.tolist(), value.row.tolist()
    return value


def changes(table: Sequence[Any], name: str, subject: Any, count: int, *more: Any) -> list[Any]:
    """What a corruption makes of each of what a subject holds."""
    [mutation] = [each for each in table if each.name == name]
    before = [plain(each) for each in subject] if isinstance(subject, list) else plain(subject)
    found = [mutation.change(subject, at, *more) for at in range(count)]
    assert before == ([plain(each) for each in subject] if isinstance(subject, list) else plain(subject))
    return found


def each_alone(table: Sequence[Any], name: str, rows: list[Any], *more: Any) -> list[Any]:
    """What becomes of each of some rows, of which all others stay."""
    found = changes(table, name, rows, len(rows), *more)
    for at, others in enumerate(found):
        assert others is None or all(each is rows[number] for number, each in enumerate(others) if number != at)
        assert others is None or len(others) == len(rows)
    return [None if others is None else plain(others[at]) for at, others in enumerate(found)]


# -- conversations ----------------------------------------------------------------------------------------------------------------------

WORDS = vocabulary("<e>", "<s>", "a", "b", "c", "d", "e", "f")


def row(ids: Sequence[int], mask: Sequence[float]) -> Row:
    return Row("a", np.array(ids, np.uint16), np.array(mask, np.float32), ())


LONG, FIRST, OPEN = [1, 2, 3, 4, 5, 6, 7, 2, 0, 3], [2, 3, 0], [5, 2, 3]
ROWS = [row(LONG, [0, 0, 0, 0, 0, 0, 1, 1, 1, 0]), row(FIRST, [1, 1, 1]), row(OPEN, [0, 0.5, 0.5])]
LATE = [row([2, 3, 4, 5, 6, 7, 2, 3, 4], [0] * 8 + [1]), row([2, 3, 4], [0, 1, 1]), row([2, 3, 4], [0, 0, 1]), row([2, 3], [1, 0])]


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("mask shifted by -1", [(LONG, [0] * 5 + [1] * 3 + [0] * 2), (FIRST, [1, 1, 0]), (OPEN, [0.5, 0.5, 0])]),
        ("role header trained", [(LONG, [0] * 3 + [1] * 6 + [0]), None, (OPEN, [1, 0.5, 0.5])]),
        ("stop token not trained", [(LONG, [0] * 6 + [1, 1, 0, 0]), (FIRST, [1, 1, 0]), None]),
        ("a user turn trained", [(LONG, [0, 1, 1, 0, 0, 0, 1, 1, 1, 0]), None, None]),
        ("missing mask filled with zeros", [(LONG, [0] * 10), (FIRST, [1, 0, 0]), (OPEN, [0] * 3)]),
        (
            "a trained token replaced",
            [([*LONG[:6], 2, *LONG[7:]], ROWS[0].mask.tolist()), ([3, 3, 0], [1] * 3), ([5, 3, 3], [0, 0.5, 0.5])],
        ),
        ("a token of the prompt replaced", [([1, 2, 3, 2, *LONG[4:]], ROWS[0].mask.tolist()), None, None]),
        ("first control token doubled", [([1, *LONG], [0, *ROWS[0].mask.tolist()]), ([0, *FIRST], [0, 1, 1, 1]), None]),
        ("tail of a record cut off", [(LONG[:7], [0] * 6 + [1]), ([2], [1]), ([5], [0])]),
    ],
)
def test_conversations(kit: Any, name: str, results: list[Any]) -> None:
    assert each_alone(kit.MUTATIONS, name, ROWS, WORDS) == results


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("a user turn trained", [[0, 0, 1, 1, 0, 0, 0, 0, 1], None, [1, 0, 1], None]),
        ("a token of the prompt replaced", [[2, 3, 4, 5, 2, 7, 2, 3, 4], None, [2, 2, 4], None]),
    ],
)
def test_conversations_that_are_odd(kit: Any, name: str, results: list[Any]) -> None:
    found = each_alone(kit.MUTATIONS, name, LATE, WORDS)
    assert [None if each is None else each["replaced" not in name] for each in found] == results


def test_the_stop_token_of_the_first_answer_alone(kit: Any) -> None:
    twice = row([2, 0, 3, 4], [1, 1, 0, 1])
    assert each_alone(kit.MUTATIONS, "stop token not trained", [twice], WORDS) == [([2, 0, 3, 4], [1, 0, 0, 1])]


def test_arrays_keep_their_types(kit: Any) -> None:
    for mutation in kit.MUTATIONS:
        found = mutation.change(ROWS, 0, WORDS)
        assert found is None or found[0].ids.dtype == np.uint16
    small = [Row("a", np.array([2, 3, 0]), np.array([0, 1, 1], np.int8), ())]
    assert all((found := each.change(small, 0, WORDS)) is None or found[0].mask.dtype.kind == "i" for each in kit.MUTATIONS)


def test_masks_swapped(kit: Any) -> None:
    found = changes(kit.MUTATIONS, "masks of two records swapped", ROWS, 3, WORDS)
    masks = [[each.mask.tolist() for each in rows] for rows in found]
    assert [each.ids.tolist() for each in found[2]] == [LONG, FIRST, OPEN]
    assert masks[0] == [[1] * 10, [0, 0, 0], [0, 0.5, 0.5]] and masks[1][1:] == [[0, 0.5, 0.5], [1, 1, 1]]
    assert masks[2] == [[0, 0.5, 0.5, 0, 0.5, 0.5, 0, 0.5, 0.5, 0], [1, 1, 1], [0, 0, 0]]
    assert changes(kit.MUTATIONS, "masks of two records swapped", [ROWS[1]] * 2, 2, WORDS) == [None, None]


@pytest.mark.parametrize(("name", "by"), [("an image has a token too many", 1), ("an image has a token too few", -1)])
@pytest.mark.parametrize(
    ("ids", "trained", "at"),
    [
        ([2, 2, 2, 2, 1, 1, 3, 1, 1, 1, 4, 0, 0, 0, 0], [11, 12, 13, 14], 7),
        ([1, 1, 1, 3, 0, 0], [], 0),
        ([3, 1, 1, 0, 0], [], 1),
        ([3, 0, 0, 0, 1, 1], [1], 2),
        ([3, 1, 0, 2, 2], [], None),
        ([1], [], None),
        ([1, 1, 0, 0], [0, 1, 2, 3], None),
    ],
)
def test_a_placeholder_is_the_longest_run_of_an_untrained_control_token(
    kit: Any, name: str, by: int, ids: list[int], trained: list[int], at: int | None
) -> None:
    pictures = row(ids, [float(place in trained) for place in range(len(ids))])
    found = changes(kit.MUTATIONS, name, [ROWS[2], pictures], 2, WORDS)[1]
    if at is None:
        assert found is None
        return
    assert found[0] is ROWS[2] and found[1].ids.dtype == np.uint16
    assert found[1].ids.tolist() == [*ids[:at], *ids[at : at + 1] * (1 + by), *ids[at + 1 :]]
    assert np.flatnonzero(found[1].mask).tolist() == [place + by * (place > at) for place in trained]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("attention lost", [0, 0, 0, 0.5, 0]),
        ("attention turned round", [-1, 0, 0, -1.5, -1]),
        ("trained tokens not attended", [0, -1, -1, -1.5, 0]),
    ],
)
def test_attention(kit: Any, name: str, result: list[float]) -> None:
    """Weights below 0 are those of tokens that are not attended: -1, less the loss weight that none may have there."""
    hidden = row([2, 3, 4, 5, 6], [0, -1, -1, 0.5, 0])
    assert each_alone(kit.ATTENTION_MUTATIONS, name, [ROWS[0], hidden], WORDS) == [None, ([2, 3, 4, 5, 6], result)]
    for mutation in kit.ATTENTION_MASK_MUTATIONS:
        if mutation.name == name:
            [found] = mutation.change([MaskedDocument("a", Sample(()), hidden.ids, hidden.mask)], 0)
            assert found.mask.tolist() == result


def test_files(kit: Any) -> None:
    picture, sound = Image("a.png", "12"), Image("b.wav", "34", (16, 8), "audio")
    files = [(picture, picture), (sound, sound)]
    assert each_alone(kit.FILE_MUTATIONS, "another file under the same name", files) == [
        (picture, Image("a.png", "0" * 64)),
        (sound, Image("b.wav", "0" * 64, (16, 8), "audio")),
    ]
    longer = (Image("b.wav", "34", (17, 8), "audio"), sound)
    assert each_alone(kit.FILE_MUTATIONS, "a file of another resolution or duration", files) == [None, longer]


# -- documents and prompts --------------------------------------------------------------------------------------------------------------

IDS = [np.array([5, 5, 6, 7, 0]), np.array([9, 8, 0]), np.array([1, 0], np.uint16), np.array([4, 4])]


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("random tokens", [np.random.default_rng(0).integers(0, 10, len(each)).tolist() for each in IDS]),
        ("a token replaced", [[5, 6, 6, 7, 0], [9, 9, 0], None, None]),
        ("two tokens swapped", [[5, 6, 5, 7, 0], [8, 9, 0], None, None]),
        ("tokens of the next row", [[9, 8, 0], [1, 0], [4, 4], [5, 5, 6, 7, 0]]),
    ],
)
def test_tokens(kit: Any, name: str, results: list[Any]) -> None:
    assert each_alone(kit.DOCUMENT_MUTATIONS, name, IDS, 0, 10) == results
    same = changes(kit.DOCUMENT_MUTATIONS, name, [IDS[0]] * 2, 1, 0, 10)
    assert (same == [None]) is (name == "tokens of the next row")


@pytest.mark.parametrize(("token", "other"), [(3, 4), (9, 1), (8, 9), (0, 1)])
def test_another_token_is_never_the_end_of_text(kit: Any, token: int, other: int) -> None:
    found = changes(kit.DOCUMENT_MUTATIONS, "a token replaced", [np.array([1, token, 2], np.uint16)], 1, 0, 10)
    assert found[0][0].tolist() == [1, other, 2] and found[0][0].dtype == np.int64


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("a document's mask lost", [[1, 1, 1], None, [1, 1, 1]]),
        ("the end of a document weighed otherwise", [[1, 0, 0], [1, 1, 0], [0, 0.5, 0]]),
        ("a document's weights halved", [[0.5, 0, 0.5], [0.5, 0.5, 0.5], [0, 0.25, 0.5]]),
    ],
)
def test_masks_of_documents(kit: Any, name: str, results: list[list[float] | None]) -> None:
    masks = [np.array(values, np.float32) for values in ([1, 0, 1], [1, 1, 1], [0, 0.5, 1])]
    found = changes(kit.MASK_MUTATIONS, name, [MaskedDocument("a", Sample(()), mask, mask) for mask in masks], 3)
    assert [None if each is None else each[0].mask.tolist() for each in found] == results
    assert all(each is None or (len(each) == 1 and each[0].mask.dtype == np.float32) for each in found)
    whole = np.array([1, 0, 1], np.int8)
    [halved] = changes(kit.MASK_MUTATIONS, name, [MaskedDocument("a", Sample(()), whole, whole)], 1)
    assert (halved is None) is ("halved" in name) and (halved is None or halved[0].mask.dtype == np.int8)


# -- lines ------------------------------------------------------------------------------------------------------------------------------


def line(**stored: Any) -> Line:
    return Line("a", stored, stored, None)


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def parts(weight: float | None, last: str = "5") -> list[dict[str, Any]]:
    weighed = {} if weight is None else {"loss_weight": weight}
    return [said("assistant", [{"type": "text", "text": "four", **weighed}, {"type": "text", "text": last}])]


CALL = [{"role": "assistant", "tool_calls": [1]}]
EMPTY_CALL = [{"role": "assistant", "tool_calls": [1], "content": ""}]
Q = [said("system", "s"), said("user", "q")]
PAIRS = [
    line(prompt="p", chosen="good", rejected="bad"),
    line(prompt=Q, chosen=parts(0.25), rejected=CALL),
    line(prompt="r", completion="x", label=True),
    line(prompt="r", chosen=[said("assistant", "y")], rejected=EMPTY_CALL),
]


@pytest.mark.parametrize(
    ("name", "results"),
    [
        (
            "one pair swapped",
            [
                {"chosen": "bad", "rejected": "good"},
                {"chosen": CALL, "rejected": parts(0.25)},
                None,
                {"chosen": EMPTY_CALL, "rejected": [said("assistant", "y")]},
            ],
        ),
        (
            "a prompt altered",
            [
                {"prompt": f"{each} Hurry."} if isinstance(each, str) else {"prompt": [Q[0], said("user", "q Hurry.")]}
                for each in ("p", Q, "r", "r")
            ],
        ),
        ("a better answer truncated", [{"chosen": "go"}, {"chosen": parts(0.25, "55")}, None, {"chosen": [said("assistant", "yy")]}]),
        ("a worse answer truncated", [{"rejected": "b"}, None, None, None]),
        ("a label turned round", [None, None, {"label": False}, None]),
        ("loss weights of an answer lost", [None, {"chosen": parts(None)}, None, None]),
        ("loss weights of an answer turned round", [None, {"chosen": parts(0.75)}, None, None]),
        ("an empty prompt", [{"prompt": " "}, {"prompt": [said("user", " ")]}, {"prompt": " "}, {"prompt": " "}]),
        ("an empty answer", [{"chosen": " "}, {"chosen": [said("assistant", " ")]}, None, {"chosen": [said("assistant", " ")]}]),
        ("both answers the same", [{"chosen": "bad"}, {"chosen": CALL}, None, {"chosen": EMPTY_CALL}]),
    ],
)
def test_pairs(kit: Any, name: str, results: list[dict[str, Any] | None]) -> None:
    found = each_alone(kit.PAIR_MUTATIONS, name, PAIRS)
    wanted = [None if new is None else replace(each, stored={**each.stored, **new}) for each, new in zip(PAIRS, results, strict=True)]
    assert found == wanted


def test_what_is_lost_of_pairs_and_what_all_of_them_have(kit: Any) -> None:
    lost = each_alone(kit.PAIR_MUTATIONS, "a worse answer lost", PAIRS)
    assert lost[2] is None and lost[0].stored == {"prompt": "p", "chosen": "good"} and "rejected" not in lost[1].stored
    assert each_alone(kit.PAIR_MUTATIONS, "a pair that nobody wrote", PAIRS) == [replace(each, made=None) for each in PAIRS]
    swapped = changes(kit.PAIR_MUTATIONS, "all pairs swapped", PAIRS, 2)
    assert [each.stored.get("chosen") for each in swapped[1]] == ["bad", CALL, None, EMPTY_CALL] and swapped[1][2] == PAIRS[2]
    assert changes(kit.PAIR_MUTATIONS, "all pairs swapped", PAIRS[2:3], 1) == [None]
    shifted = changes(kit.PAIR_MUTATIONS, "prompts of the next pair", PAIRS, 1)[0]
    assert [each.stored["prompt"] for each in shifted] == [Q, "r", "r", "p"]
    assert [each.stored.get("chosen") for each in shifted] == [each.stored.get("chosen") for each in PAIRS]
    assert changes(kit.PAIR_MUTATIONS, "prompts of the next pair", PAIRS[:1], 1) == [None]
    assert changes(kit.PAIR_MUTATIONS, "prompts of the next pair", PAIRS[2:], 1) == [None], "they are the same"


LIST_OF_3 = line(prompt="p", responses=["a", "b", "c"], rewards=[3.0, 1.5, -1.0])
LIST_OF_2 = line(prompt="q", responses=["a", "b"], rewards=[3.0, 1.5])


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("responses of a list exchanged", [{"responses": ["c", "b", "a"]}, {"responses": ["b", "a"]}]),
        ("rewards of a list doubled", [{"rewards": [6.0, 3.0, -2.0]}, {"rewards": [6.0, 3.0]}]),
        ("the best of a list lost", [{"responses": ["b", "c"], "rewards": [1.5, -1.0]}, None]),
        (
            "a list from the worst on",
            [{"responses": ["c", "b", "a"], "rewards": [-1.0, 1.5, 3.0]}, {"responses": ["b", "a"], "rewards": [1.5, 3.0]}],
        ),
        ("a response of a list lost", [{"responses": ["a", "b"]}, {"responses": ["a"]}]),
    ],
)
def test_lists(kit: Any, name: str, results: list[dict[str, Any] | None]) -> None:
    lists = [LIST_OF_3, LIST_OF_2, PAIRS[0]]
    wanted = [
        None if new is None else replace(each, stored={**each.stored, **new}) for each, new in zip(lists, [*results, None], strict=True)
    ]
    assert each_alone(kit.PAIR_MUTATIONS, name, lists) == wanted


GOLDS = [line(prompt="What is 2?", gold=2.0), line(prompt="x", gold=2.5), line(prompt="y", gold="Lima")]


@pytest.mark.parametrize(
    ("name", "golds"),
    [
        ("a gold as a whole number", [2, None, None]),
        ("a gold that is no number", [float("nan"), float("nan"), None]),
    ],
)
def test_golds(kit: Any, name: str, golds: list[Any]) -> None:
    found = each_alone(kit.PROMPT_MUTATIONS, name, GOLDS)
    assert repr([None if each is None else each.stored["gold"] for each in found]) == repr(golds)


def test_digits_of_golds(kit: Any) -> None:
    lines = [line(prompt="x", gold=2.5, gold_text="2.50"), line(prompt="y", gold=2.5)]
    for name, fields in (("a gold with other digits", {"gold": 2.5, "gold_text": "2.500"}), ("a gold without its digits", {"gold": 2.5})):
        assert each_alone(kit.PROMPT_MUTATIONS, name, lines) == [replace(lines[0], stored={"prompt": "x", **fields}), None]


def test_golds_and_prompts_of_the_next_line(kit: Any) -> None:
    golds = changes(kit.PROMPT_MUTATIONS, "golds shifted against prompts", [*GOLDS, line(prompt="z")], 1)[0]
    assert [each.stored.get("gold") for each in golds] == [2.5, "Lima", "Lima", 2.0], "a line that none follows with a gold keeps its own"
    prompts = changes(kit.PROMPT_MUTATIONS, "prompts shifted against golds", GOLDS, 1)[0]
    assert [each.stored["prompt"] for each in prompts] == ["x", "y", "What is 2?"]


CONTRASTS = [line(query="qq", positives=["aaaa", "b"], negatives=["c"]), line(query="r", positives=["d"], negatives=[])]


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("a negative lost", [{"negatives": []}, None]),
        ("a positive truncated", [{"positives": ["aa", "b"]}, {"positives": ["dd"]}]),
        ("an empty query", [{"query": " "}, {"query": " "}]),
        ("a positive among the negatives", [{"negatives": ["c", "aaaa"]}, None]),
        ("the query among the positives", [{"positives": ["aaaa", "b", "qq"]}, {"positives": ["d", "r"]}]),
    ],
)
def test_contrasts(kit: Any, name: str, results: list[dict[str, Any] | None]) -> None:
    found = each_alone(kit.CONTRAST_MUTATIONS, name, CONTRASTS)
    wanted = [None if new is None else replace(each, stored={**each.stored, **new}) for each, new in zip(CONTRASTS, results, strict=True)]
    assert found == wanted
    for field, table in (("queries", "query"), ("positives", "positives"), ("negatives", "negatives")):
        shifted = changes(kit.CONTRAST_MUTATIONS, f"{field} of the next row", CONTRASTS, 1)[0]
        assert [each.stored[table] for each in shifted] == [each.stored[table] for each in reversed(CONTRASTS)]


# -- what a store holds of its sources, and merged stores --------------------------------------------------------------------------------

BLOCK = Selected(0, [3, 4, 7], ["good"] * 3, [{}, {}, {}])
KEPT, OLD = ((3, False, -1), (4, True, 1), (7, False, 0)), (5, "x/y")


def fates(*names: str) -> dict[str, Any]:
    return {"block": replace(BLOCK, fates=list(names))}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("a row vanished", {"stored": (KEPT[0], KEPT[2])}),
        ("a row refused as a duplicate that is none", {"stored": (KEPT[0], KEPT[2]), "refused": (OLD, (4, "deduplicate/duplicate"))}),
        ("a duplicate kept", fates("good", "duplicate", "good")),
        ("a row that misses `where` kept", fates("good", "filtered", "good")),
        ("a row stored and refused", {"refused": (OLD, (4, "schema/empty_answer"))}),
        ("a held-out row in the training part", {"stored": (KEPT[0], (4, False, 1), KEPT[2])}),
        ("a training row in the held-out part", None),
        ("a row that is not read", {"stored": (*KEPT, (1 << 39, True, 1))}),
    ],
)
def test_selection(kit: Any, name: str, changed: dict[str, Any] | None) -> None:
    store = kit.StoredRows(("a",), BLOCK, KEPT, (OLD,))
    first, second, third = changes(kit.SELECTION_MUTATIONS, name, store, 3)
    assert second == (None if changed is None else replace(store, **changed))
    assert (first is None) is (third is None) is (name == "a held-out row in the training part")
    if name == "a training row in the held-out part":
        assert first.stored == ((3, True, -1), *KEPT[1:]) and third.stored == (*KEPT[:2], (7, True, 0))


LINES = MergedRows(np.array([[0, 0, 1], [0, 0, 2], [1, 0, 1]]), [b'{"a": {"b": 1}}', b"{}", b'{"c": 2}'])


@pytest.mark.parametrize(
    ("name", "at", "origin", "lines"),
    [
        ("a line lost", 1, [0, 2], [0, 2]),
        ("a line twice", 1, [0, 1, 2, 1], [0, 1, 2, 1]),
        ("two lines exchanged", 2, [0, 1, 2], [2, 1, 0]),
    ],
)
def test_merged_lines_that_move(kit: Any, name: str, at: int, origin: list[int], lines: list[int]) -> None:
    texts = list(LINES.lines)
    found = plain(changes(kit.LINE_MUTATIONS, name, LINES, 3)[at])
    assert found == (LINES.origin[origin].tolist(), [texts[each] for each in lines])


def test_merged_lines_that_change(kit: Any) -> None:
    origin, texts = plain(LINES)
    spaced = changes(kit.LINE_MUTATIONS, "a space more in a line", LINES, 1)[0]
    assert plain(spaced) == (origin, [b'{"a": {"b": 1 }}', *texts[1:]])
    others = changes(kit.LINE_MUTATIONS, "a line of another domain", LINES, 3)
    assert [plain(each)[0] for each in others[1:]] == [[origin[0], [1, 0, 2], origin[2]], [*origin[:2], [2, 0, 1]]]
    one, same = MergedRows(LINES.origin[:1], [b"{}"]), MergedRows(LINES.origin[:2], [b"{}", b"{}"])
    assert changes(kit.LINE_MUTATIONS, "another order", one, 1) == [None] == changes(kit.LINE_MUTATIONS, "two lines exchanged", one, 1)
    assert changes(kit.LINE_MUTATIONS, "two lines exchanged", same, 2) == [None, None]
    assert plain(changes(kit.LINE_MUTATIONS, "another order", same, 1)[0]) == ([[0, 0, 2], [0, 0, 1]], [b"{}", b"{}"])


WHOLE = ([5, 6, 7, 8], [0, 1, 1, 1], [2, 3, 4], [0, 0, 1], [4, 6, 9])
"""Tokens, loss mask, ends, files and rows of three records."""


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("a record twice", 1, ([5, 6, 7, 8, 7], [0, 1, 1, 1, 1], [2, 3, 4, 5], [0, 0, 1, 0], [4, 6, 9, 6])),
        ("two records exchanged", 2, ([8, 7, 5, 6], [1, 1, 0, 1], [1, 2, 4], [0, 0, 1], [4, 6, 9])),
        ("a loss mask turned round", 0, (WHOLE[0], [0, 0, 1, 1], *WHOLE[2:])),
        ("a loss mask turned round", 1, (WHOLE[0], [0, 1, 0, 1], *WHOLE[2:])),
        ("another reward", 0, None),
        ("a border moved", 0, (*WHOLE[:2], [1, 3, 4], *WHOLE[3:])),
        ("a border moved", 2, None),
    ],
)
def test_merged_records(kit: Any, name: str, at: int, expected: Any) -> None:
    arrays = [np.array(each) for each in WHOLE]
    store = TokenStore({"tokens": arrays[0], "loss_mask": arrays[1]}, *arrays[2:])
    found = plain(changes(kit.RECORD_MUTATIONS, name, store, 3)[at])
    assert found == (None if expected is None else ({"tokens": expected[0], "loss_mask": expected[1]}, *expected[2:]))


def test_merged_records_that_are_odd(kit: Any) -> None:
    same = TokenStore({"tokens": np.array([5, 5])}, np.array([1, 2]), np.array([0, 0]), np.array([1, 2]))
    assert changes(kit.RECORD_MUTATIONS, "two records exchanged", same, 2) == [None, None]
    for key, name in (("rewards", "another reward"), ("logprobs", "another log-probability")):
        floats = TokenStore({key: np.array([0.5, 1.0], np.float32)}, np.array([2]), np.array([0]), np.array([1]))
        assert plain(changes(kit.RECORD_MUTATIONS, name, floats, 1)[0]) == ({key: [0.5, 2.0]}, [2], [0], [1])
    uneven = TokenStore({"tokens": np.arange(4)}, np.array([1, 3, 4]), np.array([0, 0, 1]), np.array([4, 6, 9]))
    assert changes(kit.RECORD_MUTATIONS, "a border moved", uneven, 2)[1].ends.tolist() == [1, 2, 4]
    alone = TokenStore({"tokens": np.array([5])}, np.array([1]), np.array([0]), np.array([1]))
    assert plain(changes(kit.RECORD_MUTATIONS, "a record lost", alone, 1)[0]) == ({"tokens": []}, [], [], [])
    assert changes(kit.RECORD_MUTATIONS, "two records exchanged", alone, 1) == [None]


# -- scored groups ----------------------------------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "rewards", "found"),
    [
        ("a reward that is no number", [1.5, 2, 3], [1.5, 2, NAN]),
        ("rewards of a group shifted", [1.5, 2, 3], [3, 1.5, 2]),
        ("rewards of a group shifted", [2, 2], None),
        ("rewards cut to whole numbers", [1, 2], None),
        ("rewards negated", [0, 0], None),
        ("a response of another group", [1.5, 2, 3], [1.5, 2, 3, 3]),
    ],
)
def test_rewards(kit: Any, name: str, rewards: list[float], found: list[float] | None) -> None:
    group = Scores("a", np.array(rewards, np.float32), len(rewards), rewards)
    [changed] = changes(kit.REWARD_MUTATIONS, name, [group], 1)[0] or [None]
    assert (changed is None) is (found is None)
    if changed is not None:
        assert np.array_equal(changed.rewards, np.array(found, np.float32), equal_nan=True) and changed.rewards.dtype == np.float32
        assert changed.responses == len(rewards) + (name == "a response of another group")
        assert (changed.id, changed.source) == ("a", rewards) and not check_rewards([changed]).passed


ONE: dict[str, Any] = {"tokens": [5, 6], "loss_mask": [1, 1], "logprobs": [-1.0, -2.0]}
TWO: dict[str, Any] = {"tokens": [7], "loss_mask": [1], "logprobs": [-3.0]}
FULL = Rollout("a", [1, 2], (ONE, TWO), Sampled(((5, 6), (7,)), (1, 2), ((-1.0, -2.0), (-3.0,))))
BARE_ONE = {"tokens": [5, 5], "loss_mask": [1, 1]}
BARE = Rollout("b", [9], (BARE_ONE, BARE_ONE), Sampled(((5, 5), (5, 5))))


@pytest.mark.parametrize(
    ("name", "full", "bare"),
    [
        ("a sampled id replaced", {**ONE, "tokens": [5, 7]}, {**BARE_ONE, "tokens": [5, 6]}),
        ("a sampled token not trained", {**ONE, "loss_mask": [0, 1]}, {**BARE_ONE, "loss_mask": [0, 1]}),
        ("log-probabilities as probabilities", {**ONE, "logprobs": [0.5, 0.25]}, None),
        ("log-probabilities lost", [{"tokens": [5, 6], "loss_mask": [1, 1]}, {"tokens": [7], "loss_mask": [1]}], None),
        ("a response lost", [ONE], [BARE_ONE]),
        ("responses in another order", [TWO, ONE], None),
        ("another prompt than was sampled from", None, None),
    ],
)
def test_rollouts(kit: Any, name: str, full: Any, bare: Any) -> None:
    """Of a group with log-probabilities and the ids of its prompt, and of one without; what is given is the first response, or all of them."""
    assert check_sampled([FULL, BARE]).passed
    for group, responses in ((FULL, full), (BARE, bare)):
        found = changes(kit.ROLLOUT_MUTATIONS, name, [group, group], 2)[1]
        if name == "another prompt than was sampled from" and group is FULL:
            wanted: Any = [replace(group, prompt=[1, 2, 0])]
        elif responses is None:
            wanted = None
        else:
            listed = (responses, *group.responses[1:]) if isinstance(responses, dict) else tuple(responses)
            wanted = [replace(group, responses=listed)]
        assert found == wanted and (found is None or not check_sampled(found).passed)
    longer = replace(FULL, responses=(ONE, TWO, ONE))
    assert name != "a response lost" or changes(kit.ROLLOUT_MUTATIONS, name, [longer], 1)[0][0].responses == (ONE, TWO)


JUDGED = Stepwise("a", ("One.", "One.Two.", "One.Two.Three."), (1.0, 0.0, 0.5), 0, (("One.", 1.0), ("Two.", 0.0), ("Three.", 0.5)))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("ends of steps before their last characters", replace(JUDGED, texts=["One", "One.Two", "One.Two.Three"])),
        ("rewards of steps exchanged", replace(JUDGED, rewards=[0.5, 0.0, 1.0])),
        ("the end of a step lost", replace(JUDGED, texts=("One.", "One.Two."), rewards=(1.0, 0.0))),
        ("a reward between steps", replace(JUDGED, elsewhere=1)),
        ("rewards of steps negated", replace(JUDGED, rewards=[0.5, 1.5, 1.0])),
    ],
)
def test_rewards_of_steps(kit: Any, name: str, wanted: Stepwise) -> None:
    assert check_steps([JUDGED]).passed and not check_steps([wanted]).passed
    assert changes(kit.STEP_MUTATIONS, name, [JUDGED, JUDGED], 2)[1] == [wanted]
    same = replace(JUDGED, rewards=(1.0, 1.0, 1.0))
    assert name != "rewards of steps exchanged" or changes(kit.STEP_MUTATIONS, name, [same], 1) == [None]


HALF, NONE = Margin("a", 1.5, 1.5), Margin("b", None, None)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a margin turned round", [[Margin("a", -1.5, 1.5)], None]),
        ("the margin of another pair", [[Margin("a", None, 1.5)], [Margin("b", 1.5, None)]]),
        ("a margin where the source has none", [None, [Margin("b", 0.0, None)]]),
    ],
)
def test_margins(kit: Any, name: str, found: list[list[Margin] | None]) -> None:
    assert check_margins([HALF, NONE]).passed
    mutation = next(each for each in kit.MARGIN_MUTATIONS if each.name == name)
    assert [mutation.change([HALF, NONE], at) for at in (0, 1)] == found
    assert not any(check_margins(each).passed for each in found if each is not None)
    whole, zero = Margin("a", 2.0, 2.0), Margin("a", 0.0, 0.0)
    if name == "the margin of another pair":
        assert mutation.change([HALF, whole, zero], 0) == [Margin("a", 2.0, 1.5)] and mutation.change([HALF, HALF], 0) is None
    assert name != "a margin as a whole number" or mutation.change([whole], 0) is None
    assert name != "a margin turned round" or mutation.change([zero], 0) is None


TAUGHT_SOURCE = (((4, -1.0),), ((5, -0.5), (6, -1.5)), ((9, -0.25), (7, -2.0), (6, -3.0)), ((8, -0.125),), ())
TAUGHT = Taught(
    "a",
    np.array([4, 5, 7, 8, 9]),
    np.array([1, 2, 3, 1, 0]),
    np.array([4, 5, 6, 9, 7, 6, 8]),
    np.array([-1.0, -0.5, -1.51, -0.25, -2.0, -3.0, -0.125], np.float16),
    [TAUGHT_SOURCE[0], ((5, -0.5), (6, -1.51)), *TAUGHT_SOURCE[2:]],
)
SAME = replace(TAUGHT, counts=np.array([1, 1]), ids=np.array([3, 3]), logprobs=np.array([1.0, 1.0]))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("entries of a teacher one token later", {"counts": [0, 1, 2, 3, 1]}),
        (
            "entries of a teacher one token before, in the row as well",
            {
                "counts": [2, 3, 1, 0, 0],
                "ids": [5, 6, 9, 7, 6, 8],
                "logprobs": TAUGHT.logprobs[1:].tolist(),
                "source": [*TAUGHT.source[1:], ()],
            },
        ),
        (
            "an entry of a teacher lost",
            {"counts": [1, 2, 3, 0, 0], "ids": [4, 5, 6, 9, 7, 6], "logprobs": TAUGHT.logprobs[:-1].tolist()},
        ),
        ("log-probabilities of a teacher with 8 bits", {"logprobs": [-1.0, -0.5, -1.5, -0.25, -2.0, -3.0, -0.125]}),
    ],
)
def test_what_a_teacher_says(kit: Any, name: str, wanted: dict[str, Any]) -> None:
    [_, [found]] = changes(kit.TEACHER_MUTATIONS, name, [SAME, TAUGHT], 2)
    assert check_teacher([TAUGHT]).passed and not check_teacher([found]).passed
    for key in ("counts", "ids", "logprobs", "source"):
        assert list(getattr(found, key)) == wanted.get(key, list(getattr(TAUGHT, key))), key
    unchanged = name.endswith(("later", "another order", "8 bits"))
    assert (changes(kit.TEACHER_MUTATIONS, name, [SAME], 1) == [None]) is unchanged
