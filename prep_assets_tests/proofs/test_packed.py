"""The second derivation of mixtures agrees with the first on every option, and sees whatever is missing, twice or out of order."""

from __future__ import annotations

import hashlib
import re
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.packing import mix, pack
from prep_assets.proofs.packed import Order, _fault, _in_order, _stranger, _used_twice, check_mixture, check_pieces, expected_order
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores import arrays as columns
from prep_assets.stores.packed import PackedStore
from prep_assets_tests.peak import peak
from prep_assets_tests.proofs.test_rows import MASKS, PAD, TOKENS, store
from prep_assets_tests.proofs.test_rows import table as rows_table

# -- The second derivation of mixtures agrees with the first on every option, and sees whatever is missing, twice or out of order ---------

NAMES = ("beta", "alpha", "gamma")
LENGTHS = {name: np.random.default_rng(number).integers(1, 30, 40 + 9 * number) for number, name in enumerate(NAMES)}
PLAIN: dict[str, Any] = {
    "strategy": "concat",
    "row_len": 32,
    "seed": 7,
    "shuffle": True,
    "tail": "pad",
    "overlong": "raise",
    "weights": None,
    "epochs": None,
    "max_items": None,
}

numbers = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 3), max_size=3)
options = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["concat", "simple", "ffd", "bfd", "bfd_split"]),
        "row_len": st.integers(8, 40),
        "seed": st.integers(0, 9),
        "shuffle": st.booleans(),
        "tail": st.sampled_from(["pad", "drop"]),
        "overlong": st.sampled_from(["truncate", "drop", "split"]),
        "weights": st.none() | st.fixed_dictionaries({name: st.sampled_from([0.0, 0.1, 0.5, 1, 3]) for name in NAMES}),
        "epochs": st.none() | numbers,
        "max_items": st.none() | st.dictionaries(st.sampled_from(NAMES), st.integers(1, 60), max_size=3),
    }
)


def table(lengths: dict[str, Any], chosen: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...], dict[str, float]]:
    """Pieces of a packed table, its domains, and what a manifest counts."""
    mixture = mix(lengths, **{key: chosen[key] for key in ("weights", "epochs", "max_items", "seed", "shuffle")})
    overlong = {} if chosen["strategy"] in ("concat", "bfd_split") else {"overlong": chosen["overlong"]}
    plan = pack(mixture.lengths, chosen["row_len"], chosen["strategy"], tail=chosen["tail"], buckets=chosen.get("buckets", ()), **overlong)
    documents = {name: getattr(plan, name) for name in ("row", "row_offset", "length", "start")}
    documents |= {"source": mixture.domain[plan.record], "record": mixture.record[plan.record]}
    used = np.bincount(documents["source"], documents["length"], len(mixture.domains))
    shares = {f"share_{name}": float(count) / max(1, plan.used) for name, count in zip(mixture.domains, used, strict=True)}
    return documents, mixture.domains, {"tokens_left_out": int(plan.dropped[:, 2].sum()), "tokens_in_untrained_rows": 0, **shares}


def checked(documents: dict[str, Any], names: tuple[str, ...], chosen: dict[str, Any], claimed: dict[str, float]) -> Verdict:
    return check_mixture(documents, names, LENGTHS, chosen, lambda source, record, start, end: end - start, claimed)


@given(options)
def test_what_is_packed_is_what_was_asked_for(chosen: dict[str, Any]) -> None:
    if chosen["strategy"] != "concat":
        chosen = {**chosen, "tail": "pad"}
    try:
        documents, names, claimed = table(LENGTHS, chosen)
    except (ConfigError, PrepAssetsError):
        return
    verdict = checked(documents, names, chosen, claimed)
    assert verdict.passed, verdict.summary


@given(options)
def test_the_order_of_the_mixture(chosen: dict[str, Any]) -> None:
    try:
        mixture = mix(LENGTHS, **{key: chosen[key] for key in ("weights", "epochs", "max_items", "seed", "shuffle")})
    except ConfigError:
        return
    order = expected_order(LENGTHS, chosen)
    assert np.array_equal(order.source, mixture.domain)
    assert np.array_equal(order.record, mixture.record)
    assert np.array_equal(order.length, mixture.lengths)


