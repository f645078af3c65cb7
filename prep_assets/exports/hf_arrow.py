"""Arrow data sets for trainers built on Hugging Face `datasets`: TRL, axolotl, LLaMA-Factory, open-instruct.

Labels are unshifted in all of them: ``labels[i]`` belongs to ``input_ids[i]``, -100 where there is no loss, and the model shifts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prep_assets.errors import ConfigError
from prep_assets.exports.arrow import ragged, save_splits, save_to_disk, tables
from prep_assets.exports.blocks import IGNORE, Block, GroupBlock, count, documents, group_blocks, rows, sides
from prep_assets.exports.readable import Options, Pairs, Readable, Source, hf_row, said_in_columns
from prep_assets.exports.registry import FileName, Progress, TokenId, exporter
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.images import Images
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

READ_BY = "TRL, axolotl, LLaMA-Factory, open-instruct"
READERS = {"trl": "TRL", "axolotl": "axolotl", "llama_factory": "LLaMA-Factory", "open_instruct": "open-instruct"}
"""Where one layout or kind of source is for some of them only."""
LINES = {
    "trl PackedStore": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        'SFTConfig(packing=False, padding_free=True, max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})  # FlashAttention',
    ),
    "trl TokenStore": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        'SFTConfig(max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})',
    ),
    "trl Pairs": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        "RewardTrainer(model=model, args=RewardConfig(max_length=None), train_dataset=dataset)",
    ),
    "trl GroupStore": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        'dataset[0]["responses"]  # with prompt_ids, masks, rewards: offline GRPO',
    ),
    "trl Lines": (
        "from datasets import load_from_disk",
        'dataset = load_from_disk("{folder}")',
        "{trl_trainer}, processing_class=tokenizer, train_dataset=dataset)",
    ),
    "axolotl": ("datasets:", '  - path: "{folder}"', "    type:  # left empty: tokenized already"),
    "llama_factory PackedStore": ('tokenized_path: "{folder}"', "cutoff_len: {neat_len}", "neat_packing: true"),
    "llama_factory": ('tokenized_path: "{folder}"', "cutoff_len: 2048  # the longest example, or more", "neat_packing: false"),
    "open_instruct": ("from datasets import load_from_disk", 'dataset = load_from_disk("{folder}")', 'dataset.set_format("torch")'),
}


NO_MEDIA = 1 << 32
"""What LLaMA-Factory puts into an empty list of media positions."""


def trl(block: Block) -> dict[str, Any]:
    """TRL, one document a row: ``input_ids, labels``; and ``attention_mask`` where some tokens are not attended."""
    attended = {} if block.attended is None else {"attention_mask": ragged(block.attended, block.row_lengths, "int8")}
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "labels": ragged(block.labels, block.row_lengths, "int64"),
        **attended,
    }


def trl_packed(block: Block) -> dict[str, Any]:
    """TRL, packed: with ``seq_lengths``, the lengths of the row's documents, whose sum is the row's length."""
    return {**trl(block), "seq_lengths": ragged(block.document_lengths, block.row_documents, "int64")}


def masked(block: Block) -> dict[str, Any]:
    """axolotl, open-instruct: ``input_ids, attention_mask, labels``."""
    ones = np.ones(len(block.tokens), np.int8)
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "attention_mask": ragged(ones, block.row_lengths, "int8"),
        "labels": ragged(block.labels, block.row_lengths, "int64"),
    }


def llama_factory(block: Block) -> dict[str, Any]:
    """LLaMA-Factory's SFT: ``input_ids, attention_mask, labels`` and empty ``images, videos, audios``."""
    return {**masked(block), **_no_media(block)}


def llama_factory_images(block: Block, images: Images, folder: str | None) -> dict[str, Any]:
    """The same with the paths of each row's images, below `folder` where they are local."""
    import pyarrow as pa

    first = block.done - len(block.row_lengths)
    here = images.of(first, block.done)
    paths: list[list[str] | None] = [None] * len(block.row_lengths)
    for row, image in zip(np.asarray(images.record[here]).tolist(), images.references(np.arange(here.start, here.stop)), strict=True):
        local = folder is not None and "://" not in image.path
        paths[row - first] = [*(paths[row - first] or []), f"{folder}/{image.path}" if local else image.path]
    return {**llama_factory(block), "images": pa.array(paths, pa.list_(pa.string()))}


def llama_factory_packed(block: Block, width: int, pad_id: int) -> dict[str, Any]:
    """LLaMA-Factory's neat packing: rows of `width`, which is one more than the longest row, so that each ends with padding.

    ``attention_mask`` counts documents from 1 and is 0 in the padding; ``position_ids`` restart in each document;
    ``packing_params.sequence_boundaries`` has the padding as a last document.
    """
    import pyarrow as pa

    columns = {"input_ids": (block.tokens, pad_id), "attention_mask": (block.document_numbers, 0), "labels": (block.labels, IGNORE)}
    columns["position_ids"] = (block.position_ids, 0)
    count = len(block.row_lengths)
    full = np.full(count, width)
    table = {key: ragged(block.padded(values, width, fill).reshape(-1), full, "int64") for key, (values, fill) in columns.items()}
    none = ragged(np.full(count, NO_MEDIA), np.ones(count, np.int64), "int64")
    params = [_boundaries(block, width), none, none, none, pa.array(width - block.row_lengths)]
    names = ["sequence_boundaries", "image_subseq_ids", "video_subseq_ids", "audio_subseq_ids", "right_padding_length"]
    return {**table, "packing_params": pa.StructArray.from_arrays(params, names), **_no_media(block)}


