"""Hugging Face `datasets`: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/hf_arrow.md."""

READ_BY = "TRL, axolotl, LLaMA-Factory, open-instruct"
READERS = {"trl": "TRL", "axolotl": "axolotl", "llama_factory": "LLaMA-Factory", "open_instruct": "open-instruct"}
"""Where one layout or kind of source is for some of them only."""
LINES = {
    "trl PackedStore": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        'SFTConfig(packing=False, padding_free=True, max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})  # FlashAttention',
    ),
    "trl TokenStore": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        'SFTConfig(max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})',
    ),
    "trl Pairs": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        "RewardTrainer(model=model, args=RewardConfig(max_length=None), train_dataset=dataset)",
    ),
    "trl GroupStore": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        'dataset[0]["responses"]  # with prompt_ids, masks, rewards: offline GRPO',
    ),
    "trl Lines": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        "{trl_trainer}, processing_class=tokenizer, train_dataset=dataset)",
    ),
    "axolotl": ("datasets:", '  - path: "{folder}"', "    type:  # left empty: tokenized already"),
    "llama_factory PackedStore": ('tokenized_path: "{folder}"', "cutoff_len: {neat_len}", "neat_packing: true"),
    "llama_factory": ('tokenized_path: "{folder}"', "cutoff_len: 2048  # the longest example, or more", "neat_packing: false"),
    "open_instruct": ("from datasets import load_from_disk", 'dataset = load_from_disk("{folder}")', 'dataset.set_format("torch")'),
}
