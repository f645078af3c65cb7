"""Arrow and Parquet data sets for trainers built on Hugging Face `datasets`: TRL, axolotl, LLaMA-Factory, open-instruct, SkyRL.

    hf_arrow     a folder for ``datasets.load_from_disk``, with the columns of one of these trainers
    hf_parquet   ``data/<split>-00000-of-00001.parquet`` … for ``datasets.load_dataset`` and the Hub, with TRL's columns; if the source has an
                 attention mask, ``attention_mask``, 0 at tokens that are not attended

Labels are unshifted in all of them: ``labels[i]`` belongs to ``input_ids[i]``, -100 where there is no loss, and the model shifts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.arrow import (
    ROW_GROUP,
    add_shard_counts,
    ragged,
    save_splits,
    save_to_disk,
    schema_of,
    tables,
    write_parquet_files,
)
from prep_assets.extensions.exports.blocks import IGNORE, Block, document_blocks, group_blocks, pair_blocks, row_blocks
from prep_assets.extensions.exports.media import file_of, placed_images, require_images
from prep_assets.extensions.exports.readable import (
    Options,
    Readable,
    Tokens,
    gold_again,
    labelled,
    locate_row,
    require_rows_per_file,
    starts_of,
    without_nulls,
)
from prep_assets.extensions.exports.registry import Count, FileName, Folder, Progress, Split, TokenId, exporter, reads
from prep_assets.extensions.exports.text_rows import gold_text
from prep_assets.samples import AUDIO, IMAGE, MEDIA
from prep_assets.stores.arrays import stretches
from prep_assets.stores.groups import FURTHER, OF_RUNS
from prep_assets.stores.images import Images
from prep_assets.stores.lists import Entries
from prep_assets.stores.table import GROUPS, LINES, MARGIN, PACKED, PAIRS, SIDES, TOKENS, Table

Layout = Literal["trl", "axolotl", "llama_factory", "open_instruct", "skyrl"]
FILE_ROWS = 100
"""Rows of a row group with the files of images, as `datasets` writes them."""
_NO_MEDIA = 1 << 32
"""LLaMA-Factory's filler of an empty list of media positions."""
_LOAD = ("from datasets import load_from_disk", 'dataset = load_from_disk("{folder}")')
_LOAD_PARQUET = (
    "from datasets import load_dataset",
    'dataset = load_dataset("parquet", data_files="{folder}/data/{split}-*.parquet", split="train")',
)
_TRL = {
    "packed table": 'SFTConfig(packing=False, padding_free=True, max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})  # FlashAttention',
    "token stream": 'SFTConfig(max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})',
    "pairs": "RewardTrainer(model=model, args=RewardConfig(max_length=None), train_dataset=dataset)",
    "groups": 'dataset[0]["responses"]  # with prompt_ids, masks, rewards: offline GRPO',
    "JSONL": "{trl_trainer}, processing_class=tokenizer, train_dataset=dataset)",
}
"""Schema → the line that trains on it with TRL."""
_FILES = {
    "images": 'dataset[0]["images"]  # or audios, videos, in order: their features are all that is missing, the ids hold every placeholder',
    "messages": "SFTTrainer(model, SFTConfig(assistant_only_loss=True, max_length=None), train_dataset=dataset, processing_class=processor)",
}
"""What an export with files has beside ids → the line that reads it."""


