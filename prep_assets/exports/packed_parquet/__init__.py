"""packed Parquet: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/packed_parquet.md."""

READ_BY = "Megatron-Bridge, NeMo-RL"
LINES = {
    "": (
        "PackedSequenceSpecs(",
        '    packed_train_data_path="{folder}/splits/{split}",',
        "    packed_sequence_size={row_len})  # of rows, in tokens",
    )
}
