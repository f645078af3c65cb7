"""Commands that need no store: `schemas`, `sniff`, `dataset-info`, `certify`, `doctor`, `preprocess` and `migrate`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import click
import typer
from msgspec import to_builtins
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, PrepAssetsError, SourceError, nearest
from prep_assets.explain.visible import visible

if TYPE_CHECKING:
    from prep_assets.compat import modellink
    from prep_assets.compat.astrai_run import Counts, Outcome
    from prep_assets.engine.events import Event
    from prep_assets.explain.doctor import Compared, Diagnosis
    from prep_assets.samples import Sample
    from prep_assets.schemas.registry import Schema
    from prep_assets.schemas.sniff import Fit
    from prep_assets.text.certify import Comparison
    from prep_assets.text.template import ChatTemplate
    from prep_assets.text.vocabulary import Vocabulary

# `prep-assets schemas` and `sniff`: the formats of rows that can be read.


def schemas(
    name: Annotated[str | None, typer.Argument(show_default=False, help="A schema: show its options and a row.")] = None,
    as_json: terminal.AsJson = False,
) -> None:
    """List all schemas; or show the options of one and a row that it reads."""
    from prep_assets.schemas import registry

    known, console = registry.schemas(), terminal.out()
    if name is not None:
        by_word = {word: schema for schema in known.values() for word in (schema.name, *schema.aliases)}
        if name not in by_word:
            raise ConfigError(f"no schema {name!r}{nearest(name, by_word) or '.'} Known: {', '.join(known)}")
        terminal.print_json(_described(by_word[name])) if as_json else _show_schema(console, by_word[name])
        return
    if as_json:
        terminal.print_json([_described(schema) for schema in known.values()])
        return
    listed = sorted(known.values(), key=lambda schema: schema.name.lower())
    rows = [(schema.name, gives(schema.gives), Text(schema.summary), "\n".join(schema.aliases)) for schema in listed]
    shown = terminal.table("schema", "gives", "what it reads", "aliases", rows=rows)
    shown.columns[0].no_wrap = True  # names stay whole, to be copied
    console.print(shown)
    console.print("prep-assets schemas NAME shows the options of one; prep-assets sniff FILE finds the ones that fit a file", style="dim")


def _described(schema: Schema) -> dict[str, Any]:
    """A schema as JSON."""
    options = {name: str(parameter.annotation) for name, parameter in schema.options.items()}
    described = {"name": schema.name, "gives": gives(schema.gives), "summary": schema.summary, "aliases": list(schema.aliases)}
    return {**described, "options": options, "example": dict(schema.example)}


def gives(form: type | UnionType) -> str:
    """The name of a form, or of the members of a union."""
    return " | ".join(member.__name__ for member in get_args(form) or (form,))


def _show_schema(console: Console, schema: Schema) -> None:
    aliases = f" (also called {', '.join(schema.aliases)})" if schema.aliases else ""
    console.print(Text.assemble((schema.name, "bold"), f"{aliases} gives {gives(schema.gives)}"))
    console.print(Text("\n" + (inspect.getdoc(schema.factory) or "") + "\n"))
    if schema.options:
        shown = terminal.table("option", "type", "default", title="options")
        for name, parameter in schema.options.items():
            kind: Any = "" if parameter.annotation is inspect.Parameter.empty else parameter.annotation
            default = "(required)" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
            shown.add_row(name, Text(kind if isinstance(kind, str) else inspect.formatannotation(kind)), Text(default))
        console.print(shown)
    else:
        console.print("It has no options.")
    console.print("a row that it reads:", style="bold")
    console.print_json(data=dict(schema.example), ensure_ascii=False)


def sniff(
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="A file, folder, glob, URL or hub address.")],
    format: Annotated[str | None, typer.Option("--format", help="The format, where the file's name does not say it.")] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to try.")] = 100,
    every: Annotated[bool, typer.Option("--all", help="List also the schemas that need a field which these records lack.")] = False,
    as_json: terminal.AsJson = False,
) -> None:
    """Try every schema on the first records of a file: which fit, and why the others do not. Exit code 1 when none fits."""
    from prep_assets.data.files import find_files
    from prep_assets.schemas.registry import schemas as registered
    from prep_assets.schemas.sniff import sniff as try_all

    files = find_files([file], Path.cwd(), format=format)
    rows, unreadable = terminal.first_rows(files, count)
    if not rows:
        why = f"; the first: {unreadable[0]}" if unreadable else ""
        raise SourceError(f"{files[0].url}: no readable record, {terminal.counted(len(unreadable), 'unreadable row')}{why}")
    fits = try_all([payload for _, payload in rows])
    known = registered()
    fitting = [fit for fit in fits if fit.fitting]
    console = terminal.out()
    if as_json:
        terminal.print_json({"fits": to_builtins(fits), "unreadable": unreadable})
        if not fitting:
            raise typer.Exit(1)
        return
    if fitting:
        headings = ("schema", "gives", "records", "fields it does not use", "first refusal")
        lines = [_fit_row(fit, gives(known[fit.schema].gives)) for fit in fitting]
        console.print(terminal.table(*headings, rows=lines, numbers=("records",), title=f"fits {file}"))
    unfit = [fit for fit in fits if not fit.fitting]
    shown = [fit for fit in unfit if every or not fit.refusal.startswith("missing_field: needs ")] or ([] if fitting else unfit)
    if shown:
        reasons = [(fit.schema, Text(_reason(fit))) for fit in shown]
        console.print(terminal.table("schema", "first reason why not", rows=reasons, title="does not fit"))
    if lacking := len(unfit) - len(shown):
        console.print(f"{lacking} more need a field that these records lack; --all lists them", style="dim")
    for detail in unreadable[:1]:
        console.print(f"{terminal.counted(len(unreadable), 'row')} could not be read; the first: {visible(detail)}", style="yellow")
    if not fitting:
        console.print("no schema fits; write one of your own and name it as package.module:function", style="bold")
        raise typer.Exit(1)
    console.print(f"in the configuration:\n  a_name: {_domain_yaml(file, format, fitting[0])}")


def _fit_row(fit: Fit, form: str) -> tuple[str | Text, ...]:
    records = Text(f"{fit.fitting:,} of {fit.rows:,}", "bold green" if fit.fitting == fit.rows else "yellow")
    return fit.schema, form, records, Text(", ".join((*fit.unread, *fit.passed_over))), Text(_reason(fit))


def _domain_yaml(file: str, format: str | None, fit: Fit) -> str:
    """The domain as YAML, for the configuration."""
    from prep_assets.config.loading import config_dir
    from prep_assets.schemas.reader import in_one_line

    optional = {"format": format, "ignore": list(fit.unread)}
    # relative to the configuration folder where that is below the working directory; absolute paths and URLs stay
    if not ("://" in file or Path(file).expanduser().is_absolute()) and config_dir().is_relative_to(Path.cwd()):
        file = os.path.relpath(file, config_dir())
    return in_one_line({"files": [file], "schema": fit.schema, **{key: value for key, value in optional.items() if value}})


def _reason(fit: Fit) -> str:
    return visible(fit.refusal[:200] + ("…" if len(fit.refusal) > 200 else ""))


def dataset_info(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A dataset_info.json.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", show_default=False, help="Data sets; all where none is named.")
    ] = None,
) -> None:
    """Print the data sets of a LLaMA-Factory dataset_info.json as domains, to paste into the configuration."""
    from prep_assets.schemas.reader import in_one_line
    from prep_assets.schemas.sniff import domain_of, read_dataset_info

    if not file.is_file():
        raise ConfigError(f"no file {file}")
    entries = read_dataset_info(file.read_text("utf-8"), str(file))
    domains = {name: domain_of(name, entries) for name in names or entries}
    console = terminal.out()
    for family in sorted({domain.family for domain in domains.values()}):
        console.print(f"# {family}.yaml, files relative to it\ndomains:")
        for name, domain in domains.items():
            if domain.family == family:
                for remark in domain.remarks:
                    console.print(f"  # {remark}")
                console.print(f"  {name}: {in_one_line(domain.domain)}")


# `prep-assets certify`: what a chat template can be trusted with.


def certify(
    template: Annotated[str, typer.Argument(help="tokenizer (its own), a shipped template's name, or a .jinja file.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", "-t", help="A tokenizer's directory or hub id.")],
    revision: Annotated[str | None, typer.Option(help="Commit of the hub repository.")] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare with a second template for the same model: a .jinja file, a shipped one, or a tokenizer's folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Render probes with a chat template and say what it does: stop token, system prompt, reasoning, tools, provable masks. Exit code 1 when
    no answer can be trained with it, or when a second template renders or masks any kind of chat differently."""
    from prep_assets.text.agreement import agreement
    from prep_assets.text.certify import certify as certified
    from prep_assets.text.load_template import load_template
    from prep_assets.text.template import bind
    from prep_assets.text.vocabulary import folder_of, from_file

    folder = folder_of(tokenizer, base=Path.cwd(), revision=revision)
    vocabulary = from_file(tokenizer, folder)
    loaded = load_template(template, vocabulary, base=Path.cwd())
    bind(vocabulary, loaded)
    if against is not None:
        raise typer.Exit(int(report_against(loaded, against, vocabulary, as_json=as_json)))
    certificate = certified(loaded, vocabulary)
    disagreement = agreement(vocabulary, folder).fault
    if disagreement:
        certificate = replace(certificate, findings=(*certificate.findings, f"others read this tokenizer otherwise: {disagreement}"))
    faults = certificate.faults(train_on_eos="turn", train_headers=False)
    console = terminal.out()
    if as_json:
        terminal.print_json({**certificate.as_dict(), "faults": faults})
    else:
        fields = {key: value for key, value in certificate.as_dict().items() if key not in ("findings", "chats")}
        rows = [*((key.replace("_", " "), _shown(value)) for key, value in fields.items()), *certificate.chats.items()]
        console.print(terminal.table("", "", rows=rows, title=f"{template} with {tokenizer}"))
        for finding in certificate.findings:
            console.print(f"finding: {finding}", style="yellow")
        for fault in faults:
            console.print(fault, style="red")
    if faults:
        raise typer.Exit(1)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{key}: {text}" for key, text in value.items()]
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).replace("\n", "⏎") or "–"