@exporter(
    "hf_arrow",
    *(PACKED, TOKENS, PAIRS, GROUPS, LINES),
    read_by="TRL, axolotl, LLaMA-Factory, open-instruct, SkyRL",
    readers={"trl": "TRL", "axolotl": "axolotl", "llama_factory": "LLaMA-Factory", "open_instruct": "open-instruct", "skyrl": "SkyRL"},
    opens={
        **{f"trl {name}": (*_LOAD, line) for name, line in _TRL.items()},
        "axolotl": ("datasets:", '  - path: "{folder}"', "    type:  # left empty: tokenized already"),
        "llama_factory packed table": ('tokenized_path: "{folder}"', "cutoff_len: {neat_len}", "neat_packing: true"),
        "llama_factory": ('tokenized_path: "{folder}"', "cutoff_len: 2048  # the longest example, or more", "neat_packing: false"),
        "open_instruct": (*_LOAD, 'dataset.set_format("torch")'),
        "skyrl": ("python -m skyrl.train.main_sft \\", "  \"pretokenized_dataset_paths=['{folder}']\""),
    },
    images=(IMAGE, AUDIO),
    lists=("teacher",),
    margins=True,
    kind="huggingface",
    only={
        "pad_id": lambda schema, options: schema.packed and options["layout"] == "llama_factory",
        "image_dir": lambda schema, options: schema.fits(TOKENS) and options["layout"] == "llama_factory",
    },
)
def hf_arrow(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    layout: Layout = "trl",
    split: FileName = "train",
    pad_id: TokenId = 0,
    image_dir: str | None = None,
) -> None:
    """A folder for ``datasets.load_from_disk``, with the columns that `layout` reads.

    A packed table becomes packed rows for ``trl`` and ``llama_factory`` (neat packing); ``axolotl``, ``open_instruct`` and ``skyrl`` pack
    by themselves and get its documents. `pad_id` fills the rows of neat packing. `image_dir` is put before local paths of images and audio.
    """
    images = len(source.images)
    if images and (layout != "llama_factory" or source.width):
        raise ConfigError(
            f"layout {layout!r} of a {source.schema.name} would lose "
            f"{images:,} images or audio. Export a token stream with layout 'llama_factory', or to a format with files"
        )
    if source.lists and layout != "axolotl":
        raise ConfigError(f"layout {layout!r} has no place for what a teacher says of tokens. Export with layout 'axolotl'")
    if image_dir is not None and not images:
        raise ConfigError(f"export 'hf_arrow', option 'image_dir' = {image_dir!r} has no effect: the source has no images. Leave it out")
    save = save_splits if layout == "llama_factory" else save_to_disk
    save(out, _tables(source, progress, layout, pad_id, image_dir), split)


@exporter(
    "hf_parquet",
    *(PACKED, TOKENS, PAIRS, GROUPS, LINES),
    read_by="datasets, TRL",
    opens={name: (*_LOAD_PARQUET, line) for name, line in {**_TRL, **_FILES}.items()},
    images=MEDIA,
    attention=True,
    margins=True,
    kind="parquet",
    only={
        "image_dir": lambda schema, _: schema.packed or schema.fits(TOKENS),
        "messages": lambda schema, options: schema.fits(TOKENS) and options["image_dir"] is not None,
    },
)
def hf_parquet(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    split: Split = "train",
    rows_per_file: Count = 100_000,
    image_dir: Folder | None = None,
    messages: bool = False,
) -> None:
    """Parquet files for ``datasets.load_dataset``, with the columns that TRL reads; zstd, row groups of 1000 rows.

    ``images``, ``audios`` and ``videos`` have path and bytes of the files below `image_dir`, which `datasets` decodes, in row groups of 100
    rows. With `messages`, ``messages`` has each chat too, with a part for each file, for trainers that tokenize by themselves.
    """
    folder = out / "data"
    folder.mkdir(parents=True)
    rows, row_group = _tables(source, progress), ROW_GROUP
    require_images(source, image_dir, "hf_parquet")
    if len(source.images):
        rows, row_group = _with_files(rows, source.images, image_dir), FILE_ROWS
    rows = _with_messages(rows, source) if messages else rows
    add_shard_counts(write_parquet_files(rows, rows_per_file, lambda number: folder / f"{split}-{number:05d}.parquet", row_group))


def _with_files(tables: Iterable[Any], images: Images, image_dir: str | None) -> Iterator[Any]:
    """The rows with the files of their images, audio and video, `FILE_ROWS` at a time."""
    import pyarrow as pa

    column, row = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()})), 0
    features = {f"{kind}s": {"feature": {"_type": kind.capitalize()}, "_type": "List"} for kind in sorted(images.kinds)}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    for part in (table.slice(first, FILE_ROWS) for table in tables for first in range(0, len(table), FILE_ROWS)):
        placed = placed_images(images, row, row + len(part))
        for kind in sorted(images.kinds):
            files = [
                [
                    {"bytes": file_of(image, image_dir, "hf_parquet"), "path": image.path}
                    for image, *_ in placed.get(number, [])
                    if image.kind == kind
                ]
                for number in range(row, row + len(part))
            ]
            part = part.append_column(f"{kind}s", pa.array(files, column))
        yield part.replace_schema_metadata(about)
        row += len(part)


