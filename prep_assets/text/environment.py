"""What templates run in: Jinja as transformers sets it up, the form of messages, and MiniJinja for whole blocks."""

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

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# What templates run in: the environment of transformers, and a clock that stands.

FROZEN_CLOCK = datetime(2024, 7, 26)
"""What ``strftime_now`` shows: the day that Llama 3.1's own template falls back to."""
HARMLESS = ("MainThread", "limits", "ends with its parent")
"""Threads that import nothing."""
_MODULE = "transformers.utils.chat_template_utils"


@cache
def chat_template_utils() -> Any:
    """The module of transformers that compiles chat templates.

    It comes without the rest of transformers, unless that is imported already: the package reads all its own files when it is imported, which
    takes half a second in every process. Where another thread might import the package meanwhile, it is imported whole.
    """
    spec = find_spec("transformers")
    alone = "transformers" not in sys.modules and all(thread.name in HARMLESS for thread in threading.enumerate())
    if not alone or spec is None or not spec.submodule_search_locations:
        return import_module(_MODULE)
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (("transformers", root), ("transformers.utils", root / "utils")):
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(folder)]
    try:
        return import_module(_MODULE)
    except (ImportError, AttributeError):  # a version in which it needs more of the package
        pass
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "transformers"]:
            del sys.modules[name]
    return import_module(_MODULE)


# The form of messages that a chat template reads, found by rendering probes: under which key reasoning stands, whether arguments are a mapping or text,
# whether content is text or a list of parts.
#
# Template authors agree on roles and on little else. What a message must look like is not written down anywhere but in the template itself, so each candidate
# is rendered, and the first whose words appear is taken.

Message = Mapping[str, Any]
Render = Callable[..., str]
Shown = Literal["ignored", "shown", "required"]
Empty = Literal["text", "null", "absent"]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning", "thought")
"""Keys under which published templates read reasoning, the most common first."""

_WORDS = {name: f"zq{name}" for name in ("question", "answer", "thought", "tool", "about", "value", "result", "speaker", "document")}
_LISTED = re.compile(r"""["']type["']: ["'](text|image)""", re.IGNORECASE)  # a list of parts, written out as JSON or as Python writes it
_ID = "zqcall123"  # nine letters and digits, as Mistral's templates demand


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What the messages of one template must look like, and what of them it shows.

    Attributes:
        reasoning: the key of an assistant's reasoning; ``reasoning_content`` where the template shows none.
        shows_reasoning: whether reasoning appears in the last answer.
        content: ``text``, or ``parts``: a list of ``{"type": "text", "text": …}``.
        image_parts: whether it writes something for a part ``{"type": "image"}``, so that images need no placeholder in the text.
        arguments: ``mapping``, or ``text``: JSON that the template puts in as it is.
        shows_calls: whether tool calls appear.
        no_content: what ``content`` is beside tool calls without text: empty text, null, or left out.
        call_ids: ids of tool calls and of their results.
        result_names: names of the tools in their results.
        names: names of speakers.
        shows_tools: whether schemas of tools appear in a chat that calls none.
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
        "name": _WORDS["tool"],
        "description": _WORDS["about"],
        "parameters": {"type": "object", "properties": {"zqkey": {"type": "string", "description": "A key."}}, "required": ["zqkey"]},
    },
}
_DOCUMENT: Mapping[str, Any] = dict.fromkeys(("title", "text", "content"), _WORDS["document"])
_ARGUMENTS: tuple[Literal["mapping", "text"], ...] = ("mapping", "text")
_EMPTY: tuple[Empty, ...] = ("text", "null", "absent")


