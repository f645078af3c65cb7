"""What is kept, what is refused and why, and on which side of a split it lands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.lines import open_lines
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, minimal, refusals


def chat(user: str, answer: str, system: str = "") -> dict[str, Any]:
    start = [{"role": "system", "content": system}] if system else []
    return {"messages": [*start, {"role": "user", "content": user}, {"role": "assistant", "content": answer}]}


def tokens_of(workspace: Workspace, partition: str = "a") -> Published:
    build(workspace, "sft_raw", partition)
    published = build(workspace, "sft_tokens", partition)
    assert failing(workspace, published) == []
    return published


def origins(published: Published, stream: str) -> list[tuple[int, int]]:
    store = open_tokens(published.directory, stream)
    return list(zip(store.file.tolist(), store.row.tolist(), strict=True))


def test_chats_that_share_a_long_system_prompt_all_stay_and_only_exact_duplicates_go(make: Make, tmp_path: Path) -> None:
    system = "You are a patient teacher. " * 40
    rows = [chat(f"Question {i}?", f"Answer {i}.", system) for i in range(100)]
    rows[50:50] = [rows[7], chat("Question 7?", "Answer 7!", system), dict(reversed({**rows[3], "tag": 1}.items()))]
    rows += [{**rows[3], "tag": 1}, rows[0]]
    published = tokens_of(make(minimal("sft", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "messages", ignore=["tag"])})))
    assert [(r.id, r.stage, r.reason, r.detail) for r in refusals(published)] == [
        ("a.jsonl:50", "deduplicate", "duplicate", "equals a.jsonl:7"),
        ("a.jsonl:103", "deduplicate", "duplicate", "equals a.jsonl:52"),
        ("a.jsonl:104", "deduplicate", "duplicate", "equals a.jsonl:0"),
    ]
    assert published.manifest.counts["kept"] == 102


def test_without_deduplication_everything_stays(make: Make, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", [chat("q", "a")] * 5)
    published = tokens_of(make(minimal("sft", {"a": domain(file, "messages")}, preprocessing={"deduplicate": False})))
    assert (published.manifest.counts["kept"], refusals(published)) == (5, [])


def test_duplicates_are_found_across_the_files_of_a_domain_and_not_across_domains(make: Make, tmp_path: Path) -> None:
    jsonl(tmp_path / "x.jsonl", [chat("q", "a"), chat("r", "b")])
    jsonl(tmp_path / "y.jsonl", [chat("r", "b"), chat("s", "c")])
    both = {"files": [str(tmp_path / "y.jsonl"), str(tmp_path / "x.jsonl")], "schema": "messages"}
    workspace = make(minimal("sft", {"a": both, "b": domain(tmp_path / "x.jsonl", "messages")}))
    first, second = tokens_of(workspace), tokens_of(workspace, "b")
    assert [(r.id, r.detail) for r in refusals(first)] == [("y.jsonl:0", "equals x.jsonl:1")]
    assert refusals(second) == []


@pytest.mark.parametrize("limit", [1, 3, 10, 1000])
def test_max_items_takes_the_first_records_over_all_files(make: Make, tmp_path: Path, limit: int) -> None:
    files = [str(jsonl(tmp_path / f"{name}.jsonl", [chat(f"{name}{i}", "a") for i in range(4)])) for name in "xyz"]
    published = tokens_of(make(minimal("sft", {"a": {"files": files, "schema": "messages", "max_items": limit}})))
    assert origins(published, "train") == [(i // 4, i % 4) for i in range(min(limit, 12))]
    assert published.manifest.counts["read"] == min(limit, 12)


@pytest.mark.parametrize("limit", [1, 4, 6, 7, 1000])
@pytest.mark.parametrize("name", ["sft", "pretrain"])
def test_max_items_counts_what_where_lets_through(make: Make, tmp_path: Path, limit: int, name: str) -> None:
    rows = [{**chat(f"q{i}", "a"), "text": f"t{i}", "n": i, "language": "en" if i % 3 == 2 else "de"} for i in range(20)]
    rows[8] = rows[5]  # a duplicate counts
    rows[11] = {**rows[11], "n": "eleven"}  # a type that where cannot compare does not
    files = [str(jsonl(tmp_path / f"{part}.jsonl", rows[at : at + 7])) for part, at in (("x", 0), ("y", 7), ("z", 14))]
    schema, other = ("messages", "text") if name == "sft" else ("text", "messages")
    where = {"language": "en", "n": {">=": 0}}
    workspace = make(minimal(name, {"a": {"files": files, "schema": schema, "where": where, "max_items": limit, "ignore": [other]}}))
    build(workspace, f"{name}_raw", "a")
    published = build(workspace, f"{name}_tokens", "a")
    passing = [i for i, row in enumerate(rows) if row["language"] == "en" and row["n"] != "eleven"]
    taken = passing[:limit]
    counts = published.manifest.counts
    (stream,) = (path.stem for path in published.directory.glob("*.index"))
    assert origins(published, stream) == [(i // 7, i % 7) for i in taken if i != 8]
    assert counts["read"] == (taken[-1] + 1 if limit <= len(passing) else len(rows))
    missed = sum(counts["refused"].get(f"records/{reason}", 0) for reason in ("filtered_by_where", "where_wrong_type"))
    assert missed == counts["read"] - len(taken)
    assert failing(workspace, published) == []


def test_where_refuses_the_others_and_counts_them(make: Make, tmp_path: Path) -> None:
    rows = [{**chat(f"q{i}", "a"), "language": "en" if i % 3 else "de"} for i in range(10)]
    file = jsonl(tmp_path / "a.jsonl", rows)
    published = tokens_of(make(minimal("sft", {"a": domain(file, "messages", where={"language": "en"})})))
    assert [row for _, row in origins(published, "train")] == [i for i in range(10) if i % 3]
    assert dict(published.manifest.counts["refused"]) == {"records/filtered_by_where": 4}


def test_test_files_are_held_out_whole_and_max_items_does_not_touch_them(make: Make, tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", [chat(f"q{i}", "a") for i in range(6)])
    test = jsonl(tmp_path / "test.jsonl", [chat(f"t{i}", "a") for i in range(5)] + [chat("q0", "a")])
    workspace = make(minimal("sft", {"a": domain(train, "messages", test_files=[str(test)], max_items=3)}))
    published = tokens_of(workspace)
    assert origins(published, "train") == [(0, 0), (0, 1), (0, 2)]
    assert origins(published, "dev") == [(1, i) for i in range(5)]
    assert [(r.id, r.detail) for r in refusals(published)] == [("test.jsonl:5", "equals train.jsonl:0")], "no test record is trained on"


def test_preference_limits_do_not_touch_test_files(make: Make, tmp_path: Path) -> None:
    def pairs(name: str, count: int) -> Path:
        return jsonl(tmp_path / f"{name}.jsonl", [{"prompt": f"{name} {i}?", "chosen": "yes", "rejected": "no"} for i in range(count)])

    held = {"test_files": [str(pairs("held", 7))]}
    domains = {"a": domain(pairs("a", 9), "preference", max_items=2, **held), "b": domain(pairs("b", 9), "preference")}
    workspace = make(minimal("preference", domains, max_per_source=4, test_fraction=0.0))
    published = build_all(workspace, ["preference"])["preferences", ""]
    train, test = (sorted(row["prompt"] for row in open_lines(published.directory, name)) for name in ("preferences", "preferences_test"))
    assert train == ["a 0?", "a 1?", "b 0?", "b 1?", "b 2?", "b 3?"]
    assert test == [f"held {i}?" for i in range(7)]
    assert failing(workspace, published) == []


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_the_same_record_is_never_on_both_sides_of_a_fraction(make: Make, tmp_path: Path, fraction: float) -> None:
    """Equal records in one domain, in two domains, and twice over without deduplication all go the same way."""
    rows = [chat(f"Question {i}?", f"Answer {i}.") for i in range(200)]
    one, two = jsonl(tmp_path / "one.jsonl", rows + rows[:50]), jsonl(tmp_path / "two.jsonl", rows[::-1])
    domains = {"a": domain(one, "messages"), "b": domain(two, "messages")}
    workspace = make(minimal("sft", domains, test_fraction=fraction, preprocessing={"deduplicate": False}))
    sides: dict[str, set[str]] = {"train": set(), "dev": set()}
    for name, content in (("a", rows + rows[:50]), ("b", rows[::-1])):
        published = tokens_of(workspace, name)
        for side, seen in sides.items():
            seen |= {content[row]["messages"][0]["content"] for _, row in origins(published, side)}
    assert sides["train"].isdisjoint(sides["dev"])
    assert len(sides["train"]) + len(sides["dev"]) == 200
    assert abs(len(sides["dev"]) / 200 - fraction) < 0.15


def test_pretraining_splits_by_text_whatever_else_the_record_says(make: Make, tmp_path: Path) -> None:
    rows = [{"text": f"Document {i % 60}.", "id": i} for i in range(120)]
    workspace = make(minimal("pretrain", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "text")}, test_fraction=0.4))
    published = build_all(workspace, ["pretrain"])["pretrain_tokens", "a"]
    train, dev = ({row % 60 for _, row in origins(published, f"a_{side}")} for side in ("train", "dev"))
    assert train.isdisjoint(dev) and len(train) + len(dev) == 60 and dev
    assert published.manifest.counts["kept"] == 120, "they differ in a field, so none is a duplicate"


def test_a_prompt_is_held_out_with_all_its_pairs(make: Make, tmp_path: Path) -> None:
    rows = [{"prompt": f"Prompt {i % 40}?", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(120)]
    workspace = make(minimal("preference", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "preference")}, test_fraction=0.3))
    published = build_all(workspace, ["preference"])["preferences", ""]
    train, test = (list(open_lines(published.directory, name)) for name in ("preferences", "preferences_test"))
    assert {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in test)
    assert len(train) + len(test) == 120 and test
    assert failing(workspace, published) == []


def test_every_document_length_limit_refuses_with_its_numbers(make: Make, tmp_path: Path) -> None:
    rows = [{"text": "x"}, {"text": "a word or two"}, {"text": "word " * 40}, {"text": "y" * 5000}]
    limits = {"min_chars": 2, "max_chars": 1000, "max_seq_len": 20}
    workspace = make(minimal("pretrain", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "text")}, preprocessing=limits))
    published = build_all(workspace, ["pretrain"])["pretrain_tokens", "a"]
    found = {r.id: (r.stage, r.reason, r.detail) for r in refusals(published)}
    assert found["a.jsonl:0"] == ("pretrain", "too_short", "1 characters, min_chars is 2 and a document needs a word")
    assert found["a.jsonl:2"][:2] == ("tokenize", "too_long") and found["a.jsonl:2"][2].endswith("max_seq_len is 20")
    assert found["a.jsonl:3"] == ("pretrain", "too_many_chars", "5,000 characters, max_chars is 1,000")
    assert published.manifest.counts["kept"] == 1
