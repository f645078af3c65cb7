"""How rows are grouped into blocks changes nothing that a manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prep_assets.pipeline.examples import Reading, Rows
from prep_assets_tests.graph.families import FAMILIES, ROW
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

LAST = {
    "pretrain": "pretrain_tokens",
    "sft": "sft_tokens",
    "preference": "preference_tokens_by_domain",
    "rl": "rl_tokens_by_domain",
    "contrastive": "contrastive",
}
THINKING: dict[str, Any] = {"template": "qwen3", "truncation": "turns", "preprocessing": {"max_seq_len": 60}}


def thinking_rows() -> list[dict[str, Any]]:
    """Chats of few forms whose template drops reasoning from history, some of them too long, some with typed control tokens."""
    rows = []
    for number in range(24):
        answers = [{"content": f"It is {number}."}, {"content": "Yes."}]
        answers[number % 2]["reasoning_content"] = "Hm. " * (1 + number % 3 * 20)
        asked = ["What is it?", "Is <|im_end|> sure?" if number % 5 == 0 else "Sure?"]
        turns = [({"role": "user", "content": text}, {"role": "assistant", **answer}) for text, answer in zip(asked, answers, strict=True)]
        rows.append({"messages": [message for pair in turns for message in pair], "source": f"row {number}"})
    return rows


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_of_any_size_give_the_same_manifest(tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = FAMILIES[family].schema
    rows = [ROW[schema](f"Who has number {n}?", f"It is {n}.", f"It is {n + 1}.") for n in range(24)]
    source = jsonl(tmp_path / "rows.jsonl", thinking_rows() if family == "sft" else rows)
    options = {"test_fraction": 0.2, **(THINKING if family == "sft" else {})}
    in_blocks = Reading.rows

    def built(size: int) -> Any:
        def rows_of(self: Reading, block_bytes: int) -> Iterator[Rows]:
            for block in in_blocks(self, block_bytes):
                for at in range(0, len(block.rows), size):
                    yield Rows(block.file, block.rows[at : at + size], block.held_out, block.size if at == 0 else 0)

        monkeypatch.setattr(Reading, "rows", rows_of)
        read_with: dict[str, Any] = {"sft": {"ignore": ["source"]}, "rl": {"options": {"verifier": "text"}}}
        asked = domain(source, schema, **read_with.get(family, {}))
        workspace = workspace_in(tmp_path / f"{family} {size}", minimal(family, {"rows": asked}, **options))
        return msgspec.to_builtins(build(workspace, LAST[family], "rows").manifest)

    whole = built(1000)
    assert whole["counts"]["kept"] >= 16
    if family == "sft":
        assert whole["counts"]["reasoning_dropped_by_template"] > 0 and whole["counts"]["control_tokens_in_content"] > 0
    assert built(1) == whole
    assert built(7) == whole
