"""The entry point: `prep-assets`, and the list of its commands."""

from __future__ import annotations

import inspect
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperArgument, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from prep_assets import plugins
from prep_assets.cli.complete import add_completion
from prep_assets.errors import PrepAssetsError
from prep_assets.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""
GROUPS = {
    "Every day": {
        "build": "Build assets and everything they are made from, run the checks, and publish what passes. Exit code 1 if a store fails its checks.",
        "accept": "Publish an asset's draft unchanged: the store that `build --review` or `build --set` left for inspection.",
        "status": "Show every store's state (missing, stale, failed or current), rows and tokens, the command that builds what is not current, and leftovers.",
        "inspect": "Show a row: trained tokens in bold green (in ⟦ ⟧ without colour), masked tokens dim, │ at the start of each document.",
        "verify": "Run every check on the published stores again. Exit code 1 if one fails, or if there is no store.",
        "report": "Write an HTML page about an asset's stores: figures, rows with their masks and both derivations, rejected records, lineage.",
    },
    "Build: schemas, templates, pipelines": {
        "init": "Write a configuration for your own files: find their schemas, build them, and show the first row. Asks for what the options leave open.",
        "demo": "Build the packed SFT table of the configured data sets, unless it exists, and summarize it.",
        "schemas": "List all schemas, or show one schema's options and an example row.",
        "sniff": "Try every schema on the first records of a file: show which fit, and why the others do not. Exit code 1 if none fits.",
        "dataset-info": "Print the data sets of a LLaMA-Factory dataset_info.json as domains, to paste into the configuration.",
        "json-schema": "Print the JSON Schema of a family's configuration file, or write all of them, for editors that complete and check YAML.",
        "certify": "Render probes with a chat template and say what it does: stop token, system prompt, reasoning, tools, provable masks.",
        "preprocess": "Tokenize, mask and pack files as described by an AstrAI pipeline JSON, into AstrAI's directory layout.",
        "migrate": "Convert such a pipeline to YAML for configs/; comments name the file and everything that cannot be expressed.",
    },
    "Look: figures, refused records, labels": {
        "stats": "Show counts, metrics, rejected records by reason, lineage and files, of one partition, or of all with their total.",
        "view": "Serve the pages of `report` for all stores, with a search over whole stores, until Ctrl-C. It writes nothing.",
        "quarantine": "Show rejected records: the source of each, the reason, and its content.",
        "leaks": "Show which training examples contain text of benchmarks or of other domains' test splits: how much, with both passages side by side.",
        "doctor": "Prepare rows as a trainer does and as prep-assets does, and show every label that differs. Exit code 1 if labels or ids differ.",
    },
    "Find: where rows come from, what changes": {
        "trace": "Show the source rows of a stored row; with --token, the source text of that token and why it is trained or not.",
        "where": "Show every row, pair, prompt, group and export that contains a record, or why none does: rejected, or a duplicate, and of which record.",
        "step": "Show the rows of a training step, the highest loss first, with the source of each; without a step, the steps with the highest loss.",
        "diff": "Compare the current store with another version: records in, out and changed, tokens by domain, and rows side by side with their masks.",
        "compare": "Compare two folders of stores: figures, rejections, leaks, and records that only one has. Exit code 1 if anything differs.",
        "impact": "Show which stores a change makes stale, how many records and tokens change, and which records would be rejected. Writes nothing.",
    },
    "Ship: to trainers and to others": {
        "path": "Print a store's directory: the stable link `current`, which trainers open. Exit code 1 if the store fails its checks.",
        "export": "Write a store in a trainer's format, and show the lines that open it. Damaged stores are not exported.",
        "launch-snippet": "Print the export command for a trainer, and the trainer configuration that reads the result.",
        "describe": "Describe a store: hashes, sources, licences, counts, rejected records, files, columns, checks.",
        "attest": "Write an attestation of a store, its sources and the searches made in it, as signed JSON and as a page; or verify one.",
        "release": "Copy an export into a folder with a data set card, Croissant and its manifest, for datasets.load_dataset and push.",
        "push": "Upload an export to the Hugging Face Hub in one commit, if its files match the manifest and the repository has not changed meanwhile.",
    },
    "Keep: damage, old versions, deletion": {
        "scrub": "Read stores and sources again, starting where the last scrub stopped, and compare them with their hashes. Exit code 1 if one is damaged.",
        "selftest": "Corrupt copies of your rows (shift masks, swap pairs, leak test rows …): a check must catch each one. Exit code 1 if one is missed.",
        "prune": "List unused versions of stores and leftovers of killed builds, ask, then delete them.",
        "recall": "List which versions, exports, pushed commits and runs a version or option made that is known to be wrong; with --yes, set them aside.",
        "forget": "Write a tombstone for each record, rebuild what contained it, and prove that neither its ids nor its text are in a current store.",
    },
}
"""Heading → command → its first sentence, in the order of ``--help`` and docs/cli.md. What a command's ``--help`` says further is its function's docstring."""


