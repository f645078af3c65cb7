"""The second derivation of mixtures agrees with the first on every option, and sees whatever is missing, twice or out of order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.packing import mix, pack
from prep_assets.proofs.mixture import expected_order
from prep_assets.proofs.packed_mixture import check_mixture
from prep_assets.proofs.verdict import Verdict

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
    plan = pack(mixture.lengths, chosen["row_len"], chosen["strategy"], tail=chosen["tail"], **overlong)
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
