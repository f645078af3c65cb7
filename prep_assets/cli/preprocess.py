"""`prep-assets preprocess`: run an AstrAI pipeline JSON, or a command line of ModelLink, over some files, without Dagster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer
from typer.core import TyperCommand

from prep_assets.cli.console import Live, bar, counted, err, near, number, out, size, table
from prep_assets.cli.tokens import visible

if TYPE_CHECKING:
    from prep_assets import modellink
    from prep_assets.astrai.preprocess import Outcome
    from prep_assets.astrai.run import Counts
    from prep_assets.engine.events import Event


PARAMS = "params"
"""Where AstrAI looks for a tokenizer when none is named."""


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
        int | None, typer.Option("--workers", min=1, show_default=False, help="Processes that work at a time; as many as fit, if left out.")
    ] = None,
    log_interval: Annotated[
        int | None,
        typer.Option(
            "--log-interval", "--log_interval", min=1, show_default=False, help="Print a line each time that N more records are read."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A field to leave out before a record is read, such as notes or messages.rating; once for each."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output in the directory.")] = False,
) -> None:
    """Tokenize, mask and pack files as an AstrAI pipeline JSON says, into AstrAI's directory layout.

    With ModelLink's flags it writes ModelLink's files: prep-assets preprocess --input FILE --output-prefix PREFIX --help
    """
    from rich.progress import DownloadColumn, TimeRemainingColumn

    from prep_assets.astrai.config import load_pipeline
    from prep_assets.astrai.preprocess import load_tokenizer
    from prep_assets.astrai.preprocess import preprocess as run

    pipeline = load_pipeline(config)
    directory = tokenizer or _default_tokenizer()
    err().print(f"tokenizer: {near(directory.resolve())}")
    vocabulary = load_tokenizer(directory)
    with bar(DownloadColumn(), TimeRemainingColumn()) as shown:
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
    _show(outcome)


def _log(begun: float, counts: Counts) -> None:
    """What one line of --log-interval says."""
    pace = counts.read / max(1e-9, perf_counter() - begun)
    line = f"{counts.read:,} records read, {counts.kept:,} kept, {counts.tokens:,} tokens, {pace:,.0f} records/s"
    err().print(line)


def _default_tokenizer() -> Path:
    if Path(PARAMS).is_dir():
        return Path(PARAMS)
    from prep_assets.config.loading import config_dir, load_family
    from prep_assets.errors import ConfigError

    folder = config_dir()
    configured = folder / load_family("sft", folder).tokenizer
    if not configured.is_dir():
        raise ConfigError(f"no tokenizer: there is no ./{PARAMS}, and {configured} is not a directory. Name one with --tokenizer")
    return configured


def _show(outcome: Outcome) -> None:
    counts, totals, console = outcome.counts, outcome.totals, out()
    shown = table("figure", "value", numbers=("value",), title=near(outcome.directory.resolve()))
    shown.add_row("records read", number(counts.read))
    for reason, count in counts.refused.items():
        shown.add_row(f"- refused: {reason}", number(count))
    shown.add_row("= kept", number(counts.kept))
    shown.add_section()
    shown.add_row("tokens", number(counts.tokens))
    shown.add_row("trained tokens", "all" if counts.trained is None else number(counts.trained))
    for label, count in (
        ("records without a trained token", counts.untrained),
        ("records cut at max_seq_len", counts.cut_records),
        ("tokens cut at max_seq_len", counts.cut_tokens),
        ("records cut at max_packed_len", totals.cut_records),
        ("tokens cut at max_packed_len", totals.cut_by_packing),
        ("tokens of padding in bins", totals.padding),
    ):
        if count:
            shown.add_row(label, number(count))
    for path, count in outcome.passed_over.items():
        shown.add_row(f"records whose {path!r} was passed over", number(count))
    shown.add_row("shards", number(len(totals.shards)))
    console.print(shown)
    if len(counts.domains) > 1:
        domains = [(folder, number(count)) for folder, count in counts.domains.items()]
        console.print(table("domain", "records", rows=domains, numbers=("records",)))
    if counts.refused:
        console.print(f"refused records: {near(outcome.directory.resolve() / 'quarantine.jsonl')}")


def migrate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Pipeline JSON of either AstrAI dialect.")],
    files: Annotated[list[str] | None, typer.Option("--file", "-f", help="A source of the domain; may be given several times.")] = None,
    tokenizer: Annotated[str, typer.Option(help="Tokenizer directory, relative to where the YAML will stand.")] = "tokenizer",
    domain: Annotated[str, typer.Option(help="Name of the domain.")] = "data",
) -> None:
    """Print the same pipeline as YAML for configs/; comments say what it is called and what cannot be expressed.

    A command line of ModelLink as well: prep-assets migrate --input FILE --output-prefix PREFIX and its other flags
    """
    from prep_assets.astrai.config import load_pipeline
    from prep_assets.astrai.migrate import migrated

    typer.echo(migrated(load_pipeline(config), config.name, files=files or ["data/*.jsonl"], tokenizer=tokenizer, domain=domain), nl=False)


# -- ModelLink --------------------------------------------------------------------------------------------------------------------------

SHOWN = 10
"""Rows that are too long, of which the place is printed."""


class AlsoModelLink(TyperCommand):
    """`preprocess` and `migrate`: ModelLink's where the command line has the flags that ModelLink's needs, else AstrAI's."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """The command that the words are meant for."""
        if {"--input", "--output-prefix"}.isdisjoint(word.partition("=")[0] for word in args):
            return super().make_context(info_name, args, parent, **extra)
        run = partial(_modellink if info_name == "preprocess" else _migrate_modellink, list(args))
        return click.Command(info_name, callback=run).make_context(info_name, [], parent)


