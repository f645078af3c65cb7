"""What templates run in: the form of messages that a template reads, and MiniJinja beside Jinja."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import Refused
from prep_assets.text import environment as blocks
from prep_assets.text.conversation import strings
from prep_assets.text.environment import END, MessageForm, Spelled, blocks_of, only_writes
from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate

EACH = "{% for m in messages %}<|{{ m.role }}|>"
LAST = "<|end|>{% endfor %}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}ARGUMENTS{% endfor %}"

SMALL = {
    "text": (EACH + "{{ m.content }}" + LAST, MessageForm()),
    "parts": (EACH + "{% for p in m.content %}{{ p.text }}{% endfor %}" + LAST, MessageForm(content="parts")),
    "images": (
        EACH + "{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' if p.type == 'image' else '' }}{% endfor %}" + LAST,
        MessageForm(content="parts", image_parts=True),
    ),
    "thinking": (EACH + "{{ m.thinking }}{{ m.content }}" + LAST, MessageForm(reasoning="thinking", shows_reasoning=True)),
    "reasoning": (EACH + "{{ m.reasoning }}{{ m.content }}" + LAST, MessageForm(reasoning="reasoning", shows_reasoning=True)),
    "both keys": (EACH + "{{ m.thinking or m.reasoning_content }}{{ m.content }}" + LAST, MessageForm(shows_reasoning=True)),
    "mapping": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + LAST,
        MessageForm(shows_calls=True),
    ),
    "arguments as text": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ '' + c.function.arguments }}") + LAST,
        MessageForm(shows_calls=True, arguments="text"),
    ),
    "a mapping written as Python writes it": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments }}") + LAST,
        MessageForm(shows_calls=True, arguments="text"),
    ),
    "null beside calls": (
        EACH
        + "{% if m.content is none %}"
        + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
        + "{% else %}{{ m.content }}{% endif %}"
        + LAST,
        MessageForm(shows_calls=True, no_content="null"),
    ),
    "ids": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}{{ c.id }}") + LAST,
        MessageForm(shows_calls=True, call_ids="shown"),
    ),
    "ids or nothing": (
        EACH + "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}{{ '' + c.id }}") + LAST,
        MessageForm(shows_calls=True, call_ids="required"),
    ),
    "names of results": (
        EACH + "{{ m.name if m.role == 'tool' }}{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + LAST,
        MessageForm(shows_calls=True, result_names="shown"),
    ),
    "names of speakers": (EACH + "{{ m.name }}: {{ m.content }}" + LAST, MessageForm(names="shown")),
    "tools": ("{{ tools | tojson }}" + EACH + "{{ m.content }}" + LAST, MessageForm(shows_tools=True)),
    "names of tools alone": (
        "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + EACH + "{{ m.content }}" + LAST,
        MessageForm(),
    ),
    "documents": ("{{ documents | tojson }}" + EACH + "{{ m.content }}" + LAST, MessageForm(shows_documents=True)),
    "a list written as JSON": (EACH + "{{ m.content if m.content is string else m.content | tojson }}" + LAST, MessageForm()),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_templates(name: str) -> None:
    source, form = SMALL[name]
    assert ChatTemplate(name, source, {}).form == form


WITH_TOOLS = MessageForm(shows_calls=True, shows_tools=True)
REASONING = replace(WITH_TOOLS, shows_reasoning=True)
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
    "llama3_1": WITH_TOOLS,
    "llava_next": MessageForm(content="parts", image_parts=True),
    "nemotron_3_nano": REASONING,
    "qwen2_5_vl": MessageForm(image_parts=True),
    "qwen3": REASONING,
    "qwen3_6": replace(REASONING, image_parts=True),
    "qwen3_vl": replace(WITH_TOOLS, image_parts=True),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(real_data: Path, name: str) -> None:
    source = (real_data / "chat_templates" / "trl" / f"{name}.jinja").read_text("utf-8")
    assert ChatTemplate(name, source, {"bos_token": "<s>", "eos_token": "</s>"}).form == PUBLISHED[name]


# MiniJinja renders a block of conversations as Jinja renders each, or is not asked.

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CALL: dict[str, Any] = {"type": "function", "function": {"name": "get", "arguments": {"b": 1, "a": ["é<", None, True, 1.5e-7], "c": 'x"'}}}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": "get", "description": "Reads <it>.", "parameters": {"type": "object", "properties": {"é": {}}}},
    }
]
HI, WELL, BYE = (
    {"role": "user", "content": "Hi  \n"},
    {"role": "assistant", "content": "Well, 'é' <b>"},
    {"role": "user", "content": " Bye"},
)
CHATS: list[list[dict[str, Any]]] = [
    [HI],
    [HI, WELL],
    [{"role": "system", "content": "Be short"}, HI, WELL, BYE, WELL],
    [
        HI,
        {"role": "assistant", "content": "Look:", "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "content": "ok"},
        WELL,
    ],
    [HI, WELL, BYE, {"role": "assistant", "content": "<think>\nHm\n</think>\n\nSo"}],
]


def agrees(template: ChatTemplate) -> int:
    """How many conversations MiniJinja renders, all of them as Jinja does."""
    found, count = blocks_of(template), 0
    for chat in CHATS:
        for tools in ([], TOOLS):
            try:
                expected = template.render(chat, tools=tools)
            except Refused:
                expected = None
            text = found.text([chat] * 2, [tools] * 2 if tools else ()) if found else None
            assert text in (None, None if expected is None else f"{expected}{END}" * 2)
            count += text is not None
    return count


@pytest.mark.parametrize("name", sorted(set(named_templates()) - {"deepseek-r1"}))
def test_shipped_templates_are_alike(name: str) -> None:
    assert agrees(ChatTemplate(name, named_templates()[name], SPECIAL)) > 2


def test_published_templates_are_alike(real_data: Path) -> None:
    found = {
        path.stem: agrees(ChatTemplate(path.stem, path.read_text("utf-8"), SPECIAL))
        for path in (real_data / "chat_templates" / "trl").glob("*.jinja")
    }
    assert sum(count > 0 for count in found.values()) >= 42


def written(source: str, **content: Any) -> str | None:
    """What MiniJinja makes of a template for one message; `None` where it is not asked, or refuses. Jinja must say the same."""
    template = ChatTemplate("own", source, SPECIAL)
    found = blocks_of(template)
    text = found.text([[{"role": "user", "content": "Hi", **content}]]) if found else None
    assert text is None or text == template.render([{"role": "user", "content": "Hi", **content}]) + END
    return text


LOOP = "{% for m in messages %}BODY{% endfor %}"


@pytest.mark.parametrize(
    "body",
    [
        "{{ m.content }}\n",
        "  {% if m.x %}\n  x\n  {% endif %}  \n{{- m.content -}}  \n y",
        "{% generation %}{{ m.content }}{% endgeneration %}\n",
        "{%- generation -%} {{ m.content }} {%- endgeneration -%} z",
        "{% if m.x %}{{ m.x | tojson }}{{ m.x | tojson(indent=2) }}{{ m.x | tojson(separators=(',', ':'), sort_keys=true) }}{% endif %}",
        "{{ m.x | tojson(ensure_ascii=true) if m.x }}",
        "{{ strftime_now('%d %b %Y') }}",
        "{{ m.content.strip().split('i')[0] }}{{ m.nothing | default('x') }}{{ messages | length }}{{ tools is none }}",
        "{% macro shown(t) %}<{{ t }}>{% endmacro %}{{ shown(m.content) }}{{ eos_token }}",
        "{{ '' if tools is iterable and tools | length > 0 }}{{ m.content }}",
    ],
)
def test_what_is_alike(body: str) -> None:
    assert written("\n " + LOOP.replace("BODY", body) + "\n\n", x={"b": [1, "é<>&'"], "a": 1e22}) is not None


@pytest.mark.parametrize(
    "body",
    [
        "{{ m.content | upper }}",
        "{{ m.content.isupper() }}",
        "{{ m.content | sort }}",
        "{{ m.content is lower }}",
        "{{ m.content * 3 }}",
        "{{ 7 / 2 }}",
        "{{ cycler('a') }}",
        "{% include 'x' ignore missing %}",
        "{{ m.content }}\r\n",
    ],
)
def test_what_may_differ_is_for_jinja(body: str) -> None:
    assert written(LOOP.replace("BODY", body)) is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (named_templates()["plain"], True),
        (LOOP.replace("BODY", "{{ '<' + m.role + '>' ~ m['content'] }}"), True),
        (LOOP.replace("BODY", "{{ m.role }}{{ m.content | trim }}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% if m.content %}x{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{{ raise_exception(m.content) if m.role == 'x' }}"), False),
        (LOOP.replace("BODY", "{% if m.role == 'x' %}{{ raise_exception(m.content) }}{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% if m == messages[0] %}x{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% if loop.changed(m.role) %}x{% endif %}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{{ loop.previtem }}"), False),
        (LOOP.replace("BODY", "{{ m }}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{{ messages }}"), False),
        (LOOP.replace("BODY", "{{ m.content }}{% for n in messages %}{{ n['con' + 'tent'] }}{% endfor %}"), False),
        (LOOP.replace("BODY", "{{ m.content[0] }}"), False),
        (LOOP.replace("BODY", "{{ m.content == 'x' }}"), False),
        (LOOP.replace("BODY", "{{ m.content * 2 }}"), False),
        (LOOP.replace("BODY", "{{ (m.content, 1) }}"), False),
        (LOOP.replace("BODY", "{% for c in m.content %}{{ c }}{% endfor %}"), False),
        (LOOP.replace("BODY", "{% set x = m.content %}{{ x }}"), False),
        ("{% set ms = messages %}" + LOOP.replace("messages", "ms").replace("BODY", "{{ m.content }}"), False),
        ("{% for m in messages if m.content %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", False),
        ("{% for m, n in messages %}{{ m.content }}{% endfor %}", False),
        ("{% macro x(m) %}{{ m.content }}{% endmacro %}" + LOOP.replace("BODY", "{{ x(m) }}"), False),
    ],
)
def test_templates_that_only_write(source: str, expected: bool) -> None:
    assert only_writes(ChatTemplate("own", source, SPECIAL).parsed) is expected


def test_one_that_is_refused_leaves_the_block_to_jinja() -> None:
    source = LOOP.replace("BODY", "{{ raise_exception('no') if m.content == 'No' else m.content }}")
    assert written(source) == f"Hi{END}"
    found = blocks_of(ChatTemplate("own", source, SPECIAL))
    assert found is not None and found.text([[{"content": "Hi"}], [{"content": "No"}]]) is None


def test_a_loop_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FUEL", 10_000)
    source = LOOP.replace("BODY", "{{ m.content }}{% if 'x' in m.content %}{% for i in range(9000) %}{{ i }}{% endfor %}{% endif %}")
    found = blocks_of(ChatTemplate("ends", source, SPECIAL))
    assert found is not None and found.text([[{"content": "Hi"}]]) == f"Hi{END}"
    assert found.text([[{"content": "x"}]]) is None


def test_json_that_is_known_is_not_made_anew() -> None:
    template = ChatTemplate(
        "own", "{% for t in tools or [] %}{{ t | tojson }}{{ t | tojson(indent=1) }}{{ t.f | tojson }}{% endfor %}", SPECIAL
    )
    tool = {"f": {"a": "é"}, "b": [1]}
    found = blocks_of(template)
    assert found is not None
    assert found.text([[HI]], [[Spelled(tool, '{"f": {"a": "é"}, "b": [1]}')]]) == template.render([HI], tools=[tool]) + END
    assert list(strings(Spelled(tool, ""))) == ["é"]
