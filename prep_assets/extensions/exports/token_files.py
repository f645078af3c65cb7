"""Token files for pretraining: OLMo-core's numpy files, datatrove's ``.ds`` for nanotron, litdata's chunks, MosaicML's MDS.

All but MDS are unshifted streams; the trainer cuts them into windows and shifts.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import Block, document_blocks, require_memory_for_file, row_blocks
from prep_assets.extensions.exports.media import Placed, file_of, placed_images, require_images
from prep_assets.extensions.exports.readable import Options, Readable, Tokens, labelled, locate_row, row_slicer, starts_of
from prep_assets.extensions.exports.registry import Count, FileName, Folder, Progress, Size, exporter, reads
from prep_assets.proofs.tables import require_filled
from prep_assets.samples import MEDIA
from prep_assets.stores.guards import Segmented
from prep_assets.stores.table import PACKED, TOKENS, Table
from prep_assets.stores.verification import WrittenFile, write_bytes, write_json, write_text

# OLMo-core's numpy files: headerless token ids, a label mask and document borders, in parts of at most 1 GB.
#
#     token_ids_part_0000.npy     raw ids: uint8, uint16, uint32 or uint64, the smallest that holds the vocabulary
#     labels_mask_part_0000.npy   raw bool, true where the token is trained
#     token_ids_part_0000.csv.gz  ``start,end`` of each document in the part, no header
#
# The ``.npy`` files have no NumPy header; read them with `numpy.memmap`.


@exporter(
    "olmo",
    PACKED,
    TOKENS,
    read_by="OLMo-core",
    opens={
        "": (
            "NumpyPackedFSLDatasetConfig(",
            '    paths=["{folder}/token_ids_part_*.npy"], label_mask_paths=["{folder}/labels_mask_part_*.npy"],  # masks where there are any',
            "    use_array_if_local=False,  # borders of documents from the .csv.gz, or each end token would be one",
            "    expand_glob=True, sequence_length=2048, tokenizer=tokenizer)",
        )
    },
    keeps_borders=False,
)
def olmo(source: Table, out: Path, progress: Progress, *, vocab_size: Count | None = None, part_bytes: Count = 1_000_000_000) -> None:
    """Files for `NumpyPackedFSLDataset` and its siblings; a packed table gives its documents, which the trainer packs by itself.

    `vocab_size` sets the type of ids, uint32 by default. Parts are cut between documents.
    """
    dtype = np.dtype("<u4") if vocab_size is None else np.min_scalar_type(vocab_size - 1).newbyteorder("<")
    names = {"token_ids": "token_ids_part_{}.npy", "labels_mask": "labels_mask_part_{}.npy", "borders": "token_ids_part_{}.csv.gz"}
    if not source.has("weight"):
        del names["labels_mask"]
    instances = tokens = trained = 0
    number, used, part_tokens = -1, 0, part_bytes // dtype.itemsize
    with ExitStack() as stack:
        for block in document_blocks(source, progress):
            for part, start, span in _split_into_parts(block.row_lengths, max(number, 0), used, part_tokens):
                if part != number:
                    stack.close()
                    number = part
                    files = {key: stack.enter_context(WrittenFile(out / name.format(f"{part:04d}"))) for key, name in names.items()}
                used = start + _append_documents(files, block, span, start, dtype)
            instances, tokens, trained = block.done, tokens + len(block.tokens), trained + int(block.trained.sum())
    statistics = {"total_instances": instances, "total_tokens": tokens, "trainable_tokens": trained}
    write_json(out / "dataset_statistics.json", {"overall_statistics": statistics}, indent=2)


def _split_into_parts(lengths: npt.NDArray[np.int64], part: int, used: int, part_tokens: int) -> Iterator[tuple[int, int, slice]]:
    """Yield the part, the offset in it and the documents to append there. A part has at most `part_tokens` tokens, or one longer document."""
    first, ends = 0, np.cumsum(lengths)
    while first < len(lengths):
        begin = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, begin + part_tokens - used, "right"))
        if stop <= first and used:
            part, used = part + 1, 0
            continue
        stop = max(stop, first + 1)
        yield part, used, slice(first, stop)
        first, used = stop, used + int(ends[stop - 1]) - begin


def _append_documents(files: dict[str, WrittenFile], block: Block, documents: slice, offset: int, dtype: np.dtype[Any]) -> int:
    """Append documents of a block to a part that has `offset` tokens, and return their number of tokens."""
    lengths = block.row_lengths[documents]
    begin, ends = int(block.row_lengths[: documents.start].sum()), np.cumsum(lengths)
    span = slice(begin, begin + int(ends[-1]))
    files["token_ids"].write_array(block.ids(dtype)[span])
    if "labels_mask" in files:
        files["labels_mask"].write_array(block.trained[span])
    borders = zip((offset + ends - lengths).tolist(), (offset + ends).tolist(), strict=True)
    # gzip members of one file form one stream; fixed time and no name make the bytes reproducible
    with gzip.GzipFile(filename="", mode="wb", fileobj=files["borders"], mtime=0) as file:
        file.write("".join(f"{start},{end}\n" for start, end in borders).encode())
    return int(ends[-1])


@reads("olmo")
def read_olmo(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `olmo` export with code independent of its writer."""
    size = options["vocab_size"]
    dtype = "<u4" if size is None else next(f"<u{width}" for width in (1, 2, 4, 8) if size <= 256**width)
    parts = []
    for path in sorted(folder.glob("token_ids_part_*.npy")):
        ids, mask = np.memmap(path, dtype, "r"), path.with_name(path.name.replace("token_ids", "labels_mask"))
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
            borders = np.array([line.split(",") for line in lines], np.int64)
        parts.append((ids, np.memmap(mask, np.uint8, "r") if mask.exists() else None, borders))
    ends = np.cumsum([len(borders) for _, _, borders in parts])
    lengths = np.concatenate([borders[:, 1] - borders[:, 0] for _, _, borders in parts])
    require_filled([len(ids) for ids, *_ in parts], options["part_bytes"] // np.dtype(dtype).itemsize, lengths)
    counted = {"total_instances": int(ends[-1]), "total_tokens": sum(len(ids) for ids, *_ in parts)}
    masks = [mask for _, mask, _ in parts if mask is not None]
    if len(masks) != len(parts) * len(source.has("weight")):
        raise StoreError(f"{len(masks)} of {len(parts)} parts have a labels_mask; the store has {'one' if not masks else 'none'}")
    counted |= {"trainable_tokens": sum(int(np.count_nonzero(mask)) for mask in masks)} if masks else {}
    said = json.loads((folder / "dataset_statistics.json").read_text("utf-8"))["overall_statistics"]
    if said.keys() != counted.keys() | {"trainable_tokens"} or any(said[name] != count for name, count in counted.items()):
        raise StoreError(f"dataset_statistics.json says {said}, the files have {counted}")

    def row(number: int) -> tuple[Tokens]:
        part, index = locate_row(ends, number)
        ids, mask, borders = parts[part]
        start, end = borders[index]
        return (Tokens(ids[start:end].astype(np.int64), None if mask is None else mask[start:end] != 0),)

    return Readable(int(ends[-1]), row, documents=True)


# datatrove's ``.ds`` files, which nanotron's Nanoset reads in windows of ``seq_len + 1`` tokens.
#
#     00000_tokens.ds            raw uint16 or uint32, documents end to end, each with its end token
#     00000_tokens.ds.index      uint64, end of each document, in tokens
#     00000_tokens.ds.loss       one byte per token, 1 where trained
#     00000_tokens.ds.metadata   three lines: tokenizer|token size, number of tokens, the same rounded


@exporter(
    "nanotron",
    PACKED,
    TOKENS,
    read_by="nanotron, datatrove",
    opens={"": ("dataset:", '  dataset_folder: "{folder}"', "  vocab_size: {vocab_size}")},
)
def nanotron(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    vocab_size: Count | None = None,
    tokenizer: str = "unknown",
    name: FileName = "00000_tokens",
) -> None:
    """One ``.ds`` file with its companions. `vocab_size` decides between 2 and 4 bytes a token, 4 where it is not given."""
    size = 2 if vocab_size is not None and vocab_size <= 1 << 16 else 4
    end = 0
    with ExitStack() as stack:
        suffixes = ("", ".index", ".loss") if source.has("weight") else ("", ".index")
        tokens, index, *loss = (stack.enter_context(WrittenFile(out / f"{name}.ds{suffix}")) for suffix in suffixes)
        for block in document_blocks(source, progress):
            tokens.write_array(block.ids(f"<u{size}"))
            index.write_array((np.cumsum(block.row_lengths) + end).astype("<u8"))
            for file in loss:
                file.write_array(block.trained)
            end += len(block.tokens)
    units = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3))
    rounded = next((f"{end / count:.3g} {unit}T" for unit, count in units if end >= count), f"{end} T")
    write_text(out / f"{name}.ds.metadata", f"{tokenizer}|{size}\n{end}\n{rounded}")


