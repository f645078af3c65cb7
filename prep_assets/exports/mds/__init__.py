"""MosaicML streaming: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/mds.md."""

READ_BY = "MosaicML streaming, LLM-Foundry"
LINES = {
    "": (
        "from streaming import StreamingDataset",
        'dataset = StreamingDataset(local="{folder}", batch_size=1)',
        "dataset[0]  # NumPy arrays; labels are unshifted",
    )
}