def without(documents: dict[str, Any], gone: Any) -> dict[str, Any]:
    return {field: values[~gone] for field, values in documents.items()}


WEIGHTS = {"alpha": 1.0, "beta": 2.0, "gamma": 0.5}


@pytest.mark.parametrize("strategy", ["concat", "simple", "ffd", "bfd"])
@pytest.mark.parametrize("mixed", [{}, {"weights": WEIGHTS}, {"epochs": {"alpha": 2.5}}, {"max_items": {"beta": 20}}])
def test_a_document_that_is_missing_or_there_twice_is_seen(strategy: str, mixed: dict[str, Any]) -> None:
    """A document replaced by padding; a document in the place of another; a document that nobody asked for."""
    chosen = {**PLAIN, **mixed, "strategy": strategy}
    documents, names, claimed = table(LENGTHS, chosen)
    piece = len(documents["row"]) // 2
    lost = int(documents["length"][piece])
    gone = without(documents, np.arange(len(documents["row"])) == piece)
    used = np.bincount(gone["source"], gone["length"], len(names))
    shares = {f"share_{name}": count / used.sum() for name, count in zip(names, used, strict=True)}
    books = {**shares, "tokens_left_out": claimed["tokens_left_out"] + lost, "tokens_in_untrained_rows": 0}
    assert "trained tokens" in checked(gone, names, chosen, books).summary
    other = {field: values.copy() for field, values in documents.items()}
    other["record"][piece] = (other["record"][piece] + 1) % len(LENGTHS[names[int(other["source"][piece])]])
    assert not checked(other, names, chosen, claimed).passed
    assert not checked(documents, names, {**chosen, "seed": 8, "max_items": {"alpha": 9}}, claimed).passed


def test_untrained_tokens_may_be_left_out_where_the_manifest_counts_them() -> None:
    documents, names, _ = table(LENGTHS, PLAIN)
    last = documents["row"] == documents["row"].max()
    lost = int(documents["length"][last].sum())
    gone = without(documents, last)
    used = np.bincount(gone["source"], gone["length"], len(names))
    books = {f"share_{name}": count / used.sum() for name, count in zip(names, used, strict=True)}
    counts = {"tokens_left_out": lost, "tokens_in_untrained_rows": lost}
    assert check_mixture(gone, names, LENGTHS, PLAIN, lambda *_: 0, {**books, **counts}).passed
    for wrong in ({"tokens_left_out": lost - 1}, {"tokens_in_untrained_rows": 0}, {"share_alpha": 0.5}):
        assert not check_mixture(gone, names, LENGTHS, PLAIN, lambda *_: 0, {**books, **counts, **wrong}).passed


@pytest.mark.parametrize("strategy", ["concat", "simple"])
def test_another_order_is_seen(strategy: str) -> None:
    chosen = {**PLAIN, "strategy": strategy}
    documents, names, claimed = table(LENGTHS, chosen)
    half = documents["row"] < documents["row"].max() // 2
    order = np.concatenate([np.flatnonzero(~half), np.flatnonzero(half)])
    assert "order" in checked({field: values[order] for field, values in documents.items()}, names, chosen, claimed).summary
    assert not checked(documents, names, {**chosen, "shuffle": False}, claimed).passed


def test_a_domain_that_is_missing_is_seen() -> None:
    documents, _, claimed = table({name: LENGTHS[name] for name in ("alpha", "beta")}, PLAIN)
    assert "gamma" in checked(documents, ("alpha", "beta"), PLAIN, claimed).summary


LONG = {"a": np.array([2000, 3, 4]), "b": np.array([5])}
WHOLE = {"source": np.array([0, 0, 0, 1]), "record": np.array([0, 1, 2, 0]), "start": np.zeros(4, int), "length": np.array([2000, 3, 4, 5])}
BOOKS = {"tokens_left_out": 0, "tokens_in_untrained_rows": 0, "share_a": 2007 / 2012, "share_b": 5 / 2012}
INORDER = {**PLAIN, "shuffle": False, "row_len": 4000, "strategy": "simple"}
NUMBERS = {"records_expected": 4, "tokens_packed": 2012, "tokens_untrained": 0}