def _modellink(words: list[str]) -> None:
    from prep_assets.modellink import configuration, parsed
    from prep_assets.modellink import preprocess as run

    flags = parsed(words)
    found = configuration(flags)
    for note in found.notes:
        err().print(f"note: {visible(note)}", style="dim")
    with Live(err()) as live:
        intervals = _Intervals(flags.log_interval, live) if flags.log_interval else live
        outcome = run(flags, found, intervals)
    _show_modellink(outcome, flags.seq_length)


def _migrate_modellink(words: list[str]) -> None:
    from prep_assets.modellink import configuration, parsed

    typer.echo(configuration(parsed(words, "migrate")).text, nl=False)


class _Intervals:
    """Is called with each event of the engine, and passes it on; prints a line each time that about so many more rows are done."""

    def __init__(self, every: int, live: Live) -> None:
        self._every, self._live, self._rows, self._what, self._last = every, live, 0, "", 0

    def __call__(self, event: Event) -> None:
        from prep_assets.engine.events import Accepted, Progress

        self._live(event)
        match event:
            case Accepted(step, published) if step.asset.name.endswith("_raw"):
                self._rows = published.manifest.counts["read"]
            case Progress(what, done, total) if what.startswith("tokenize") and total:
                rows, name = self._rows * done // total, what.partition(":")[0]
                if rows // self._every > (self._last if name == self._what else 0):
                    err().print(f"about {rows:,} of {self._rows:,} rows: {visible(what)}")
                self._what, self._last = name, rows // self._every


def _show_modellink(outcome: modellink.Outcome, longest: int | None) -> None:
    from itertools import islice

    from prep_assets.modellink import inspecting

    console = out()
    if outcome.was_there:
        console.print("there already, made from these flags, rows and tokenizer: nothing to do")
    shown = table("figure", "value", numbers=("value",))
    shown.add_row("rows read", number(outcome.read))
    for reason, count in outcome.refused.items():
        shown.add_row(f"- left out: {reason}", number(count))
    shown.add_section()
    for name, count in zip(("sequences", "tokens"), outcome.written, strict=True):
        shown.add_row(name, number(count))
    if trained := outcome.stores[-2].manifest.counts.get("trained_tokens"):
        shown.add_row("trained tokens", number(trained))
    console.print(shown)
    for path in outcome.files:
        console.print(f"{near(path)} {size(path.stat().st_size)}")
    long = outcome.refused["tokenize/too_long"]
    if long:
        console.print(f"{counted(long, 'row')} longer than --seq-length {longest}, left out:", style="yellow")
        for row in islice(outcome.too_long, SHOWN):
            console.print(f"  {visible(row.id)}: {visible(row.detail)}")
    for asset in dict.fromkeys(each.manifest.asset for each in outcome.stores if each.manifest.counts.get("refused")):
        console.print(f"all that {asset} left out: {inspecting(outcome.workspace)} prep-assets quarantine {asset}", style="dim")
