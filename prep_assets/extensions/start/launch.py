"""`prep-assets launch-snippet`: the export command for a trainer, and the lines by which it reads the export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, field

from prep_assets.cli import terminal
from prep_assets.cli.stores import one_store, reading
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, require_known
from prep_assets.extensions.blends.assets import training_streams
from prep_assets.extensions.blends.store import BLEND, TOKENS, open_blend
from prep_assets.extensions.exports.assets import Exporting, exported, exporting, open_export_source
from prep_assets.extensions.exports.blocks import require_dense
from prep_assets.extensions.exports.command import format_options
from prep_assets.extensions.exports.registry import opening
from prep_assets.extensions.start.blends import BLENDS, phases_of
from prep_assets.graph.graph import asset_and_partitions
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace, arguments
from prep_assets.stores.version_folders import Published


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
    "skyrl": Launch("sft_packed", "hf_arrow", {"layout": "skyrl"}),
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

ALIGNED: Mapping[str, Launch] = {"megatron": Launch("sft_packed", "megatron_sft"), "nemo": Launch("sft_packed", "aligned_parquet")}
"""How a trainer gets rows that leave room for padding between documents."""

TORCH = "torch"
"""A loop of one's own, which reads the store itself: no export."""
READERS = (TORCH, *TRAINERS)

_LOOP = """\
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from prep_assets.training import {names}

rows = {rows}
model = torch.nn.Sequential(torch.nn.Embedding({size}, 64), torch.nn.Linear(64, {size}))  # yours
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, batch in enumerate(DataLoader(rows, batch_size=2, shuffle=True{collate})):
    logits = model(batch["input_ids"]){arguments}
    loss = {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())"""
LOOPS: Mapping[str, Mapping[str, str]] = {
    "sft_packed": {
        "names": "PackedDataset, PaddingFree",
        "rows": "PackedDataset({path!r})",
        "collate": ", collate_fn=PaddingFree()",
        "arguments": "  # with position_ids and cu_seqlens of the batch, so that no document sees another",
        "loss": 'cross_entropy(logits[0, :-1], batch["labels"][0, 1:])  # labels are not shifted yet',
    },
    "pretrain_tokens": {
        "names": "DatasetFactory",
        "rows": 'DatasetFactory.load("seq", {path!r}, window_size=1024)',
        "collate": "",
        "arguments": "",
        "loss": 'cross_entropy(logits.flatten(0, 1), batch["target_ids"].flatten())  # targets are shifted',
    },
}
"""How a loop reads an asset, and its loss."""


def launch_snippet(
    trainer: Annotated[
        str, typer.Option("--trainer", metavar="T", help=f"One of {', '.join(READERS)}.", autocompletion=lambda: [*READERS])
    ],
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", help="An asset. Default: the usual one of the trainer.")] = None,
    partition: terminal.Partition = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where the export is, or will be.")] = None,
) -> None:
    """Nothing is written. For a blend: the commands for its domains, and the weights by which megatron and olmo draw from them."""
    require_known("no trainer", trainer, READERS)
    workspace = Workspace.open()
    if trainer == TORCH:
        if folder is not None:
            raise ConfigError("--out has no effect: torch reads the store itself, without an export. Remove it")
        typer.echo(_loop(workspace, asset or "sft_packed", partition))
        return
    launch = TRAINERS[trainer]
    name = asset or launch.asset
    definition, partitions = asset_and_partitions(workspace, name, partition)
    if definition.stage == BLEND:
        terminal.out().print(_blend_lines(workspace, one_store(workspace, name, None), trainer, folder), soft_wrap=True)
        return
    if asset is None and partition is None:
        partition = partitions[0] or None
    place = folder or Path("exports") / trainer / (f"{name}-{partition}" if partition else name)
    launch, reader, lines = _reader_lines(workspace, trainer, definition, partition, place)
    options = "".join(f" --option {key}={value}" for key, value in launch.options.items())
    command = f"prep-assets export {arguments(name, partition or '')} --to {launch.format}{options} --out {place}"
    console = terminal.out()
    console.print(f"# write it, once for each version of the store\n{command}\n")
    console.print(f"# {reader} reads it\n{_padding(workspace, definition)}{lines}")


