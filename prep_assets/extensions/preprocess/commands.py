"""`prep-assets preprocess` and `migrate`: run or convert an AstrAI pipeline JSON or a ModelLink command line."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import click
import typer
from rich.progress import DownloadColumn, TimeRemainingColumn
from typer.core import TyperCommand

from prep_assets.cli import terminal
from prep_assets.cli.stores import Live
from prep_assets.config.loading import config_dir, load_family
from prep_assets.engine.events import Accepted, Event, Progress
from prep_assets.errors import ConfigError
from prep_assets.extensions.preprocess import modellink
from prep_assets.extensions.preprocess.astrai import load_pipeline, migrate_pipeline
from prep_assets.extensions.preprocess.astrai_run import Counts, Outcome, load_tokenizer
from prep_assets.extensions.preprocess.astrai_run import preprocess as run
from prep_assets.extensions.preprocess.modellink import configuration, parse_flags, shell_environment
from prep_assets.text.visible import visible

PARAMS = "params"
"""AstrAI's default folder of the tokenizer."""


def preprocess(
    inputs: Annotated[list[str], typer.Argument(metavar="FILES...", help="JSONL, JSON and other data files, folders or globs.")],
    output: Annotated[Path, typer.Option("--output", "--output-dir", "--output_dir", "-o", help="Output directory.")],
    config: Annotated[Path, typer.Option("--config", "-c", help="Pipeline JSON of either AstrAI dialect.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "--tokenizer_path", help="Tokenizer directory; else ./params, else the one of configs/sft.yaml."),
    ] = None,
    masking: Annotated[
        Literal["astrai", "spans"],
        typer.Option(help="astrai: each message rendered alone, its header trained; spans: one render, only contents and stop tokens."),
    ] = "astrai",
    dedup: Annotated[
        Literal["exact", "prefix200", "none"] | None,
        typer.Option(help="Duplicates, if not as configured: whole records; their first 200 characters, as AstrAI did; or kept."),
    ] = None,
    position_ids: Annotated[
        Literal["none", "doc_reset", "continuous"] | None, typer.Option(help="Position ids, if not as configured.")
    ] = None,
    layout: Annotated[
        Literal["shards", "flat"], typer.Option(help="shards: <domain>/shard_0000/; flat: <domain>/, one shard a domain.")
    ] = "shards",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that work at a time; as many as fit, if left out.")
    ] = None,
    log_interval: Annotated[
        int | None,
        typer.Option("--log-interval", "--log_interval", min=1, help="Print a line each time that N more records are read."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A field to leave out before a record is read, such as notes or messages.rating; once for each."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output in the directory.")] = False,
) -> None:
    """With ModelLink's flags it writes ModelLink's files: prep-assets preprocess --input FILE --output-prefix PREFIX --help"""
    pipeline = load_pipeline(config)
    directory = tokenizer or _default_tokenizer()
    terminal.err().print(f"tokenizer: {terminal.near(directory.resolve())}")
    vocabulary = load_tokenizer(directory)
    with terminal.bar(DownloadColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task("preprocess", total=None)
        outcome = run(
            inputs,
            output,
            pipeline,
            vocabulary,
            masking=masking,
            dedup=dedup,
            position_ids=position_ids,
            layout=layout,
            ignore=ignore or (),
            overwrite=overwrite,
            workers=workers or "auto",
            log_interval=log_interval,
            log=partial(_log, perf_counter()),
            progress=lambda done, total: shown.update(task, completed=done, total=total),
        )
    _show_outcome(outcome)


def _log(begun: float, counts: Counts) -> None:
    """Print a line of ``--log-interval``."""
    pace = counts.read / max(1e-9, perf_counter() - begun)
    line = f"{counts.read:,} records read, {counts.kept:,} kept, {counts.tokens:,} tokens, {pace:,.0f} records/s"
    terminal.err().print(line)


def _default_tokenizer() -> Path:
    if Path(PARAMS).is_dir():
        return Path(PARAMS)

    folder = config_dir()
    configured = folder / load_family("sft", folder).tokenizer
    if not configured.is_dir():
        raise ConfigError(f"no tokenizer: there is no ./{PARAMS}, and {configured} is not a directory. Name one with --tokenizer")
    return configured


def _show_outcome(outcome: Outcome) -> None:
    counts, totals, console = outcome.counts, outcome.totals, terminal.out()
    shown = terminal.table("figure", "value", numbers=("value",), title=terminal.near(outcome.directory.resolve()))
    shown.add_row("records read", terminal.number(counts.read))
    for reason, count in counts.refused.items():
        shown.add_row(f"- refused: {reason}", terminal.number(count))
    shown.add_row("= kept", terminal.number(counts.kept))
    shown.add_section()
    shown.add_row("tokens", terminal.number(counts.tokens))
    shown.add_row("trained tokens", "all" if counts.trained is None else terminal.number(counts.trained))
    for label, count in (
        ("records without a trained token", counts.untrained),
        ("records cut at max_seq_len", counts.cut_records),
        ("tokens cut at max_seq_len", counts.cut_tokens),
        ("records cut at max_packed_len", totals.cut_records),
        ("tokens cut at max_packed_len", totals.cut_by_packing),
        ("tokens of padding in bins", totals.padding),
    ):
        if count:
            shown.add_row(label, terminal.number(count))
    for path, count in outcome.passed_over.items():
        shown.add_row(f"records whose {path!r} was passed over", terminal.number(count))
    shown.add_row("shards", terminal.number(len(totals.shards)))
    console.print(shown)
    if len(counts.domains) > 1:
        domains = [(folder, terminal.number(count)) for folder, count in counts.domains.items()]
        console.print(terminal.table("domain", "records", rows=domains, numbers=("records",)))
    if counts.refused:
        console.print(f"refused records: {terminal.near(outcome.directory.resolve() / 'quarantine.jsonl')}")


def migrate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Pipeline JSON of either AstrAI dialect.")],
    files: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="A source of the domain, relative to where the YAML will stand; may be repeated."),
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="Tokenizer directory, relative to where the YAML will stand.")] = "tokenizer",
    domain: Annotated[str, typer.Option(help="Name of the domain.")] = "data",
) -> None:
    """A command line of ModelLink as well: prep-assets migrate --input FILE --output-prefix PREFIX and its other flags"""
    files = files or ["data/*.jsonl"]
    typer.echo(migrate_pipeline(load_pipeline(config), config.name, files=files, tokenizer=tokenizer, domain=domain), nl=False)


