"""The terminal: where commands write, how rows of tokens are shown, and which stores a command is about."""

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

# Where the commands write: results to stdout, everything else to stderr.

PIPED_WIDTH = 160
"""Columns of a table that is written to a file or a pipe, which have no width of their own."""


def out() -> Console:
    """Stdout."""
    return _console(stderr=False)


def err() -> Console:
    """Stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # what is printed comes from data sets and file names, in which [x] and :x: are plain text
    # a line is never folded, so that a path or a command in it can be copied; tables fold their columns by themselves
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def has_colour(console: Console) -> bool:
    """Whether colour reaches the reader: a terminal that has it, and no ``NO_COLOR``."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def print_json(value: Any) -> None:
    """A value as JSON on stdout."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def complain(message: str) -> None:
    """An error, in red on stderr."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), (message, "red")))


def table(*headings: str, rows: Iterable[Sequence[RenderableType]] = (), numbers: tuple[str, ...] = (), title: str | None = None) -> Table:
    """A table; the columns named in `numbers` are aligned to the right, and no column is cut short."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def number(value: object) -> str:
    """A figure as a person reads it: thousands separated, fractions to four digits; nothing for `None`."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def counted(count: int, thing: str) -> str:
    """``1 store``, ``2 stores``."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """A number of bytes in the largest unit that leaves a digit before the point."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:,.1f} {units[0]}" if units[0] != "B" else f"{count} B"


def near(path: Path) -> str:
    """A path as seen from the working directory, where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def near_url(url: str) -> str:
    """The place of a file: a path as `near`, any other address as it is."""
    return url if "://" in url else near(Path(url))


def bar(*more: ProgressColumn) -> Progress:
    """A bar on stderr, with columns beside it; nothing where stderr is not a terminal."""
    return _bar(err(), *more)


def _bar(console: Console, *more: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *more, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class Live:
    """Is called with each event of the engine; prints lines, and shows a bar while it is open."""

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
                self._planned(steps)
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
            case Accepted(step, _, verdicts):
                if step.why:
                    self._line("✓", f"{step.label}: {self._accepted(event)}, {counted(len(verdicts), 'check')} hold", "green")
                elif step.requested:
                    self._line("✓", f"{step.label} is up to date: nothing to do", "green")
            case Refused(step):
                self._line("✗", f"{step.label} is not published", "bold red")
            case Skipped(step, because):
                self._line("-", f"{step.label} is not built, because {because.label} is not", "dim")

    def _planned(self, steps: tuple[Step, ...]) -> None:
        wanted = [step for step in steps if step.why]
        if len(wanted) > 1:
            self._console.print(f"{counted(len(wanted), 'store')} to build", style="dim")

    def _accepted(self, event: Event) -> str:
        from prep_assets.engine.events import Accepted

        assert isinstance(event, Accepted)
        counts = event.published.manifest.counts
        rows = counts.get("rows", counts.get("kept"))
        figures = [counted(rows, "row" if "rows" in counts else "record")] if rows is not None else []
        figures += [counted(counts["tokens"], "token")] if "tokens" in counts else []
        refused = sum(counts.get("refused", {}).values())
        figures += [f"{refused:,} refused"] if refused else []
        what = "draft" if event.draft else "sound as it was" if event.published.reused else f"built in {event.seconds:.1f} s"
        return ", ".join([what, *figures])

    def _show(self, what: str, done: int = 0, total: int | None = None) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, visible=True)

    def _line(self, mark: str, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble((mark, style), f" {text}"))


# A row of tokens on a terminal: trained ones bold and green, masked ones dim, those that are not attended struck through, a bar where a document begins.
#
# Where there is no colour, trained tokens stand in ⟦ ⟧, those that are not attended in ⟪ ⟫. White space that could be overlooked and control characters are
# made visible; so text from a data set cannot steer the terminal.

TRAINED, MASKED, UNATTENDED, BORDER = "bold green", "dim", "dim strike", "cyan"
OPEN, CLOSE, HIDE, SHOW, BAR = "⟦", "⟧", "⟪", "⟫", "│"
_BYTES = re.compile(r"(?:⟨[89a-f][0-9a-f]⟩)+")
_NO_BRACKETS = str.maketrans("", "", "⟨⟩")


def joined(tokens: Sequence[str]) -> str:
    """The tokens' texts end to end; the bytes of a character that lies in several tokens, each shown as ``⟨f0⟩``, become that character."""
    return _BYTES.sub(_character, "".join(tokens))


