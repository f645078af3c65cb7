"""Why twenty rows of each reason were judged to be refused rightly, by the one who read them in ``refusals.md``."""

from __future__ import annotations

from collections.abc import Mapping

JUDGED: Mapping[str, str] = {
    "reasoning/unbalanced_reasoning": "an answer ends a thought that nothing began",
    "render/no_stop_token": "GLM-4-MoE's own template writes nothing after the last answer; its training variant does",
    "render/template_drops_content": "the template leaves out thoughts or calls; DeepSeek V3's all before `</think>`",
    "render/template_drops_tools": "the template does not write the list of tools",
    "render/template_refuses": "the template itself refuses roles, tools or reasoning",
    "render/template_rewrites_content": "LFM 2.5 writes arguments in Python's form, which is no text of the row",
    "render/undesirable": "KTO's label calls the answer bad",
    "schema/bad_tool_call": "a remark in place of a command of MOSS would be lost",
    "tokenize/mask_border_inside_token": "`Assistant:` and a quotation mark right after it are one token",
}
