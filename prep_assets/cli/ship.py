"""`prep-assets export`, `describe`, `attest`, `release`, `push`, `path` and `launch-snippet`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, field

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, StoreError, nearest

if TYPE_CHECKING:
    from prep_assets.neighbours.hub import Release
    from prep_assets.pipeline.asset import Asset
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.version_folders import Published

# `prep-assets export`: a store in the format that a trainer reads.


def export(
    asset: Annotated[str | None, typer.Argument(metavar="ASSET", show_default=False, help="An asset, e.g. sft_packed.")] = None,
    to: Annotated[str | None, typer.Option("--to", "-t", metavar="FORMAT", help="The format, e.g. hf_arrow.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where to: a new folder, or an empty one.")] = None,
    partition: terminal.Partition = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", "-s", metavar="S", help="Which stream, table or file of the asset; the training one when left out."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the format; may be repeated.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the formats, what they take and who reads them.")] = False,
) -> None:
    """Write a store for a trainer, and show the lines that open it there. A store that is damaged is refused."""
    if listing:
        _show_formats()
        return
    if asset is None or to is None or folder is None:
        missing = "ASSET" if asset is None else "--to" if to is None else "--out"
        raise typer.BadParameter("missing. Formats are shown by: prep-assets export --list", param_hint=missing)
    _export(asset, to, folder, partition, stream, option or [])


def _export(asset: str, to: str, folder: Path, partition: str | None, stream: str | None, words: list[str]) -> None:
    from rich.progress import MofNCompleteColumn

    from prep_assets.exports.registry import check_folder, opening
    from prep_assets.graph.exports import export_store, exporting
    from prep_assets.graph.graph import asset_and_partitions, exported

    check_folder(folder)
    workspace = terminal.opened()
    definition, _ = asset_and_partitions(workspace, asset, partition)
    spec = exporting(exported(definition.family, definition.name), to, stream, format_options(to, words))
    published = terminal.one_store(workspace, asset, partition)
    with terminal.reading(published), terminal.bar(MofNCompleteColumn()) as shown:
        task = shown.add_task(f"export {asset} to {to}", total=None)
        source = export_store(spec, workspace, published, folder, lambda done, total: shown.update(task, completed=done, total=total))
    files = [path for path in folder.rglob("*") if path.is_file()]
    console = terminal.out()
    console.print(
        f"{terminal.near(folder.resolve())}: {terminal.counted(len(files), 'file')}, {terminal.size(sum(path.stat().st_size for path in files))}"
    )
    trainer, lines = opening(to, folder.resolve(), source, spec.all_options(workspace))
    console.print(f"{trainer}:", style="dim")
    console.print(lines)


def format_options(format: str, words: list[str]) -> dict[str, Any]:
    """Parse ``key=value`` words as options of a format, by their types."""
    from pydantic import TypeAdapter, ValidationError

    from prep_assets.exports.registry import export_named

    export_format = export_named(format)
    hints = export_format.types
    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in options:
            raise ConfigError(f"--option {word}: {'given twice' if key in options else 'needs the form KEY=VALUE, e.g. split=train'}")
        if key not in export_format.options:
            allowed = ", ".join(export_format.options) or "none"
            raise ConfigError(f"export {format!r} has no option {key!r}{nearest(key, export_format.options) or '.'} Allowed: {allowed}")
        try:
            options[key] = TypeAdapter(hints[key]).validate_strings(value)
        except ValidationError as error:
            raise ConfigError(f"--option {word}: {error.errors()[0]['msg']}") from error
    return options


def _show_formats() -> None:
    from prep_assets.exports import exports

    words = {"PackedStore": "packed table", "TokenStore": "token stream", "Pairs": "pairs", "GroupStore": "groups", "Lines": "JSONL"}
    shown = terminal.table("format", "takes", "read by", "options")
    for name, export_format in exports().items():
        kinds = [taken.__name__ for taken in export_format.takes]
        options = [key if option.default is option.empty else f"{key}={option.default}" for key, option in export_format.options.items()]
        shown.add_row(name, ", ".join(word for kind, word in words.items() if kind in kinds), export_format.read_by, ", ".join(options))
    console = terminal.out()
    console.print(shown)
    console.print("a page for each: docs/formats", style="dim")


# `prep-assets describe`, `release` and `push`: describe a store; publish an export in a folder or on the Hugging Face Hub.


def release(
    asset: terminal.AssetName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to: a new folder, or an empty one.")],
    partition: terminal.Partition = None,
) -> None:
    """Copy an export into a folder with a data set card, Croissant and its manifest: what datasets.load_dataset opens, and push uploads."""
    from prep_assets.exports.registry import check_folder
    from prep_assets.neighbours.hub import write_release

    check_folder(folder)
    bundle = _release(asset, partition)
    write_release(bundle, folder)
    console = terminal.out()
    console.print(f"{terminal.near(folder.resolve())}: {terminal.counted(len(bundle.files), 'file')}, {_size(bundle)}")
    console.print(f'from datasets import load_dataset\ndataset = load_dataset("{folder.resolve()}")')


def push(
    source: Annotated[str, typer.Argument(metavar="EXPORT", help="An asset, e.g. sft_export_hub, or a folder that `release` wrote.")],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="The data set on the Hub, owner/name; made where there is none.")],
    partition: terminal.Partition = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    unknown_licence: Annotated[bool, typer.Option("--unknown-licence", help="Push although the licence is not known.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files without any request to the Hub.")] = False,
) -> None:
    """Upload an export to the Hugging Face Hub as one commit, if its files are what its manifest says and the repository did not change
    meanwhile. The token is that of `hf auth login`, or HF_TOKEN."""
    from prep_assets.neighbours.hub import UNKNOWN, licence_of, push, release_in

    bundle = release_in(Path(source)) if "/" in source or Path(source).is_dir() else _release(source, partition)
    licence, console = licence_of(bundle), terminal.out()
    if dry_run:
        rows = [
            (name, terminal.size(bundle.size(name)), bundle.manifest.files.get(name, {}).get("sha256", "")[:16]) for name in bundle.files
        ]
        title = f"{bundle.where}: what would be uploaded"
        console.print(terminal.table("file", "size", "sha256", rows=rows, numbers=("size",), title=title))
        console.print(f"licence: {licence}")
        return
    if licence == UNKNOWN and not unknown_licence:
        raise ConfigError(
            f"{bundle.where}: the licence is unknown, so what is published could not be used. Say it in the configuration (licence: of each "
            "domain, or of the family), or add --unknown-licence"
        )
    pushed = push(bundle, repository, private=private)
    for name in pushed.removed:
        console.print(f"removed {name}, of an earlier push")
    console.print(f"{repository} holds {bundle.where}: {terminal.counted(len(bundle.files), 'file')}, {_size(bundle)}")
    console.print(pushed.url)


def _release(asset: str, partition: str | None) -> Release:
    from prep_assets.graph.graph import one_partition
    from prep_assets.neighbours.hub import release_of

    workspace = terminal.opened()
    definition, key = one_partition(workspace, asset, partition)
    return release_of(workspace, definition.name, key)


def _size(bundle: Release) -> str:
    return terminal.size(sum(bundle.size(name) for name in bundle.files))


class Form(StrEnum):
    """Output form of a description."""

    json = "json"
    card = "card"
    croissant = "croissant"
    openlineage = "openlineage"


def describe(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    form: Annotated[Form, typer.Option("--as", help="Plain JSON, a data set card, Croissant, or an OpenLineage event.")] = Form.json,
) -> None:
    """Print what a store is: hashes, sources with theirs, licences, counts, refused records, files, columns, checks."""
    from prep_assets.graph.graph import one_partition
    from prep_assets.neighbours.description import describe

    workspace = terminal.opened()
    definition, key = one_partition(workspace, asset, partition)
    description, _ = describe(workspace, definition.name, key)
    match form:
        case Form.json:
            text = json.dumps(asdict(description), indent=1, ensure_ascii=False)
        case Form.card:
            from prep_assets.neighbours.hub import card

            text = card(description)
        case Form.croissant:
            from prep_assets.neighbours.hub import croissant

            text = json.dumps(croissant(description), indent=1, ensure_ascii=False)
        case Form.openlineage:
            from prep_assets.neighbours.openlineage import event_json

            try:
                text = event_json(description)
            except ImportError as error:
                raise ConfigError("--as openlineage needs a package: pip install 'prep-assets[openlineage]'") from error
    typer.echo(text.removesuffix("\n"))


def attest(
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset, e.g. sft_packed.")] = None,
    partition: terminal.Partition = None,
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to: the folder of both files.")] = Path("attestations"),
    key: Annotated[
        str,
        typer.Option(
            "--key", metavar="FILE", help="The private key to sign with; with --check, the public keys to trust.", show_default=False
        ),
    ] = "",
    file: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="An attestation to verify, against the store as it is.")
    ] = None,
) -> None:
    """Write what a store is made of and what was looked for in it, as signed JSON and as a page, or verify such a file.

    Without --key, PREP_ASSETS_SIGNING_KEY and PREP_ASSETS_TRUSTED_KEYS count. Exit code 1 where the file was altered, or the store is another one.
    """
    from prep_assets.explain.report import attestation_page, write_page
    from prep_assets.graph.graph import one_partition
    from prep_assets.neighbours.attestation import attest, check, signed_by, text_of

    if (asset is None) == (file is None):
        raise typer.BadParameter("say what to attest, or which file to --check: one of them", param_hint="ASSET")
    console = terminal.out()
    if file is not None:
        console.print(check(terminal.opened(), file, key=key))
        return
    with terminal.working() as workspace:
        definition, domain = one_partition(workspace, str(asset), partition)
        with terminal.reading(terminal.one_store(workspace, definition.name, domain)):
            document = attest(workspace, definition.name, domain, key=key)
    path = folder / f"{definition.name}{f'-{domain}' if domain else ''}.json"
    write_page(path, text_of(document))
    write_page(path.with_suffix(".html"), attestation_page(document, signed_by(document["signature"])))
    console.print(f"{terminal.near(path.absolute())}, {path.with_suffix('.html').name}: {signed_by(document['signature'])}")
    if not document["signature"]:
        terminal.err().print("to sign it, give a key: --key FILE, or PREP_ASSETS_SIGNING_KEY", style="yellow")


# `prep-assets path` and `launch-snippet`: the folder of a store, and the configuration of a trainer that reads it.


class Launch(Struct, frozen=True):
    """How a trainer gets a store: default asset, export format, and options of the format."""

    asset: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)


TRAINERS: Mapping[str, Launch] = {
    "trl": Launch("sft_packed", "hf_arrow", {"layout": "trl"}),
    "axolotl": Launch("sft_packed", "hf_arrow", {"layout": "axolotl"}),
    "llamafactory": Launch("sft_packed", "hf_arrow", {"layout": "llama_factory"}),
    "open-instruct": Launch("sft_packed", "hf_arrow", {"layout": "open_instruct"}),
    "megatron": Launch("pretrain_tokens", "megatron"),
    "modellink": Launch("sft_packed", "megatron"),
    "nemo": Launch("sft_packed", "packed_parquet"),
    "verl": Launch("rl_prompts", "verl", {"data_source": "openai/gsm8k"}),
    "olmo": Launch("pretrain_tokens", "olmo"),
    "litgpt": Launch("pretrain_tokens", "litdata", {"block_size": "2049"}),
    "mosaicml": Launch("sft_packed", "mds"),
    "nanotron": Launch("pretrain_tokens", "nanotron"),
    "cerebras": Launch("sft_packed", "cerebras"),
    "train-llm-from-scratch": Launch("sft_packed", "tlfs"),
    "astrai": Launch("sft_packed", "astrai"),
}


def launch_snippet(
    trainer: Annotated[str, typer.Option("--trainer", metavar="T", show_default=False, help=f"One of {', '.join(TRAINERS)}.")],
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset; the usual one of the trainer, if left out.")
    ] = None,
    partition: terminal.Partition = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where the export is, or will be.", show_default=False)
    ] = None,
) -> None:
    """Print the command that writes a store for a trainer, and the configuration that makes the trainer read it there. Nothing is written.

    For a blend: the commands for its domains, and the weights by which megatron and olmo draw from them."""
    from prep_assets.graph.graph import asset_and_partitions
    from prep_assets.pipeline.blends import BLEND

    if trainer not in TRAINERS:
        raise ConfigError(f"no trainer {trainer!r}{nearest(trainer, TRAINERS) or '.'} There are: {', '.join(TRAINERS)}")
    launch, workspace = TRAINERS[trainer], terminal.opened()
    name = asset or launch.asset
    definition, partitions = asset_and_partitions(workspace, name, partition)
    if definition.stage == BLEND:
        terminal.out().print(_blend_lines(workspace, terminal.one_store(workspace, name, None), trainer, folder), soft_wrap=True)
        return
    if asset is None and partition is None:
        partition = partitions[0] or None
    place = folder or Path("exports") / trainer / (f"{name}-{partition}" if partition else name)
    reader, lines = _reader_lines(workspace, launch, definition, partition, place)
    options = "".join(f" --option {key}={value}" for key, value in launch.options.items())
    option = f" -p {partition}" if partition else ""
    console = terminal.out()
    console.print(
        f"# write it, once for each version of the store\nprep-assets export {name}{option} --to {launch.format}{options} --out {place}\n",
    )
    console.print(f"# {reader} reads it\n{_padding(workspace, definition)}{lines}")


def _blend_lines(workspace: Workspace, published: Published, trainer: str, folder: Path | None) -> str:
    """How each domain of a blend is exported, and the lines by which a trainer draws from them as the blend does."""
    from prep_assets.exports.blends import BLENDS, phases_of
    from prep_assets.pipeline.blends import TOKENS, training_streams
    from prep_assets.stores.blends import open_blend

    launch, name = TRAINERS[trainer], published.manifest.asset
    read = f"prep_assets.training.BlendDataset({str(workspace.place(name).directory)!r}) is its order"
    with terminal.reading(published):
        blend = open_blend(published.directory)
        if trainer not in BLENDS or not blend.window:
            who = "Windows are read" if blend.window else f"Records of {name} are not windows, which they read; windows are read"
            raise ConfigError(f"{trainer} has no lines for {name}. {who} by {' and '.join(BLENDS)}; for all others, {read}")
        family = published.manifest.asset.partition("_")[0]
        streams = training_streams(workspace, family)
    folders = {domain: ((folder or Path("exports") / trainer) / domain).resolve() for domain in blend.domains}
    exports = [
        f"prep-assets export {TOKENS[family][0]} -p {domain} --to {launch.format} --out {folders[domain]}" for domain in blend.domains
    ]
    lines = ["# write each domain, once for each version of it", *exports]
    for number, phase in enumerate(phases_of(blend, folders, streams), 1):
        of = f", phase {number} of {len(blend.ends)}" if len(blend.ends) > 1 else ""
        lines += ["", f"# {trainer} draws by these shares, in an order of its own{of}; {read}", BLENDS[trainer](phase, blend.window)]
    return "\n".join(lines)


def _padding(workspace: Workspace, asset: Asset) -> str:
    """A comment on the size of the model's vocabulary, where it is padded."""
    from prep_assets.config.models import FAMILIES

    family = workspace.family(FAMILIES[asset.family])
    if family.pad_vocab_to is None:
        return ""
    return f"# the model has {family.pad_vocab_to:,} ids (pad_vocab_to), the tokenizer {workspace.vocabulary(family).size:,}\n"


