"""`prep-assets scrub`: read what rests on disks again, so much at a time, and find what has rotted."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from prep_assets.cli.console import counted, err, out, size
from prep_assets.cli.live import Live
from prep_assets.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


def scrub(
    budget: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="How much to read, e.g. 500MB or 20GiB; 'all': everything once.")
    ] = "1GiB",
    remote: Annotated[bool, typer.Option("--remote", help="Read remote sources too, each again as a whole.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build damaged stores and those made from them again.")] = False,
) -> None:
    """Read stores and sources again, from where the last scrub stopped, and compare them with their hashes. Exit code 1 where something is damaged.

    A damaged store fails its checks from then on, and those made from it are checked again. A damaged source is named; no build mends it.
    """
    from prep_assets.assets.workspace import Workspace
    from prep_assets.engine import build
    from prep_assets.engine.scrub import scrub as read_again

    workspace = Workspace.open()
    found = read_again(workspace, _bytes(budget), remote=remote)
    console = out()
    console.print(f"read {size(found.read)} of {size(found.total)}, {counted(len(found.damaged), 'file')} damaged", soft_wrap=True)
    for why in found.unreached:
        console.print(f"not looked at: {why}", style="yellow", soft_wrap=True, markup=False)
    for each in found.damaged:
        label = f"{each.asset}[{each.partition}]" if each.partition else each.asset
        console.print(f"✗ {label}: {each.what}", style="red", soft_wrap=True, markup=False)
        if each.built:
            console.print(f"  made from it, to be built again: {', '.join(each.built)}", soft_wrap=True, markup=False)
    stores = dict.fromkeys((each.asset, each.partition) for each in found.damaged if not each.source)
    if rebuild and stores:
        with Live(err()) as live:
            for asset, partition in stores:
                build(workspace, asset, partition=partition or None, tell=live)
            for label in dict.fromkeys(label for each in found.damaged if not each.source for label in each.built):
                asset, _, partition = label.rstrip("]").partition("[")
                build(workspace, asset, partition=partition or None, tell=live)
    if any(each.source for each in found.damaged) or (stores and not rebuild):
        raise typer.Exit(1)


def _bytes(text: str) -> int:
    """Raises:
    ConfigError: it is no size.
    """
    if text == "all":
        return 1 << 62
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?)B?", text, re.IGNORECASE)
    if found is None:
        raise ConfigError(f"--bytes {text}: needs a number and a unit, e.g. 500MB or 20GiB, or 'all'")
    return int(float(found[1]) * _UNITS[found[2].upper()])
