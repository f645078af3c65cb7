"""One reading of the sources for all checks that derive a store anew: who is given what, and whose fault is whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.checks import of_stores as verification
from prep_assets.checks.of_stores import Selection, outcomes, read_by
from prep_assets.graph.graph import EVERY, run_check, store_of
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.arrays import ahead
from prep_assets_tests.graph.workspaces import build_all, domain, jsonl, minimal


def faulty(count: int) -> Iterator[int]:
    yield from range(count)
    raise OSError("the disk")


def first_two(items: Iterator[int]) -> list[int]:
    return [next(items), next(items)]


def in_a_thread(items: Iterator[int]) -> int:
    with closing(ahead(items)) as made:
        return sum(made)


def broken(items: Iterator[int]) -> int:
    raise ValueError(f"after {next(items)}")


def unread(items: Iterator[int]) -> str:
    return "nothing"


@pytest.mark.parametrize(
    ("reader", "found"),
    [(list, [0, 1, 2, 3]), (sum, 6), (first_two, [0, 1]), (in_a_thread, 6), (unread, "nothing"), (broken, "after 0")],
    ids=["all", "sum", "early", "thread", "none", "broken"],
)
def test_each_reader_is_given_all_items_whatever_the_others_do(reader: Callable[[Iterator[int]], Any], found: Any) -> None:
    made: list[int] = []
    items = (made.append(each) or each for each in range(4))  # type: ignore[func-returns-value]
    results = read_by(items, [broken, reader, list])
    assert made == [0, 1, 2, 3] and results[2] == made
    assert (str(results[1]) if isinstance(results[1], Exception) else results[1]) == found


def test_what_stops_the_items_is_told_to_those_who_want_more() -> None:
    results = read_by(faulty(3), [list, first_two, in_a_thread])
    assert isinstance(results[0], OSError) and results == [results[0], [0, 1], results[0]]


def test_readers_never_work_at_the_same_time() -> None:
    busy: list[str] = []

    def work() -> bool:
        assert not busy
        busy.append("here")
        done = sum(range(20_000)) > 0
        busy.pop()
        return done

    def reader(items: Iterator[int]) -> int:
        count = sum(work() for _ in items)
        work()  # nor after the last item
        return count

    assert read_by(iter(range(50)), [reader] * 4) == [50] * 4


def test_what_stops_selection_fails_no_other_check(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(20)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "p"]
    store = store_of(workspace, published)

    def stopped(self: Selection) -> Iterator[Any]:
        yield from ()
        raise ValueError("no ledger")

    names = {"source_match", "selection"}
    assert all(isinstance(each, Verdict) and each.passed for each in outcomes(store, names).values())
    monkeypatch.setattr(Selection, "blocks", stopped)
    found = outcomes(store, names)
    assert str(found["selection"]) == "no ledger" and found["source_match"] == outcomes(store, {"source_match"})["source_match"]
    assert isinstance(found["source_match"], Verdict) and found["source_match"].passed
    asked = replace(published, evidence=dict.fromkeys(names))
    said = {check.name: run_check(check, workspace, asked) for check in EVERY["preferences_by_domain"].checks if check.derived}
    assert said["selection"].summary == "the store cannot be read (ValueError: no ledger)" and said["source_match"].passed
    monkeypatch.setattr(verification, "outcomes", None)  # what is known is not found out again
    assert all(run_check(check, workspace, asked) == said[check.name] for check in EVERY["preferences_by_domain"].checks if check.derived)
