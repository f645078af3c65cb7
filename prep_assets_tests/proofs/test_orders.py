"""The second derivation of tables and blends: it agrees with the first on every option and with an obvious one, and sees a bug planted in any strategy."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.family import Align
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.packing import by_work, evenness, mix, pack, strategies
from prep_assets.proofs.orders import Order, _nearest, expected_blend, expected_order, expected_places, multiple_of
from prep_assets.proofs.packed import check_mixture
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores import arrays as columns
from prep_assets_tests.cells import cells
from prep_assets_tests.effort import examples
from prep_assets_tests.packing import reference
from prep_assets_tests.peak import peak

# -- Tables: the whole derivation -----------------------------------------------------------------------------------------------------

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

OF_ALIGN = {"tensor_parallel": 1, "sequence_parallel": False, "multiple_of": 1}
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
        "align": st.none()
        | st.builds(Align, context_parallel=st.integers(1, 3), tensor_parallel=st.integers(1, 4), sequence_parallel=st.booleans()).map(
            Align.model_dump
        ),
        "balance": st.none() | st.integers(2, 5),
    }
)


def table(lengths: dict[str, Any], chosen: dict[str, Any], mixed: Any = mix) -> tuple[dict[str, Any], tuple[str, ...], dict[str, float]]:
    """Pieces of a packed table, its domains, and what a manifest counts."""
    mixture = mixed(lengths, **{key: chosen[key] for key in ("weights", "epochs", "max_items", "seed", "shuffle")})
    overlong = {} if chosen["strategy"] in ("concat", "bfd_split") else {"overlong": chosen["overlong"]}
    align = 1 if chosen.get("align") is None else Align(**chosen["align"]).multiple
    plan = pack(
        mixture.lengths,
        chosen["row_len"],
        chosen["strategy"],
        tail=chosen["tail"],
        buckets=chosen.get("buckets", ()),
        align=align,
        **overlong,
    )
    if chosen.get("balance"):
        plan = by_work(plan, chosen["balance"], chosen["seed"] if chosen["shuffle"] else None)
    documents = {name: getattr(plan, name) for name in ("row", "row_offset", "length", "start")}
    documents |= {"source": mixture.domain[plan.record], "record": mixture.record[plan.record]}
    used = np.bincount(documents["source"], documents["length"], len(mixture.domains))
    claims = {f"share_{name}": float(count) / max(1, plan.used) for name, count in zip(mixture.domains, used, strict=True)}
    claims |= {"rows": plan.rows, "records": len(mixture.lengths), "tokens": plan.used, "fill_rate": plan.fill}
    claims |= {"places_for_alignment": int(plan.rooms.sum()) - plan.used, "work_evenness": evenness(plan, chosen.get("balance") or 1)}
    return documents, mixture.domains, {**claims, "tokens_left_out": int(plan.dropped[:, 2].sum()), "tokens_in_untrained_rows": 0}


def checked(documents: dict[str, Any], names: tuple[str, ...], chosen: dict[str, Any], claimed: dict[str, float]) -> Verdict:
    align = 1 if chosen.get("align") is None else Align(**chosen["align"]).multiple
    return check_mixture(documents, names, LENGTHS, chosen, lambda source, record, start, end: end - start, claimed, align)


@given(options, st.booleans())
def test_what_is_packed_is_what_was_asked_for(chosen: dict[str, Any], buckets: bool) -> None:
    chosen = {**chosen, "tail": chosen["tail"] if chosen["strategy"] == "concat" else "pad"}
    if buckets and chosen["strategy"] not in ("concat", "simple"):
        chosen["buckets"] = [5, 20]
    try:
        documents, names, claimed = table(LENGTHS, chosen)
    except (ConfigError, PrepAssetsError):
        return
    verdict = checked(documents, names, chosen, claimed)
    assert verdict.passed, verdict.summary


@given(options, st.data())
def test_another_alignment_or_number_of_ranks_is_seen(chosen: dict[str, Any], data: st.DataObject) -> None:
    chosen = {**chosen, "tail": "pad", "strategy": "bfd", "row_len": 48, "align": {"context_parallel": 2, **OF_ALIGN}, "balance": 2}
    documents, names, claimed = table(LENGTHS, {**chosen, "weights": None, "epochs": None, "max_items": None})
    chosen = {**chosen, "weights": None, "epochs": None, "max_items": None}
    assert checked(documents, names, chosen, claimed).passed
    wrong = check_mixture(documents, names, LENGTHS, chosen, lambda *_: 1, claimed, data.draw(st.integers(1, 12).filter(lambda n: n != 4)))
    assert wrong.worst is not None and wrong.worst.where == "alignment"
    assert not checked(documents, names, {**chosen, "align": None}, claimed).passed
    assert not checked(documents, names, {**chosen, "balance": 5}, claimed).passed
    assert not checked(documents, names, chosen, {**claimed, "places_for_alignment": claimed["places_for_alignment"] + 1}).passed
    assert not checked(documents, names, chosen, {**claimed, "work_evenness": claimed["work_evenness"] - 0.01}).passed


# -- Rows, against the obvious derivation -----------------------------------------------------------------------------------------------


def rows_of(lengths: list[int], **packing: Any) -> list[reference.Row]:
    """The tokens of each row, as pairs of record and number."""
    asked = {"overlong": "split", "tail": "pad", "buckets": None, **packing}
    places = expected_places(np.array(lengths, np.int64), asked)
    rows: list[reference.Row] = [[] for _ in range(int(places.row.max(initial=-1)) + 1)]
    for member, start, length, row, offset in zip(*(getattr(places, field).tolist() for field in places.__struct_fields__), strict=True):
        assert offset == len(rows[row])
        rows[row] += [(member, start + token) for token in range(length)]
    return rows


@settings(max_examples=examples(150))
@given(reference.LENGTHS, reference.ROW_LEN, st.sampled_from(["truncate", "drop", "split"]))
def test_rows(lengths: list[int], row_len: int, overlong: str) -> None:
    pieces, _ = reference.documents(lengths, row_len, overlong)
    sizes = [len(piece) if overlong == "split" else lengths[piece[0][0]] for piece in pieces]
    whole = reference.documents(lengths, row_len, "split")[0]
    stream = reference.concat(lengths, row_len)
    asked = {"row_len": row_len, "overlong": overlong}
    assert rows_of(lengths, strategy="concat", **asked) == stream
    assert rows_of(lengths, strategy="concat", **asked, tail="drop") == [row for row in stream if len(row) == row_len]
    assert rows_of(lengths, strategy="simple", **asked) == reference.next_fit(pieces, row_len)
    assert rows_of(lengths, strategy="ffd", **asked) == reference.decreasing(pieces, sizes, row_len, best=False)
    assert rows_of(lengths, strategy="bfd", **asked) == reference.decreasing(pieces, sizes, row_len, best=True)
    assert rows_of(lengths, strategy="bfd_split", **asked) == reference.decreasing(whole, [*map(len, whole)], row_len, best=True)


def test_a_record_that_must_not_be_too_long_fits_no_row() -> None:
    documents, names, claimed = table({"a": np.array([9])}, {**PLAIN, "row_len": 8, "strategy": "simple", "overlong": "split"})
    verdict = check_mixture(documents, names, {"a": np.array([9])}, {**PLAIN, "row_len": 8, "strategy": "simple"}, lambda *_: 1, claimed)
    what = "is tokens 0 to 8 of a record 0 at place 0 of row 0; the options put tokens 0 to 9 of a record 0 at place 0 of row 0 there"
    assert verdict.worst == Worst("piece 0", what)


# -- What the verdict says --------------------------------------------------------------------------------------------------------------


FEW = {"a": np.array([3, 2]), "b": np.array([4])}
OF_FEW = {**PLAIN, "strategy": "simple", "shuffle": False, "row_len": 5}
FEW_PIECES = {"row": [0, 0, 1], "row_offset": [0, 3, 0], "source": [0, 0, 1], "record": [0, 1, 0], "start": [0, 0, 0], "length": [3, 2, 4]}
FEW_CLAIMED = {
    "rows": 2,
    "records": 3,
    "tokens": 9,
    "tokens_left_out": 0,
    "tokens_in_untrained_rows": 0,
    "fill_rate": 0.9,
    "share_a": 5 / 9,
    "share_b": 4 / 9,
}
FEW_NUMBERS = {"records_expected": 3, "tokens_packed": 9, "tokens_untrained": 0}


def few(pieces: dict[str, list[int]], sources: tuple[str, ...] = ("a", "b"), align: int = 1, **claimed: float) -> Verdict:
    documents = {field: np.array(values) for field, values in {**FEW_PIECES, **pieces}.items()}
    return check_mixture(documents, sources, FEW, OF_FEW, lambda *_: 1, {**FEW_CLAIMED, **claimed}, align)


def test_a_table_that_is_as_the_options_ask() -> None:
    says = "the 3 records that the options ask for stand where they put them, or are counted as left out"
    assert few({}) == Verdict(True, says, FEW_NUMBERS)
    empty = {field: np.zeros(0, int) for field in FEW_PIECES}
    claimed = {**dict.fromkeys(FEW_CLAIMED, 0), "share_b": 0}
    none = {"a": np.zeros(0, int), "b": np.zeros(0, int)}
    assert check_mixture(empty, ("a", "b"), none, OF_FEW, lambda *_: 1, claimed).passed


@pytest.mark.parametrize(("ranks", "evenness"), [(2, 41 / 50), (3, 54 / 75), (4, 1.0)])
def test_how_even_the_work_of_ranks_is(ranks: int, evenness: float) -> None:
    """Rows of 25, 16 and 9 + 4 squared tokens, the heaviest first; what is left of a step does not count."""
    order = {
        "row": [0, 1, 2, 2],
        "row_offset": [0, 0, 0, 3],
        "source": [0] * 4,
        "record": [0, 3, 1, 2],
        "start": [0] * 4,
        "length": [5, 4, 3, 2],
    }
    claimed = {
        "rows": 3,
        "records": 4,
        "tokens": 14,
        "tokens_left_out": 0,
        "tokens_in_untrained_rows": 0,
        "fill_rate": 14 / 15,
        "share_a": 1.0,
    }
    documents, packing = {field: np.array(values) for field, values in order.items()}, {**OF_FEW, "balance": ranks}
    for says in (evenness, evenness + 0.001):
        verdict = check_mixture(documents, ("a",), {"a": np.array([5, 3, 2, 4])}, packing, lambda *_: 1, {**claimed, "work_evenness": says})
        assert verdict.passed is (says == evenness), verdict.summary


def test_a_table_of_one_token() -> None:
    one = {field: np.array([field == "length"], int) for field in FEW_PIECES}
    claimed = {"rows": 1, "records": 1, "tokens": 1, "tokens_left_out": 0, "tokens_in_untrained_rows": 0, "fill_rate": 1.0, "share_a": 1.0}
    assert check_mixture(one, ("a",), {"a": np.array([1])}, {**OF_FEW, "row_len": 1}, lambda *_: 1, claimed).passed


PUT = "tokens 0 to 2 of a record 1 at place 3 of row 0"
LAST = "tokens 0 to 4 of b record 0 at place 0 of row 1"


@pytest.mark.parametrize(
    ("pieces", "where", "what"),
    [
        ({"row": [0, 1, 1]}, "piece 1", f"is tokens 0 to 2 of a record 1 at place 3 of row 1; the options put {PUT} there"),
        ({"row_offset": [0, 4, 0]}, "piece 1", f"is tokens 0 to 2 of a record 1 at place 4 of row 0; the options put {PUT} there"),
        ({"record": [0, 1000, 0]}, "piece 1", f"is tokens 0 to 2 of a record 1,000 at place 3 of row 0; the options put {PUT} there"),
        ({"start": [0, 1, 0]}, "piece 1", f"is tokens 1 to 3 of a record 1 at place 3 of row 0; the options put {PUT} there"),
        ({"source": [0, 0, 0]}, "piece 2", f"is tokens 0 to 4 of a record 0 at place 0 of row 1; the options put {LAST} there"),
        *(
            (
                {"source": [0, 0, at]},
                "piece 2",
                f"is tokens 0 to 4 of domain {at} record 0 at place 0 of row 1; the options put {LAST} there",
            )
            for at in (2, -1)
        ),
        ({field: values[:2] for field, values in FEW_PIECES.items()}, "piece 2", f"is none; the options put {LAST} there"),
        (
            {field: [*values, 7] for field, values in FEW_PIECES.items()},
            "piece 3",
            "is tokens 7 to 14 of domain 7 record 7 at place 7 of row 7; the options put none there",
        ),
    ],
)
def test_a_piece_that_the_options_put_elsewhere(pieces: dict[str, list[int]], where: str, what: str) -> None:
    tokens = sum(pieces.get("length", FEW_PIECES["length"]))
    assert few(pieces) == Verdict(False, f"{where}: {what}", FEW_NUMBERS | {"tokens_packed": tokens}, Worst(where, what))


def test_what_a_table_says_of_itself() -> None:
    none = dict.fromkeys(("records_expected", "tokens_untrained"), 0) | {"tokens_packed": 9}
    for found, where, what, numbers in (
        (few({}, ("b", "a")), "domains", "the table is of ['b', 'a'], the configuration of ['a', 'b']", none),
        (few({}, align=2), "alignment", "the table says that documents take multiples of 2 places, the topology needs 1", none),
        *(
            (few({}, **{name: 1000}), "manifest", f"{name} is {value:,}, the manifest says 1,000", FEW_NUMBERS)
            for name, value in FEW_CLAIMED.items()
        ),
    ):
        assert found == Verdict(False, f"{where}: {what}", numbers, Worst(where, what))


def test_rows_without_a_trained_token_are_left_out() -> None:
    """Records of 5, 12 and 3 in rows of 4: the row that holds only the middle of the second is in no table, unless a token of it is trained."""
    lengths, asked = {"a": np.array([5, 12, 3])}, {**PLAIN, "shuffle": False, "row_len": 4}
    stretches = list[tuple[int, int, int, int]]()

    def trained(*stretch: int) -> int:
        stretches.append(stretch)  # type: ignore[arg-type]
        return int(stretch == (0, 0, 0, 4))

    documents = {"row": [0, 1], "row_offset": [0, 1], "source": [0, 0], "record": [0, 2], "start": [0, 0], "length": [4, 3]}
    claimed = {
        "rows": 2,
        "records": 3,
        "tokens": 8,
        "tokens_left_out": 12,
        "tokens_in_untrained_rows": 12,
        "fill_rate": 1.0,
        "share_a": 1.0,
    }
    documents = {field: np.array(values) for field, values in documents.items()}
    documents = {
        field: np.insert(values, 1, {"row": 1, "row_offset": 0, "source": 0, "record": 1, "start": 11, "length": 1}[field])
        for field, values in documents.items()
    }
    verdict = check_mixture(documents, ("a",), lengths, asked, trained, claimed)
    assert verdict.passed, verdict.summary
    assert verdict.numbers["tokens_untrained"] == 12
    assert stretches == [(0, 0, 0, 4), (0, 0, 4, 5), (0, 1, 0, 3), (0, 1, 3, 7), (0, 1, 7, 11)]
    assert not check_mixture(documents, ("a",), lengths, asked, lambda *_: 1, claimed).passed


# -- Bugs planted in code that packs ----------------------------------------------------------------------------------------------------


class Loosest(strategies.BestFit):
    def take(self, length: int) -> tuple[int, int, int] | None:
        spaces = self._spaces
        self._spaces = [space for space in spaces if space >= length][-1:]
        found = super().take(length)
        self._spaces = sorted({space for space in spaces if self._ranges[space]})
        return found


class LastFit(strategies.FirstFit):
    def take(self, length: int) -> tuple[int, int, int] | None:
        fits = [row for row in range(self._leaves) if self._maxima[self._leaves + row] >= length]
        return (self._maxima[self._leaves + fits[-1]], fits[-1], self._stop[fits[-1]]) if fits else None


def unshuffled(lengths: Any, **options: Any) -> Any:
    return mix(lengths, **{**options, "shuffle": False})


def other_seed(lengths: Any, **options: Any) -> Any:
    return mix(lengths, **{**options, "seed": options["seed"] + 1})


def ascending(keys: Any) -> Any:
    return np.argsort(-keys, kind="stable")


def without(option: str) -> Callable[..., Any]:
    return lambda lengths, **options: mix(lengths, **{**options, option: None})


def cut_one_late(lengths: Any, row_len: int, parts: Any, shift: Any = None, cut: Any = strategies.cut) -> Any:
    return cut(lengths, row_len, parts, shift if shift is None else (shift + 1) % row_len)


def overlong_as(done: Any) -> Any:
    cut_to_rows = strategies.cut_to_rows
    return lambda lengths, row_len, _: cut_to_rows(lengths, row_len, done)


MIXED: dict[str, Any] = {"weights": {"alpha": 1.0, "beta": 2.0, "gamma": 0.5}, "epochs": {"alpha": 2.5}, "max_items": {"beta": 20}}


@cells("strategy", ["concat", "simple", "ffd", "bfd", "bfd_split"])
@cells(
    ("mixed", "bug"),
    [({}, unshuffled), ({}, other_seed), (MIXED, unshuffled), (MIXED, other_seed), *((MIXED, without(option)) for option in MIXED)],
)
def test_a_bug_of_the_mixture(strategy: str, mixed: dict[str, Any], bug: Any) -> None:
    chosen = {**PLAIN, **mixed, "strategy": strategy}
    documents, names, claimed = table(LENGTHS, chosen, bug)
    assert not checked(documents, names, chosen, claimed).passed


@pytest.mark.parametrize(
    ("options", "name", "bug"),
    [
        ({"strategy": "bfd"}, "BestFit", Loosest),
        ({"strategy": "bfd_split"}, "BestFit", Loosest),
        ({"strategy": "ffd"}, "FirstFit", LastFit),
        ({"strategy": "bfd"}, "BestFit", lambda: strategies.FirstFit(256)),
        ({"strategy": "bfd"}, "argsort", ascending),
        ({"strategy": "ffd"}, "argsort", ascending),
        ({"strategy": "simple"}, "next_fit", lambda lengths, row_len: strategies.zeros(lengths.size) + np.arange(lengths.size)),
        ({"strategy": "concat"}, "cut", cut_one_late),
        ({"strategy": "concat", "tail": "drop"}, "_concat", lambda lengths, row_len, tail, real=strategies._concat: real(lengths, row_len, "pad")),
        ({"strategy": "concat"}, "_concat", lambda lengths, row_len, tail, real=strategies._concat: real(lengths, row_len, "drop")),
        *(
            ({"strategy": strategy, "row_len": 20, "overlong": asked}, "cut_to_rows", overlong_as(done))
            for strategy in ("simple", "ffd", "bfd")
            for asked in ("truncate", "drop", "split")
            for done in ("truncate", "drop", "split")
            if asked != done
        ),
        ({"strategy": "bfd", "buckets": [5, 20]}, "_placed", lambda lengths, *_: np.zeros(lengths.size, np.int64) + np.arange(lengths.size)),
    ],
)  # fmt: skip
def test_a_bug_of_a_strategy(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], name: str, bug: Any) -> None:
    chosen = {**PLAIN, **options}
    assert checked(*table(LENGTHS, chosen)[:2], chosen, table(LENGTHS, chosen)[2]).passed
    monkeypatch.setattr(strategies, name, bug)
    documents, names, claimed = table(LENGTHS, chosen)
    assert not checked(documents, names, chosen, claimed).passed


def test_how_many_records_are_nearest() -> None:
    """One at least where any token is asked for; of two that are as near, fewer."""
    ends, counts = np.array([0, 10, 14, 30]), (1, 2, 3)
    assert _nearest(ends, Fraction(0)) == 0
    for half in range(1, 80):
        assert _nearest(ends, Fraction(half, 2)) == min(counts, key=lambda count: abs(int(ends[count]) - half / 2))


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
            verdict = check_mixture(documents, ("a", "b"), lengths, {**chosen, "weights": None}, lambda *_: 0, {})
            assert verdict.summary.startswith("manifest: rows is")

        return peak(work)

    assert packed(40_000) < 2 * packed(10_000)


# -- Orders that can be read ------------------------------------------------------------------------------------------------------------

TENS = {"b": np.full(2, 10), "a": np.full(4, 10)}
UNSHUFFLED = {"weights": None, "epochs": None, "max_items": None, "seed": 7, "shuffle": False}


def read(order: Order) -> str:
    assert (order.length == 10).all()
    return " ".join(f"{'ab'[source]}{record}" for source, record in zip(order.source.tolist(), order.record.tolist(), strict=True))


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ({}, "a0 a1 a2 a3 b0 b1"),
        ({"max_items": {"a": 2}}, "a0 a1 b0 b1"),
        ({"epochs": {"b": 2.5, "a": 0.6}}, "a0 a1 b0 b1 b0 b1 b0"),
        ({"max_items": {"a": 3}, "epochs": {"a": 1.5}}, "a0 a1 a2 a0 a1 b0 b1"),
        ({"weights": {"a": 1.0, "b": 1.0}}, "a0 a1 b0 b1"),
        ({"weights": {"a": 4.0, "b": 1.0}}, "a0 a1 a2 a3 b0"),
        ({"weights": {"a": 1.0, "b": 0.0}}, "a0 a1 a2 a3"),
        ({"weights": {"a": 1.0, "b": 3.0}, "epochs": {"b": 2.0}}, "a0 b0 b1 b0 b1"),
    ],
)
def test_the_records_of_a_table(options: dict[str, Any], records: str) -> None:
    assert read(expected_order(TENS, UNSHUFFLED | options)) == records


def phase(tokens: int | None, a: float | None = None, b: float = 0.0) -> dict[str, Any]:
    return {"tokens": tokens, "weights": None if a is None else {"a": a, "b": b}}


@pytest.mark.parametrize(
    ("phases", "epochs", "items"),
    [
        ([phase(None)], None, ["a0 b0 a1 a2 b1 a3"]),
        ([phase(None)], {"b": 2.0, "a": 0.5}, ["b0 a0 b1 b0 a1 b1"]),
        ([phase(None, 1, 1)], None, ["a0 b0 a1 b1"]),
        ([phase(None, 4, 1)], None, ["a0 a1 b0 a2 a3"]),
        ([phase(None, 2, 0)], None, ["a0 a1 a2 a3"]),
        ([phase(30)], None, ["a0 b0 a1"]),
        ([phase(15, 1)], None, ["a0"]),
        ([phase(45)], {"a": 0.25, "b": 2.0}, ["b0 b1 a0 b0 b1"]),
        ([phase(20, 1, 1), phase(30, 2, 1)], None, ["a0 b0", "a1 b1 a2"]),
        ([phase(20, 1, 1), phase(40, 1, 1)], {"b": 2.0}, ["a0 b0", "a1 b1 a2 b0"]),
    ],
)
def test_the_items_of_a_blend(phases: list[dict[str, Any]], epochs: dict[str, float] | None, items: list[str]) -> None:
    """Those of a domain are in the middle of equal parts of a phase; of two at one place that of the first domain comes first."""
    options = {**phases[0], "schedule": phases if len(phases) > 1 else None, "epochs": epochs, "seed": 7, "shuffle": False}
    assert [*map(read, expected_blend(TENS, options))] == items


def test_a_multiple_that_every_rank_divides() -> None:
    for context, tensor, sequence, least in product((1, 2, 3, 4), (1, 2, 6), (False, True), (1, 8, 9)):
        align = {"context_parallel": context, "tensor_parallel": tensor, "sequence_parallel": sequence, "multiple_of": least}
        parts = [least, 1 if context == 1 else 2 * context, context * tensor if sequence else 1]
        assert multiple_of({"align": align}) == next(places for places in range(1, 10_000) if not any(places % part for part in parts))
    assert multiple_of({}) == multiple_of({"align": None}) == 1


# -- The order of a mixture, worked out here from the definition with PCG64's own outputs -------------------------------------------------
