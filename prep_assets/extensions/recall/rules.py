"""Recalls and their rules over recipes: ``tokenizers<0.22 and (engine=auto or packing.row_len>=4096)``.

A name is that of a recipe, or its end behind a dot: ``engine`` is ``tokenizer.engine``. Of a list, any entry counts; ``!=`` holds where none is equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from prep_assets.errors import ConfigError
from prep_assets.extensions.keep.versions import HASH, Values

Look = Callable[[str], Values | bool | None]
"""Name → its values; `None` where it would apply and is not said, false where it does not apply."""
_COMPARED = re.compile(r"""([\w.\-/:]+)\s*(<=|>=|!=|==?|<|>)\s*("[^"]*"|'[^']*'|[^\s()<>=!"']+)""")
_JOINED = re.compile(r"\s+|[()]|\band\b|\bor\b")
_ORDER = {"<": lt, "<=": le, ">": gt, ">=": ge}


class Entry(Struct, frozen=True):
    """A version that a recall found; `seal`: the `signed_digest` of its manifest."""

    asset: str
    partition: str
    version: str
    content: str
    seal: str
    why: str


class Recall(Struct, frozen=True):
    """A recall: its number, from 1; when it was made, and lifted, empty while it holds; the versions that it meant then."""

    number: int
    rule: str
    reason: str
    made: str
    lifted: str
    found: tuple[Entry, ...]

    @property
    def label(self) -> str:
        """How messages call it, and the mark of versions that were set aside for it."""
        return f"recall {self.number}, {self.rule}" + (f": {self.reason}" if self.reason else "")


class Compared(NamedTuple):
    """A name compared with a value."""

    name: str
    sign: str
    value: str


class Rule(NamedTuple):
    """Comparisons, and how they are joined: ``and`` and ``or`` over their numbers, as Python parses them."""

    parts: list[Compared]
    tree: ast.expr


def parse(text: str) -> Rule:
    """Parse a rule; an error says from where on it is none."""
    parts = [Compared(name, sign.replace("==", "="), value.strip("\"'")) for name, sign, value in _COMPARED.findall(text)]
    numbers, odd = iter(range(len(parts))), [word for word in _JOINED.split(_COMPARED.sub(" ", text)) if word]
    try:
        tree = ast.parse("?" if odd else _COMPARED.sub(lambda _: f" {next(numbers)} ", text).strip(), mode="eval").body
    except SyntaxError:
        raise ConfigError(
            f"the rule {text!r} cannot be read{f', from {odd[0]!r} on' if odd else ''}: it needs NAME OP VALUE, with = != < <= > >=, joined by and, or and "
            "parentheses. For example: tokenizers<0.22 and engine=auto"
        ) from None
    for part in parts:
        if part.sign in _ORDER and _comparable(1, part.value) == _comparable("1", part.value):  # nothing
            raise ConfigError(
                f"{''.join(part)}: {part.value!r} is neither a number nor a version, so nothing stands before or behind it. Compare with = or !="
            )
    return Rule(parts, tree)


def holds(rule: Rule, look: Look) -> bool | None:
    """Whether a rule holds of what `look` says; `None` where that cannot be told."""

    def at(node: ast.expr) -> bool | None:
        if isinstance(node, ast.BoolOp):
            found, decisive = [at(part) for part in node.values], isinstance(node.op, ast.Or)
            return decisive if decisive in found else None if None in found else not decisive
        return compare(rule.parts[int(ast.literal_eval(node))], look)

    return at(rule.tree)


def compare(part: Compared, look: Look) -> bool | None:
    """Whether one comparison holds; `None` where that cannot be told."""
    values = look(part.name)
    if isinstance(values, bool) or values is None:
        return values
    if part.sign in ("=", "!="):
        return any(_equal(value, part.value) for value in values) == (part.sign == "=")
    found = [_ordered(value, part.sign, part.value) for value in values]
    return True if True in found else None if None in found else False


def _equal(value: Any, wanted: str) -> bool:
    if value is None or isinstance(value, bool):
        return wanted.lower() in {None: ("none", "null"), True: ("true",), False: ("false",)}[value]
    if isinstance(value, str) and HASH.fullmatch(value):
        return len(wanted) >= 8 and value.startswith(wanted.lower())
    ours, theirs = _comparable(value, wanted)
    return bool(value == wanted or (ours is not None and ours == theirs))


def _ordered(value: Any, sign: str, wanted: str) -> bool | None:
    """Whether a value stands before or behind another; `None` where they have no order."""
    ours, theirs = _comparable(value, wanted)
    return False if value is None or isinstance(value, bool) else None if ours is None else bool(_ORDER[sign](ours, theirs))


def _comparable(value: Any, wanted: str) -> tuple[Any, Any]:
    """Both as numbers or versions. A build of a version, ``0.21.4+cu128``, is that version unless the rule names one."""
    try:
        if isinstance(value, int | float):
            return value, float(wanted)
        ours, theirs = Version(str(value)), Version(wanted)
    except (ValueError, InvalidVersion):
        return None, None
    return (ours if theirs.local else Version(ours.public)), theirs


def meant(name: str, known: Iterable[str]) -> list[str]:
    """The known names that one of a rule means, sorted: itself, and those that end with it behind a dot."""
    return sorted(path for path in known if path == name or path.endswith(f".{name}"))
