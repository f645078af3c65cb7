"""One reader for each export format, written from the format's description: what a row of it says.

`prep_assets.stores.open` reads Megatron's and AstrAI's files; pyarrow, h5py and NumPy read the others.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.exports.source import Pairs, Source
from prep_assets.stores.lines import Lines
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import Segmented, TokenStore

Ints = npt.NDArray[np.int64]
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A row.

    Attributes:
        tokens: int64[T], perhaps with padding at the end.
        trained: bool[T], whether a token is trained, at its own place; `None` where the format does not say.
        starts: where documents start in it; `None` where the format does not say. Padding may count as documents.
    """

    tokens: Ints
    trained: npt.NDArray[np.bool_] | None = None
    starts: Ints | None = None


def _itself(line: dict[str, Any], number: int) -> Any:
    return line


@dataclass(frozen=True, slots=True, eq=False)
class Readable:
    """An export, opened.

    Attributes:
        count: number of its rows.
        row: what a row says: `Tokens` of one sequence, or of both sides of a pair; of lines, anything comparable with `expected`.
        documents: whether its rows are the documents of a packed table.
        expected: what a line of the source, with its number, becomes in this format.
    """

    count: int
    row: Callable[[int], Any]
    documents: bool = False
    expected: Callable[[dict[str, Any], int], Any] = _itself


def _labelled(tokens: Any, labels: Any, starts: Ints | None = None) -> Tokens:
    """A row whose labels are its own tokens where they are trained, -100 elsewhere."""
    ids, said = np.asarray(tokens, np.int64), np.asarray(labels, np.int64)
    trained = said != -100
    if len(ids) != len(said) or (ids != said)[trained].any():
        raise StoreError(f"{len(said):,} labels of {len(ids):,} tokens are neither the token at their place nor -100")
    return Tokens(ids, trained, starts)


def _cut(tokens: Any, mask: Any, source: TokenStore | PackedStore) -> Callable[[int], tuple[Tokens]]:
    """Rows of a format that has its records end to end and no borders: where the source says they are."""
    width = source.row_len if isinstance(source, PackedStore) else 0

    def row(number: int) -> tuple[Tokens]:
        if isinstance(source, PackedStore):
            part = slice(number * width, (number + 1) * width)
        else:
            part = slice(int(source.ends[number - 1]) if number else 0, int(source.ends[number]))
        return (Tokens(np.asarray(tokens[part], np.int64), None if mask is None else np.asarray(mask[part]) != 0),)

    return row


# -- Arrow and Parquet ------------------------------------------------------------------------------------------------------------------


def _hf_arrow(folder: Path, source: Source, options: Options) -> Readable:
    import pyarrow as pa

    layout = options["layout"]
    folder = folder / options["split"] if layout == "llama_factory" else folder
    listed = json.loads((folder / "state.json").read_text("utf-8"))["_data_files"]
    table = pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(folder / entry["filename"]))).read_all() for entry in listed])
    documents = layout in ("axolotl", "open_instruct")
    return Readable(len(table), lambda number: _hf_row(table.slice(number, 1).to_pylist()[0]), documents)


def _hf_row(row: dict[str, Any]) -> Any:
    if "chosen_ids" in row:
        return tuple(Tokens(np.array(row[f"{side}_ids"])) for side in ("chosen", "rejected"))
    if "chosen_input_ids" in row:
        return tuple(_labelled(row[f"{side}_input_ids"], row[f"{side}_labels"]) for side in ("chosen", "rejected"))
    if "input_ids" not in row:
        return row
    starts = None
    if "seq_lengths" in row:
        starts = np.cumsum(row["seq_lengths"]) - row["seq_lengths"]
    elif "position_ids" in row:
        starts = np.flatnonzero(np.array(row["position_ids"]) == 0)
    return (_labelled(row["input_ids"], row["labels"], starts),)


def _packed_parquet(folder: Path, source: Source, options: Options) -> Readable:
    table = _parquet(sorted((folder / "splits" / options["split"]).glob("*.parquet")))

    def row(number: int) -> tuple[Tokens]:
        found = {name: np.asarray(values[0], np.int64) for name, values in table.slice(number, 1).to_pydict().items()}
        # the mask stands where the prediction is made, one place before the token that it is about
        return (Tokens(found["input_ids"], np.roll(found["loss_mask"] != 0, 1), found["seq_start_id"]),)

    return Readable(len(table), row)


