"""`prep-assets schemas`: which forms of rows can be read, and with which options."""

from __future__ import annotations

import inspect
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from prep_assets.cli.console import out, table
from prep_assets.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from prep_assets.schemas.registry import Schema


def schemas(name: Annotated[str | None, typer.Argument(show_default=False, help="A schema: show its options and a row.")] = None) -> None:
    """List all schemas; or show the options of one and a row that it reads."""
    from rich.text import Text

    from prep_assets.schemas import registry

    known = registry.schemas()
    if name is not None:
        _show_one(out(), _named(name, known))
        return
    shown = table("schema", "gives", "what it reads", "aliases")
    shown.columns[0].no_wrap = True  # a name is copied, so it stays whole
    for found in sorted(known.values(), key=lambda each: each.name.lower()):
        shown.add_row(found.name, gives(found.gives), Text(found.summary), "\n".join(found.aliases))
    console = out()
    console.print(shown)
    console.print("prep-assets schemas NAME shows the options of one; prep-assets sniff FILE finds the ones that fit a file", style="dim")


def gives(form: type | UnionType) -> str:
    """The name of a form, or of each form of a union."""
    return " | ".join(each.__name__ for each in get_args(form) or (form,))


def _named(name: str, known: dict[str, Schema]) -> Schema:
    by_word = {word: found for found in known.values() for word in (found.name, *found.aliases)}
    if name not in by_word:
        raise ConfigError(f"no schema {name!r}{nearest(name, by_word) or '.'} Known: {', '.join(known)}")
    return by_word[name]


def _show_one(console: Console, found: Schema) -> None:
    from rich.text import Text

    also = f" (also called {', '.join(found.aliases)})" if found.aliases else ""
    console.print(Text.assemble((found.name, "bold"), f"{also} gives {gives(found.gives)}"), soft_wrap=True)
    console.print(Text("\n" + (inspect.getdoc(found.factory) or "") + "\n"), soft_wrap=True)
    if found.options:
        shown = table("option", "type", "default", title="options")
        for name, parameter in found.options.items():
            shown.add_row(name, Text(_annotation(parameter)), Text(_default(parameter)))
        console.print(shown)
    else:
        console.print("It has no options.")
    console.print("a row that it reads:", style="bold")
    console.print_json(data=dict(found.example), ensure_ascii=False)


def _annotation(parameter: inspect.Parameter) -> str:
    kind: Any = parameter.annotation
    if kind is inspect.Parameter.empty:
        return ""
    return kind if isinstance(kind, str) else inspect.formatannotation(kind)


def _default(parameter: inspect.Parameter) -> str:
    return "(required)" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
