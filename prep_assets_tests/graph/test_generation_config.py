"""`generation_config.json`: the tokens at which a trained model stops are those that end the answers it was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, GenerationConfig

from prep_assets.graph.graph import assets_of
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, minimal
from prep_assets_tests.graph.workspaces import make as make_store


@pytest.mark.parametrize(("template", "stops"), [("chatml", ["<|im_end|>", "<|endoftext|>"]), ("plain", ["<|endoftext|>"])])
def test_an_export_says_where_a_model_stops(make: Make, tmp_path: Path, template: str, stops: list[str]) -> None:
    """A model that was trained to end turns with `<|im_end|>` went on for ever: `eos_token` is another token, and no file said so."""
    exports = {"trl": {"from": "sft_tokens", "to": "hf_arrow"}, "mds": {"from": "sft_tokens", "to": "mds"}}
    workspace = make(minimal("sft", {"a": domain("chats.jsonl", "messages")}, template=template, exports=exports))
    for name in ("sft_raw", "sft_tokens"):
        build(workspace, name, "a")
    found = {name: make_store(workspace, assets_of(workspace)[f"sft_export_{name}"], "a").directory for name in exports}
    assert not (found["mds"] / "generation_config.json").exists()
    said = json.loads((found["trl"] / "generation_config.json").read_text())["eos_token_id"]
    assert said == AutoTokenizer.from_pretrained(TOKENIZER).convert_tokens_to_ids(stops)
    assert GenerationConfig.from_pretrained(found["trl"]).eos_token_id == said
    tokens = workspace.published("sft_tokens", "a")
    assert tokens is not None
    store = open_tokens(tokens.directory, "train")
    last = {int(store.record(n, "tokens")[np.flatnonzero(store.record(n, "loss_mask"))[-1]]) for n in range(len(store))}
    assert last <= set(said)
