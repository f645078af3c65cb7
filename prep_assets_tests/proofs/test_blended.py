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
from prep_assets.stores.arrays import STRETCH
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


# The proof alone, on orders written by hand.

TENS = {"a": [10] * 5, "b": [10] * 5}
ASKED: dict[str, Any] = {"tokens": 100, "weights": {"a": 1, "b": 1}, "schedule": None, "epochs": None, "shuffle": True}
IN_TURN = [(number % 2, number // 2) for number in range(10)]
FIT = "items with {} tokens have the shares and the order that the options ask for"


def said(
    order: list[tuple[int, int]], claimed: dict[str, float], lengths: Any = TENS, *, ends: Any = None, domains: Any = None, **asked: Any
) -> Any:
    """Place, summary and figures of the verdict on an order of (domain, item)."""
    columns = np.array(order, np.int64).reshape(-1, 2)
    names = tuple(sorted(lengths)) if domains is None else domains
    blend_ = BlendStore(columns[:, 0].astype(np.uint16), columns[:, 1].astype(np.uint32), names, ends or (len(order),), 0)
    known = {name: np.array(sizes, np.int64) for name, sizes in lengths.items()}
    verdict = check_blend(blend_, known, {**ASKED, **asked}, claimed)
    where = verdict.worst.where if verdict.worst else ""
    return (
        (where, verdict.summary.removeprefix(f"{where}: "), dict(verdict.numbers))
        if not verdict.passed
        else (verdict.summary, dict(verdict.numbers))
    )


HALVES = {"tokens": 100, "share_a": 0.5, "share_b": 0.5}


def used(a: list[int], b: list[int], at: list[int]) -> list[tuple[int, int]]:
    """The items of a at the places `at`, those of b at all others."""
    left, right = iter(a), iter(b)
    return [(0, next(left)) if place in at else (1, next(right)) for place in range(len(a) + len(b))]


@pytest.mark.parametrize(
    ("order", "asked", "expected"),
    [
        (IN_TURN, {}, (f"10 {FIT.format(100)}", {"items": 10, "tokens": 100})),
        (IN_TURN, {"domains": ("a",)}, ("domains", "the blend is of ['a'], the configuration of ['a', 'b']", {"items": 10})),
        ([*IN_TURN[:7], (1, 5), *IN_TURN[8:]], {}, ("item 7", "is number 5 of b, where there is none", {"items": 10})),
        ([*IN_TURN[:3], (2, 0), *IN_TURN[4:]], {}, ("item 3", "is number 0 of domain 2, where there is none", {"items": 10})),
        (IN_TURN, {"ends": (5, 10)}, ("phases", "the blend has 2 phases, its options 1", {"items": 10})),
        ([*IN_TURN[:4], (0, 0), *IN_TURN[5:]], {}, ("a", "item 0 comes again before pass 1 over the domain is through", {"items": 10})),
        (IN_TURN, {"epochs": {"b": 0.8}}, ("b", "5 of its items are used, and epochs allow 4", {"items": 10})),
        (used([1, 0, 2, 4, 3], [0, 1, 2, 3, 4], [0, 2, 4, 6, 8]), {"shuffle": False}, ("a", "item 1 comes where item 0 must: shuffle is false", {"items": 10})),
        (IN_TURN, {"shuffle": False}, (f"10 {FIT.format(100)}", {"items": 10, "tokens": 100})),
        (IN_TURN, {"tokens": 110}, (f"10 {FIT.format(100)}", {"items": 10, "tokens": 100})),
        (IN_TURN, {"tokens": 112}, ("phase 1", "it has 50 tokens of a, and is to have 56.0", {"items": 10})),
        (IN_TURN, {"tokens": None}, (f"10 {FIT.format(100)}", {"items": 10, "tokens": 100})),
        (IN_TURN, {"tokens": None, "weights": None}, (f"10 {FIT.format(100)}", {"items": 10, "tokens": 100})),
        (IN_TURN, {"tokens": None, "weights": None, "epochs": {"b": 2}}, ("phase 1", "b has items left, and all are asked for", {"items": 10})),
        (
            IN_TURN,
            {"tokens": None, "epochs": {"a": 2, "b": 2}},
            ("phase 1", "no domain gives all of its items, and no budget ends the phase before", {"items": 10}),
        ),
    ],
)  # fmt: skip
def test_what_the_proof_says(order: list[tuple[int, int]], asked: dict[str, Any], expected: Any) -> None:
    assert said(order, HALVES, **asked) == expected


def test_what_the_manifest_claims() -> None:
    numbers = {"items": 10, "tokens": 100}
    assert said(IN_TURN, {**HALVES, "tokens": 110}) == ("tokens", "the items have 100 tokens, the manifest says 110", numbers)
    assert said(IN_TURN, {**HALVES, "share_b": 0.4}) == ("b", "is 0.5000 of the tokens, the manifest says 0.4000", numbers)
    one = said([(0, 0)], {"tokens": 1, "share_a": 1.0}, {"a": [1]}, tokens=1, weights={"a": 1})
    assert one == (f"1 {FIT.format(1)}", {"items": 1, "tokens": 1})


def test_without_weights_a_budget_is_shared_by_what_there_is() -> None:
    order, asked = used([0, 1, 2, 3], [0, 1], [0, 1, 3, 4]), {"tokens": 60, "weights": None, "epochs": {"a": 2}}
    assert said(order, {"tokens": 60, "share_a": 2 / 3, "share_b": 1 / 3}, **asked) == (f"6 {FIT.format(60)}", {"items": 6, "tokens": 60})
    fault = ("phase 1", "it has 40 tokens of a, and is to have 30.0", {"items": 6})
    assert said(order, {"tokens": 60, "share_a": 2 / 3, "share_b": 1 / 3}, **{**asked, "epochs": None}) == fault
    unlike = {"a": [10] * 8, "b": [10] * 4}
    assert said(order, {"tokens": 60, "share_a": 2 / 3, "share_b": 1 / 3}, unlike, **{**asked, "epochs": None})[0] == f"6 {FIT.format(60)}"


def test_a_domain_without_items() -> None:
    found = said([(0, 0)], {"tokens": 10, "share_a": 1.0, "share_b": 0.0}, {"a": [10], "b": []}, tokens=10, weights={"a": 1, "b": 0})
    assert found == (f"1 {FIT.format(10)}", {"items": 1, "tokens": 10})


@pytest.mark.parametrize(
    ("at", "fault"),
    [([6, 7], ""), ([1, 2], ""), ([7, 8], "item 0 of 2 of a stands at 7 of 9"), ([0, 1], "item 1 of 2 of a stands at 1 of 9")],
)
def test_how_far_an_item_may_stand_from_its_part(at: list[int], fault: str) -> None:
    """Two of nine: 4.5 items each, and two more for two domains."""
    lengths = {"a": [10] * 2, "b": [10] * 7}
    found = said(used([0, 1], [*range(7)], at), {"tokens": 90, "share_a": 2 / 9, "share_b": 7 / 9}, lengths, tokens=None, weights=None)
    expected = (
        ("phase 1", f"{fault}: they are not spread evenly", {"items": 9}) if fault else (f"9 {FIT.format(90)}", {"items": 9, "tokens": 90})
    )
    assert found == expected


def test_long_orders_are_looked_at_in_stretches() -> None:
    count = 3 * STRETCH
    lengths = {"a": [2] * count, "b": [2] * count}
    order = [(number % 2, number // 2) for number in range(2 * count)]
    claimed, asked = {"tokens": 4 * count, "share_a": 0.5, "share_b": 0.5}, {"tokens": None, "weights": None}
    assert said(order, claimed, lengths, **asked) == (
        f"{2 * count:,} {FIT.format(f'{4 * count:,}')}",
        {"items": 2 * count, "tokens": 4 * count},
    )
    place = STRETCH + 5
    stray = [*order[:place], (0, count), *order[place + 1 :]]
    assert said(stray, claimed, lengths, **asked)[:2] == (f"item {place:,}", f"is number {count:,} of a, where there is none")
    late = STRETCH + 1
    block = order[2 * late : 2 * late + 80]
    moved = [*order[: 2 * late], *sorted(block), *order[2 * late + 80 :]]
    fault = f"item {late + 39:,} of {count:,} of a stands at {2 * late + 39:,} of {2 * count:,}: they are not spread evenly"
    assert said(moved, claimed, lengths, **asked)[:2] == ("phase 1", fault)
