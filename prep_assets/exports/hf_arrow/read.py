"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.exports.readable import Options, Readable, Tokens, labelled, without_nulls
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    import pyarrow as pa

    layout = options["layout"]
    folder = folder / options["split"] if layout == "llama_factory" else folder
    listed = json.loads((folder / "state.json").read_text("utf-8"))["_data_files"]
    table = pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(folder / entry["filename"]))).read_all() for entry in listed])
    documents = layout in ("axolotl", "open_instruct")
    return Readable(len(table), lambda number: _hf_row(table.slice(number, 1).to_pylist()[0], options.get("image_dir")), documents, _said)


def _said(line: dict[str, Any], number: int) -> Any:
    return without_nulls(line)


def _hf_row(row: dict[str, Any], image_dir: str | None) -> Any:
    if "chosen_ids" in row:
        return tuple(Tokens(np.array(row[f"{side}_ids"])) for side in ("chosen", "rejected"))
    if "prompt_ids" in row:
        responses = [Tokens(np.array(ids), np.array(mask) != 0) for ids, mask in zip(row["responses"], row["masks"], strict=True)]
        logprobs = [Tokens(np.array(each, np.float32)) for each in row.get("logprobs") or ()]
        return (Tokens(np.array(row["prompt_ids"])), *responses, Tokens(np.array(row["rewards"], np.float32)), *logprobs)
    if "chosen_input_ids" in row:
        return tuple(labelled(row[f"{side}_input_ids"], row[f"{side}_labels"]) for side in ("chosen", "rejected"))
    if "input_ids" not in row:
        return without_nulls(row)
    starts = None
    if "seq_lengths" in row:
        starts = np.cumsum(row["seq_lengths"]) - row["seq_lengths"]
    elif "position_ids" in row:
        starts = np.flatnonzero(np.array(row["position_ids"]) == 0)
    read = labelled(row["input_ids"], row["labels"], starts)
    if "images" not in row:
        return (read,)
    before = "" if image_dir is None else f"{image_dir}/"
    return (replace(read, images=tuple((path.removeprefix(before), None) for path in row["images"] or ())),)