SHOWN = 10
"""Most rows that are too long to name."""


class AlsoModelLink(TyperCommand):
    """`preprocess` and `migrate`: ModelLink's where the command line has its required flags, else AstrAI's."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """The context of ModelLink's or AstrAI's command, by the flags."""
        if {"--input", "--output-prefix"}.isdisjoint(word.partition("=")[0] for word in args):
            return super().make_context(info_name, args, parent, **extra)
        run = partial(_modellink if info_name == "preprocess" else _migrate_modellink, list(args))
        return click.Command(info_name, callback=run).make_context(info_name, [], parent)


COMMAND_CLASS = AlsoModelLink


def _modellink(words: list[str]) -> None:
    flags = parse_flags(words)
    settings = configuration(flags)
    for note in settings.notes:
        terminal.err().print(f"note: {visible(note)}", style="dim")
    with Live(terminal.err()) as live:
        intervals = _Intervals(flags.log_interval, live) if flags.log_interval else live
        outcome = modellink.preprocess(flags, settings, intervals)
    _show_modellink(outcome, flags.seq_length)


def _migrate_modellink(words: list[str]) -> None:
    typer.echo(configuration(parse_flags(words, "migrate")).text, nl=False)


class _Intervals:
    """A listener that forwards events of the engine, and prints a line about every `every` rows."""

    def __init__(self, every: int, live: Live) -> None:
        self._every, self._live, self._rows, self._what, self._last = every, live, 0, "", 0

    def __call__(self, event: Event) -> None:

        self._live(event)
        match event:
            case Accepted(step, published) if step.asset.name.endswith("_raw"):
                self._rows = published.manifest.counts["read"]
            case Progress(what, done, total) if what.startswith("tokenize") and total:
                rows, name = self._rows * done // total, what.partition(":")[0]
                if rows // self._every > (self._last if name == self._what else 0):
                    terminal.err().print(f"about {rows:,} of {self._rows:,} rows: {visible(what)}")
                self._what, self._last = name, rows // self._every


def _show_modellink(outcome: modellink.Outcome, longest: int | None) -> None:
    console = terminal.out()
    if outcome.up_to_date:
        console.print("there already, made from these flags, rows and tokenizer: nothing to do")
    shown = terminal.table("figure", "value", numbers=("value",))
    shown.add_row("rows read", terminal.number(outcome.read))
    for reason, count in outcome.refused.items():
        shown.add_row(f"- left out: {reason}", terminal.number(count))
    shown.add_section()
    for name, count in zip(("sequences", "tokens"), outcome.written, strict=True):
        shown.add_row(name, terminal.number(count))
    if trained := outcome.stores[-2].manifest.counts.get("trained_tokens"):
        shown.add_row("trained tokens", terminal.number(trained))
    console.print(shown)
    for path in outcome.files:
        console.print(f"{terminal.near(path)} {terminal.size(path.stat().st_size)}")
    long = outcome.refused["tokenize/too_long"]
    if long:
        console.print(f"{terminal.counted(long, 'row')} longer than --seq-length {longest}, left out:", style="yellow")
        for row in islice(outcome.too_long, SHOWN):
            console.print(f"  {visible(row.id)}: {visible(row.detail)}")
    for asset in dict.fromkeys(store.manifest.asset for store in outcome.stores if store.manifest.counts.get("refused")):
        console.print(f"all that {asset} left out: {shell_environment(outcome.workspace)} prep-assets quarantine {asset}", style="dim")
