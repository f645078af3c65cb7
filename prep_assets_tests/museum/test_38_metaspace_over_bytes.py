"""A new loader put SentencePiece's spaces over a byte-level tokenizer: `hello world` became `helloworld`.

Year: 2026
Hit: transformers#45488, #44779, #46489, #46710, PR#48219, TensorRT-LLM PR#13924, verl#6080
Cost: GSM8K from 95.3 to 0.0; rewards always 0.
Stopped by: `tokenizer.json` is the reference, whatever class is named; `tokenization_identity`
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from prep_assets_tests.museum.gallery import CHAT, Row, chats, tokenizer


@pytest.mark.parametrize("name", ["LlamaTokenizerFast", "LlamaTokenizer"])
def test_spaces_stay(tmp_path: Path, name: str) -> None:
    folder = tokenizer(tmp_path / "tokenizer", tokenizer_class=name)
    right = chats(tmp_path / "stores", [CHAT], tokenizer=folder, tokenizer_loader="file")
    assert right.failing() == []
    published = Tokenizer.from_file(str(folder / "tokenizer.json"))
    row = right.row()
    assert "What is 2 + 2?" in right.text(row.ids)
    assert row.ids.tolist() == published.encode(right.text(row.ids), add_special_tokens=False).ids
    space = published.encode(" ", add_special_tokens=False).ids[0]
    wrong = right.with_rows(lambda rows: [Row(row.ids[row.ids != space], row.mask[row.ids != space]) for row in rows])
    spaceless = (
        wrong if len(wrong.row().ids) < len(row.ids) else right.with_rows(lambda rows: [Row(each.ids[1:], each.mask[1:]) for each in rows])
    )
    assert "tokenization_identity" in spaceless.failing()
