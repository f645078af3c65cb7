from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.packing import Mixture, mix
from prep_assets_tests.effort import examples

pytestmark = pytest.mark.usefixtures("short_stretches")

LENGTHS = {"code": [5, 9, 2, 7], "web": [4, 4, 4, 4, 4, 4], "books": [30, 10]}
DOMAINS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.lists(st.integers(1, 50), min_size=1, max_size=30), min_size=1)


def pairs(mixture: Mixture) -> list[tuple[str, int]]:
    return [(mixture.domains[d], int(r)) for d, r in zip(mixture.domain, mixture.record, strict=True)]


def of(mixture: Mixture, domain: str) -> list[int]:
    return [record for name, record in pairs(mixture) if name == domain]


def check_accounts(mixture: Mixture, lengths: dict[str, list[int]]) -> None:
    """The report and the lengths, counted again from the pairs."""
    assert mixture.lengths.tolist() == [lengths[name][record] for name, record in pairs(mixture)]
    total = sum(mixture.lengths.tolist())
    for share in mixture.shares:
        tokens = sum(lengths[share.domain][record] for record in of(mixture, share.domain))
        assert (share.records, share.tokens) == (len(of(mixture, share.domain)), tokens)
        assert share.share == pytest.approx(tokens / total if total else 0.0)
    assert [share.domain for share in mixture.shares] == sorted(lengths)


def test_in_order_without_shuffle() -> None:
    mixture = mix(LENGTHS, shuffle=False)
    expected = [("books", 0), ("books", 1), *(("code", i) for i in range(4)), *(("web", i) for i in range(6))]
    assert pairs(mixture) == expected
    check_accounts(mixture, LENGTHS)


@settings(max_examples=examples(60))
@given(DOMAINS, st.integers(0, 2**40))
def test_every_record_once(lengths: dict[str, list[int]], seed: int) -> None:
    mixture = mix(lengths, seed=seed)
    assert sorted(pairs(mixture)) == sorted((name, i) for name, own in lengths.items() for i in range(len(own)))
    check_accounts(mixture, lengths)


def test_the_shuffle_is_a_sort_by_raw_pcg64_numbers() -> None:
    """Places are the numbers that follow those spent on the domain's own order, from a stream per domain."""
    placed = []
    for name, own in LENGTHS.items():
        stream = np.random.PCG64(int.from_bytes(sha256(f"17/{name}".encode()).digest(), "big"))

        def shuffled(values: list[int], stream: np.random.PCG64 = stream) -> list[int]:
            keys = [int(stream.random_raw()) for _ in values]
            return [value for _, value in sorted(zip(keys, values, strict=True))]

        records = shuffled(shuffled(list(range(len(own)))))
        placed += [(int(stream.random_raw()), name, record) for record in records]
    assert pairs(mix(LENGTHS, seed=17)) == [(name, record) for _, name, record in sorted(placed)]


def test_listing_order_other_domains_and_global_state_change_nothing() -> None:
    mixture = mix(LENGTHS, seed=3)
    np.random.seed(1)
    state = repr(np.random.get_state())
    assert pairs(mix(dict(reversed(LENGTHS.items())), seed=3)) == pairs(mixture)
    assert repr(np.random.get_state()) == state
    fewer = mix({"code": LENGTHS["code"], "web": LENGTHS["web"]}, seed=3)
    assert pairs(fewer) == [pair for pair in pairs(mixture) if pair[0] != "books"]


@settings(max_examples=examples(150))
@given(DOMAINS, st.data())
def test_weights_are_shares_of_tokens(lengths: dict[str, list[int]], data: st.DataObject) -> None:
    """Compared with a search over all numbers of first records, in whole numbers."""
    weights = {name: data.draw(st.integers(1, 5)) for name in lengths}
    total = {name: sum(own) for name, own in lengths.items()}
    limit = min(lengths, key=lambda name: total[name] / weights[name])
    expected = {}
    for name, own in lengths.items():
        # the target is weights[name] / weights[limit] * total[limit]; everything is multiplied by weights[limit]
        distance = [abs(weights[limit] * sum(own[:n]) - weights[name] * total[limit]) for n in range(len(own) + 1)]
        expected[name] = distance.index(min(distance))
    if 0 in expected.values():
        with pytest.raises(ConfigError, match="its first record alone has"):
            mix(lengths, weights=weights, shuffle=False)
        return
    mixture = mix(lengths, weights=weights, shuffle=False)
    assert {share.domain: share.records for share in mixture.shares} == expected
    assert expected[limit] == len(lengths[limit])
    check_accounts(mixture, lengths)


