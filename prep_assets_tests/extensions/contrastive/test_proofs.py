"""Each way in which a contrastive row is not sound, in the words of the verdict; rows that no definition rejects."""

from __future__ import annotations

from typing import Any

from prep_assets.extensions.contrastive.proofs.rows import check_contrasts
from prep_assets.extensions.contrastive.proofs.rules import several_fields
from prep_assets.proofs.formats import format_of
from prep_assets.proofs.verdict import Verdict

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


def test_several_rows_of_a_kind_are_counted() -> None:
    alone, whole = (
        {"query": "q", "positives": ["a"], "negatives": []},
        {**RIGHT, "instruction": "", "positive_scores": [1.0, 0.5], "negative_scores": [0.0]},
    )
    assert check_contrasts([alone, {**alone, "query": "r"}, whole], []).numbers["rows_without_negatives"] == 2
    verdict = check_contrasts([whole, {"query": "t"}, {"query": " "}], [])
    assert verdict.numbers["rows_failed"] == 2 and verdict.worst is not None and verdict.worst.note.endswith('{"query": "t"}')


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


def test_two_spellings_of_one_field() -> None:
    found = format_of("contrastive", {})
    assert found is not None
    assert several_fields({"query": "q", "anchor": "a", "pos": ["p"]}, found) and several_fields(
        {"query": "q", "pos": 1, "positives": 2}, found
    )
    assert not several_fields({"query": "q", "anchor": None, "pos": ["p"], "neg": "n", "negatives": "n"}, found)
    named = format_of("contrastive", {"query_key": "query"})
    assert named is not None and not several_fields({"query": "q", "anchor": "a", "pos": ["p"]}, named)