def _with_messages(tables: Iterable[Any], source: Table) -> Iterator[Any]:
    import pyarrow as pa

    if source.chats is None:
        raise ConfigError(
            "export 'hf_parquet', option 'messages': chats are read from the sources again. Use prep-assets export, or exports of sft.yaml"
        )
    part, chats = pa.struct({"type": pa.string(), "text": pa.string()}), source.chats()
    kind = pa.list_(pa.struct({"role": pa.string(), "content": pa.list_(part)}))
    for table in tables:
        yield table.append_column("messages", pa.array(islice(chats, len(table)), kind))


def _tables(source: Table, progress: Progress, layout: Layout = "trl", pad_id: int = 0, image_dir: str | None = None) -> Iterator[Any]:
    """Arrow tables of one schema, with the columns that `layout` reads."""
    import pyarrow as pa

    if (path := source.path) is None:
        for columns in _columns(source, progress, layout, pad_id, image_dir):
            yield pa.table(columns)
        return
    if layout != "trl":
        raise ConfigError(f"layout {layout!r} has no text data set; use layout 'trl', or give the JSONL file to the trainer")
    texts, done = _mixed_golds(source), 0

    def rows() -> Iterable[dict[str, Any]]:
        return (_with_gold_text(row, path) for row in source) if texts else source

    for table in tables(rows, schema_of(rows, path)):
        yield table
        done += len(table)
        progress(done, len(source))


def _mixed_golds(source: Table) -> bool:
    """Whether the golds of some lines are numbers, and those of others texts."""
    prompts = "gold" in next(iter(source), ())
    return prompts and len({isinstance(gold, str) for row in source if (gold := row.get("gold")) is not None}) > 1


def _with_gold_text(row: dict[str, Any], path: Path) -> dict[str, Any]:
    return row if row.get("gold") is None else {**row, "gold": gold_text(row, str(path))}


def _columns(source: Table, progress: Progress, layout: Layout, pad_id: int, image_dir: str | None) -> Iterator[dict[str, Any]]:
    """Yield the columns of tokenized sources, block by block.

    Raises:
        ConfigError: pairs for axolotl, which reads preference pairs as text only; groups for a layout other than TRL's.
    """
    if source.schema.fits(PAIRS):
        if layout == "axolotl":
            raise ConfigError("layout 'axolotl': axolotl reads preference pairs as text only. Give it preferences.jsonl")
        if layout == "skyrl":
            raise ConfigError("layout 'skyrl': SkyRL's SFT reads no preference pairs. Give it sft_packed or sft_tokens")
        _require_margins(source, layout)
        for blocks in pair_blocks(source, progress):
            if layout == "trl":
                done, sides = blocks["chosen"].done, {f"{side}_ids": block for side, block in blocks.items()}
                ids = {name: ragged(block.tokens, block.row_lengths, "int32") for name, block in sides.items()}
                if MARGIN in source.columns:
                    ids[MARGIN] = np.asarray(source.columns[MARGIN].values[done - len(ids["chosen_ids"]) : done])
                yield ids
            else:
                columns = {f"{side}_{key}": values for side, block in blocks.items() for key, values in _masked_columns(block).items()}
                yield columns | (_empty_media(blocks["chosen"]) if layout == "llama_factory" else {})
    elif source.schema.fits(GROUPS):
        if layout != "trl":
            raise ConfigError(f"layout {layout!r} has no scored groups; use layout 'trl'")
        yield from map(_group_columns, group_blocks(source, progress))
    elif layout == "trl":
        for block in row_blocks(source, progress):
            lengths = {"seq_lengths": ragged(block.document_lengths, block.row_documents, "int64")}
            yield _trl_columns(block) | (lengths if source.width else {})
    elif layout == "llama_factory":
        for block in row_blocks(source, progress):
            if source.width:
                yield _neat_packed_columns(block, source.width + 1, pad_id)
            else:
                yield _masked_columns(block) | _empty_media(block) | _paths(block, source.images, image_dir)
    else:
        yield from map(_skyrl_columns if layout == "skyrl" else _masked_columns, document_blocks(source, progress))


