"""The sample tokenizer with the sentinels of fill-in-the-middle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from prep_assets_tests.graph.workspaces import TOKENIZER

TOKENS = {"prefix_token": "<|fim_prefix|>", "suffix_token": "<|fim_suffix|>", "middle_token": "<|fim_middle|>"}


def tokenizer_with_sentinels(tmp_path: Path) -> str:
    """The sample tokenizer with sentinels, which are not marked special, as in Qwen's."""
    folder = tmp_path / "tokenizer"
    shutil.copytree(TOKENIZER, folder)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    first = 1 + max(token["id"] for token in spec["added_tokens"])
    first = max(first, 1 + max(spec["model"]["vocab"].values()))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    spec["added_tokens"] += [{"id": first + i, "content": text, **flags} for i, text in enumerate(TOKENS.values())]
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
    return str(folder)
