"""How a verdict shows a row, and how several verdicts are one."""

from __future__ import annotations

import pickle

import numpy as np

from prep_assets.proofs.verdict import Numbers, Verdict, Worst, added, combined, fails, holds, merged, shown, some_fail


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
