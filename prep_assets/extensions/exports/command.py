"""`prep-assets export`: a store in the format that a trainer reads, and the lines by which it reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
from rich.progress import MofNCompleteColumn

from prep_assets.cli import terminal
from prep_assets.cli.stores import one_store, reading
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.assets import export_store, exported, exporting
from prep_assets.extensions.exports.registry import check_folder, export_named, exports, opening
from prep_assets.graph.graph import asset_and_partitions, stream_table, streams
from prep_assets.pipeline.workspace import Workspace


def export(
    asset: Annotated[str | None, typer.Argument(metavar="ASSET", help="An asset, e.g. sft_packed.")] = None,
    to: Annotated[str | None, typer.Option("--to", "-t", metavar="FORMAT", help="The format, e.g. hf_arrow.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The target: a new or empty folder.")] = None,
    partition: terminal.Partition = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", "-s", metavar="S", help="The stream, table or file. Default: the training one."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the format; may be repeated.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the formats, what they take and who reads them.")] = False,
) -> None:
    if listing:
        _show_formats()
        return
    if asset is None or to is None or folder is None:
        missing = "ASSET" if asset is None else "--to" if to is None else "--out"
        raise typer.BadParameter("missing. Formats are shown by: prep-assets export --list", param_hint=missing)
    _export(asset, to, folder, partition, stream, option or [])


def _export(asset: str, to: str, folder: Path, partition: str | None, stream: str | None, words: list[str]) -> None:
    check_folder(folder)
    workspace = Workspace.open()
    definition, _ = asset_and_partitions(workspace, asset, partition)
    spec = exporting(exported(definition.family, definition.name), to, stream, format_options(to, words))
    published = one_store(workspace, asset, partition)
    stem = spec.stem(published.manifest.partition)
    with reading(published):
        filled = [name for name in streams(published) if name != stem and len(stream_table(published, name))]
        if filled and stem in streams(published) and not len(stream_table(published, stem)):
            raise ConfigError(f"{asset} has no rows in {stem}, which is exported by default. It has rows in: --stream {', '.join(filled)}")
    with reading(published), terminal.bar(MofNCompleteColumn()) as shown:
        task = shown.add_task(f"export {asset} to {to}", total=None)
        source = export_store(spec, workspace, published, folder, lambda done, total: shown.update(task, completed=done, total=total))
    files = [path for path in folder.rglob("*") if path.is_file()]
    console = terminal.out()
    size = terminal.size(sum(path.stat().st_size for path in files))
    console.print(f"{terminal.near(folder.resolve())}: {terminal.counted(len(files), 'file')}, {size}")
    trainer, lines = opening(to, folder.resolve(), source, spec.all_options(workspace))
    console.print(f"{trainer}:", style="dim")
    console.print(lines)


def format_options(format: str, words: list[str]) -> dict[str, Any]:
    """Parse ``key=value`` words as options of a format, by their types; `exporting` says which of them it does not have."""
    types, options = export_named(format).types, dict[str, Any]()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in options:
            raise ConfigError(f"--option {word}: {'given twice' if key in options else 'needs the form KEY=VALUE, e.g. split=train'}")
        try:
            options[key] = TypeAdapter(types[key]).validate_strings(value) if key in types else value
        except ValidationError as error:
            raise ConfigError(f"--option {word}: {error.errors()[0]['msg']}") from error
    return options


def _show_formats() -> None:
    shown = terminal.table("format", "takes", "read by", "options")
    for name, export_format in exports().items():
        options = [key if option.default is option.empty else f"{key}={option.default}" for key, option in export_format.options.items()]
        shown.add_row(name, ", ".join(taken.name for taken in export_format.takes), export_format.read_by, ", ".join(options))
    console = terminal.out()
    console.print(shown)
    console.print("a page for each: docs/formats", style="dim")
