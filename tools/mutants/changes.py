"""The changes that mutmut makes of a module, one at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType

import libcst as cst
from mutmut.mutation.file_mutation import Mutation, create_mutations
from planted.candidates import PACKAGE, Plant

from mutants.traced import statements


@dataclass(frozen=True)
class Change(Plant):
    """A change inside a function.

    Attributes:
        statement: names the one that it is in, as the trace does.
        text: the whole module with it.
    """

    statement: str
    text: str

    def code(self) -> CodeType:
        return compile(self.text, str(self.path), "exec", dont_inherit=True)

    @property
    def only_strict(self) -> bool:
        """Whether it is about `strict` of a zip alone: an assertion about lengths that the code before it makes equal."""
        before, after = (
            re.sub(r",? ?strict=(True|False|None)|, (?=[):])| ", "", text).replace("):", ")") for text in (self.before, self.after)
        )
        return before == after != ""


def count(module: str) -> int:
    """How many changes there are."""
    return len(_made(module)[1])


def changes(module: str, numbers: Iterable[int]) -> Iterator[Change]:
    """The changes with these numbers, without those about `strict`."""
    tree, made = _made(module)
    true = (whole := tree.code).splitlines()
    named = [(each.lineno, each.end_lineno or 0, name) for _, _, each, name in statements(ast.parse(whole))]
    tops = {id(each): node for node in tree.body for each in (node, *(node.body.body if isinstance(node, cst.ClassDef) else ()))}
    for number in numbers:
        function = made[number].contained_by_top_level_function
        assert isinstance(function, cst.FunctionDef)
        top = tops[id(function)]  # a whole module takes twenty times as long
        new = top.deep_replace(made[number].original_node, made[number].mutated_node)
        text = whole.replace(tree.code_for_node(top), tree.code_for_node(new), 1)  # type: ignore[arg-type]
        changed = text.splitlines()
        at = next(at for at, (one, other) in enumerate(zip(true, [*changed, ""], strict=False)) if one != other)
        after = changed[at].strip() if len(true) == len(changed) else ""
        name = f"{top.name.value}.{function.name.value}" if isinstance(top, cst.ClassDef) else function.name.value
        within = [(first, -last, name) for first, last, name in named if first <= at + 1 <= last]
        change = Change(module, name, at + 1, "mutmut", true[at].strip(), after, (number, 0), max(within)[2], text)
        if not change.only_strict:
            yield change


def _made(module: str) -> tuple[cst.Module, list[Mutation]]:
    """A module, and its changes that a call meets: those in functions, which are all that mutmut keeps, without default values."""
    path = PACKAGE / f"{module}.py"
    tree, made, _, _ = create_mutations(str(path), path.read_text("utf-8"))
    return tree, [
        each
        for each in made
        if isinstance(outer := each.contained_by_top_level_function, cst.FunctionDef) and not _holds(outer.params, each.original_node)
    ]


def _holds(outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    return outer is node or any(_holds(child, node) for child in outer.children)