def _verl(folder: Path, source: Source, options: Options) -> Readable:
    table = _parquet([folder / f"{options['split']}.parquet"])

    def expected(line: dict[str, Any], number: int) -> dict[str, Any]:
        if "messages" in line:
            return {name: line[name] for name in ("messages", "tools", "enable_thinking") if name in line}
        prompt, gold = line["prompt"], line["gold"]
        truth = f"{gold:.0f}" if isinstance(gold, int | float) and gold == round(gold) else str(gold)
        return {
            "data_source": options["data_source"],
            "prompt": [{"content": prompt, "role": "user"}] if isinstance(prompt, str) else prompt,
            "ability": options["ability"],
            "reward_model": {"ground_truth": truth, "style": "rule"},
            "extra_info": {"index": number, "split": options["split"]},
        }

    return Readable(len(table), lambda number: table.slice(number, 1).to_pylist()[0], expected=expected)


def _parquet(files: list[Path]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


# -- indexed and raw binary -------------------------------------------------------------------------------------------------------------


def _megatron(folder: Path, source: Source, options: Options) -> Readable:
    store = open_store(folder, "megatron")

    def row(number: int) -> tuple[Tokens, ...]:
        if "sequence" in store.keys:
            return (Tokens(np.asarray(store.fetch_record(number, "sequence"), np.int64)),)
        found = store.fetch_record(number, store.keys)
        if isinstance(source, Pairs):
            return tuple(_labelled(found[f"{side}_input_ids"], found[f"{side}_labels"]) for side in ("chosen", "rejected"))
        document = found["attention_mask"] if options["neat"] and isinstance(source, PackedStore) else None
        starts = None if document is None else np.flatnonzero(np.diff(document, prepend=0) > 0)
        return (_labelled(found["input_ids"], found["labels"], starts),)

    return Readable(store.num_records, row)


def _astrai(folder: Path, source: Source, options: Options) -> Readable:
    store = open_store(folder, "bin")
    if isinstance(source, Pairs):

        def pair(number: int) -> tuple[Tokens, ...]:
            found = store.fetch_record(number, store.keys)
            return tuple(Tokens(found[side].astype(np.int64), found[f"{side}_mask"] != 0) for side in ("chosen", "rejected"))

        return Readable(store.num_records, pair)
    assert isinstance(source, PackedStore | TokenStore)
    # one token more than the rows of a packed table: a window must have a next token
    expected = len(source) * source.row_len + 1 if isinstance(source, PackedStore) else source.tokens
    if len(store) != expected:
        raise StoreError(f"{len(store):,} tokens, {expected:,} are expected")
    arrays = store.data.arrays
    return Readable(len(source), _cut(arrays["sequence"], arrays.get("loss_mask"), source))


def _olmo(folder: Path, source: Source, options: Options) -> Readable:
    size = options["vocab_size"]
    kind = "<u4" if size is None else next(f"<u{width}" for width in (1, 2, 4, 8) if size <= 256**width)
    parts = []
    for path in sorted(folder.glob("token_ids_part_*.npy")):
        ids, mask = np.memmap(path, kind, "r"), path.with_name(path.name.replace("token_ids", "labels_mask"))
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
            borders = np.array([line.split(",") for line in lines], np.int64)
        parts.append((ids, np.memmap(mask, np.uint8, "r") if mask.exists() else None, borders))
    ends = np.cumsum([len(borders) for _, _, borders in parts])

    def row(number: int) -> tuple[Tokens]:
        part = int(np.searchsorted(ends, number, "right"))
        ids, mask, borders = parts[part]
        start, end = borders[number - (int(ends[part - 1]) if part else 0)]
        return (Tokens(ids[start:end].astype(np.int64), None if mask is None else mask[start:end] != 0),)

    return Readable(int(ends[-1]), row, documents=True)


def _nanotron(folder: Path, source: Source, options: Options) -> Readable:
    path = folder / f"{options['name']}.ds"
    width = int(path.with_name(f"{path.name}.metadata").read_text("utf-8").split("\n")[0].rpartition("|")[2])
    ids, ends = np.memmap(path, f"<u{width}", "r"), np.fromfile(path.with_name(f"{path.name}.index"), "<u8").astype(np.int64)
    loss = path.with_name(f"{path.name}.loss")
    mask = np.memmap(loss, np.uint8, "r") if loss.exists() else None
    if len(ids) != ends[-1] or (mask is not None and len(mask) != len(ids)):
        raise StoreError(f"{path.name}: {len(ids):,} tokens, its index ends at {ends[-1]:,}")

    def row(number: int) -> tuple[Tokens]:
        part = slice(int(ends[number - 1]) if number else 0, int(ends[number]))
        return (Tokens(ids[part].astype(np.int64), None if mask is None else mask[part] != 0),)

    return Readable(len(ends), row, documents=True)


def _litdata(folder: Path, source: Source, options: Options) -> Readable:
    assert isinstance(source, TokenStore)
    chunks = []
    for entry in json.loads((folder / "index.json").read_text("utf-8"))["chunks"]:
        items, first, end = np.fromfile(folder / entry["filename"], "<u4", 3).tolist()
        if (items, first, end - first) != (1, 12, 4 * entry["dim"]):
            raise StoreError(f"{entry['filename']}: {items} items from byte {first} to {end}, the index says {entry['dim']:,} tokens")
        chunks.append(np.memmap(folder / entry["filename"], "<i4", "r", offset=12, shape=(entry["dim"],)))
    tokens = Segmented(chunks)
    whole = source.tokens // options["block_size"] * options["block_size"]
    if len(tokens) != whole:
        raise StoreError(f"{len(tokens):,} tokens, {whole:,} are expected: the stream without the rest after its last whole block")
    # that rest is not in the files; it is taken from the store, so that the last records can be compared whole
    return Readable(len(source), _cut(Segmented([*chunks, np.asarray(source.arrays["tokens"][whole : source.tokens])]), None, source))


def _mds(folder: Path, source: Source, options: Options) -> Readable:
    shards = json.loads((folder / "index.json").read_text("utf-8"))["shards"]
    ends = np.cumsum([shard["samples"] for shard in shards])

    def row(number: int) -> tuple[Tokens]:
        which = int(np.searchsorted(ends, number, "right"))
        shard = shards[which]
        data = np.memmap(folder / shard["raw_data"]["basename"], np.uint8, "r")
        at = int(data[4 * (1 + number - (int(ends[which - 1]) if which else 0)) :][:4].view("<u4")[0])
        names = shard["column_names"]
        sizes = data[at : at + 4 * len(names)].view("<u4").tolist()
        found, at = {}, at + 4 * len(names)
        for name, size in zip(names, sizes, strict=True):
            # a byte with the number of axes and the type of the shape, the shape of one axis, the values
            header = 1 + (1, 2, 4)[int(data[at]) & 3]
            found[name] = np.frombuffer(data[at + header : at + size].tobytes(), "<i4").astype(np.int64)
            at += size
        if "tokens" in found:
            return (Tokens(found["tokens"]),)
        return (_labelled(found["input_ids"], found["labels"], np.flatnonzero(found["position_ids"] == 0)),)

    return Readable(int(ends[-1]), row)


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
    return Readable(len(source), _cut(file["tokens"], None, source))


def _line(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.readline()


def _cerebras(folder: Path, source: Source, options: Options) -> Readable:
    import h5py

    tables = [h5py.File(path, "r")["data"] for path in sorted(folder.glob("*.h5"), key=lambda path: int(path.stem.rpartition("_")[2]))]
    ends = np.cumsum([len(table) for table in tables])

    def row(number: int) -> tuple[Tokens, ...]:
        which = int(np.searchsorted(ends, number, "right"))
        sample = tables[which][number - (int(ends[which - 1]) if which else 0)].astype(np.int64)
        if isinstance(source, Pairs):
            return _whole_inputs(*sample[:3]), _whole_inputs(*sample[3:])
        return (_inputs_and_next(sample[0], sample[1], sample[2], options["pad_id"]),)

    return Readable(int(ends[-1]), row)


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
    "astrai": _astrai,
    "cerebras": _cerebras,
    "hf_arrow": _hf_arrow,
    "litdata": _litdata,
    "mds": _mds,
    "megatron": _megatron,
    "nanotron": _nanotron,
    "olmo": _olmo,
    "packed_parquet": _packed_parquet,
    "tlfs": _tlfs,
    "verl": _verl,
}
