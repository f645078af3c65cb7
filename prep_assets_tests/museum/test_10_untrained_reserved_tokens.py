"""A base model was trained with the template of its instruct model, whose tokens have no trained embedding in the base.

Year: 2024
Hit: unsloth#658, #915, #1056, torchtune#2429
Cost: Gradients that blow up, or turns that the model cannot tell apart.
Stopped by: a finding of the certificate: control tokens that the base's own template never writes
"""

from __future__ import annotations

from pathlib import Path

from prep_assets.text.certify import certify
from prep_assets.text.load_template import load_template
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.museum.gallery import tokenizer

TOKENS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def test_a_foreign_template(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(str(tokenizer(tmp_path / "tokenizer", special=TOKENS)))
    foreign = certify(load_template("llama3", vocabulary), vocabulary).findings
    assert any("'<|eot_id|>'" in each and "'<|start_header_id|>'" in each for each in foreign)
    own = certify(load_template("tokenizer", vocabulary), vocabulary).findings
    assert not any("embeddings" in each for each in own)
