"""The environment of templates: Jinja as in transformers, message forms, and MiniJinja for whole blocks."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, Spelled

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# The environment of templates: that of transformers, with a frozen clock.

FROZEN_CLOCK = datetime(2024, 7, 26)
"""The time of ``strftime_now``: the default date of Llama 3.1's template."""
HARMLESS = ("MainThread", "limits", "ends with its parent")
"""Names of threads that import nothing."""
_UTILS_MODULE = "transformers.utils.chat_template_utils"


@cache
def chat_template_utils() -> Any:
    """The module of transformers that compiles chat templates.

    It is imported without the rest of transformers, unless that is imported already: importing the package reads all of its files, which takes
    half a second in every process. If another thread might import the package meanwhile, the whole package is imported.
    """
    spec = find_spec("transformers")
    can_isolate = "transformers" not in sys.modules and all(thread.name in HARMLESS for thread in threading.enumerate())
    if not can_isolate or spec is None or not spec.submodule_search_locations:
        return import_module(_UTILS_MODULE)
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (("transformers", root), ("transformers.utils", root / "utils")):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(folder)]
    try:
        return import_module(_UTILS_MODULE)
    except (ImportError, AttributeError):  # a version that needs more of the package
        pass
    finally:
        for name in [module for module in sys.modules if module.partition(".")[0] == "transformers"]:
            del sys.modules[name]
    return import_module(_UTILS_MODULE)


# The message form of a chat template, found by rendering probes: the key of reasoning, whether arguments are a mapping or text, whether content is text or a
# list of parts.
#
# Template authors agree on roles and on little else. Only the template itself defines its messages, so the candidates are rendered in turn, and the first one
# whose words appear is taken.