def told(changes: dict[str, Any] | None = None, claimed: dict[str, float] | None = None, trained: Any = None, **options: Any) -> Verdict:
    documents = {**WHOLE, **(changes or {})}
    count = trained or (lambda source, record, start, end: end - start)
    return check_mixture(documents, ("a", "b"), LONG, {**INORDER, **options}, count, {**BOOKS, **(claimed or {})})


def test_a_mixture_in_the_words_of_the_verdict() -> None:
    summary = "the rows hold the 4 records that the options ask for, whole or counted as left out"
    assert told() == Verdict(True, summary, NUMBERS)


def lost(*at: int) -> dict[str, Any]:
    return {field: np.delete(values, at) for field, values in WHOLE.items()}


def taken(*order: int) -> dict[str, Any]:
    return {field: values[list(order)] for field, values in WHOLE.items()}


LEFT = "tokens are left out, the manifest says"


@pytest.mark.parametrize(
    ("changes", "claimed", "where", "what", "packed"),
    [
        (lost(0), {}, "a record 0", "2,000 trained tokens between 0 and 2,000 are in no row", 12),
        ({"length": np.array([1000, 3, 4, 5])}, {}, "a record 0", "1,000 trained tokens between 1,000 and 2,000 are in no row", 1012),
        (taken(0, 1, 2, 3, 0), {}, "a record 0", "tokens 0 to 2,000 are 1 times more in the table than the options ask for", 4012),
        ({}, {"tokens_in_untrained_rows": 7}, "documents", f"0 untrained {LEFT} 7 are in rows without loss", 2012),
        ({}, {"share_b": 0.5}, "documents", "b is 0.0025 of the tokens, the manifest says 0.5000", 2012),
        (taken(1, 0, 2, 3), {}, "documents", "simple keeps the order of the mixture, the table does not", 2012),
    ],
)
def test_a_mixture_that_is_not(changes: Any, claimed: Any, where: str, what: str, packed: int) -> None:
    assert told(changes, claimed) == Verdict(False, f"{where}: {what}", {**NUMBERS, "tokens_packed": packed}, Worst(where, what))


@pytest.mark.parametrize("stretch", [1 << 16, 2])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"record": [0, 1, 2, 1]}, "piece 3 is of record 1 of domain 1, where there is none"),
        ({"record": [0, 1, 3, 0]}, "piece 2 is of record 3 of domain 0, where there is none"),
        ({"record": [0, -1, 2, 0]}, "piece 1 is of record -1 of domain 0, where there is none"),
        ({"source": [0, 0, 0, 2]}, "piece 3 is of record 0 of domain 2, where there is none"),
        ({"source": [-1, 0, 0, 1]}, "piece 0 is of record 0 of domain -1, where there is none"),
        ({"record": [0, 1, 1234, 0]}, "piece 2 is of record 1,234 of domain 0, where there is none"),
    ],
)
def test_pieces_of_what_there_is_not(monkeypatch: pytest.MonkeyPatch, stretch: int, changes: dict[str, Any], says: str) -> None:
    monkeypatch.setattr(columns, "STRETCH", stretch)
    found = told({field: np.array(values) for field, values in changes.items()})
    assert found == Verdict(False, f"documents: {says}", {**NUMBERS, "records_expected": 0}, Worst("documents", says))


def test_the_piece_of_a_second_domain_where_there_is_one() -> None:
    pieces = {field: np.array(values) for field, values in {"source": [0, 1], "record": [0, 0]}.items()}
    assert _stranger(pieces, [1]) == "piece 1 is of record 0 of domain 1, where there is none"
    columns_of_thousands = {field: np.zeros(1500, int) for field in pieces}
    columns_of_thousands["record"][1400] = 1
    assert _stranger(columns_of_thousands, [1]) == "piece 1,400 is of record 1 of domain 0, where there is none"


def test_what_is_asked_of_a_stretch_that_is_left_out() -> None:
    """Its domain, record, start and end; a single trained token is a loss."""
    found = told(lost(3), trained=lambda *stretch: int(stretch == (1, 0, 0, 5)))
    assert found.summary == "b record 0: 1 trained tokens between 0 and 5 are in no row"


