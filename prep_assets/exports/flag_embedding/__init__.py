"""FlagEmbedding: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/flag_embedding.md."""

READ_BY = "FlagEmbedding"
LINES = {
    "": (
        "torchrun --nproc_per_node 1 \\",
        "  -m FlagEmbedding.finetune.embedder.encoder_only.base \\",
        "  --model_name_or_path MODEL --output_dir OUT \\",
        "  --train_data {folder}/{split}.jsonl --train_group_size 8",
    )
}
