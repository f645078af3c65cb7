"""`expand: turns`: a conversation whose reasoning would be left out of history becomes one example for each answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Sft
from prep_assets.errors import ConfigError, TemplateError
from prep_assets.graph.graph import store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, resealed, workspace_in


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, thought: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {}), **more}


CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}
CHAT = [user("Q1"), answer("A1", "T1"), user("Q2"), answer("A2"), user("Q3"), answer("<think>T3</think>A3"), user("Q4"), answer("A4", "T4")]
STEPS = [user("Q1"), answer("", "T1", **CALL), {"role": "tool", "content": "R1"}, answer("A1", "T2")]
PLAIN = [user("Q1"), answer("A1"), user("Q2"), answer("A2")]


def sft(folder: Path, chats: list[Any], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    data = domain(jsonl(folder / "rows.jsonl", [{"messages": chat} for chat in chats]), "messages")
    chosen = {"template": "qwen3", "expand": "turns", "packing": {"row_len": 256}, **options}
    workspace = workspace_in(folder, minimal("sft", {"rows": data}, **chosen))
    build(workspace, "sft_raw", "rows")
    return workspace, build(workspace, "sft_tokens", "rows")


def records(workspace: Workspace, published: Published, stream: str = "train") -> list[tuple[int, str, str]]:
    """Source row, what is masked before the first trained token, and what is trained of each record."""
    store, decode = open_tokens(published.directory, stream), workspace.vocabulary(workspace.family(Sft)).backend.decode
    found = []
    for i in range(len(store)):
        ids, trained = np.asarray(store.record(i, "tokens")), np.asarray(store.record(i, "loss_mask")) != 0
        first = int(trained.argmax())
        found.append((int(store.row[i]), *(decode(part.tolist(), skip_special_tokens=False) for part in (ids[:first], ids[trained]))))
    return found


def test_each_answer_is_trained_once_with_its_reasoning_before_history_as_a_model_sees_it(tmp_path: Path) -> None:
    """Reasoning of all answers but the last was left out of what is trained, and nothing said so."""
    workspace, published = sft(tmp_path, [CHAT])
    found = records(workspace, published)
    assert [trained for _, _, trained in found] == [
        "<think>\nT1\n</think>\n\nA1<|im_end|>",
        "<think>\n\n</think>\n\nA2<|im_end|>",
        "<think>\nT3\n</think>\n\nA3<|im_end|>",
        "<think>\nT4\n</think>\n\nA4<|im_end|>",
    ]
    history = ("user\nQ1", "assistant\nA1", "user\nQ2", "assistant\nA2", "user\nQ3")
    assert found[2][1] == "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in history) + "<|im_start|>assistant\n"
    counts = published.manifest.counts
    assert (counts["read"], counts["kept"], counts["examples"]) == (1, 1, 4)
    assert "reasoning_dropped_by_template" not in counts
    assert failing(workspace, published) == []
    assert failing(workspace, build(workspace, "sft_packed")) == []


def test_without_it_the_loss_of_reasoning_is_counted(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, [CHAT, STEPS, PLAIN], expand="none")
    assert published.manifest.counts["reasoning_dropped_by_template"] == 2
    assert len(records(workspace, published)) == 3
    assert failing(workspace, published) == []


def test_where_nothing_is_lost_a_record_stays_one(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, [STEPS, PLAIN, CHAT])
    assert [row for row, _, _ in records(workspace, published)] == [0, 1, 2, 2, 2, 2]
    assert failing(workspace, published) == []


def test_a_record_stays_on_one_side_of_the_split_and_leads_back_to_its_row(tmp_path: Path) -> None:
    chats = [[user(f"Q{i}"), answer("A1", "T1"), user("Q2"), answer("A2", "T2")] for i in range(40)]
    workspace, published = sft(tmp_path, [*chats, chats[0]], test_fraction=0.3)
    sides = [[row for row, _, _ in records(workspace, published, stream)] for stream in ("train", "dev")]
    assert all(side == sorted(side) and all(side.count(row) == 2 for row in side) for side in sides)
    assert set(sides[0]).isdisjoint(sides[1]) and sorted({*sides[0], *sides[1]}) == list(range(40))
    counts = published.manifest.counts
    assert (counts["read"], counts["kept"], counts["kept_dev"], counts["examples"]) == (41, 40, len(set(sides[1])), 80)
    assert counts["refused"] == {"deduplicate/duplicate": 1}
    assert failing(workspace, published) == []
    assert f"from rows/rows.jsonl:{sides[0][0]}, answer 2 of 2" in store_of(workspace, published).preview(1, stream="train").title  # type: ignore[union-attr]


def test_a_record_is_refused_as_a_whole_and_once(tmp_path: Path) -> None:
    long = [user("Q1"), answer("A1", "T1"), user("word " * 300), answer("A2", "T2"), user("Q3"), answer("A3", "T3")]
    workspace, published = sft(tmp_path, [CHAT, long], preprocessing={"max_seq_len": 200})
    assert [(each.id, each.reason) for each in refusals(published)] == [("rows.jsonl:1", "too_long")]
    assert [row for row, _, _ in records(workspace, published)] == [0] * 4
    assert (published.manifest.counts["kept"], published.manifest.counts["examples"]) == (1, 4)
    assert failing(workspace, published) == []


@pytest.mark.parametrize("truncation", ["turns", "start"])
def test_examples_are_shortened_one_by_one(tmp_path: Path, truncation: str) -> None:
    workspace, published = sft(tmp_path, [CHAT], preprocessing={"max_seq_len": 48}, truncation=truncation)
    assert [trained[-11:] for _, _, trained in records(workspace, published)] == [f"A{i}<|im_end|>"[-11:] for i in range(1, 5)]
    assert failing(workspace, published) == []


def test_weights_of_the_data_say_which_answers_there_are(tmp_path: Path) -> None:
    chat = [user("Q1"), answer("A1", "T1"), user("Q2"), answer("A2", "T2", loss_weight=0), user("Q3"), answer("A3", "T3")]
    workspace, published = sft(tmp_path, [chat])
    assert [trained.count("T") for _, _, trained in records(workspace, published)] == [1, 1]
    assert "A2" in records(workspace, published)[1][1]
    assert failing(workspace, published) == []


@pytest.mark.parametrize("after", [[user("Q2")], [user("Q2"), answer("A2", "T2", weight=0)]])
def test_what_follows_the_last_trained_answer_does_not_take_its_reasoning(tmp_path: Path, after: list[dict[str, Any]]) -> None:
    """The answer was trained without its thought, and no check noticed."""
    workspace, published = sft(tmp_path, [[user("Q1"), answer("A1", "T1"), *after]])
    assert [(trained.count("T1"), trained.count("A1")) for _, _, trained in records(workspace, published)] == [(1, 1)]
    assert failing(workspace, published) == []


def test_a_store_that_lacks_an_answer_fails(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, [CHAT, CHAT[2:]])
    index = published.directory / "train.index" / "row.npy"
    rows = np.load(index)
    rows[3] = 1  # an answer moves to the next record
    np.save(index, rows)
    assert "mask_alignment" in failing(workspace, resealed(published))


def test_what_it_cannot_go_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expand.*train_turns: all"):
        sft(tmp_path / "a", [CHAT], train_turns="last")
    with pytest.raises(ConfigError, match=r"expand.*train_on_eos: turn"):
        sft(tmp_path / "b", [CHAT], train_on_eos="all")
    with pytest.raises(ConfigError, match=r"expand.*truncation: turns"):
        sft(tmp_path / "d", [CHAT], truncation="end")
    with pytest.raises(TemplateError, match="expand: turns is about reasoning, and template chatml writes none"):
        sft(tmp_path / "c", [PLAIN], template="chatml")
