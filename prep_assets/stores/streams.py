"""Reads our own streams: token data with a folder ``<name>.index`` beside it, and packed tables with ``<name>.documents``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.stores.detect import natural
from prep_assets.stores.guards import Guards, load_array
from prep_assets.stores.packed import open_documents
from prep_assets.stores.read_bin import read_bin
from prep_assets.stores.read_h5 import read_h5
from prep_assets.stores.segments import Int64s, Positions, Shard, joined

SIDES = {"chosen", "rejected"}
GROUPS = {"prompts", "responses", "rewards"}


def read_streams(folder: Path, guards: Guards) -> list[Shard]:
    """The token stream of `folder`, both sides of preference pairs or the three streams of groups as one, or nothing where the folder has no
    token stream of ours.

    Raises:
        StoreError: there are several streams, or one does not fit its index.
    """
    names = sorted(path.stem for suffix in ("index", "documents") for path in folder.glob(f"*.{suffix}") if path.is_dir())
    if set(names) == SIDES:
        return [_pairs(folder, guards)]
    if set(names) == GROUPS:
        return [_groups(folder, guards)]
    if len(names) > 1:
        raise StoreError(f"{folder} has several streams: {', '.join(names)}. Open one of them, e.g. {_data(folder, names[0])}")
    return [_stream(folder, name, guards) for name in names if _data(folder, name).suffix != ".jsonl"]


def read_named(path: Path, guards: Guards) -> list[Shard]:
    """The token stream that is the file or folder `path`, or nothing where no index is beside it."""
    name = path.stem if path.is_file() else path.name
    beside = any((path.parent / f"{name}.{suffix}").is_dir() for suffix in ("index", "documents"))
    return [_stream(path.parent, name, guards)] if beside and path.suffix != ".jsonl" else []


def _data(folder: Path, name: str) -> Path:
    return next((path for suffix in (".h5", ".jsonl") if (path := folder / f"{name}{suffix}").is_file()), folder / name)


def _stream(folder: Path, name: str, guards: Guards) -> Shard:
    data = _data(folder, name)
    if data.is_file():
        arrays = dict(read_h5([data], guards)[0].arrays)
    elif data.is_dir():
        shards = read_bin(sorted(data.rglob("meta.json"), key=lambda path: natural(path, data)), guards)
        arrays = dict(joined(shards).arrays) if shards else {"sequence": np.zeros(0, np.int32)}
    else:
        raise StoreError(f"{folder}: {name} has an index, but neither {name}.h5 nor a folder {name}")
    arrays = {"sequence" if key == "tokens" else key: array for key, array in arrays.items()}
    packed = folder / f"{name}.documents"
    starts, stops, ends = _table(folder, name, arrays, guards) if packed.is_dir() else _records(folder / f"{name}.index", guards)
    length = len(arrays["sequence"] if "sequence" in arrays else next(iter(arrays.values())))
    if len(ends) and int(ends[-1]) != length:
        raise StoreError(f"{data}: {length:,} tokens, its index says {int(ends[-1]):,}")
    if "sequence" in arrays:
        arrays.setdefault("position_ids", Positions(starts, stops, length))
    return Shard(str(data), arrays, dict.fromkeys(arrays, ends))


def _records(index: Path, guards: Guards) -> tuple[Int64s, Int64s, Int64s]:
    ends = np.asarray(load_array(index / "ends.npy", guards))
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)], ends, ends


def _table(folder: Path, name: str, arrays: dict[str, Any], guards: Guards) -> tuple[Int64s, Int64s, Int64s]:
    """Where documents start and stop, and where rows end, in a table whose rows stand end to end."""
    documents, _, row_len = open_documents(folder, name, guards)
    row, offset, length = (np.asarray(documents[field]) for field in ("row", "row_offset", "length"))
    starts = row * row_len + offset
    return starts, starts + length, np.arange(row_len, len(arrays["sequence"]) + 1, row_len, dtype=np.int64)


def _pairs(folder: Path, guards: Guards) -> Shard:
    arrays: dict[str, Any] = {}
    ends: dict[str, Int64s] = {}
    for side in sorted(SIDES):
        shard = _stream(folder, side, guards)
        for key, name in (("sequence", side), ("loss_mask", f"{side}_mask")):
            arrays[name], ends[name] = shard.arrays[key], shard.ends[key]
    return Shard(str(folder), arrays, ends)


def _groups(folder: Path, guards: Guards) -> Shard:
    """AstrAI's keys of groups; where one's responses end follows from how many rewards it has."""
    prompts, responses, rewards = (_stream(folder, name, guards) for name in ("prompts", "responses", "rewards"))
    each, per_group = responses.ends["sequence"], rewards.ends["rewards"]
    if len(each) != len(rewards.arrays["rewards"]):
        raise StoreError(f"{folder}: {len(each):,} responses, {len(rewards.arrays['rewards']):,} rewards; there is one for each")
    if (np.diff(per_group, prepend=0) < 0).any():
        at = int((np.diff(per_group, prepend=0) < 0).argmax())
        raise StoreError(f"{folder}: the responses of group {at:,} end at {int(per_group[at]):,}, before they begin")
    ends = np.concatenate([np.zeros(1, np.int64), each])[per_group]
    arrays = {
        "prompts": prompts.arrays["sequence"],
        "responses": responses.arrays["sequence"],
        "masks": responses.arrays["loss_mask"],
        "rewards": rewards.arrays["rewards"],
    }
    borders = {"prompts": prompts.ends["sequence"], "responses": ends, "masks": ends, "rewards": per_group}
    return Shard(str(folder), arrays, borders, elements={"responses": each, "masks": each})
