"""`prep-assets diff`, `compare` and `impact`: what changed between stores, and what a change would change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import astuple
from rich.console import Console
from rich.text import Text

from prep_assets import StoredRecord
from prep_assets.cli import terminal
from prep_assets.cli.stores import Live, working
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.changes.changes import LONG, SAMPLE, STALE, Changed, Difference, Effect, Pair, side_by_side
from prep_assets.extensions.changes.changes import diff as compare_versions
from prep_assets.extensions.changes.changes import impact as effects_of
from prep_assets.graph.graph import family_of, one_partition
from prep_assets.pipeline.asset import tokenizer_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.text.visible import token_texts, visible
from prep_assets.text.vocabulary import Vocabulary

LONGEST = 300
"""Most tokens of a record to show."""


@with_json
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
) -> Answer:
    with working() as workspace:
        definition, key = one_partition(workspace, asset, partition)
        difference = compare_versions(workspace, definition.name, version, partition=key, examples=count)
    return Answer(_difference(difference), lambda console: show_difference(console, workspace, difference))


@with_json
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A folder of stores, e.g. data/stores of another checkout.")],
    after: Annotated[Path | None, typer.Argument(metavar="[AFTER]", help="Another. Default: the folder of stores.")] = None,
    assets: Annotated[list[str] | None, typer.Option("--asset", "-a", metavar="ASSET", help="Only this asset; may be repeated.")] = None,
    configs: Annotated[
        Path | None, typer.Option("--before-configs", metavar="DIR", help="The configuration of BEFORE, if it is another one.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records of each store to show side by side.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a comment on a pull request.")] = False,
) -> Answer:
    with working() as workspace:
        sides = (
            replace(workspace, configs=configs or workspace.configs, stores=before),
            replace(workspace, stores=after or workspace.stores),
        )
        for side in sides:
            if not side.stores.is_dir():
                raise ConfigError(f"{side.stores}: there is no such folder of stores")
        pairs = list(side_by_side(*sides, assets or (), examples=count))

    def show(console: Console) -> None:
        if markdown:
            typer.echo("\n".join(_markdown(pairs)))
        else:
            _show_pairs(console, sides[1], pairs)

    facts = [_pair(pair) for pair in pairs]
    return Answer(facts, show, int(not all(pair.same for pair in pairs)))


def _pair(pair: Pair) -> dict[str, Any]:
    state = "same" if pair.same else "added" if pair.before is None else "removed" if pair.after is None else "changed"
    figures = {name: {"before": old, "after": new} for name, (old, new) in pair.figures.items()}
    return {"store": pair.label, "state": state, "figures": figures, "records": pair.difference and _difference(pair.difference)}


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


def _difference(difference: Difference) -> dict[str, Any]:
    examples = [
        {"record": "/".join(each.key[1:]), "stream": each.key[0], "before": _content(each.before), "after": _content(each.after)}
        for each in difference.examples
    ]
    return {
        "before": difference.before.where,
        "after": difference.after.where,
        "recipe": difference.recipe,
        "records": {"same": difference.same, "in": difference.came, "out": difference.went, "changed": difference.changed},
        "domains": {name: {"before": before, "after": after} for name, (before, after) in difference.amounts.items()},
        "examples": examples,
    }


def _content(record: StoredRecord | None) -> Any:
    if record is None or not len(record.ids):
        return record and json.loads(record.line)
    return {"ids": record.ids.tolist(), "weights": record.weights.tolist()}


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
        pairs = zip(*map(astuple, amounts), strict=True)
        shown.add_row(name, *(terminal.number(new) if old == new else f"{old:,} → {new:,}" for old, new in pairs))
    console.print(shown)
    before, after = _vocabulary(workspace, difference.before), _vocabulary(workspace, difference.after)
    for example in difference.examples:
        _show_record(console, before, after, example)


def _vocabulary(workspace: Workspace, published: Any) -> Vocabulary | None:
    """The tokenizer of a version; `None` where the configuration has changed it since."""
    family = family_of(workspace, published.manifest.asset)
    try:
        recipe = published.manifest.recipe.get("tokenizer")
        return workspace.vocabulary(family) if recipe in (None, json.loads(json.dumps(tokenizer_recipe(workspace, family)))) else None
    except PrepAssetsError:
        return None


def _show_record(console: Console, old: Vocabulary | None, new: Vocabulary | None, changed: Changed) -> None:
    stream, domain, identity = changed.key
    title = f"{domain}/{visible(identity)}" + ("" if stream == domain else f" ({stream})")
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
    text = terminal.flowing(token_texts(vocabulary, record.ids[:LONGEST].tolist()), record.weights[:LONGEST].tolist(), {}, colour=colour)
    if len(record.ids) > LONGEST:
        text.append(f"\n… and {len(record.ids) - LONGEST:,} tokens more", "dim")
    return text


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


@with_json
def impact(
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="[FAMILY.]KEY=VALUE", help="An option to change, e.g. sft.template=chatml; may be repeated."),
    ] = None,
    configs: Annotated[Path | None, typer.Option("--configs", metavar="DIR", help="Another folder of configurations.")] = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records to show of each store.")] = 3,
    sample: Annotated[int | None, typer.Option("--sample", min=1, metavar="N", help="Try long domains on their first N rows.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Build everything, however long it is.")] = False,
    as_json: bool = False,
) -> Answer:
    """Stores that change are built in a temporary folder, without their checks; domains of more than 64 MB on their first 2,000 rows. Exit code 1 where
    the change stops a build."""
    if full and sample is not None:
        raise ConfigError("--full builds everything and --sample does not; give one of them")
    console = terminal.err() if as_json else terminal.out()
    with Live(console) as live:
        workspace = Workspace.open(progress=live.progress)
        changed = _changed(workspace, options or [], configs)
        limit = 1 << 62 if full else LONG
        effects = list(effects_of(workspace, changed, examples=count, sample=sample or SAMPLE, long=limit))
    failed = any(effect.outcome == "fails" for effect in effects)
    return Answer([_effect(effect) for effect in effects], lambda console: _show_effects(console, workspace, effects), int(failed))


def _changed(workspace: Workspace, words: list[str], configs: Path | None) -> Workspace:
    """The workspace with the change."""
    if not words and configs is None:
        raise ConfigError("what changes? Give --set FAMILY.KEY=VALUE, e.g. --set sft.template=chatml, or --configs DIR")
    if configs is not None and not configs.is_dir():
        raise ConfigError(f"--configs {configs}: there is no such folder")
    options = terminal.options_of_run(words, [family for family in FAMILIES if workspace.has(family)])
    changed = workspace if configs is None else replace(workspace, configs=configs)
    for family, overrides in options.items():
        changed = changed.overriding(family, overrides)
    return changed


def _effect(effect: Effect) -> dict[str, Any]:
    refused = [{"id": row.id, "reason": f"{row.stage}/{row.reason}", "detail": row.detail} for row in effect.refused]
    return {
        **{name: getattr(effect, name) for name in ("asset", "partition", "outcome", "why", "sample")},
        "difference": effect.difference and _difference(effect.difference),
        "newly_refused": refused,
        "newly_accepted": effect.accepted,
    }


def _show_effects(console: Console, workspace: Workspace, effects: list[Effect]) -> None:
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
