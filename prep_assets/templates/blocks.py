"""Whole blocks of conversations rendered at once by MiniJinja, which is written in Rust and takes a fraction of Jinja's time.

Jinja as transformers sets it up stays the reference. MiniJinja is asked only where all that a template uses is known to mean the same in both, and what it
answers is never stored for its own sake: it says whether chats that are written by their form are what the template makes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prep_assets.caches import bounded_cache
from prep_assets.templates.environment import FROZEN_CLOCK

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

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
        "count",
        "d",
        "default",
        "first",
        "int",
        "items",
        "join",
        "last",
        "length",
        "list",
        "map",
        "reject",
        "rejectattr",
        "replace",
        "safe",
        "select",
        "selectattr",
        "string",
        "tojson",
        "trim",
    ]
)
_TESTS = frozenset(
    [
        "!=",
        "==",
        "boolean",
        "defined",
        "eq",
        "equalto",
        "even",
        "false",
        "float",
        "in",
        "integer",
        "iterable",
        "mapping",
        "ne",
        "none",
        "number",
        "odd",
        "sequence",
        "string",
        "true",
        "undefined",
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
    given = {key: value for key, value in template.given(()).items() if key not in ("messages", "strftime_now")}
    for variables in (given, {key: value for key, value in given.items() if value is not None}):
        found = Blocks(environment.render_template, variables)
        if found.text([template.plain_chat(2)]) == template.short_chat + END:
            return found
    return None


def _is_alike(tree: Any) -> bool:
    """Whether all that a template uses means the same in both."""
    from jinja2 import nodes

    own = {macro.name for macro in tree.find_all(nodes.Macro)}
    if any(each.name not in _FILTERS for each in tree.find_all(nodes.Filter)) or any(
        each.name not in _TESTS for each in tree.find_all(nodes.Test)
    ):
        return False
    for called in (call.node for call in tree.find_all(nodes.Call)):
        if isinstance(called, nodes.Getattr) and called.attr not in _METHODS | own:
            return False
        if isinstance(called, nodes.Name) and called.name not in _FUNCTIONS | own:
            return False
    return not any(tree.find(getattr(nodes, name)) for name in _OTHERS)


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