def report_against(template: ChatTemplate, against: str, vocabulary: Vocabulary, *, as_json: bool) -> bool:
    """Compare two templates on every probe and print the differences; return whether there are any."""
    from prep_assets.text.certify import compare
    from prep_assets.text.encode import Encoder
    from prep_assets.text.engines import choose_engine
    from prep_assets.text.load_template import load_template
    from prep_assets.text.spans import MaskPolicy
    from prep_assets.text.template import bind
    from prep_assets.text.vocabulary import load_vocabulary

    base = Path.cwd()
    if Path(against).is_dir():  # a tokenizer's folder: its own template and special tokens
        second = load_template("tokenizer", load_vocabulary(against, base=base), base=base)
    else:
        second = load_template(against, vocabulary, base=base)
    vocabulary = bind(bind(vocabulary, template), second)
    policy = MaskPolicy({"assistant": "train"}, "mask")
    comparisons = list(compare(template, second, Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), policy)))
    if as_json:
        terminal.print_json([comparison.as_dict() for comparison in comparisons])
    else:
        _show_comparison(comparisons, template.name, against)
    return any(comparison.differs for comparison in comparisons)


def _show_comparison(comparisons: Sequence[Comparison], first: str, second: str) -> None:
    console = terminal.out()
    words = {"refused": "both refuse", "text": "text differs", "mask": "mask differs"}
    rows = [(comparison.chat, words.get(comparison.outcome, comparison.outcome)) for comparison in comparisons]
    console.print(terminal.table("chat", "", rows=rows, title=f"{first} and {second}"))
    for comparison in comparisons:
        if comparison.differs:
            console.print(f"{comparison.chat}\n  {first}: {comparison.first}\n  {second}: {comparison.second}")
    differing = sum(comparison.differs for comparison in comparisons)
    console.print(
        f"{differing} of {len(comparisons)} kinds of chat differ" if differing else f"equal in all {len(comparisons)} kinds of chat"
    )


