"""`prep-assets describe`: what a store is, in the words of other tools."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from prep_assets.cli.find import AssetName, Partition, one_partition
from prep_assets.errors import ConfigError


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
    from prep_assets.assets.workspace import Workspace
    from prep_assets.neighbours.description import describe

    workspace = Workspace.open()
    found, each = one_partition(workspace, asset, partition)
    said, _ = describe(workspace, found.name, each)
    match form:
        case Form.json:
            text = json.dumps(asdict(said), indent=1, ensure_ascii=False)
        case Form.card:
            from prep_assets.neighbours.card import card

            text = card(said)
        case Form.croissant:
            from prep_assets.neighbours.croissant import croissant

            text = json.dumps(croissant(said), indent=1, ensure_ascii=False)
        case Form.openlineage:
            from prep_assets.neighbours.openlineage import event_json

            try:
                text = event_json(said)
            except ImportError as error:
                raise ConfigError("--as openlineage needs a package: pip install 'prep-assets[openlineage]'") from error
    typer.echo(text.removesuffix("\n"))
