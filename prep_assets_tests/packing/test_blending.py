"""Blends: whatever is asked for, the order holds to it by the proof, which knows nothing of how it was chosen."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError
from prep_assets.packing.blending import Blended, Phase, blend
from prep_assets.proofs.blended import check_blend
from prep_assets.stores.blends import BlendStore

LENGTHS = {"a": [10] * 40, "b": [10] * 20, "c": [7, 3, 30] * 10}


def stored(blended: Blended) -> BlendStore:
    ends = np.cumsum([sum(share.records for share in phase) for phase in blended.phases]).tolist()
    return BlendStore(blended.domain.astype(np.uint16), blended.item.astype(np.uint32), blended.domains, tuple(ends), 0)


def claims(blended: Blended) -> dict[str, float]:
    tokens = [sum(phase[number].tokens for phase in blended.phases) for number in range(len(blended.domains))]
    shares = {f"share_{name}": count / max(1, sum(tokens)) for name, count in zip(blended.domains, tokens, strict=True)}
    return {"tokens": sum(tokens), **shares}


def options(phases: list[Phase], epochs: dict[str, float] | None, shuffle: bool) -> dict[str, Any]:
    as_asked = [{"tokens": phase.tokens, "weights": phase.weights} for phase in phases]
    several = len(phases) > 1
    return {**as_asked[0], "schedule": as_asked if several else None, "epochs": epochs, "shuffle": shuffle}


def proven(
    lengths: dict[str, Any], phases: list[Phase], epochs: dict[str, float] | None = None, *, shuffle: bool = True, seed: int = 0
) -> Blended:
    blended = blend(lengths, phases, epochs=epochs, seed=seed, shuffle=shuffle)
    known = {name: np.array(sizes, np.int64) for name, sizes in lengths.items()}
    verdict = check_blend(stored(blended), known, options(phases, epochs, shuffle), claims(blended))
    assert verdict.passed, verdict.summary
    return blended


@st.composite
def asked(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[Phase], dict[str, float] | None, bool, int]:
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True))
    lengths = {name: draw(st.lists(st.integers(1, 40), min_size=1, max_size=60)) for name in names}
    weights = st.fixed_dictionaries(dict.fromkeys(names, st.floats(0, 5, allow_subnormal=False)))
    epochs = draw(st.none() | st.dictionaries(st.sampled_from(names), st.floats(0.1, 4), max_size=3))
    whole = sum(map(sum, lengths.values()))
    if draw(st.booleans()):
        phases = [Phase(draw(st.none() | st.integers(1, whole)), draw(st.none() | weights))]
    else:
        phases = [Phase(draw(st.integers(1, whole)), draw(weights)) for _ in range(draw(st.integers(2, 4)))]
    return lengths, phases, epochs, draw(st.booleans()), draw(st.integers(0, 2**32))


@settings(deadline=None)
@given(asked())
def test_what_is_chosen_holds_to_what_is_asked(
    request: tuple[dict[str, list[int]], list[Phase], dict[str, float] | None, bool, int],
) -> None:
    lengths, phases, epochs, shuffle, seed = request
    try:
        proven(lengths, phases, epochs, shuffle=shuffle, seed=seed)
    except ConfigError as error:
        assert re.search(r"weights are all 0|are left|needs .* tokens of domain|its first record alone", str(error))


def test_phases_go_on_where_the_last_one_stopped() -> None:
    phases = [Phase(200, {"a": 1, "b": 1, "c": 0}), Phase(300, {"a": 3, "b": 0, "c": 0})]
    blended = proven(LENGTHS, phases)
    assert [[share.tokens for share in phase] for phase in blended.phases] == [[100, 100, 0], [300, 0, 0]]
    assert sorted(blended.item[blended.domain == 0].tolist()) == list(range(40))


def test_every_stretch_has_the_shares_of_the_whole() -> None:
    blended = proven({"a": [1] * 900, "b": [1] * 100}, [Phase()])
    for k in range(0, 1000, 50):
        assert abs(int((blended.domain[:k] == 1).sum()) - k / 10) <= 2


def test_in_order_without_shuffling() -> None:
    blended = proven({"a": [5] * 4, "b": [5] * 2}, [Phase(weights={"a": 2, "b": 1})], shuffle=False)
    assert list(zip(blended.domain.tolist(), blended.item.tolist(), strict=True)) == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)]


def test_a_domain_has_its_order_whatever_stands_beside_it() -> None:
    alone = proven({"a": [10] * 40}, [Phase(weights={"a": 1})], {"a": 2.5}, seed=5)
    beside = proven(LENGTHS, [Phase(weights={"a": 1, "b": 0, "c": 0})], {"a": 2.5}, seed=5)
    assert alone.item.tolist() == beside.item.tolist()
    assert alone.item.tolist() != proven({"a": [10] * 40}, [Phase(weights={"a": 1})], {"a": 2.5}, seed=6).item.tolist()


@pytest.mark.parametrize(
    ("phases", "epochs", "message"),
    [
        (
            [Phase(900, {"a": 1, "b": 1, "c": 0})],
            {"a": 2},
            r"phase 1 of the blend needs 450 tokens of domain 'b', and 200 are left of 1 passes .* epochs.b",
        ),
        (
            [Phase(400, {"a": 1, "b": 0, "c": 0}), Phase(1, {"a": 1, "b": 0, "c": 0})],
            None,
            "phase 2 .* of domain 'a', of which none are left",
        ),
        ([Phase(10, {"a": 1})], None, "weights must name every domain; missing: b, c"),
        ([Phase(10, {"a": 0, "b": 0, "c": 0})], None, "weights are all 0"),
        ([Phase(4, {"a": 1, "b": 0, "c": 0})], None, "would give 4.0 tokens to have its weight, but its first record alone has 10"),
        ([Phase()], {"d": 1}, "epochs names 'd', which is not a domain"),
    ],
)
def test_what_cannot_be_given(phases: list[Phase], epochs: dict[str, float] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        blend(LENGTHS, phases, epochs=epochs)


ONE = [Phase(200, {"a": 1, "b": 1, "c": 0})]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": ("a", "b")}, "the blend is of"),
        ({"ends": (10, 20)}, "2 phases, its options 1"),
        ({"item": lambda items, domains: items + 40}, "where there is none"),
        ({"domain": lambda items, domains: domains + 7}, "domain 7, where there is none"),
        ({"item": lambda items, domains: np.where(domains == 0, items[domains == 0][0], items)}, "comes again before pass 1"),
        (
            {"domain": lambda items, domains: np.sort(domains), "item": lambda items, domains: items[np.argsort(domains, kind="stable")]},
            "not spread evenly",
        ),
        (
            {"domain": lambda items, domains: 1 - domains, "item": lambda items, domains: np.where(domains, items, items % 20)},
            "comes again",
        ),
    ],
)
def test_the_proof_notices(change: dict[str, Any], message: str) -> None:
    blend_ = stored(blend(LENGTHS, ONE))
    fields = {name: getattr(blend_, name) for name in ("domain", "item", "domains", "ends", "window")}
    changed = {name: value(blend_.item, blend_.domain) if callable(value) else value for name, value in change.items()}
    known = {name: np.array(sizes, np.int64) for name, sizes in LENGTHS.items()}
    verdict = check_blend(BlendStore(**{**fields, **changed}), known, options(ONE, None, True), claims(blend(LENGTHS, ONE)))
    assert not verdict.passed
    assert re.search(message, verdict.summary)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tokens": 260}, "phase 1: it has 100 tokens of a, and is to have 130.0"),
        ({"weights": {"a": 2, "b": 1, "c": 0}}, "it has 100 tokens of a, and is to have 133.3"),
        ({"tokens": None}, "no domain gives all of its items"),
        ({"tokens": None, "weights": None}, "a has items left, and all are asked for"),
        ({"epochs": {"a": 0.1}}, "10 of its items are used, and epochs allow 4"),
        ({"shuffle": False}, "comes where item 0 must"),
        ({"claimed": {"tokens": 210}}, "the items have 200 tokens, the manifest says 210"),
        ({"claimed": {"share_b": 0.4}}, "is 0.5000 of the tokens, the manifest says 0.4000"),
    ],
)
def test_the_proof_holds_it_to_each_option(more: dict[str, Any], message: str) -> None:
    blended = blend(LENGTHS, ONE)
    claimed = claims(blended) | more.pop("claimed", {})
    known = {name: np.array(sizes, np.int64) for name, sizes in LENGTHS.items()}
    verdict = check_blend(stored(blended), known, options(ONE, None, True) | more, claimed)
    assert not verdict.passed
    assert re.search(message, verdict.summary)
