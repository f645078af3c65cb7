"""What documents must begin with, read from the definition of a post-processor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prep_assets.proofs.documents import documents_begin_with

IDS = {"<s>": 1, "[CLS]": 2, "<b>": 3}
BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE = {"type": "TemplateProcessing", "single": [BOS, TEXT]}


def vocabulary(processor: Any) -> Any:
    return SimpleNamespace(spec={"post_processor": processor}, backend=SimpleNamespace(token_to_id=IDS.get), special={"bos_token": "<b>"})


@pytest.mark.parametrize(
    ("processor", "first"),
    [
        (None, None),
        (TEMPLATE, 1),
        ({"type": "TemplateProcessing", "single": [TEXT, BOS]}, None),
        ({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]"}}, BOS, TEXT]}, 2),
        ({"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["x", 9]}, 2),
        ({"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["x", 9]}, 1),
        ({"type": "ByteLevel"}, None),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]}, 1),
        ({"type": "Sequence", "processors": []}, None),
    ],
)
def test_what_the_tokenizer_writes_itself(processor: Any, first: int | None) -> None:
    assert documents_begin_with(vocabulary(processor), "auto") == first
    assert documents_begin_with(vocabulary(processor), "true") == 3
    assert documents_begin_with(vocabulary(processor), "false") is None
