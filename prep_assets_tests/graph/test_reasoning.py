"""Reasoning through the graph, with every check of the stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.config.models import Sft
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, workspace_in


def asked_and_answered(answer: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": answer, **fields}]}


def tokens_of(folder: Path, rows: list[dict[str, Any]], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    data = domain(jsonl(folder / "rows.jsonl", rows), "messages")
    workspace = workspace_in(folder, minimal("sft", {"rows": data}, **{"template": "qwen3", **options}))
    build(workspace, "sft_raw", "rows")
    published = build(workspace, "sft_tokens", "rows")
    assert failing(workspace, published) == []
    return workspace, published


def trained(workspace: Workspace, published: Published) -> list[str]:
    """What is trained of each record."""
    store, decode = open_tokens(published.directory, "train"), workspace.vocabulary(workspace.family(Sft)).backend.decode
    rows = ((np.asarray(store.record(i, "tokens")), np.asarray(store.record(i, "loss_mask"))) for i in range(len(store)))
    return [decode(ids[mask != 0].tolist(), skip_special_tokens=False) for ids, mask in rows]


def test_gsm8k_s_own_form_builds_with_a_template_that_writes_reasoning(tmp_path: Path) -> None:
    """Every row of it was refused: the template reads the block in the text itself."""
    workspace = workspace_in(tmp_path, minimal("sft", {"gsm8k": domain("gsm8k.jsonl", "gsm8k")}, template="qwen3"))
    build(workspace, "sft_raw", "gsm8k")
    published = build(workspace, "sft_tokens", "gsm8k")
    assert published.manifest.counts["refused"] == {}
    assert failing(workspace, published) == []
    assert trained(workspace, published)[0].startswith("<think>\n")


def test_a_block_in_the_text_trains_what_a_field_of_its_own_does(tmp_path: Path) -> None:
    inline = tokens_of(tmp_path / "inline", [asked_and_answered("<think>\nTwo twos.\n</think>\n\n4.")])
    field = tokens_of(tmp_path / "field", [asked_and_answered("4.", reasoning_content="Two twos.")])
    both = tokens_of(tmp_path / "both", [asked_and_answered("[THINK]Two twos.[/THINK]4.", reasoning_content="Two twos.")])
    assert trained(*inline) == trained(*field) == trained(*both) == ["<think>\nTwo twos.\n</think>\n\n4.<|im_end|>"]


def test_what_cannot_be_read_is_refused_and_counted(tmp_path: Path) -> None:
    rows = [
        asked_and_answered("fine"),
        asked_and_answered("2+2=4.\n</think>\n\n4."),
        asked_and_answered("<think>a</think>4.", reasoning_content="b"),
    ]
    _, published = tokens_of(tmp_path / "auto", rows)
    assert published.manifest.counts["refused"] == {"reasoning/unbalanced_reasoning": 1, "reasoning/conflicting_reasoning": 1}
    _, published = tokens_of(tmp_path / "field", [*rows[:1], asked_and_answered("<think>a</think>4.")], reasoning="field")
    assert published.manifest.counts["refused"] == {"reasoning/inline_reasoning": 1}


def test_a_template_without_reasoning_trains_the_text_as_it_stands(tmp_path: Path) -> None:
    made = tokens_of(tmp_path, [asked_and_answered("<think>Two twos.</think>4.")], template="chatml")
    assert trained(*made) == ["<think>Two twos.</think>4.<|im_end|>"]


def test_own_tags_are_read(tmp_path: Path) -> None:
    made = tokens_of(tmp_path, [asked_and_answered("<why>Two twos.</why>4.")], reasoning_tags=[["<why>", "</why>"]])
    assert trained(*made) == ["<think>\nTwo twos.\n</think>\n\n4.<|im_end|>"]
