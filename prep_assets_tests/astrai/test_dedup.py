from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from prep_assets.astrai.preprocess import prefix_signature
from prep_assets.records.quarantine import read_quarantine
from prep_assets_tests.astrai.conftest import Run, chat
from prep_assets_tests.astrai.pipelines import CHAT, SECTIONS_CHAT, changed

PROMPT = "a " * 116  # 232 characters


def test_astrais_signature_golden() -> None:
    assert prefix_signature({"text": "hello"}) == "0d1551c6d4f5a836e94de1b2b1aa2471"


def test_the_signature_takes_200_characters_of_sorted_json() -> None:
    assert prefix_signature({"b": "x", "a": "é"}) == prefix_signature({"a": "é", "b": "x"})
    text = '{"a": "' + "é" * 300
    assert prefix_signature({"a": "é" * 300}) == hashlib.md5(text[:200].encode()).hexdigest()
    assert prefix_signature({"a": "x" * 300}) == prefix_signature({"a": "x" * 300, "b": 1})


def test_exact_duplicates_are_refused_counted_and_listed_over_all_domains(run: Run, tmp_path: Path) -> None:
    first = chat(("user", "a"), ("assistant", "b"), source="x")
    reordered = dict(reversed(list(first.items())))
    outcome = run([first, chat(("user", "c"), ("assistant", "d"), source="y"), reordered], CHAT)
    assert outcome.counts.refused == {"deduplicate/duplicate": 1}
    (refusal,) = read_quarantine(tmp_path / "out" / "quarantine.jsonl")
    assert (refusal.id, refusal.reason, refusal.detail) == ("rows.jsonl:2", "duplicate", "equals rows.jsonl:0")


def test_a_long_system_prompt_makes_no_duplicates_but_does_in_prefix_mode(run: Run) -> None:
    rows = [chat(("system", PROMPT), ("user", letter), ("assistant", letter)) for letter in "abcdefgh"]
    assert run(rows, CHAT).counts.kept == 8
    assert run(rows, CHAT, dedup="prefix200", overwrite=True).counts.kept == 1


@pytest.mark.parametrize("dedup", [None, "none"])
def test_duplicates_stay_where_nothing_asks_otherwise(dedup: str | None, run: Run) -> None:
    rows = [chat(("user", "a"), ("assistant", "b"))] * 3
    pipeline = SECTIONS_CHAT if dedup is None else CHAT
    assert run(rows, pipeline, dedup=dedup).counts.kept == 3
    assert run(rows, changed(CHAT, preprocessing={"deduplicate": False}), overwrite=True).counts.kept == 3
    assert run(rows, SECTIONS_CHAT, dedup="exact", overwrite=True).counts.kept == 1
