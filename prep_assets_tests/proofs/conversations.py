"""Small templates, and what was derived of a conversation as one text that can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prep_assets.proofs.derive import Derived
from prep_assets.samples import ASSISTANT, IMAGE, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.template import ChatTemplate

PLAIN = """
{%- for m in messages -%}
  {%- set thought = '' -%}
  {%- if m.role == 'assistant' and m.reasoning_content -%}{%- set thought = '<think>' + m.reasoning_content + '</think>\\n' -%}{%- endif -%}
  {{- '<|s|>' + m.role + '\\n' + thought + m.content -}}
  {%- for call in m.tool_calls or [] -%}{{- '\\n<call>' + call.function | tojson + '</call>' -}}{%- endfor -%}
  {{- '<|e|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|s|>assistant\\n' -}}{%- endif -%}
"""
"""Headers, reasoning, calls as JSON, one stop token."""
TRIMS = PLAIN.replace("thought + m.content", "thought + (m.content | trim)")
"""The same, and it takes away white space around a text."""
CONTROL = ("<|s|>", "<|e|>", "<|end|>", "<img>")


def template(source: str = PLAIN, *, control: tuple[str, ...] = CONTROL, image: str = "", eos: str = "<|end|>") -> ChatTemplate:
    """A template with its control tokens."""
    return ChatTemplate("own", source.strip(), {"eos_token": eos}, {}, control, image)


def user(text: str) -> Turn:
    return turn(USER, text)


def says(*parts: str, weights: Mapping[int, float] | None = None, role: str = ASSISTANT) -> Turn:
    """A turn of regions: ``~x`` is reasoning, ``!name`` a call, ``@path`` an image, all else text."""
    kinds = {"~": THINKING, "!": TOOL_CALL, "@": IMAGE}
    regions = []
    for at, part in enumerate(parts):
        kind = kinds.get(part[:1], TEXT)
        text = part if kind == TEXT else part[1:]
        if kind == TOOL_CALL:
            name, _, arguments = text.partition(" ")
            text = json.dumps({"name": name, "arguments": json.loads(arguments or "{}")})
        regions.append(Region(kind, text, (weights or {}).get(at)))
    return Turn(role, tuple(regions))


def result(text: str) -> Turn:
    return turn(TOOL, text)


def chat(*turns: Turn, **more: Any) -> Sample:
    return Sample(tuple(turns), **more)


def marked(derived: Derived) -> str:
    """The render with ``⟦ ⟧`` around what is trained (its weight before it, where that is not 1) and ``‹ ›`` around what truncation may shorten."""
    edges: dict[int, list[tuple[int, str]]] = {}
    for start, end, _ in derived.shortenable:
        edges.setdefault(start, []).append((2, "‹"))
        edges.setdefault(end, []).append((1, "›"))
    for each in derived.expected:
        assert derived.text[each.start : each.end] == each.text
        assert each.text.endswith(each.stop)
        weight = "" if each.weight == 1 else f"{each.weight:g}"
        edges.setdefault(each.start, []).append((3, f"{weight}⟦"))
        edges.setdefault(each.end, []).append((0, f"⟧{'' if each.stop else '…'}"))
    made = ["".join(mark for _, mark in sorted(edges.get(at, []))) + derived.text[at : at + 1] for at in range(len(derived.text) + 1)]
    return "".join(made)
