"""`prep-assets init` and `demo`, which build something to look at, and `json-schema`, what an editor needs to know of configuration files."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from msgspec import Struct, structs
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from prep_assets import row
from prep_assets.cli import terminal
from prep_assets.cli.stores import Live, reading
from prep_assets.config.family import Chat
from prep_assets.config.loading import checkout, config_dir, load_family, store_dir
from prep_assets.config.models import FAMILIES, TRAINED, Sft
from prep_assets.data.files import find_files
from prep_assets.engine import build as build_assets
from prep_assets.errors import ConfigError, LoadersDiffer, PrepAssetsError, SourceError, TemplateError, nearest, require_known
from prep_assets.extensions.explain.figures import refused_counts, shares
from prep_assets.extensions.start.editor import json_schema as described
from prep_assets.extensions.start.editor import schemas_of
from prep_assets.extensions.start.launch import LOOPS, READERS, TORCH, TRAINERS
from prep_assets.extensions.start.schemas import fits_of, left_out, not_read
from prep_assets.extensions.start.sniff import Fit, known_form, specialty
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import DOCUMENT, Contrast, Group, Pair, Prompt, Sample
from prep_assets.schemas.reader import in_one_line
from prep_assets.schemas.registry import Schema
from prep_assets.stores.remote import local_root
from prep_assets.stores.version_folders import Published

SNIFFED = 100
"""Rows of each file that decide its schema."""
SMALL = 64 << 20
"""Bytes of files that `init` builds at once."""
EDITOR = ".schemas"
"""The folder of JSON Schema files beside the configuration."""


class Start(Struct, frozen=True):
    """A family as `init` begins it.

    Attributes:
        makes: the asset that is built and shown.
        what: what is trained, in words.
        lines: the options of the file, commented.
    """

    makes: str
    what: str
    lines: str


_CHAT = "template: {template}           # the tokenizer's own chat template, a shipped one (prep-assets certify), or a .jinja file\n"
_OWN: dict[str, Start] = {
    "pretrain": Start(
        "pretrain_tokens", "documents, every token", "append_eod: true               # each document ends with the end-of-text token\n"
    ),
    "sft": Start(
        "sft_packed",
        "answers of chats and instructions",
        _CHAT
        + "mask: {{assistant: train, completion: train}}   # what is trained, by role; all else is masked\n"
        + "preprocessing: {{max_seq_len: {row_len}, deduplicate: true}}\n"
        + "truncation: drop               # an example that is longer: reject it, or cut it (start, end, turns, prompt)\n"
        + "packing: {{strategy: bfd, row_len: {row_len}}}   # documents are never cut; see docs/packing.md\n",
    ),
    "preference": Start(
        "preferences",
        "pairs of a better and a worse answer",
        _CHAT + "test_fraction: 0.05            # pairs held out, by hash of the prompt\n",
    ),
    "rl": Start("rl_prompts", "prompts with a known answer", _CHAT),
}


def _start(family: str) -> Start:
    """That of a family without an own one: its last asset, what its model says of itself, and the template if it renders chats."""
    model, last = FAMILIES[family], [asset.name for asset in ASSETS.values() if asset.family == family][-1]
    return Start(last, str(model.__doc__).partition(": ")[2].strip().rstrip("."), _CHAT if issubclass(model, Chat) else "")


STARTS = {family: _OWN.get(family) or _start(family) for family in TRAINED}


ALSO = {"dpo": "preference", "kto": "preference", "grpo": "rl", "rlvr": "rl", "ppo": "rl"}
"""Names of trainings → the family that holds their data."""


def init(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE]…", help="Files, globs, URLs or hub addresses.")] = None,
    tokenizer: Annotated[str | None, typer.Option("--tokenizer", "-t", help="A tokenizer's directory, or NAME@COMMIT of the hub.")] = None,
    train: Annotated[str | None, typer.Option("--train", help=f"What is trained: {', '.join(STARTS)}.")] = None,
    trainer: Annotated[
        str | None,
        typer.Option("--for", metavar="TRAINER", help=f"Who reads it: {', '.join(READERS)}, or none.", autocompletion=lambda: [*READERS]),
    ] = None,
    template: Annotated[str, typer.Option("--template", help="The chat template.")] = "tokenizer",
    loader: Annotated[
        str | None, typer.Option("--tokenizer-loader", metavar="LOADER", help="file or transformers, if the two give different ids.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="FIELD", help="A field to leave out, as no schema reads it; may be repeated.")
    ] = None,
    row_len: Annotated[int, typer.Option("--row-len", min=2, help="Tokens of a packed row.")] = 2048,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the configuration.")] = Path("configs"),
    build: Annotated[bool, typer.Option("--build/--no-build", help="Build small files at once, and show the first row.")] = True,
) -> None:
    def sniffed(words: str) -> dict[str, list[Fit]]:
        return {address: _sniffed(address) for address in words.split()}

    fits = (
        {address: _sniffed(address) for address in files}
        if files
        else _ask("FILE", "Which files? (paths, globs, URLs or hub:// addresses, separated by spaces)", sniffed)
    )
    train = _family(train) if train else _ask("--train", f"What do you train? ({', '.join(STARTS)})", _family, _likely(fits))
    path = out / f"{train}.yaml"
    if path.exists():
        raise ConfigError(
            f"{path} is there already. Add domains to it (prep-assets sniff FILE prints them), or name another folder with --out"
        )
    tokenizer = tokenizer or _ask("--tokenizer", "Which tokenizer? (a directory, or NAME@COMMIT of the hub)", str)
    if trainer is None:
        trainer = _ask("--for", f"Who reads it? ({', '.join(READERS)}, none)", _trainer, "none") if sys.stdin.isatty() else "none"
    chosen = Chosen(train, tokenizer, template, loader, row_len, _trainer(trainer), out)
    domains = _domains(fits, train, out, ignore or ())
    chosen = _probed(chosen, domains)
    written = [folder for folder in (out, out / EDITOR) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    _write_schema(train, out / EDITOR)
    path.write_text(_text(chosen, domains), "utf-8")
    console = terminal.out()
    console.print(f"{path}: {terminal.counted(len(domains), 'domain')}", style="bold")
    for name, (domain, fit) in domains.items():
        options = f" with {in_one_line(domain['options'])}" if "options" in domain else ""
        console.print(
            f"  {name}: {fit.schema}{options}, {fit.fitting:,} of the first {fit.rows:,} rows fit"
            + (f"; not: {fit.refusal[:160]}" if fit.refusal else "")
        )
        for line in fit.left_out and left_out(fit):
            console.print(f"  {name}: {line}", style="yellow")
        if unit := domain.get("txt"):
            what = "each file is one record" if fit.txt else f"each {unit} of a .txt file is one document"
            console.print(f"  {name}: {what} (txt: {unit})")
        for line in not_read(domain["files"], out):
            console.print(f"  {name}: {line}", style="yellow")
    is_scored = train == "rl" and all(isinstance(fit.example, Group) for _, fit in domains.values())
    makes = "rl_groups" if is_scored else STARTS[train].makes
    size = sum(file.size or SMALL for address in fits for file in find_files([address], Path.cwd()))
    if not build or size >= SMALL:
        console.print(f"next: {_command(out)} build {makes}")
        return
    try:
        _build(out, makes)
        if trainer == TORCH:
            console.print(f"a training loop: {_command(out)} launch-snippet --trainer torch {makes}")
    except PrepAssetsError as error:
        path.unlink()
        for folder in reversed(written):
            shutil.rmtree(folder)
        raise type(error)(f"{error}\n{path} is removed again, so that init can be run once more") from error


T = TypeVar("T")


def _ask(option: str, question: str, read: Callable[[str], T], default: str | None = None) -> T:
    """Ask on the terminal until the answer can be read.

    Raises:
        ConfigError: stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"{option} is required when stdin is not a terminal. See prep-assets init --help")
    while True:
        try:
            return read(typer.prompt(question, default=default))
        except PrepAssetsError as error:
            terminal.err().print(str(error), style="yellow")