# `prep-assets doctor`: does my trainer train on what I think it does?

BOTH, THEIRS, OURS = ("green", "⟦", "⟧"), ("bold red", "⟪+", "⟫"), ("bold yellow", "⟪-", "⟫")
"""Style and brackets of stretches trained by both sides, by the trainer only, and by us only."""
HEAD, TAIL = 160, 80
"""Characters to show of the ends of a long stretch on which both sides agree."""


def doctor(
    trainer: Annotated[
        str,
        typer.Option("--trainer", metavar="T", show_default=False, help="trl, llamafactory, axolotl, torchtune, open-instruct or verl."),
    ],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", metavar="FILE", show_default=False, help="A file, folder, glob, URL or hub address.")
    ],
    tokenizer: Annotated[str, typer.Option("--tokenizer", metavar="X", show_default=False, help="A folder, or a hub id.")],
    revision: Annotated[str | None, typer.Option("--revision", help="The commit of a tokenizer from the hub.")] = None,
    template: Annotated[str, typer.Option("--template", help="The chat template of both sides, as in the configuration.")] = "tokenizer",
    schema: Annotated[str | None, typer.Option("--schema", help="How rows are read; the one that fits, if left out.")] = None,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many rows to compare.")] = 1000,
    show: Annotated[int, typer.Option("--show", min=0, help="How many rows that differ to show.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prepare rows as a trainer does and as we do, and show every label that differs. Exit code 1 where labels or ids differ.

    TRL's own code runs where it is installed; for the others their rules, read from their code, stand in.
    """
    from prep_assets.explain.doctor import Ours, diagnose

    ours = Ours.open(tokenizer, template, revision)
    theirs = _transformers(tokenizer, revision)
    theirs.chat_template = ours.template.source
    name, rows = _rows(dataset, schema, count)
    diagnosis = diagnose(ours, theirs, trainer, rows, most=show)
    if as_json:
        terminal.print_json({"schema": name, **_as_json(diagnosis)})
    else:
        _show_diagnosis(diagnosis, name)
    if not diagnosis.compared:
        reasons = [reason for reason, _ in (*diagnosis.refused.most_common(1), *diagnosis.stopped.most_common(1))]
        raise PrepAssetsError(f"no row could be compared: {'; '.join(reasons) or 'the file has none that fits'}")
    if diagnosis.equal < diagnosis.compared:
        raise typer.Exit(1)


def _transformers(tokenizer: str, revision: str | None) -> Any:
    from transformers import AutoTokenizer

    from prep_assets.text.vocabulary import folder_of

    folder = folder_of(tokenizer, base=Path.cwd(), revision=revision)
    try:
        # an explicit False: by default transformers asks on the terminal whether to run the folder's code
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, OSError) as error:
        raise PrepAssetsError(f"{tokenizer}: transformers cannot open it, and code that comes with it is never run: {error}") from error


def _rows(dataset: str, schema: str | None, count: int) -> tuple[str, list[tuple[str, Sample]]]:
    """The schema of a file, and its chats with their ids; rejected rows are left out with a note on stderr."""
    from prep_assets.data.files import find_files
    from prep_assets.errors import Refused
    from prep_assets.samples import Sample
    from prep_assets.schemas.reader import apply
    from prep_assets.schemas.registry import convert_with
    from prep_assets.schemas.registry import schemas as registered
    from prep_assets.schemas.sniff import sniff

    records, _ = terminal.first_rows(find_files([dataset], Path.cwd()), count)
    if schema is None:
        fits = sniff([payload for _, payload in records[:100]])
        schema = next((fit.schema for fit in fits if fit.fitting and registered()[fit.schema].can_give(Sample)), None)
        if schema is None:
            raise ConfigError(f"no schema reads {dataset} as chats. See why with: prep-assets sniff {dataset}; then say --schema NAME")
    convert, chats, refused = convert_with(schema, gives=Sample), list[tuple[str, Sample]](), 0
    for identity, payload in records:
        try:
            sample = apply(convert, payload)
        except Refused:
            refused += 1
            continue
        if isinstance(sample, Sample):
            chats.append((identity, sample))
    if refused:
        terminal.err().print(f"{terminal.counted(refused, 'row')} that the schema {schema} refuses are left out", style="yellow")
    return schema, chats


def _as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "trainer": diagnosis.trainer,
        "how": diagnosis.how,
        "rows": diagnosis.rows,
        "compared": diagnosis.compared,
        "equal": diagnosis.equal,
        "refused_by_us": dict(diagnosis.refused),
        "stopped_by_the_trainer": dict(diagnosis.stopped),
        "reasons": [
            {"trained_by": side, "reason": reason, "rows": rows, "tokens": diagnosis.tokens[side, reason]}
            for (side, reason), rows in diagnosis.reasons.most_common()
        ],
        "shown": [{"id": row.id, "differences": [asdict(difference) for difference in row.differences]} for row in diagnosis.shown],
    }


def _show_diagnosis(diagnosis: Diagnosis, schema: str) -> None:
    console = terminal.out()
    console.print(f"{diagnosis.trainer}: {diagnosis.how}", style="bold")
    console.print(f"rows are read with the schema {schema}", style="dim")
    for row in diagnosis.shown:
        console.print()
        console.print(_row(row, terminal.has_colour(console)))
    console.print()
    if diagnosis.reasons:
        who = {"theirs": "the trainer", "ours": "us", "ids": "other ids"}
        counts = [(who[key[0]], key[1], f"{rows:,}", f"{diagnosis.tokens[key]:,}") for key, rows in diagnosis.reasons.most_common()]
        console.print(terminal.table("trained by", "why they differ", "rows", "tokens", rows=counts, numbers=("rows", "tokens")))
    for side, why in (("we refuse", diagnosis.refused), ("the trainer stops at", diagnosis.stopped)):
        for reason, rows in why.most_common(5):
            console.print(Text(f"{side} {terminal.counted(rows, 'row')}: {visible(reason)[:400]}", "yellow"))
    verdict = f"labels are equal on {diagnosis.equal:,} of {diagnosis.compared:,} rows that both sides take, of {diagnosis.rows:,}"
    console.print(verdict, style="bold green" if diagnosis.equal == diagnosis.compared else "bold red")


def _row(row: Compared, colour: bool) -> Text:
    """A row as text, marked by the sides that train it, and the reasons for differences."""
    text = Text.assemble((f"│ {visible(row.id)}\n", "cyan"))
    steps = [(difference.start, difference.end, difference) for difference in row.differences if difference.side != "ids"]
    places, start_of_run = row.ours, 0
    marks = [BOTH if weight else None for weight in (places.loss != 0).tolist()]
    for start, end, difference in steps:
        marks[start:end] = [THEIRS if difference.side == "theirs" else OURS] * (end - start)
    for index in range(1, len(marks) + 1):
        if index == len(marks) or marks[index] is not marks[start_of_run]:
            shown = visible(row.rendered.text[int(places.starts[start_of_run]) : int(places.ends[index - 1])])
            style, before, after = marks[start_of_run] or ("dim", "", "")
            shown = shown if marks[start_of_run] in (THEIRS, OURS) or len(shown) <= HEAD + TAIL else f"{shown[:HEAD]} … {shown[-TAIL:]}"
            text.append(shown if colour else f"{before}{shown}{after}", style)
            start_of_run = index
    text.append("" if text.plain.endswith("\n") else "\n")
    for difference in row.differences:
        who = {"theirs": "trained by the trainer only", "ours": "trained by us only", "ids": "other ids"}[difference.side]
        text.append(f"  {who}: ", "bold")
        text.append(f"{visible(difference.text)[:80].replace(chr(10), '')!r} ", THEIRS[0] if difference.side != "ours" else OURS[0])
        text.append(f"{difference.reason}\n")
    return text


# `prep-assets preprocess` and `migrate`: run or convert an AstrAI pipeline JSON or a ModelLink command line, without Dagster.

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

    from prep_assets.compat.astrai import load_pipeline
    from prep_assets.compat.astrai_run import load_tokenizer
    from prep_assets.compat.astrai_run import preprocess as run

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
    from prep_assets.config.loading import config_dir, load_family
    from prep_assets.errors import ConfigError

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
    files: Annotated[list[str] | None, typer.Option("--file", "-f", help="A source of the domain; may be given several times.")] = None,
    tokenizer: Annotated[str, typer.Option(help="Tokenizer directory, relative to where the YAML will stand.")] = "tokenizer",
    domain: Annotated[str, typer.Option(help="Name of the domain.")] = "data",
) -> None:
    """Print the same pipeline as YAML for configs/; comments say what it is called and what cannot be expressed.

    A command line of ModelLink as well: prep-assets migrate --input FILE --output-prefix PREFIX and its other flags
    """
    from prep_assets.compat.astrai import load_pipeline, migrate_pipeline

    typer.echo(
        migrate_pipeline(load_pipeline(config), config.name, files=files or ["data/*.jsonl"], tokenizer=tokenizer, domain=domain), nl=False
    )


# -- ModelLink --------------------------------------------------------------------------------------------------------------------------

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


def _modellink(words: list[str]) -> None:
    from prep_assets.compat.modellink import configuration, parse_flags
    from prep_assets.compat.modellink import preprocess as run

    flags = parse_flags(words)
    settings = configuration(flags)
    for note in settings.notes:
        terminal.err().print(f"note: {visible(note)}", style="dim")
    with terminal.Live(terminal.err()) as live:
        intervals = _Intervals(flags.log_interval, live) if flags.log_interval else live
        outcome = run(flags, settings, intervals)
    _show_modellink(outcome, flags.seq_length)


def _migrate_modellink(words: list[str]) -> None:
    from prep_assets.compat.modellink import configuration, parse_flags

    typer.echo(configuration(parse_flags(words, "migrate")).text, nl=False)


class _Intervals:
    """A listener that forwards events of the engine, and prints a line about every `every` rows."""

    def __init__(self, every: int, live: terminal.Live) -> None:
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
                    terminal.err().print(f"about {rows:,} of {self._rows:,} rows: {visible(what)}")
                self._what, self._last = name, rows // self._every


def _show_modellink(outcome: modellink.Outcome, longest: int | None) -> None:
    from itertools import islice

    from prep_assets.compat.modellink import shell_environment

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
