"""litdata: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/litdata.md."""

READ_BY = "LitGPT"
LINES = {
    "": (
        "from litdata import StreamingDataset, TokensLoader",
        'dataset = StreamingDataset("{folder}", item_loader=TokensLoader(block_size={block_size}))',
        "dataset[0]  # {block_size} tokens: the inputs and the target of the last",
    )
}
