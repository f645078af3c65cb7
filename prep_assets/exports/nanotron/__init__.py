"""nanotron and datatrove: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/nanotron.md."""

READ_BY = "nanotron, datatrove"
LINES = {"": ("dataset:", '  dataset_folder: "{folder}"', "  vocab_size: {vocab_size}")}
