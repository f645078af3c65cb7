"""`prep-assets migrate`: an AstrAI pipeline JSON as a configuration of the asset graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def migrate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Pipeline JSON of either AstrAI dialect.")],
    files: Annotated[list[str] | None, typer.Option("--file", "-f", help="A source of the domain; may be given several times.")] = None,
    tokenizer: Annotated[str, typer.Option(help="Tokenizer directory, relative to where the YAML will stand.")] = "tokenizer",
    domain: Annotated[str, typer.Option(help="Name of the domain.")] = "data",
) -> None:
    """Print the same pipeline as YAML for configs/; comments say what it is called and what cannot be expressed."""
    from prep_assets.astrai.load import load_pipeline
    from prep_assets.astrai.migrate import migrated

    typer.echo(migrated(load_pipeline(config), config.name, files=files or ["data/*.jsonl"], tokenizer=tokenizer, domain=domain), nl=False)
