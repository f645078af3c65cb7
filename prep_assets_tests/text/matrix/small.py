"""Small templates with what makes the published ones hard, for machines without those."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prep_assets_tests.text.matrix.models import Model, _until

TOOLS = "{% for t in tools or [] %}<|tool|>{{ t | tojson }}{% endfor %}"
ARGUMENTS = "{{ c.function.arguments | tojson }}"

HARMONY = (
    TOOLS
    + """{%- set ns = namespace(name=none) -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
  {%- set last = loop.last and not add_generation_prompt -%}
  {%- if m.thinking and (last or m.tool_calls) -%}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{%- endif -%}
  {%- if m.tool_calls -%}
    {%- if m.tool_calls | length > 1 or m.content -%}{{ raise_exception('one call, and nothing beside it') }}{%- endif -%}
    {%- set c = m.tool_calls[0] -%}
    {%- set ns.name = c.function.name -%}
    <|start|>assistant to={{ c.function.name }}<|message|>"""
    + ARGUMENTS
    + """<|call|>
  {%- else -%}<|start|>assistant<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if last else '<|end|>' }}{%- endif -%}
{%- elif m.role == 'tool' -%}<|start|>{{ ns.name }} to=assistant<|message|>{{ m.content | tojson }}<|end|>
{%- else -%}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""
)

BORROWED = (
    TOOLS
    + """{%- for m in messages -%}
{%- set before = messages[loop.index0 - 1].role if not loop.first else '' -%}
{%- set header = {'tool': '<|observation|>'}.get(m.role, '<|' + m.role + '|>') -%}
{{- '' if before == 'assistant' and not loop.last or (before == 'assistant' and m.role != 'assistant') else header -}}
{{- '\\n' -}}
{%- if m.role == 'assistant' -%}
<think>{{ m.reasoning_content if m.reasoning_content and loop.index0 > last_user | default(-1) else '' }}</think>{{ m.content }}
{%- for c in m.tool_calls or [] -%}{{ '\\n<tool_call>' + c.function.name }} """
    + ARGUMENTS
    + """</tool_call>{%- endfor -%}
{{- '<|observation|>' if m.tool_calls else '<|user|>' if loop.last or messages[loop.index0 + 1].role != 'system' else '<|system|>' -}}
{%- else -%}{{ m.content }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '' if messages[-1].role == 'assistant' else '<|assistant|>' }}{%- endif -%}"""
)

SAME_TURN = (
    TOOLS
    + """{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
  {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}<turn>model{{ '\\n' }}{%- endif -%}
  {%- if m.reasoning_content -%}<channel>{{ m.reasoning_content }}</channel>{%- endif -%}
  {%- for c in m.tool_calls or [] -%}<call>{{ c.function.name }}:"""
    + ARGUMENTS
    + """</call>{%- endfor -%}
  {%- if m.tool_calls and loop.last -%}<response>{%- endif -%}
  {%- set here = loop.index0 -%}
  {%- for c in m.tool_calls or [] -%}
    {%- set at = here + loop.index -%}
    {%- if at < messages | length -%}<response>{{ c.function.name }}={{ messages[at].content }}</response>{%- endif -%}
  {%- endfor -%}
  {{- m.content -}}
  {{- '</turn>\\n' if not m.tool_calls -}}
{%- elif m.role != 'tool' -%}<turn>{{ m.role }}{{ '\\n' }}{{ m.content | trim }}</turn>{{ '\\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and messages[-1].role != 'tool' -%}<turn>model{{ '\\n' }}{%- endif -%}"""
)

PICTURES = """{% for m in messages %}{{ m.role.capitalize() }}{{ ':' if m.content[0].type == 'image' else ': ' }}
{%- for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}<end>
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""

FORGETS = (
    TOOLS
    + """{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\\n' -}}
{%- if m.role == 'assistant' and loop.index0 > ns.last -%}{{ '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{%- endif -%}
{{- m.content -}}
{%- for c in m.tool_calls or [] -%}{{ '<tool_call>' + c.function.name }} """
    + ARGUMENTS
    + """</tool_call>{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n<think>\\n' }}{%- endif -%}"""
)

TEXT_ARGUMENTS = """{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}<A>{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.name + ' ' + c.function.arguments }}</call>{% endfor %}{{ eos_token }}
{%- else %}<{{ m.role[0] | upper }}>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<A><think>
{% endif %}"""

IM = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|tool|>")
SMALL: Mapping[str, tuple[str, Model]] = {
    "several stops": (
        HARMONY,
        Model(
            ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|tool|>"),
            re.compile(r"<\|start\|>assistant(?P<t>.*?(?:<\|return\|>|<\|call\|>|<\|end\|>(?!<\|start\|>assistant)))", re.DOTALL),
            eos="<|return|>",
        ),
    ),
    "stops of the next role": (
        BORROWED,
        Model(
            (*(f"<|{role}|>" for role in ("system", "user", "assistant", "observation", "tool")), *IM[2:6]),
            re.compile(r"<\|assistant\|>(?P<t>.*?(?:<\|user\|>|<\|observation\|>|<\|system\|>))", re.DOTALL),
        ),
    ),
    "results in the model's turn": (
        SAME_TURN,
        Model(
            ("<turn>", "</turn>", "<channel>", "</channel>", "<call>", "</call>", "<response>", "</response>", "<|tool|>"),
            _until(r"<turn>model\n|</response>(?!<response>)", "</turn>", "<response>"),
        ),
    ),
    "parts": (PICTURES, Model(("<image>", "<end>"), _until("Assistant:", "<end>"), eos="<end>", image="<image>")),
    "forgets reasoning": (FORGETS, Model(IM, _until(r"<\|im_start\|>assistant\n", "<|im_end|>", prompt="<think>\n"), eos="<|im_end|>")),
    "no prompt": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}",
        Model(IM, _until(r"<\|im_start\|>assistant\n", "<|im_end|>"), eos="<|im_end|>"),
    ),
    "arguments as text": (
        TEXT_ARGUMENTS,
        Model(("<A>", "<U>", "<S>", "<T>", "<call>", "</call>", "<think>"), _until("<A>", "</s>", prompt="<think>\n"), "<s>", "</s>"),
    ),
}
"""Template and model by what is hard about them."""
