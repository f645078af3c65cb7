"""What a template asks about the texts of a conversation, found by running it with every question noted.

A template is a black box that writes texts, and may look into them: ``'</think>' in content``, ``content.startswith('<tool_response>')``. Here it
runs on a conversation of invented words with each comparison, test, filter, call and index noted that touches one of them. Another conversation
of the same form, whose texts give the same answers to these questions, takes the same way through the template. So its render is the same one
with other texts in the places of the words.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

from prep_assets.templates.opaque import Arguments, Length, Number, Opaque, OpaqueObject
from prep_assets.templates.questions import OF_TYPE, Questions, holds

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


@dataclass(frozen=True)
class Watched:
    """A template that notes what it asks.

    Attributes:
        compiled: the template as it renders data.
        source: its text.
    """

    compiled: Any
    source: str
    _now: list[Questions] = field(default_factory=list)

    def render(self, variables: Mapping[str, Any]) -> tuple[str, Questions]:
        """The render with these variables, and what was asked."""
        from jinja2 import TemplateError as JinjaError

        asked = Questions()
        self._now[:] = [asked]
        tools = [OpaqueObject(tool, asked) for tool in variables["tools"] or ()] or None
        messages = _watched_arguments(variables["messages"], asked)
        try:
            return str(self.template.render(**{**variables, "tools": tools, "messages": messages})), asked
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError):  # what is closed to looks is no dict
            asked.cannot_tell("an error under watch")
            return "", asked

    @cached_property
    def template(self) -> Any:
        """The template under watch."""
        from jinja2 import Template

        plain = self.compiled.environment
        environment = plain.overlay()
        environment.filters = {name: self._noted(name, each, Questions.filter) for name, each in plain.filters.items()}
        environment.tests = {name: self._noted(name, each, Questions.test) for name, each in plain.tests.items()}
        environment.filters |= {"watch_compare": self._compare, "watch_text": self._text, "watch_shown": self._shown}
        call = environment.call

        def noted_call(context: Any, function: Any, *arguments: Any, **named: Any) -> Any:
            # Jinja passes the variables of a block or a loop along
            own = {key: each for key, each in named.items() if key not in ("_loop_vars", "_block_vars")}
            self._now[0].call(function, arguments, own)
            return call(context, function, *arguments, **named)

        environment.call = noted_call
        tree = _rewritten(environment.parse(self.source))
        return Template.from_code(environment, environment.compile(tree), plain.make_globals(None))

    def _noted(self, name: str, function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        passes = int(getattr(function, "jinja_pass_arg", None) is not None)

        @wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            if isinstance(arguments[0], Opaque) and note is Questions.filter and name in ("tojson", "string"):
                return arguments[0].write(lambda value: function(value, *arguments[1:], **named))
            if isinstance(arguments[0], Opaque) and note is Questions.test and name in OF_TYPE:
                return function(arguments[0].unwatched, *arguments[1:], **named)
            if isinstance(arguments[0], str) and note is Questions.filter and name in ("length", "count") and holds(arguments[0]):
                return Length(self._now[0])
            if self._now:
                note(self._now[0], name, arguments[passes], [*arguments[passes + 1 :], *named.values()])
            return function(*arguments, **named)

        return noted

    def _compare(self, left: Any, *rest: Any) -> Any:
        """A chain of comparisons: name and operand in turn."""
        result = True
        for name, right in zip(rest[::2], rest[1::2], strict=True):
            self._now[0].compare(name, left, right)
            result = _COMPARE[name](left, right)
            if not result:
                return result
            left = right
        return result

    def _text(self, value: Any, what: str) -> Any:
        """A place where a text is taken apart, or a number."""
        if isinstance(value, str | Number) and holds(value):
            self._now[0].cannot_tell(what)
        return value

    def _shown(self, value: Any) -> Any:
        """A place where a value is written; a list or an object is written in Python's spelling, with escapes."""
        if not isinstance(value, str | Number) and holds(value):
            self._now[0].cannot_tell("a list or an object of texts is written")
        return value


def _watched_arguments(messages: Sequence[Mapping[str, Any]], asked: Questions) -> list[Mapping[str, Any]]:
    """The messages, with the arguments of their calls under watch."""

    def closed(call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = function["arguments"]
        return {
            **call,
            "function": {
                **function,
                "arguments": Arguments(arguments, asked) if holds(arguments) and isinstance(arguments, dict) else arguments,
            },
        }

    return [{**each, "tool_calls": [closed(call) for call in each["tool_calls"]]} if "tool_calls" in each else each for each in messages]


def _rewritten(tree: Any) -> Any:
    """The parsed template with its comparisons, loops, indices, arithmetic and outputs under watch."""
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def watched(node: Any, name: str, *arguments: Any) -> Any:
        return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)

    def taken_apart(node: Any, what: str) -> Any:
        return watched(node, "watch_text", nodes.Const(what, lineno=node.lineno))

    class Rewriter(NodeTransformer):
        def visit_Compare(self, node: Any) -> Any:
            self.generic_visit(node)
            operands = [part for each in node.ops for part in (nodes.Const(each.op, lineno=node.lineno), each.expr)]
            return watched(node.expr, "watch_compare", *operands)

        def visit_For(self, node: Any) -> Any:
            self.generic_visit(node)
            node.iter = taken_apart(node.iter, "a loop over the characters of a text")
            return node

        def visit_Getitem(self, node: Any) -> Any:
            self.generic_visit(node)
            if node.ctx == "load":
                node.node = taken_apart(node.node, "a part of a text")
                if isinstance(node.arg, nodes.Slice):
                    for edge in ("start", "stop", "step"):
                        if (own := getattr(node.arg, edge)) is not None:
                            setattr(node.arg, edge, taken_apart(own, "a number as an edge"))
                elif not isinstance(node.arg, nodes.Const):
                    node.arg = taken_apart(node.arg, "a text as an index")
            return node

        def _arithmetic(self, node: Any) -> Any:
            self.generic_visit(node)
            node.left, node.right = (taken_apart(each, "arithmetic with a text") for each in (node.left, node.right))
            return node

        visit_Sub = visit_Mul = visit_Div = visit_FloorDiv = visit_Mod = visit_Pow = _arithmetic

        def visit_Output(self, node: Any) -> Any:
            self.generic_visit(node)
            node.nodes = [each if isinstance(each, nodes.TemplateData) else watched(each, "watch_shown") for each in node.nodes]
            return node

        def visit_Concat(self, node: Any) -> Any:
            self.generic_visit(node)
            node.nodes = [watched(each, "watch_shown") for each in node.nodes]
            return node

    return Rewriter().visit(tree)
