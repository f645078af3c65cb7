"""What twenty rows of each reason were judged to be, by the one who read them in ``refusals.md``."""

from __future__ import annotations

from collections.abc import Mapping

JUDGED: Mapping[str, str] = {
    "reasoning/unbalanced_reasoning": "right: an answer ends a thought that nothing began; the message counts the tags and names `reasoning: inline`",
    "render/no_stop_token": "right: GLM-4-MoE's own template writes nothing after the last answer; its training variant, which the message names, does",
    "render/template_drops_content": "right: thoughts or calls that the template leaves out, with DeepSeek V3 all before `</think>`; turn and kind are named",
    "render/template_drops_tools": "right: a list of tools that the template does not write; the message names one",
    "render/template_refuses": "right: the template's own words, about roles, tools or reasoning; a remedy was missing and is there now",
    "render/template_rewrites_content": "right: LFM 2.5 writes arguments in Python's form, in which a list of texts is no text of the row",
    "render/undesirable": "right: KTO's label calls the answer bad; the message did not say what to do, and does now",
    "schema/bad_tool_call": "right: a remark in place of a command of MOSS, which would be lost; the message did not say what to do, and does now",
    "tokenize/mask_border_inside_token": "right: `Assistant:` and a quotation mark right after it are one token; the message says what the template lacks",
}
