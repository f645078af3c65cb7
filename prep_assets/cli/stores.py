"""The stores that arguments of commands name, and what is shown while the engine works on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.progress import TaskProgressColumn
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.terminal import counted
from prep_assets.config.models import FAMILIES
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.read import read_blocks
from prep_assets.engine.events import Accepted, Blocked, Checked, Event, Planned, Progress, Skipped, Started, Tally, Written
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.graph.graph import asset_and_partitions, family_assets, one_partition, unknown_family
from prep_assets.pipeline.asset import Asset, many_refused
from prep_assets.pipeline.verdicts import LEAKS, uncovered
from prep_assets.pipeline.workspace import Workspace, arguments, build_command
from prep_assets.stores.published import open_published
from prep_assets.stores.version_folders import Published


def one_store(workspace: Workspace, name: str, partition: str | None, *, last: bool = False) -> Published:
    """The current store of an asset and partition; the partition may be omitted where there is only one.

    Args:
        last: or the last build, if it is not published because a check fails.

    Raises:
        ConfigError: no such asset or partition, or several partitions to choose from.
        StoreError: it is not built; the message has the command that builds it.
    """
    asset, key = one_partition(workspace, name, partition)
    held_back = workspace.place(asset.name, key).candidate() if last else None
    return held_back or open_published(workspace.stores, asset.name, key, remedy=build_command(asset.name, key))


def stores_of(workspace: Workspace, name: str, partition: str | None, *, last: bool = False) -> tuple[list[Published], list[str]]:
    """The current stores of an asset, and the labels of missing ones.

    Args:
        last: in place of each the last build, if it is not published because a check fails.

    Raises:
        ConfigError: no such asset or partition.
        StoreError: none of them is built; the message has the command that builds them.
    """
    asset, partitions = asset_and_partitions(workspace, name, partition)
    stores, missing = [], []
    for key in partitions:
        held_back = workspace.place(asset.name, key).candidate() if last else None
        published = held_back or workspace.published(asset.name, key)
        if published is None:
            missing.append(workspace.place(asset.name, key).label)
        else:
            stores.append(published)
    if not stores:
        remedy = build_commands([(asset.name, key) for key in partitions])
        raise StoreError(f"{', '.join(missing)}: no store in {workspace.where}. Build with:\n{remedy}")
    return stores, missing


def named_stores(workspace: Workspace, name: str | None, partition: str | None) -> list[tuple[str, str]]:
    """(asset, partition) of the stores of one asset, or of all configured ones; built or not.

    Raises:
        ConfigError: no such asset or partition, or a partition without an asset.
    """
    if name is None and partition is not None:
        raise ConfigError(f"--partition {partition} of which asset? Name it: ASSET --partition {partition}")
    names = [name] if name else [asset.name for asset in configured(workspace)]
    selections = [asset_and_partitions(workspace, asset_name, partition) for asset_name in names]
    return [(asset.name, key) for asset, partitions in selections for key in partitions]


def every_store(workspace: Workspace) -> dict[str, list[Published]]:
    """Asset → current stores, in the order of the graph; empty where none is built."""
    stores: dict[str, list[Published]] = {}
    for asset, partition in named_stores(workspace, None, None):
        if published := workspace.published(asset, partition):
            stores.setdefault(asset, []).append(published)
    return stores


def build_commands(stores: Sequence[tuple[str, str]]) -> str:
    """The build commands of stores, one indented line each."""
    return "\n".join(f"  {build_command(asset, partition)}" for asset, partition in stores)


def configured(workspace: Workspace, faults: list[str] | None = None) -> list[Asset]:
    """The assets of families with a configuration file, in the order of the graph.

    Args:
        faults: collects the errors of families, which are then left out; without it, the first error is raised.
    """
    assets: list[Asset] = []
    for family in filter(workspace.has, FAMILIES):
        try:
            assets += family_assets(workspace, family).values()
        except PrepAssetsError as error:
            if faults is None:
                raise
            faults.append(str(error))
    if fault := unknown_family(workspace):
        if faults is None:
            raise ConfigError(fault)
        faults.append(fault)
    return assets


def first_rows(
    files: Sequence[SourceFile], count: int, txt: Literal["line", "file"] = "line"
) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """(id, payload) of the first readable rows, and the faults of unreadable rows among them."""
    rows: list[tuple[str, dict[str, Any]]] = []
    unreadable: list[str] = []
    for index, file in enumerate(files):
        for block in read_blocks(file, index, block_bytes=1 << 20, txt=txt):
            rows += [(record_id(file, record.row), dict(record.payload)) for record in block.records[: count - len(rows)]]
            unreadable += [f"{record_id(file, row.row)} {row.reason}: {row.detail}" for row in block.unreadable]
            if len(rows) >= count:
                return rows, unreadable
    return rows, unreadable


@contextmanager
def reading(published: Published) -> Iterator[None]:
    """Turn errors of reading a payload into `StoreError`.

    Raises:
        StoreError: in place of errors of h5py, numpy or json on damaged files, and of readers, with the command that verifies the store.
    """
    manifest = published.manifest
    remedy = f"See what is wrong with it:\n  prep-assets verify {arguments(manifest.asset, manifest.partition)}"
    try:
        yield
    except StoreError as error:
        raise error if "prep-assets build" in str(error) else StoreError(f"{error}. {remedy}") from error
    except PrepAssetsError:
        raise
    except (OSError, ValueError, LookupError, RuntimeError, EOFError) as error:
        raise StoreError(f"{manifest.label} in {published.where} cannot be read ({type(error).__name__}: {error}). {remedy}") from error


@contextmanager
def working() -> Iterator[Workspace]:
    """The workspace of `opened`, with a bar on stderr for what takes long in it."""

    with terminal.bar(TaskProgressColumn()) as shown:
        task = shown.add_task("", total=None, visible=False)

        def show(what: str, done: int, total: int) -> None:
            if what != shown.tasks[0].description:  # the time that is left is that of one piece of work
                shown.reset(task, description=what)
            shown.update(task, completed=done, total=total or None, visible=True)

        yield Workspace.open(progress=show)


class Live:
    """A listener for events of the engine, which prints lines, and shows a bar while it is open."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = terminal.bar(TaskProgressColumn(), console=console)
        self._task = self._bar.add_task("", total=None, visible=False)
        self._tally = Tally()

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()
        if str(self._tally) and error is None:
            self._console.print(str(self._tally), style="dim")

    def __call__(self, event: Event) -> None:
        self._tally.add(event)
        match event:
            case Planned(steps):
                if (wanted := sum(bool(step.why) for step in steps)) > 1:
                    self._console.print(f"{counted(wanted, 'store')} to build", style="dim")
            case Started(step):
                self._show(step.label)
            case Progress(what, done, total):
                self._show(what, done, total or None)
            case Written(step, published):
                for note in published.notes:
                    self._line("!", f"{step.label}: {note}", "yellow")
                self._show(f"{step.label} checks")
            case Checked(step, check, verdict):
                self._show(f"{step.label} {check}")
                if not verdict.passed:
                    self._line("  ✗", f"{step.label} {check}", "bold red")
            case Accepted(step, _, verdicts) as accepted:
                for check, verdict in verdicts.items():  # those of a store that exists too: its rules may be new
                    if verdict.warns:
                        self._line("  !", f"{step.label} {check}: {verdict.summary}", "yellow")
                if step.why:
                    self._line("✓", f"{step.label}: {_figures(accepted)}, {counted(len(verdicts), 'check')} hold", "green")
                    if many := many_refused(accepted.published.manifest.counts):
                        where = f"{step.asset.name} --partition {step.partition}" if step.partition else step.asset.name
                        said = f"  ! {step.label}: {many}. Look at them: prep-assets quarantine {where}"
                        self._console.print(Text(said, "yellow"))
                    manifest = accepted.published.manifest
                    if short := uncovered(manifest.counts) if step.asset.stage == LEAKS else "":
                        self._console.print(Text(f"  ! {step.label}: {short}", "yellow"))
                    typed = manifest.counts.get("control_tokens_in_content", 0)
                    if typed and manifest.recipe.get("special_in_content") == "text":
                        said = f"  ! {step.label}: {counted(typed, 'control token')} typed in contents, each read as several tokens of text"
                        self._console.print(Text(said, "yellow"))
                    if unserved := manifest.counts.get("unserved_prompts", 0):
                        said = f"  ! {step.label}: {counted(unserved, 'trained answer')} behind a prompt that no server sends: prep-assets certify shows it. "
                        again = (
                            ", or leave reasoning out where the prompt closes it"
                            if manifest.recipe["expand"] == "turns"
                            else ", or set expand: turns"
                        )
                        remedy = f"Take the training variant of the template{again}"
                        self._console.print(Text(said + remedy, "yellow"))
                elif step.requested:
                    self._line("✓", f"{step.label} is up to date: nothing to do", "green")
            case Blocked(step):
                self._line("✗", f"{step.label} is not published", "bold red")
            case Skipped(step, because):
                self._line("-", f"{step.label} is not built, because {because.label} is not", "dim")

    def progress(self, what: str, done: int, total: int) -> None:
        """Tell of progress, as a workspace does."""
        self(Progress(what, done, total))

    def _show(self, what: str, done: int = 0, total: int | None = None) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, visible=True)

    def _line(self, mark: str, text: str, style: str) -> None:

        self._console.print(Text.assemble((mark, style), f" {text}"))


def _figures(accepted: Accepted) -> str:
    """What became of a store, and its figures."""
    counts = accepted.published.manifest.counts
    rows, refused = counts.get("rows", counts.get("kept")), sum(counts.get("refused", {}).values())
    figures = [counted(rows, "row" if "rows" in counts else "record")] if rows is not None else []
    figures += [counted(counts["tokens"], "token")] if "tokens" in counts else []
    figures += [f"{refused:,} refused"] if refused else []
    outcome = "draft" if accepted.draft else "sound as it was" if accepted.published.reused else f"built in {accepted.seconds:.1f} s"
    return ", ".join([outcome, *figures])
