"""Contrastive rows: each way in which one is not sound, in the words of the verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prep_assets.proofs.rows import check_contrasts
from prep_assets.proofs.verdict import Verdict, Worst

RIGHT: dict[str, Any] = {"query": "q", "positives": ["a", "b"], "negatives": ["c"]}


def test_sound_rows() -> None:
    others = [
        RIGHT,
        {"query": "r", "positives": ["a"], "negatives": [], "instruction": "Find", "positive_scores": [1.0]},
        {"query": "t", "id": 1},
    ]
    numbers = {"rows_checked": 4, "rows_failed": 0, "positives": 3, "negatives": 1, "rows_without_negatives": 1}
    verdict = check_contrasts(others, [{"query": "t2", "id": 2}])
    assert verdict == Verdict(True, "4 rows are sound: 3 positive and 1 negative texts", numbers)
    assert check_contrasts([], []).passed


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({**RIGHT, "query": " "}, "the query is empty"),
        ({**RIGHT, "query": 3}, "the query is empty"),
        (
            {"query": "q", "positives": ["a"]},
            "fields ['query', 'positives'], needs query, positives and negatives, and may have instruction, negative_scores, positive_scores: ",
        ),
        ({**RIGHT, "more": 1}, "fields ['query', 'positives', 'negatives', 'more'], needs"),
        ({**RIGHT, "positives": []}, "there is no positive text"),
        ({**RIGHT, "positives": ["a", " "]}, "positives hold an empty text"),
        ({**RIGHT, "negatives": [3]}, "negatives hold an empty text"),
        ({**RIGHT, "negatives": ["b "]}, "negatives hold 'b ', which is one of positives as well"),
        ({**RIGHT, "negatives": ["c", "c"]}, "negatives hold 'c', which is one of negatives as well"),
        ({**RIGHT, "positives": ["q"]}, "positives hold 'q', which is one of the query as well"),
        ({**RIGHT, "positive_scores": [1.0]}, "1 scores for 2 positives"),
        ({**RIGHT, "negative_scores": [1.0, 2.0]}, "2 scores for 1 negatives"),
        ({"query": "q", "id": "1"}, "fields ['query', 'id'], a text to embed has query and id"),
        ({"query": "q", "id": 1, "negatives": []}, "fields ['query', 'id', 'negatives'], a text to embed has query and id"),
    ],
)
def test_rows_that_are_not_sound(row: dict[str, Any], says: str) -> None:
    verdict = check_contrasts([{"query": "z", "positives": ["a"], "negatives": []}, row], [])
    assert not verdict.passed and verdict.worst is not None
    assert verdict.worst.where == "train line 2"
    assert verdict.worst.note.startswith(says)
    assert verdict.summary.startswith("1 of 2 rows fail; first train line 2: ")


def test_a_query_on_both_sides_and_an_id_given_twice() -> None:
    both = check_contrasts([RIGHT], [RIGHT])
    assert (
        both.worst is not None
        and both.worst.where == "test line 1"
        and both.worst.note.startswith("its query is in the training file as well")
    )
    twice = check_contrasts([{"query": "a", "id": 1}], [{"query": "b", "id": 1}])
    assert twice.worst is not None and twice.worst.note.startswith("the id 1 was given to another text before")
    assert check_contrasts([RIGHT, RIGHT], []).passed


def test_what_is_said_of_rows_that_fail() -> None:
    wrong = {**RIGHT, "negatives": ["é"], "instruction": "", "positive_scores": [1, 2], "negative_scores": []}
    note = "0 scores for 1 negatives: " + json.dumps(wrong, ensure_ascii=False)
    numbers = {"rows_checked": 1503, "rows_failed": 1500, "positives": 6, "negatives": 0, "rows_without_negatives": 3}
    rows = [{**RIGHT, "negatives": []}] * 3 + [wrong] * 1500
    worst = Worst("train line 4", note)
    assert check_contrasts(rows, []) == Verdict(False, f"1,500 of 1,503 rows fail; first train line 4: {note}", numbers, worst)
    late = check_contrasts([RIGHT] * 1000 + [{"query": ""}], [])
    assert late.worst is not None and late.worst.where == "train line 1,001"
    assert check_contrasts([RIGHT] * 2000, []).summary == "2,000 rows are sound: 4,000 positive and 2,000 negative texts"
    every = {**RIGHT, "instruction": "", "positive_scores": [1, 2], "negative_scores": [1]}
    assert check_contrasts([every], []).passed
