"""`pad_vocab_to`: the model's vocabulary, where it has more ids than the tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets.graph.exports import exporting
from prep_assets.graph.graph import EVERY
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build_all, domain, failing, jsonl, minimal


def test_types_and_exports_go_by_the_models_vocabulary(make: Make, tmp_path: Path) -> None:
    """As train-llm-from-scratch's 50,304 of 50,257, and MindSpeed-LLM's --pad-vocab-size-to."""
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": f"Document {n}."} for n in range(6)]), "text")
    options = {"output": {"dtype": "auto"}, "pad_vocab_to": 70_000}
    workspace = make(minimal("pretrain", {"d": rows}, **options))
    build_all(workspace, ["pretrain"])
    published = workspace.published("pretrain_tokens", "d")
    assert published is not None and not failing(workspace, published)
    assert published.manifest.recipe["tokenizer"]["pad_vocab_to"] == 70_000
    # the tokenizer's 8,192 ids alone are uint16
    assert open_tokens(published.directory, "d_train").arrays["tokens"].dtype == np.dtype("uint32")
    for format in ("nanotron", "olmo", "megatron"):
        assert exporting(EVERY["pretrain_tokens"], format, None, {}).all_options(workspace)["vocab_size"] == 70_000


def test_a_vocabulary_that_does_not_hold_the_ids_stops(make: Make, tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": "Hi."}]), "text")
    workspace = make(minimal("pretrain", {"d": rows}, pad_vocab_to=300))
    with pytest.raises(PrepAssetsError, match=r"pad_vocab_to: 300 ids do not hold tokenizer .*, whose highest id is [\d,]+\. Set it to"):
        build_all(workspace, ["pretrain"])
