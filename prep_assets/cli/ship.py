"""`prep-assets export`, `describe`, `release`, `push`, `path` and `launch-snippet`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, StoreError, nearest

if TYPE_CHECKING:
    from prep_assets.neighbours.hub import Release
    from prep_assets.pipeline.asset import Asset
    from prep_assets.pipeline.workspace import Workspace

# `prep-assets export`: a store in the format that a trainer reads.


def export(
    asset: Annotated[str | None, typer.Argument(metavar="ASSET", show_default=False, help="An asset, e.g. sft_packed.")] = None,
    to: Annotated[str | None, typer.Option("--to", "-t", metavar="FORMAT", help="The format, e.g. hf_arrow.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where to: a new folder, or an empty one.")] = None,
    partition: terminal.Partition = None,
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

    from prep_assets.exports.registry import check_folder, opening
    from prep_assets.graph.exports import export_store, exporting
    from prep_assets.graph.graph import asset_and_partitions, exported

    check_folder(folder)
    workspace = terminal.opened()
    found, _ = asset_and_partitions(workspace, asset, partition)
    each = exporting(exported(found.family, found.name), to, stream, format_options(to, words))
    published = terminal.one_store(workspace, asset, partition)
    with terminal.reading(published), terminal.bar(MofNCompleteColumn()) as shown:
        task = shown.add_task(f"export {asset} to {to}", total=None)
        source = export_store(each, workspace, published, folder, lambda done, total: shown.update(task, completed=done, total=total))
    files = [path for path in folder.rglob("*") if path.is_file()]
    console = terminal.out()
    console.print(
        f"{terminal.near(folder.resolve())}: {terminal.counted(len(files), 'file')}, {terminal.size(sum(path.stat().st_size for path in files))}"
    )
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

    words = {"PackedStore": "packed table", "TokenStore": "token stream", "Pairs": "pairs", "GroupStore": "groups", "Lines": "JSONL"}
    shown = terminal.table("format", "takes", "read by", "options")
    for name, each in exports().items():
        kinds = [taken.__name__ for taken in each.takes]
        options = [key if option.default is option.empty else f"{key}={option.default}" for key, option in each.options.items()]
        shown.add_row(name, ", ".join(word for kind, word in words.items() if kind in kinds), each.read_by, ", ".join(options))
    console = terminal.out()
    console.print(shown)
    console.print("a page for each: docs/formats", style="dim")


# `prep-assets describe`, `release` and `push`: what a store is, and an export for others, in a folder or on the Hugging Face Hub.


def release(
    asset: terminal.AssetName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to: a new folder, or an empty one.")],
    partition: terminal.Partition = None,
) -> None:
    """Copy an export into a folder with a data set card, Croissant and its manifest: what datasets.load_dataset opens, and push uploads."""
    from prep_assets.exports.registry import check_folder
    from prep_assets.neighbours.hub import write_release

    check_folder(folder)
    found = _release(asset, partition)
    write_release(found, folder)
    console = terminal.out()
    console.print(f"{terminal.near(folder.resolve())}: {terminal.counted(len(found.files), 'file')}, {_size(found)}")
    console.print(f'from datasets import load_dataset\ndataset = load_dataset("{folder.resolve()}")')


def push(
    source: Annotated[str, typer.Argument(metavar="EXPORT", help="An asset, e.g. sft_export_hub, or a folder that `release` wrote.")],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="The data set on the Hub, owner/name; made where there is none.")],
    partition: terminal.Partition = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    unknown_licence: Annotated[bool, typer.Option("--unknown-licence", help="Push although the licence is not known.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files without any request to the Hub.")] = False,
) -> None:
    """Upload an export to the Hugging Face Hub as one commit, if its files are what its manifest says and the repository did not change
    meanwhile. The token is that of `hf auth login`, or HF_TOKEN."""
    from prep_assets.neighbours.hub import UNKNOWN, licence_of, push, release_in

    found = release_in(Path(source)) if "/" in source or Path(source).is_dir() else _release(source, partition)
    licence, console = licence_of(found), terminal.out()
    if dry_run:
        rows = [(name, terminal.size(found.size(name)), found.manifest.files.get(name, {}).get("sha256", "")[:16]) for name in found.files]
        title = f"{found.where}: what would be uploaded"
        console.print(terminal.table("file", "size", "sha256", rows=rows, numbers=("size",), title=title))
        console.print(f"licence: {licence}")
        return
    if licence == UNKNOWN and not unknown_licence:
        raise ConfigError(
            f"{found.where}: the licence is unknown, so what is published could not be used. Say it in the configuration (licence: of each "
            "domain, or of the family), or add --unknown-licence"
        )
    done = push(found, repository, private=private)
    for name in done.removed:
        console.print(f"removed {name}, of an earlier push")
    console.print(f"{repository} holds {found.where}: {terminal.counted(len(found.files), 'file')}, {_size(found)}")
    console.print(done.url)


def _release(asset: str, partition: str | None) -> Release:
    from prep_assets.graph.graph import one_partition
    from prep_assets.neighbours.hub import release_of

    workspace = terminal.opened()
    found, each = one_partition(workspace, asset, partition)
    return release_of(workspace, found.name, each)


def _size(found: Release) -> str:
    return terminal.size(sum(found.size(name) for name in found.files))


class Form(StrEnum):
    """What a description is printed as."""

    json = "json"
    card = "card"
    croissant = "croissant"
    openlineage = "openlineage"


def describe(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    form: Annotated[Form, typer.Option("--as", help="Plain JSON, a data set card, Croissant, or an OpenLineage event.")] = Form.json,
) -> None:
    """Print what a store is: hashes, sources with theirs, licences, counts, refused records, files, columns, checks."""
    from prep_assets.graph.graph import one_partition
    from prep_assets.neighbours.description import describe

    workspace = terminal.opened()
    found, each = one_partition(workspace, asset, partition)
    description, _ = describe(workspace, found.name, each)
    match form:
        case Form.json:
            text = json.dumps(asdict(description), indent=1, ensure_ascii=False)
        case Form.card:
            from prep_assets.neighbours.hub import card

            text = card(description)
        case Form.croissant:
            from prep_assets.neighbours.hub import croissant

            text = json.dumps(croissant(description), indent=1, ensure_ascii=False)
        case Form.openlineage:
            from prep_assets.neighbours.openlineage import event_json

            try:
                text = event_json(description)
            except ImportError as error:
                raise ConfigError("--as openlineage needs a package: pip install 'prep-assets[openlineage]'") from error
    typer.echo(text.removesuffix("\n"))


# `prep-assets path` and `launch-snippet`: where a trainer finds a store, and what makes it read one.


@dataclass(frozen=True, slots=True)
class Launch:
    """How a trainer gets a store: the asset that it is given where none is named, a format, and its options."""

    asset: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)


TRAINERS: Mapping[str, Launch] = {
    "trl": Launch("sft_packed", "hf_arrow", {"layout": "trl"}),
    "axolotl": Launch("sft_packed", "hf_arrow", {"layout": "axolotl"}),
    "llamafactory": Launch("sft_packed", "hf_arrow", {"layout": "llama_factory"}),
    "open-instruct": Launch("sft_packed", "hf_arrow", {"layout": "open_instruct"}),
    "megatron": Launch("pretrain_tokens", "megatron"),
    "modellink": Launch("sft_packed", "megatron"),
    "nemo": Launch("sft_packed", "packed_parquet"),
    "verl": Launch("rl_prompts", "verl", {"data_source": "openai/gsm8k"}),
    "olmo": Launch("pretrain_tokens", "olmo"),
    "litgpt": Launch("pretrain_tokens", "litdata", {"block_size": "2049"}),
    "mosaicml": Launch("sft_packed", "mds"),
    "nanotron": Launch("pretrain_tokens", "nanotron"),
    "cerebras": Launch("sft_packed", "cerebras"),
    "train-llm-from-scratch": Launch("sft_packed", "tlfs"),
    "astrai": Launch("sft_packed", "astrai"),
}


def launch_snippet(
    trainer: Annotated[str, typer.Option("--trainer", metavar="T", show_default=False, help=f"One of {', '.join(TRAINERS)}.")],
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset; the usual one of the trainer, if left out.")
    ] = None,
    partition: terminal.Partition = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where the export is, or will be.", show_default=False)
    ] = None,
) -> None:
    """Print the command that writes a store for a trainer, and the configuration that makes the trainer read it there. Nothing is written."""
    from prep_assets.graph.graph import asset_and_partitions

    if trainer not in TRAINERS:
        raise ConfigError(f"no trainer {trainer!r}{nearest(trainer, TRAINERS) or '.'} There are: {', '.join(TRAINERS)}")
    launch, workspace = TRAINERS[trainer], terminal.opened()
    name = asset or launch.asset
    found, partitions = asset_and_partitions(workspace, name, partition)
    if asset is None and partition is None:
        partition = partitions[0] or None
    place = folder or Path("exports") / trainer / (f"{name}-{partition}" if partition else name)
    reader, lines = _lines(workspace, launch, found, partition, place)
    options = "".join(f" --option {key}={value}" for key, value in launch.options.items())
    which = f" -p {partition}" if partition else ""
    console = terminal.out()
    console.print(
        f"# write it, once for each version of the store\nprep-assets export {name}{which} --to {launch.format}{options} --out {place}\n",
    )
    console.print(f"# {reader} reads it\n{_padding(workspace, found)}{lines}")


def _padding(workspace: Workspace, asset: Asset) -> str:
    """What to tell a trainer of the model's vocabulary, where that has more ids than the tokenizer."""
    from prep_assets.config.models import FAMILIES

    family = workspace.family(FAMILIES[asset.family])
    if family.pad_vocab_to is None:
        return ""
    return f"# the model has {family.pad_vocab_to:,} ids (pad_vocab_to), the tokenizer {workspace.vocabulary(family).size:,}\n"


