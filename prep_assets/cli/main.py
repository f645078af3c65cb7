"""The entry point: `prep-assets`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from prep_assets import __version__
from prep_assets.cli import terminal
from prep_assets.cli.build import accept, build, demo, status
from prep_assets.cli.data import AlsoModelLink, certify, dataset_info, doctor, migrate, preprocess, schemas, sniff
from prep_assets.cli.keep import forget, prune
from prep_assets.cli.look import inspect, leaks, quarantine, report, stats, view
from prep_assets.cli.ship import attest, describe, export, launch_snippet, path, push, release
from prep_assets.cli.start import init, json_schema
from prep_assets.cli.trace import compare, diff, impact, trace, where
from prep_assets.cli.verify import scrub, selftest, verify
from prep_assets.errors import PrepAssetsError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""


class Commands(TyperGroup):
    """The commands. A `PrepAssetsError` is a message for the person at the keyboard, not a fault of the program: no traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command and print its errors; ``PREP_ASSETS_TRACEBACK=1`` raises them."""
        try:
            return super().invoke(ctx)
        except PrepAssetsError as error:
            if os.environ.get("PREP_ASSETS_TRACEBACK", "0") != "0":
                raise
            terminal.complain(str(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            terminal.err().print("interrupted")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    suggest_commands=False,  # click suggests as well
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prep-assets {__version__}")
        raise typer.Exit


@app.callback()
def prep_assets(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Training data as Dagster assets: look at the stores, prove them again, find out what is stale.

    PREP_ASSETS_CONFIG_DIR and PREP_ASSETS_STORE_DIR say where the configuration and the stores are, if not in configs/ and data/stores/.
    """


GROUPS = {
    "Every day": (build, accept, status, inspect, verify, report),
    "Build: schemas, templates, pipelines": (init, demo, schemas, sniff, dataset_info, json_schema, certify, preprocess, migrate),
    "Look: figures, refused records, labels": (stats, view, quarantine, leaks, doctor),
    "Find: where rows come from, what changes": (trace, where, diff, compare, impact),
    "Ship: to trainers and to others": (path, export, launch_snippet, describe, attest, release, push),
    "Keep: damage, old versions, deletion": (scrub, selftest, prune, forget),
}
"""Heading → commands, in the order of ``--help`` and docs/cli.md."""
for group, commands in GROUPS.items():
    for command in commands:
        app.command(cls=AlsoModelLink if command in (preprocess, migrate) else None, rich_help_panel=group)(command)

if __name__ == "__main__":
    app()
