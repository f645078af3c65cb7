"""The template ends a turn with `<|im_end|>`, the tokenizer's `eos_token` stays `<|endoftext|>`: the fine-tuned model is served with
    the wrong one.

Year: 2024 – 2026
Hit: QwenLM/Qwen3#927, open-r1#603, PR#604, axolotl#2073, LLaMA-Factory#9189, unsloth#3721, ms-swift#3113, trl#2059
Cost: Answers without end.
Stopped by: a finding of the certificate; exports for Hugging Face trainers write a `generation_config.json` with all stop tokens
"""

from __future__ import annotations

import json
from pathlib import Path

from prep_assets.graph.graph import assets_of
from prep_assets_tests.graph.workspaces import build, make
from prep_assets_tests.museum.gallery import CHAT, packed, tokenizer


def findings(folder: Path, **config: str) -> list[str]:
    """What the certificate of a tokenizer finds."""
    stand = packed(folder / "stores", [CHAT], tokenizer=tokenizer(folder / "tokenizer", **config))
    certificate = build(stand.workspace, "sft_template").directory
    loaded = [json.loads(path.read_text("utf-8")) for path in sorted(certificate.glob("*.json"))]
    return [finding for each in loaded for finding in each.get("findings", ())]


def test_the_certificate_says_so(tmp_path: Path) -> None:
    assert any("'<|im_end|>'" in each and "'<|endoftext|>'" in each for each in findings(tmp_path / "two", eos_token="<|endoftext|>"))
    assert not any("only never stops" in each for each in findings(tmp_path / "one", eos_token="<|im_end|>"))


def test_the_export_brings_both(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", eos_token="<|endoftext|>")
    stand = packed(tmp_path / "stores", [CHAT], tokenizer=folder, exports={"trl": {"from": "sft_packed", "to": "hf_arrow"}})
    written = make(stand.workspace, assets_of(stand.workspace)["sft_export_trl"]).directory
    (config,) = written.rglob("generation_config.json")
    stops = json.loads(config.read_text("utf-8"))["eos_token_id"]
    assert {stand.token("<|im_end|>"), stand.token("<|endoftext|>")} <= set(stops)
