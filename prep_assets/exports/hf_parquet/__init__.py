"""Parquet for Hugging Face `datasets`: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/hf_parquet.md."""

READ_BY = "datasets, TRL"
_OPEN = (
    "from datasets import load_dataset",
    'dataset = load_dataset("parquet", data_files="{folder}/data/{split}-*.parquet", split="train")',
)
LINES = {
    "PackedStore": (
        *_OPEN,
        'SFTConfig(packing=False, padding_free=True, max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})  # FlashAttention',
    ),
    "TokenStore": (*_OPEN, 'SFTConfig(max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})'),
    "Pairs": (*_OPEN, "RewardTrainer(model=model, args=RewardConfig(max_length=None), train_dataset=dataset)"),
    "GroupStore": (*_OPEN, 'dataset[0]["responses"]  # with prompt_ids, masks, rewards: offline GRPO'),
    "Lines": (*_OPEN, "{trl_trainer}, processing_class=tokenizer, train_dataset=dataset)"),
}
