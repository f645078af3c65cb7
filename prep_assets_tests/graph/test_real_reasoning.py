"""Real reasoning through the graph with the templates of reasoning models, and every check of the stores.

What was measured stands in docs/real-data.md. After a change write it again:
``PREP_ASSETS_WRITE_DOCS=1 python -m pytest prep_assets_tests/graph/test_real_reasoning.py``.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.graph.workspaces import build, failing, minimal, refusals, workspace_in
from prep_assets_tests.masks.trl import tokenizer_folder

PAGE = Path(__file__).resolve().parents[2] / "docs" / "real-data.md"
SECTION = re.compile(r"(<!-- measured: reasoning -->\n).*?(<!-- end of measured -->)", re.DOTALL)
HEAD = "| template | file | read | kept | refused |\n|---|---|---|---|---|\n"
TEMPLATES = (
    *("deepseekv3", "diffusion_gemma", "glm4moe_training", "gptoss", "nemotron_3_nano"),
    *("qwen3", "qwen3_5_think", "qwen3_6", "qwen3_training"),
)
REASONING = "llama_factory/reason_tool_use_demo_50.jsonl"


def measured(real_data: Path, name: str, folder: Path) -> tuple[list[str], list[str]]:
    """Lines of the table, and checks that do not hold."""
    domains: dict[str, Any] = {
        "gsm8k": {"files": [str(real_data / "gsm8k" / "train.jsonl")], "schema": "gsm8k", "max_items": 200},
        "tools": {"files": [str(real_data / REASONING)], "schema": "messages"},
    }
    tokenizer = str(tokenizer_folder(real_data, name, folder / "tokenizer"))
    options = {**minimal("sft", domains)["sft"], "tokenizer": tokenizer, "preprocessing": {"max_seq_len": None}}
    workspace = workspace_in(folder, {"sft": options})
    lines, faults = [], []
    for each in domains:
        build(workspace, "sft_raw", each)
        try:
            published = build(workspace, "sft_tokens", each)
        except PrepAssetsError as error:
            found = re.search(r"all ([\d,]+) records were refused \((.*?)\)\.", str(error))
            assert found is not None, error
            lines.append(f"| {name} | {each} | {found[1]} | 0 | {found[2]} |\n")
            continue
        counts, why = published.manifest.counts, Counter(f"`{refusal.reason}`" for refusal in refusals(published))
        lines.append(
            f"| {name} | {each} | {counts['read']} | {counts['kept']} | {', '.join(f'{r} {n}' for r, n in sorted(why.items()))} |\n"
        )
        faults += [f"{name}/{each}: {check}" for check in failing(workspace, published)]
    return lines, faults


@pytest.fixture(scope="module")
def found(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    every = [measured(real_data, name, tmp_path_factory.mktemp(name)) for name in TEMPLATES]
    return [line for lines, _ in every for line in lines], [fault for _, faults in every for fault in faults]


def test_every_check_holds(found: tuple[list[str], list[str]]) -> None:
    assert found[1] == []


def test_the_page_says_what_is_kept_and_why_the_rest_is_refused(found: tuple[list[str], list[str]]) -> None:
    page, table = PAGE.read_text("utf-8"), HEAD + "".join(found[0])
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page = SECTION.sub(lambda match: match[1] + table + match[2], page)
        PAGE.write_text(page, "utf-8")
    shown = SECTION.search(page)
    assert shown is not None
    assert shown[0] == f"<!-- measured: reasoning -->\n{table}<!-- end of measured -->"


def test_rows_with_a_closing_tag_alone_are_those_that_the_page_speaks_of(real_data: Path) -> None:
    rows = [json.loads(line) for line in (real_data / REASONING).read_text("utf-8").splitlines()]
    said = [[part["value"] for message in row["messages"] for part in message["content"] if part["type"] == "text"] for row in rows]
    assert sum(any("</think>" in text and "<think>" not in text for text in texts) for texts in said) == 2
