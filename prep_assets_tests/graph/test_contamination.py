"""Decontamination: planted passages of benchmarks are refused, in every family, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import Refused, SourceError
from prep_assets.pipeline.sources import Benchmarks
from prep_assets.proofs.selection import Passages
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, workspace_in

QUESTION = "A farmer has seven hens and each of them lays three eggs on every second day of the week"
SAID = "My homework: a FARMER has seven hens, and each of them lays three eggs (on every second day)!"


def rows(family: str) -> list[dict[str, Any]]:
    """One clean row and one that holds the question, as the family's schema reads them."""
    clean = "Nothing here is from a test set, whatever it may look like at first sight to those who read it."
    made = {
        "pretrain": lambda text: {"text": text},
        "sft": lambda text: {"instruction": text, "output": "Yes."},
        "preference": lambda text: {"prompt": text, "chosen": "Yes.", "rejected": "No."},
        "rl": lambda text: {"question": text, "answer": "#### 4"},
    }[family]
    return [made(clean), made(SAID)]


@pytest.mark.parametrize(
    ("family", "schema", "asset", "partition"),
    [
        ("pretrain", "text", "pretrain_tokens", "a"),
        ("sft", "alpaca", "sft_tokens", "a"),
        ("preference", "preference", "preferences_by_domain", "a"),
        ("rl", "gsm8k", "rl_prompts_by_domain", "a"),
    ],
)
def test_a_planted_question_is_refused(tmp_path: Path, family: str, schema: str, asset: str, partition: str) -> None:
    jsonl(tmp_path / "bench.jsonl", [{"question": QUESTION, "choices": ["21", "22"]}])
    source = jsonl(tmp_path / "a.jsonl", rows(family))
    more = {"arithmetic": {"n": 5}} if family == "rl" else {"test_fraction": 0.0} if family == "preference" else {}
    options = {"decontaminate": {"files": [str(tmp_path / "bench.jsonl")]}, "engine": "reference", **more}
    workspace = workspace_in(tmp_path, minimal(family, {"a": domain(source, schema)}, **options))
    build(workspace, f"{family}_raw", "a")
    found = refusals(build(workspace, asset, partition))
    assert [(each.id, each.stage, each.reason) for each in found] == [(found[0].id, "decontaminate", "contaminated")]
    assert found[0].id.endswith("a.jsonl:1") and "bench.jsonl:0" in found[0].detail


def test_another_benchmark_makes_the_store_stale(tmp_path: Path) -> None:
    jsonl(tmp_path / "bench.jsonl", [{"question": QUESTION}])
    source = jsonl(tmp_path / "a.jsonl", rows("sft"))
    options = {"decontaminate": {"files": [str(tmp_path / "bench.jsonl")]}, "engine": "reference"}
    workspace = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, **options))
    before = build(workspace, "sft_raw", "a").manifest.build_key
    jsonl(tmp_path / "bench.jsonl", [{"question": "something else"}])
    with pytest.raises(SourceError, match="benchmarks"):
        build(workspace, "sft_tokens", "a")
    assert build(workspace, "sft_raw", "a").manifest.build_key != before


def test_a_contaminated_row_that_is_kept_fails_the_check(tmp_path: Path) -> None:
    """The same sources, with a benchmark that the store knows nothing of: the second reading finds what it holds."""
    benchmark = jsonl(tmp_path / "bench.jsonl", [{"question": "nothing of the kind"}])
    source = jsonl(tmp_path / "a.jsonl", rows("sft"))
    options = {"decontaminate": {"files": [str(benchmark)]}, "engine": "reference"}
    workspace = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, **options))
    build(workspace, "sft_raw", "a")
    kept = build(workspace, "sft_tokens", "a")
    assert kept.manifest.counts["kept"] == 2 and failing(workspace, kept) == []
    jsonl(benchmark, [{"question": QUESTION}])
    again = workspace_in(tmp_path, minimal("sft", {"a": domain(source, "alpaca")}, **options))
    build(again, "sft_raw", "a")
    assert "selection" in failing(again, kept)


WORDS = st.lists(st.sampled_from(["a", "b", "C", "d"]), max_size=30)


@given(bench=st.lists(WORDS, max_size=4), row=WORDS, words=st.integers(8, 12))
def test_as_a_search_for_passages_finds_it(bench: list[list[str]], row: list[str], words: int) -> None:
    """The same by substrings of joined words."""
    benchmarks = Benchmarks(words)
    for number, each in enumerate(bench):
        benchmarks._add(", ".join(each), str(number))
    text = f" {' '.join(row).lower()} "
    passages = [
        " ".join(each[at : at + min(words, len(each))]).lower()
        for each in bench
        if len(each) >= 8
        for at in range(max(1, len(each) - words + 1))
    ]
    expected = any(f" {passage} " in text for passage in passages)
    try:
        benchmarks.check({"text": "; ".join(row)})
        found = False
    except Refused:
        found = True
    assert found == expected == Passages.of(([", ".join(each)] for each in bench), words).holds({"text": ["; ".join(row)]})
