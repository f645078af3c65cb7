"""AstrAI's memory-mapped layout, and train-llm-from-scratch's HDF5 and JSONL. Loss masks are unshifted in both: the trainers shift them with the targets.

astrai   ``shard_0000/{meta.json, <key>.bin}``, all int32 but rewards, which are float32
tlfs     HDF5 for pretraining and SFT, JSONL for preferences and RL. Its attention crosses documents, so the mask excludes the first token of each
         document, which would be predicted from the one before it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets import load
from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import group_blocks, pair_blocks, row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens, check_mask, row_slicer
from prep_assets.extensions.exports.registry import Count, FileName, Progress, TokenId, exporter, reads
from prep_assets.proofs.tables import require_filled
from prep_assets.stores.groups import FURTHER, OF_RUNS
from prep_assets.stores.h5 import FixedH5
from prep_assets.stores.shards import BIN_NAMES, BinShard, BinShards
from prep_assets.stores.table import GROUPS, LINES, PACKED, PAIRS, SIDES, TOKENS, Table
from prep_assets.stores.verification import WrittenFile

# AstrAI.

ASTRAI_KEYS = ("prompts", "responses", "masks", "rewards")
"""Keys of groups."""

_FACTORY = "from astrai.dataset import DatasetFactory"


@exporter(
    "astrai",
    *(PACKED, TOKENS, PAIRS, GROUPS),
    read_by="AstrAI",
    opens={
        "packed table": (
            _FACTORY,
            'dataset = DatasetFactory.load("sft", "{folder}", window_size={row_len})',
            'dataset[0]["input_ids"]  # with loss_mask, position_ids: a row of the table',
        ),
        "token stream": (
            _FACTORY,
            'dataset = DatasetFactory.load("seq", "{folder}", window_size=2048)  # "sft" where the stream has a mask',
            'dataset[0]["input_ids"]',
        ),
        "pairs": (
            _FACTORY,
            'dataset = DatasetFactory.load("dpo", "{folder}", window_size=2048)',
            'dataset[0]["chosen"]  # with chosen_mask, rejected, rejected_mask',
        ),
        "groups": (
            "from prep_assets.training import DatasetFactory  # AstrAI's own reader does not tell responses apart",
            'dataset = DatasetFactory.load("grpo", "{folder}")',
            'dataset[0]["responses"]  # with prompts, masks, rewards',
        ),
    },
    keeps_borders=False,
    only={
        "pad_id": lambda schema, _: schema.packed,
        "max_tokens_per_shard": lambda schema, _: schema.packed or schema.fits(TOKENS),
    },
)
def astrai(source: Table, out: Path, progress: Progress, *, pad_id: TokenId = 0, max_tokens_per_shard: Count = 100_000_000) -> None:
    """``sequence`` of a token stream, with ``loss_mask, position_ids`` where it has a mask; the four keys of pairs or of scored groups, with offsets.

    The rows of a packed table are stored end to end, padded with `pad_id`, plus one token: a window needs a next token, so without it
    ``window_size=row_len`` would lose the last row. Pairs and groups are one shard, since AstrAI honours offsets in single shards only;
    ``element_offsets`` are the ends of responses.
    """
    if len(source.has("ids")) > 1:
        _write_records(source, out / "shard_0000", progress)
        return
    keys = ("tokens", "loss_mask", "position_ids") if source.has("weight") else ("tokens",)
    shards = BinShards(out / "train", {BIN_NAMES.get(key, key): "int32" for key in keys}, max_tokens_per_shard)
    for block in row_blocks(source, progress):
        arrays: dict[str, npt.NDArray[Any]] = {"tokens": block.tokens, "loss_mask": block.trained, "position_ids": block.position_ids}
        lengths = block.row_lengths
        if source.width:
            fill = {"tokens": pad_id, "loss_mask": 0, "position_ids": 0}
            arrays = {key: block.padded(values, source.width, fill[key]).reshape(-1) for key, values in arrays.items()}
            lengths = np.full(len(lengths), source.width)
            if block.done == len(source):
                arrays = {key: np.append(values, fill[key]) for key, values in arrays.items()}
                lengths[-1] += 1
        shards.append({BIN_NAMES.get(key, key): arrays[key] for key in keys}, lengths)
    shards.close()


def _write_records(source: Table, folder: Path, progress: Progress) -> None:
    """Write pairs or groups as one shard, with the ends of records and of responses."""
    if lost := [name for name in (*FURTHER, *OF_RUNS) if name in source.columns]:
        raise ConfigError(f"AstrAI's files have no place for {', '.join(lost)}. Export these groups as hf_arrow")
    pairs = source.schema.fits(PAIRS)
    blocks = _pair_sequences(source, progress) if pairs else _group_sequences(source, progress)
    dtypes = {key: "float32" if key == "rewards" else "int32" for key in (_PAIR_KEYS if pairs else ASTRAI_KEYS)}
    borders: dict[str, dict[str, list[int]]] = {key: {} for key in dtypes}
    with BinShard(folder, dtypes) as shard:
        for block in blocks:
            for key, (values, lengths) in block.items():
                shard.append(key, values)
                for name, counts in lengths.items():
                    ends = borders[key].setdefault(name, [0])
                    ends += (np.cumsum(counts) + ends[-1]).tolist()
        shard.borders = borders


_PAIR_KEYS = [key for side in SIDES for key in (side, f"{side}_mask")]
_Sequences = dict[str, tuple[npt.NDArray[Any], dict[str, Ints]]]
"""Key → values, and lengths by the name of their offsets."""


def _pair_sequences(source: Table, progress: Progress) -> Iterator[_Sequences]:
    for blocks in pair_blocks(source, progress):
        sequences: _Sequences = {}
        for side, block in blocks.items():
            lengths = {"offsets": block.row_lengths}
            sequences |= {side: (block.tokens, lengths), f"{side}_mask": (block.trained, lengths)}
        yield sequences


def _group_sequences(source: Table, progress: Progress) -> Iterator[_Sequences]:
    for block in group_blocks(source, progress):
        (prompts, prompt_lengths), (rewards, sizes), (responses, lengths) = (block[key] for key in ("prompts", "rewards", "responses"))
        group_lengths = np.diff(np.concatenate([[0], np.cumsum(lengths)])[np.cumsum(sizes)], prepend=0)
        response_lengths = {"offsets": group_lengths, "element_offsets": lengths}
        yield {
            "prompts": (prompts, {"offsets": prompt_lengths}),
            "responses": (responses, response_lengths),
            "masks": (block["masks"][0], response_lengths),
            "rewards": (rewards, {"offsets": sizes}),
        }


@reads("astrai")
def read_astrai(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `astrai` export with code independent of its writer."""
    store = load(folder, "bin")
    if source.schema.fits(PAIRS):

        def pair(number: int) -> tuple[Tokens, ...]:
            record = store.fetch_record(number, store.keys)
            return tuple(Tokens(record[side].astype(np.int64), record[f"{side}_mask"] != 0) for side in ("chosen", "rejected"))

        return Readable(store.num_records, pair)
    if source.schema.fits(GROUPS):

        def group(number: int) -> tuple[Tokens, ...]:
            record = store.fetch_record(number, ("prompts", "responses", "masks", "rewards"))
            responses = [Tokens(ids.astype(np.int64), mask != 0) for ids, mask in zip(record["responses"], record["masks"], strict=True)]
            return (Tokens(record["prompts"].astype(np.int64)), *responses, Tokens(record["rewards"]))

        return Readable(store.num_records, group)
    packed, arrays, ends = source.schema.packed, store.data.arrays, source.ends("tokens")
    expected = int(ends[-1]) + packed  # a window needs a next token
    if len(store) != expected:
        raise StoreError(f"{len(store):,} tokens, {expected:,} are expected")
    shards = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("train/shard_*/meta.json"))]
    keys = {"sequence", "loss_mask", "position_ids"} if source.has("weight") else {"sequence"}
    if wrong := next((set(shard) for shard in shards if set(shard) != keys), None):
        raise StoreError(f"a shard has {sorted(wrong)}, {sorted(keys)} are expected")
    lengths = np.diff(ends, prepend=0)
    lengths[-1:] += packed
    require_filled([shard["sequence"]["shape"][0] for shard in shards], options["max_tokens_per_shard"], lengths)
    read = row_slicer(arrays["sequence"], arrays.get("loss_mask"), ends, arrays["position_ids"] if len(keys) > 1 else None)
    return Readable(len(source), read, width=source.width or None)