def find_form(render: Render, image_token: str = "") -> MessageForm:
    """Probe a template.

    Args:
        render: takes messages, `tools`, `documents` and `generation_prompt`, and raises `Refused` as `ChatTemplate.render`.
        image_token: what a template must write for an image; any text where it is empty.
    """
    parts = False

    def said(role: str, word: str, **more: Any) -> Message:
        return {"role": role, "content": [{"type": "text", "text": _WORDS[word]}] if parts else _WORDS[word], **more}

    def chat(**more: Any) -> list[Message]:
        return [said("user", "question"), said("assistant", "answer", **more)]

    def text(messages: Sequence[Message], **more: Any) -> str | None:
        try:
            return render(messages, **more)
        except Refused:
            return None

    def shows(word: str, messages: Sequence[Message], **more: Any) -> bool:
        return _WORDS[word] in (text(messages, **more) or "")

    def call(arguments: str, empty: Empty, ids: bool) -> Message:
        given: Any = {"zqkey": _WORDS["value"]} if arguments == "mapping" else f'{{"zqkey": "{_WORDS["value"]}"}}'
        made = {"type": "function", "function": {"name": _WORDS["tool"], "arguments": given}, **({"id": _ID} if ids else {})}
        content: dict[str, Any] = {} if empty == "absent" else {"content": "" if empty == "text" else None}
        return {"role": "assistant", **content, "tool_calls": [made]}

    if not shows("answer", chat()):
        parts = True
        listed = text(chat()) or ""
        parts = _WORDS["answer"] in listed and not _LISTED.search(listed)
    reasoning = next((key for key in REASONING_KEYS if shows("thought", chat(**{key: _WORDS["thought"]}))), None)
    form = MessageForm(
        reasoning=reasoning or REASONING_KEYS[0],
        shows_reasoning=reasoning is not None,
        content="parts" if parts else "text",
        image_parts=_writes_images(text, image_token),
        shows_tools=all(shows(word, chat(), tools=[_TOOL]) for word in ("tool", "about")),
        shows_documents=shows("document", chat(), documents=[_DOCUMENT]),
    )
    if shows("speaker", [said("user", "question", name=_WORDS["speaker"]), said("assistant", "answer")]):
        form = replace(form, names="required" if text(chat()) is None else "shown")
    for arguments, empty, ids in product(_ARGUMENTS, _EMPTY, (False, True)):
        found = text([said("user", "question"), call(arguments, empty, ids)], tools=[_TOOL])
        # as JSON or in a notation of its own, and not as Python writes a mapping; what stands before is the schema of the tool
        if found and _WORDS["tool"] in found.rpartition(_WORDS["about"])[2] and _WORDS["value"] in found and "{'zqkey'" not in found:
            break
    else:
        return form

    def results(*, ids: bool, names: bool) -> str | None:
        more = {**({"tool_call_id": _ID} if ids else {}), **({"name": _WORDS["tool"]} if names else {})}
        listed = [said("user", "question"), call(arguments, empty, ids), said("tool", "result", **more), said("assistant", "answer")]
        return text(listed, tools=[_TOOL])

    bare, named, numbered, both = (results(ids=ids, names=names) for ids, names in product((False, True), (False, True)))
    shown = both or named or numbered or ""
    plain = numbered or bare or shown
    has_names = shown.count(_WORDS["tool"]) > plain.count(_WORDS["tool"])
    return replace(
        form,
        arguments=arguments,
        shows_calls=True,
        no_content=empty,
        call_ids="required" if named is None and both is not None else "shown" if _ID in shown else "ignored",
        result_names="required" if numbered is None and both is not None else "shown" if has_names else "ignored",
    )


def _writes_images(text: Callable[..., str | None], image_token: str) -> bool:
    """Whether an image among the parts changes what is rendered, and not because the list is written out as JSON or as Python."""
    question = {"type": "text", "text": _WORDS["question"]}
    words, pictured = (text([{"role": "user", "content": parts}]) for parts in ([question], [{"type": "image"}, question]))
    if words is None or pictured is None or _WORDS["question"] not in pictured:
        return False
    return len(pictured) > len(words) and image_token in pictured and not _LISTED.search(pictured)


# Whole blocks of conversations rendered at once by MiniJinja, which is written in Rust and takes a fraction of Jinja's time.
#
# Jinja as transformers sets it up stays the reference. MiniJinja is asked only where all that a template uses is known to mean the same in both, and what it
# answers is never stored for its own sake: it says whether chats that are written by their form are what the template makes of them.

FUEL = 1 << 28
"""Instructions for each block; where they do not suffice Jinja gets its conversations."""
WHITE_TO_PYTHON = ("\x1c", "\x1d", "\x1e", "\x1f")
"""Characters that Python strips from the ends of texts, and Rust does not: texts that hold one are for Jinja."""
END = "\x00"
"""What stands after each conversation of a block."""
Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]

_TAGS = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_BLOCK = "{{% for {each} in prep_assets_chats %}}\n{source}{{{{ '' }}}}\x00{{% endfor %}}"
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
_OTHERS = ("Mul", "Pow", "Div", "FloorDiv", "Include", "Import", "FromImport", "Extends", "Block", "FilterBlock")
"""Parts of a template that may mean something else, take any amount of memory, or load other templates."""


class Spelled(dict[str, Any]):
    """A tool or the arguments of a call, with their JSON, which is not made anew where a template writes it."""

    __slots__ = ("json",)

    def __init__(self, value: Mapping[str, Any], text: str) -> None:
        super().__init__(value)
        self.json = text


_SIMPLE = frozenset(
    ["Add", "Call", "Compare", "Concat", "Const", "For", "Getattr", "Getitem", "If", "List", "Name", "Operand", "Output", "TemplateData"]
)
"""Parts of templates that only write."""