class Command(click.Command):
    """A command as the list shows it. Its module is imported when it is called, so that the list answers at once.

    Args:
        entry: its entry point; `None` for one of ours, which is looked up when it is called.
    """

    def __init__(self, name: str, summary: str, heading: str, entry: EntryPoint | None = None) -> None:
        super().__init__(name, help=summary)
        self.rich_help_panel, self.entry = heading, entry

    def load(self) -> click.Command:
        """The command itself, with its options."""
        callback = plugins.load(self.entry or plugins.ours("commands")[str(self.name)])
        words = "\n\n".join(filter(None, (None if self.entry else self.help, inspect.getdoc(callback))))
        command_class = getattr(sys.modules[callback.__module__], "COMMAND_CLASS", None)
        info = CommandInfo(self.name, callback=callback, help=words, cls=command_class)
        return without_types(add_completion(get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")))

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """The context of the command itself."""
        return self.load().make_context(info_name, args, parent, **extra)


def without_types(command: click.Command) -> click.Command:
    """Let newer versions of typer show neither ``<bool>`` beside a flag nor ``<list[str]>`` beside an argument, and metavars without more brackets."""
    for parameter in command.params:
        shown: Any = parameter
        if getattr(parameter, "is_flag", False) or isinstance(parameter, TyperArgument):
            shown.display_type_rich = lambda ctx: None
        if isinstance(parameter, TyperArgument) and parameter.metavar:
            shown._usage_display_name = lambda name=parameter.metavar: name
    return command


class Commands(TyperGroup):
    """The commands. A `PrepAssetsError` is a message for the person at the keyboard, not a fault of the program: no traceback."""

    def __init__(self, **attributes: Any) -> None:
        listed = {name: Command(name, summary, heading) for heading, group in GROUPS.items() for name, summary in group.items()}
        super().__init__(**{**attributes, "commands": listed})
        without_types(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in their order, which is not that of the alphabet; those of other packages behind ours."""
        return list({**self.commands, **plugins.added("commands", self.commands)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name. Other packages are asked only for one that is not ours."""
        if cmd_name in self.commands or cmd_name not in (added := plugins.added("commands", self.commands)):
            return super().get_command(ctx, cmd_name)
        return Command(cmd_name, f"From {plugins.package_of(added[cmd_name])}.", "From other packages", added[cmd_name])

    def invoke(self, ctx: Any) -> Any:
        """Run a command and print its errors; ``PREP_ASSETS_TRACEBACK=1`` raises them."""
        try:
            return super().invoke(ctx)
        except PrepAssetsError as error:
            if os.environ.get("PREP_ASSETS_TRACEBACK", "0") != "0":
                raise
            from prep_assets.cli import terminal

            terminal.complain(str(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    suggest_commands=find_spec("typer._click") is not None,  # before typer 0.26, click suggests as well
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
    variant: Annotated[
        str | None,
        typer.Option("--variant", metavar="NAME", help="Merge FAMILY.NAME.yaml over FAMILY.yaml; stores are in a folder of that name."),
    ] = None,
) -> None:
    """Training data as Dagster assets: look at the stores, prove them again, find out what is stale.

    PREP_ASSETS_CONFIG_DIR and PREP_ASSETS_STORE_DIR name the folders of configuration and stores (default: configs/ and data/stores/).
    """
    if variant:
        os.environ["PREP_ASSETS_VARIANT"] = variant


if __name__ == "__main__":
    app()
