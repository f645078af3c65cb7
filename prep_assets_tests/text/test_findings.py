"""Findings of a certificate: stop tokens that servers do not know, control tokens that a base never saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from prep_assets.text.certify import certify
from prep_assets.text.load_template import load_template
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.graph.workspaces import CONFIGS, SHIPPED, build, workspace_in


def vocabulary(eos: str, template: str | None) -> Vocabulary:
    backend = Tokenizer.from_file(str(CONFIGS / "tokenizer" / "tokenizer.json"))
    backend.add_special_tokens(["<|eot_id|>"])
    return Vocabulary("toy", backend, {"eos_token": eos}, template)


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def found(eos: str, own: str | None, used: str = "tokenizer") -> tuple[str, ...]:
    opened = vocabulary(eos, own)
    return certify(load_template(used, opened), opened).findings


def test_a_stop_token_that_is_not_the_end_of_text() -> None:
    """QwenLM/Qwen3 issue 927, open-r1 issue 603: answers end with `<|im_end|>`, servers stop at `<|endoftext|>`."""
    (finding,) = found("<|endoftext|>", CHATML)
    assert "answers end with '<|im_end|>'" in finding and "eos_token is '<|endoftext|>'" in finding
    assert found("<|im_end|>", CHATML) == ()


@pytest.mark.parametrize("own", [None, "{% for m in messages %}{{ m.role }}: {{ m.content }}<|eot_id|>\n{% endfor %}"])
def test_control_tokens_that_the_base_never_saw(own: str | None) -> None:
    """unsloth issue 658: a base model, whose `<|eot_id|>` nobody trained, and an instruct template that writes it."""
    (finding,) = found("<|im_end|>", own, "chatml")
    assert "'<|im_start|>'" in finding and "'<|eot_id|>'" not in finding
    assert ("no template of its own" in finding) is (own is None)


def test_the_certificate_on_disk_has_them(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    certificate = json.loads((build(workspace, "sft_template").directory / "certificate.json").read_text("utf-8"))
    assert certificate["findings"] == [
        "answers end with '<|im_end|>', and the tokenizer's eos_token is '<|endoftext|>': a server that stops at eos_token only never stops. "
        "Serve the model with both as stop tokens"
    ]
