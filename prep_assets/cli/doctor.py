"""`prep-assets doctor`: does my trainer train on what I think it does?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from prep_assets.cli.console import counted, err, has_colour, out, print_json, table
from prep_assets.cli.find import first_rows
from prep_assets.cli.tokens import visible
from prep_assets.errors import ConfigError, PrepAssetsError

if TYPE_CHECKING:
    from prep_assets.doctor.run import Compared, Diagnosis
    from prep_assets.samples import Sample

BOTH, THEIRS, OURS = ("green", "⟦", "⟧"), ("bold red", "⟪+", "⟫"), ("bold yellow", "⟪-", "⟫")
"""What both sides train, what only the trainer does, what only we do: colour, and signs where there is none."""
HEAD, TAIL = 160, 80
"""Characters that are shown of the ends of a long stretch on which both sides agree."""


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
    from prep_assets.doctor.rules import Ours
    from prep_assets.doctor.run import diagnose

    ours = Ours.open(tokenizer, template, revision)
    theirs = _transformers(tokenizer, revision)
    theirs.chat_template = ours.template.source
    name, rows = _rows(dataset, schema, count)
    found = diagnose(ours, theirs, trainer, rows, most=show)
    if as_json:
        print_json({"schema": name, **_as_json(found)})
    else:
        _show(found, name)
    if not found.compared:
        raise PrepAssetsError(_why_nothing(found))
    if found.equal < found.compared:
        raise typer.Exit(1)


def _transformers(tokenizer: str, revision: str | None) -> Any:
    from transformers import AutoTokenizer

    from prep_assets.tokenization.load import folder_of

    folder = folder_of(tokenizer, base=Path.cwd(), revision=revision)
    try:
        # False, and not left out: left out, transformers asks on the terminal whether to run the folder's code
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, OSError) as error:
        raise PrepAssetsError(f"{tokenizer}: transformers cannot open it, and code that comes with it is never run: {error}") from error


def _rows(dataset: str, schema: str | None, count: int) -> tuple[str, Iterator[tuple[str, Sample]]]:
    """The schema that reads a file, and its chats with their ids; rows that it refuses are left out, and said."""
    from prep_assets.records.files import find_files
    from prep_assets.samples import Sample
    from prep_assets.schemas.sniff import sniff

    records, _ = first_rows(find_files([dataset], Path.cwd()), count)
    if schema is None:
        fits = [fit for fit in sniff([payload for _, payload in records[:100]]) if fit.fitting and _gives(fit.schema, Sample)]
        if not fits:
            raise ConfigError(f"no schema reads {dataset} as chats. See why with: prep-assets sniff {dataset}; then say --schema NAME")
        schema = fits[0].schema
    return schema, _converted(schema, records)


def _gives(schema: str, form: type) -> bool:
    from prep_assets.schemas.registry import schemas

    return schemas()[schema].can_give(form)


def _converted(schema: str, records: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, Sample]]:
    from prep_assets.errors import Refused
    from prep_assets.samples import Sample
    from prep_assets.schemas.reader import apply
    from prep_assets.schemas.registry import convert_with

    convert, refused = convert_with(schema, gives=Sample), 0
    for identity, payload in records:
        try:
            sample = apply(convert, payload)
        except Refused:
            refused += 1
            continue
        if isinstance(sample, Sample):
            yield identity, sample
    if refused:
        err().print(f"{counted(refused, 'row')} that the schema {schema} refuses are left out", style="yellow")


def _as_json(found: Diagnosis) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "trainer": found.trainer,
        "how": found.how,
        "rows": found.rows,
        "compared": found.compared,
        "equal": found.equal,
        "refused_by_us": dict(found.refused),
        "stopped_by_the_trainer": dict(found.stopped),
        "reasons": [
            {"trained_by": side, "reason": reason, "rows": rows, "tokens": found.tokens[side, reason]}
            for (side, reason), rows in found.reasons.most_common()
        ],
        "shown": [{"id": row.id, "differences": [asdict(each) for each in row.differences]} for row in found.shown],
    }


def _show(found: Diagnosis, schema: str) -> None:
    console = out()
    console.print(f"{found.trainer}: {found.how}", style="bold")
    console.print(f"rows are read with the schema {schema}", style="dim")
    for row in found.shown:
        console.print()
        console.print(_row(row, has_colour(console)))
    console.print()
    if found.reasons:
        who = {"theirs": "the trainer", "ours": "us", "ids": "other ids"}
        counts = [(who[key[0]], key[1], f"{rows:,}", f"{found.tokens[key]:,}") for key, rows in found.reasons.most_common()]
        console.print(table("trained by", "why they differ", "rows", "tokens", rows=counts, numbers=("rows", "tokens")))
    for side, why in (("we refuse", found.refused), ("the trainer stops at", found.stopped)):
        for reason, rows in why.most_common(5):
            console.print(Text(f"{side} {counted(rows, 'row')}: {visible(reason)[:400]}", "yellow"))
    verdict = f"labels are equal on {found.equal:,} of {found.compared:,} rows that both sides take, of {found.rows:,}"
    console.print(verdict, style="bold green" if found.equal == found.compared else "bold red")


def _row(row: Compared, colour: bool) -> Text:
    """A row as text: what both train, what only one side does, and why."""
    text = Text.assemble((f"│ {visible(row.id)}\n", "cyan"))
    steps = [(each.start, each.end, each) for each in row.differences if each.side != "ids"]
    places, low = row.ours, 0
    marks = [BOTH if weight else None for weight in (places.loss != 0).tolist()]
    for start, end, each in steps:
        marks[start:end] = [THEIRS if each.side == "theirs" else OURS] * (end - start)
    for at in range(1, len(marks) + 1):
        if at == len(marks) or marks[at] is not marks[low]:
            shown = visible(row.rendered.text[int(places.starts[low]) : int(places.ends[at - 1])])
            style, before, after = marks[low] or ("dim", "", "")
            shown = shown if marks[low] in (THEIRS, OURS) or len(shown) <= HEAD + TAIL else f"{shown[:HEAD]} … {shown[-TAIL:]}"
            text.append(shown if colour else f"{before}{shown}{after}", style)
            low = at
    text.append("" if text.plain.endswith("\n") else "\n")
    for each in row.differences:
        who = {"theirs": "trained by the trainer only", "ours": "trained by us only", "ids": "other ids"}[each.side]
        text.append(f"  {who}: ", "bold")
        text.append(f"{visible(each.text)[:80].replace(chr(10), '')!r} ", THEIRS[0] if each.side != "ours" else OURS[0])
        text.append(f"{each.reason}\n")
    return text


def _why_nothing(found: Diagnosis) -> str:
    reasons = [*found.refused.most_common(1), *found.stopped.most_common(1)]
    return "no row could be compared: " + ("; ".join(reason for reason, _ in reasons) or "the file has none that fits")