def _require_margins(source: Table, layout: Layout) -> None:
    """Raises:
    ConfigError: the layout has no place for margins, or only some pairs have one: TRL's collator looks for margins in the first pair of a batch.
    """
    if MARGIN not in source.columns:
        return
    if layout != "trl":
        raise ConfigError(
            f"layout {layout!r} has no place for the margins of {len(source):,} pairs. Export with layout 'trl', or leave them out"
        )
    if lacking := sum(int(np.isnan(source.columns[MARGIN].values[part]).sum()) for part in stretches(len(source))):
        raise ConfigError(
            f"{lacking:,} of {len(source):,} pairs have no margin, and TRL reads one of every pair or of none. Give all domains margins, or leave them out"
        )


def _trl_columns(block: Block) -> dict[str, Any]:
    """TRL: ``input_ids, labels``, and ``attention_mask`` if the source has one."""
    attended = {} if block.attended is None else {"attention_mask": ragged(block.attended, block.row_lengths, "int8")}
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "labels": ragged(block.labels, block.row_lengths, "int64"),
        **attended,
    }


def _skyrl_columns(block: Block) -> dict[str, Any]:
    """SkyRL: ``input_ids, loss_mask``, 1 where the token is trained; never the first, for which its window of actions has no place."""
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "loss_mask": ragged(block.trained.astype(np.int8), block.row_lengths, "int8"),
    }


def _masked_columns(block: Block) -> dict[str, Any]:
    """axolotl, open-instruct: ``input_ids, attention_mask, labels``; of a stream with a teacher the columns of axolotl's distillation too."""
    ones = np.ones(len(block.tokens), np.int8)
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "attention_mask": ragged(ones, block.row_lengths, "int8"),
        "labels": ragged(block.labels, block.row_lengths, "int64"),
        **(_teacher_columns(block, block.lists["teacher"]) if "teacher" in block.lists else {}),
    }


def _teacher_columns(block: Block, teacher: Entries) -> dict[str, Any]:
    """``target_token_ids, target_logprobs, target_mask``, lists of lists: what the teacher says of the next token stands at each, as a model's outputs do.
    axolotl's loss (``integrations/kd/kernels/liger.py``) moves labels by one, and these not."""
    import pyarrow as pa

    starts = np.cumsum(block.row_lengths) - block.row_lengths
    first = np.zeros(len(block.tokens), bool)
    first[starts] = True
    kept = np.repeat(~first, teacher.counts)  # nothing predicts the first token of a row
    counts = np.where(np.append(first[1:], True), 0, np.append(teacher.counts[1:], 0))
    borders = np.concatenate([[0], np.cumsum(block.row_lengths)]).astype(np.int32)
    values = {
        "target_token_ids": (teacher.values["id"][kept], "int32"),
        "target_logprobs": (teacher.values["logprob"][kept], "float32"),
        "target_mask": (np.repeat(block.next_trained, counts), "int8"),
    }
    return {name: pa.ListArray.from_arrays(borders, ragged(array, counts, dtype)) for name, (array, dtype) in values.items()}


def _empty_media(block: Block) -> dict[str, Any]:
    """LLaMA-Factory's empty ``images, videos, audios``."""
    import pyarrow as pa

    return {name: pa.nulls(len(block.row_lengths), pa.list_(pa.string())) for name in ("images", "videos", "audios")}


def _paths(block: Block, images: Images, folder: str | None) -> dict[str, Any]:
    """``images, audios``, as far as the source has such files: the paths of each row's, below `folder` where they are local."""
    import pyarrow as pa

    first = block.done - len(block.row_lengths)
    span = images.of(first, block.done)
    paths: dict[str, list[list[str] | None]] = {f"{kind}s": [None] * len(block.row_lengths) for kind in sorted(images.kinds)}
    for row, image in zip(np.asarray(images.record[span]).tolist(), images.references(np.arange(span.start, span.stop)), strict=True):
        local, column = folder is not None and "://" not in image.path, paths[f"{image.kind}s"]
        column[row - first] = [*(column[row - first] or []), f"{folder}/{image.path}" if local else image.path]
    return {name: pa.array(column, pa.list_(pa.string())) for name, column in paths.items()}