def _blend_lines(workspace: Workspace, published: Published, trainer: str, folder: Path | None) -> str:
    """How each domain of a blend is exported, and the lines by which a trainer draws from them as the blend does."""
    launch, name = TRAINERS[trainer], published.manifest.asset
    read = f"prep_assets.training.BlendDataset({str(workspace.place(name).directory)!r}) is its order"
    with reading(published):
        blend = open_blend(published.directory)
        if trainer not in BLENDS or not blend.window:
            who = "Windows are read" if blend.window else f"Records of {name} are not windows, which they read; windows are read"
            raise ConfigError(f"{trainer} has no lines for {name}. {who} by {' and '.join(BLENDS)}; for all others, {read}")
        family = published.manifest.asset.partition("_")[0]
        streams = training_streams(workspace, family)
    folders = {domain: ((folder or Path("exports") / trainer) / domain).resolve() for domain in blend.domains}
    asset, to = TOKENS[family][0], launch.format
    lines = ["# write each domain, once for each version of it"]
    lines += [f"prep-assets export {arguments(asset, domain)} --to {to} --out {folders[domain]}" for domain in blend.domains]
    for number, phase in enumerate(phases_of(blend, folders, streams), 1):
        of = f", phase {number} of {len(blend.ends)}" if len(blend.ends) > 1 else ""
        lines += ["", f"# {trainer} draws by these shares, in its own order{of}; {read}", BLENDS[trainer](phase, blend.window)]
    return "\n".join(lines)


def _loop(workspace: Workspace, name: str, partition: str | None) -> str:
    """A training loop in plain PyTorch."""
    require_known("torch has no loop for", name, LOOPS, "prep_assets.training has data sets of all stores. Loops are for")
    asset, partitions = asset_and_partitions(workspace, name, partition)
    published = one_store(workspace, name, partition or (partitions[0] or None))
    family = workspace.family(FAMILIES[asset.family])
    place = workspace.place(name, published.manifest.partition).directory
    if asset.partitioned:
        stem = next(iter(asset.stems(published.manifest.partition).values()))
        place = place / "current" / (f"{stem}.h5" if (published.directory / f"{stem}.h5").exists() else stem)
    words = {key: text.format(path=str(place)) for key, text in LOOPS[name].items()}
    return _LOOP.format(size=family.pad_vocab_to or workspace.vocabulary(family).size, **words)


def _padding(workspace: Workspace, asset: Asset) -> str:
    """A comment on the size of the model's vocabulary, where it is padded."""
    family = workspace.family(FAMILIES[asset.family])
    if family.pad_vocab_to is None:
        return ""
    return f"# the model has {family.pad_vocab_to:,} ids (pad_vocab_to), the tokenizer {workspace.vocabulary(family).size:,}\n"


def _reader_lines(workspace: Workspace, trainer: str, asset: Asset, partition: str | None, place: Path) -> tuple[Launch, str, str]:
    """How a trainer gets the published version, who reads that, and the lines."""
    published = one_store(workspace, asset.name, partition)
    launch = TRAINERS[trainer]
    with reading(published):
        source = open_export_source(_exporting(asset, launch), published)
        if source.align > 1 and trainer in ALIGNED:
            launch = ALIGNED[trainer]
        elif launch.format == "megatron":
            require_dense(source, launch.format)
        return launch, *opening(launch.format, place.resolve(), source, _exporting(asset, launch).all_options(workspace))


def _exporting(asset: Asset, launch: Launch) -> Exporting:
    words = [f"{key}={value}" for key, value in launch.options.items()]
    return exporting(exported(asset.family, asset.name), launch.format, None, format_options(launch.format, words))
