"""TRL's own code beside our reading of its rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prep_assets.extensions.doctor.labels import RULES, Chat, Ours, prepared_by_trl, trl_version
from prep_assets.samples import Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.extensions.exports.readers import needs

pytestmark = pytest.mark.readers


def test_trl_itself_labels_what_the_rule_says(real_data: Path) -> None:
    needs("trl")
    assert trl_version()
    from transformers import AutoTokenizer

    folder = str(real_data / "tokenizers" / "smollm")
    ours = Ours.open(folder, str(real_data / "chat_templates" / "trl" / "qwen3_training.jinja"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = ours.template.source
    rows = json.loads((real_data / "llama_factory" / "alpaca_en_demo.json").read_text("utf-8"))[:20]
    given = []
    for row in rows:
        sample = apply(convert_with("alpaca", gives=Sample), row)
        assert isinstance(sample, Sample)
        given.append({"messages": ours.messages(sample)})
    expected = [RULES["trl"][1](Chat(tokenizer), each["messages"], None) for each in given]
    assert prepared_by_trl(tokenizer, given) == expected