def one_token(share_a: float, share_b: float) -> Verdict:
    pieces = {"source": [0], "record": [0], "start": [0], "length": [1]}
    books = {"tokens_left_out": 0, "tokens_in_untrained_rows": 0, "share_a": share_a, "share_b": share_b}
    lengths = {"a": np.array([1]), "b": np.zeros(0, int)}
    return check_mixture({key: np.array(value) for key, value in pieces.items()}, ("a", "b"), lengths, INORDER, lambda *_: 1, books)


def test_shares_are_compared_to_nine_places() -> None:
    assert one_token(1.0, 0.0).passed and one_token(1.0, 1e-9).passed
    assert one_token(1.0, 1.1e-9).summary == "documents: b is 0.0000 of the tokens, the manifest says 0.0000"
    assert one_token(0.5, 0.0).summary == "documents: a is 1.0000 of the tokens, the manifest says 0.5000"


@pytest.mark.parametrize(
    ("found", "in_order"),
    [
        ([(0, 0, 0), (0, 1, 0), (0, 0, 0), (0, 1, 0)], True),
        ([(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 0)], False),
        ([(0, 0, 0), (0, 0, 0), (0, 0, 0)], False),
        ([(1, 0, 0)], False),
        ([(0, 2, 0)], False),
    ],
)
def test_records_in_the_order_of_the_mixture(found: list[tuple[int, int, int]], in_order: bool) -> None:
    """A record that begins again is another use of it; one may be left out."""
    wanted = {"source": np.zeros(4, int), "record": np.array([0, 1, 0, 1])}
    pieces = np.array(found, int).reshape(-1, 3).T
    assert _in_order(wanted, dict(zip(("source", "record", "start"), pieces, strict=True))) is in_order


def test_domains_are_those_of_the_configuration() -> None:
    found = check_mixture(WHOLE, ("a", "c"), LONG, INORDER, lambda *_: 0, BOOKS)
    what = "the table is of ['a', 'c'], the configuration of ['a', 'b']"
    assert found == Verdict(False, f"domains: {what}", {**NUMBERS, "records_expected": 0}, Worst("domains", what))


def test_tokens_that_are_not_trained_are_counted() -> None:
    shares = {"share_a": 2003 / 2008, "share_b": 5 / 2008}
    books = {**shares, "tokens_left_out": 4, "tokens_in_untrained_rows": 4}
    verdict = told(lost(2), books, lambda *_: 0)
    assert verdict.passed and verdict.numbers["tokens_untrained"] == 4
    books = {"share_a": 2000 / 2005, "share_b": 5 / 2005, "tokens_left_out": 7, "tokens_in_untrained_rows": 7}
    assert told(lost(1, 2), books, lambda *_: 0).numbers["tokens_untrained"] == 7


@pytest.mark.parametrize(
    ("options", "length", "left_out"),
    [
        ({"row_len": 1000, "overlong": "truncate"}, 1000, 1000),
        ({"row_len": 1000, "overlong": "drop"}, 0, 2000),
        ({"row_len": 1000, "overlong": "split"}, 2000, 0),
        ({"row_len": 1000, "strategy": "bfd_split", "overlong": "drop"}, 2000, 0),
        ({"row_len": 2000, "overlong": "drop"}, 2000, 0),
    ],
)
def test_records_that_are_longer_than_a_row(options: dict[str, Any], length: int, left_out: int) -> None:
    used = 12 + length
    books = {"tokens_left_out": left_out, "share_a": (7 + length) / used, "share_b": 5 / used}
    changes = {"length": np.array([length, 3, 4, 5])} if length else lost(0)
    assert told(changes, books, **options).passed
    assert not told({}, {}, **options).passed or length == 2000


@pytest.mark.parametrize(("row_len", "last"), [(1006, 5), (2011, 4), (1005, 3), (3000, None)])
def test_the_tail_of_a_concatenation(row_len: int, last: int | None) -> None:
    """What does not fill a row is left out."""
    if last is None:
        books = {"tokens_left_out": 2012, "share_a": 0, "share_b": 0}
        empty = {field: values[:0] for field, values in WHOLE.items()}
        assert told(empty, books, strategy="concat", tail="drop", row_len=row_len).passed
        return
    used = 2007 + last
    books = {"tokens_left_out": 5 - last, "share_a": 2007 / used, "share_b": last / used}
    assert told({"length": np.array([2000, 3, 4, last])}, books, strategy="concat", tail="drop", row_len=row_len).passed
    assert told({}, {}, strategy="concat", tail="pad", row_len=row_len).passed