def _character(shown: re.Match[str]) -> str:
    text = bytes.fromhex(shown[0].translate(_NO_BRACKETS)).decode("utf-8", "surrogateescape")
    return "".join(f"⟨{ord(char) - 0xDC00:02x}⟩" if 0xDC80 <= ord(char) <= 0xDCFF else char for char in text)


def runs(weights: Sequence[float], count: int, borders: Mapping[int, str]) -> Iterator[tuple[int, int, int]]:
    """First and last-plus-one token of each stretch that has no border inside and is throughout trained (1), masked (0) or not attended (-1).

    `weights` may be empty: then nothing has a mask and every stretch counts as masked.
    """
    start = 0
    for i in range(1, count + 1):
        if i == count or i in borders or _state(weights, i) != _state(weights, start):
            yield start, i, _state(weights, start)
            start = i


def _state(weights: Sequence[float], at: int) -> int:
    return (weights[at] > 0) - (weights[at] < 0) if weights else 0


def _styled(shown: str, state: int, *, masked: bool, colour: bool) -> tuple[str, str]:
    """What is shown of tokens, and its style."""
    style = {1: TRAINED, 0: MASKED if masked else "", -1: UNATTENDED}[state]
    opening, closing = ("", "") if colour else {1: (OPEN, CLOSE), 0: ("", ""), -1: (HIDE, SHOW)}[state]
    return f"{opening}{shown}{closing}", style