def _reader_lines(workspace: Workspace, launch: Launch, asset: Asset, partition: str | None, place: Path) -> tuple[str, str]:
    from prep_assets.exports.registry import opening
    from prep_assets.graph.exports import exporting, open_export_source
    from prep_assets.graph.graph import exported

    words = [f"{key}={value}" for key, value in launch.options.items()]
    spec = exporting(exported(asset.family, asset.name), launch.format, None, format_options(launch.format, words))
    published = terminal.one_store(workspace, asset.name, partition)
    with terminal.reading(published):
        return opening(launch.format, place.resolve(), open_export_source(spec, published), spec.all_options(workspace))


def path(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    draft: terminal.Draft = False,
    even_if_failed: Annotated[bool, typer.Option("--even-if-failed", help="Print it although its checks do not hold.")] = False,
) -> None:
    """Print the directory of a store: the stable link `current`, which trainers open. A store that fails its checks is refused.

    Notes about the store, e.g. that it is out of date or has options of one run, go to stderr.
    """
    from prep_assets.engine import Statuses
    from prep_assets.graph.graph import one_partition

    workspace = terminal.opened()
    definition, partition_key = one_partition(workspace, asset, partition)
    place = workspace.place(definition.name, partition_key)
    if draft:
        store = place.draft()
        if store is None:
            raise StoreError(f"{place.label} has no draft. Options of one run make one, e.g. prep-assets build {asset} --set KEY=VALUE")
        typer.echo(store.directory)
        return
    published = terminal.one_store(workspace, asset, partition)
    status = Statuses(workspace).at(definition, partition_key)
    if status.failed and not even_if_failed:
        reasons = "\n".join(f"  {name}: {result.summary}" for name, result in status.failed.items())
        raise StoreError(f"{place.label} fails its checks. Build it again, or add --even-if-failed\n{reasons}")
    for note in (status.why, *(f"it has options of one run: {key}" for key in (*status.overrides, *status.inherited))):
        if note:
            terminal.err().print(f"{place.label}: {note}", style="yellow")
    # a file system without links has a pointer file there
    typer.echo(place.directory / "current" if (place.directory / "current").is_dir() else published.directory)
