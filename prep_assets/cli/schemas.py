"""`prep-assets schemas`: which forms of rows can be read, and with which options."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli.console import counted, out, table
from prep_assets.cli.find import first_rows
from prep_assets.cli.tokens import visible
from prep_assets.errors import ConfigError, SourceError, nearest

if TYPE_CHECKING:
    from prep_assets.schemas.registry import Schema
    from prep_assets.schemas.sniff import Fit


def schemas(name: Annotated[str | None, typer.Argument(show_default=False, help="A schema: show its options and a row.")] = None) -> None:
    """List all schemas; or show the options of one and a row that it reads."""
    from prep_assets.schemas import registry

    known = registry.schemas()
    if name is not None:
        _show_one(out(), _named(name, known))
        return
    listed = sorted(known.values(), key=lambda each: each.name.lower())
    rows = [(found.name, gives(found.gives), Text(found.summary), "\n".join(found.aliases)) for found in listed]
    shown = table("schema", "gives", "what it reads", "aliases", rows=rows)
    shown.columns[0].no_wrap = True  # a name is copied, so it stays whole
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
    also = f" (also called {', '.join(found.aliases)})" if found.aliases else ""
    console.print(Text.assemble((found.name, "bold"), f"{also} gives {gives(found.gives)}"))
    console.print(Text("\n" + (inspect.getdoc(found.factory) or "") + "\n"))
    if found.options:
        rows = [(name, Text(_annotation(parameter)), Text(_default(parameter))) for name, parameter in found.options.items()]
        console.print(table("option", "type", "default", rows=rows, title="options"))
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


def sniff(
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="A file, folder, glob, URL or hub address.")],
    format: Annotated[str | None, typer.Option("--format", help="The format, where the file's name does not say it.")] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to try.")] = 100,
    every: Annotated[bool, typer.Option("--all", help="List also the schemas that need a field which these records lack.")] = False,
) -> None:
    """Try every schema on the first records of a file: which fit, and why the others do not. Exit code 1 when none fits."""
    from prep_assets.records.files import find_files
    from prep_assets.schemas.registry import schemas as registered
    from prep_assets.schemas.sniff import sniff as try_all

    files = find_files([file], Path.cwd(), format=format)
    rows, unreadable = first_rows(files, count)
    if not rows:
        why = f"; the first: {unreadable[0]}" if unreadable else ""
        raise SourceError(f"{files[0].url}: no readable record, {counted(len(unreadable), 'unreadable row')}{why}")
    fits = try_all([payload for _, payload in rows])
    known = registered()
    fitting = [fit for fit in fits if fit.fitting]
    console = out()
    if fitting:
        headings = ("schema", "gives", "records", "fields it does not use", "first refusal")
        lines = [_line(fit, gives(known[fit.schema].gives)) for fit in fitting]
        console.print(table(*headings, rows=lines, numbers=("records",), title=f"fits {file}"))
    others = [fit for fit in fits if not fit.fitting]
    near = [fit for fit in others if every or not fit.refusal.startswith("missing_field: needs ")] or ([] if fitting else others)
    if near:
        rejected = [(fit.schema, Text(_reason(fit))) for fit in near]
        console.print(table("schema", "first reason why not", rows=rejected, title="does not fit"))
    if lacking := len(others) - len(near):
        console.print(f"{lacking} more need a field that these records lack; --all lists them", style="dim")
    for detail in unreadable[:1]:
        console.print(f"{counted(len(unreadable), 'row')} could not be read; the first: {visible(detail)}", style="yellow")
    if not fitting:
        console.print("no schema fits; write one of your own and name it as package.module:function", style="bold")
        raise typer.Exit(1)
    console.print(f"in the configuration:\n  a_name: {_entry(file, format, fitting[0])}")


def _line(fit: Fit, form: str) -> tuple[str | Text, ...]:
    records = Text(f"{fit.fitting:,} of {fit.rows:,}", "bold green" if fit.fitting == fit.rows else "yellow")
    return fit.schema, form, records, Text(", ".join((*fit.unread, *fit.passed_over))), Text(_reason(fit))


def _entry(file: str, format: str | None, fit: Fit) -> str:
    """A whole domain, in YAML."""
    from prep_assets.schemas.reader import in_one_line

    more = {"format": format, "ignore": list(fit.unread)}
    return in_one_line(
        {"files": [_beside_configuration(file)], "schema": fit.schema, **{key: value for key, value in more.items() if value}}
    )


def _beside_configuration(file: str) -> str:
    """`file` relative to the configuration below this folder, which names it so. Without one, as it is; so are absolute paths and addresses."""
    from prep_assets.config.loading import config_dir

    if "://" in file or Path(file).expanduser().is_absolute() or not config_dir().is_relative_to(Path.cwd()):
        return file
    return os.path.relpath(file, config_dir())


def _reason(fit: Fit) -> str:
    return visible(fit.refusal[:200] + ("…" if len(fit.refusal) > 200 else ""))


def dataset_info(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A dataset_info.json.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", show_default=False, help="Data sets; all where none is named.")
    ] = None,
) -> None:
    """Print the data sets of a LLaMA-Factory dataset_info.json as domains, to paste into the configuration."""
    from prep_assets.schemas.dataset_info import domain_of, read_dataset_info
    from prep_assets.schemas.reader import in_one_line

    if not file.is_file():
        raise ConfigError(f"no file {file}")
    entries = read_dataset_info(file.read_text("utf-8"), str(file))
    found = {name: domain_of(name, entries) for name in names or entries}
    console = out()
    for family in sorted({each.family for each in found.values()}):
        console.print(f"# {family}.yaml, files relative to it\ndomains:")
        for name, each in found.items():
            if each.family == family:
                for remark in each.remarks:
                    console.print(f"  # {remark}")
                console.print(f"  {name}: {in_one_line(each.domain)}")
