"""The environment of templates: Jinja as in transformers, message forms, and MiniJinja for whole blocks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from itertools import product
from pathlib import Path
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE

# The environment of templates: that of transformers, with a frozen clock.

FROZEN_CLOCK = datetime(2024, 7, 26)
"""The time of ``strftime_now``: the default date of Llama 3.1's template."""
_OWN_NAME = "prep_assets_transformers"


@cache
def chat_template_utils() -> Any:
    """The module of transformers that compiles chat templates.

    It is imported under a name of ours, without the package transformers, which reads all of its files: more than a second in every process.
    """
    found = find_spec("transformers")
    root = Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else Path()
    for name, folder in ((_OWN_NAME, root), (f"{_OWN_NAME}.utils", root / "utils")):
        package = ModuleSpec(name, None, is_package=True)
        package.submodule_search_locations = [str(folder)]
        sys.modules[name] = module_from_spec(package)
    try:
        return import_module(f"{_OWN_NAME}.utils.chat_template_utils")
    except (ImportError, AttributeError):  # a version that needs more of the package
        return import_module("transformers.utils.chat_template_utils")


# The message form of a chat template, found by rendering probes: the key of reasoning, whether arguments are a mapping or text, whether content is text or a
# list of parts.
#
# Template authors agree on roles and on little else. Only the template itself defines its messages, so the candidates are rendered in turn, and the first one
# whose words appear is taken.

Message = Mapping[str, Any]
Render = Callable[..., str]
Empty = Literal["text", "null", "absent"]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning", "thought")
"""Keys of reasoning in published templates, the most common first."""

_PROBE_WORDS = {name: f"zq{name}" for name in ("question", "answer", "thought", "tool", "about", "value", "result", "speaker", "document")}
_WRITTEN_LIST = re.compile(
    r"""["']type["']: ["'](text|image|audio|video)""", re.IGNORECASE
)  # a list of parts written as JSON or by Python's repr
_CALL_ID = "zqcall123"  # nine letters and digits, as Mistral's templates demand


@dataclass(frozen=True, slots=True)
class MessageForm:
    """The form of messages that a template reads, and the parts that it renders.

    Attributes:
        reasoning: the key of an assistant's reasoning; ``reasoning_content`` if the template shows none.
        shows_reasoning: whether reasoning appears in the last answer.
        content: ``text``, or ``parts``: a list of ``{"type": "text", "text": …}``.
        image_parts: whether it renders a part ``{"type": "image"}``, or of audio or video, so that files need no placeholder in the text.
        arguments: ``mapping``, or ``text``: JSON that the template inserts verbatim.
        shows_calls: whether tool calls appear.
        no_content: ``content`` of a message with tool calls and no text: empty text, null, or absent.
        shows_documents: whether the documents of a conversation appear.
    """

    reasoning: str = REASONING_KEYS[0]
    shows_reasoning: bool = False
    content: Literal["text", "parts"] = "text"
    image_parts: bool = False
    arguments: Literal["mapping", "text"] = "mapping"
    shows_calls: bool = False
    no_content: Empty = "text"
    shows_documents: bool = False


_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": _PROBE_WORDS["tool"],
        "description": _PROBE_WORDS["about"],
        "parameters": {"type": "object", "properties": {"zqkey": {"type": "string", "description": "A key."}}, "required": ["zqkey"]},
    },
}
_DOCUMENT: Mapping[str, Any] = dict.fromkeys(("title", "text", "content"), _PROBE_WORDS["document"])
_ARGUMENTS: tuple[Literal["mapping", "text"], ...] = ("mapping", "text")
_NO_CONTENT: tuple[Empty, ...] = ("text", "null", "absent")


def find_form(render: Render, marks: Mapping[str, str] = {}) -> MessageForm:
    """Find the message form of a template by probing.

    Args:
        render: takes messages, `tools`, `documents` and `generation_prompt`, and raises `Refused`, like `ChatTemplate.render`.
        marks: kind of files → the text that a template must write for one; without any, any text for an image.
    """
    parts = False

    def message(role: str, word: str, **fields: Any) -> Message:
        return {"role": role, "content": [{"type": "text", "text": _PROBE_WORDS[word]}] if parts else _PROBE_WORDS[word], **fields}

    def chat(**fields: Any) -> list[Message]:
        return [message("user", "question"), message("assistant", "answer", **fields)]

    def try_render(messages: Sequence[Message], **options: Any) -> str | None:
        try:
            return render(messages, **options)
        except Refused:
            return None

    def shows(word: str, messages: Sequence[Message], **options: Any) -> bool:
        return _PROBE_WORDS[word] in (try_render(messages, **options) or "")

    def call_message(arguments: str, empty: Empty, ids: bool) -> Message:
        values: Any = {"zqkey": _PROBE_WORDS["value"]} if arguments == "mapping" else f'{{"zqkey": "{_PROBE_WORDS["value"]}"}}'
        tool_call = {
            "type": "function",
            "function": {"name": _PROBE_WORDS["tool"], "arguments": values},
            **({"id": _CALL_ID} if ids else {}),
        }
        content: dict[str, Any] = {} if empty == "absent" else {"content": "" if empty == "text" else None}
        return {"role": "assistant", **content, "tool_calls": [tool_call]}

    if not shows("answer", chat()):
        parts = True
        rendered = try_render(chat()) or ""
        parts = _PROBE_WORDS["answer"] in rendered and not _WRITTEN_LIST.search(rendered)
    reasoning = next((key for key in REASONING_KEYS if shows("thought", chat(**{key: _PROBE_WORDS["thought"]}))), None)
    form = MessageForm(
        reasoning=reasoning or REASONING_KEYS[0],
        shows_reasoning=reasoning is not None,
        content="parts" if parts else "text",
        image_parts=any(_writes_files(try_render, *mark) for mark in (marks or {IMAGE: ""}).items()),
        shows_documents=shows("document", chat(), documents=[_DOCUMENT]),
    )
    for arguments, empty, ids in product(_ARGUMENTS, _NO_CONTENT, (False, True)):
        rendered_call = try_render([message("user", "question"), call_message(arguments, empty, ids)], tools=[_TOOL])
        # as JSON or in another notation, but not as the repr of a mapping; the schema of the tool comes before
        if (
            rendered_call
            and _PROBE_WORDS["tool"] in rendered_call.rpartition(_PROBE_WORDS["about"])[2]
            and _PROBE_WORDS["value"] in rendered_call
            and "{'zqkey'" not in rendered_call
        ):
            break
    else:
        return form

    # results say no more of the form, but their renders may hold control tokens that no other has (`template.probe_renders`)
    for ids, names in product((False, True), (False, True)):
        fields = {**({"tool_call_id": _CALL_ID} if ids else {}), **({"name": _PROBE_WORDS["tool"]} if names else {})}
        result = message("tool", "result", **fields)
        called = message("user", "question"), call_message(arguments, empty, ids)
        try_render([*called, result, message("assistant", "answer")], tools=[_TOOL])
    return replace(form, arguments=arguments, shows_calls=True, no_content=empty)


def _writes_files(try_render: Callable[..., str | None], kind: str, token: str) -> bool:
    """Whether a part of a file changes the render, other than by the list being written as JSON or by repr."""
    question = {"type": "text", "text": _PROBE_WORDS["question"]}
    without_image, with_image = (try_render([{"role": "user", "content": parts}]) for parts in ([question], [{"type": kind}, question]))
    if without_image is None or with_image is None or _PROBE_WORDS["question"] not in with_image:
        return False
    return len(with_image) > len(without_image) and token in with_image and not _WRITTEN_LIST.search(with_image)