def _boundaries(block: Block, width: int) -> Any:
    """0, where each document starts but the first, where the padding starts, `width`."""
    starts = np.split(block.document_starts, np.cumsum(block.row_documents)[:-1])
    values = [np.concatenate([start, [length, width]]) for start, length in zip(starts, block.row_lengths, strict=True)]
    return ragged(np.concatenate(values), block.row_documents + 2, "int64")


def _no_media(block: Block) -> dict[str, Any]:
    import pyarrow as pa

    return {name: pa.nulls(len(block.row_lengths), pa.list_(pa.string())) for name in ("images", "videos", "audios")}


def pairs(blocks: Mapping[str, Block], layout: str) -> dict[str, Any]:
    """Preference pairs. TRL's reward trainer: ``chosen_ids, rejected_ids``. The others: ``chosen_`` and ``rejected_`` before
    ``input_ids, attention_mask, labels``.

    Raises:
        ConfigError: axolotl, which reads preference pairs as text only.
    """
    if layout == "trl":
        return {f"{side}_ids": ragged(block.tokens, block.row_lengths, "int32") for side, block in blocks.items()}
    if layout == "axolotl":
        raise ConfigError("layout 'axolotl': axolotl reads preference pairs as text only. Give it preferences.jsonl")
    table = {f"{side}_{key}": values for side, block in blocks.items() for key, values in masked(block).items()}
    return {**table, **_no_media(blocks["chosen"])} if layout == "llama_factory" else table


def groups(block: GroupBlock) -> dict[str, Any]:
    """Scored groups: ``prompt_ids``, lists of lists ``responses, masks`` (and ``logprobs`` where there are some), and ``rewards`` as float32."""
    import pyarrow as pa

    borders = np.concatenate([[0], np.cumsum(block.sizes)]).astype(np.int32)
    nested: dict[str, tuple[Any, str]] = {"responses": (block.responses, "int32"), "masks": (block.masks, "int8")}
    if block.logprobs is not None:
        nested["logprobs"] = (block.logprobs, "float32")
    lists = {
        key: pa.ListArray.from_arrays(borders, ragged(values, block.response_lengths, dtype)) for key, (values, dtype) in nested.items()
    }
    return {
        "prompt_ids": ragged(block.prompts, block.prompt_lengths, "int32"),
        **lists,
        "rewards": ragged(block.rewards, block.sizes, "float32"),
    }


COLUMNS: Mapping[str, Callable[[Block], dict[str, Any]]] = {
    "trl": trl,
    "axolotl": masked,
    "llama_factory": llama_factory,
    "open_instruct": masked,
}


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
    return _tables(((block.done, llama_factory_images(block, source.images, image_dir)) for block in rows(source)), len(source), progress)


def hf_tables(
    source: PackedStore | TokenStore | Pairs | GroupStore | Lines, progress: Progress, layout: Layout = "trl", pad_id: int = 0
) -> Iterator[Any]:
    """Arrow tables of one schema, with the columns that `layout` reads."""
    if isinstance(source, Lines):
        if layout != "trl":
            raise ConfigError(f"layout {layout!r} has no text data set; use layout 'trl', or give the JSONL file to the trainer")
        return _text(source, progress)
    total = len(source)
    found: Iterator[tuple[int, dict[str, Any]]]
    if isinstance(source, Pairs):
        found = ((chosen.done, pairs({"chosen": chosen, "rejected": rejected}, layout)) for chosen, rejected in sides(source))
    elif isinstance(source, GroupStore):
        if layout != "trl":
            raise ConfigError(f"layout {layout!r} has no scored groups; use layout 'trl'")
        found = ((block.done, groups(block)) for block in group_blocks(source))
    elif isinstance(source, PackedStore) and layout == "llama_factory":
        found = ((block.done, llama_factory_packed(block, source.row_len + 1, pad_id)) for block in rows(source))
    elif isinstance(source, PackedStore) and layout == "trl":
        found = ((block.done, trl_packed(block)) for block in rows(source))
    else:
        total = count(source, of_documents=True)
        found = ((block.done, COLUMNS[layout](block)) for block in documents(source))
    return _tables(found, total, progress)


def _tables(columns: Iterator[tuple[int, dict[str, Any]]], total: int, progress: Progress) -> Iterator[Any]:
    import pyarrow as pa

    for done, found in columns:
        yield pa.table(found)
        progress(done, total)


def _text(source: Lines, progress: Progress) -> Iterator[Any]:
    done = 0
    for table in tables(lambda: source, source.path):
        done += len(table)
        yield table
        progress(done, len(source))


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    import pyarrow as pa

    layout = options["layout"]
    folder = folder / options["split"] if layout == "llama_factory" else folder
    listed = json.loads((folder / "state.json").read_text("utf-8"))["_data_files"]
    table = pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(folder / entry["filename"]))).read_all() for entry in listed])
    return Readable(
        len(table),
        lambda number: hf_row(table.slice(number, 1).to_pylist()[0], options.get("image_dir")),
        layout in ("axolotl", "open_instruct"),
        said_in_columns,
    )
