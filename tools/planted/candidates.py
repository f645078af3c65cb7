"""Changes of one place of a module that a bug might be: where they are, and the code with one of them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "prep_assets"
ROOMS = (
    "data",
    "extensions/agents",
    "extensions/atif/export",
    "extensions/atif/schema",
    "extensions/cerebras",
    "extensions/contrastive/lines",
    "extensions/contrastive/schema",
    "extensions/distillation/entries",
    "extensions/datasets",
    "extensions/blends/assets",
    "extensions/blends/order",
    "extensions/blends/store",
    "extensions/encoders",
    "extensions/exports",
    "extensions/leaks/overlap",
    "extensions/leaks/search",
    "extensions/lines/merging",
    "extensions/lines/tokens",
    "extensions/lines/write",
    "extensions/media/files",
    "extensions/media/headers",
    "extensions/media/rules",
    "extensions/preference/hh",
    "extensions/preference/lines",
    "extensions/preference/pairs",
    "extensions/preference/schemas",
    "extensions/preprocess/handlers",
    "extensions/preprocess/sections",
    "extensions/quality",
    "extensions/rl/assets",
    "extensions/rl/groups",
    "extensions/rl/prompts",
    "extensions/rl/schemas",
    "extensions/rl/scored",
    "extensions/rl/verifiers",
    "extensions/sessions/harness",
    "extensions/token_ids",
    "extensions/topology",
    "graph/pretrain",
    "graph/raw",
    "graph/sft",
    "packing",
    "pipeline",
    "samples",
    "schemas",
    "stores",
    "text",
    "workers",
)
"""Where bugs are planted. Of the stores only what writes them: their readers are checked by what reads them."""
NOT_BUILDING = (
    "extensions/exports/assets",
    "extensions/exports/command",
    "extensions/exports/compared",
    "extensions/quality/redaction_check",
    "stores/guards",
    "stores/verification",
    "stores/remote",
)
"""What the rooms hold beside code that builds."""
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.GtE, ast.LtE),
    ast.LtE: (ast.Gt, ast.Lt),
    ast.Gt: (ast.LtE, ast.GtE),
    ast.GtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Plant:
    """One change of one place.

    Attributes:
        module: its path in the package, without suffix: ``text/spans``.
        function: the qualified name of the outermost function around it; empty where the import runs it.
        line: where it is.
        kind: what kind of change it is.
        before, after: the expression or statement, and what it becomes.
        place: number of the node in `ast.walk`, and of the change among those of the node.
    """

    module: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    place: tuple[int, int]

    @property
    def key(self) -> str:
        """What recognises it again after other lines changed; equal ones of a function share it."""
        return f"{self.module} {self.function or 'import'}: {self.before} → {self.after}"

    @property
    def room(self) -> str:
        return self.module.partition("/")[0]

    @property
    def name(self) -> str:
        """The module as it is imported."""
        return "prep_assets." + self.module.replace("/", ".")

    @property
    def path(self) -> Path:
        return PACKAGE / f"{self.module}.py"

    def code(self) -> CodeType:
        """The module with the change, whose line numbers are those of the file."""
        tree = copy.deepcopy(_tree(self.module))
        node = list(ast.walk(tree))[self.place[0]]
        change = _changes(node)[self.place[1]][1]
        if isinstance(change, ast.AST):
            _replace(tree, node, change)
        return compile(ast.fix_missing_locations(tree), str(self.path), "exec", dont_inherit=True)


@dataclass(frozen=True)
class Edit(Plant):
    """A change of a module's text, made by hand."""

    @classmethod
    def of(cls, module: str, before: str, after: str) -> Edit:
        """Replace a text that the module has once by one of as many lines.

        Raises:
            ValueError: the module does not have it once.
        """
        text = (PACKAGE / f"{module}.py").read_text("utf-8")
        if text.count(before) != 1 or before.count("\n") != after.count("\n"):
            raise ValueError(f"{module} has {text.count(before)} times {before!r}; needs it once, and a change of as many lines")
        line = text[: text.index(before)].count("\n") + 1
        inside = [name for number, name in _functions(_tree(module), lines=True) if number == line]
        return cls(module, inside[0] if inside else "", line, "by hand", before, after, (0, 0))

    def code(self) -> CodeType:
        return compile(self.path.read_text("utf-8").replace(self.before, self.after), str(self.path), "exec", dont_inherit=True)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))


def modules() -> list[str]:
    """Every module of the rooms."""
    found = (path for room in ROOMS for path in [*PACKAGE.glob(f"{room}.py"), *sorted((PACKAGE / room).glob("*.py"))])
    names = [path.relative_to(PACKAGE).with_suffix("").as_posix() for path in found if path.stem != "__init__"]
    return ["config/mask", *(name for name in names if name not in NOT_BUILDING)]


