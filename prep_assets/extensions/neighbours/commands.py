"""`prep-assets describe`, `attest`, `release` and `push`: what a store is, said to others, signed, and published."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from prep_assets.cli import terminal
from prep_assets.cli.stores import one_store, reading, working
from prep_assets.errors import ConfigError
from prep_assets.extensions.explain.html import write_page
from prep_assets.extensions.exports.registry import check_folder
from prep_assets.extensions.neighbours.attestation import attest as attest_store
from prep_assets.extensions.neighbours.attestation import attestation_page, check, signed_by, text_of
from prep_assets.extensions.neighbours.description import describe as describe_store
from prep_assets.extensions.neighbours.hub import UNKNOWN, Release, card, croissant, licence_of, release_in, release_of, write_release
from prep_assets.extensions.neighbours.hub import push as push_release
from prep_assets.extensions.neighbours.openlineage import event_json
from prep_assets.graph.graph import one_partition
from prep_assets.pipeline.workspace import Workspace


def release(
    asset: terminal.AssetName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The target: a new or empty folder.")],
    partition: terminal.Partition = None,
) -> None:
    check_folder(folder)
    bundle = _release(asset, partition)
    write_release(bundle, folder)
    console = terminal.out()
    console.print(f"{terminal.near(folder.resolve())}: {terminal.counted(len(bundle.files), 'file')}, {_size(bundle)}")
    console.print(f'from datasets import load_dataset\ndataset = load_dataset("{folder.resolve()}")')


def push(
    source: Annotated[str, typer.Argument(metavar="EXPORT", help="An asset, e.g. sft_export_hub, or a folder that `release` wrote.")],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="The data set on the Hub, owner/name; created if missing.")],
    partition: terminal.Partition = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    unknown_licence: Annotated[bool, typer.Option("--unknown-licence", help="Push even if the licence is unknown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files; send no request to the Hub.")] = False,
) -> None:
    """The token is that of `hf auth login`, or HF_TOKEN."""
    bundle = release_in(Path(source)) if "/" in source or Path(source).is_dir() else _release(source, partition)
    licence, console = licence_of(bundle), terminal.out()
    if dry_run:
        rows = [
            (name, terminal.size(bundle.size(name)), bundle.manifest.files.get(name, {}).get("sha256", "")[:16]) for name in bundle.files
        ]
        title = f"{bundle.where}: what would be uploaded"
        console.print(terminal.table("file", "size", "sha256", rows=rows, numbers=("size",), title=title))
        console.print(f"licence: {licence}")
        return
    if licence == UNKNOWN and not unknown_licence:
        raise ConfigError(
            f"{bundle.where}: the licence is unknown, so what is published could not be used. Say it in the configuration (licence: of each "
            "domain, or of the family), or add --unknown-licence"
        )
    pushed = push_release(bundle, repository, private=private)
    for name in pushed.removed:
        console.print(f"removed {name}, of an earlier push")
    console.print(f"{repository} holds {bundle.where}: {terminal.counted(len(bundle.files), 'file')}, {_size(bundle)}")
    console.print(pushed.url)


def _release(asset: str, partition: str | None) -> Release:
    workspace = Workspace.open()
    definition, key = one_partition(workspace, asset, partition)
    return release_of(workspace, definition.name, key)


def _size(bundle: Release) -> str:
    return terminal.size(sum(bundle.size(name) for name in bundle.files))


def describe(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    form: Annotated[
        Literal["json", "card", "croissant", "openlineage"],
        typer.Option("--as", help="Plain JSON, a data set card, Croissant, or an OpenLineage event."),
    ] = "json",
) -> None:
    workspace = Workspace.open()
    definition, key = one_partition(workspace, asset, partition)
    description, _ = describe_store(workspace, definition.name, key)
    text = ""
    match form:
        case "json":
            text = terminal.json_text(asdict(description))
        case "card":
            text = card(description)
        case "croissant":
            text = terminal.json_text(croissant(description))
        case "openlineage":
            try:
                text = event_json(description)
            except ImportError as error:
                raise ConfigError("--as openlineage needs a package: pip install 'prep-assets[openlineage]'") from error
    typer.echo(terminal.safe(text).removesuffix("\n"))


def attest(
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", help="An asset, e.g. sft_packed.")] = None,
    partition: terminal.Partition = None,
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of both files.")] = Path("attestations"),
    key: Annotated[
        str,
        typer.Option("--key", metavar="FILE", help="The private key to sign with; with --check, the public keys to trust."),
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="An attestation to verify against the current store.")
    ] = None,
) -> None:
    """Without --key, PREP_ASSETS_SIGNING_KEY and PREP_ASSETS_TRUSTED_KEYS count. Exit code 1 where the file was altered, or the store is another one."""
    if (asset is None) == (file is None):
        raise typer.BadParameter("say what to attest, or which file to --check: one of them", param_hint="ASSET")
    console = terminal.out()
    if file is not None:
        console.print(check(Workspace.open(), file, key=key))
        return
    with working() as workspace:
        definition, domain = one_partition(workspace, str(asset), partition)
        with reading(one_store(workspace, definition.name, domain)):
            document = attest_store(workspace, definition.name, domain, key=key)
    path = folder / f"{definition.name}{f'-{domain}' if domain else ''}.json"
    write_page(path, text_of(document))
    write_page(path.with_suffix(".html"), attestation_page(document, signed_by(document["signature"])))
    console.print(f"{terminal.near(path.absolute())}, {path.with_suffix('.html').name}: {signed_by(document['signature'])}")
    if not document["signature"]:
        terminal.err().print("to sign it, give a key: --key FILE, or PREP_ASSETS_SIGNING_KEY", style="yellow")
