"""A mend for the double beginning-of-text token took away the only one that some models had.

Year: 2026
Hit: unsloth PR#10312 (Gemma 4: of 30 models 11 mended, 2 went from one to none)
Cost: Fine-tunes of models whose template or tokenizer was the only one to write it.
Stopped by: `tokenization_identity`, for each of the four ways in which template and tokenizer may write it
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from prep_assets_tests.museum.gallery import CHAT, Row, chats, tokenizer

PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.mark.parametrize("by_tokenizer", [False, True])
@pytest.mark.parametrize("by_template", [False, True])
def test_as_many_as_the_template_writes(tmp_path: Path, by_template: bool, by_tokenizer: bool) -> None:
    template = "{{ bos_token }}" + PLAIN if by_template else PLAIN
    folder = tokenizer(tmp_path / "tokenizer", template=template, special=["<s>"], bos_token="<s>")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = backend.token_to_id("<s>")
    if by_tokenizer:
        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
        backend.save(str(folder / "tokenizer.json"))
    right = chats(tmp_path / "stores", [CHAT], tokenizer=folder)
    assert right.failing() == []
    assert (right.row().ids == bos).sum() == int(by_template)
    if by_template:
        wrong = right.with_rows(lambda rows: [Row(row.ids[1:], row.mask[1:]) for row in rows])
        assert "tokenization_identity" in wrong.failing()
