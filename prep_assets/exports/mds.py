"""MosaicML's MDS shards, for `streaming.StreamingDataset` and LLM-Foundry. Labels are unshifted, -100 where there is no loss.

shard.NNNNN.mds   uint32 n · uint32[n + 1] offsets · JSON about the columns · samples
a sample          uint32 size of each column of variable size · the columns' bytes, in the order of their names
an array          a byte: axes << 2 | code of the shape's type · the shape · the values
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.exports.blocks import require_memory_for_file, rows
from prep_assets.exports.readable import Options, Readable, Source, Tokens, labelled
from prep_assets.exports.registry import Progress, Size, exporter
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import write_bytes, write_text

READ_BY = "MosaicML streaming, LLM-Foundry"
LINES = {
    "": (
        "from streaming import StreamingDataset",
        'dataset = StreamingDataset(local="{folder}", batch_size=1)',
        "dataset[0]  # NumPy arrays; labels are unshifted",
    )
}


SHAPE_TYPES = ("<u1", "<u2", "<u4")


@exporter("mds", TokenStore, PackedStore)
def mds(source: TokenStore | PackedStore, out: Path, progress: Progress, *, size_limit: Size = 1 << 26) -> None:
    """Samples of one row each: ``tokens`` of a stream without a mask; otherwise ``input_ids, labels, position_ids``.

    `position_ids` restart in each document of a packed row. All are ``ndarray:int32``. A shard has at most `size_limit` bytes of samples.
    """
    masked = isinstance(source, PackedStore) or "loss_mask" in source.arrays
    names = ["input_ids", "labels", "position_ids"] if masked else ["tokens"]
    require_memory_for_file(source, size_limit, "size_limit", len(names))
    meta = {"column_encodings": ["ndarray:int32"] * len(names), "column_names": names, "column_sizes": [None] * len(names)}
    meta |= {"compression": None, "format": "mds", "hashes": [], "size_limit": size_limit, "version": 2}
    shards: list[dict[str, Any]] = []
    waiting: list[bytes] = []
    size = 0
    for block in rows(source):
        columns = [block.tokens, block.labels, block.position_ids] if masked else [block.tokens]
        cuts = np.cumsum(block.row_lengths)[:-1]
        for parts in zip(*(np.split(column.astype("<i4"), cuts) for column in columns), strict=True):
            encoded = [_array(part) for part in parts]
            sample = np.array([len(each) for each in encoded], "<u4").tobytes() + b"".join(encoded)
            if waiting and size + len(sample) > size_limit:
                shards.append(_shard(out, len(shards), waiting, meta))
                waiting, size = [], 0
            waiting.append(sample)
            size += len(sample)
        progress(block.done, len(source))
    shards.append(_shard(out, len(shards), waiting, meta))
    write_text(out / "index.json", json.dumps({"shards": shards, "version": 2}, sort_keys=True))


def _array(values: npt.NDArray[Any]) -> bytes:
    code = next(i for i, kind in enumerate(SHAPE_TYPES) if len(values) < 1 << 8 * np.dtype(kind).itemsize)
    return bytes([1 << 2 | code]) + np.array([len(values)], SHAPE_TYPES[code]).tobytes() + values.tobytes()


def _shard(out: Path, number: int, samples: list[bytes], meta: dict[str, Any]) -> dict[str, Any]:
    config = json.dumps(meta, sort_keys=True).encode()
    offsets = np.cumsum([0, *map(len, samples)]) + 4 + 4 * (len(samples) + 1) + len(config)
    data = np.array([len(samples), *offsets], "<u4").tobytes() + config + b"".join(samples)
    path = out / f"shard.{number:05d}.mds"
    write_bytes(path, data)
    return {**meta, "raw_data": {"basename": path.name, "bytes": len(data), "hashes": {}}, "samples": len(samples), "zip_data": None}


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
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
        return (labelled(found["input_ids"], found["labels"], np.flatnonzero(found["position_ids"] == 0)),)

    return Readable(int(ends[-1]), row)
