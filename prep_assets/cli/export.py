"""`prep-assets export`: a store in the format that a trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prep_assets.cli.console import bar, counted, near, out, size, table
from prep_assets.cli.find import Partition, one_store, opened, reading
from prep_assets.errors import ConfigError, nearest

if TYPE_CHECKING:
    from prep_assets.exports import Export


def export(
    asset: Annotated[str | None, typer.Argument(metavar="ASSET", show_default=False, help="An asset, e.g. sft_packed.")] = None,
    to: Annotated[str | None, typer.Option("--to", "-t", metavar="FORMAT", help="The format, e.g. hf_arrow.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where to: a new folder, or an empty one.")] = None,
    partition: Partition = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", "-s", metavar="S", help="Which stream, table or file of the asset; the training one when left out."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the format; may be repeated.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the formats, what they take and who reads them.")] = False,
) -> None:
    """Write a store for a trainer, and show the lines that open it there. A store that is damaged is refused."""
    if listing:
        _list()
        return
    if asset is None or to is None or folder is None:
        missing = "ASSET" if asset is None else "--to" if to is None else "--out"
        raise typer.BadParameter("missing. Formats are shown by: prep-assets export --list", param_hint=missing)
    _export(asset, to, folder, partition, stream, option or [])


def _export(asset: str, to: str, folder: Path, partition: str | None, stream: str | None, words: list[str]) -> None:
    from rich.progress import MofNCompleteColumn

    from prep_assets.assets.exports import export_store, exporting
    from prep_assets.assets.graph import asset_and_partitions, exported
    from prep_assets.exports.registry import check_folder, opening

    check_folder(folder)
    workspace = opened()
    found, _ = asset_and_partitions(workspace, asset, partition)
    each = exporting(exported(found.family, found.name), to, stream, format_options(to, words))
    published = one_store(workspace, asset, partition)
    with reading(published), bar(MofNCompleteColumn()) as shown:
        task = shown.add_task(f"export {asset} to {to}", total=None)
        source = export_store(each, workspace, published, folder, lambda done, total: shown.update(task, completed=done, total=total))
    files = [path for path in folder.rglob("*") if path.is_file()]
    console = out()
    console.print(f"{near(folder.resolve())}: {counted(len(files), 'file')}, {size(sum(path.stat().st_size for path in files))}")
    trainer, lines = opening(to, folder.resolve(), source, each.all_options(workspace))
    console.print(f"{trainer}:", style="dim")
    console.print(lines)


def format_options(format: str, words: list[str]) -> dict[str, Any]:
    """``key=value`` words as the format's options, each read as the type that the option has."""
    from pydantic import TypeAdapter, ValidationError

    from prep_assets.exports.registry import export_named

    found = export_named(format)
    hints = found.types
    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in options:
            raise ConfigError(f"--option {word}: {'given twice' if key in options else 'needs the form KEY=VALUE, e.g. split=train'}")
        if key not in found.options:
            allowed = ", ".join(found.options) or "none"
            raise ConfigError(f"export {format!r} has no option {key!r}{nearest(key, found.options) or '.'} Allowed: {allowed}")
        try:
            options[key] = TypeAdapter(hints[key]).validate_strings(value)
        except ValidationError as error:
            raise ConfigError(f"--option {word}: {error.errors()[0]['msg']}") from error
    return options


def _list() -> None:
    from prep_assets.exports import exports
    from prep_assets.exports.registry import read_by

    rows = [(name, ", ".join(_taken(each)), read_by(name), ", ".join(_described(each))) for name, each in exports().items()]
    console = out()
    console.print(table("format", "takes", "read by", "options", rows=rows))
    console.print("a page for each: docs/formats", style="dim")


def _taken(each: Export) -> list[str]:
    names = {"PackedStore": "packed table", "TokenStore": "token stream", "Pairs": "pairs", "GroupStore": "groups", "Lines": "JSONL"}
    return [word for kind, word in names.items() if kind in [taken.__name__ for taken in each.takes]]


def _described(each: Export) -> list[str]:
    import inspect

    return [name if p.default is inspect.Parameter.empty else f"{name}={p.default}" for name, p in each.options.items()]
