"""Blends: whatever is asked for, the order is the one that the proof derives, and has the shares that are asked for, evenly spread."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from prep_assets.errors import ConfigError
from prep_assets.extensions.blends import order as blending
from prep_assets.extensions.blends.order import Blended, Phase, blend
from prep_assets.extensions.blends.proofs import check_blend
from prep_assets.extensions.blends.store import BlendStore
from prep_assets.proofs.verdict import Verdict, Worst

LENGTHS = {"a": [10] * 40, "b": [10] * 20, "c": [7, 3, 30] * 10}


def stored(blended: Blended) -> BlendStore:
    ends = np.cumsum([sum(share.records for share in phase) for phase in blended.phases]).tolist()
    return BlendStore(blended.domain.astype(np.uint16), blended.item.astype(np.uint32), blended.domains, tuple(ends), 0)


def claims(blended: Blended) -> dict[str, float]:
    tokens = [sum(phase[number].tokens for phase in blended.phases) for number in range(len(blended.domains))]
    shares = {f"share_{name}": count / max(1, sum(tokens)) for name, count in zip(blended.domains, tokens, strict=True)}
    return {"items": len(blended.item), "tokens": sum(tokens), "phases": len(blended.phases), **shares}


def options(phases: list[Phase], epochs: dict[str, float] | None, shuffle: bool, seed: int) -> dict[str, Any]:
    as_asked = [{"tokens": phase.tokens, "weights": phase.weights} for phase in phases]
    several = len(phases) > 1
    return {**as_asked[0], "schedule": as_asked if several else None, "epochs": epochs, "shuffle": shuffle, "seed": seed}


def verdict_on(blended: Blended, lengths: dict[str, Any], claimed: dict[str, float], *asked: Any) -> Verdict:
    known = {name: np.array(sizes, np.int64) for name, sizes in lengths.items()}
    offered = {name: int(sizes.sum()) for name, sizes in known.items()}
    epochs = {f"epochs_{name}": claimed.get(f"share_{name}", 0) * claimed["tokens"] / max(1, offered[name]) for name in known}
    return check_blend(stored(blended), known, offered, options(*asked), {**epochs, **claimed})


def proven(
    lengths: dict[str, Any], phases: list[Phase], epochs: dict[str, float] | None = None, *, shuffle: bool = True, seed: int = 0
) -> Blended:
    blended = blend(lengths, phases, epochs=epochs, seed=seed, shuffle=shuffle)
    verdict = verdict_on(blended, lengths, claims(blended), phases, epochs, shuffle, seed)
    assert verdict.passed, verdict.summary
    hold(blended, lengths, phases, epochs or {})
    return blended


def hold(blended: Blended, lengths: dict[str, Any], phases: list[Phase], epochs: dict[str, float]) -> None:
    """What the options say of shares and evenness holds; nothing is said of random numbers.

    A phase has its tokens of each domain to half an item, and of the first k of its items each domain has its part, give or take an item of each domain.
    """
    items = list(zip(blended.domain.tolist(), blended.item.tolist(), strict=True))
    for number, name in enumerate(blended.domains):
        used = [item for domain, item in items if domain == number]
        for begin in range(0, len(used), max(1, len(lengths[name]))):
            one_pass = used[begin : begin + len(lengths[name])]
            assert len(set(one_pass)) == len(one_pass)
        assert len(used) <= int(len(lengths[name]) * epochs.get(name, 1.0) + 0.5)
    natural = {name: epochs.get(name, 1.0) * sum(sizes) for name, sizes in lengths.items()}
    for phase, shares in zip(phases, blended.phases, strict=True):
        taken, items = items[: sum(share.records for share in shares)], items[sum(share.records for share in shares) :]
        weights = natural if phase.weights is None else phase.weights
        total = sum(share.tokens for share in shares) if phase.tokens is None else phase.tokens
        for number, share in enumerate(shares):
            wanted, longest = weights[share.domain] / sum(weights.values()) * total, max(lengths[share.domain])
            assert phase.tokens is None or abs(share.tokens - wanted) <= longest / 2 + 1e-6
            places = [at for at, (domain, _) in enumerate(taken) if domain == number]
            for at, place in enumerate(places):
                part = len(taken) / len(places)
                assert abs(place + 0.5 - (at + 0.5) * part) <= part / 2 + len(lengths)


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


# What the verdict says.

TWO = [Phase(200, {"a": 1, "b": 1, "c": 0}), Phase(300, {"a": 3, "b": 0, "c": 0})]


def said(change: Any = None, *, seed: int = 3, shuffle: bool = True, asked: list[Phase] = TWO, **claimed: float) -> Verdict:
    blended = blend(LENGTHS, TWO, seed=3, shuffle=True)
    changed = replace(blended, **change(blended)) if change else blended
    return verdict_on(changed, LENGTHS, {**claims(blended), **claimed}, asked, None, shuffle, seed)


def test_other_options() -> None:
    assert not said(seed=4).passed and not said(shuffle=False).passed
    lost = said(lambda blended: {"domain": blended.domain[:-1], "item": blended.item[:-1]})
    assert lost.worst == Worst("phases", "phases end at [20, 50] of 49 items; the options end them at [20, 50]")
    assert said(asked=[Phase(300, TWO[0].weights), TWO[1]]).summary.startswith("phases: phases end at [20, 50] of 50 items")


def test_an_order_by_hand() -> None:
    """Each domain's items stand in the middle of equal parts: 1/4, 3/4 of a, and 1/6, 3/6, 5/6 of b."""
    blended = proven({"a": [1, 1], "b": [1, 1, 1]}, [Phase()], shuffle=False)
    assert list(zip(blended.domain.tolist(), blended.item.tolist(), strict=True)) == [(1, 0), (0, 0), (1, 1), (0, 1), (1, 2)]


def test_a_domain_with_a_weight_gives_an_item_at_least() -> None:
    """Though none is nearer to its share; such a blend is not built."""
    lengths = {"a": [10] * 4, "b": [100]}
    without = blend(lengths, [Phase(20, {"a": 1, "b": 0})], shuffle=False)
    found = verdict_on(without, lengths, claims(without), [Phase(40, {"a": 1, "b": 1})], None, False, 0)
    assert found.summary == "phases: phases end at [2] of 2 items; the options end them at [3]"


# Bugs planted in code that blends.


def one_early(name: str, tokens: Any, target: Any, real: Any = blending.nearest_count) -> int:
    return max(1, int(real(name, tokens, target)) - 1)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("stream_of", lambda seed, name, real=blending.stream_of: real(0, name)),
        ("stream_of", lambda seed, name, real=blending.stream_of: real(seed, "a")),
        ("offer", lambda count, pool, total, stream, real=blending.offer: real(count, pool, total, None)),
        ("_places", lambda count, stream, real=blending._places: real(count, None)),
        ("_places", lambda count, stream, real=blending._places: np.arange(count, dtype=np.uint64)),
        ("argsort", lambda keys: np.argsort(keys)[::-1].copy()),
        ("nearest_count", one_early),
    ],
)
def test_a_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, bug: Any) -> None:
    monkeypatch.setattr(blending, name, bug)
    blended = blend(LENGTHS, TWO, seed=3)
    assert not verdict_on(blended, LENGTHS, claims(blended), TWO, None, True, 3).passed