@reads("nanotron")
def read_nanotron(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `nanotron` export with code independent of its writer."""
    path = folder / f"{options['name']}.ds"
    about, total, rounded = path.with_name(f"{path.name}.metadata").read_text("utf-8").split("\n")
    width = 2 if (options["vocab_size"] or 2**32) <= 2**16 else 4
    if about != (expected := f"{options['tokenizer']}|{width}"):
        raise StoreError(f"{path.name}.metadata says {about!r}, {expected!r} is expected")
    ids, ends = np.memmap(path, f"<u{width}", "r"), np.fromfile(path.with_name(f"{path.name}.index"), "<u8").astype(np.int64)
    loss = path.with_name(f"{path.name}.loss")
    mask = np.memmap(loss, np.uint8, "r") if loss.exists() else None
    if (mask is not None) != bool(source.has("weight")):
        raise StoreError(f"{loss.name} is {'missing' if mask is None else 'there'}; the store has {'a' if mask is None else 'no'} mask")
    if len(ids) != ends[-1] or (mask is not None and len(mask) != len(ids)):
        raise StoreError(f"{path.name}: {len(ids):,} tokens, its index ends at {ends[-1]:,}")
    if int(total) != len(ids):
        raise StoreError(f"{path.name}.metadata says {total} tokens, there are {len(ids):,}")
    require_rounded(rounded, len(ids))
    return Readable(len(ends), row_slicer(ids, mask, ends), documents=True)


def require_rounded(rounded: str, count: int) -> None:
    """Raise for a text such as ``1.2 BT`` that does not say about how many tokens there are.

    Raises:
        StoreError: it does not.
    """
    amount, _, unit = rounded.partition(" ")
    units = {f"{prefix}T": 1000**power for power, prefix in enumerate(("", "K", "M", "B", "T"))}
    exact = float(amount) * units.get(unit, 0)
    if abs(exact - count) > 0.006 * exact or float(amount) > 1000 or (unit != "T" and float(amount) < 1):
        raise StoreError(f"{rounded!r} is not the number of {count:,} tokens")


# litdata chunks for LitGPT's pretraining, read with ``StreamingDataset(item_loader=TokensLoader(block_size=seq_len + 1))``.
#
#     chunk-0-0.bin   uint32 number of items, always 1 · uint32[2] offsets · int32 tokens
#     index.json      chunks with their number of tokens (``dim``), and how items are stored
#
# The loader cuts each chunk into blocks and drops the remainder, so chunks hold whole blocks; only an incomplete last block of the stream is
# dropped. A block is ``seq_len`` inputs and the target of the last.

_INT32 = 16
"""litdata's number of torch.int32."""


@exporter(
    "litdata",
    TOKENS,
    read_by="LitGPT",
    opens={
        "": (
            "from litdata import StreamingDataset, TokensLoader",
            'dataset = StreamingDataset("{folder}", item_loader=TokensLoader(block_size={block_size}))',
            "dataset[0]  # {block_size} tokens: the inputs and the target of the last",
        )
    },
    keeps_borders=False,
    keeps_mask=lambda _: False,
)
def litdata(source: Table, out: Path, progress: Progress, *, block_size: int, chunk_bytes: Size = 1 << 26) -> None:
    """A token stream in chunks of whole blocks of `block_size` tokens, about `chunk_bytes` each. A stream with a loss mask is refused."""
    if source.has("weight"):
        raise ConfigError("litdata's token chunks have no loss mask: every token of this stream would be trained. Use hf_arrow or mds")
    if block_size < 2:
        raise ConfigError(f"block_size {block_size} must be at least 2: an input and its target")
    require_memory_for_file(source, chunk_bytes, "chunk_bytes")
    per_chunk = max(1, chunk_bytes // (4 * block_size)) * block_size
    chunks: list[dict[str, Any]] = []
    pending = np.zeros(0, "<i4")
    for block in row_blocks(source, progress):
        pending = np.concatenate([pending, block.tokens.astype("<i4")])
        while len(pending) >= per_chunk:
            chunks.append(_write_chunk(out, len(chunks), pending[:per_chunk]))
            pending = pending[per_chunk:]
    if usable := len(pending) // block_size * block_size:
        chunks.append(_write_chunk(out, len(chunks), pending[:usable]))
    if not chunks:
        raise ConfigError(f"the stream has {len(pending):,} tokens, a block {block_size:,}: there is no whole block")
    config = {
        "chunk_bytes": chunk_bytes,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{_INT32}"],
        "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    write_text(out / "index.json", json.dumps({"chunks": chunks, "config": config}, sort_keys=True))


def _write_chunk(out: Path, number: int, tokens: npt.NDArray[Any]) -> dict[str, Any]:
    header = 4 * 3
    path = out / f"chunk-0-{number}.bin"
    write_bytes(path, np.array([1, header, header + tokens.nbytes], "<u4").tobytes() + tokens.tobytes())
    return {"chunk_bytes": header + tokens.nbytes, "chunk_size": 1, "dim": len(tokens), "filename": path.name}


@reads("litdata")
def read_litdata(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `litdata` export with code independent of its writer."""
    ends, chunks, index = source.ends("tokens"), [], json.loads((folder / "index.json").read_text("utf-8"))
    config = {name: index["config"][name] for name in ("data_format", "item_loader", "compression", "chunk_bytes")}
    if [*config.values()] != [["no_header_tensor:16"], "TokensLoader", None, options["chunk_bytes"]]:
        raise StoreError(f"index.json describes other files than of int32 tokens: {index['config']}")
    for entry in index["chunks"]:
        if (entry["chunk_size"], entry["chunk_bytes"]) != (1, (folder / entry["filename"]).stat().st_size):
            raise StoreError(f"{entry['filename']} has another size than index.json says: {entry}")
        items, begin, end = np.fromfile(folder / entry["filename"], "<u4", 3).tolist()
        if (items, begin, end - begin) != (1, 12, 4 * entry["dim"]):
            raise StoreError(f"{entry['filename']}: {items} items from byte {begin} to {end}, the index says {entry['dim']:,} tokens")
        chunks.append(np.memmap(folder / entry["filename"], "<i4", "r", offset=12, shape=(entry["dim"],)))
    tokens, block = Segmented(chunks), 4 * options["block_size"]
    size = int(ends[-1]) // options["block_size"] * options["block_size"]
    if len(tokens) != size:
        raise StoreError(f"{len(tokens):,} tokens, {size:,} are expected: the stream without the rest after its last whole block")
    require_filled([4 * len(chunk) for chunk in chunks], options["chunk_bytes"], np.full(4 * size // block, block))
    # the incomplete last block is not in the files; taking it from the store lets the last records be compared whole
    return Readable(
        len(source), row_slicer(Segmented([*chunks, np.asarray(source.columns["tokens"].values[size : int(ends[-1])])]), None, ends)
    )


# MosaicML's MDS shards, for `streaming.StreamingDataset` and LLM-Foundry. Labels are unshifted, -100 where there is no loss.
#
#     shard.NNNNN.mds   uint32 n · uint32[n + 1] offsets · JSON about the columns · samples
#     sample            uint32 size of each column of variable size · the columns' bytes, in the order of their names
#     array             a byte: axes << 2 | code of the shape's type · the shape · the values

_SHAPE_TYPES = ("<u1", "<u2", "<u4")


@exporter(
    "mds",
    PACKED,
    TOKENS,
    read_by="MosaicML streaming, LLM-Foundry",
    opens={
        "": (
            "from streaming import StreamingDataset",
            'dataset = StreamingDataset(local="{folder}", batch_size=1)',
            "dataset[0]  # NumPy arrays; labels are unshifted",
        )
    },
    images=MEDIA,
)
def mds(source: Table, out: Path, progress: Progress, *, size_limit: Size = 1 << 26, image_dir: Folder | None = None) -> None:
    """Samples of one row each: ``tokens`` of a stream without a mask; otherwise ``input_ids, labels, position_ids``.

    `position_ids` restart in each document of a packed row. All are ``ndarray:int32``. A shard has at most `size_limit` bytes of samples.

    With images, ``images`` (``json``) lists path, sha256, size in bytes and place of each, and ``image_bytes`` (``bytes``) has their files, below `image_dir`,
    end to end.
    """
    require_images(source, image_dir, "mds")
    names = ["input_ids", "labels", "position_ids"] if source.has("weight") else ["tokens"]
    require_memory_for_file(source, size_limit, "size_limit", len(names))
    encodings = {**dict.fromkeys(names, "ndarray:int32"), **(_IMAGE_COLUMNS if len(source.images) else {})}
    meta = {"column_encodings": [*encodings.values()], "column_names": [*encodings], "column_sizes": [None] * len(encodings)}
    meta |= {"compression": None, "format": "mds", "hashes": [], "size_limit": size_limit, "version": 2}
    shards: list[dict[str, Any]] = []
    pending: list[bytes] = []
    size = 0
    for block in row_blocks(source, progress):
        columns = [block.tokens, block.labels, block.position_ids] if source.has("weight") else [block.tokens]
        cuts = np.cumsum(block.row_lengths)[:-1]
        first = block.done - len(block.row_lengths)
        images = placed_images(source.images, first, block.done)
        for row, parts in enumerate(zip(*(np.split(column.astype("<i4"), cuts) for column in columns), strict=True), first):
            encoded = [_encode_array(part) for part in parts]
            if len(source.images):
                encoded += _encode_images(images.get(row, []), image_dir)
            sample = np.array([len(column) for column in encoded], "<u4").tobytes() + b"".join(encoded)
            if pending and size + len(sample) > size_limit:
                shards.append(_write_shard(out, len(shards), pending, meta))
                pending, size = [], 0
            pending.append(sample)
            size += len(sample)
    shards.append(_write_shard(out, len(shards), pending, meta))
    write_text(out / "index.json", json.dumps({"shards": shards, "version": 2}, sort_keys=True))


_IMAGE_COLUMNS = {"images": "json", "image_bytes": "bytes"}


def _encode_images(images: Sequence[Placed], folder: str | None) -> list[bytes]:
    files = [file_of(image, folder, "mds") for image, _, _ in images]
    listed = [
        {"start": start, "length": length, "bytes": len(file), **json.loads(image.line())}
        for (image, start, length), file in zip(images, files, strict=True)
    ]
    return [json.dumps(listed).encode(), b"".join(files)]


def _encode_array(values: npt.NDArray[Any]) -> bytes:
    code = next(i for i, kind in enumerate(_SHAPE_TYPES) if len(values) < 1 << 8 * np.dtype(kind).itemsize)
    return bytes([1 << 2 | code]) + np.array([len(values)], _SHAPE_TYPES[code]).tobytes() + values.tobytes()


def _write_shard(out: Path, number: int, samples: list[bytes], meta: dict[str, Any]) -> dict[str, Any]:
    config = json.dumps(meta, sort_keys=True).encode()
    offsets = np.cumsum([0, *map(len, samples)]) + 4 + 4 * (len(samples) + 1) + len(config)
    data = np.array([len(samples), *offsets], "<u4").tobytes() + config + b"".join(samples)
    path = out / f"shard.{number:05d}.mds"
    write_bytes(path, data)
    return {**meta, "raw_data": {"basename": path.name, "bytes": len(data), "hashes": {}}, "samples": len(samples), "zip_data": None}


def _read_images(columns: Mapping[str, bytes], source: Table, row: int) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
    """Path and places of the images of a row.

    Raises:
        StoreError: a file has another sha256 than the store says.
    """
    stored = source.images.references(np.flatnonzero(np.asarray(source.images.record) == row))
    listed, at = json.loads(columns["images"]), 0
    for image, expected in zip(listed, stored, strict=True):
        file, at = columns["image_bytes"][at : at + image["bytes"]], at + image["bytes"]
        if hashlib.sha256(file).hexdigest() != expected.sha256:
            raise StoreError(f"row {row}: its file {expected.path!r} is another one than that of the store")
    return tuple((image["path"], tuple(range(image["start"], image["start"] + image["length"]))) for image in listed)


@reads("mds")
def read_mds(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `mds` export with code independent of its writer."""
    index = json.loads((folder / "index.json").read_text("utf-8"))
    shards = index["shards"]
    ends = np.cumsum([shard["samples"] for shard in shards])
    for shard in [index, *shards]:
        if (shard["version"], shard.get("format", "mds"), shard.get("compression")) != (2, "mds", None):
            raise StoreError(f"index.json describes a shard that streaming cannot read: {shard}")
    sizes = []
    for shard in shards:
        file, about = folder / shard["raw_data"]["basename"], {*shard} - {"raw_data", "samples", "zip_data"}
        data = np.memmap(file, np.uint8, "r")
        config = data[4 * (2 + shard["samples"]) : int(data[4:8].view("<u4")[0])].tobytes()
        if len(data) != shard["raw_data"]["bytes"] or json.loads(config) != {name: shard[name] for name in about}:
            raise StoreError(f"{file} has another size or other columns than index.json says")
        sizes.append(np.diff(data[4 : 4 * (2 + shard["samples"])].view("<u4").astype(np.int64)))
    require_filled([int(each.sum()) for each in sizes], options["size_limit"], np.concatenate(sizes))

    def row(number: int) -> tuple[Tokens]:
        shard_number, index = locate_row(ends, number)
        shard = shards[shard_number]
        data = np.memmap(folder / shard["raw_data"]["basename"], np.uint8, "r")
        offset = int(data[4 * (1 + index) :][:4].view("<u4")[0])
        names = shard["column_names"]
        sizes = data[offset : offset + 4 * len(names)].view("<u4").tolist()
        columns, raw, offset = {}, dict[str, bytes](), offset + 4 * len(names)
        for name, size in zip(names, sizes, strict=True):
            if name in ("images", "image_bytes"):
                raw[name] = data[offset : offset + size].tobytes()
                offset += size
                continue
            # a byte with the number of axes and the type of the shape, then the shape of one axis, then the values
            width = (1, 2, 4)[int(data[offset]) & 3]
            shape = int.from_bytes(data[offset + 1 : offset + 1 + width].tobytes(), "little")
            columns[name] = np.frombuffer(data[offset + 1 + width : offset + size].tobytes(), "<i4").astype(np.int64)
            if data[offset] >> 2 != 1 or shape != len(columns[name]):
                raise StoreError(f"row {number}: {name} has a shape of {data[offset] >> 2} axes, {shape}, and {len(columns[name])} values")
            offset += size
        images = _read_images(raw, source, number) if raw else None
        if "tokens" in columns:
            return (Tokens(columns["tokens"], images=images),)
        read = labelled(columns["input_ids"], columns["labels"], starts_of(columns["position_ids"]))
        return (replace(read, images=images),)

    return Readable(int(ends[-1]), row)
