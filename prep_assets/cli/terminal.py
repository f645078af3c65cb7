"""Output of commands on the terminal, rows of tokens as text, and the stores that arguments name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.explain.visible import NEWLINE, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from prep_assets.data.files import SourceFile
    from prep_assets.engine.events import Event
    from prep_assets.engine.plan import Step
    from prep_assets.pipeline.asset import Asset
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.version_folders import Published
    from prep_assets.text.vocabulary import Vocabulary

# Consoles: results go to stdout, everything else to stderr.

PIPED_WIDTH = 160
"""Width in columns of tables written to a file or a pipe."""


def out() -> Console:
    """Stdout."""
    return _console(stderr=False)


def err() -> Console:
    """Stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # no markup: in data sets and file names [x] and :x: are plain text
    # soft wrap: paths and commands stay on one line to be copied; tables fold their own columns
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def has_colour(console: Console) -> bool:
    """Whether a console shows colour: a terminal with colours, and no ``NO_COLOR``."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def complain(message: str) -> None:
    """Print an error in red on stderr."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), (message, "red")))


def table(*headings: str, rows: Iterable[Sequence[RenderableType]] = (), numbers: tuple[str, ...] = (), title: str | None = None) -> Table:
    """A table; columns named in `numbers` are right-aligned, and long cells fold."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        grid.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def number(value: object) -> str:
    """Format a figure: thousands separators, four decimals; empty for `None`."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def counted(count: int, thing: str) -> str:
    """``1 store``, ``2 stores``."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Format a number of bytes in the largest unit of at least 1."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:,.1f} {units[0]}" if units[0] != "B" else f"{count} B"


def near(path: Path) -> str:
    """A path, relative to the working directory where it is inside."""
    cwd = Path.cwd()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def near_url(url: str) -> str:
    """A path as by `near`; a URL unchanged."""
    return url if "://" in url else near(Path(url))


def bar(*columns: ProgressColumn) -> Progress:
    """A progress bar on stderr with extra columns, and the time that is left; hidden where a stream is not a terminal, and where ``CI`` is set."""
    return _bar(err(), *columns)


def _bar(console: Console, *extra_columns: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *extra_columns, TimeElapsedColumn(), TimeRemainingColumn())
    seen = console.is_terminal and out().is_terminal and not os.environ.get("CI")
    return Progress(*columns, console=console, transient=True, disable=not seen)


@contextmanager
def working() -> Iterator[Workspace]:
    """The workspace of `opened`, with a bar on stderr for what takes long in it."""
    from rich.progress import TaskProgressColumn

    from prep_assets.pipeline.workspace import Workspace

    with bar(TaskProgressColumn()) as shown:
        task = shown.add_task("", total=None, visible=False)

        def show(what: str, done: int, total: int) -> None:
            if what != shown.tasks[0].description:  # the time that is left is that of one piece of work
                shown.reset(task, description=what)
            shown.update(task, completed=done, total=total or None, visible=True)

        yield Workspace.open(progress=show)


class Live:
    """A listener for events of the engine, which prints lines, and shows a bar while it is open."""

    def __init__(self, console: Console) -> None:
        from rich.progress import TaskProgressColumn

        from prep_assets.engine.events import Tally

        self._console = console
        self._bar = _bar(console, TaskProgressColumn())
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
        from prep_assets.engine.events import Accepted, Checked, Planned, Progress, Refused, Skipped, Started, Written

        self._tally.add(event)
        match event:
            case Planned(steps):
                self._show_plan(steps)
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
                elif verdict.warns:
                    self._line("  !", f"{step.label} {check}: {verdict.summary}", "yellow")
            case Accepted(step, _, verdicts):
                if step.why:
                    self._line("✓", f"{step.label}: {self._summary_of(event)}, {counted(len(verdicts), 'check')} hold", "green")
                elif step.requested:
                    self._line("✓", f"{step.label} is up to date: nothing to do", "green")
            case Refused(step):
                self._line("✗", f"{step.label} is not published", "bold red")
            case Skipped(step, because):
                self._line("-", f"{step.label} is not built, because {because.label} is not", "dim")

    def _show_plan(self, steps: tuple[Step, ...]) -> None:
        wanted = [step for step in steps if step.why]
        if len(wanted) > 1:
            self._console.print(f"{counted(len(wanted), 'store')} to build", style="dim")

    def _summary_of(self, event: Event) -> str:
        from prep_assets.engine.events import Accepted

        assert isinstance(event, Accepted)
        counts = event.published.manifest.counts
        rows = counts.get("rows", counts.get("kept"))
        figures = [counted(rows, "row" if "rows" in counts else "record")] if rows is not None else []
        figures += [counted(counts["tokens"], "token")] if "tokens" in counts else []
        refused = sum(counts.get("refused", {}).values())
        figures += [f"{refused:,} refused"] if refused else []
        outcome = "draft" if event.draft else "sound as it was" if event.published.reused else f"built in {event.seconds:.1f} s"
        return ", ".join([outcome, *figures])

    def _show(self, what: str, done: int = 0, total: int | None = None) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, visible=True)

    def _line(self, mark: str, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble((mark, style), f" {text}"))


# A row of tokens on a terminal: trained tokens bold green, masked ones dim, unattended ones struck through, a bar at the start of a document.
#
# Without colour, trained tokens are in ⟦ ⟧, unattended ones in ⟪ ⟫. White space and control characters are made visible, so that text from a data set
# cannot steer the terminal.

TRAINED, MASKED, UNATTENDED, BORDER = "bold green", "dim", "dim strike", "cyan"
OPEN, CLOSE, HIDE, SHOW, BAR = "⟦", "⟧", "⟪", "⟫", "│"
_BYTES = re.compile(r"(?:⟨[89a-f][0-9a-f]⟩)+")
_NO_BRACKETS = str.maketrans("", "", "⟨⟩")


def joined(tokens: Sequence[str]) -> str:
    """Join the texts of tokens; bytes shown as ``⟨f0⟩`` become characters again where tokens split one."""
    return _BYTES.sub(_character, "".join(tokens))


def _character(shown: re.Match[str]) -> str:
    text = bytes.fromhex(shown[0].translate(_NO_BRACKETS)).decode("utf-8", "surrogateescape")
    return "".join(f"⟨{ord(char) - 0xDC00:02x}⟩" if 0xDC80 <= ord(char) <= 0xDCFF else char for char in text)


def runs(weights: Sequence[float], count: int, borders: Mapping[int, str]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, state) of stretches of one state without a border inside: trained (1), masked (0) or unattended (-1).

    Without `weights` all is masked.
    """
    start = 0
    for i in range(1, count + 1):
        if i == count or i in borders or _state(weights, i) != _state(weights, start):
            yield start, i, _state(weights, start)
            start = i


