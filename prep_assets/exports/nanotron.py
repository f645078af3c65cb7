"""datatrove's ``.ds`` files, which nanotron's Nanoset reads.

    00000_tokens.ds            raw uint16 or uint32, documents end to end, each closed by its end token
    00000_tokens.ds.index      uint64, where each document ends, in tokens
    00000_tokens.ds.loss       one byte a token, 1 where it is trained; unshifted
    00000_tokens.ds.metadata   three lines: tokenizer|token size, number of tokens, the same for people

The reader cuts windows of ``seq_len + 1`` tokens and shifts by itself.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.blocks import count, documents
from prep_assets.exports.readable import Options, Readable, Source, Tokens
from prep_assets.exports.registry import Count, FileName, Progress, exporter
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import WrittenFile, write_text

READ_BY = "nanotron, datatrove"
LINES = {"": ("dataset:", '  dataset_folder: "{folder}"', "  vocab_size: {vocab_size}")}


@exporter("nanotron", TokenStore, PackedStore)
def nanotron(
    source: TokenStore | PackedStore,
    out: Path,
    progress: Progress,
    *,
    vocab_size: Count | None = None,
    tokenizer: str = "unknown",
    name: FileName = "00000_tokens",
) -> None:
    """One ``.ds`` file with its companions. `vocab_size` decides between 2 and 4 bytes a token, 4 where it is not given."""
    size = 2 if vocab_size is not None and vocab_size <= 1 << 16 else 4
    masked = isinstance(source, PackedStore) or "loss_mask" in source.arrays
    total, end = count(source, of_documents=True), 0
    with ExitStack() as stack:
        tokens, index = (stack.enter_context(WrittenFile(out / f"{name}.ds{suffix}")) for suffix in ("", ".index"))
        loss = stack.enter_context(WrittenFile(out / f"{name}.ds.loss")) if masked else None
        for block in documents(source):
            tokens.write_array(block.ids(f"<u{size}"))
            index.write_array((np.cumsum(block.row_lengths) + end).astype("<u8"))
            if loss is not None:
                loss.write_array(block.trained)
            end += len(block.tokens)
            progress(block.done, total)
    write_text(out / f"{name}.ds.metadata", f"{tokenizer}|{size}\n{end}\n{_readable(end)}")


def _readable(tokens: int) -> str:
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}T"
    return f"{tokens} T"


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
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
