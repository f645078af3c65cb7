"""What a template asks about the texts of a conversation, found by running it with every question noted.

A template is a black box that writes texts, and may look into them: ``'</think>' in content``, ``content.startswith('<tool_response>')``. Here it
runs on a conversation of invented words with each comparison, test, filter, call and index noted that touches one of them. Another conversation
of the same form, whose texts give the same answers to these questions, takes the same way through the template. So its render is the same one
with other texts in the places of the words.

Answers stay the same where a text is not blank and holds none of the `Questions.needles`. Whatever else a template asks (the length of a text,
its first character, whether two texts are equal) makes it `Questions.open`: nothing follows for other texts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

LETTERS = "abcdefghijklmnop"
WORD = re.compile("vx[a-p]+xv")

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
_OF_TYPE = frozenset(
    [
        "defined",
        "undefined",
        "none",
        "string",
        "mapping",
        "iterable",
        "sequence",
        "number",
        "boolean",
        "true",
        "false",
        "integer",
        "float",
        "callable",
        "filter",
        "test",
    ]
)
_EQUAL = frozenset({"eq", "==", "equalto", "ne", "!=", "in"})
_SEARCHES = frozenset(
    [
        "startswith",
        "endswith",
        "split",
        "rsplit",
        "partition",
        "rpartition",
        "replace",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "removeprefix",
        "removesuffix",
    ]
)
_STRIPS = frozenset({"strip", "lstrip", "rstrip"})
_OF_CONTAINERS = frozenset(["length", "count", "first", "last", "list", "reverse", "items", "default", "d", "string"])


def word(number: int) -> str:
    """An invented word, another one for each number."""
    return "vx" + "".join(LETTERS[int(digit, 16)] for digit in f"{number:x}") + "xv"


@dataclass
class Questions:
    """What a template asked about texts.

    Attributes:
        needles: strings that it searched for in a text, or compared one with.
        trims_some: whether it strips chosen white space, such as line breaks only, so that nothing follows for texts with white space at their ends.
        open: the first question whose answer may be another for other texts; ``""`` where there is none.
    """

    needles: set[str] = field(default_factory=set)
    trims_some: bool = False
    open: str = ""

    def cannot_tell(self, question: str) -> None:
        """Note a question that other texts may answer otherwise."""
        self.open = self.open or question

    def search(self, needle: Any, value: Any) -> None:
        """Note a search in a text, or a comparison with one."""
        texts = needle if isinstance(needle, tuple) else (needle,)
        if not isinstance(value, str) or not WORD.fullmatch(value.strip()):
            self.cannot_tell("a search in more than one text")  # which may be found across their border
        elif any(_holds(each) or (isinstance(each, str) and not each.strip() and each) for each in texts):
            self.cannot_tell("a search for another text, or for white space")
        else:
            self.needles |= {each for each in texts if isinstance(each, str) and each}

    def compare(self, name: str, left: Any, right: Any) -> None:
        """Note a comparison."""
        if name in ("in", "notin") and isinstance(right, Mapping):
            right = list(right)
        if not _holds(left) and not _holds(right):
            return
        if name in ("in", "notin") and isinstance(right, str):
            self.search(left, right)
        elif name in ("in", "notin") and isinstance(right, list | tuple):
            for each in right:
                self.compare("eq", left, each)
        elif name in ("eq", "ne"):
            text, other = (left, right) if _holds(left) else (right, left)
            if isinstance(text, str) and (other is None or isinstance(other, bool | int | float)):
                return
            self.search(other, text)
        else:
            self.cannot_tell(f"a comparison ({name}) of texts")

    def call(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Note a call."""
        from jinja2.runtime import Macro

        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        given = [*arguments, *named.values()]
        if isinstance(function, Macro) or not (_holds(owner) or any(map(_holds, given))):
            return
        if isinstance(owner, str) and _holds(owner) and name in _STRIPS:
            self._strip(given[0] if given else None)
        elif isinstance(owner, str) and _holds(owner) and name in _SEARCHES and given and not any(map(_holds, given)):
            self.search(given[0], owner)
        elif (
            (isinstance(owner, dict) and not any(map(_holds, given[:1])))
            or (isinstance(owner, list) and name == "append")
            or (isinstance(owner, str) and name == "join" and not _holds(owner) and isinstance(given[0], list | tuple))
            or getattr(function, "__name__", "") == "TemplateNamespace"
        ):
            return
        else:
            self.cannot_tell(f"a call of {name or type(function).__name__} with texts")

    def _strip(self, characters: Any) -> None:
        if characters is not None:
            self.trims_some = True
            if not isinstance(characters, str) or characters.strip():
                self.cannot_tell("a strip of other characters than white space")

    def filter(self, name: str, value: Any, given: Sequence[Any]) -> None:
        """Note a filter."""
        if not _holds(value) and not any(map(_holds, given)):
            return
        if name == "trim" and isinstance(value, str) and not any(map(_holds, given)):
            self._strip(given[0] if given else None)
        elif name == "replace" and isinstance(value, str) and not _holds(given[:1]):
            self.search(given[0], value)
        elif (
            name in ("default", "d", "safe")
            or (name == "string" and isinstance(value, str))
            or (name == "join" and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value))
            or (name in _OF_CONTAINERS - {"string"} and isinstance(value, list | tuple | dict))
            or (name in ("selectattr", "rejectattr") and not _holds([_item(each, given[0]) for each in value]))
            or (name == "map" and not given and isinstance(value, list | tuple))
        ):
            return
        else:
            self.cannot_tell(f"the filter {name} on texts")

    def test(self, name: str, value: Any, given: Sequence[Any]) -> None:
        """Note a test."""
        if name in _OF_TYPE or not (_holds(value) or any(map(_holds, given))):
            return
        if name in _EQUAL and given:
            self.compare("in" if name == "in" else "eq", value, given[0])
        else:
            self.cannot_tell(f"the test {name} on texts")


def _item(value: Any, name: Any) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, str(name), None)


def _holds(value: Any) -> bool:
    """Whether one of the invented words stands in a value."""
    if isinstance(value, str):
        return WORD.search(value) is not None
    if isinstance(value, Mapping):
        return any(_holds(key) or _holds(inner) for key, inner in value.items())
    return isinstance(value, list | tuple | set) and any(map(_holds, value))


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
        self._now[:] = [Questions()]
        text = self._template.render(**variables)
        return str(text), self._now[0]

    @cached_property
    def _template(self) -> Any:
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
        """A place where a text is taken apart."""
        if isinstance(value, str) and _holds(value):
            self._now[0].cannot_tell(what)
        return value

    def _shown(self, value: Any) -> Any:
        """A place where a value is written; a list or an object is written in Python's spelling, with escapes."""
        if not isinstance(value, str) and _holds(value):
            self._now[0].cannot_tell("a list or an object of texts is written")
        return value


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
                if not isinstance(node.arg, nodes.Const | nodes.Slice):
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
