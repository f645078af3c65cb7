"""Megatron and ModelLink: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/megatron.md."""

READ_BY = "Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX, ModelLink"
READERS = {"PackedStore": "ModelLink", "Pairs": "ModelLink", "instruction": "ModelLink"}
"""Where one layout or kind of source is for some of them only."""
LINES = {
    "PackedStore": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--reset-attention-mask{neat_pack}"),
    "instruction": ("--data-path {folder}/{name}", "--is-instruction-dataset", "--variable-seq-lengths"),
    "Pairs": ("--data-path {folder}/{name}", "--is-pairwise-dataset", "--variable-seq-lengths"),
    "": ("--data-path {folder}/{name}_text_{level}", "--split 100,0,0", "--seq-length 4096"),
}
