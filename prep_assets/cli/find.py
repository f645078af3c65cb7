"""Which stores a command is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prep_assets.errors import ConfigError, PrepAssetsError, StoreError

if TYPE_CHECKING:
    from prep_assets.assets.stage import Asset
    from prep_assets.assets.workspace import Workspace
    from prep_assets.records.files import SourceFile
    from prep_assets.stores.published import Published

AssetName = Annotated[str, typer.Argument(metavar="ASSET", show_default=False, help="An asset, e.g. sft_packed.")]
Partition = Annotated[
    str | None, typer.Option("--partition", "-p", metavar="P", help="A domain, for an asset that has one store for each.")
]

Stream = Annotated[
    str | None, typer.Option("--stream", "-s", metavar="S", help="Which stream, table or file of the store, where it has several.")
]
Draft = Annotated[bool, typer.Option("--draft", help="The last store that options of one run gave, instead of the current one.")]


def opened() -> Workspace:
    """The workspace that the environment names, or that of this folder."""
    from prep_assets.assets.workspace import Workspace

    return Workspace.open()


def one_store(workspace: Workspace, name: str, partition: str | None) -> Published:
    """The one store that an asset and a partition name; a partition may be left out where there is only one.

    Raises:
        ConfigError: no such asset or partition, or a choice among several is needed.
        StoreError: it is not built; the message has the command that builds it.
    """
    from prep_assets.assets.commands import build_command
    from prep_assets.assets.graph import one_partition
    from prep_assets.stores.published import open_published

    asset, each = one_partition(workspace, name, partition)
    return open_published(workspace.stores, asset.name, each, remedy=build_command(asset.name, each))


def stores_of(workspace: Workspace, name: str, partition: str | None) -> tuple[list[Published], list[str]]:
    """The stores of an asset, and the labels of those that are not built.

    Raises:
        ConfigError: no such asset or partition.
        StoreError: none of them is built; the message has the command that builds them.
    """
    from prep_assets.assets.graph import asset_and_partitions

    asset, partitions = asset_and_partitions(workspace, name, partition)
    found, missing = [], []
    for each in partitions:
        published = workspace.published(asset.name, each)
        if published is None:
            missing.append(workspace.place(asset.name, each).label)
        else:
            found.append(published)
    if not found:
        remedy = build_commands([(asset.name, each) for each in partitions])
        raise StoreError(f"{', '.join(missing)}: no store in {workspace.where}. Build with:\n{remedy}")
    return found, missing


def named_stores(workspace: Workspace, name: str | None, partition: str | None) -> list[tuple[str, str]]:
    """Asset and partition of each store that a command is about, built or not: those of one asset, or of all that are configured.

    Raises:
        ConfigError: no such asset or partition, or a partition of no asset.
    """
    from prep_assets.assets.graph import asset_and_partitions

    if name is None and partition is not None:
        raise ConfigError(f"--partition {partition} of which asset? Name it: ASSET --partition {partition}")
    names = [name] if name else [asset.name for asset in configured(workspace)]
    found = [asset_and_partitions(workspace, each, partition) for each in names]
    return [(asset.name, each) for asset, partitions in found for each in partitions]


def built(workspace: Workspace) -> dict[str, list[Published]]:
    """The stores of every asset that has any, in the order of the graph.

    Raises:
        StoreError: there is none.
    """
    stores = every_store(workspace)
    if not stores:
        raise StoreError(f"no store in {workspace.where}. Build with:\n  prep-assets build --all")
    return stores


def every_store(workspace: Workspace) -> dict[str, list[Published]]:
    """The same, where there may be none."""
    found = {asset.name: [workspace.published(asset.name, each) for each in asset.partitions(workspace)] for asset in configured(workspace)}
    stores = {name: [each for each in every if each is not None] for name, every in found.items()}
    return {name: every for name, every in stores.items() if every}


def build_commands(stores: Sequence[tuple[str, str]]) -> str:
    """The command that builds each asset and partition, indented, one a line."""
    from prep_assets.assets.commands import build_command

    return "\n".join(f"  {build_command(asset, partition)}" for asset, partition in stores)


def configured(workspace: Workspace, faults: list[str] | None = None) -> list[Asset]:
    """Every asset whose family has a configuration file, in the order of the graph.

    Args:
        faults: collects what is wrong with a family, which is then left out; without this list, the first fault is raised.
    """
    from prep_assets.assets.graph import family_assets
    from prep_assets.config.models import FAMILIES

    found: list[Asset] = []
    for family in filter(workspace.has, FAMILIES):
        try:
            found += family_assets(workspace, family).values()
        except PrepAssetsError as error:
            if faults is None:
                raise
            faults.append(str(error))
    return found


def first_rows(files: Sequence[SourceFile], count: int) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """Id and payload of the first readable rows, and what is wrong with the unreadable ones between them."""
    from prep_assets.records.files import record_id
    from prep_assets.records.read import read_blocks

    rows: list[tuple[str, dict[str, Any]]] = []
    unreadable: list[str] = []
    for index, file in enumerate(files):
        for block in read_blocks(file, index, block_bytes=1 << 20):
            rows += [(record_id(file, record.row), dict(record.payload)) for record in block.records[: count - len(rows)]]
            unreadable += [f"{file.name}:{row.row} {row.reason}: {row.detail}" for row in block.unreadable]
            if len(rows) >= count:
                return rows, unreadable
    return rows, unreadable


@contextmanager
def reading(published: Published) -> Iterator[None]:
    """Whatever goes wrong while a payload is read is about the payload.

    Raises:
        StoreError: in place of what h5py, numpy or json raise on damaged files, and of what readers say, with the command that looks into it.
    """
    try:
        yield
    except StoreError as error:
        if "prep-assets build" in str(error):  # it says already what to do
            raise
        raise StoreError(f"{error}. See what is wrong with it:\n  {_verify_command(published)}") from error
    except PrepAssetsError:
        raise
    except (OSError, ValueError, LookupError, RuntimeError, EOFError) as error:
        what = f"{published.manifest.label} in {published.where} cannot be read ({type(error).__name__}: {error})"
        raise StoreError(f"{what}. See what is wrong with it:\n  {_verify_command(published)}") from error


def _verify_command(published: Published) -> str:
    manifest = published.manifest
    return f"prep-assets verify {manifest.asset}" + (f" -p {manifest.partition}" if manifest.partition else "")
