"""`prep-assets schemas` and `sniff`: the formats of rows that can be read."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.stores import first_rows
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.loading import config_dir
from prep_assets.data.files import SourceFile, find_files
from prep_assets.data.local_files import skipped_files
from prep_assets.errors import ConfigError, SourceError, nearest
from prep_assets.extensions.start.sniff import Fit, are_events, by_columns, known_form
from prep_assets.extensions.start.sniff import sniff as try_all
from prep_assets.samples import changed
from prep_assets.schemas.reader import in_one_line, shown
from prep_assets.schemas.registry import Schema
from prep_assets.schemas.registry import schemas as registered
from prep_assets.text.visible import visible


@with_json
def schemas(
    name: Annotated[str | None, typer.Argument(help="A schema: show its options and a row.")] = None,
) -> Answer:
    known = registered()
    by_word = {word: schema for schema in known.values() for word in (schema.name, *schema.aliases)}
    if name is not None and name not in by_word:
        raise ConfigError(f"no schema {name!r}{nearest(name, by_word) or '.'} Known: {', '.join(known)}")
    if name is not None:
        return Answer(_described(by_word[name]), lambda console: _show_schema(console, by_word[name]))
    return Answer([_described(schema) for schema in known.values()], lambda console: _show_schemas(console, known.values()))


def _show_schemas(console: Console, known: Iterable[Schema]) -> None:
    listed = sorted(known, key=lambda schema: schema.name.lower())
    rows = [(schema.name, gives(schema.gives), Text(schema.summary), "\n".join(schema.aliases)) for schema in listed]
    shown = terminal.table("schema", "gives", "what it reads", "aliases", rows=rows)
    shown.columns[0].no_wrap = True  # names stay whole, to be copied
    console.print(shown)
    console.print("prep-assets schemas NAME shows the options of one; prep-assets sniff FILE finds the ones that fit a file", style="dim")


def _described(schema: Schema) -> dict[str, Any]:
    """A schema as JSON."""
    options = {name: str(parameter.annotation) for name, parameter in schema.options.items()}
    described = {"name": schema.name, "gives": gives(schema.gives), "summary": schema.summary, "aliases": schema.aliases}
    return {**described, "options": options, "example": schema.example}


def gives(form: type | UnionType) -> str:
    """The name of a form, or of the members of a union."""
    return " | ".join(member.__name__ for member in get_args(form) or (form,))


def _show_schema(console: Console, schema: Schema) -> None:
    aliases = f" (also called {', '.join(schema.aliases)})" if schema.aliases else ""
    console.print(Text.assemble((schema.name, "bold"), f"{aliases} gives {gives(schema.gives)}"))
    console.print(Text(f"\n{schema.description}\n"))
    if schema.options:
        shown = terminal.table("option", "type", "default", "meaning", title="options")
        shown.columns[0].no_wrap = True
        for name, parameter in schema.options.items():
            kind: Any = "" if parameter.annotation is inspect.Parameter.empty else parameter.annotation
            default = "(required)" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
            shown.add_row(
                name,
                Text(kind if isinstance(kind, str) else inspect.formatannotation(kind)),
                Text(default),
                Text(schema.meanings.get(name, "")),
            )
        console.print(shown)
    else:
        console.print("It has no options.")
    console.print("a row that it reads:", style="bold")
    console.print_json(data=dict(schema.example), ensure_ascii=False)


@with_json
def sniff(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, folder, glob, URL or hub address.")],
    format: Annotated[str | None, typer.Option("--format", help="The format, if the file name has no known suffix.")] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to try.")] = 100,
    every: Annotated[bool, typer.Option("--all", help="Also list the schemas that do not fit, with the reasons.")] = False,
) -> Answer:
    files = find_files([file], Path.cwd(), format=format)
    payloads, unreadable, fits = fits_of(files, count)
    if not payloads:
        why = f"; the first: {unreadable[0]}" if unreadable else ""
        raise SourceError(f"{files[0].url}: no readable record, {terminal.counted(len(unreadable), 'unreadable row')}{why}")
    fitting, unfit = [fit for fit in fits if fit.fitting], [fit for fit in fits if not fit.fitting]
    form = known_form(payloads)

    def show(console: Console) -> None:
        if fitting:
            headings = ("schema", "gives", "records", "options", "fields it does not use", "first refusal")
            console.print(terminal.table(*headings, rows=map(_fit_row, fitting), numbers=("records",), title=f"fits {file}"))
        if every:
            reasons = [(fit.schema, Text(_reason(fit))) for fit in unfit]
            console.print(terminal.table("schema", "first reason why not", rows=reasons, title="does not fit"))
        elif unfit:
            closest = "" if fitting else f"; the closest: {unfit[0].schema} ({_reason(unfit[0])})"
            console.print(f"{terminal.counted(len(unfit), 'schema')} fit no record{closest}. --all lists the reasons", style="dim")
        for detail in unreadable[:1]:
            console.print(f"{terminal.counted(len(unreadable), 'row')} could not be read; the first: {visible(detail)}", style="yellow")
        for line in not_read([file], Path.cwd()):
            console.print(line, style="yellow")
        if form:
            console.print(f"{file} is {form}", style="bold")
        elif not fitting and (guess := by_columns(payloads)):
            asked, answered = guess.options.values()
            console.print(
                f"no schema knows these names. If {visible(asked)!r} is the question and {visible(answered)!r} the answer:", style="bold"
            )
            _show_domain(console, file, format, guess)
        elif not fitting:
            console.print("no schema fits. Write your own, and name it as package.module:function", style="bold")
        else:
            _show_domain(console, file, format, fitting[0])

    described = [{"schema": fit.schema, **{name: getattr(fit, name) for name in _SHOWN}} for fit in fits]
    return Answer({"fits": described, "unreadable": unreadable, "form": form}, show, int(bool(form) or not fitting))


def fits_of(files: Sequence[SourceFile], count: int) -> tuple[list[dict[str, Any]], list[str], list[Fit]]:
    """The first readable rows, the faults of unreadable ones, and how well each schema fits, best first. A session of a coding agent is a row."""
    rows, unreadable = first_rows(files, count)
    txt = "file" if are_events([payload for _, payload in rows]) else ""
    if txt:
        rows, unreadable = first_rows(files, count, "file")
    payloads = [payload for _, payload in rows]
    return payloads, unreadable, [changed(fit, txt=txt) for fit in try_all(payloads)] if payloads else []


_SHOWN = ("options", "ignore", "fitting", "rows", "unread", "passed_over", "refusal")


def _show_domain(console: Console, file: str, format: str | None, fit: Fit) -> None:
    """Print the domain to paste, and what it leaves out."""
    for line in left_out(fit):
        console.print(line, style="yellow")
    if fit.decisive:
        names = ", ".join(fit.decisive)
        console.print(
            f"no schema reads {names}, which decides what is trained or asked: rewrite the rows so that a schema reads it", style="yellow"
        )
        console.print(f"in the configuration, once {names} is in its place:")
    else:
        console.print("in the configuration:")
    console.print(f"  a_name: {_domain_yaml(file, format, fit)}")


def left_out(fit: Fit, paths: Iterable[str] | None = None) -> list[str]:
    """Say of fields, or of all that a fit leaves out, in how many rows they hold something, with an example."""
    return [
        f"left out: {path}, {count:,} of {fit.fitting:,} rows, e.g. {visible(shown(value))}"
        for path, (count, value) in fit.left_out.items()
        if paths is None or path in paths
    ]


def not_read(patterns: Sequence[str], base: Path) -> list[str]:
    """Say which files of folders are not read, as their suffixes say nothing of their format."""
    lines = []
    for pattern in patterns:
        if names := skipped_files(pattern, base):
            listed = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
            lines.append(
                f"{terminal.counted(len(names), 'file')} of {pattern} not read, as no format has the suffix: {visible(listed)}. A glob with `format: txt` "
                "and `txt: file` reads such files as documents"
            )
    return lines


def _fit_row(fit: Fit) -> tuple[str | Text, ...]:
    records = Text(f"{fit.fitting:,} of {fit.rows:,}", "bold green" if fit.fitting == fit.rows else "yellow")
    options = Text(in_one_line(dict(fit.options)) if fit.options else "")
    unused = Text(", ".join((*fit.unread, *fit.ignore, *fit.passed_over)))
    return fit.schema, gives(registered()[fit.schema].gives), records, options, unused, Text(_reason(fit))


def _domain_yaml(file: str, format: str | None, fit: Fit) -> str:
    """The domain as YAML, for the configuration."""
    offered = [path for path in (*fit.unread, *fit.ignore) if path not in fit.decisive]
    optional = {"format": format, "txt": fit.txt, "options": dict(fit.options), "ignore": offered}
    # relative to the configuration folder where that is below the working directory; absolute paths and URLs stay
    if not ("://" in file or Path(file).expanduser().is_absolute()) and config_dir().is_relative_to(Path.cwd()):
        file = os.path.relpath(file, config_dir())
    return in_one_line({"files": [file], "schema": fit.schema, **{key: value for key, value in optional.items() if value}})


def _reason(fit: Fit) -> str:
    return visible(fit.refusal[:200] + ("…" if len(fit.refusal) > 200 else ""))
