"""Labelled answers (KTO): a file of their own beside the pairs, in TRL's form; never trained as if all were good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets.engine import state
from prep_assets.graph.graph import EVERY
from prep_assets.proofs.rows import check_pairs
from prep_assets.stores.lines import open_lines
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, minimal, refusals, resealed, verdicts

ROWS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": f"Q{i}?"}, {"role": "assistant", "content": f"A{i}."}], "label": i % 3 > 0} for i in range(40)
]
PAIRS = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(10)]


def domains(tmp_path: Path, rows: list[dict[str, Any]] = ROWS) -> dict[str, Any]:
    return {
        "labelled": domain(jsonl(tmp_path / "kto.jsonl", rows), "kto"),
        "pairs": domain(jsonl(tmp_path / "p.jsonl", PAIRS), "preference"),
    }


@pytest.mark.parametrize("storage_format", ["bin", "h5"])
@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_only_labelled_answers(make: Any, tmp_path: Path, storage_format: str, fraction: float) -> None:
    labelled = {"labelled": domains(tmp_path)["labelled"]}
    output = {"storage_format": storage_format}
    workspace = make(minimal("preference", labelled, test_fraction=fraction, output=output))
    stores = build_all(workspace, ["preference"])
    assert stores["preference_tokens", ""].manifest.counts["read"] == 0
    for name in ("preferences", "preference_tokens"):
        assert failing(workspace, stores[name, ""]) == []
        assert state(workspace, EVERY[name], "") == "current"


def said(row: dict[str, Any]) -> tuple[str, str, bool]:
    return row["messages"][0]["content"], row["messages"][1]["content"], row["label"]


@pytest.mark.parametrize("form", ["text", "messages"])
def test_labelled_answers_stand_beside_the_pairs(make: Any, tmp_path: Path, form: str) -> None:
    workspace = make(minimal("preference", domains(tmp_path), test_fraction=0.3, form=form))
    stores = build_all(workspace, ["preference"])
    published = stores["preferences", ""]
    rows = {name: list(open_lines(published.directory, name)) for name in ("unpaired", "unpaired_test", "preferences", "preferences_test")}
    found = rows["unpaired"] + rows["unpaired_test"]
    assert all(list(row) == ["prompt", "completion", "label"] for row in found)
    plain = [
        tuple(part if isinstance(part, str | bool) else part[0]["content"] for part in (row["prompt"], row["completion"], row["label"]))
        for row in found
    ]
    assert sorted(plain) == sorted(map(said, ROWS))
    assert len(rows["preferences"]) + len(rows["preferences_test"]) == 10
    counts = published.manifest.counts
    assert (counts["read"], counts["kept"]) == (50, 50)
    assert (counts["unpaired_train"], counts["unpaired_test"]) == (len(rows["unpaired"]), len(rows["unpaired_test"]))
    assert counts["unpaired_test"] > 0
    assert failing(workspace, published) == []
    assert "40 labelled answers are sound, 26 of them desirable" in verdicts(workspace, published)["pair_sanity"].summary
    assert stores["preference_tokens", ""].manifest.counts["kept"] == 10
    assert failing(workspace, stores["preference_tokens", ""]) == []


def test_the_training_file_is_shuffled_and_each_line_leads_back(make: Any, tmp_path: Path) -> None:
    workspace = make(minimal("preference", domains(tmp_path), test_fraction=0.0))
    published = build_all(workspace, ["preference"])["preferences", ""]
    lines = open_lines(published.directory, "unpaired")
    order = lines.index["row"].tolist()
    assert sorted(order) == list(range(40)) != order
    assert [(row["prompt"], row["completion"], row["label"]) for row in lines] == [said(ROWS[row]) for row in order]


def test_without_labels_there_is_no_such_file(make: Any, tmp_path: Path) -> None:
    workspace = make(minimal("preference", {"pairs": domains(tmp_path)["pairs"]}))
    published = build_all(workspace, ["preference"])["preferences", ""]
    assert not list(published.directory.glob("unpaired*"))
    assert not [key for key in published.manifest.counts if key.startswith("unpaired")]


def test_an_empty_prompt_or_answer_is_refused(make: Any, tmp_path: Path) -> None:
    bad = [
        {"prompt": " ", "completion": "A.", "label": True},
        {"prompt": "Q?", "completion": " ", "label": True},
        {"messages": [{"role": "assistant", "content": "A."}], "label": False},
    ]
    workspace = make(minimal("preference", domains(tmp_path, [*ROWS, *bad])))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "labelled"]
    assert {each.id: each.reason for each in refusals(published)} == {
        "kto.jsonl:40": "empty_prompt",
        "kto.jsonl:41": "empty_answer",
        "kto.jsonl:42": "empty_prompt",
    }
    assert failing(workspace, published) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"label": None}, "label is None"),
        ({"label": 1}, "label is 1"),
        ({"completion": " "}, "completion is empty"),
        ({"prompt": [{"role": "user", "content": "Q?"}]}, "mixed"),
    ],
)
def test_a_spoilt_row_fails_the_check(make: Any, tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    workspace = make(minimal("preference", domains(tmp_path), test_fraction=0.0))
    published = build_all(workspace, ["preference"])["preferences", ""]
    path = published.directory / "unpaired.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), **change}), *rest]) + "\n")
    verdict = verdicts(workspace, resealed(published))["pair_sanity"]
    assert not verdict.passed
    assert fault in verdict.summary


def test_a_prompt_in_both_is_noticed_across_pairs_and_labels() -> None:
    pair, labelled = {"prompt": "Q?", "chosen": "a", "rejected": "b"}, {"prompt": "Q?", "completion": "a", "label": True}
    assert check_pairs([pair], [], [labelled], []).passed
    assert not check_pairs([pair], [], [], [labelled]).passed
    assert not check_pairs([], [pair], [labelled], []).passed


def test_sft_never_learns_an_undesirable_answer(make: Any, tmp_path: Path) -> None:
    workspace = make(minimal("sft", {"labelled": domains(tmp_path)["labelled"]}))
    build(workspace, "sft_raw", "labelled")
    published = build(workspace, "sft_tokens", "labelled")
    bad = [f"kto.jsonl:{i}" for i, row in enumerate(ROWS) if not row["label"]]
    assert [(each.id, each.reason) for each in refusals(published)] == [(record, "undesirable") for record in bad]
    assert published.manifest.counts["kept"] == 40 - len(bad)
    assert failing(workspace, published) == []
