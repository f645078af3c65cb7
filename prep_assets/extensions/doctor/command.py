"""`prep-assets doctor`: whether a trainer trains on what one thinks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.stores import first_rows
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.data.files import find_files
from prep_assets.errors import ConfigError, PrepAssetsError, Refused
from prep_assets.extensions.doctor.labels import RENDERERS, RULES, Compared, Diagnosis, Ours, diagnose
from prep_assets.extensions.start.sniff import sniff
from prep_assets.samples import Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.schemas.registry import schemas as registered
from prep_assets.text.visible import visible
from prep_assets.text.vocabulary import folder_of

BOTH, THEIRS, OURS = ("green", "⟦", "⟧"), ("bold red", "⟪+", "⟫"), ("bold yellow", "⟪-", "⟫")
"""Style and brackets of stretches trained by both sides, by the trainer only, and by us only."""
HEAD, TAIL = 160, 80
"""Characters to show of the ends of a long stretch on which both sides agree."""


@with_json
def doctor(
    trainer: Annotated[
        str,
        typer.Option("--trainer", metavar="T", help=f"{', '.join((*RULES, *RENDERERS))}.", autocompletion=lambda: [*RULES, *RENDERERS]),
    ],
    dataset: Annotated[str, typer.Option("--dataset", "-d", metavar="FILE", help="A file, folder, glob, URL or hub address.")],
    tokenizer: Annotated[str, typer.Option("--tokenizer", metavar="X", help="A folder, or a hub id.")],
    revision: Annotated[str | None, typer.Option("--revision", help="The commit of a tokenizer from the hub.")] = None,
    template: Annotated[str, typer.Option("--template", help="The chat template of both sides, as in the configuration.")] = "tokenizer",
    schema: Annotated[str | None, typer.Option("--schema", help="The schema of the rows. Default: the one that fits.")] = None,
    renderer: Annotated[str | None, typer.Option("--renderer", help="The renderer of prime-rl or tinker, e.g. qwen3.")] = None,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many rows to compare.")] = 1000,
    show: Annotated[int, typer.Option("--show", min=0, help="How many rows that differ to show.")] = 3,
) -> Answer:
    """prime-rl and Tinker are compared by their own renderers, TRL by its own code if it is installed, the others by rules read from their code."""
    ours = Ours.open(tokenizer, template, revision)
    theirs = _transformers(tokenizer, revision)
    if ours.template.renderer is not None and trainer not in RENDERERS:
        raise ConfigError(
            f"--trainer {trainer} writes chats by a Jinja template, and {template} is code. Compare it with {' or '.join(RENDERERS)}, which have renderers "
            "of their own"
        )
    theirs.chat_template = None if ours.template.renderer is not None else ours.template.source
    name, rows = _rows(dataset, schema, count)
    diagnosis = diagnose(ours, theirs, trainer, rows, most=show, renderer=renderer)
    if not diagnosis.compared:
        reasons = [reason for reason, _ in (*diagnosis.refused.most_common(1), *diagnosis.stopped.most_common(1))]
        terminal.complain(f"no row could be compared: {'; '.join(reasons) or 'the file has none that fits'}")
    failed = not diagnosis.compared or diagnosis.equal < diagnosis.compared
    return Answer({"schema": name, **_facts(diagnosis)}, lambda console: _show_diagnosis(console, diagnosis, name), int(failed))


def _transformers(tokenizer: str, revision: str | None) -> Any:
    from transformers import AutoTokenizer

    folder = folder_of(tokenizer, base=Path.cwd(), revision=revision)
    try:
        # an explicit False: by default transformers asks on the terminal whether to run the folder's code
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, OSError) as error:
        raise PrepAssetsError(f"{tokenizer}: transformers cannot open it, and code that comes with it is never run: {error}") from error


def _rows(dataset: str, schema: str | None, count: int) -> tuple[str, list[tuple[str, Sample]]]:
    """The schema of a file, and its chats with their ids; rejected rows are left out with a note on stderr."""
    records, _ = first_rows(find_files([dataset], Path.cwd()), count)
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


def _facts(diagnosis: Diagnosis) -> dict[str, Any]:
    reasons = [
        {"trained_by": side, "reason": reason, "rows": rows, "tokens": diagnosis.tokens[side, reason]}
        for (side, reason), rows in diagnosis.reasons.most_common()
    ]
    return {
        **{name: getattr(diagnosis, name) for name in ("trainer", "how", "rows", "compared", "equal")},
        "refused_by_us": diagnosis.refused,
        "stopped_by_the_trainer": diagnosis.stopped,
        "reasons": reasons,
        "shown": [{"id": row.id, "differences": row.differences} for row in diagnosis.shown],
    }


def _show_diagnosis(console: Console, diagnosis: Diagnosis, schema: str) -> None:
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