Message = Mapping[str, Any]
Render = Callable[..., str]
Shown = Literal["ignored", "shown", "required"]
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
        call_ids: handling of ids of tool calls and of their results.
        result_names: handling of the names of tools in their results.
        names: handling of the names of speakers.
        shows_tools: whether schemas of tools appear in a chat without tool calls.
        shows_documents: whether the documents of a conversation appear.
    """

    reasoning: str = REASONING_KEYS[0]
    shows_reasoning: bool = False
    content: Literal["text", "parts"] = "text"
    image_parts: bool = False
    arguments: Literal["mapping", "text"] = "mapping"
    shows_calls: bool = False
    no_content: Empty = "text"
    call_ids: Shown = "ignored"
    result_names: Shown = "ignored"
    names: Shown = "ignored"
    shows_tools: bool = False
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
        shows_tools=all(shows(word, chat(), tools=[_TOOL]) for word in ("tool", "about")),
        shows_documents=shows("document", chat(), documents=[_DOCUMENT]),
    )
    if shows("speaker", [message("user", "question", name=_PROBE_WORDS["speaker"]), message("assistant", "answer")]):
        form = replace(form, names="required" if try_render(chat()) is None else "shown")
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

    def render_results(*, ids: bool, names: bool) -> str | None:
        fields = {**({"tool_call_id": _CALL_ID} if ids else {}), **({"name": _PROBE_WORDS["tool"]} if names else {})}
        chat_messages = [
            message("user", "question"),
            call_message(arguments, empty, ids),
            message("tool", "result", **fields),
            message("assistant", "answer"),
        ]
        return try_render(chat_messages, tools=[_TOOL])

    with_neither, with_names, with_ids, with_both = (
        render_results(ids=ids, names=names) for ids, names in product((False, True), (False, True))
    )
    shown = with_both or with_names or with_ids or ""
    plain = with_ids or with_neither or shown
    has_names = shown.count(_PROBE_WORDS["tool"]) > plain.count(_PROBE_WORDS["tool"])
    return replace(
        form,
        arguments=arguments,
        shows_calls=True,
        no_content=empty,
        call_ids="required" if with_names is None and with_both is not None else "shown" if _CALL_ID in shown else "ignored",
        result_names="required" if with_ids is None and with_both is not None else "shown" if has_names else "ignored",
    )


def _writes_files(try_render: Callable[..., str | None], kind: str, token: str) -> bool:
    """Whether a part of a file changes the render, other than by the list being written as JSON or by repr."""
    question = {"type": "text", "text": _PROBE_WORDS["question"]}
    without_image, with_image = (try_render([{"role": "user", "content": parts}]) for parts in ([question], [{"type": kind}, question]))
    if without_image is None or with_image is None or _PROBE_WORDS["question"] not in with_image:
        return False
    return len(with_image) > len(without_image) and token in with_image and not _WRITTEN_LIST.search(with_image)


# Blocks of conversations rendered at once by MiniJinja, which is written in Rust and takes a fraction of Jinja's time.
#
# Jinja as in transformers stays the reference. MiniJinja is used only if every feature of a template is known to mean the same in both, and its output is
# never stored: it checks that chats written from their layout equal the render of the template.

FUEL = 1 << 28
"""Instructions per block; if they do not suffice, Jinja renders its conversations."""
WHITE_TO_PYTHON = ("\x1c", "\x1d", "\x1e", "\x1f")
"""Characters that Python strips from texts and Rust does not: Jinja renders texts that hold one."""
END = "\x00"
"""Terminator of each conversation of a block."""
Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]

_GENERATION_TAG = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_BLOCK_SOURCE = "{{% for {each} in prep_assets_chats %}}\n{source}{{{{ '' }}}}\x00{{% endfor %}}"
_FILTERS = frozenset(
    [
        *("count", "d", "default", "first", "int", "items", "join", "last", "length", "list", "map"),
        *("reject", "rejectattr", "replace", "safe", "select", "selectattr", "string", "tojson", "trim"),
    ]
)
_TESTS = frozenset(
    [
        *("!=", "==", "boolean", "defined", "eq", "equalto", "even", "false", "float", "in", "integer", "iterable"),
        *("mapping", "ne", "none", "number", "odd", "sequence", "string", "true", "undefined"),
    ]
)
_METHODS = frozenset(
    ["append", "endswith", "get", "items", "join", "keys", "lstrip", "replace", "rstrip", "split", "startswith", "strip", "values"]
)
_FUNCTIONS = frozenset(("dict", "namespace", "raise_exception", "range", "strftime_now"))
_UNSUPPORTED = ("Mul", "Pow", "Div", "FloorDiv", "Include", "Import", "FromImport", "Extends", "Block", "FilterBlock")
"""Jinja nodes that may differ in meaning, take unbounded memory, or load other templates."""


_WRITING_NODES = frozenset(
    ["Add", "Call", "Compare", "Concat", "Const", "For", "Getattr", "Getitem", "If", "List", "Name", "Operand", "Output", "TemplateData"]
)
"""Jinja nodes of templates that only write."""


class Blocks(Struct, frozen=True):
    """A template in MiniJinja.

    Attributes:
        render: renders a block, from the name of its template and the variables.
        variables: variables common to all conversations.
    """

    render: Callable[..., str]
    variables: Mapping[str, Any]

    def text(self, conversations: Sequence[Messages], tools: Sequence[Tools] = ()) -> str | None:
        """The renders of conversations, each followed by `END`; `None` if Jinja must render one of them.

        Args:
            tools: the tools of each conversation; empty if none has any.
        """
        name, chats = ("with tools", list(zip(conversations, tools, strict=True))) if tools else ("without", conversations)
        try:
            return self.render(name, prep_assets_chats=chats, **self.variables)
        except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError):  # MiniJinja raises RuntimeError
            return None


@bounded_cache("templates in MiniJinja", 64, key=lambda template: template.hash)
def blocks_of(template: ChatTemplate) -> Blocks | None:
    """The template in MiniJinja; `None` if only Jinja can render it."""
    from minijinja import Environment, TemplateError

    if "\r" in template.source or "loop" in template.variables or not _is_alike(template.parsed):
        return None
    environment = Environment(trim_blocks=True, lstrip_blocks=True, debug=False, fuel=FUEL, auto_escape_callback=lambda _: False)
    environment.add_filter("tojson", _to_json)
    environment.add_global("raise_exception", _raise_exception)
    environment.add_global("strftime_now", FROZEN_CLOCK.strftime)
    source = _GENERATION_TAG.sub(
        lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", template.source.removesuffix("\n")
    )
    try:
        for name, target in (("without", "messages"), ("with tools", "messages, tools")):
            environment.add_template(name, _BLOCK_SOURCE.format(each=target, source=source))
    except TemplateError:
        return None
    all_variables = {key: value for key, value in template.render_variables(()).items() if key not in ("messages", "strftime_now")}
    for variables in (all_variables, {key: value for key, value in all_variables.items() if value is not None}):
        blocks = Blocks(environment.render_template, variables)
        if blocks.text([template.plain_chat(2)]) == template.short_chat + END:
            return blocks
    return None


def _is_alike(tree: Any) -> bool:
    """Whether every feature that a template uses means the same in Jinja and in MiniJinja."""
    from jinja2 import nodes

    macros = {macro.name for macro in tree.find_all(nodes.Macro)}
    callees = [call.node for call in tree.find_all(nodes.Call)]
    return (
        _FILTERS.issuperset(node.name for node in tree.find_all(nodes.Filter))
        and _TESTS.issuperset(node.name for node in tree.find_all(nodes.Test))
        and (_METHODS | macros).issuperset(node.attr for node in callees if isinstance(node, nodes.Getattr))
        and (_FUNCTIONS | macros).issuperset(node.name for node in callees if isinstance(node, nodes.Name))
        and not any(tree.find(getattr(nodes, name)) for name in _UNSUPPORTED)
    )


def only_writes(tree: Any) -> bool:
    """Whether a template only writes the contents of messages verbatim, whatever their text. True of the simplest templates only, whose chats
    take less time to write than to render."""
    from jinja2 import nodes

    if any(type(node).__name__ not in _WRITING_NODES for node in tree.find_all(nodes.Node)):
        return False
    loops, fields = list(tree.find_all(nodes.For)), list(tree.find_all((nodes.Getattr, nodes.Getitem)))
    names = [name.name for name in tree.find_all(nodes.Name)]
    loop_names = {getattr(loop.target, "name", None) for loop in loops}
    keys = [field.attr if isinstance(field, nodes.Getattr) else getattr(field.arg, "value", None) for field in fields]
    calls = [getattr(call.node, "name", None) for call in tree.find_all(nodes.Call)]
    outputs = [node for output in tree.find_all(nodes.Output) for node in output.nodes]
    for node in outputs:  # grows meanwhile
        outputs += node.iter_child_nodes() if isinstance(node, nodes.Add | nodes.Concat) else ()
    output_ids = set(map(id, outputs))
    return (
        all(getattr(loop.iter, "name", None) == "messages" and not loop.test and not loop.recursive for loop in loops)
        and all(getattr(field.node, "name", None) in loop_names for field in fields)
        and all(key == "role" or (key == "content" and id(field) in output_ids) for field, key in zip(fields, keys, strict=True))
        # messages are not used in any other way
        and names.count("messages") == len(loops)
        and sum(names.count(name) for name in loop_names) == len(fields) + len(loops)
        and "loop" not in names
        and set(calls) <= {"raise_exception"}
    )


def _to_json(value: Any, **options: Any) -> str:
    if isinstance(value, Spelled) and not options:
        return value.json
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _raise_exception(message: str) -> str:
    raise ValueError(message)
