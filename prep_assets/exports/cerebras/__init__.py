"""Cerebras Model Zoo: how trainers open its files, a few lines to copy. What they rest on is in docs/formats/cerebras.md."""

READ_BY = "Cerebras Model Zoo"
LINES = {
    "PackedStore": ("train_input:", "  data_processor: GptHDF5MapDataProcessor", '  data_dir: "{folder}"', "  use_vsl: true"),
    "TokenStore": ("train_input:", "  data_processor: GptHDF5MapDataProcessor", '  data_dir: "{folder}"'),
    "Pairs": ("train_input:", "  data_processor: DpoHDF5DataProcessor", '  data_dir: "{folder}"'),
}