def _state(weights: Sequence[float], at: int) -> int:
    return (weights[at] > 0) - (weights[at] < 0) if weights else 0


def _styled(shown: str, state: int, *, masked: bool, colour: bool) -> tuple[str, str]:
    """Text and style of a stretch of tokens."""
    style = {1: TRAINED, 0: MASKED if masked else "", -1: UNATTENDED}[state]
    opening, closing = ("", "") if colour else {1: (OPEN, CLOSE), 0: ("", ""), -1: (HIDE, SHOW)}[state]
    return f"{opening}{shown}{closing}", style


def flowing(tokens: Sequence[str], weights: Sequence[float], borders: Mapping[int, str], *, colour: bool) -> Text:
    """The tokens as running text.

    Args:
        weights: loss weights, below 0 where a token is not attended; empty without a mask, and then no token is dim.
        borders: first token of a document → its heading.
        colour: mark trained tokens by colour, else by brackets.
    """
    text = Text()
    for start, end, state in runs(weights, len(tokens), borders):
        if start in borders:
            text.append("" if not text or text.plain.endswith("\n") else "\n")
            text.append(f"{BAR} {visible(borders[start])}\n", BORDER)
        text.append(*_styled(visible(joined(tokens[start:end])), state, masked=bool(weights), colour=colour))
    return text


def listed(
    tokens: Sequence[str],
    weights: Sequence[float],
    positions: Sequence[int],
    ids: Sequence[int],
    borders: Mapping[int, str],
    *,
    colour: bool,
) -> Text:
    """One token per line: index in the row, position in the document, id, loss weight, text."""
    text = Text(f"{'place':>7}{'position':>10}{'id':>9}{'weight':>8}  token\n", "bold")
    for i, token in enumerate(tokens):
        if i in borders:
            text.append(f"{BAR} {visible(borders[i])}\n", BORDER)
        state = _state(weights, i)
        weight = "hidden" if state < 0 else f"{weights[i]:g}" if weights else ""
        shown = visible(token).replace(NEWLINE, "⏎")
        text.append(f"{i:>7}{positions[i]:>10}{ids[i]:>9}{weight:>8}  ")
        text.append(*_styled(shown, state, masked=bool(weights), colour=colour))
        text.append("\n")
    return text


