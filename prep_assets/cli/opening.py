"""How each trainer opens an export: a few lines to copy. What they rest on is in docs/formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

READ_BY: Mapping[str, str] = {
    "astrai": "AstrAI",
    "cerebras": "Cerebras Model Zoo",
    "hf_arrow": "TRL, axolotl, LLaMA-Factory, open-instruct",
    "litdata": "LitGPT",
    "mds": "MosaicML streaming, LLM-Foundry",
    "megatron": "Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX, ModelLink",
    "nanotron": "nanotron, datatrove",
    "olmo": "OLMo-core",
    "packed_parquet": "Megatron-Bridge, NeMo-RL",
    "tlfs": "train-llm-from-scratch",
    "verl": "verl",
}
"""Trainers by format."""
_READ_BY: Mapping[str, str] = {
    "hf_arrow trl": "TRL",
    "hf_arrow axolotl": "axolotl",
    "hf_arrow llama_factory": "LLaMA-Factory",
    "hf_arrow open_instruct": "open-instruct",
    "megatron PackedStore": "ModelLink",
    "megatron Pairs": "ModelLink",
    "megatron instruction": "ModelLink",
}
"""Where one layout or kind of source is for some of them only."""

_LOAD = ("from datasets import load_from_disk", 'dataset = load_from_disk("{folder}")')
_ASTRAI = "from astrai.dataset import DatasetFactory"
_LINES: Mapping[str, tuple[str, ...]] = {
    "astrai PackedStore": (
        _ASTRAI,
        'dataset = DatasetFactory.load("sft", "{folder}", window_size={row_len})',
        'dataset[0]["input_ids"]  # with loss_mask, position_ids: a row of the table',
    ),
    "astrai TokenStore": (
        _ASTRAI,
        'dataset = DatasetFactory.load("seq", "{folder}", window_size=2048)  # "sft" where the stream has a mask',
        'dataset[0]["input_ids"]',
    ),
    "astrai Pairs": (
        _ASTRAI,
        'dataset = DatasetFactory.load("dpo", "{folder}", window_size=2048)',
        'dataset[0]["chosen"]  # with chosen_mask, rejected, rejected_mask',
    ),
    "astrai GroupStore": (
        "from prep_assets.training import DatasetFactory  # AstrAI's own reader does not tell responses apart",
        'dataset = DatasetFactory.load("grpo", "{folder}")',
        'dataset[0]["responses"]  # with prompts, masks, rewards',
    ),
    "cerebras PackedStore": ("train_input:", "  data_processor: GptHDF5MapDataProcessor", '  data_dir: "{folder}"', "  use_vsl: true"),
    "cerebras TokenStore": ("train_input:", "  data_processor: GptHDF5MapDataProcessor", '  data_dir: "{folder}"'),
    "cerebras Pairs": ("train_input:", "  data_processor: DpoHDF5DataProcessor", '  data_dir: "{folder}"'),
    "hf_arrow trl PackedStore": (
        *_LOAD,
        'SFTConfig(packing=False, padding_free=True, max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})  # FlashAttention',
    ),
    "hf_arrow trl TokenStore": (*_LOAD, 'SFTConfig(max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})'),
    "hf_arrow trl Pairs": (*_LOAD, "RewardTrainer(model=model, args=RewardConfig(max_length=None), train_dataset=dataset)"),
    "hf_arrow trl GroupStore": (*_LOAD, 'dataset[0]["responses"]  # with prompt_ids, masks, rewards: offline GRPO'),
    "hf_arrow trl Lines": (*_LOAD, "{trl_trainer}, processing_class=tokenizer, train_dataset=dataset)"),
    "hf_arrow axolotl": ("datasets:", '  - path: "{folder}"', "    type:  # left empty: tokenized already"),
    "hf_arrow llama_factory PackedStore": ('tokenized_path: "{folder}"', "cutoff_len: {neat_len}", "neat_packing: true"),
    "hf_arrow llama_factory": ('tokenized_path: "{folder}"', "cutoff_len: 2048  # the longest example, or more", "neat_packing: false"),
    "hf_arrow open_instruct": (*_LOAD, 'dataset.set_format("torch")'),
    "litdata": (
        "from litdata import StreamingDataset, TokensLoader",
        'dataset = StreamingDataset("{folder}", item_loader=TokensLoader(block_size={block_size}))',
        "dataset[0]  # {block_size} tokens: the inputs and the target of the last",
    ),
    "mds": (
        "from streaming import StreamingDataset",
        'dataset = StreamingDataset(local="{folder}", batch_size=1)',
        "dataset[0]  # NumPy arrays; labels are unshifted",
    ),
    "megatron PackedStore": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--reset-attention-mask{neat_pack}"),
    "megatron instruction": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--variable-seq-lengths"),
    "megatron Pairs": ("--data-path {folder}/{name}", "--is-pairwise-dataset", "--variable-seq-lengths"),
    "megatron": ("--data-path {folder}/{name}_text_document", "--split 100,0,0", "--seq-length 4096"),
    "nanotron": ("dataset:", '  dataset_folder: "{folder}"', "  vocab_size: {vocab_size}"),
    "olmo": (
        "NumpyPackedFSLDatasetConfig(",
        '    paths=["{folder}/token_ids_part_*.npy"], label_mask_paths=["{folder}/labels_mask_part_*.npy"],  # masks where there are any',
        "    expand_glob=True, sequence_length=2048, tokenizer=tokenizer)",
    ),
    "packed_parquet": (
        "PackedSequenceSpecs(",
        '    packed_train_data_path="{folder}/splits/{split}",',
        "    packed_sequence_size={row_len})  # of rows, in tokens",
    ),
    "tlfs Lines": ("import json", 'rows = [json.loads(line) for line in open("{folder}/{file}.jsonl")]', 'rows[0]["prompt"]'),
    "tlfs": ("import h5py", 'file = h5py.File("{folder}/{file}.h5")', 'file["tokens"]'),
    "verl": (
        'data.train_files="{folder}/{split}.parquet"',
        "data.prompt_key=prompt  # data.messages_key=messages for SFT",
        "data.max_prompt_length=1024",
    ),
}
"""``<format> [<layout>] [<kind of source>]`` → lines; the most precise key that fits is used."""
_TRL_TRAINERS: Mapping[str, str] = {
    "unpaired": "KTOTrainer(model=model",
    "rl_prompts": "GRPOTrainer(model=model, reward_funcs=reward",
    "arithmetic_prompts": "GRPOTrainer(model=model, reward_funcs=reward",
}
"""TRL's trainer for a JSONL file, by how its name starts; `DPOTrainer` for any other."""


def opening(format: str, folder: Path, source: object, options: Mapping[str, Any]) -> tuple[str, str]:
    """Who reads the export in `folder`, and the lines that open it there.

    Args:
        source: what was exported.
        options: every option that it was exported with.
    """
    kind = type(source).__name__
    layout = options.get("layout") or ""
    keys = [f"{format} {layout} {kind}", f"{format} {layout}", f"{format} {kind}", format]
    row_len = getattr(source, "row_len", 2048)
    own = {"PackedStore": "sft_packed", "TokenStore": "pile_train"}.get(kind) or Path(getattr(source, "path", "")).stem
    trl_trainer = next((call for start, call in _TRL_TRAINERS.items() if own.startswith(start)), "DPOTrainer(model=model")
    more = {
        "trl_trainer": trl_trainer,
        "folder": folder.as_posix(),
        "row_len": row_len,
        "neat_len": row_len + 1,
        "neat_pack": " --neat-pack" if options.get("neat") else "",
        "file": options.get("name") or own,
    }
    lines = next(_LINES[key] for key in keys if key in _LINES)
    trainer = next((_READ_BY[key] for key in keys if key in _READ_BY), READ_BY[format])
    return trainer, "\n".join(lines).format(**{**options, **more})