def _neat_packed_columns(block: Block, width: int, pad_id: int) -> dict[str, Any]:
    """LLaMA-Factory's neat packing: rows of `width`, one more than the longest row, so that each ends with padding.

    ``attention_mask`` numbers documents from 1 and is 0 in the padding; ``position_ids`` restart in each document;
    ``packing_params.sequence_boundaries`` holds the starts of all documents, the start of the padding, and `width`.
    """
    import pyarrow as pa

    count = len(block.row_lengths)
    fills = {"input_ids": (block.tokens, pad_id), "attention_mask": (block.document_numbers, 0), "labels": (block.labels, IGNORE)}
    fills["position_ids"] = (block.position_ids, 0)
    widths = np.full(count, width)
    table = {key: ragged(block.padded(values, width, fill).reshape(-1), widths, "int64") for key, (values, fill) in fills.items()}
    starts = np.split(block.document_starts, np.cumsum(block.row_documents)[:-1])
    borders = [np.concatenate([start, [length, width]]) for start, length in zip(starts, block.row_lengths, strict=True)]
    no_media = ragged(np.full(count, _NO_MEDIA), np.ones(count, np.int64), "int64")
    params = {
        "sequence_boundaries": ragged(np.concatenate(borders), block.row_documents + 2, "int64"),
        **dict.fromkeys(("image_subseq_ids", "video_subseq_ids", "audio_subseq_ids"), no_media),
        "right_padding_length": pa.array(width - block.row_lengths),
    }
    return {**table, "packing_params": pa.StructArray.from_arrays(list(params.values()), list(params)), **_empty_media(block)}


def _group_columns(block: dict[str, tuple[Any, Ints]]) -> dict[str, Any]:
    """Scored groups: ``prompt_ids``, lists of lists ``responses, masks`` (and those of `FURTHER` if stored), ``rewards`` as float32, and the
    columns of `OF_RUNS`."""
    import pyarrow as pa

    borders = np.concatenate([[0], np.cumsum(block["rewards"][1])]).astype(np.int32)
    dtypes = {"responses": "int32", "masks": "int8", **FURTHER}
    return {
        "prompt_ids": ragged(*block["prompts"], "int32"),
        **{key: pa.ListArray.from_arrays(borders, ragged(*block[key], dtype)) for key, dtype in dtypes.items() if key in block},
        "rewards": ragged(*block["rewards"], "float32"),
        **{name: ragged(*block[name], "int32") for name in OF_RUNS if name in block},
    }


