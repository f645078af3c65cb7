"""`prep-assets trace` and `where`: from a stored row or token to its source row, and from a record to every store that holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.extensions.explain.trace import Named, Token, Trace, Traced, token_as_json, token_of, trace_as_json
from prep_assets.extensions.explain.trace import trace as trace_row
from prep_assets.extensions.explain.where import Found, NotHere, Whereabouts
from prep_assets.extensions.explain.where import where as find_record
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import label_of
from prep_assets.text.visible import visible

SHOWN = 2000
"""Most characters of a raw row to print; `--json` has all."""
RecordName = Annotated[str, typer.Argument(metavar="DOMAIN/RECORD", help="A record, e.g. gsm8k/gsm8k.jsonl:17, or gsm8k/17 of one file.")]


@with_json
def trace(
    asset: terminal.AssetName,
    row: Annotated[int, typer.Option("--row", "-r", help="Row, record, line or group, counted from 0.")],
    token: Annotated[int | None, typer.Option("--token", "-t", metavar="K", help="One token of it, counted from 0.")] = None,
    partition: terminal.Partition = None,
    stream: terminal.Stream = None,
    draft: terminal.Draft = False,
) -> Answer:
    """Reads and tokenizes the source rows again. Exit code 1 if the store differs."""
    row_trace = trace_row(Workspace.open(), asset, row, partition=partition, stream=stream, draft=draft)
    facts = trace_as_json(row_trace)
    if token is not None:
        del facts["pieces"]
        facts["token"] = token_as_json(*token_of(row_trace, token))
    return Answer(facts, lambda console: show_trace(console, row_trace, token), int(bool(row_trace.differs)))


def show_trace(console: Console, trace: Trace, token: int | None) -> None:
    """Print a trace, of one token or of the whole row."""
    if token is None:
        _show_row(console, trace)
    else:
        _show_token(console, trace, *token_of(trace, token))


def _show_row(console: Console, trace: Trace) -> None:
    place = trace.row.place
    console.print(
        f"{_title(trace)}: {terminal.counted(len(trace.row.ids), 'token')} from {terminal.counted(len(trace.pieces), 'record')}",
        style="bold",
    )
    shown = terminal.table("tokens", "record", "tokens of the record", "by way of")
    for traced in trace.pieces:
        piece = traced.piece
        path = ", ".join(f"{step.asset} {step.stream} {step.row:,}".replace("  ", " ") for step in piece.path if step != place)
        part = f"{piece.first:,}–{piece.first + piece.end - piece.start:,}" if piece.end else ""
        shown.add_row(f"{piece.start:,}–{piece.end:,}" if piece.end else "", _record(traced), part, path)
    console.print(shown)
    if len(trace.pieces) == 1:
        _show_source(console, trace.pieces[0])
    _show_stores(console, trace)
    _show_difference(console, trace)


def _show_token(console: Console, trace: Trace, token: Token, traced: Traced | None) -> None:
    console.print(f"token {token.place:,} of {_title(trace)}", style="bold")
    grid = terminal.table("", "", rows=[(Text(name, "dim"), value) for name, value in _facts(trace, token, traced)])
    grid.show_header = False
    console.print(grid)
    if traced is not None:
        _show_source(console, traced)
    _show_stores(console, trace, traced)
    _show_difference(console, trace)


def _facts(trace: Trace, token: Token, traced: Traced | None) -> Iterator[tuple[str, Text | str]]:
    why = token.why
    yield "token", _token_text(token.token)
    if token.expected is not None:
        yield "its source gives", Text(_token_text(token.expected), "bold red")
    state = Text("trained", "bold green") if token.weight > 0 else Text("not attended" if token.weight < 0 else "not trained", "yellow")
    yield "loss weight", Text.assemble(f"{max(token.weight, 0.0):g}, ", state)
    yield "because", why.because
    yield "predicted at", _predicted_at(token)
    yield "must predict", "nothing: the next token is not trained" if token.predicts is None else _token_text(token.predicts)
    if traced is None:
        return
    if why.turn is not None or why.role is not None:
        turn = "" if why.turn is None else f"turn {why.turn}, "
        yield "turn", f"{turn}{why.role or ''}" + (f", {why.kind}" if why.kind else f", {why.part}")
    yield (
        "in the text",
        Text.assemble(
            f"characters {token.span[0]:,}–{token.span[1]:,}: ",
            (visible(token.before), "dim"),
            (f"⟦{visible(token.text)}⟧", "bold"),
            (visible(token.after), "dim"),
        ),
    )
    if token.field is not None and token.within is not None:
        yield "in the raw row", f"{token.field}, characters {token.within[0]:,}–{token.within[1]:,} of what is rendered of it"
    yield "record", _record(traced)
    for step in traced.piece.path:
        yield "store", f"{step.asset}{f'[{step.partition}]' if step.partition else ''} {step.stream} row {step.row:,}".replace("  ", " ")


def _predicted_at(token: Token) -> str:
    if token.predicted_at is not None:
        return f"token {token.predicted_at:,}: trainers shift labels by one"
    return "nowhere: it is the first token of the row" if token.weight > 0 else "nowhere: it is not trained"


def _token_text(token: Named) -> str:
    return f"{token.id}  {visible(token.text)!r}"


def _title(trace: Trace) -> str:
    place = trace.row.place
    label = label_of(place.asset, place.partition)
    stream = f" {place.stream}" if place.stream and place.stream != place.asset else ""
    draft = " (draft)" if f"{label} (draft)" in trace.hashes else ""
    return f"{label}{draft}{stream} row {place.row:,} of {trace.row.count:,}"


def _record(traced: Traced) -> str:
    source = traced.source
    if source is None:
        return "generated"
    return f"{source.domain}/{source.id}" + (" (held out)" if source.held_out else "")


def _show_source(console: Console, traced: Traced) -> None:
    if traced.source is None:
        return
    source = traced.source
    payload = source.payload if isinstance(source.payload, str) else json.dumps(source.payload, indent=1, ensure_ascii=False, default=str)
    console.print(f"record {source.row:,} of {terminal.near_url(source.url)}, sha256 {source.sha256[:16]}…", style="bold")
    console.print(visible(payload[:SHOWN]).replace("⏎\n", "\n"))
    if len(payload) > SHOWN:
        console.print(f"… and {len(payload) - SHOWN:,} characters more; --json has all", style="dim")


def _show_stores(console: Console, trace: Trace, traced: Traced | None = None) -> None:
    for label, hashes in (trace.hashes if traced is None else trace.hashes_of(traced)).items():
        text = ", ".join(f"{name} {_shorten(value)}" for name, value in hashes.items())
        console.print(f"{label}: {text}", style="dim")


def _shorten(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shorten(item)}" for key, item in value.items())
    text = str(value)
    return f"{text[:16]}…" if len(text) == 64 else text


def _show_difference(console: Console, trace: Trace) -> None:
    if trace.differs:
        shown = ", ".join(f"{place:,}" for place in trace.differs[:10])
        more = f" and {len(trace.differs) - 10:,} more" if len(trace.differs) > 10 else ""
        console.print(f"the store is not what its sources give, at token {shown}{more}: look at it with --token", style="bold red")


@with_json
def where(
    record: RecordName,
    draft: Annotated[bool, typer.Option("--draft", help="Look into drafts as well, the last stores that options of one run gave.")] = False,
) -> Answer:
    locations = find_record(Workspace.open(), record, drafts=draft)

    def show(console: Console) -> None:
        for location in locations:
            _show_places(console, location)

    return Answer(locations, show)


def _show_places(console: Console, whereabouts: Whereabouts) -> None:
    console.print(f"{whereabouts.domain}/{whereabouts.id} in {whereabouts.family}", style="bold")
    shown = terminal.table("store", "stream", "row", "tokens", "of the record", numbers=("row",))
    for place in whereabouts.found:
        store = _store_label(place)
        tokens = f"{place.start:,}–{place.end:,}" if place.end else ""
        part = f"{place.first:,}–{place.first + place.end - place.start:,}" if place.end else ""
        shown.add_row(store, place.stream, f"{place.row:,}", tokens, part + (f" of part {place.part + 1}" if place.part else ""))
    if whereabouts.found:
        console.print(shown)
    for absence in whereabouts.not_here:
        console.print(f"  {_store_label(absence)}: {absence.reason}: {visible(absence.detail)}", style="yellow")
        if absence.winner:
            console.print(f"    the one that came first: prep-assets where '{whereabouts.domain}/{visible(absence.winner)}'")
    for label, why in whereabouts.unknown:
        console.print(f"  {label} cannot say: {why}", style="dim")


def _store_label(place: Found | NotHere) -> str:
    return label_of(place.asset, place.partition) + (" (draft)" if place.draft else "")
