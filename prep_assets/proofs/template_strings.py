"""The strings of a chat template's source that a text may be compared with or searched for: all but those that are only written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from prep_assets.templates.environment import chat_template_utils


def strings_looked_for(sources: Iterable[str]) -> tuple[str, ...]:
    """The strings of some templates, sorted; those of one character and names of fields are left out."""
    from jinja2 import nodes

    trees = [chat_template_utils()._compile_jinja_template(source).environment.parse(source) for source in sources]
    shown = {id(each) for tree in trees for each in _only_shown(tree)}
    found = {each.value for tree in trees for each in tree.find_all(nodes.Const) if isinstance(each.value, str) and id(each) not in shown}
    return tuple(sorted(each for each in found if len(each.strip()) > 1 and not each.isidentifier()))


def _only_shown(node: Any) -> Iterator[Any]:
    """The constants of which a template does nothing but write them into its render, alone or joined with others. What a block catches to use it
    otherwise is not of the render."""
    from jinja2 import nodes

    if isinstance(node, nodes.Const):
        yield node
    elif isinstance(node, nodes.Output | nodes.Concat | nodes.Add):
        yield from chain.from_iterable(map(_only_shown, node.iter_child_nodes()))
    elif isinstance(node, nodes.CondExpr):
        yield from chain.from_iterable(map(_only_shown, (node.expr1, node.expr2)))
    elif isinstance(node, nodes.Template | nodes.For | nodes.If) or _is_generation(node):
        for part in (part for name in ("body", "elif_", "else_") for part in getattr(node, name, ())):
            if isinstance(part, nodes.Stmt):
                yield from _only_shown(part)


def _is_generation(node: Any) -> bool:
    """Whether a part of a template is what ``{% generation %}`` encloses, which is written as it is."""
    from jinja2 import nodes

    called = getattr(node, "call", None)
    return (
        isinstance(called, nodes.Call) and isinstance(called.node, nodes.ExtensionAttribute) and called.node.name == "_generation_support"
    )