@reads("hf_arrow")
def read_arrow(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `hf_arrow` export with code independent of its writer."""
    import pyarrow as pa

    layout, split = options["layout"], options["split"]
    if layout == "llama_factory":
        if json.loads((folder / "dataset_dict.json").read_text("utf-8")) != {"splits": [split]}:
            raise StoreError(f"dataset_dict.json names other splits than {split!r}")
        folder = folder / split
    if features := json.loads((folder / "dataset_info.json").read_text("utf-8")).get("features"):
        raise StoreError(f"dataset_info.json has the features {features}, which the Arrow schema gives")
    state = json.loads((folder / "state.json").read_text("utf-8"))
    entries = state["_data_files"]
    plain = {"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False, "_split": split}
    if {name: state[name] for name in plain} != plain or sorted(each["filename"] for each in entries) != sorted(
        path.name for path in folder.glob("*.arrow")
    ):
        raise StoreError(f"state.json names other files than {folder.name} has, another split or another form of rows: {state}")
    table = pa.concat_tables([pa.ipc.open_stream(pa.memory_map(str(folder / entry["filename"]))).read_all() for entry in entries])

    if (listed := _listed(source, layout)) and sorted(table.column_names) != listed:
        raise StoreError(f"the columns are {sorted(table.column_names)}, layout {layout!r} reads {listed}")

    def row(number: int) -> Any:
        shown = source.images.references(np.flatnonzero(np.asarray(source.images.record) == number))
        return _read_row(table.slice(number, 1).to_pylist()[0], options.get("image_dir"), [image.kind for image in shown])

    return Readable(
        len(table),
        row,
        layout in ("axolotl", "open_instruct", "skyrl"),
        _expected_line(source),
        source.width + 1 if layout == "llama_factory" and source.width else None,
    )


def _listed(source: Table, layout: str) -> list[str]:
    """The columns that a trainer reads, sorted; empty of lines, whose fields are compared."""
    masked, media = ["input_ids", "attention_mask", "labels"], ["images", "videos", "audios"] if layout == "llama_factory" else []
    if source.schema.fits(PAIRS):
        sides = ["ids"] if layout == "trl" else masked
        return sorted([*(f"{side}_{name}" for side in SIDES for name in sides), *source.has("value"), *media])
    if source.schema.fits(GROUPS):
        return sorted(["prompt_ids", "responses", "masks", "rewards", *(name for name in (*FURTHER, *OF_RUNS) if name in source.columns)])
    if source.path is not None:
        return []
    if layout == "trl":
        return sorted(
            ["input_ids", "labels", *(["attention_mask"] if source.has("attention") else []), *(["seq_lengths"] if source.width else [])]
        )
    if layout == "skyrl":
        return ["input_ids", "loss_mask"]
    of_teachers = ["target_token_ids", "target_logprobs", "target_mask"] if source.lists else []
    return sorted([*masked, *media, *of_teachers, *(["position_ids", "packing_params"] if media and source.width else [])])


def _expected_line(source: Table) -> Callable[[dict[str, Any], int], Any]:
    """A function from a line to its row: if a gold of the file is text, all are."""
    texts = source.path is not None and any(isinstance(line.get("gold"), str) for line in source)
    return lambda line, _: without_nulls({**line, "gold": gold_again(line.get("gold_text", line.get("gold")))} if texts else line)


@reads("hf_parquet")
def read_parquet(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `hf_parquet` export with code independent of its writer."""
    import pyarrow.parquet as pq

    paths = sorted((folder / "data").glob(f"{options['split']}-*-of-*.parquet"))
    files = len(source.images)
    require_rows_per_file(paths, options["rows_per_file"], 100 if files else 1000)
    if any((b"huggingface" in (pq.read_schema(path).metadata or {})) != bool(files) for path in paths):
        raise StoreError("files without images have metadata about them, or those with images have none")
    names = sorted({*pq.read_schema(paths[0]).names} - {"messages", *(f"{kind}s" for kind in MEDIA)})
    if (listed := _listed(source, "trl")) and names != listed:
        raise StoreError(f"the columns are {names}, TRL reads {listed}")
    counted = [(path, pq.read_metadata(path)) for path in paths]
    groups = [(path, at, about.row_group(at).num_rows) for path, about in counted for at in range(about.num_row_groups)]
    ends = np.cumsum([count for _, _, count in groups])

    @lru_cache(1)  # files of images may be larger than the memory
    def group(number: int) -> Any:
        path, at, _ = groups[number]
        return pq.ParquetFile(path).read_row_group(at)

    chats = enumerate(source.chats()) if source.chats is not None else None

    def row(number: int) -> Any:
        at, inside = locate_row(ends, number)
        values = group(at).slice(inside, 1).to_pylist()[0]
        messages = values.pop("messages", None)
        files: dict[str, list[Any]] = {kind: values.pop(f"{kind}s", []) for kind in MEDIA}
        if chats is not None and without_nulls(messages) != next((chat for at, chat in chats if at == number), None):  # rows ascend
            raise StoreError(f"row {number}: its messages are others than those of its source")
        sequences = _read_row(values)
        if "labels" not in values:
            return sequences
        shown = []
        for image in source.images.references(np.flatnonzero(np.asarray(source.images.record) == number)):
            file: Any = files[image.kind].pop(0) if files[image.kind] else {"bytes": b"", "path": ""}
            if hashlib.sha256(file["bytes"]).hexdigest() != image.sha256:
                raise StoreError(f"row {number}: {file['path']!r} is another file than {image.path!r} of the store")
            shown.append((file["path"], None))
        if any(files.values()):
            raise StoreError(f"row {number}: it has more files than the store")
        return (replace(sequences[0], images=tuple(shown)),)

    return Readable(int(ends[-1]), row, expected=_expected_line(source))


def _read_row(row: dict[str, Any], image_dir: str | None = None, kinds: Sequence[str] = ()) -> Any:
    """Read a row by the columns of trainers built on Hugging Face `datasets`. `kinds` are those of its files, in order."""
    if "chosen_ids" in row:
        margin = [Tokens(np.array([row["margin"]], np.float32))] if "margin" in row else []
        return (*(Tokens(np.array(row[f"{side}_ids"])) for side in SIDES), *margin)
    if "prompt_ids" in row:
        responses = [Tokens(np.array(ids), np.array(mask) != 0) for ids, mask in zip(row["responses"], row["masks"], strict=True)]
        further = [Tokens(np.array(values, dtype)) for name, dtype in FURTHER.items() for values in row.get(name) or ()]
        further += [Tokens(np.array(row[name], np.int32)) for name in OF_RUNS if name in row]
        return (Tokens(np.array(row["prompt_ids"])), *responses, Tokens(np.array(row["rewards"], np.float32)), *further)
    if "chosen_input_ids" in row:
        sides = ((row[f"{side}_{name}"] for name in ("input_ids", "labels", "attention_mask")) for side in SIDES)
        return tuple(replace(labelled(ids, labels), attended=np.array(mask)) for ids, labels, mask in sides)
    if "input_ids" not in row:
        return without_nulls(row)
    if "loss_mask" in row:
        return (Tokens(np.array(row["input_ids"]), np.array(row["loss_mask"]) == 1),)
    starts = None
    if "seq_lengths" in row:
        starts = np.cumsum(row["seq_lengths"]) - row["seq_lengths"]
    elif "position_ids" in row:
        starts = starts_of(row["position_ids"])
    attended = np.array(row.get("attention_mask", np.ones(len(row["labels"])))) > 0
    sequence = replace(labelled(row["input_ids"], row["labels"], starts), attended=attended)
    if "packing_params" in row:
        _require_neat(row, starts)
    if "target_mask" in row:
        return (sequence, *_read_teacher(row))
    if "images" not in row:
        return (sequence,)
    prefix = "" if image_dir is None else f"{image_dir}/"
    paths = {kind: [path.removeprefix(prefix) for path in row[f"{kind}s"] or ()] for kind in ("image", "video", "audio")}
    listed = [paths[kind].pop(0) for kind in kinds if paths[kind]] + list(chain.from_iterable(paths.values()))
    return (replace(sequence, images=tuple((path, None) for path in listed)),)


def _require_neat(row: dict[str, Any], starts: Any) -> None:
    """Raise for a row of neat packing whose documents are numbered otherwise than its positions say.

    Raises:
        StoreError: the numbers, the borders or the length of the padding differ.
    """
    width, params = len(row["input_ids"]), row["packing_params"]
    length = width - params["right_padding_length"]
    documents = starts[starts < length]
    numbers = np.pad(np.searchsorted(documents, np.arange(length), "right"), (0, width - length))
    media = [params[f"{kind}_subseq_ids"] for kind in ("image", "video", "audio")]
    if (
        row["attention_mask"] != numbers.tolist()
        or params["sequence_boundaries"] != [*documents.tolist(), length, width]
        or media != [[2**32]] * 3
    ):
        raise StoreError(
            f"attention_mask {row['attention_mask'][:20]} … and packing_params {params} name other documents than position_ids"
        )


def _read_teacher(row: dict[str, Any]) -> Iterator[Tokens]:
    """How many entries each token has, and their ids, log-probabilities and masks; they stand one token before the one that they are about."""
    yield Tokens(np.array([0, *map(len, row["target_mask"])])[:-1])
    for name, dtype in (("target_token_ids", np.int64), ("target_logprobs", np.float32), ("target_mask", np.int64)):
        yield Tokens(np.array(list(chain.from_iterable(row[name])), dtype))