# train-llm-from-scratch.

_LINE_FORMS: tuple[Mapping[str, Any], ...] = ({"prompt": str, "chosen": str, "rejected": str}, {"prompt": str, "gold": int | float})
"""Fields and types of the lines that the trainer reads: preferences, RL prompts."""


@exporter(
    "tlfs",
    *(PACKED, TOKENS, LINES),
    read_by="train-llm-from-scratch",
    opens={
        "JSONL": ("import json", 'rows = [json.loads(line) for line in open("{folder}/{file}.jsonl")]', 'rows[0]["prompt"]'),
        "": ("import h5py", 'file = h5py.File("{folder}/{file}.h5")', 'file["tokens"]'),
    },
    kind="hdf5",
    keeps_borders=False,
    keeps_mask=lambda _: False,
    only={"pad_id": lambda schema, _: schema.packed},
)
def tlfs(source: Table, out: Path, progress: Progress, *, name: FileName | None = None, pad_id: TokenId = 0) -> None:
    """``pile_train.h5`` of a token stream, ``sft_packed.h5`` of a packed table, a JSONL file of lines; `name` is the file's, without ending.

    `pad_id` fills rows that are not full.
    """
    if source.path is not None:
        _check_lines(source)
        with WrittenFile(out / f"{name or source.path.stem}.jsonl") as copy:
            for line in source.written():
                copy.write(line)
        progress(len(source), len(source))
    elif not source.width:
        check_mask(source, "tlfs")
        start = 0
        # contiguous, since the length is known: of a chunked dataset HDF5 reads the whole chunk around a window
        with FixedH5(out / f"{name or 'pile_train'}.h5", {"tokens": ((int(source.ends("tokens")[-1]),), "int32")}, libver="v108") as file:
            for block in row_blocks(source, progress):
                file.write("tokens", start, block.ids("int32"))
                start += len(block.tokens)
    else:
        shape = len(source), source.width
        shapes = {"tokens": (shape, "int32"), "loss_mask": (shape, "int8")}
        with FixedH5(out / f"{name or 'sft_packed'}.h5", shapes, libver="v108") as file:
            for block in row_blocks(source, progress):
                tokens = block.padded(block.tokens, source.width, pad_id)
                mask = block.padded(block.trained.astype("int8"), source.width, 0)
                file.append({"tokens": tokens.reshape(-1), "loss_mask": mask.reshape(-1)}, np.full(len(tokens), source.width))


