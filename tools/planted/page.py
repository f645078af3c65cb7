"""The list of harmless changes, and the page of figures."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from planted.candidates import Plant

PAGE = Path(__file__).with_name("measured.md")
SURVIVORS = Path(__file__).with_name("survivors.md")
_ROW = re.compile(r"^- `([^`]*)`: `(.+?)` → `(.+?)`: (.+)$")


@cache
def _listed() -> dict[tuple[str, str, str, str], str]:
    found, module = {}, ""
    for line in SURVIVORS.read_text("utf-8").splitlines():
        if line.startswith("## `"):
            module = line.removeprefix("## `").removesuffix("`")
        elif row := _ROW.match(line):
            function, before, after, reason = row.groups()
            found[module, function, before, after] = reason
    return found


def reason(bug: Plant) -> str | None:
    """Why a change is harmless, if the list says so."""
    return _listed().get((bug.module, bug.function, bug.before, bug.after))


FAMILIES = ("contrastive", "preference", "pretrain", "rl", "sft")


def table(results: Path) -> str:
    """The figures of a file of results, by workspace and by room."""
    rows = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    counted = defaultdict[str, Counter[str]](Counter)
    for row in rows:
        verdict = "listed" if row["listed"] else "beside" if row.get("kind") in ("recipe", "counts", "quarantine") else row["verdict"]
        family = next((word for word in row["workspace"].split() if word in FAMILIES), "several")
        for group in ("all", f"all of {family}", f"built: {row['workspace']}", f"planted in: {row['module'].partition('/')[0]}"):
            counted[group][verdict] += 1
            counted[group]["trials"] += 1
    lines = [
        "| | trials | same | stopped | published | listed | only counts, recipe, quarantine | stopped of those with an effect |",
        "|---" * 8 + "|",
    ]
    for group, each in sorted(counted.items()):
        effect = each["stopped"] + each["published"]
        share = f"{each['stopped'] / effect:.1%}" if effect else "–"
        figures = " | ".join(f"{each[name]:,}" for name in ("trials", "same", "stopped", "published", "listed", "beside"))
        lines.append(f"| {group} | {figures} | {share} |")
    return "\n".join(lines)


def write(results: Path, seed: str) -> None:
    """Add the figures to the page, with the date."""
    today = datetime.datetime.now(datetime.UTC).date()
    head, _, rest = PAGE.read_text("utf-8").partition("\n## ")
    earlier = f"\n## {rest}" if rest else ""
    PAGE.write_text(f"{head.rstrip()}\n\n## {today}, `{results.stem}`, seed {seed}\n\n{table(results)}\n{earlier}", "utf-8")