def texts_of(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    """The texts of ids, as `token_texts`; a number for ids outside the vocabulary, as in a damaged store."""
    from prep_assets.graph.previews import token_texts

    known = [token for token in ids if 0 <= token < vocabulary.size]
    texts = iter(token_texts(vocabulary, known))
    return tuple(next(texts) if 0 <= token < vocabulary.size else f"⟨no token {token}⟩" for token in ids)


# The stores that arguments of commands name.

AssetName = Annotated[str, typer.Argument(metavar="ASSET", show_default=False, help="An asset, e.g. sft_packed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Partition = Annotated[
    str | None, typer.Option("--partition", "-p", metavar="P", help="A domain, for an asset that has one store for each.")
]

Stream = Annotated[
    str | None, typer.Option("--stream", "-s", metavar="S", help="Which stream, table or file of the store, where it has several.")
]
Draft = Annotated[bool, typer.Option("--draft", help="The last store that options of one run gave, instead of the current one.")]


def opened() -> Workspace:
    """Open the workspace of the environment variables, or of the working directory."""
    from prep_assets.pipeline.workspace import Workspace

    return Workspace.open()


def one_store(workspace: Workspace, name: str, partition: str | None) -> Published:
    """The current store of an asset and partition; the partition may be omitted where there is only one.

    Raises:
        ConfigError: no such asset or partition, or several partitions to choose from.
        StoreError: it is not built; the message has the command that builds it.
    """
    from prep_assets.graph.graph import one_partition
    from prep_assets.pipeline.workspace import build_command
    from prep_assets.stores.published import open_published

    asset, key = one_partition(workspace, name, partition)
    return open_published(workspace.stores, asset.name, key, remedy=build_command(asset.name, key))


def stores_of(workspace: Workspace, name: str, partition: str | None) -> tuple[list[Published], list[str]]:
    """The current stores of an asset, and the labels of missing ones.

    Raises:
        ConfigError: no such asset or partition.
        StoreError: none of them is built; the message has the command that builds them.
    """
    from prep_assets.graph.graph import asset_and_partitions

    asset, partitions = asset_and_partitions(workspace, name, partition)
    stores, missing = [], []
    for key in partitions:
        published = workspace.published(asset.name, key)
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
    from prep_assets.graph.graph import asset_and_partitions

    if name is None and partition is not None:
        raise ConfigError(f"--partition {partition} of which asset? Name it: ASSET --partition {partition}")
    names = [name] if name else [asset.name for asset in configured(workspace)]
    selections = [asset_and_partitions(workspace, asset_name, partition) for asset_name in names]
    return [(asset.name, key) for asset, partitions in selections for key in partitions]


def built(workspace: Workspace) -> dict[str, list[Published]]:
    """Asset → current stores, in the order of the graph.

    Raises:
        StoreError: no store is built.
    """
    stores = every_store(workspace)
    if not stores:
        raise StoreError(f"no store in {workspace.where}. Build with:\n  prep-assets build --all")
    return stores


def every_store(workspace: Workspace) -> dict[str, list[Published]]:
    """Asset → current stores, in the order of the graph; empty where none is built."""
    by_asset = {
        asset.name: [workspace.published(asset.name, partition) for partition in asset.partitions(workspace)]
        for asset in configured(workspace)
    }
    stores = {name: [store for store in published if store is not None] for name, published in by_asset.items()}
    return {name: published for name, published in stores.items() if published}


def build_commands(stores: Sequence[tuple[str, str]]) -> str:
    """The build commands of stores, one indented line each."""
    from prep_assets.pipeline.workspace import build_command

    return "\n".join(f"  {build_command(asset, partition)}" for asset, partition in stores)


def configured(workspace: Workspace, faults: list[str] | None = None) -> list[Asset]:
    """The assets of families with a configuration file, in the order of the graph.

    Args:
        faults: collects the errors of families, which are then left out; without it, the first error is raised.
    """
    from prep_assets.config.models import FAMILIES
    from prep_assets.graph.graph import family_assets

    assets: list[Asset] = []
    for family in filter(workspace.has, FAMILIES):
        try:
            assets += family_assets(workspace, family).values()
        except PrepAssetsError as error:
            if faults is None:
                raise
            faults.append(str(error))
    return assets


def first_rows(files: Sequence[SourceFile], count: int) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """(id, payload) of the first readable rows, and the faults of unreadable rows among them."""
    from prep_assets.data.files import record_id
    from prep_assets.data.read import read_blocks

    rows: list[tuple[str, dict[str, Any]]] = []
    unreadable: list[str] = []
    for index, file in enumerate(files):
        for block in read_blocks(file, index, block_bytes=1 << 20):
            rows += [(record_id(file, record.row), dict(record.payload)) for record in block.records[: count - len(rows)]]
            unreadable += [f"{file.name}:{row.row} {row.reason}: {row.detail}" for row in block.unreadable]
            if len(rows) >= count:
                return rows, unreadable
    return rows, unreadable


@contextmanager
def reading(published: Published) -> Iterator[None]:
    """Turn errors of reading a payload into `StoreError`.

    Raises:
        StoreError: in place of errors of h5py, numpy or json on damaged files, and of readers, with the command that verifies the store.
    """
    try:
        yield
    except StoreError as error:
        if "prep-assets build" in str(error):  # it has a remedy already
            raise
        raise StoreError(f"{error}. See what is wrong with it:\n  {_verify_command(published)}") from error
    except PrepAssetsError:
        raise
    except (OSError, ValueError, LookupError, RuntimeError, EOFError) as error:
        message = f"{published.manifest.label} in {published.where} cannot be read ({type(error).__name__}: {error})"
        raise StoreError(f"{message}. See what is wrong with it:\n  {_verify_command(published)}") from error


def _verify_command(published: Published) -> str:
    manifest = published.manifest
    return f"prep-assets verify {manifest.asset}" + (f" -p {manifest.partition}" if manifest.partition else "")