def _family(name: str) -> str:
    family = ALSO.get(name, name)
    if family not in STARTS:
        raise ConfigError(f"--train {name!r} is not one of {', '.join(STARTS)}{nearest(name, STARTS)}")
    return family


def _trainer(name: str) -> str:
    require_known("no trainer", name, (*READERS, "none"))
    return name


def _likely(fits: Mapping[str, Sequence[Fit]]) -> str:
    """Return the family that the rows of all files fit."""
    likely = set[str]()
    for found in fits.values():
        example = next((fit.example for fit in found if not specialty(fit.schema)), None)
        likely.add("pretrain" if _is_document(example) else KINDS.get(type(example), "sft"))
    return likely.pop() if len(likely) == 1 else "sft"


def _sniffed(address: str) -> list[Fit]:
    """The schemas that fit the first rows of a file, best first."""
    payloads, unreadable, fits = fits_of(find_files([address], Path.cwd()), SNIFFED)
    if not payloads:
        raise SourceError(f"{address}: no readable row{f'; the first: {unreadable[0]}' if unreadable else ''}")
    if form := known_form(payloads):
        raise SourceError(f"{address} is {form}")
    return [fit for fit in fits if fit.fitting]


def _fitting(fits: Sequence[Fit], family: str) -> Fit | None:
    """The best schema of those that a family takes; none that is for a special purpose, as rows do not say whether it is meant."""
    known = schemas_of(family)
    return next(
        (fit for fit in fits if fit.schema in known and not specialty(fit.schema) and _is_for(known[fit.schema], fit, family)), None
    )


