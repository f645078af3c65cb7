"""Output of commands on the terminal or as JSON, rows of tokens as text, and the arguments and options that several commands have."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from msgspec import Struct, to_builtins
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from prep_assets.config.loading import read_yaml
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, nearest
from prep_assets.text.visible import NEWLINE, SIGNS, visible

# Consoles: results go to stdout, everything else to stderr.

PIPED_WIDTH = 160
"""Width in columns of tables written to a file or a pipe."""


def out() -> Console:
    """Stdout."""
    return _console(stderr=False)


def err() -> Console:
    """Stderr."""
    return _console(stderr=True)


class _SafeConsole(Console):
    """A console on which names of files and texts of data sets cannot steer the terminal: their control characters are visible."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Give the segments of a renderable."""
        for segment in super().render(renderable, options):
            is_safe = segment.control or segment.text.isprintable()
            yield segment if is_safe else Segment(safe(segment.text), segment.style)


def safe(text: str) -> str:
    """Text with visible control characters; line breaks and tabs stay."""
    return text.translate(_CONTROLS)


_CONTROLS = {code: sign for code, sign in SIGNS.items() if chr(code) not in "\n\t"}


def _console(*, stderr: bool) -> Console:
    # no markup: in data sets and file names [x] and :x: are plain text
    # soft wrap: paths and commands stay on one line to be copied; tables fold their own columns
    console = _SafeConsole(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def has_colour(console: Console) -> bool:
    """Whether a console shows colour: a terminal with colours, and no ``NO_COLOR``."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """A value as JSON, with escapes for characters that could steer the terminal."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=str).translate(_ESCAPES)


_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in SIGNS if code >= 0x7F} | {0x7F: "\\u007f"}


def complain(message: str) -> None:
    """Print an error in red on stderr."""
    err().print(Text.assemble(("error: ", "bold red"), (message, "red")))


def table(*headings: str, rows: Iterable[Sequence[RenderableType]] = (), numbers: tuple[str, ...] = (), title: str | None = None) -> Table:
    """A table; columns named in `numbers` are right-aligned, and long cells fold."""
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


def bar(*extra_columns: ProgressColumn, console: Console | None = None) -> Progress:
    """A progress bar with extra columns, and the time that is left, by default on stderr; hidden where a stream is not a terminal, and where ``CI`` is set."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *extra_columns, TimeElapsedColumn(), TimeRemainingColumn())
    console = console or err()
    seen = console.is_terminal and out().is_terminal and not os.environ.get("CI")
    return Progress(*columns, console=console, transient=True, disable=not seen)


# What a command found, for people or for programs.


class Answer(Struct, frozen=True):
    """What a command found.

    Attributes:
        facts: what ``--json`` prints.
        show: prints them for people.
        exit_code: of the command.
    """

    facts: Any
    show: Callable[[Console], None]
    exit_code: int = 0


AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def with_json(command: Callable[..., Answer]) -> Callable[..., None]:
    """A command with ``--json``, which prints its facts as one JSON value. It is told `as_json` where it has to know."""
    takes = inspect.signature(command, eval_str=True).parameters

    @wraps(command)
    def run(as_json: bool, **options: Any) -> None:
        answer = command(**options, **({"as_json": as_json} if "as_json" in takes else {}))
        if as_json:
            print_json(to_builtins(answer.facts, str_keys=True))
        else:
            answer.show(out())
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    last = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    run.__signature__ = inspect.Signature([*(each for name, each in takes.items() if name != "as_json"), last])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "as_json": AsJson, "return": None}
    return run


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


# Arguments and options that several commands have.

AssetName = Annotated[str, typer.Argument(metavar="ASSET", help="An asset, e.g. sft_packed.")]
AnyAsset = Annotated[str | None, typer.Argument(metavar="[ASSET]", help="An asset. Default: all.")]
Partition = Annotated[str | None, typer.Option("--partition", "-p", metavar="P", help="A domain, if the asset has one store per domain.")]

Stream = Annotated[str | None, typer.Option("--stream", "-s", metavar="S", help="The stream, table or file, if the store has several.")]
Draft = Annotated[bool, typer.Option("--draft", help="The draft, instead of the current store.")]


def options_of_run(words: Iterable[str], families: Collection[str]) -> dict[str, dict[str, Any]]:
    """Family → nested options, from words such as ``sft.packing.row_len=2048``. The family may be left out where only one is possible.

    Args:
        families: the families that the options may belong to.
    """
    options: dict[str, dict[str, Any]] = {}
    for word in words:
        family, _, rest = word.partition(".")
        if family in FAMILIES and "=" not in family:
            if family not in families:
                raise ConfigError(f"--set {word}: is of family {family}, not of {', '.join(families)}")
            _put_option(options.setdefault(family, {}), rest, word)
        elif len(families) == 1:
            _put_option(options.setdefault(next(iter(families)), {}), word, word)
        else:
            known = f"{nearest(family, families) or '.'} There are: {', '.join(families)}"
            raise ConfigError(f"--set {word}: name the family first, e.g. {next(iter(families))}.{word}{known}")
    return options


def _put_option(options: dict[str, Any], text: str, word: str) -> None:
    """Add ``packing.row_len=2048`` to nested options; the value is read as YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {word}: needs the form KEY=VALUE, e.g. packing.row_len=2048")
    *above, last = key.split(".")
    for part in above:
        options = options.setdefault(part, {})
    try:
        options[last] = read_yaml(value)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--set {word}: the value is not YAML: {error}") from error
