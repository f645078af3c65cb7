"""A faster tokenizer was probed with its special tokens and used without them: the beginning-of-text token vanished from every document.

Year: 2026
Hit: marin#5034, #5149, PR#5040
Cost: Caches of 441, 103 and 23 GB built again; losses of runs before and after that cannot be compared.
Stopped by: `bos` is in the recipe, and `row_integrity` looks for the token at the start of each document, whichever engine wrote it
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from prep_assets_tests.museum.gallery import Row, documents, tokenizer

TEXTS = ["The first document.", "The second one.", "And a third."]


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_each_document_begins_as_the_base_model_had_it(tmp_path: Path, engine: str) -> None:
    folder = tokenizer(tmp_path / "tokenizer", special=["<s>"], bos_token="<s>")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = backend.token_to_id("<s>")
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    backend.save(str(folder / "tokenizer.json"))
    right = documents(tmp_path / "stores", TEXTS, tokenizer=folder, engine=engine)
    assert right.failing() == []
    assert [row.ids.tolist().index(bos) for row in right.rows("docs_train")] == [0, 0, 0]
    wrong = right.with_rows(lambda rows: [Row(row.ids[1:], row.mask[1:]) for row in rows], "docs_train")
    assert "row_integrity" in wrong.failing()
