"""Where generation stops: the lists that the models' own `generation_config.json` have, but for the end-of-text token."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.text.certify import generation_stops
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.text.matrix.cells import Entry, published, shipped

PUBLISHED = {
    "diffusion_gemma": ("<turn|>", "<|tool_response>"),
    "glm4moe": ("<|observation|>", "<|user|>"),
    "gptoss": ("<|return|>", "<|call|>"),
    "llama3_1": ("<|eot_id|>",),
    "qwen3": ("<|im_end|>",),
}


def stops(entry: Entry) -> tuple[str, ...]:
    special = {"bos_token": "<bos>", "eos_token": "</s>"}
    return generation_stops(ChatTemplate(entry.name, entry.source, special, {}, tuple(sorted({*entry.model.control, *special.values()}))))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("glm4", {"<|user|>", "<|observation|>"}), ("qwen", {"<|im_end|>"}), ("llama3", {"<|eot_id|>"}), ("plain", {"</s>"})],
)
def test_shipped_templates(name: str, expected: set[str]) -> None:
    """A tool call of GLM ends with another token than its answer: a model that waits for `<|user|>` alone writes the tool's result itself."""
    assert set(stops(shipped()[name])) == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(real_data: Path, name: str) -> None:
    assert set(stops(published(real_data)[name])) == set(PUBLISHED[name])


def test_a_token_that_stands_inside_an_answer_is_no_stop() -> None:
    """As in gpt-oss, where an earlier answer ends with the token that ends each thought."""
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|a|>{% if m.reasoning_content %}{{ m.reasoning_content }}<|end|><|b|>{% endif %}"
        "{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}{% else %}<|u|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|a|>{% endif %}"
    )
    control = ("<|a|>", "<|b|>", "<|end|>", "<|return|>", "<|u|>")
    assert generation_stops(ChatTemplate("own", source, {}, {}, control)) == ("<|return|>",)
    plain = source.replace("<|b|>", "").replace("{{ m.reasoning_content }}<|end|>", "{{ m.reasoning_content }}")
    assert generation_stops(ChatTemplate("own", plain, {}, {}, control)) == ("<|return|>", "<|end|>")