def test_plan_and_check_take_little_more_memory_for_more_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"STRETCH": 1 << 10, "IN_MEMORY": 1 << 12, "DIGIT": 8}.items():
        monkeypatch.setattr(columns, name, value)

    def packed(records: int) -> int:
        lengths = {"a": np.random.default_rng(0).integers(20, 30, records), "b": np.full(100, 5)}
        chosen = {**PLAIN, "strategy": "bfd", "row_len": 1024}

        def work() -> None:
            mixture = mix(lengths, seed=7)
            plan = pack(mixture.lengths, 1024, "bfd")
            plan.check(mixture.lengths)
            documents = {name: getattr(plan, name) for name in ("row", "row_offset", "length", "start")}
            documents |= {"source": columns.take(mixture.domain, plan.record), "record": columns.take(mixture.record, plan.record)}
            assert check_mixture(
                documents,
                ("a", "b"),
                lengths,
                chosen,
                lambda *_: 0,
                {"tokens_left_out": 0, "tokens_in_untrained_rows": 0, **_shares(documents)},
            ).passed

        return peak(work)

    assert packed(40_000) < 2 * packed(10_000)


def _shares(documents: dict[str, Any]) -> dict[str, float]:
    used = np.bincount(documents["source"], documents["length"])
    return {"share_a": used[0] / used.sum(), "share_b": used[1] / used.sum()}


SIX = {"alpha": np.array([3, 9, 20, 4]), "beta": np.array([10, 5])}
BUCKETED = {**PLAIN, "strategy": "bfd", "overlong": "split", "buckets": [4, 9]}


def bucketed(rows: list[int]) -> tuple[bool, str]:
    """The verdict where the documents 3, 4, 5, 9, 10 and 20 long are in these rows."""
    pieces = [(0, 0, 3), (0, 3, 4), (1, 1, 5), (0, 1, 9), (1, 0, 10), (0, 2, 20)]
    source, record, length = (np.array([piece[at] for piece in pieces]) for at in range(3))
    documents = {"row": np.array(rows), "source": source, "record": record, "start": np.zeros(6, np.int64), "length": length}
    shares = {"share_alpha": 36 / 51, "share_beta": 15 / 51}
    verdict = check_mixture(
        documents, ("alpha", "beta"), SIX, BUCKETED, lambda *_: 1, {"tokens_left_out": 0, "tokens_in_untrained_rows": 0, **shares}
    )
    return verdict.passed, verdict.summary


def test_documents_of_different_buckets_share_no_row() -> None:
    assert bucketed([0, 0, 1, 1, 2, 2])[0]
    for rows, wrong in (
        ([0, 1, 1, 2, 3, 4], 1),
        ([0, 0, 1, 2, 2, 3], 2),
        ([0, 0, 0, 1, 2, 2], 0),
        ([3, 4, 5, 6, 6, 7], 6),
        ([0, 1, 1, 1, 2, 2], 1),
    ):
        assert bucketed(rows) == (False, f"documents: row {wrong} holds documents of different buckets")


