"""What messages must look like, found by probing: small templates that each read one form, and the published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prep_assets.text.environment import MessageForm
from prep_assets.text.template import ChatTemplate

EACH = "{% for m in messages %}<|{{ m.role }}|>"
END = "<|end|>{% endfor %}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}ARGUMENTS{% endfor %}"

SMALL = {
    "text": (EACH + "{{ m.content }}" + END, MessageForm()),
    "parts": (EACH + "{% for p in m.content %}{{ p.text }}{% endfor %}" + END, MessageForm(content="parts")),
    "images": (
        EACH + "{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' if p.type == 'image' else '' }}{% endfor %}" + END,
        MessageForm(content="parts", image_parts=True),
    ),
    "thinking": (EACH + "{{ m.thinking }}{{ m.content }}" + END, MessageForm(reasoning="thinking", shows_reasoning=True)),
    "reasoning": (EACH + "{{ m.reasoning }}{{ m.content }}" + END, MessageForm(reasoning="reasoning", shows_reasoning=True)),
    "both keys": (EACH + "{{ m.thinking or m.reasoning_content }}{{ m.content }}" + END, MessageForm(shows_reasoning=True)),
    "mapping": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + END,
        MessageForm(shows_calls=True),
    ),
    "arguments as text": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}") + END,
        MessageForm(shows_calls=True, arguments="text"),
    ),
    "a mapping written as Python writes it": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments }}") + END,
        MessageForm(shows_calls=True, arguments="text"),
    ),
    "null beside calls": (
        EACH
        + "{% if m.content is none %}"
        + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
        + "{% else %}{{ m.content }}{% endif %}"
        + END,
        MessageForm(shows_calls=True, no_content="null"),
    ),
    "ids": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}{{ c.id }}") + END,
        MessageForm(shows_calls=True, call_ids="shown"),
    ),
    "ids or nothing": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}{{ '' + c.id }}") + END,
        MessageForm(shows_calls=True, call_ids="required"),
    ),
    "names of results": (
        EACH + "{{ m.name if m.role == 'tool' }}{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + END,
        MessageForm(shows_calls=True, result_names="shown"),
    ),
    "names of speakers": (EACH + "{{ m.name }}: {{ m.content }}" + END, MessageForm(names="shown")),
    "tools": ("{{ tools | tojson }}" + EACH + "{{ m.content }}" + END, MessageForm(shows_tools=True)),
    "names of tools alone": ("{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + EACH + "{{ m.content }}" + END, MessageForm()),
    "documents": ("{{ documents | tojson }}" + EACH + "{{ m.content }}" + END, MessageForm(shows_documents=True)),
    "a list written as JSON": (
        EACH + "{{ m.content if m.content is string else m.content | tojson }}" + END,
        MessageForm(),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_templates(name: str) -> None:
    source, form = SMALL[name]
    assert ChatTemplate(name, source, {}).form == form


TOOLS = MessageForm(shows_calls=True, shows_tools=True)
REASONING = replace(TOOLS, shows_reasoning=True)
PUBLISHED = {
    "cohere2": MessageForm(),
    "deepseekv3": MessageForm(shows_calls=True, arguments="text"),
    "diffusion_gemma": replace(REASONING, image_parts=True),
    "gemma3": MessageForm(image_parts=True),
    "glm4moe": REASONING,
    "gptoss": replace(REASONING, reasoning="thinking"),
    "idefics3": MessageForm(content="parts", image_parts=True),
    "lfm2": MessageForm(shows_tools=True),
    "lfm2_2_5": replace(REASONING, reasoning="thinking", image_parts=True),
    "llama3_1": TOOLS,
    "llava_next": MessageForm(content="parts", image_parts=True),
    "nemotron_3_nano": REASONING,
    "qwen2_5_vl": MessageForm(image_parts=True),
    "qwen3": REASONING,
    "qwen3_6": replace(REASONING, image_parts=True),
    "qwen3_vl": replace(TOOLS, image_parts=True),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(real_data: Path, name: str) -> None:
    source = (real_data / "chat_templates" / "trl" / f"{name}.jinja").read_text("utf-8")
    assert ChatTemplate(name, source, {"bos_token": "<s>", "eos_token": "</s>"}).form == PUBLISHED[name]