def _lines(workspace: Workspace, launch: Launch, asset: Asset, partition: str | None, place: Path) -> tuple[str, str]:
    from prep_assets.exports.registry import opening
    from prep_assets.graph.exports import exporting, open_export_source
    from prep_assets.graph.graph import exported

    words = [f"{key}={value}" for key, value in launch.options.items()]
    each = exporting(exported(asset.family, asset.name), launch.format, None, format_options(launch.format, words))
    published = terminal.one_store(workspace, asset.name, partition)
    with terminal.reading(published):
        return opening(launch.format, place.resolve(), open_export_source(each, published), each.all_options(workspace))


def path(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    draft: terminal.Draft = False,
    even_if_failed: Annotated[bool, typer.Option("--even-if-failed", help="Print it although its checks do not hold.")] = False,
) -> None:
    """Print the directory of a store: the stable link `current`, which trainers open. A store that fails its checks is refused.

    Notes about the store, e.g. that it is out of date or has options of one run, go to stderr.
    """
    from prep_assets.engine import Statuses
    from prep_assets.graph.graph import one_partition

    workspace = terminal.opened()
    found, each = one_partition(workspace, asset, partition)
    place = workspace.place(found.name, each)
    if draft:
        store = place.draft()
        if store is None:
            raise StoreError(f"{place.label} has no draft. Options of one run make one, e.g. prep-assets build {asset} --set KEY=VALUE")
        typer.echo(store.directory)
        return
    published = terminal.one_store(workspace, asset, partition)
    standing = Statuses(workspace).at(found, each)
    if standing.failed and not even_if_failed:
        reasons = "\n".join(f"  {name}: {result.summary}" for name, result in standing.failed.items())
        raise StoreError(f"{place.label} fails its checks. Build it again, or add --even-if-failed\n{reasons}")
    for note in (standing.why, *(f"it has options of one run: {key}" for key in (*standing.overrides, *standing.inherited))):
        if note:
            terminal.err().print(f"{place.label}: {note}", style="yellow")
    # a file system without links has a pointer file there
    typer.echo(place.directory / "current" if (place.directory / "current").is_dir() else published.directory)