def test_already_the_first_two() -> None:
    documents = {
        name: np.array(values)
        for name, values in {"row": [0, 0], "source": [0, 0], "record": [0, 1], "start": [0, 0], "length": [3, 9]}.items()
    }
    claimed: dict[str, float] = {"tokens_left_out": 0, "tokens_in_untrained_rows": 0, "share_alpha": 1.0}
    verdict = check_mixture(documents, ("alpha",), {"alpha": np.array([3, 9])}, BUCKETED, lambda *_: 1, claimed)
    assert verdict.summary == "documents: row 0 holds documents of different buckets"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_also_where_a_row_goes_on_in_the_next_stretch(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(columns, "STRETCH", size)
    assert bucketed([0, 0, 1, 1, 2, 2])[0] and bucketed([0, 0, 1, 2, 2, 3])[1].startswith("documents: row 2 holds")


@pytest.mark.parametrize("strategy", ["ffd", "bfd", "bfd_split"])
def test_rows_by_buckets_hold(strategy: str) -> None:
    chosen = {**PLAIN, "strategy": strategy, "overlong": "truncate" if strategy != "bfd_split" else "raise", "buckets": [5, 20]}
    documents, sources, claimed = table(LENGTHS, chosen)
    assert check_mixture(documents, sources, LENGTHS, chosen, lambda *_: 1 if strategy == "bfd_split" else 0, claimed).passed
    documents, sources, claimed = table(LENGTHS, {**chosen, "buckets": []})
    assert not check_mixture(documents, sources, LENGTHS, chosen, lambda *_: 0, claimed).passed


# -- The order of a mixture, worked out here from the definition with PCG64's own outputs -------------------------------------------------

DRAWN_PLAIN: dict[str, Any] = {"weights": None, "epochs": None, "max_items": None, "seed": 7, "shuffle": False}
DRAWN_LENGTHS = {"b": np.array([5, 6, 7]), "a": np.array([1, 2, 3, 4])}


def listed(order: Order) -> list[tuple[int, int, int]]:
    assert order.source.dtype == order.record.dtype == order.length.dtype == np.int64
    return list(zip(order.source.tolist(), order.record.tolist(), order.length.tolist(), strict=True))


A, B = [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4)], [(1, 0, 5), (1, 1, 6), (1, 2, 7)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, A + B),
        ({"max_items": {"a": 2}}, A[:2] + B),
        ({"max_items": {"a": 9, "b": 1}}, A + B[:1]),
        ({"epochs": {"a": 2.0}}, A + A + B),
        ({"epochs": {"a": 1.5}}, A + A[:2] + B),
        ({"epochs": {"a": 0.125, "b": 0}}, A[:1]),
        ({"epochs": {"a": 0.1}}, B),
        ({"epochs": {"b": 0.5}}, A + B[:2]),
        ({"epochs": {"a": 1.5}, "max_items": {"a": 2}}, A[:2] + A[:1] + B),
        ({"weights": {"a": 1, "b": 1}}, A + B[:2]),  # 10 of a, so 10 of b: 11 is nearer than 5
        ({"weights": {"a": 0, "b": 1}}, B),
        ({"weights": {"a": 1.0, "b": 0.5}}, A + B[:1]),
        ({"weights": {"a": 1, "b": 9}}, A[:1] + B),  # 18 of b, so 2 of a: 1 and 3 are as near, fewer are taken
    ],
)
def test_without_shuffling(options: dict[str, Any], wanted: list[tuple[int, int, int]]) -> None:
    assert listed(expected_order(DRAWN_LENGTHS, {**DRAWN_PLAIN, **options})) == wanted


def generator(name: str, seed: int = 7) -> np.random.PCG64:
    return np.random.PCG64(int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest(), "big"))


def permutation(draw: np.random.PCG64, count: int) -> list[int]:
    raw = draw.random_raw(count).tolist()
    return sorted(range(count), key=lambda at: raw[at])


@pytest.mark.parametrize("seed", [7, 8])
def test_shuffled(seed: int) -> None:
    placed = []
    for number, name in enumerate(("a", "b")):
        draw, count = generator(name, seed), len(DRAWN_LENGTHS[name])
        pool = permutation(draw, count)[:3]
        passes = [[pool[at] for at in permutation(draw, 3)] for _ in range(2)]
        records = [*passes[0], *passes[1][:1]]  # 3 × 1.25 = 3.75, rounded
        placed += [(rank, number, record) for rank, record in zip(draw.random_raw(4).tolist(), records, strict=True)]
    wanted = [(number, record, int(DRAWN_LENGTHS["ab"[number]][record])) for _, number, record in sorted(placed)]
    options = {**DRAWN_PLAIN, "seed": seed, "shuffle": True, "max_items": {"a": 3}, "epochs": {"a": 1.25, "b": 1.25}}
    assert listed(expected_order(DRAWN_LENGTHS, options)) == wanted


