"""A small template with a place for everything, and what must be trained of its conversations, spelled out from the definition of the policies."""

from __future__ import annotations

import json
from collections.abc import Sequence

from prep_assets.proofs.derive import MaskOptions
from prep_assets.samples import ASSISTANT, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets_tests.masks.bound import Bound, bind_source

SOURCE = """
{%- for tool in tools or [] -%}{{- tool | tojson + '\\n' -}}{%- endfor -%}
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\\n' -}}
  {%- if m.reasoning_content is defined -%}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
  {{- m.content -}}
  {%- for call in m.tool_calls or [] -%}{{- '\\n<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' -}}{%- endfor -%}
  {{- '<|im_end|>' + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

Weighted = tuple[str, float, bool]
"""Text, the loss weight of each of its characters, and whether it is a control token that the template writes."""


def bound() -> Bound:
    """The template with the shipped tokenizer, which has its control tokens."""
    return bind_source(SOURCE)


def weighted(sample: Sample, options: MaskOptions) -> list[Weighted]:
    """The whole conversation as the template writes it, each stretch with its weight: one turn after the other, by the definitions alone.

    For conversations in which no region is blank.
    """
    per_turn = [[_weight(turn, region, options) for region in turn.regions] for turn in sample.turns]
    trained = [number for number, weights in enumerate(per_turn) if any(weights)]
    if options.train_turns == "last":
        per_turn = [weights if trained and number == trained[-1] else [0.0] * len(weights) for number, weights in enumerate(per_turn)]
    ending = [number for number, weights in enumerate(per_turn) if weights[-1]]
    found: list[Weighted] = []
    after = ""
    for number, (turn, weights) in enumerate(zip(sample.turns, per_turn, strict=True)):
        header = weights[0] if options.train_headers else 0.0
        found += [(after, header, False), ("<|im_start|>", header, True), (f"{turn.role}\n", header, False)]
        found += [(_written(turn.regions, i), weight, False) for i, weight in enumerate(weights)]
        stop = {"turn": weights[-1], "last": weights[-1] if number in ending[-1:] else 0.0, "all": weights[-1] or 1.0, "none": 0.0}[
            options.train_on_eos
        ]
        found.append(("<|im_end|>", stop, True))
        after = "\n"
    return [*found, ("\n", 0.0, False)]


def _weight(turn: Turn, region: Region, options: MaskOptions) -> float:
    if region.kind == THINKING and not options.train_thinking:
        return 0.0
    if region.kind == TOOL_CALL and not options.train_tool_calls:
        return 0.0
    if region.loss_weight is not None:
        return region.loss_weight
    return float(options.mask.get(turn.role, options.mask_default) == "train")


def _written(regions: Sequence[Region], at: int) -> str:
    region = regions[at]
    if region.kind == THINKING:
        return f"<think>\n{region.text}\n</think>\n\n"
    if region.kind == TOOL_CALL:
        return f"\n<tool_call>\n{json.dumps(json.loads(region.text), ensure_ascii=False)}\n</tool_call>"
    return region.text


def answer(*parts: str, weights: Sequence[float | None] | None = None) -> Turn:
    """An assistant's turn; ``thinking: …`` and ``call: name`` are reasoning and a tool call, all else is text."""
    regions = []
    for part, weight in zip(parts, weights or [None] * len(parts), strict=True):
        kind, _, text = part.rpartition(": ")
        if kind == "call":
            regions.append(Region(TOOL_CALL, json.dumps({"name": text, "arguments": {"a": 2, "b": "zwei"}}), weight))
        else:
            regions.append(Region(THINKING if kind == "thinking" else TEXT, text if kind == "thinking" else part, weight))
    return Turn(ASSISTANT, tuple(regions))
