"""How a verdict shows a row, and how several verdicts are one."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from prep_assets.proofs.verdict import (
    Numbers,
    Rule,
    Tally,
    Verdict,
    Worst,
    added,
    combined,
    fails,
    holds,
    merged,
    shown,
    some_fail,
    wrong_claim,
)


def test_the_beginning_of_a_row() -> None:
    assert shown({"b": "é", "a": [1, None]}) == '{"b": "é", "a": [1, null]}'
    assert shown({"a": "é" * 500}) == '{"a": "' + "é" * 393


def counted(numbers: Numbers) -> str:
    return f"{numbers['rows']:,} rows"


def test_checks_that_hold_or_fail() -> None:
    assert holds(counted, {"rows": 2000}) == Verdict(True, "2,000 rows", {"rows": 2000})
    assert fails("a:1", "is wrong", {"rows": 1}) == Verdict(False, "a:1: is wrong", {"rows": 1}, Worst("a:1", "is wrong"))
    ids, weights = np.array([3, 4], np.uint16), np.array([0, 1], np.uint8)
    worst = fails("a:1", "is wrong", {}, ids, weights, 1).worst
    assert worst == Worst("a:1", "is wrong", (3, 4), (0.0, 1.0), 1) and worst is not None
    assert [*map(type, worst.ids)] == [int, int] and [*map(type, worst.weights)] == [float, float]
    first = Worst("a:1", "no")
    assert some_fail(1000, 2000, "rows fail", first, {"n": 1}) == Verdict(False, "1,000 of 2,000 rows fail; first a:1: no", {"n": 1}, first)


def test_verdicts_on_parts_are_the_verdict_on_the_whole() -> None:
    """They travel between processes."""
    parts = pickle.loads(pickle.dumps([holds(counted, {"rows": 700, "more": 1}), holds(counted, {"rows": 800})]))
    whole = merged(parts)
    assert whole == Verdict(True, "1,500 rows", {"rows": 1500, "more": 1})
    assert merged([whole]) == whole
    assert merged([whole, holds(counted, {"rows": 1})]).summary == "1,501 rows"


def test_verdicts_on_several_streams() -> None:
    one, two = holds(counted, {"rows": 2}), Verdict(True, "all is well", {"rows": 1, "more": 4})
    assert combined([one, two]) == Verdict(True, "2 rows; all is well", {"rows": 3, "more": 4})
    assert combined([]) == Verdict(True, "", {})
    wrong, other = (fails(name, "is wrong", {"rows": 1}) for name in "ab")
    assert combined(iter([one, wrong, other])) == Verdict(False, "a: is wrong", {"rows": 4}, wrong.worst)
    assert added([]) == {}


def test_a_notebook_shows_a_verdict() -> None:
    numbers = {"rows<": 2000, "more": 1}
    for mark, verdict in (
        ("✓", Verdict(True, "a < b", numbers)),
        ("⚠", Verdict(True, "a < b", numbers, warns=True)),
        ("✗", Verdict(False, "a < b", numbers)),
    ):
        table = "<table><tr><th>rows&lt;</th><td>2,000</td></tr><tr><th>more</th><td>1</td></tr></table>"
        assert verdict._repr_html_() == f"<p><b>{mark}</b> a &lt; b</p>{table}"


# -- A rule on many items -------------------------------------------------------------------------------------------------------------------


class Item(NamedTuple):
    id: str
    size: int


def judged(item: Item, figures: Counter[str]) -> str | Worst | None:
    """Counts what it sees; a size below 0 is a fault, of which -2 has tokens."""
    figures["items"] += 1
    figures["large"] += item.size > 2
    return Worst(item.id, "is odd", (1, 2)) if item.size == -2 else "is below 0" if item.size < 0 else None


def said(numbers: Numbers) -> str:
    return f"{numbers['items']:,} items, {numbers['large']:,} large"


def items(*sizes: int) -> list[Item]:
    return [Item(f"a:{at}", size) for at, size in enumerate(sizes, 1)]


def test_a_rule_that_the_first_fault_ends() -> None:
    rule = Rule(judged, ("items", "large"), said)
    assert rule(items(*range(2000))) == Verdict(True, "2,000 items, 1,997 large", {"items": 2000, "large": 1997})
    assert rule([]) == Verdict(True, "0 items, 0 large", {"items": 0, "large": 0})
    wrong = rule(iter(items(3, -1, 3, -2)))
    assert wrong == Verdict(False, "a:2: is below 0", {"items": 2, "large": 1}, Worst("a:2", "is below 0"))
    assert rule(items(-2, -1)) == Verdict(False, "a:1: is odd", {"items": 1, "large": 0}, Worst("a:1", "is odd", (1, 2)))
    tally = Tally(rule)
    for some in (items(1, -1), items(-2, 5)):
        tally.add(some)
    assert tally.verdict() == Verdict(False, "a:2: is below 0", {"items": 2, "large": 0}, Worst("a:2", "is below 0"))


@pytest.mark.parametrize(("name", "counted"), [("wrong", {"wrong": 2}), ("", {})])
def test_a_rule_that_judges_all(name: str, counted: dict[str, int]) -> None:
    rule = Rule(judged, ("items", "large"), said, failing=(name, "items are wrong"))
    found, worst = rule(items(3, -1, 3, -2)), Worst("a:2", "is below 0")
    assert found == Verdict(False, "2 of 4 items are wrong; first a:2: is below 0", {"items": 4, "large": 2, **counted}, worst)
    assert rule(items(3)) == Verdict(True, "1 items, 1 large", {"items": 1, "large": 1, **dict.fromkeys(counted, 0)})


def test_what_holds_of_all_together() -> None:
    rule = Rule(judged, ("items", "large"), said, whole=lambda numbers: "too many" if numbers["items"] > 2 else "", nothing="no items")
    assert rule(items(1, 2)) == Verdict(True, "2 items, 0 large", {"items": 2, "large": 0})
    assert rule(items(1, 2, 3)) == Verdict(False, "all records: too many", {"items": 3, "large": 1}, Worst("all records", "too many"))
    assert rule(items(1, -1, 3)).summary == "a:2: is below 0"
    assert rule([]) == Verdict(True, "no items", {"items": 0, "large": 0})
    assert merged([rule([]), rule([])]).summary == "no items" and merged([rule([]), rule(items(1))]).summary == "1 items, 0 large"


@pytest.mark.parametrize(
    ("amounts", "claimed", "says"),
    [
        ({"a": 1, "b": 0.5}, {"a": 1, "b": 0.5 + 1e-10, "c": 3}, ""),
        ({"a": 1, "b": 1000}, {"a": 1}, "b is 1,000, and the manifest does not say it"),
        ({"a": 1000, "b": 2}, {"a": 2000, "b": 3}, "a is 1,000, the manifest says 2,000"),
        ({"a": 0}, {"a": 1e-9}, ""),
        ({"a": 0.5}, {"a": 0.5 + 2e-9}, "a is 0.5, the manifest says 0.500000002"),
        ({"a": 0.5}, {"a": float("nan")}, "a is 0.5, the manifest says nan"),
    ],
)
def test_what_a_manifest_says_wrongly(amounts: dict[str, float], claimed: dict[str, float], says: str) -> None:
    assert wrong_claim(amounts, claimed) == says
