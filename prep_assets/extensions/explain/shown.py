"""A row, or the files of a raw store, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import Preview, visible


def show_tokens(console: Console, shown: Preview, most: int | None, unserved: int, *, ids: bool) -> None:
    tokens, weights = shown.tokens[:most], shown.weights[:most]
    borders = {at: name for at, name in shown.origins if at < len(tokens)}
    colour = terminal.has_colour(console)
    console.print(visible(shown.title), style="bold")
    console.print()
    if ids:
        text = terminal.listed(tokens, weights, shown.positions, shown.ids, borders, colour=colour)
    else:
        text = terminal.flowing(tokens, weights, borders, colour=colour)
    console.print(text, end="" if text.plain.endswith("\n") else "\n")
    console.print()
    if len(tokens) < len(shown.tokens):
        console.print(f"… and {len(shown.tokens) - len(tokens):,} tokens more", style="dim")
    console.print(_footer(shown, colour), style="dim")
    if unserved:
        console.print(f"{terminal.counted(unserved, 'trained answer')} of the store behind a prompt that no server sends", style="yellow")


def _footer(shown: Preview, colour: bool) -> str:
    parts = [terminal.counted(len(shown.tokens), "position")]
    if shown.weights:
        trained, unattended = (sum(weight * sign > 0 for weight in shown.weights) for sign in (1, -1))
        how = "bold and green" if colour else "in ⟦ ⟧"
        parts.append(f"{trained:,} trained ({trained / max(1, len(shown.tokens)):.1%}, {how})")
        parts += [f"{unattended:,} not attended ({'struck through' if colour else 'in ⟪ ⟫'})"] if unattended else []
    else:
        parts.append("no loss mask")
    responses = sum(name.startswith("response ") for _, name in shown.origins)
    parts.append(terminal.counted(responses, "response") if responses else terminal.counted(len(shown.origins), "document"))
    return "── " + " · ".join(parts)


def show_files(console: Console, published: Published, sources: Mapping[str, Any]) -> None:
    manifest = published.manifest
    rows = [
        (visible(entry["name"]), used, terminal.number(entry["rows"]), terminal.size(entry["size"]), entry["sha256"][:16])
        for key, used in (("files", "training"), ("test_files", "testing"))
        for entry in sources[key]
    ]
    headings = ("file", "used for", "records", "size", "sha256")
    console.print(terminal.table(*headings, rows=rows, numbers=("records", "size"), title=manifest.label))
    counts = terminal.counted(manifest.counts["files"], "file"), terminal.counted(manifest.counts["read"], "record")
    console.print(f"── {' · '.join(counts)} · {terminal.near_url(published.where)}", style="dim")
