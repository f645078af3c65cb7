"""Mistral's Tekken vocabulary was converted with the default pattern: `eBay`, `pH` and `NaOH` were split where the model never saw
    them split.

Year: 2025 – 2026
Hit: the discussion of Mistral-Small-3.1 #84, transformers PR#42131, #42299, #42389, #45081, Tokenicer PR#61, llama.cpp#23252
Cost: Other ids for common words; a line in the log.
Stopped by: files with that vocabulary and another tokenizer's pattern are refused, known by the pattern
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import tokenizer

BEGINS = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")
GPT4 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+"
TEKKEN = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}]*[\\p{Ll}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}]+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+"


def like_tekken(folder: Path, pattern: str) -> Path:
    """A tokenizer of Tekken's size that begins with Tekken's tokens, with a pattern."""

    def edit(described: dict[str, Any]) -> None:
        vocabulary = {text: number for number, text in enumerate(BEGINS)}
        letters = [text for text in described["model"]["vocab"] if len(text) == 1]
        for text in [*letters, *(f"filler{number}" for number in range(131_072))][: 131_072 - len(BEGINS)]:
            vocabulary.setdefault(text, len(vocabulary))
        described["model"] |= {"vocab": vocabulary, "merges": []}
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        described["added_tokens"] = [{"id": number, "content": text, **plain} for number, text in enumerate(BEGINS)]
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        described["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]}
        described["post_processor"] = None

    return tokenizer(folder, edit=edit, bos_token="<s>", eos_token="</s>", pad_token="<unk>", additional_special_tokens=[])


def test_the_wrong_pattern_is_refused(tmp_path: Path) -> None:
    from prep_assets.text.vocabulary import load_vocabulary

    with pytest.raises(PrepAssetsError, match="eBay"):
        load_vocabulary(str(like_tekken(tmp_path / "wrong", GPT4)), loader="file")
    right = load_vocabulary(str(like_tekken(tmp_path / "right", TEKKEN)), loader="file")
    assert right.size == 131_072