def test_a_long_column_is_made_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for stretch in (columns.STRETCH, 2):
        monkeypatch.setattr(columns, "STRETCH", stretch)
        for shuffle in (True, False):
            made = expected_order(DRAWN_LENGTHS, {**DRAWN_PLAIN, "shuffle": shuffle})
            found.append((made.source.tolist(), made.record.tolist(), made.length.tolist()))
    assert found[:2] == found[2:] and len(found[0][0]) == 7


class Falling:
    """Random numbers of 64 bits, each one less than the one before: alike to whatever has less than 64 bits."""

    def __init__(self, seed: int) -> None: ...

    def random_raw(self, count: int) -> Any:
        return np.uint64(2**64 - 1) - np.arange(count, dtype=np.uint64)


def test_all_bits_of_random_numbers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen last to first, passed last to first, and placed last to first."""
    monkeypatch.setattr(np.random, "PCG64", Falling)
    found = expected_order({"a": np.array([5, 6, 7])}, {**DRAWN_PLAIN, "shuffle": True})
    assert (found.record.tolist(), found.length.tolist()) == ([2, 1, 0], [7, 6, 5])


# -- A packed table against its records, in the words of the verdict; `test_rows` has the table -------------------------------------------


def proven(once: bool = True, **changes: list[Any]) -> Verdict:
    return check_pieces(rows_table(**changes), {"a": store(*TOKENS, masks=MASKS)}, once=once)


def test_a_sound_table() -> None:
    summary, numbers = "9 packed tokens equal their records, tokens and mask", {"tokens_checked": 9, "rows_checked": 2}
    assert proven() == Verdict(True, summary, numbers) == proven(once=False)


@pytest.mark.parametrize(
    ("changes", "row", "what", "checked"),
    [
        ({"tokens": [[5, 6, 7, 9, 8], [5, 5, 5, 5, PAD]]}, 0, "tokens differs from a record 1 at place 3 of the row", 3),
        ({"tokens": [[5, 6, 7, 8, 8], [5, 5, 5, 5, PAD]]}, 0, "tokens differs from a record 1 at place 4 of the row", 3),
        (
            {"tokens": [[5, 6, 7, 8, 8], [5, 5, 5, 5, PAD]], "loss_mask": [[0, 1, 1, 1, 1], [1, 0, 0, 1, 0]]},
            0,
            "tokens differs from a record 1 at place 4 of the row",
            3,
        ),
        ({"loss_mask": [[1, 1, 1, 0, 1], [1, 0, 0, 1, 0]]}, 0, "loss_mask differs from a record 0 at place 0 of the row", 0),
        ({"loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 0, 0]]}, 1, "loss_mask differs from a record 2 at place 3 of the row", 5),
        ({"record": [0, 1, 3]}, 1, "a has no record 3", 5),
        ({"record": [0, 1, -1]}, 1, "a has no record -1", 5),
        ({"record": [0, 1, 1], "start": [0, 0, 0]}, 1, "a record 1 is shorter than its piece", 5),
        ({"record": [1, 1, 2], "start": [-3, 0, 0]}, 0, "a piece starts before a record 1", 0),
        ({"start": [0, 0, 1]}, 1, "a record 2 is shorter than its piece", 5),
        ({"row_offset": [0, 4, 0]}, 0, "a piece at 4 leaves its row", 3),
        ({"row_offset": [0, 3, -1]}, 1, "a piece at -1 leaves its row", 5),
        ({"source": [0, 0, 1]}, 1, "domain 1 has no record 2", 5),
        ({"source": [0, -1, 0]}, 0, "domain -1 has no record 1", 3),
    ],
)
def test_pieces_that_are_not_their_records(changes: dict[str, list[Any]], row: int, what: str, checked: int) -> None:
    packed = rows_table(**changes)
    ids, weights = packed.tokens[row].tolist(), packed.loss_mask[row].astype(float).tolist()
    place = re.search(r"at place (\d+)", what)
    worst = Worst(f"row {row}", what, tuple(ids), tuple(weights), int(place[1]) if place else -1)
    assert proven(**changes) == Verdict(False, f"row {row}: {what}", {"tokens_checked": checked}, worst)


def test_pieces_of_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at once, with the rows of its own block."""
    monkeypatch.setattr(PackedStore, "blocks", partialmethod(PackedStore.blocks, tokens=1))
    assert proven().numbers == {"tokens_checked": 9, "rows_checked": 2}
    for key, rows, place in (
        ("tokens", [[5, 6, 7, 8, 9], [5, 5, 5, 6, PAD]], 3),
        ("loss_mask", [[0, 1, 1, 0, 1], [1, 1, 0, 1, 0]], 1),
    ):
        assert proven(**{key: rows}).summary == f"row 1: {key} differs from a record 2 at place {place} of the row"