@dataclass(frozen=True)
class Blocks:
    """A template in MiniJinja.

    Attributes:
        render: gives the text of a block from its name and the variables.
        variables: those that all conversations share.
    """

    render: Callable[..., str]
    variables: Mapping[str, Any]

    def text(self, conversations: Sequence[Messages], tools: Sequence[Tools] = ()) -> str | None:
        """The texts of conversations, each with `END` after it; `None` where one of them is for Jinja.

        Args:
            tools: those of each conversation; nothing where none has any.
        """
        name, chats = ("with tools", list(zip(conversations, tools, strict=True))) if tools else ("without", conversations)
        try:
            return self.render(name, prep_assets_chats=chats, **self.variables)
        except (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError):  # the first is MiniJinja's own
            return None


@bounded_cache("templates in MiniJinja", 64, key=lambda template: template.hash)
def blocks_of(template: ChatTemplate) -> Blocks | None:
    """The template in MiniJinja; `None` where it is for Jinja alone."""
    from minijinja import Environment, TemplateError

    if "\r" in template.source or "loop" in template.variables or not _is_alike(template.parsed):
        return None
    environment = Environment(trim_blocks=True, lstrip_blocks=True, debug=False, fuel=FUEL, auto_escape_callback=lambda _: False)
    environment.add_filter("tojson", _to_json)
    environment.add_global("raise_exception", _refuse)
    environment.add_global("strftime_now", FROZEN_CLOCK.strftime)
    source = _TAGS.sub(lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}", template.source.removesuffix("\n"))
    try:
        for name, each in (("without", "messages"), ("with tools", "messages, tools")):
            environment.add_template(name, _BLOCK.format(each=each, source=source))
    except TemplateError:
        return None
    given = {key: value for key, value in template.render_variables(()).items() if key not in ("messages", "strftime_now")}
    for variables in (given, {key: value for key, value in given.items() if value is not None}):
        found = Blocks(environment.render_template, variables)
        if found.text([template.plain_chat(2)]) == template.short_chat + END:
            return found
    return None


def _is_alike(tree: Any) -> bool:
    """Whether all that a template uses means the same in both."""
    from jinja2 import nodes

    macros = {macro.name for macro in tree.find_all(nodes.Macro)}
    called = [call.node for call in tree.find_all(nodes.Call)]
    return (
        _FILTERS.issuperset(each.name for each in tree.find_all(nodes.Filter))
        and _TESTS.issuperset(each.name for each in tree.find_all(nodes.Test))
        and (_METHODS | macros).issuperset(each.attr for each in called if isinstance(each, nodes.Getattr))
        and (_FUNCTIONS | macros).issuperset(each.name for each in called if isinstance(each, nodes.Name))
        and not any(tree.find(getattr(nodes, name)) for name in _OTHERS)
    )


def only_writes(tree: Any) -> bool:
    """Whether a template does nothing with the contents of messages but write them as they are: no other text can make it write anything else. True of the
    simplest templates alone, whose chats take less time than a render."""
    from jinja2 import nodes

    if any(type(each).__name__ not in _SIMPLE for each in tree.find_all(nodes.Node)):
        return False
    loops, fields = list(tree.find_all(nodes.For)), list(tree.find_all((nodes.Getattr, nodes.Getitem)))
    names = [each.name for each in tree.find_all(nodes.Name)]
    message = {getattr(loop.target, "name", None) for loop in loops}
    keys = [each.attr if isinstance(each, nodes.Getattr) else getattr(each.arg, "value", None) for each in fields]
    calls = [getattr(call.node, "name", None) for call in tree.find_all(nodes.Call)]
    written = [each for output in tree.find_all(nodes.Output) for each in output.nodes]
    for each in written:  # which grows
        written += each.iter_child_nodes() if isinstance(each, nodes.Add | nodes.Concat) else ()
    shown = set(map(id, written))
    return (
        all(getattr(loop.iter, "name", None) == "messages" and not loop.test and not loop.recursive for loop in loops)
        and all(getattr(each.node, "name", None) in message for each in fields)
        and all(key == "role" or (key == "content" and id(each) in shown) for each, key in zip(fields, keys, strict=True))
        # nothing else is done with a message or with all of them
        and names.count("messages") == len(loops)
        and sum(names.count(each) for each in message) == len(fields) + len(loops)
        and "loop" not in names
        and set(calls) <= {"raise_exception"}
    )


def _to_json(value: Any, **how: Any) -> str:
    if isinstance(value, Spelled) and not how:
        return value.json
    return json.dumps(value, **{"ensure_ascii": False, **how})


def _refuse(message: str) -> str:
    raise ValueError(message)