def flowing(tokens: Sequence[str], weights: Sequence[float], borders: Mapping[int, str], *, colour: bool) -> Text:
    """The tokens as running text.

    Args:
        weights: loss weight of each token, below 0 where it is not attended; empty without a mask, and then nothing is dim either.
        borders: what to write where a document begins, by its first token.
        colour: whether colour marks what is trained, else brackets do.
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
    """One token a line: its place in the row, its position in its document, its id, its loss weight, its text."""
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
    """The text of each id, as `token_texts`; an id that is outside the vocabulary, as in a damaged store, is shown as a number."""
    from prep_assets.graph.previews import token_texts

    known = [token for token in ids if 0 <= token < vocabulary.size]
    texts = iter(token_texts(vocabulary, known))
    return tuple(next(texts) if 0 <= token < vocabulary.size else f"⟨no token {token}⟩" for token in ids)


# Which stores a command is about.

AssetName = Annotated[str, typer.Argument(metavar="ASSET", show_default=False, help="An asset, e.g. sft_packed.")]
Partition = Annotated[
    str | None, typer.Option("--partition", "-p", metavar="P", help="A domain, for an asset that has one store for each.")
]

Stream = Annotated[
    str | None, typer.Option("--stream", "-s", metavar="S", help="Which stream, table or file of the store, where it has several.")
]
Draft = Annotated[bool, typer.Option("--draft", help="The last store that options of one run gave, instead of the current one.")]


def opened() -> Workspace:
    """The workspace that the environment names, or that of this folder."""
    from prep_assets.pipeline.workspace import Workspace

    return Workspace.open()


def one_store(workspace: Workspace, name: str, partition: str | None) -> Published:
    """The one store that an asset and a partition name; a partition may be left out where there is only one.

    Raises:
        ConfigError: no such asset or partition, or a choice among several is needed.
        StoreError: it is not built; the message has the command that builds it.
    """
    from prep_assets.graph.graph import one_partition
    from prep_assets.pipeline.workspace import build_command
    from prep_assets.stores.published import open_published

    asset, each = one_partition(workspace, name, partition)
    return open_published(workspace.stores, asset.name, each, remedy=build_command(asset.name, each))


def stores_of(workspace: Workspace, name: str, partition: str | None) -> tuple[list[Published], list[str]]:
    """The stores of an asset, and the labels of those that are not built.

    Raises:
        ConfigError: no such asset or partition.
        StoreError: none of them is built; the message has the command that builds them.
    """
    from prep_assets.graph.graph import asset_and_partitions

    asset, partitions = asset_and_partitions(workspace, name, partition)
    found, missing = [], []
    for each in partitions:
        published = workspace.published(asset.name, each)
        if published is None:
            missing.append(workspace.place(asset.name, each).label)
        else:
            found.append(published)
    if not found:
        remedy = build_commands([(asset.name, each) for each in partitions])
        raise StoreError(f"{', '.join(missing)}: no store in {workspace.where}. Build with:\n{remedy}")
    return found, missing


def named_stores(workspace: Workspace, name: str | None, partition: str | None) -> list[tuple[str, str]]:
    """Asset and partition of each store that a command is about, built or not: those of one asset, or of all that are configured.

    Raises:
        ConfigError: no such asset or partition, or a partition of no asset.
    """
    from prep_assets.graph.graph import asset_and_partitions

    if name is None and partition is not None:
        raise ConfigError(f"--partition {partition} of which asset? Name it: ASSET --partition {partition}")
    names = [name] if name else [asset.name for asset in configured(workspace)]
    found = [asset_and_partitions(workspace, each, partition) for each in names]
    return [(asset.name, each) for asset, partitions in found for each in partitions]


def built(workspace: Workspace) -> dict[str, list[Published]]:
    """The stores of every asset that has any, in the order of the graph.

    Raises:
        StoreError: there is none.
    """
    stores = every_store(workspace)
    if not stores:
        raise StoreError(f"no store in {workspace.where}. Build with:\n  prep-assets build --all")
    return stores


def every_store(workspace: Workspace) -> dict[str, list[Published]]:
    """The same, where there may be none."""
    found = {asset.name: [workspace.published(asset.name, each) for each in asset.partitions(workspace)] for asset in configured(workspace)}
    stores = {name: [each for each in every if each is not None] for name, every in found.items()}
    return {name: every for name, every in stores.items() if every}


def build_commands(stores: Sequence[tuple[str, str]]) -> str:
    """The command that builds each asset and partition, indented, one a line."""
    from prep_assets.pipeline.workspace import build_command

    return "\n".join(f"  {build_command(asset, partition)}" for asset, partition in stores)


def configured(workspace: Workspace, faults: list[str] | None = None) -> list[Asset]:
    """Every asset whose family has a configuration file, in the order of the graph.

    Args:
        faults: collects what is wrong with a family, which is then left out; without this list, the first fault is raised.
    """
    from prep_assets.config.models import FAMILIES
    from prep_assets.graph.graph import family_assets

    found: list[Asset] = []
    for family in filter(workspace.has, FAMILIES):
        try:
            found += family_assets(workspace, family).values()
        except PrepAssetsError as error:
            if faults is None:
                raise
            faults.append(str(error))
    return found


def first_rows(files: Sequence[SourceFile], count: int) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """Id and payload of the first readable rows, and what is wrong with the unreadable ones between them."""
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
    """Whatever goes wrong while a payload is read is about the payload.

    Raises:
        StoreError: in place of what h5py, numpy or json raise on damaged files, and of what readers say, with the command that looks into it.
    """
    try:
        yield
    except StoreError as error:
        if "prep-assets build" in str(error):  # it says already what to do
            raise
        raise StoreError(f"{error}. See what is wrong with it:\n  {_verify_command(published)}") from error
    except PrepAssetsError:
        raise
    except (OSError, ValueError, LookupError, RuntimeError, EOFError) as error:
        what = f"{published.manifest.label} in {published.where} cannot be read ({type(error).__name__}: {error})"
        raise StoreError(f"{what}. See what is wrong with it:\n  {_verify_command(published)}") from error


def _verify_command(published: Published) -> str:
    manifest = published.manifest
    return f"prep-assets verify {manifest.asset}" + (f" -p {manifest.partition}" if manifest.partition else "")
