"""Arrow data sets for trainers built on Hugging Face `datasets`: TRL, axolotl, LLaMA-Factory, open-instruct.

Labels are unshifted in all of them: ``labels[i]`` belongs to ``input_ids[i]``, -100 where there is no loss, and the model shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from prep_assets.errors import ConfigError
from prep_assets.exports.arrow import save_splits, save_to_disk, tables
from prep_assets.exports.blocks import Block, count, documents, group_blocks, rows, sides
from prep_assets.exports.hf_arrow import columns as hf_columns
from prep_assets.exports.registry import FileName, Progress, TokenId, exporter
from prep_assets.exports.source import Pairs
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

Layout = Literal["trl", "axolotl", "llama_factory", "open_instruct"]


@exporter(
    "hf_arrow",
    *(PackedStore, TokenStore, Pairs, GroupStore, Lines),
    images=True,
    kind="huggingface",
    only={
        "pad_id": lambda kind, options: kind is PackedStore and options["layout"] == "llama_factory",
        "image_dir": lambda kind, options: kind is TokenStore and options["layout"] == "llama_factory",
    },
)
def hf_arrow(
    source: PackedStore | TokenStore | Pairs | GroupStore | Lines,
    out: Path,
    progress: Progress,
    *,
    layout: Layout = "trl",
    split: FileName = "train",
    pad_id: TokenId = 0,
    image_dir: str | None = None,
) -> None:
    """A folder for ``datasets.load_from_disk``, with the columns that `layout` reads.

    A packed table becomes packed rows for ``trl`` and ``llama_factory`` (neat packing); ``axolotl`` and ``open_instruct`` pack by
    themselves and get its documents. `pad_id` fills the rows of neat packing. `image_dir` is put before local paths of images.
    """
    if isinstance(source, PackedStore | TokenStore) and len(source.images):
        found = _with_images(source, progress, layout, image_dir)
    elif image_dir is not None:
        raise ConfigError(f"export 'hf_arrow', option 'image_dir' = {image_dir!r} means nothing: the source has no images. Leave it out")
    else:
        found = hf_tables(source, progress, layout, pad_id)
    if layout == "llama_factory":
        save_splits(out, split, found)
    else:
        save_to_disk(out, found, split=split)


def _with_images(source: PackedStore | TokenStore, progress: Progress, layout: Layout, image_dir: str | None) -> Iterator[Any]:
    if layout != "llama_factory" or isinstance(source, PackedStore):
        raise ConfigError(
            f"layout {layout!r} of {'a packed table' if isinstance(source, PackedStore) else 'a token stream'} would lose "
            f"{len(source.images):,} images. Export a token stream with layout 'llama_factory', or to 'cerebras'"
        )
    return _blocks(rows(source), count(source), progress, lambda block: hf_columns.llama_factory_images(block, source.images, image_dir))


def hf_tables(
    source: PackedStore | TokenStore | Pairs | GroupStore | Lines, progress: Progress, layout: Layout = "trl", pad_id: int = 0
) -> Iterator[Any]:
    """Arrow tables of one schema, with the columns that `layout` reads."""
    if isinstance(source, Lines):
        if layout != "trl":
            raise ConfigError(f"layout {layout!r} has no text data set; use layout 'trl', or give the JSONL file to the trainer")
        return _text(source, progress)
    if isinstance(source, Pairs):
        return _pairs(source, progress, layout)
    if isinstance(source, GroupStore):
        if layout != "trl":
            raise ConfigError(f"layout {layout!r} has no scored groups; use layout 'trl'")
        return _groups(source, progress)
    packs = isinstance(source, PackedStore) and layout in ("trl", "llama_factory")
    columns: Callable[[Block], dict[str, Any]] = hf_columns.COLUMNS[layout]
    if packs and layout == "trl":
        columns = hf_columns.trl_packed
    elif isinstance(source, PackedStore) and layout == "llama_factory":
        width = source.row_len + 1
        return _blocks(rows(source), count(source), progress, lambda block: hf_columns.llama_factory_packed(block, width, pad_id))
    total = count(source, of_documents=not packs)
    return _blocks(rows(source) if packs else documents(source), total, progress, columns)


def _blocks(blocks: Iterator[Block], total: int, progress: Progress, columns: Callable[[Block], dict[str, Any]]) -> Iterator[Any]:
    import pyarrow as pa

    for block in blocks:
        yield pa.table(columns(block))
        progress(block.done, total)


def _pairs(source: Pairs, progress: Progress, layout: Layout) -> Iterator[Any]:
    import pyarrow as pa

    for chosen, rejected in sides(source):
        yield pa.table(hf_columns.pairs({"chosen": chosen, "rejected": rejected}, layout))
        progress(chosen.done, len(source))


def _groups(source: GroupStore, progress: Progress) -> Iterator[Any]:
    import pyarrow as pa

    for block in group_blocks(source):
        yield pa.table(hf_columns.groups(block))
        progress(block.done, len(source))


def _text(source: Lines, progress: Progress) -> Iterator[Any]:
    done = 0
    for table in tables(lambda: source, source.path):
        done += len(table)
        yield table
        progress(done, len(source))
