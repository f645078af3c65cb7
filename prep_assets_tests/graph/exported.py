"""An export of every format from every kind of source that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prep_assets.extensions.exports.registry import exports
from prep_assets.graph.graph import asset_named
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import SHIPPED_ASSETS, copy_of, make, shipped, workspace_in


def entry(source: str, to: str, **options: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "options": options}


OF_CONTRASTS = {"flag_embedding", "sentence_transformers"}
"""Formats of contrastive rows, which `test_contrastive.py` tries."""
TRIED: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "pretrain": {
        "text": entry("pretrain_tokens", "megatron"),
        "nano": entry("pretrain_tokens", "nanotron"),
        "lit": entry("pretrain_tokens", "litdata", block_size=32, chunk_bytes=4096),
        "pile": entry("pretrain_tokens", "tlfs"),
        "held_out": {**entry("pretrain_tokens", "mds"), "stream": "dev"},
    },
    "sft": {
        "trl": entry("sft_packed", "hf_arrow", layout="trl"),
        "neat": entry("sft_packed", "hf_arrow", layout="llama_factory"),
        "axolotl": entry("sft_packed", "hf_arrow", layout="axolotl"),
        "skyrl": entry("sft_packed", "hf_arrow", layout="skyrl"),
        "modellink": entry("sft_packed", "megatron"),
        "not_neat": entry("sft_packed", "megatron", neat=False),
        "bridge": entry("sft_packed", "packed_parquet", rows_per_file=20),
        "split": entry("sft_packed", "aligned_parquet", rows_per_file=20),
        "hub": entry("sft_packed", "hf_parquet", rows_per_file=20),
        "tlfs": entry("sft_packed", "tlfs"),
        "astrai": entry("sft_packed", "astrai", max_tokens_per_shard=9000),
        "olmo": entry("sft_packed", "olmo", part_bytes=20_000),
        "nano": entry("sft_packed", "nanotron"),
        "mds": entry("sft_packed", "mds", size_limit=50_000),
        "vsl": entry("sft_packed", "cerebras", samples_per_file=20),
        "dev": {**entry("sft_packed", "packed_parquet"), "stream": "sft_dev_packed"},
        "by_domain": entry("sft_tokens", "hf_arrow", layout="open_instruct"),
        "documents": entry("sft_tokens", "cerebras", max_seq_length=1024),
        "window": entry("sft_tokens", "astrai"),
    },
    "preference": {
        "dpo": entry("preferences", "hf_arrow"),
        "lines": entry("preferences", "tlfs"),
        "hub": entry("preference_tokens", "hf_parquet"),
        "pairs": entry("preference_tokens", "hf_arrow", layout="open_instruct"),
        "reward": entry("preference_tokens", "hf_arrow"),
        "cerebras": entry("preference_tokens", "cerebras", max_seq_length=2048),
        "modellink": entry("preference_tokens", "megatron"),
        "astrai": entry("preference_tokens", "astrai"),
    },
    "rl": {
        "verl": entry("rl_prompts", "verl", data_source="openai/gsm8k"),
        "open": entry("rl_prompts", "open_instruct"),
        "rollouts": entry("rl_tokens", "mds"),
    },
}


def _others(family: str) -> dict[str, dict[str, Any]]:
    """Formats that are not listed, each from the first stream that it takes."""
    listed = {each["to"] for found in TRIED.values() for each in found.values()} | OF_CONTRASTS
    streams = [(asset, stream.schema) for asset in SHIPPED_ASSETS.values() for stream in asset.streams.values()]
    first = {
        name: next(asset for asset, schema in streams if any(schema.fits(taken) for taken in each.takes))
        for name, each in exports().items()
        if name not in listed and not each.chats and not each.tokenizer
    }
    return {name: entry(asset.name, name) for name, asset in first.items() if asset.family == family}


EXPORTS = {family: {**found, **_others(family)} for family, found in TRIED.items()}
"""Every format, and every kind of source that it takes."""
NAMES = [f"{family}_export_{name}" for family, found in EXPORTS.items() for name in found]


def with_exports() -> dict[str, dict[str, Any]]:
    return {family: {**options, "exports": dict(EXPORTS[family])} for family, options in shipped().items()}


def build_exports(built_h5: Workspace, folder: Path, names: Iterable[str] = NAMES) -> Workspace:
    """Copies of all stores, and exports built from them."""
    copy_of(built_h5, folder)
    workspace = workspace_in(folder, with_exports())
    for name in names:
        build_export(workspace, name)
    return workspace


def build_export(workspace: Workspace, name: str) -> list[Published]:
    asset = asset_named(name, workspace)
    return [make(workspace, asset, each) for each in asset.partitions(workspace)]
