"""`prep-assets diff`: what differs between two versions of a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli.console import counted, has_colour, near_url, number, out, print_json, table
from prep_assets.cli.find import AssetName, Partition, opened
from prep_assets.cli.tokens import flowing, texts_of, visible

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.lineage.contents import StoredRecord
    from prep_assets.lineage.difference import Amount, Changed, Difference
    from prep_assets.tokenization.vocabulary import Vocabulary

LONGEST = 300
"""Tokens of a record that are shown."""


def diff(
    asset: AssetName,
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="[VERSION]",
            show_default=False,
            help="draft, candidate, or the beginning of a version's folder; left out: the one written last apart from the current one.",
        ),
    ] = None,
    partition: Partition = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records to show side by side.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the difference as JSON.")] = False,
) -> None:
    """Compare the current store with another version: records in, out and changed, tokens by domain, and rows side by side with their masks."""
    from prep_assets.assets.graph import one_partition
    from prep_assets.lineage.difference import diff as compared

    workspace = opened()
    found, each = one_partition(workspace, asset, partition)
    difference = compared(workspace, found.name, version, partition=each, examples=count)
    if as_json:
        print_json(difference_as_json(difference))
    else:
        show_difference(out(), workspace, difference)


def difference_as_json(found: Difference) -> dict[str, Any]:
    """A difference as a JSON value."""
    return {
        "before": found.before.where,
        "after": found.after.where,
        "recipe": list(found.recipe),
        "records": {"same": found.same, "in": found.came, "out": found.went, "changed": found.changed},
        "domains": {name: {"before": _amount(before), "after": _amount(after)} for name, (before, after) in found.amounts.items()},
        "examples": [{"record": "#".join(each.key[1:]), "stream": each.key[0], **_sides(each)} for each in found.examples],
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"records": amount.records, "tokens": amount.tokens, "trained_tokens": amount.trained}


def _sides(each: Changed) -> dict[str, Any]:
    return {name: held and _held(held) for name, held in (("before", each.before), ("after", each.after))}


def _held(held: StoredRecord) -> dict[str, Any]:
    return json.loads(held.line) if held.line and not len(held.ids) else {"ids": held.ids.tolist(), "weights": held.weights.tolist()}


def show_difference(console: Console, workspace: Workspace, found: Difference, *, title: str = "") -> None:
    """Print a difference; in place of the two folders, a title."""
    folders = f"{found.after.manifest.label}: {near_url(found.before.where)} → {near_url(found.after.where)}"
    console.print(title or folders, style="bold")
    console.print(f"made otherwise: {', '.join(found.recipe)}" if found.recipe else "made from and with the same")
    changes = f"{counted(found.came, 'record')} in, {found.went:,} out, {found.changed:,} changed, {found.same:,} the same"
    console.print(changes, style="bold")
    console.print(_domains(found))
    for each in found.examples:
        _show_record(console, _vocabulary(workspace, found.before), _vocabulary(workspace, found.after), each)


def _domains(found: Difference) -> Any:
    names = ("records", "tokens", "trained")
    rows = []
    for name, sides in found.amounts.items():
        pairs = [[getattr(side, each) for side in sides] for each in names]
        rows.append([name, *(number(new) if old == new else f"{old:,} → {new:,}" for old, new in pairs)])
    return table("domain", *names, rows=rows, numbers=names)


def _vocabulary(workspace: Workspace, published: Any) -> Vocabulary | None:
    """The tokenizer of a version; `None` where the configuration has another one by now."""
    from prep_assets.assets.writing.tokens import tokenizer_recipe
    from prep_assets.errors import PrepAssetsError
    from prep_assets.lineage.opened import family_of

    family = family_of(workspace, published.manifest.asset)
    try:
        made = published.manifest.recipe.get("tokenizer")
        return workspace.vocabulary(family) if made in (None, json.loads(json.dumps(tokenizer_recipe(workspace, family)))) else None
    except PrepAssetsError:
        return None


def _show_record(console: Console, old: Vocabulary | None, new: Vocabulary | None, each: Changed) -> None:
    stream, domain, identity = each.key
    title = f"{domain}#{visible(identity)}" + ("" if stream == domain else f" ({stream})")
    shown = table("before", "after", title=title)
    for column in shown.columns:
        column.ratio, column.overflow = 1, "fold"
    shown.expand = True
    colour = has_colour(console)
    shown.add_row(_text(each.before, old, colour=colour), _text(each.after, new, colour=colour))
    console.print(shown)


def _text(held: StoredRecord | None, vocabulary: Vocabulary | None, *, colour: bool) -> Text:
    if held is None:
        return Text("not here", "dim")
    if not len(held.ids):
        return Text(visible(held.line.decode("utf-8", "replace").rstrip("\n")))
    if vocabulary is None:
        return Text(f"{counted(len(held.ids), 'token')} of another tokenizer", "dim")
    text = flowing(texts_of(vocabulary, held.ids[:LONGEST].tolist()), held.weights[:LONGEST].tolist(), {}, colour=colour)
    if len(held.ids) > LONGEST:
        text.append(f"\n… and {len(held.ids) - LONGEST:,} tokens more", "dim")
    return text
