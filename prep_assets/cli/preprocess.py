"""`prep-assets preprocess`: run an AstrAI pipeline JSON over some files, without Dagster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prep_assets.cli.console import bar, err, near, number, out, table

if TYPE_CHECKING:
    from prep_assets.astrai.preprocess import Outcome
    from prep_assets.astrai.run import Counts


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
    """Tokenize, mask and pack files as an AstrAI pipeline JSON says, into AstrAI's directory layout."""
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
        domains = table("domain", "records", numbers=("records",))
        for folder, count in counts.domains.items():
            domains.add_row(folder, number(count))
        console.print(domains)
    if counts.refused:
        console.print(f"refused records: {near(outcome.directory.resolve() / 'quarantine.jsonl')}")


def migrate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Pipeline JSON of either AstrAI dialect.")],
    files: Annotated[list[str] | None, typer.Option("--file", "-f", help="A source of the domain; may be given several times.")] = None,
    tokenizer: Annotated[str, typer.Option(help="Tokenizer directory, relative to where the YAML will stand.")] = "tokenizer",
    domain: Annotated[str, typer.Option(help="Name of the domain.")] = "data",
) -> None:
    """Print the same pipeline as YAML for configs/; comments say what it is called and what cannot be expressed."""
    from prep_assets.astrai.config import load_pipeline
    from prep_assets.astrai.migrate import migrated

    typer.echo(migrated(load_pipeline(config), config.name, files=files or ["data/*.jsonl"], tokenizer=tokenizer, domain=domain), nl=False)
