"""`prep-assets path` and `launch-snippet`: where a trainer finds a store, and what makes it read one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import err, out
from prep_assets.cli.export import format_options
from prep_assets.cli.find import AssetName, Draft, Partition, one_store, opened, reading
from prep_assets.errors import ConfigError, StoreError, nearest

if TYPE_CHECKING:
    from prep_assets.assets.stage import Asset
    from prep_assets.assets.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Launch:
    """How a trainer gets a store: the asset that it is given where none is named, a format, and its options."""

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
    partition: Partition = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where the export is, or will be.", show_default=False)
    ] = None,
) -> None:
    """Print the command that writes a store for a trainer, and the configuration that makes the trainer read it there. Nothing is written."""
    from prep_assets.assets.graph import asset_and_partitions

    if trainer not in TRAINERS:
        raise ConfigError(f"no trainer {trainer!r}{nearest(trainer, TRAINERS) or '.'} There are: {', '.join(TRAINERS)}")
    launch, workspace = TRAINERS[trainer], opened()
    name = asset or launch.asset
    found, partitions = asset_and_partitions(workspace, name, partition)
    if asset is None and partition is None:
        partition = partitions[0] or None
    place = folder or Path("exports") / trainer / (f"{name}-{partition}" if partition else name)
    reader, lines = _lines(workspace, launch, found, partition, place)
    options = "".join(f" --option {key}={value}" for key, value in launch.options.items())
    which = f" -p {partition}" if partition else ""
    console = out()
    console.print(
        f"# write it, once for each version of the store\nprep-assets export {name}{which} --to {launch.format}{options} --out {place}\n",
    )
    console.print(f"# {reader} reads it\n{_padding(workspace, found)}{lines}")


def _padding(workspace: Workspace, asset: Asset) -> str:
    """What to tell a trainer of the model's vocabulary, where that has more ids than the tokenizer."""
    from prep_assets.config.models import FAMILIES

    family = workspace.family(FAMILIES[asset.family])
    if family.pad_vocab_to is None:
        return ""
    return f"# the model has {family.pad_vocab_to:,} ids (pad_vocab_to), the tokenizer {workspace.vocabulary(family).size:,}\n"


def _lines(workspace: Workspace, launch: Launch, asset: Asset, partition: str | None, place: Path) -> tuple[str, str]:
    from prep_assets.assets.exports import exporting, open_export_source
    from prep_assets.assets.graph import exported
    from prep_assets.exports.registry import opening

    words = [f"{key}={value}" for key, value in launch.options.items()]
    each = exporting(exported(asset.family, asset.name), launch.format, None, format_options(launch.format, words))
    published = one_store(workspace, asset.name, partition)
    with reading(published):
        return opening(launch.format, place.resolve(), open_export_source(each, published), each.all_options(workspace))


def path(
    asset: AssetName,
    partition: Partition = None,
    draft: Draft = False,
    even_if_failed: Annotated[bool, typer.Option("--even-if-failed", help="Print it although its checks do not hold.")] = False,
) -> None:
    """Print the directory of a store: the stable link `current`, which trainers open. A store that fails its checks is refused.

    Notes about the store, e.g. that it is out of date or has options of one run, go to stderr.
    """
    from prep_assets.assets.graph import one_partition
    from prep_assets.engine import Look

    workspace = opened()
    found, each = one_partition(workspace, asset, partition)
    place = workspace.place(found.name, each)
    if draft:
        store = place.draft()
        if store is None:
            raise StoreError(f"{place.label} has no draft. Options of one run make one, e.g. prep-assets build {asset} --set KEY=VALUE")
        typer.echo(store.directory)
        return
    published = one_store(workspace, asset, partition)
    standing = Look(workspace).at(found, each)
    if standing.failed and not even_if_failed:
        reasons = "\n".join(f"  {name}: {result.summary}" for name, result in standing.failed.items())
        raise StoreError(f"{place.label} fails its checks. Build it again, or add --even-if-failed\n{reasons}")
    for note in (standing.why, *(f"it has options of one run: {key}" for key in (*standing.overrides, *standing.inherited))):
        if note:
            err().print(f"{place.label}: {note}", style="yellow")
    # a file system without links has a pointer file there
    typer.echo(place.directory / "current" if (place.directory / "current").is_dir() else published.directory)