def _is_document(example: object) -> bool:
    """Whether an example has no answer that could be trained."""
    return isinstance(example, Sample) and all(turn.role == DOCUMENT for turn in example.turns)


def _is_for(schema: Schema, fit: Fit, family: str) -> bool:
    """Whether the examples of a fit are what a family holds."""
    if isinstance(fit.example, Sample):
        return family == "pretrain" or (family == "sft" and not _is_document(fit.example)) or (family == "preference" and schema.labels)
    return KINDS.get(type(fit.example)) == family


KINDS: dict[type, str] = {Pair: "preference", Prompt: "rl", Group: "rl", Contrast: "contrastive"}
"""Type of an example → the family that holds it."""


Domains = dict[str, tuple[dict[str, Any], Fit]]


def _domains(fits: Mapping[str, Sequence[Fit]], family: str, out: Path, ignore: Sequence[str]) -> Domains:
    """A domain for each file, called as it is.

    Raises:
        ConfigError: no schema fits, or a field would be left out that nobody has agreed to leave out.
    """
    domains: Domains = {}
    for address, found in fits.items():
        if (fit := _fitting(found, family)) is None:
            others = ", ".join(f"{fit.schema} (--train {other})" for other in TRAINED if (fit := _fitting(found, other))) or "none"
            raise ConfigError(
                f"{address}: no schema of {family} fits its rows; of other families these do: {others}. See prep-assets sniff {address}, or "
                "write your own: docs/add-a-data-set.md"
            )
        _leave_out(address, fit, ignore)
        stem = domain_of_address(address)
        name = next(candidate for candidate in (stem, *(f"{stem}_{number}" for number in range(2, 10_000))) if candidate not in domains)
        local = "://" not in address and not Path(address).expanduser().is_absolute()
        domain = {"files": [os.path.relpath(address, out) if local else address], "schema": fit.schema}
        if fit.txt:
            domain["txt"] = fit.txt
        elif any(file.format == "txt" for file in find_files([address], Path.cwd())):
            question = f"{address}: is a line or a whole .txt file one document? (line, file)"
            domain["txt"] = _ask("txt", question, _unit, "line") if sys.stdin.isatty() else "line"
        optional = {"options": dict(fit.options), "ignore": [*fit.unread, *fit.ignore]}
        domains[name] = (domain | {key: value for key, value in optional.items() if value}, fit)
    return domains


def domain_of_address(address: str) -> str:
    """The name of a domain: the file's, folder's or hub data set's, without suffix and commit."""
    place = re.sub(r"@[^/]*", "", address) if address.startswith("hub://") else address
    return re.sub(r"[^A-Za-z0-9_-]+", "_", re.split(r"[.*?]", place.rstrip("/").rpartition("/")[2])[0]).strip("_-") or "data"


def _unit(answer: str) -> str:
    require_known("no unit of documents", answer, ("line", "file"))
    return answer


def _leave_out(address: str, fit: Fit, ignore: Sequence[str]) -> None:
    """Ask for each field that no option reads whether it is left out.

    Raises:
        ConfigError: one is not to be left out, or stdin is not a terminal.
    """
    asked = [path for path in fit.left_out if path not in ignore]
    if not asked:
        return
    lines = left_out(fit, asked)
    offered = " ".join(f"--ignore {path}" for path in asked if path not in fit.decisive)
    remedy = "Rewrite the rows so that a schema reads them" + (f", or leave them out: {offered}" if offered else "")
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{address}: schema {fit.schema} does not read these fields:\n" + "\n".join(f"  {line}" for line in lines) + f"\n{remedy}"
        )
    for path, line in zip(asked, lines, strict=True):
        if not typer.confirm(f"{address}: {line}. Leave {path} out of the training data?", default=False):
            raise ConfigError(f"{address}: {path} is not to be left out. {remedy}")


class Chosen(Struct, frozen=True):
    """What the user has chosen.

    Attributes:
        loader: `tokenizer_loader`; `None` leaves it out.
    """

    family: str
    tokenizer: str
    template: str
    loader: str | None
    row_len: int
    trainer: str
    out: Path


