"""`prep-assets describe`, `release` and `push`: what a store is, and an export for others, in a folder or on the Hugging Face Hub."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import counted, near, out, size, table
from prep_assets.cli.find import AssetName, Partition, opened
from prep_assets.errors import ConfigError

if TYPE_CHECKING:
    from prep_assets.neighbours.hub import Release


def release(
    asset: AssetName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to: a new folder, or an empty one.")],
    partition: Partition = None,
) -> None:
    """Copy an export into a folder with a data set card, Croissant and its manifest: what datasets.load_dataset opens, and push uploads."""
    from prep_assets.exports.registry import check_folder
    from prep_assets.neighbours.hub import write_release

    check_folder(folder)
    found = _release(asset, partition)
    write_release(found, folder)
    console = out()
    console.print(f"{near(folder.resolve())}: {counted(len(found.files), 'file')}, {_size(found)}")
    console.print(f'from datasets import load_dataset\ndataset = load_dataset("{folder.resolve()}")')


def push(
    source: Annotated[str, typer.Argument(metavar="EXPORT", help="An asset, e.g. sft_export_hub, or a folder that `release` wrote.")],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="The data set on the Hub, owner/name; made where there is none.")],
    partition: Partition = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    unknown_licence: Annotated[bool, typer.Option("--unknown-licence", help="Push although the licence is not known.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files without any request to the Hub.")] = False,
) -> None:
    """Upload an export to the Hugging Face Hub as one commit, if its files are what its manifest says and the repository did not change
    meanwhile. The token is that of `hf auth login`, or HF_TOKEN."""
    from prep_assets.neighbours.card import UNKNOWN
    from prep_assets.neighbours.hub import licence_of, push, release_in

    found = release_in(Path(source)) if "/" in source or Path(source).is_dir() else _release(source, partition)
    licence, console = licence_of(found), out()
    if dry_run:
        _list(found)
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
    console.print(f"{repository} holds {found.where}: {counted(len(found.files), 'file')}, {_size(found)}")
    console.print(done.url)


def _release(asset: str, partition: str | None) -> Release:
    from prep_assets.assets.graph import one_partition
    from prep_assets.neighbours.hub import release_of

    workspace = opened()
    found, each = one_partition(workspace, asset, partition)
    return release_of(workspace, found.name, each)


def _size(found: Release) -> str:
    return size(sum(found.size(name) for name in found.files))


def _list(found: Release) -> None:
    rows = [(name, size(found.size(name)), found.manifest.files.get(name, {}).get("sha256", "")[:16]) for name in found.files]
    out().print(table("file", "size", "sha256", rows=rows, numbers=("size",), title=f"{found.where}: what would be uploaded"))


class Form(StrEnum):
    """What a description is printed as."""

    json = "json"
    card = "card"
    croissant = "croissant"
    openlineage = "openlineage"


def describe(
    asset: AssetName,
    partition: Partition = None,
    form: Annotated[Form, typer.Option("--as", help="Plain JSON, a data set card, Croissant, or an OpenLineage event.")] = Form.json,
) -> None:
    """Print what a store is: hashes, sources with theirs, licences, counts, refused records, files, columns, checks."""
    from prep_assets.assets.graph import one_partition
    from prep_assets.neighbours.description import describe

    workspace = opened()
    found, each = one_partition(workspace, asset, partition)
    description, _ = describe(workspace, found.name, each)
    match form:
        case Form.json:
            text = json.dumps(asdict(description), indent=1, ensure_ascii=False)
        case Form.card:
            from prep_assets.neighbours.card import card

            text = card(description)
        case Form.croissant:
            from prep_assets.neighbours.croissant import croissant

            text = json.dumps(croissant(description), indent=1, ensure_ascii=False)
        case Form.openlineage:
            from prep_assets.neighbours.openlineage import event_json

            try:
                text = event_json(description)
            except ImportError as error:
                raise ConfigError("--as openlineage needs a package: pip install 'prep-assets[openlineage]'") from error
    typer.echo(text.removesuffix("\n"))
