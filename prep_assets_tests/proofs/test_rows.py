"""Lines against their rows, in the words of the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.extensions.lines.proofs import Line, check_lines, fits_strings, lines_verdict
from prep_assets.proofs.verdict import Verdict, Worst

# -- Lines against their rows: each difference, in the words of the verdict ---------------------------------------------------------------

ROW = {"prompt": "p", "chosen": [{"role": "assistant", "content": "c"}], "gold": 2.0}


def line(stored: dict[str, Any], made: dict[str, Any] | None = ROW, by_columns: bool = False) -> Line:
    return Line("a:0", stored, made, by_columns)


def test_lines_of_their_rows() -> None:
    numbers = {"lines_checked": 2, "lines_failed": 0, "lines_read_twice": 1}
    assert lines_verdict([check_lines([line(dict(ROW)), line(dict(ROW), by_columns=True)])], stored=2) == Verdict(
        True, "2 lines are those of their rows, 1 also by a second reading", numbers
    )
    thousands = lines_verdict([check_lines([line(dict(ROW), by_columns=True)] * 2000)], stored=2000)
    assert thousands.summary == "2,000 lines are those of their rows, 2,000 also by a second reading"


LONG = "x" * 300


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (line(dict(ROW), None), "its row gives no line"),
        (line({**ROW, "prompt": "q"}), 'prompt is "q", its row gives "p"'),
        (line({**ROW, "gold": 2}), "gold is 2, its row gives 2.0"),
        (line({**ROW, "more": "é"}), 'more is "é", its row gives missing'),
        (line({"gold": 2.0, "prompt": "p"}, {"prompt": "p", "gold": 2.0}), "order of fields is missing, its row gives missing"),
        *(
            (line({"prompt": [message]}, {"prompt": [message]}), f"a message of the role 'user' has {fault}")
            for message, fault in (
                ({"role": "user", "content": "", "name": ""}, "an empty name"),
                ({"role": "user", "content": "q", "loss_weight": 0.5}, "a loss weight of 0.5, which says nothing"),
            )
        ),
        (line({"n": LONG}, {"n": LONG + "y"}), f'n is "{LONG[:199]}, its row gives "{LONG[:199]}'),
    ],
)
def test_a_line_that_differs(given: Line, says: str) -> None:
    verdict = lines_verdict([check_lines([line(dict(ROW)), given, given])], stored=3)
    numbers = {"lines_checked": 3, "lines_failed": 2, "lines_read_twice": 0}
    assert verdict == Verdict(False, f"2 of 3 lines differ from their rows; first a:0: {says}", numbers, Worst("a:0", says))


def test_lines_without_a_row() -> None:
    says = "2,000 lines are stored, 1,000 rows of the sources are theirs"
    numbers = {"lines_checked": 1000, "lines_failed": 0, "lines_read_twice": 0}
    assert lines_verdict([check_lines([line(dict(ROW))] * 1000)], stored=2000) == Verdict(False, says, numbers, Worst("index", says))
    wrong = lines_verdict([check_lines([line(dict(ROW), None)])], stored=2)
    assert wrong.worst == Worst("a:0", "its row gives no line")
    assert lines_verdict([check_lines([line(dict(ROW), None)] * 1000)], stored=1000).summary.startswith("1,000 of 1,000 lines differ")


def said(text: object, role: str = "assistant", **more: object) -> list[dict[str, object]]:
    return [{"role": role, "content": text, **more}]


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ({"prompt": said("p", "user"), "completion": said("c"), "label": True}, True),
        ({"prompt": said("p", "user"), "responses": [said("a"), said("b")], "rewards": [1.0, 0.0]}, True),
        ({"prompt": said("p", "user"), "responses": [said("a"), said("b", "tool")]}, False),
        ({"prompt": said("p", "user"), "chosen": said("a", loss_weight=0), "rejected": said("b")}, False),
        ({"prompt": said("p", "system"), "chosen": said("a"), "rejected": said("b")}, False),
        ({"prompt": said("p", "user"), "chosen": said("a"), "rejected": said([])}, False),
        ({"prompt": said("s", "user") + said("p", "user"), "completion": said("c")}, False),
        ({"prompt": said("p", "user"), "completion": said("c"), "tools": []}, False),
        ({"prompt": said("p", "user"), "completion": said("c"), "chat_template_kwargs": {}}, False),
    ],
)
def test_messages_that_strings_would_hold(line: dict[str, Any], fits: bool) -> None:
    assert fits_strings(line) is fits