PIECES = {"row": [3, 3, 4, 4, 4], "row_offset": [0, 3, 0, 2, 3], "length": [3, 2, 2, 1, 2]}
PIECES |= {"source": [0, 1, 0, 1, 0], "record": [0, 0, 2, 1, 1], "start": [0, 0, 2, 0, 0]}


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, True),
        ({"tokens": [[5, 6, 7, 1, 2], [5, 5, 3, 8, 8]]}, False),
        ({"loss_mask": [[0, 1, 1, 1, 0], [0, 1, 1, 1, 1]]}, False),
        ({"record": [0, 0, 3, 1, 1]}, False),
        ({"record": [0, 0, 2, 2, 1]}, False),
        ({"start": [0, 0, 1, 0, 0]}, True),
        # the next record begins as the piece goes on
        # beyond its row, before it, and less than nothing
        (
            {
                "row": [3, 3, 4, 4],
                "row_offset": [0, 3, 2, 3],
                "length": [3, 4, 1, 2],
                "source": [0, 0, 1, 0],
                "record": [0, 2, 1, 1],
                "start": [0] * 4,
            }
            | {"tokens": [[5, 6, 7, 5, 5], [5, 5, 3, 8, 9]], "loss_mask": [[0, 1, 1, 0, 0], [0, 1, 1, 0, 1]]},
            False,
        ),
        ({"length": [3, 2, 2, 1, 0]}, False),
        ({field: [] for field in PIECES}, True),
    ],
)
def test_a_block_of_rows_is_compared_as_one(changes: dict[str, Any], alike: bool) -> None:
    """Of two domains; the first row of the block is the fourth of its table."""
    masks = [[0.0, 1.0, 1.0], [0.0, 1.0], [0.0, 0.0, 0.0, 1.0]]
    stores = {"a": store(*TOKENS, masks=masks), "b": store([1, 2], [3], masks=[[1.0, 0.0], [1.0]])}
    rows = {"tokens": [[5, 6, 7, 1, 2], [5, 5, 3, 8, 9]], "loss_mask": [[0, 1, 1, 1, 0], [0, 1, 1, 0, 1]]}
    if "start" in changes and alike:
        rows["loss_mask"][1][1] = 0
    given = {key: np.array(changes.get(key, value)) for key, value in (rows | PIECES).items()}
    pieces = {field: given[field].astype(np.int64) for field in PIECES}
    assert (_fault({key: given[key] for key in rows}, 3, pieces, ("a", "b"), list(stores.values())) is None) is alike


@pytest.mark.parametrize(("lengths", "twice"), [([3, 1, 3, 2], False), ([3, 2, 3, 2], True), ([4, 1, 3, 2], False)])
def test_overlaps_among_many_pieces(lengths: list[int], twice: bool) -> None:
    pieces = {"source": [0, 0, 0, 0], "record": [2, 2, 0, 1], "start": [1, 0, 0, 0], "length": lengths}
    assert _used_twice({field: np.array(values) for field, values in pieces.items()}) is twice


TWICE: dict[str, list[Any]] = {
    "tokens": [[8, 9, 8, 9, PAD], [5, 5, 5, 5, PAD]],
    "loss_mask": [[0, 1, 0, 1, 0], [1, 0, 0, 1, 0]],
    "row_offset": [0, 2, 0],
    "length": [2, 2, 4],
    "record": [1, 1, 2],
}


def test_a_record_that_is_used_twice() -> None:
    what = "some record's tokens are in the table twice"
    assert proven(**TWICE) == Verdict(False, what, {"tokens_checked": 8}, Worst("documents", "overlapping pieces"))
    assert proven(once=False, **TWICE).passed
