"""The template wrote the beginning-of-text token and the tokenizer's post-processor wrote another.

Year: 2024 – 2026
Hit: vllm#27486, PR#27515, open-r1 PR#462, sglang PR#888, DeepSeek-R1#151, transformers#37686
Cost: Every sequence began as no sequence of the base model ever did.
Stopped by: `tokenization_identity`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from prep_assets_tests.museum.gallery import CHAT, Row, chats, tokenizer

BEGUN = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_one_beginning(tmp_path: Path, show: Any) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=BEGUN, special=["<s>"], bos_token="<s>")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = backend.token_to_id("<s>")
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    backend.save(str(folder / "tokenizer.json"))
    right = chats(tmp_path / "stores", [CHAT], tokenizer=folder)
    assert right.failing() == []
    row = right.row()
    assert row.ids[0] == bos and (row.ids == bos).sum() == 1
    wrong = right.with_rows(lambda rows: [Row(np.append(bos, row.ids), np.append(0, row.mask)) for row in rows])
    assert "tokenization_identity" in wrong.failing()
    show(as_it_was=(right.texts(wrong.row()), wrong.row().mask), here=(right.texts(row), row.mask))
