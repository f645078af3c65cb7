"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import json
from pathlib import Path

from prep_assets.exports.readable import Options, Readable, hf_row, said_in_columns
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    import pyarrow as pa

    layout = options["layout"]
    folder = folder / options["split"] if layout == "llama_factory" else folder
    listed = json.loads((folder / "state.json").read_text("utf-8"))["_data_files"]
    table = pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(folder / entry["filename"]))).read_all() for entry in listed])
    documents = layout in ("axolotl", "open_instruct")
    return Readable(
        len(table), lambda number: hf_row(table.slice(number, 1).to_pylist()[0], options.get("image_dir")), documents, said_in_columns
    )