def _check_lines(source: Table) -> None:
    """Raises:
    ConfigError: a line with other fields than the first, or with values that the trainer does not read.
    """
    form: Mapping[str, Any] = {}
    for line, row in enumerate(source, 1):
        form = form or next((form for form in _LINE_FORMS if set(form) <= set(row)), {})
        if not form:
            raise ConfigError(
                f"{source.path} has the fields {sorted(row)}; train-llm-from-scratch reads prompt, chosen, rejected or prompt, gold"
            )
        invalid = next((key for key, kind in form.items() if not isinstance(row.get(key), kind) or isinstance(row[key], bool)), None)
        if invalid is not None:
            raise ConfigError(f"{source.path} line {line:,}: {_describe_invalid_field(row, invalid, form)}")


def _describe_invalid_field(row: Mapping[str, Any], key: str, form: Mapping[str, Any]) -> str:
    if key not in row:
        return f"the fields {sorted(row)}; train-llm-from-scratch reads {', '.join(form)}, as in line 1"
    if key == "gold":
        return (
            f"the gold {row[key]!r:.80}; train-llm-from-scratch compares numbers. Export to verl, or keep the sources with such golds apart"
        )
    if isinstance(row[key], list):
        return f"train-llm-from-scratch reads {key} as text, these are messages. Build with form: text"
    return f"train-llm-from-scratch reads {key} as text, this is {row[key]!r:.80}"


@reads("tlfs")
def read_tlfs(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `tlfs` export with code independent of its writer."""
    if source.path is not None:
        path = folder / f"{options['name'] or source.path.stem}.jsonl"
        with path.open("rb") as file:
            ends = np.cumsum([len(line) for line in file])

        def line(number: int) -> Any:
            with path.open("rb") as file:
                file.seek(int(ends[number - 1]) if number else 0)
                return json.loads(file.readline())

        return Readable(len(ends), line)
    import h5py

    stem = "sft_packed" if source.width else "pile_train"
    file = h5py.File(folder / f"{options['name'] or stem}.h5", "r")
    if source.width:
        tokens, mask = file["tokens"], file["loss_mask"]
        return Readable(len(tokens), lambda number: (Tokens(tokens[number].astype(np.int64), mask[number] != 0),), width=source.width)
    ends = source.ends("tokens")
    if len(file["tokens"]) != ends[-1]:
        raise StoreError(f"{len(file['tokens']):,} tokens, the store has {ends[-1]:,}")
    return Readable(len(source), row_slicer(file["tokens"], None, ends))
