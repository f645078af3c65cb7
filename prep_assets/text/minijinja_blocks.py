"""Blocks of conversations rendered at once by MiniJinja, which is written in Rust and takes a fraction of Jinja's time.

Jinja as in transformers stays the reference. MiniJinja is used only if every feature of a template is known to mean the same in both, and its output is
never stored: it checks that chats written from their layout equal the render of the template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.samples import Spelled
from prep_assets.text.environment import FROZEN_CLOCK
from prep_assets.text.template import ChatTemplate

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

    if template.renderer is not None or "\r" in template.source or "loop" in template.variables or not _is_alike(template.parsed):
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
