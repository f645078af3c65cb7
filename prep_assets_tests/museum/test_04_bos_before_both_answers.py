"""Chosen and rejected answers were tokenized alone, so each began with a beginning-of-text token in the middle of its conversation.

Year: 2024
Hit: axolotl#1616, PR#1733, trl PR#1591
Cost: Preference training on sequences that no model ever produces.
Stopped by: `tokenization_identity` of `preference_tokens_by_domain`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from prep_assets_tests.museum.gallery import Row, first_run, pairs, tokenizer

BEGUN = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_answers_have_no_beginning_of_their_own(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=BEGUN, special=["<s>"], bos_token="<s>")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = backend.token_to_id("<s>")
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    backend.save(str(folder / "tokenizer.json"))
    right = pairs(tmp_path / "stores", [("What is 2 + 2?", "It is 4.", "It is 5.")] * 1, tokenizer=folder)
    assert right.failing() == []
    for stream in ("chosen", "rejected"):
        assert (right.row(stream=stream).ids == bos).sum() == 1

    def twice(rows: list[Row]) -> list[Row]:
        starts = [first_run(row.mask)[0] for row in rows]
        return [Row(np.insert(row.ids, at, bos), np.insert(row.mask, at, 0)) for row, at in zip(rows, starts, strict=True)]

    assert "tokenization_identity" in right.with_rows(twice, "rejected").failing()
