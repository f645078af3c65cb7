"""`prep-assets trace`, `where`, `diff`, `compare` and `impact`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.build import put_option
from prep_assets.errors import ConfigError, nearest
from prep_assets.explain.visible import visible

if TYPE_CHECKING:
    from prep_assets.explain.changes import Amount, Changed, Difference, Effect
    from prep_assets.explain.side_by_side import Pair
    from prep_assets.explain.trace import Named, Token, Trace, Traced
    from prep_assets.explain.where import Found, NotHere, StoredRecord, Whereabouts
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.text.vocabulary import Vocabulary

# `prep-assets trace` and `where`: from a stored row or token to its source row, and from a record to every store that holds it.

SHOWN = 2000
"""Most characters of a raw row to print; `--json` has all."""
RecordName = Annotated[
    str, typer.Argument(metavar="DOMAIN#RECORD", show_default=False, help="A record, e.g. gsm8k#gsm8k.jsonl:17, or gsm8k#17 of one file.")
]


def trace(
    asset: terminal.AssetName,
    row: Annotated[int, typer.Option("--row", "-r", help="Row, record, line or group, counted from 0.")],
    token: Annotated[int | None, typer.Option("--token", "-t", metavar="K", help="One token of it, counted from 0.")] = None,
    partition: terminal.Partition = None,
    stream: terminal.Stream = None,
    draft: terminal.Draft = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the trace as JSON.")] = False,
) -> None:
    """Show which source rows a row is made of; with --token, what the token stands for and why it is trained or not.

    The source rows are read again, and made into tokens once more. Exit code 1 where the store holds something else.
    """
    from prep_assets.explain.trace import token_as_json, token_of, trace_as_json
    from prep_assets.explain.trace import trace as trace_row

    workspace = terminal.opened()
    row_trace = trace_row(workspace, asset, row, partition=partition, stream=stream, draft=draft)
    if not as_json:
        show_trace(terminal.out(), row_trace, token)
    elif token is None:
        terminal.print_json(trace_as_json(row_trace))
    else:
        shown = {key: value for key, value in trace_as_json(row_trace).items() if key != "pieces"}
        terminal.print_json({**shown, "token": token_as_json(*token_of(row_trace, token))})
    if row_trace.differs:
        raise typer.Exit(1)


def show_trace(console: Console, trace: Trace, token: int | None) -> None:
    """Print a trace, of one token or of the whole row."""
    from prep_assets.explain.trace import token_of

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
    yield "label there", "none: the next token is not trained" if token.predicts is None else _token_text(token.predicts)
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
    partition = f"[{place.partition}]" if place.partition else ""
    stream = f" {place.stream}" if place.stream and place.stream != place.asset else ""
    draft = " (draft)" if f"{place.asset}{partition} (draft)" in trace.hashes else ""
    return f"{place.asset}{partition}{draft}{stream} row {place.row:,} of {trace.row.count:,}"


def _record(traced: Traced) -> str:
    source = traced.source
    if source is None:
        return "generated"
    return f"{source.domain}#{source.id}" + (" (held out)" if source.held_out else "")


def _show_source(console: Console, traced: Traced) -> None:

    if traced.source is None:
        return
    source = traced.source
    payload = source.payload if isinstance(source.payload, str) else json.dumps(source.payload, indent=1, ensure_ascii=False, default=str)
    console.print(f"row {source.row:,} of {terminal.near_url(source.url)}, sha256 {source.sha256[:16]}…", style="bold")
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


def where(
    record: RecordName,
    draft: Annotated[bool, typer.Option("--draft", help="Look into drafts as well, the last stores that options of one run gave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the places as JSON.")] = False,
) -> None:
    """Show every row, pair, prompt, group and export that holds a record; where it was refused, or a duplicate, the reason and who won."""
    from prep_assets.explain.where import where as find_record

    workspace = terminal.opened()
    locations = find_record(workspace, record, drafts=draft)
    if as_json:
        terminal.print_json([asdict(location) for location in locations])
        return
    console = terminal.out()
    for location in locations:
        _show_places(console, location)


def _show_places(console: Console, whereabouts: Whereabouts) -> None:
    console.print(f"{whereabouts.domain}#{whereabouts.id} in {whereabouts.family}", style="bold")
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
            console.print(f"    the one that came first: prep-assets where '{whereabouts.domain}#{visible(absence.winner)}'")
    for label, why in whereabouts.unknown:
        console.print(f"  {label} cannot say: {why}", style="dim")


def _store_label(place: Found | NotHere) -> str:
    return place.asset + (f"[{place.partition}]" if place.partition else "") + (" (draft)" if place.draft else "")


# `prep-assets diff`: what differs between two versions of a store.

LONGEST = 300
"""Most tokens of a record to show."""


def diff(
    asset: terminal.AssetName,
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="[VERSION]",
            show_default=False,
            help="draft, candidate, or the beginning of a version's folder; left out: the one written last apart from the current one.",
        ),
    ] = None,
    partition: terminal.Partition = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records to show side by side.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the difference as JSON.")] = False,
) -> None:
    """Compare the current store with another version: records in, out and changed, tokens by domain, and rows side by side with their masks."""
    from prep_assets.explain.changes import diff as compare_versions
    from prep_assets.graph.graph import one_partition

    with terminal.working() as workspace:
        definition, key = one_partition(workspace, asset, partition)
        difference = compare_versions(workspace, definition.name, version, partition=key, examples=count)
    if as_json:
        terminal.print_json(difference_as_json(difference))
    else:
        show_difference(terminal.out(), workspace, difference)


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", show_default=False, help="A folder of stores, e.g. data/stores of another checkout.")
    ],
    after: Annotated[
        Path | None, typer.Argument(metavar="[AFTER]", show_default=False, help="Another; left out: the folder of stores.")
    ] = None,
    assets: Annotated[list[str] | None, typer.Option("--asset", "-a", metavar="ASSET", help="Only this asset; may be repeated.")] = None,
    configs: Annotated[
        Path | None, typer.Option("--before-configs", metavar="DIR", show_default=False, help="The configuration of BEFORE, if another.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records of each store to show side by side.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a comment on a pull request.")] = False,
) -> None:
    """Compare two folders of stores: figures, refusals, leaks, and records that only one has. The exit code is 1 where anything differs."""
    from prep_assets.explain import side_by_side

    with terminal.working() as workspace:
        sides = (
            replace(workspace, configs=configs or workspace.configs, stores=before),
            replace(workspace, stores=after or workspace.stores),
        )
        for side in sides:
            if not side.stores.is_dir():
                raise ConfigError(f"{side.stores}: there is no such folder of stores")
        pairs = list(side_by_side.side_by_side(*sides, assets or (), examples=count))
    if as_json:
        shown = [side_by_side.as_json(pair, pair.difference and difference_as_json(pair.difference)) for pair in pairs]
        terminal.print_json(shown)
    elif markdown:
        typer.echo("\n".join(_markdown(pairs)))
    else:
        _show_pairs(terminal.out(), sides[1], pairs)
    if not all(pair.same for pair in pairs):
        raise typer.Exit(1)


def _markdown(pairs: Sequence[Pair]) -> Iterator[str]:
    """A table of what differs, and a line of what does not."""
    same = sum(pair.same for pair in pairs)
    yield f"{len(pairs) - same} of {terminal.counted(len(pairs), 'store')} differ."
    if same < len(pairs):
        yield from ("", "| store | figure | before | after | change |", "|---|---|---:|---:|---:|")
    for pair in pairs:
        for name, *values, change in _figures(pair):
            yield f"| `{pair.label}` | {name} | {values[0]} | {values[1]} | {change} |"


def _figures(pair: Pair) -> Iterator[tuple[str, str, str, str]]:
    """What differs in a store: name, before, after, and by how much."""
    if pair.before is None or pair.after is None:
        yield ("store", "–", "there", "added") if pair.before is None else ("store", "there", "–", "gone")
        return
    if (records := pair.difference) is not None:
        yield "records", "", "", f"{records.came:,} in, {records.went:,} out, {records.changed:,} changed, {records.same:,} the same"
    for name, (old, new) in sorted(pair.figures.items()):
        yield name, _figure(old), _figure(new), f"{(new - old) / old:+.1%}" if old and new is not None else ""
    if not pair.figures and not pair.same and pair.difference is None:
        yield "bytes", "", "", "other bytes, the same figures"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _show_pairs(console: Console, workspace: Workspace, pairs: Sequence[Pair]) -> None:
    shown = terminal.table("store", "figure", "before", "after", "change", numbers=("before", "after"))
    for pair in pairs:
        for number, row in enumerate(_figures(pair)):
            shown.add_row("" if number else pair.label, *row)
    same = sum(pair.same for pair in pairs)
    if same < len(pairs):
        console.print(shown)
    console.print(f"{len(pairs) - same} of {terminal.counted(len(pairs), 'store')} differ")
    for pair in pairs:
        if pair.difference is not None and pair.difference.examples:
            show_difference(console, workspace, pair.difference)


def difference_as_json(difference: Difference) -> dict[str, Any]:
    """A difference as a JSON value."""
    return {
        "before": difference.before.where,
        "after": difference.after.where,
        "recipe": list(difference.recipe),
        "records": {"same": difference.same, "in": difference.came, "out": difference.went, "changed": difference.changed},
        "domains": {name: {"before": _amount(before), "after": _amount(after)} for name, (before, after) in difference.amounts.items()},
        "examples": [
            {
                "record": "#".join(example.key[1:]),
                "stream": example.key[0],
                "before": _record_as_json(example.before),
                "after": _record_as_json(example.after),
            }
            for example in difference.examples
        ],
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"records": amount.records, "tokens": amount.tokens, "trained_tokens": amount.trained}


def _record_as_json(record: StoredRecord | None) -> Any:
    if record is None:
        return None
    return (
        json.loads(record.line) if record.line and not len(record.ids) else {"ids": record.ids.tolist(), "weights": record.weights.tolist()}
    )


def show_difference(console: Console, workspace: Workspace, difference: Difference, *, title: str = "") -> None:
    """Print a difference, under `title` or the two folders."""
    folders = (
        f"{difference.after.manifest.label}: {terminal.near_url(difference.before.where)} → {terminal.near_url(difference.after.where)}"
    )
    console.print(title or folders, style="bold")
    console.print(f"made otherwise: {', '.join(difference.recipe)}" if difference.recipe else "made from and with the same")
    changes = f"{terminal.counted(difference.came, 'record')} in, {difference.went:,} out, {difference.changed:,} changed, {difference.same:,} the same"
    console.print(changes, style="bold")
    figures = ("records", "tokens", "trained")
    shown = terminal.table("domain", *figures, numbers=figures)
    for name, amounts in difference.amounts.items():
        pairs = [[getattr(amount, figure) for amount in amounts] for figure in figures]
        shown.add_row(name, *(terminal.number(new) if old == new else f"{old:,} → {new:,}" for old, new in pairs))
    console.print(shown)
    before, after = _vocabulary(workspace, difference.before), _vocabulary(workspace, difference.after)
    for example in difference.examples:
        _show_record(console, before, after, example)


def _vocabulary(workspace: Workspace, published: Any) -> Vocabulary | None:
    """The tokenizer of a version; `None` where the configuration has changed it since."""
    from prep_assets.errors import PrepAssetsError
    from prep_assets.explain.streams import family_of
    from prep_assets.pipeline.asset import tokenizer_recipe

    family = family_of(workspace, published.manifest.asset)
    try:
        recipe = published.manifest.recipe.get("tokenizer")
        return workspace.vocabulary(family) if recipe in (None, json.loads(json.dumps(tokenizer_recipe(workspace, family)))) else None
    except PrepAssetsError:
        return None


def _show_record(console: Console, old: Vocabulary | None, new: Vocabulary | None, changed: Changed) -> None:
    stream, domain, identity = changed.key
    title = f"{domain}#{visible(identity)}" + ("" if stream == domain else f" ({stream})")
    shown = terminal.table("before", "after", title=title)
    for column in shown.columns:
        column.ratio, column.overflow = 1, "fold"
    shown.expand = True
    colour = terminal.has_colour(console)
    shown.add_row(_record_text(changed.before, old, colour=colour), _record_text(changed.after, new, colour=colour))
    console.print(shown)


def _record_text(record: StoredRecord | None, vocabulary: Vocabulary | None, *, colour: bool) -> Text:
    if record is None:
        return Text("not here", "dim")
    if not len(record.ids):
        return Text(visible(record.line.decode("utf-8", "replace").rstrip("\n")))
    if vocabulary is None:
        return Text(f"{terminal.counted(len(record.ids), 'token')} of another tokenizer", "dim")
    text = terminal.flowing(
        terminal.texts_of(vocabulary, record.ids[:LONGEST].tolist()), record.weights[:LONGEST].tolist(), {}, colour=colour
    )
    if len(record.ids) > LONGEST:
        text.append(f"\n… and {len(record.ids) - LONGEST:,} tokens more", "dim")
    return text


# `prep-assets impact`: the effects of a configuration change, by a trial build in a temporary folder.

NAMED = 3
"""Rejected records to name per reason."""
OUTCOMES = {
    "changed": ("built again, with other content", "yellow"),
    "equal": ("built again, with the same content", "dim"),
    "new": ("built for the first time", "yellow"),
    "removed": ("left behind", "yellow"),
    "fails": ("refused", "bold red"),
    "blocked": ("not built", ""),
    "waits": ("built again", "yellow"),
}
"""Outcome → words and style."""


def impact(
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FAMILY.KEY=VALUE", help="An option to change, e.g. sft.template=chatml; may be repeated."),
    ] = None,
    configs: Annotated[Path | None, typer.Option("--configs", metavar="DIR", help="Another folder of configurations.")] = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records to show of each store.")] = 3,
    sample: Annotated[int | None, typer.Option("--sample", min=1, metavar="N", help="Try long domains on their first N rows.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Build everything, however long it is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the effects as JSON.")] = False,
) -> None:
    """Show which stores a change makes stale, how many records and tokens change, what would be refused. Nothing is written.

    Stores that change are built in a temporary folder, without their checks; domains of more than 64 MB on their first 2,000 rows. Exit code 1 where
    the change stops a build.
    """
    from prep_assets.engine.events import Progress
    from prep_assets.explain.changes import LONG, SAMPLE
    from prep_assets.explain.changes import impact as effects_of
    from prep_assets.pipeline.workspace import Workspace

    if full and sample is not None:
        raise ConfigError("--full builds everything and --sample does not; give one of them")
    console = terminal.err() if as_json else terminal.out()
    with terminal.Live(console) as live:
        workspace = Workspace.open(progress=lambda what, done, total: live(Progress(what, done, total)))
        changed = _changed(workspace, options or [], configs)
        limit = 1 << 62 if full else LONG
        effects = list(effects_of(workspace, changed, examples=count, sample=sample or SAMPLE, long=limit))
    if as_json:
        terminal.print_json([_as_json(effect) for effect in effects])
    else:
        _show_effects(console, workspace, effects)
    if any(effect.outcome == "fails" for effect in effects):
        raise typer.Exit(1)


def _changed(workspace: Workspace, words: list[str], configs: Path | None) -> Workspace:
    """The workspace with the change."""
    from dataclasses import replace

    from prep_assets.config.models import FAMILIES

    if not words and configs is None:
        raise ConfigError("what changes? Give --set FAMILY.KEY=VALUE, e.g. --set sft.template=chatml, or --configs DIR")
    if configs is not None and not configs.is_dir():
        raise ConfigError(f"--configs {configs}: there is no such folder")
    options: dict[str, dict[str, Any]] = {}
    for word in words:
        family, dot, rest = word.partition(".")
        if not dot or family not in FAMILIES:
            known = f"{nearest(family, FAMILIES) or '.'} There are: {', '.join(FAMILIES)}"
            raise ConfigError(f"--set {word}: begins with a family, e.g. sft.template=chatml{known}")
        put_option(options.setdefault(family, {}), rest)
    changed = workspace if configs is None else replace(workspace, configs=configs)
    for family, overrides in options.items():
        changed = changed.overriding(family, overrides)
    return changed


def _as_json(effect: Effect) -> dict[str, Any]:
    return {
        "asset": effect.asset,
        "partition": effect.partition,
        "outcome": effect.outcome,
        "why": effect.why,
        "sample": effect.sample,
        "difference": effect.difference and difference_as_json(effect.difference),
        "newly_refused": [
            {"id": rejection.id, "reason": f"{rejection.stage}/{rejection.reason}", "detail": rejection.detail}
            for rejection in effect.refused
        ],
        "newly_accepted": effect.accepted,
    }


def _show_effects(console: Console, workspace: Workspace, effects: list[Effect]) -> None:
    from prep_assets.explain.changes import STALE

    stale = [effect for effect in effects if effect.outcome in STALE]
    for effect in effects:
        if effect.difference is not None:
            sampled = f", tried on the first {effect.sample:,} rows of each domain" if effect.sample else ""
            show_difference(console, workspace, effect.difference, title=effect.label + sampled)
        _show_rejections(console, effect)
    rows = [(effect.label, Text(*OUTCOMES[effect.outcome]), visible(effect.why)) for effect in effects if effect.outcome in OUTCOMES]
    if rows:
        console.print(terminal.table("store", "would be", "because", rows=rows))
    same, absent = (sum(effect.outcome == outcome for effect in effects) for outcome in ("same", "absent"))
    same_domains, other_domains = (
        {effect.partition for effect in effects if (effect.outcome == "same") == is_same} for is_same in (True, False)
    )
    unaffected = same_domains - other_domains - {""}
    summary = f"{terminal.counted(len(stale), 'store')} would be built again, {same:,} stay" + (
        f", {absent:,} have no store yet" if absent else ""
    )
    console.print(f"{summary}; domains left alone: {', '.join(sorted(unaffected)) or 'none'}")
    console.print("nothing was written", style="dim")


def _show_rejections(console: Console, effect: Effect) -> None:
    reasons = Counter(f"{rejection.stage}/{rejection.reason}" for rejection in effect.refused)
    for reason, count in reasons.most_common():
        examples = [rejection for rejection in effect.refused if f"{rejection.stage}/{rejection.reason}" == reason][:NAMED]
        console.print(f"{effect.label} would refuse {terminal.counted(count, 'record')} more: {reason}", style="red")
        for rejection in examples:
            console.print(f"  {visible(rejection.id)}: {visible(rejection.detail)}", style="dim")
    if effect.accepted:
        console.print(f"{effect.label} would accept {terminal.counted(effect.accepted, 'record')} that it refuses now", style="green")
