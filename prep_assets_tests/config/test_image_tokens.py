"""`image_tokens`: a rule by its name, with its own numbers and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.config.loading import load_family
from prep_assets.errors import ConfigError

QWEN = {"rule": "qwen2_vl", "patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 100_000}
INTERN = {"rule": "internvl", "image_seq_length": 4, "tile_height": 448, "tile_width": 448, "min_patches": 3, "max_patches": 2}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"image_tokens": {"rule": "qwen"}},
            r"image_tokens: needs a rule, one of processor, fixed, qwen2_vl, .* \(found \{'rule': 'qwen'\}\)",
        ),
        ({"image_tokens": "processor"}, "image_tokens: needs a rule"),
        ({"image_tokens": {**QWEN, "merge": 2}}, r"image_tokens.qwen2_vl.merge: unknown key; did you mean 'merge_size'\?"),
        ({"image_tokens": {"rule": "processor", "tokens": 2}}, "image_tokens.processor.tokens: unknown key; allowed here: rule"),
        ({"image_tokens": {"rule": "fixed"}}, "image_tokens.fixed.tokens: missing"),
        ({"image_tokens": {**QWEN, "min_pixels": 200_000}}, "min_pixels 200000 is above max_pixels 100000"),
        ({"image_tokens": INTERN}, "min_patches 3 is above max_patches 2"),
        ({"image_tokens": QWEN, "image_patches": 3}, "image_patches: 3 means nothing here: image_tokens says how many"),
        (
            {"image_tokens": QWEN, "image_token": None},
            "image_tokens: .* means nothing here: records with images are refused. Set image_token",
        ),
    ],
)
def test_what_is_no_rule(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    family = {"tokenizer": "x", "image_token": "<image>", "domains": {"a": {"files": ["a.jsonl"], "schema": "messages"}}, **options}
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(family), "utf-8")
    with pytest.raises(ConfigError, match=says):
        load_family("sft", tmp_path)
