"""A chat, and a template like Harmony's, whose last answer ends with a stop of its own."""

from __future__ import annotations

from typing import Any

from prep_assets.proofs.derive import Derived, MaskOptions, derive
from prep_assets.samples import ASSISTANT, USER, Sample, turn
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.proofs import conversations

HARMONY = """
{%- for m in messages -%}
  {%- if m.role == 'assistant' and m.tool_calls -%}
    {{- '<|start|>assistant to=' + m.tool_calls[0].function.name + '<|message|>' + m.tool_calls[0].function.arguments | tojson + '<|call|>' -}}
  {%- elif m.role == 'assistant' -%}
    {{- '<|start|>assistant<|message|>' + m.content + ('<|return|>' if loop.last else '<|end|>') -}}
  {%- else -%}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}
""".strip()
CONTROL = ("<|start|>", "<|message|>", "<|call|>", "<|end|>", "<|return|>")
CHAT = Sample((turn(USER, "Hi"), turn(ASSISTANT, "Hello."), turn(USER, "Bye"), turn(ASSISTANT, "See you.")))


def template(source: str) -> ChatTemplate:
    return ChatTemplate("own", source, {"eos_token": "<|return|>"}, {}, CONTROL)


def derived_of(source: str, options: dict[str, Any], sample: Sample, image: str = "", eos: str = "<|end|>", **more: Any) -> Derived:
    return derive(sample, MaskOptions(**options), conversations.template(source, image=image, eos=eos), **more)
