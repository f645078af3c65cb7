"""litdata chunks for LitGPT's pretraining, read with ``StreamingDataset(item_loader=TokensLoader(block_size=seq_len + 1))``.

    chunk-0-0.bin   uint32 number of items, here 1 · uint32[2] offsets · int32 tokens
    index.json      chunks with their number of tokens (``dim``), and how items are stored

The loader cuts each chunk into blocks and drops what is left over at its end, so chunks hold whole blocks; only the rest of the last block
of the stream is left out. It shifts by itself: a block is ``seq_len`` inputs and the target of the last.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, StoreError
from prep_assets.exports.blocks import require_memory_for_file, rows
from prep_assets.exports.readable import Options, Readable, Source, cut
from prep_assets.exports.registry import Progress, Size, exporter
from prep_assets.stores.segments import Segmented
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import write_bytes, write_text

READ_BY = "LitGPT"
LINES = {
    "": (
        "from litdata import StreamingDataset, TokensLoader",
        'dataset = StreamingDataset("{folder}", item_loader=TokensLoader(block_size={block_size}))',
        "dataset[0]  # {block_size} tokens: the inputs and the target of the last",
    )
}


INT32 = 16
"""Number of torch.int32 among litdata's types."""


@exporter("litdata", TokenStore, keeps_borders=False, keeps_mask=lambda _: False)
def litdata(source: TokenStore, out: Path, progress: Progress, *, block_size: int, chunk_bytes: Size = 1 << 26) -> None:
    """A token stream in chunks of whole blocks of `block_size` tokens, about `chunk_bytes` each. A stream with a loss mask is refused."""
    if "loss_mask" in source.arrays:
        raise ConfigError("litdata's token chunks have no loss mask: every token of this stream would be trained. Use hf_arrow or mds")
    if block_size < 2:
        raise ConfigError(f"block_size {block_size} must be at least 2: an input and its target")
    require_memory_for_file(source, chunk_bytes, "chunk_bytes")
    per_chunk = max(1, chunk_bytes // (4 * block_size)) * block_size
    chunks: list[dict[str, Any]] = []
    waiting = np.zeros(0, "<i4")
    for block in rows(source):
        waiting = np.concatenate([waiting, block.tokens.astype("<i4")])
        while len(waiting) >= per_chunk:
            chunks.append(_chunk(out, len(chunks), waiting[:per_chunk]))
            waiting = waiting[per_chunk:]
        progress(block.done, len(source))
    whole = len(waiting) // block_size * block_size
    if whole:
        chunks.append(_chunk(out, len(chunks), waiting[:whole]))
    if not chunks:
        raise ConfigError(f"the stream has {len(waiting):,} tokens, a block {block_size:,}: there is no whole block")
    config: dict[str, Any] = {
        "chunk_bytes": chunk_bytes,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{INT32}"],
    }
    config |= {"data_spec": '[1, {"type": null, "context": null, "children_spec": []}]', "encryption": None, "item_loader": "TokensLoader"}
    write_text(out / "index.json", json.dumps({"chunks": chunks, "config": config}, sort_keys=True))


def _chunk(out: Path, number: int, tokens: npt.NDArray[Any]) -> dict[str, Any]:
    header = 4 * 3
    path = out / f"chunk-0-{number}.bin"
    write_bytes(path, np.array([1, header, header + tokens.nbytes], "<u4").tobytes() + tokens.tobytes())
    return {"chunk_bytes": header + tokens.nbytes, "chunk_size": 1, "dim": len(tokens), "filename": path.name}


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
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
    return Readable(len(source), cut(Segmented([*chunks, np.asarray(source.arrays["tokens"][whole : source.tokens])]), None, source))