def plants(module: str) -> list[Plant]:
    """Every change of a module, in the order of its lines."""
    tree = _tree(module)
    functions = dict(_functions(tree))
    left_out = {id(inner) for node in ast.walk(tree) for part in _not_run(node) for inner in ast.walk(part)}
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in left_out:
            continue
        for which, (kind, change) in enumerate(_changes(node)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) not in functions:
                continue  # a union of types
            before, after = _in_words(node, change, parents.get(id(node)))
            line = node.test.lineno if isinstance(node, ast.If | ast.While | ast.IfExp) else getattr(node, "lineno", 0)
            if isinstance(node, ast.comprehension):
                line = node.target.lineno
            found.append(Plant(module, functions.get(id(node), ""), line, kind, before, after, (number, which)))
    return sorted(found, key=lambda plant: (plant.line, plant.place))


def _in_words(node: ast.AST, change: ast.AST, parent: ast.AST | None) -> tuple[str, str]:
    """A change as text; that of a constant with what is around it."""
    if isinstance(change, ast.Pass):
        return ast.unparse(node), "dropped"
    if isinstance(node, ast.If | ast.While):
        return f"if {ast.unparse(node.test)}", f"if not ({ast.unparse(node.test)})"
    if isinstance(node, ast.Constant) and isinstance(
        parent, ast.expr | ast.arguments | ast.keyword | ast.Assign | ast.AnnAssign | ast.Return
    ):
        fields = {
            name: [change if each is node else each for each in value] if isinstance(value, list) else change if value is node else value
            for name, value in ast.iter_fields(parent)
        }
        return ast.unparse(parent), ast.unparse(_with(parent, **fields))
    return ast.unparse(node), ast.unparse(change)


def _not_run(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node that no build runs, or that only say something: annotations, decorators, docstrings, assertions, branches for type checkers."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.Assert):
        yield node
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
        yield node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        yield from (keyword for keyword in node.keywords if keyword.arg == "strict")


def _functions(tree: ast.Module, *, lines: bool = False) -> Iterator[tuple[int, str]]:
    """For each node inside a function, or for each of its lines, the qualified name of the outermost one. Default values and decorators are run by the
    import."""

    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                inside = [inner for statement in child.body for inner in ast.walk(statement)]
                yield from ((getattr(inner, "lineno", 0) if lines else id(inner), name) for inner in inside)
            elif isinstance(child, ast.ClassDef):
                yield from visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.If | ast.Try | ast.With):
                yield from visit(child, prefix)
            elif isinstance(child, ast.Lambda):
                continue

    yield from visit(tree, "")


def _changes(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """The kind of each change of a node, and what takes its place. Equal nodes have equal changes, in the same order."""
    match node:
        case ast.Compare(ops=[operator]):
            return [("comparison", _with(node, ops=[other()])) for other in _COMPARED[type(operator)]]
        case ast.BinOp(op=operator) if type(operator) in _COMPUTED:
            return [("arithmetic", _with(node, op=_COMPUTED[type(operator)]()))]
        case ast.BoolOp(op=operator):
            return [("boolean", _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And()))]
        case ast.Constant(value=bool() as value):
            return [("constant", ast.Constant(not value))]
        case ast.Constant(value=int() as value):
            return [("constant", ast.Constant(value + 1)), ("constant", ast.Constant(value - 1))]
        case ast.Constant(value=float() as value):
            return [("constant", ast.Constant(value + 1))]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [("condition", operand)]
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not _turned_elsewhere(test):
            return [("condition", _with(node, test=ast.UnaryOp(ast.Not(), copy.deepcopy(test))))]
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Continue() | ast.Raise():
            return [("dropped", ast.Pass())]
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return [("dropped", ast.Pass())]
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            return [("swapped", _with(node, args=[copy.deepcopy(each) for each in (second, first, *rest)]))]
        case ast.Slice(lower=lower, upper=upper):
            lower_moved = [_with(node, lower=_one_more(lower))] if lower and not isinstance(lower, ast.Constant) else []
            upper_moved = [_with(node, upper=_one_more(upper))] if upper and not isinstance(upper, ast.Constant) else []
            lost = [_with(node, lower=None)] if lower else []
            lost += [_with(node, upper=None)] if upper else []
            return [("slice", each) for each in (*lower_moved, *upper_moved, *lost)]
        case ast.comprehension(ifs=[_, *_]):
            return [("filter", _with(node, ifs=[]))]
    return []


def _turned_elsewhere(test: ast.expr) -> bool:
    """Whether the change of another node is the same: that of a comparison, or a `not` taken away."""
    return (isinstance(test, ast.Compare) and len(test.ops) == 1) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _one_more(bound: ast.expr) -> ast.expr:
    return ast.BinOp(copy.deepcopy(bound), ast.Add(), ast.Constant(1))


def _replace(tree: ast.AST, node: ast.AST, change: ast.AST) -> None:
    """Put a node into the place of another."""
    if isinstance(change, ast.stmt | ast.expr):
        ast.copy_location(change, node)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, change)
                return
            if isinstance(value, list):
                for at, each in enumerate(value):
                    if each is node:
                        value[at] = change
                        return
