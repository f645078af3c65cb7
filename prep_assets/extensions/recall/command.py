"""`prep-assets recall`: what a rule means, here and elsewhere; making, lifting and finishing recalls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct, structs, to_builtins
from rich.console import Console

from prep_assets.cli.terminal import Answer, counted, table, with_json
from prep_assets.engine.status import places_in
from prep_assets.errors import ConfigError
from prep_assets.extensions.keep.versions import read_versions, version_of
from prep_assets.extensions.neighbours.recorded import commits_of, files_of, manifests_of, names_in
from prep_assets.extensions.recall.closure import Closure
from prep_assets.extensions.recall.record import change, recalls, settled
from prep_assets.extensions.recall.rules import Recall, parse
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import label_of


class Found(Struct, frozen=True):
    """A version here, a file or a commit that is ``recalled`` or ``unclear``; `equal`: a sound version of its store with equal bytes."""

    store: str
    where: str
    state: str
    why: str
    content: str
    equal: str = ""


class Search(Struct, frozen=True):
    """What was found among so many versions; comparisons that hold of no recipe, with what recipes say there."""

    versions: int = 0
    found: tuple[Found, ...] = ()
    never: dict[str, list[str]] = {}


def search(root: Path, new: Recall, among: Sequence[Path] = (), hub: Sequence[str] = (), api: Any = None) -> tuple[Search, Recall]:
    """What a recall would find below a root, in releases and records of runs below `among`, and in commits of data sets on the Hub; and that recall with it.

    Raises:
        ConfigError: no rule, a name that no recipe has, or a folder that is not there.
        SourceUnavailable: the Hub does not answer.
    """
    versions, files, every, found = read_versions(root), files_of(among, root), recalls(root), list[Found]()
    elsewhere = {version_of(manifest): where for where, manifest in (*manifests_of(files), *commits_of(hub, api))}
    result = Closure(versions, elsewhere, new, [recall for recall in every if not recall.lifted])
    sound = {(each.key, each.content): each.name for each in versions if each not in result.found and each not in result.unclear}
    whys = {each: (why if number == new.number else f"{every[number - 1].label}, {why}") for each, (number, why) in result.found.items()}
    for each, why in {**whys, **result.unclear}.items():
        where = elsewhere.get(each) or f"{each.name} {' '.join(each.pointers) or 'old'}"
        state, equal = "recalled" if each in whys else "unclear", sound.get((each.key, each.content), "")
        found.append(Found(label_of(*each.key), where, state, why, each.content, equal))
    by_content = {each.content: each for each in found if each.content and not each.equal}
    named = [structs.replace(by_content[content], where=file) for file, content in names_in(files, by_content)]
    return Search(len(versions), (*found, *named), result.rules.never(parse(new.rule))), result.new


def planned(root: Path, rule: str, reason: str = "") -> Recall:
    """A recall that is not made yet."""
    return Recall(len(recalls(root)) + 1, rule, reason, _now(), "", ())


def make(root: Path, rule: str, reason: str = "") -> Recall:
    """Recall what a rule means, with all that was made from it; an error where that is nothing, or it is recalled already."""

    def edit(before: tuple[Recall, ...]) -> tuple[Recall, ...]:
        if held := [each for each in before if (each.rule, each.lifted) == (rule, "")]:
            raise ConfigError(f"{rule}: that is recall {held[0].number} already. Nothing is changed")
        if not (new := search(root, planned(root, rule, reason))[1]).found:
            raise ConfigError(f"{rule}: no version was made so, and what nothing was made with is not recorded. Nothing is changed")
        return (*before, new)

    return change(root, edit)[-1]


def lift(root: Path, number: int) -> Recall:
    """Lift a recall, which the record keeps; an error where none of this number holds."""

    def edit(before: tuple[Recall, ...]) -> tuple[Recall, ...]:
        if number not in (held := [each.number for each in before if not each.lifted]):
            raise ConfigError(f"recall {number} does not hold, so it cannot be lifted. There are: {', '.join(map(str, held)) or 'none'}")
        return tuple(structs.replace(each, lifted=_now()) if each.number == number else each for each in before)

    return change(root, edit)[number - 1]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@with_json
def recall(
    rule: Annotated[str | None, typer.Argument(metavar="[RULE]", help="'tokenizers<0.22 and engine=auto'. Default: list recalls.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Recall what is listed. Without it, nothing is changed.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for everybody who meets a recalled store.")] = "",
    among: Annotated[list[Path] | None, typer.Option("--among", metavar="PATH", help="Look in releases and records of runs, too.")] = None,
    hub: Annotated[list[str] | None, typer.Option("--hub", metavar="REPO", help="Look in a data set on the Hub, each commit.")] = None,
    number: Annotated[int | None, typer.Option("--lift", metavar="N", help="Lift recall N: its stores are current again.")] = None,
    settle: Annotated[bool, typer.Option("--settle", help="Let pointers follow the record, after a kill or an equal rebuild.")] = False,
) -> Answer:
    """What was made from it is listed too; with --yes nothing reads or publishes any of it. Without a rule, recalls are listed and compared with the
    stores. Exit code 1 where a rule means something or cannot be told, and where stores and record disagree."""
    root = Workspace.open().stores
    if (rule is not None) + (number is not None) + settle > 1 or (rule is None and (yes or reason or among or hub)):
        raise ConfigError("say one of RULE, --lift and --settle; --yes, --reason, --among and --hub belong to a RULE")
    result = Search() if rule is None else search(root, planned(root, rule), among or (), hub or ())[0]
    if rule is not None and yes:
        make(root, rule, reason)
    if number is not None:
        lift(root, number)
    write = yes or settle or number is not None
    every, done = recalls(root), list(settled(root, places_in(root), write=write)) if write or rule is None else []
    unclear = [each for each in result.found if each.state == "unclear"]

    def show(console: Console) -> None:
        for compared, said in result.never.items():
            console.print(f"{compared} holds of no recipe; they say: {', '.join(said[:8]) or 'nothing'}", style="yellow")
        if result.found:
            whys = {each: each.why + (f"; {each.equal} has equal bytes" if each.equal else "") for each in result.found}
            rows = [(each.store, each.where, each.state.replace("unclear", "cannot tell"), why) for each, why in whys.items()]
            console.print(table("store", "where", "what", "why", rows=rows))
        if rule is not None:
            versions = f"of {counted(result.versions, 'version')}" + (
                "" if yes or not result.found else ". Nothing is changed: --yes recalls them"
            )
            console.print(f"{len(result.found) - len(unclear):,} recalled, {len(unclear):,} cannot be told, {versions}")
        if rule is None or yes:
            lines = [(str(each.number), each.rule, each.reason, each.made, each.lifted or "no", str(len(each.found))) for each in every]
            console.print(table("recall", "rule", "reason", "made", "lifted", "versions", rows=lines) if lines else "nothing was recalled")
        for label, what, wrong in done:
            console.print(f"{'✗ ' if wrong else ''}{label}: {what}", style="red" if wrong else None)

    stores = [{"store": label, "what": what, "wrong": wrong} for label, what, wrong in done]
    facts = {**to_builtins(result), "recalls": to_builtins(every), "stores": stores}
    return Answer(facts, show, int(bool(unclear if yes else result.found) or any(wrong for _, _, wrong in done)))
