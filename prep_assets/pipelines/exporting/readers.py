"""One reader for each export format, written from the format's description. Binary ones: `prep_assets.pipelines.exporting.binary`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.source import Pairs, Source
from prep_assets.pipelines.exporting import binary
from prep_assets.pipelines.exporting.rows import Ints, Options, Readable, Tokens, cut, labelled, without_nulls
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

# -- Arrow and Parquet ------------------------------------------------------------------------------------------------------------------


def _hf_arrow(folder: Path, source: Source, options: Options) -> Readable:
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


def _packed_parquet(folder: Path, source: Source, options: Options) -> Readable:
    table = _parquet(sorted((folder / "splits" / options["split"]).glob("*.parquet")))

    def row(number: int) -> tuple[Tokens]:
        found = {name: np.asarray(values[0], np.int64) for name, values in table.slice(number, 1).to_pydict().items()}
        # the mask stands where the prediction is made, one place before the token that it is about
        return (Tokens(found["input_ids"], np.roll(found["loss_mask"] != 0, 1), found["seq_start_id"]),)

    return Readable(len(table), row)


def _verl(folder: Path, source: Source, options: Options) -> Readable:
    table = _parquet([folder / f"{options['split']}.parquet"])

    def expected(line: dict[str, Any], number: int) -> Any:
        if "messages" in line:
            return without_nulls({name: line[name] for name in ("messages", "tools", "enable_thinking") if name in line})
        prompt, gold = line["prompt"], line["gold"]
        named, verifier = options["data_source"], line.get("verifier")
        if isinstance(named, dict):
            named = named[verifier or "number"]
        elif verifier not in (None, "number"):
            named = verifier
        truth = f"{gold:.0f}" if isinstance(gold, int | float) and gold == round(gold) else str(gold)
        return {
            "data_source": named,
            "prompt": [{"content": prompt, "role": "user"}] if isinstance(prompt, str) else without_nulls(prompt),
            "ability": options["ability"],
            "reward_model": {"ground_truth": truth, "style": {"model": "model"}.get(verifier or "", "rule")},
            "extra_info": {"index": number, "split": options["split"]},
        }

    return Readable(len(table), lambda number: without_nulls(table.slice(number, 1).to_pylist()[0]), expected=expected)


def _parquet(files: list[Path]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


# -- HDF5 and JSONL ---------------------------------------------------------------------------------------------------------------------


def _tlfs(folder: Path, source: Source, options: Options) -> Readable:
    if isinstance(source, Lines):
        path = folder / f"{options['name'] or source.path.stem}.jsonl"
        with path.open("rb") as file:
            ends = np.cumsum([len(line) for line in file])
        return Readable(len(ends), lambda number: json.loads(_line(path, int(ends[number - 1]) if number else 0)))
    import h5py

    packed = isinstance(source, PackedStore)
    file = h5py.File(folder / f"{options['name'] or ('sft_packed' if packed else 'pile_train')}.h5", "r")
    if packed:
        tokens, mask = file["tokens"], file["loss_mask"]
        return Readable(len(tokens), lambda number: (Tokens(tokens[number].astype(np.int64), mask[number] != 0),))
    assert isinstance(source, TokenStore)
    if len(file["tokens"]) != source.tokens:
        raise StoreError(f"{len(file['tokens']):,} tokens, the store has {source.tokens:,}")
    return Readable(len(source), cut(file["tokens"], None, source))


def _line(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.readline()


def _cerebras(folder: Path, source: Source, options: Options) -> Readable:
    import h5py

    files = [h5py.File(path, "r") for path in sorted(folder.glob("*.h5"), key=lambda path: int(path.stem.rpartition("_")[2]))]
    ends = np.cumsum([len(file["data"]) for file in files])

    def row(number: int) -> tuple[Tokens, ...]:
        which = int(np.searchsorted(ends, number, "right"))
        at = number - (int(ends[which - 1]) if which else 0)
        sample = files[which]["data"][at].astype(np.int64)
        if isinstance(source, Pairs):
            return _whole_inputs(*sample[:3]), _whole_inputs(*sample[3:])
        read = _inputs_and_next(sample[0], sample[1], sample[2], options["pad_id"])
        return (replace(read, images=_cerebras_images(files[which], at, sample)) if "img_path" in files[which] else read,)

    return Readable(int(ends[-1]), row)


def _cerebras_images(file: Any, at: int, sample: Ints) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The images of a sample, which its rows about padding and modality must not contradict."""
    places = file["img_data_loc"][at].tolist()
    paths = [path.decode() for path in file["img_path"][at]]
    found = tuple((path, tuple(here)) for path, here in zip(paths, places, strict=True) if path != "None")
    on_images = sorted(place for _, here in found for place in here)
    if np.flatnonzero(sample[4]).tolist() != on_images or sample[3][on_images].any() or bool(file["has_img"][at][0]) != bool(found):
        raise StoreError(f"img_data_loc says {on_images[:20]}, token_modality_idx {np.flatnonzero(sample[4])[:20].tolist()}")
    if any(place != sample.shape[1] for path, here in zip(paths, places, strict=True) if path == "None" for place in here):
        raise StoreError("a place without an image is not the length of the sample")
    return found


def _inputs_and_next(inputs: Ints, mask: Ints, labels: Ints, pad_id: int) -> Tokens:
    """A sequence of which the inputs lack the last token and the labels the first."""
    differ = np.flatnonzero(inputs[1:] != labels[:-1])
    if len(differ) > 1 or (inputs[1:][differ] != pad_id).any():
        raise StoreError(f"labels are not the inputs moved by one: they differ at {differ[:5].tolist()}")
    return Tokens(np.append(inputs[0], labels), np.append(False, mask != 0))


def _whole_inputs(inputs: Ints, mask: Ints, labels: Ints) -> Tokens:
    """A sequence with all its tokens, and the next one as label where that is trained."""
    at = np.flatnonzero(mask)
    if (at == len(inputs) - 1).any() or (labels[at] != inputs[at + 1]).any():
        raise StoreError("labels that count are not the next token")
    return Tokens(inputs, np.append(False, mask[:-1] != 0))


READERS: Mapping[str, Callable[[Path, Source, Options], Readable]] = {
    "astrai": binary.astrai,
    "cerebras": _cerebras,
    "hf_arrow": _hf_arrow,
    "litdata": binary.litdata,
    "mds": binary.mds,
    "megatron": binary.megatron,
    "nanotron": binary.nanotron,
    "olmo": binary.olmo,
    "packed_parquet": _packed_parquet,
    "tlfs": _tlfs,
    "verl": _verl,
}