LOADER, TEMPLATE = "--tokenizer-loader file (or transformers)", "--template NAME"


def _probed(chosen: Chosen, domains: Domains) -> Chosen:
    """Open the tokenizer and the template that the configuration names, and ask for what they lack.

    Raises:
        ConfigError: names everything that is missing, each with the option to add.
    """
    faults = _faults(chosen, domains)
    while faults and sys.stdin.isatty() and all(option for _, option in faults):
        for fault, option in faults:
            terminal.err().print(fault, style="yellow")
            if option == LOADER:
                chosen = structs.replace(chosen, loader=_ask(LOADER, "Which loader? (file, transformers)", str))
            else:
                chosen = structs.replace(chosen, template=_ask(TEMPLATE, "Which chat template?", str, "chatml"))
        faults = _faults(chosen, domains)
    if faults:
        listed = "\n".join(f"- {fault}{f'. Add {option}' if option else ''}" for fault, option in faults)
        raise ConfigError(f"nothing is written, as this would not build:\n{listed}")
    return chosen


def _faults(chosen: Chosen, domains: Domains) -> list[tuple[str, str]]:
    """What keeps a configuration from building, each with the option of `init` that mends it."""
    folder = chosen.out.absolute()
    while not folder.parent.is_dir():  # relative paths of the configuration need a folder as deep
        folder = folder.parent
    probe = Path(tempfile.mkdtemp(prefix=".prep-assets-", dir=folder.parent))
    place = probe / chosen.out.absolute().relative_to(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{chosen.family}.yaml").write_text(_text(chosen, domains), "utf-8")
        family = load_family(chosen.family, place)
        workspace = Workspace(place, probe / "stores")
        try:
            workspace.vocabulary(family)
        except LoadersDiffer as error:
            return [(str(error), LOADER), *_faults(structs.replace(chosen, loader="file"), domains)]
        if isinstance(family, Chat):
            workspace.template(family)
    except TemplateError as error:
        return [(str(error), TEMPLATE)]
    except PrepAssetsError as error:
        return [(str(error).replace(str(place), str(chosen.out)), "")]
    finally:
        shutil.rmtree(probe)
    return []


def _text(chosen: Chosen, domains: Domains) -> str:
    """The configuration file."""
    family, trainer, out = chosen.family, chosen.trainer, chosen.out
    start = STARTS[family]
    name, _, commit = chosen.tokenizer.partition("@")
    place = os.path.relpath(name, out) if Path(name).expanduser().is_dir() and not Path(name).is_absolute() else name
    lines = [
        f"# yaml-language-server: $schema={EDITOR}/{family}.json",
        f"# {start.what[0].upper()}{start.what[1:]}. Paths are relative to this file; docs/configuration.md has every key.",
        f"tokenizer: {json.dumps(place)}",
        *([f"tokenizer_revision: {json.dumps(commit)}"] if commit else []),
        *([f"tokenizer_loader: {chosen.loader}"] if chosen.loader else []),
        *start.lines.format(template=json.dumps(chosen.template), row_len=chosen.row_len).splitlines(),
        "domains:",
        *(f"  {domain}: {in_one_line(entry)}" for domain, (entry, _) in domains.items()),
    ]
    if trainer == TORCH:
        require_known(
            "torch has no loop for", start.makes, LOOPS, "Leave --for out: prep_assets.training has data sets of all stores. Loops are for"
        )
    elif trainer != "none":
        launch = TRAINERS[trainer]
        if launch.asset.partition("_")[0] not in (family, f"{family}s"):
            raise ConfigError(
                f"{trainer} reads {launch.asset}, which is not made of {family}.yaml. Leave --for out, and export {start.makes}: prep-assets export --list"
            )
        export = {"from": launch.asset, "to": launch.format, **({"options": dict(launch.options)} if launch.options else {})}
        lines += [f"exports:                       # files that {trainer} reads", f"  {trainer.replace('-', '_')}: {in_one_line(export)}"]
    return "\n".join(lines) + "\n"


def _build(out: Path, asset: str) -> None:
    """Build an asset, and show its first row."""
    workspace, console = Workspace(out.resolve(), local_root(_stores(out))), terminal.out()
    with Live(console) as live:
        published = build_assets(workspace, asset, tell=live)[-1].published
    console.print()
    _show_row(console, workspace, published, most=200)
    console.print(f"next: {_command(out)} report {asset}")


def _stores(out: Path) -> Path | str:
    """The folder of stores: below a configuration that is not the default one, so that it leaves the stores of that alone."""
    is_named = out.absolute() == config_dir().absolute() or os.environ.get("PREP_ASSETS_STORE_DIR")
    return store_dir() if is_named else out.resolve() / "stores"


def _command(out: Path) -> str:
    """`prep-assets` with the folders of configuration and stores, where it does not find them by itself."""
    found = out.absolute() == config_dir().absolute()
    stores = "" if _stores(out) == store_dir() else f" PREP_ASSETS_STORE_DIR={shlex.quote(str(out / 'stores'))}"
    return "prep-assets" if found else f"PREP_ASSETS_CONFIG_DIR={shlex.quote(str(out))}{stores} prep-assets"


def json_schema(
    family: Annotated[str | None, typer.Argument(metavar="[FAMILY]", help="A family, to print its schema.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write the schemas of all families there.")] = None,
) -> None:
    """Editors find it by a first line such as: # yaml-language-server: $schema=.schemas/sft.json"""
    if (family is None) == (out is None):
        raise ConfigError("name a family, or a folder with --out")
    if out is not None:
        for name in FAMILIES:
            _write_schema(name, out)
        terminal.out().print(f"{out}: {', '.join(f'{name}.json' for name in FAMILIES)}")
        return
    require_known("no family", family, FAMILIES)
    typer.echo(json.dumps(described(str(family)), indent=1, ensure_ascii=False))


def _write_schema(family: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{family}.json").write_text(json.dumps(described(family), ensure_ascii=False) + "\n", "utf-8")


ASSET = "sft_packed"
PREVIEW_TOKENS = 400
NEXT: tuple[tuple[str, str], ...] = (
    (f"prep-assets build {ASSET}", "for scripts: builds what is missing or stale, and nothing else"),
    (f"dagster asset materialize --select {ASSET}", "the same, in Dagster's history"),
    ("dagster dev", "the same in the browser: the graph, checks, previews"),
    (f"prep-assets inspect {ASSET} --row 1", "another row, with what is trained in it"),
    ("prep-assets verify", "every check on every store again"),
)


def _next_commands() -> tuple[tuple[str, str], ...]:
    """The commands to type next. Outside of a checkout Dagster has to be told the module of the definitions."""
    if checkout() is not None and checkout() == Path.cwd():
        return NEXT
    module = " -m prep_assets.definitions"
    return tuple((command + module if command.startswith("dagster") else command, why) for command, why in NEXT)


def _show_row(console: Console, workspace: Workspace, published: Published, most: int) -> None:
    with reading(published):
        shown = row(workspace, published)
    shown.show(console, most=most)


def demo() -> None:
    started, workspace, console = time.monotonic(), Workspace.open(), terminal.out()
    console.print(f"building {ASSET} from {terminal.near(workspace.configs / 'sft.yaml')}", style="dim")
    with Live(console) as live:
        published = build_assets(workspace, ASSET, tell=live)[0].published
    _summary(console, workspace, published, time.monotonic() - started)
    console.print()
    _show_row(console, workspace, published, most=PREVIEW_TOKENS)
    programs, commands = Path(sys.executable).parent, _next_commands()
    if shutil.which("prep-assets") is None and (programs / "activate").is_file():
        commands = ((f". {terminal.near(programs / 'activate')}", "first, so that the commands below are found"), *commands)
    console.print(terminal.table("next steps", "", rows=[(Text(command, "bold"), why) for command, why in commands]))


def _summary(console: Console, workspace: Workspace, published: Published, seconds: float) -> None:
    manifest = published.manifest
    counts, metrics = manifest.counts, manifest.metrics
    upstream = [workspace.published(asset, domain) for domain in workspace.family(Sft).domains for asset in ("sft_raw", "sft_tokens")]
    reasons = refused_counts(store for store in upstream if store)
    named = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    size = terminal.size(sum(entry["bytes"] for entry in manifest.files.values()))
    grid = Table.grid(padding=(0, 2))
    for key, value in {
        "rows": f"{counts['rows']:,} of {manifest.recipe['packing']['row_len']:,} tokens",
        "tokens": f"{counts['tokens']:,}",
        "trained": f"{counts['trained_tokens']:,} ({metrics['trained_fraction']:.1%})",
        "fill rate": f"{metrics['fill_rate']:.2%}",
        "domains": ", ".join(f"{name} {share:.1%}" for name, share in shares(published)[0].items()),
        "refused": terminal.counted(sum(reasons.values()), "record") + (f" ({named})" if named else ""),
        "store": f"{terminal.near(workspace.place(ASSET).directory / 'current')} ({size})",
        "took": f"{seconds:.1f} s",
    }.items():
        grid.add_row(key, value)
    console.print(Panel(grid, title=ASSET, title_align="left", border_style="green", expand=False))
