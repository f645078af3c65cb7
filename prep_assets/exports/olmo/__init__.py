"""OLMo-core: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/olmo.md."""

READ_BY = "OLMo-core"
LINES = {
    "": (
        "NumpyPackedFSLDatasetConfig(",
        '    paths=["{folder}/token_ids_part_*.npy"], label_mask_paths=["{folder}/labels_mask_part_*.npy"],  # masks where there are any',
        "    expand_glob=True, sequence_length=2048, tokenizer=tokenizer)",
    )
}