def test_weights_with_fractions_use_the_limiting_domain_up() -> None:
    lengths = {"a": [1] * 30, "b": [1] * 1000, "c": [1] * 1000}
    mixture = mix(lengths, weights={"a": 0.1, "b": 0.2, "c": 0.7}, seed=5)
    assert [share.tokens for share in mixture.shares] == [30, 60, 210]
    assert sorted(of(mixture, "a")) == list(range(30))
    assert len(set(of(mixture, "c"))) == 210


def test_a_larger_weight_keeps_the_records_of_a_smaller_one() -> None:
    lengths = {"a": [2] * 40, "b": [2] * 40}
    small, large = (mix(lengths, weights={"a": 1, "b": b}, seed=2) for b in (0.25, 0.5))
    assert (len(of(small, "b")), len(of(large, "b"))) == (10, 20)
    assert set(of(small, "b")) < set(of(large, "b"))


def test_weight_zero_leaves_a_domain_out() -> None:
    mixture = mix(LENGTHS, weights={"books": 0, "code": 1, "web": 1})
    assert of(mixture, "books") == []
    assert mixture.shares[0].share == 0.0


@settings(max_examples=examples(60))
@given(DOMAINS, st.sampled_from([0, 0.25, 0.5, 1, 1.5, 3]), st.integers(0, 99), st.booleans())
def test_epochs_are_whole_passes_and_a_part(lengths: dict[str, list[int]], epochs: float, seed: int, shuffle: bool) -> None:
    mixture = mix(lengths, epochs={min(lengths): epochs}, seed=seed, shuffle=shuffle)
    for name, own in lengths.items():
        passes = epochs if name == min(lengths) else 1
        times = Counter(of(mixture, name))
        assert sum(times.values()) == int(passes * len(own) + 0.5)
        assert all(int(passes) <= times[record] <= -(-passes // 1) for record in range(len(own)))
    check_accounts(mixture, lengths)


def test_passes_without_shuffle_follow_each_other() -> None:
    assert mix({"a": [1, 1]}, epochs={"a": 2.5}, shuffle=False).record.tolist() == [0, 1, 0, 1, 0]


def test_epochs_enlarge_what_weights_can_take() -> None:
    lengths = {"a": [10] * 5, "b": [10] * 100}
    mixture = mix(lengths, weights={"a": 1, "b": 3}, epochs={"a": 4}, seed=1)
    assert [share.records for share in mixture.shares] == [20, 60]
    assert set(Counter(of(mixture, "a")).values()) == {4}


def test_max_items() -> None:
    assert of(mix(LENGTHS, max_items={"web": 2}, shuffle=False), "web") == [0, 1]
    assert len(of(mix(LENGTHS, max_items={"web": 99}), "web")) == 6
    chosen = {tuple(sorted(of(mix(LENGTHS, max_items={"web": 2}, seed=seed), "web"))) for seed in range(30)}
    assert len(chosen) > 5
    twice = mix(LENGTHS, max_items={"web": 2}, epochs={"web": 2}, seed=4)
    assert sorted(Counter(of(twice, "web")).values()) == [2, 2]


def test_no_domains_and_empty_domains() -> None:
    assert mix({}).lengths.tolist() == []
    assert mix({"a": [], "b": [3]}).lengths.tolist() == [3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"cod": 1}}, r"weights names 'cod', which is not a domain; did you mean 'code'"),
        ({"weights": {"code": 1}}, "missing: books, web"),
        ({"weights": dict.fromkeys(LENGTHS, 0)}, "all 0"),
        ({"weights": {**dict.fromkeys(LENGTHS, 1), "web": -1}}, "weights of domain 'web' is -1"),
        ({"weights": {**dict.fromkeys(LENGTHS, 1), "web": float("nan")}}, "weights of domain 'web' is nan"),
        ({"epochs": {"web": float("inf")}}, "epochs of domain 'web' is inf"),
        ({"max_items": {"web": 0}}, "max_items of domain 'web' is 0, must be a number of at least 1"),
        ({"epochs": {"web": 0}, "weights": dict.fromkeys(LENGTHS, 1)}, "'web' has weight 1 but no records on offer"),
    ],
)
def test_requests_that_mean_nothing(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mix(LENGTHS, **options)


def test_records_without_tokens_are_named_with_their_domain() -> None:
    with pytest.raises(PrepAssetsError, match=r"lengths of domain 'b': 1 of 2 records have no tokens \(records 1\)"):
        mix({"a": [1], "b": [3, 0]})


def test_a_mixture_that_no_disk_holds_is_refused_before_it_is_made() -> None:
    with pytest.raises(
        ConfigError, match=r"the mixture would have 10,000,000,000,005 records, .* of domain 'b': its plan takes about [0-9,]+ bytes"
    ):
        mix({"a": [1] * 5, "b": [1] * 10}, epochs={"b": 1e12})
