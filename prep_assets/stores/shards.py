"""Ragged per-token arrays on disk: token streams with, for SFT, a loss mask, and the ends of records.

Two formats hold the same arrays:

    bin   shard_0000/meta.json, shard_0000/<key>.bin …   AstrAI's layout: raw little-endian elements
    h5    <name>.h5 with one flat dataset a key          train-llm-from-scratch's layout: ``tokens``

and both have a folder ``<name>.index``, which no trainer reads, with the end and the origin of each record; and, with images, ``<name>.images``
(see `prep_assets.stores.images`); and a folder for each of its lists (see `prep_assets.stores.lists`). Where pairs have
margins, ``chosen.index`` has ``margin.npy``, float32, NaN for a pair without one.

``meta.json`` is ``{key: {"shape": [n], "dtype": name, "offsets": [0, …, n], "element_offsets": [0, …, n]}}``. `offsets` bounds records and is optional;
`element_offsets` bounds the elements of nested keys (the responses of a group). Stores of this package have neither: their index bounds records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.samples import UNATTENDED
from prep_assets.stores.files import map_file
from prep_assets.stores.guards import Guards, Segmented, guarded, load_json
from prep_assets.stores.h5 import check_block, read_h5
from prep_assets.stores.verification import WrittenFile, write_text

StorageFormat = Literal["bin", "h5"]
BIN_NAMES = {"tokens": "sequence"}
"""AstrAI's name of a key, where it differs."""
ATTENTION = "attention_mask"
"""uint8: 1 where a token is attended, 0 where it is not. A store in which all tokens are attended has no such key."""
STARTS = "sentence_start"
"""uint8: 1 at the first token of each sentence; the tokens around a document belong to its first and last sentence. Only of documents cut into sentences."""
INDEX_FIELDS = {"ends": np.int64, "file": np.int32, "row": np.int64}


def signed(loss: Any, attention: Any) -> npt.NDArray[Any]:
    """Encode loss weight and attention of each token in one number: the loss weight if the token is attended, `UNATTENDED` minus the loss weight if it is
    not. So a token that is trained but not attended, which is invalid, is distinguishable. Without `attention`, return the loss weights."""
    weights = np.asarray(loss)
    return weights if attention is None else np.where(np.asarray(attention) != 0, weights, UNATTENDED - weights.astype(np.float32))


def unsigned(weights: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Decode `signed`: return the loss weights, and whether tokens are attended."""
    attended = weights >= 0
    return weights if attended.all() else np.where(attended, weights, UNATTENDED - weights), attended


Borders = Mapping[str, Mapping[str, list[int]]]
"""``offsets`` of records and ``element_offsets`` of elements of nested keys, by key; both begin with 0."""


class BinShard(AbstractContextManager["BinShard"]):
    """Writes ``<folder>/<key>.bin`` of raw little-endian elements, and ``meta.json`` last.

    ``{"<key>": {"shape": [n], "dtype": "int32"}, …}``; with `borders`, an entry has those as well. Also a context manager: after an exception there
    is no ``meta.json``.
    """

    def __init__(self, folder: Path, dtypes: Mapping[str, npt.DTypeLike]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtypes = {key: np.dtype(dtype).newbyteorder("<") for key, dtype in dtypes.items()}
        self._files = {key: WrittenFile(folder / f"{key}.bin") for key in dtypes}
        self.sizes = dict.fromkeys(dtypes, 0)
        self.borders: Borders = {}

    def append(self, key: str, values: npt.NDArray[Any]) -> None:
        """Append elements of a key, of any shape, flattened."""
        self._files[key].write_array(np.asarray(values, self._dtypes[key]))
        self.sizes[key] += values.size

    def close(self, *, sound: bool = True) -> None:
        """Finish the files; write ``meta.json`` only if they are sound."""
        for file in self._files.values():
            file.close()
        if sound:
            meta = {
                key: {"shape": [self.sizes[key]], "dtype": dtype.name, **self.borders.get(key, {})} for key, dtype in self._dtypes.items()
            }
            write_text(self._folder / "meta.json", json.dumps(meta))

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self.close(sound=kind is None)


class BinShards:
    """Several `BinShard`, ``<directory>/shard_%04d/``, which AstrAI maps into memory as one.

    A shard holds whole records and at most `max_tokens` tokens, unless a single record is longer. Without records there is one empty shard, so that keys and
    dtypes are known.
    """

    def __init__(self, directory: Path, dtypes: Mapping[str, str], max_tokens: int) -> None:
        self._directory, self._dtypes, self._limit = directory, dict(dtypes), max_tokens
        self._shards, self._tokens = 0, 0
        directory.mkdir()
        self._shard = self._next_shard()

    def _next_shard(self) -> BinShard:
        self._shards += 1
        return BinShard(self._directory / f"shard_{self._shards - 1:04d}", self._dtypes)

    def append(self, block: Mapping[str, npt.NDArray[Any]], lengths: Ints) -> None:
        """Append records: equally long 1-D arrays, one per key, and the length of each record."""
        check_block(block, self._dtypes, lengths)
        ends = np.cumsum(lengths)
        record, start = 0, 0
        while record < len(ends):
            size = int(ends[record]) - start
            if size and self._tokens and self._tokens + size > self._limit:
                self._shard.close()
                self._shard, self._tokens = self._next_shard(), 0
            record = max(record + 1, int(np.searchsorted(ends, start + self._limit - self._tokens, "right")))
            stop = int(ends[record - 1])
            for key in self._dtypes:
                self._shard.append(key, block[key][start:stop])
            self._tokens, start = self._tokens + stop - start, stop

    def close(self) -> None:
        """Finish the files."""
        self._shard.close()


def read_bin(meta: Path, guards: Guards) -> tuple[Mapping[str, Mapping[str, Any]], dict[str, Any]]:
    """Return the entries of a ``meta.json``, and the flat array of each, mapped.

    Raises:
        StoreError: it cannot be parsed, or a file is missing or has another size.
    """
    arrays: dict[str, Any] = {}
    try:
        entries: dict[str, dict[str, Any]] = load_json(meta, guards)
        for key, entry in entries.items():
            path, dtype = meta.parent / f"{key}.bin", np.dtype(entry["dtype"])
            count = int(np.prod(tuple(entry["shape"]), dtype=np.int64))
            if not path.is_file():
                raise StoreError(f"{path} is missing; meta.json lists it with {count:,} elements of {dtype.name}")
            if (size := path.stat().st_size) != count * dtype.itemsize:
                raise StoreError(f"{path}: {size:,} bytes, meta.json says {count * dtype.itemsize:,}: {count:,} of {dtype.name}")
            arrays[key] = map_array(path, dtype, guards)
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{meta} is not {{key: {{shape, dtype}}}}: {error!r}") from error
    return entries, arrays


def map_array(path: Path, dtype: npt.DTypeLike, guards: Guards) -> Any:
    """Map a file as an array under its guard."""
    memory = map_file(path)
    return guarded(memory.view(dtype), guards.guard(path, memory))


def read_ours(directory: Path, name: str, guards: Guards) -> dict[str, Any]:
    """Map the arrays of the stream or table `name` of a store: ``<name>.h5``, or the shards ``<name>/shard_0000 …`` as one, with the key ``tokens``.

    Raises:
        StoreError: neither exists, a file is damaged, shards are not numbered from 0, or their arrays do not fit together.
    """
    h5, folder = directory / f"{name}.h5", directory / name
    if h5.is_file():
        return read_h5(h5, guards)
    if not folder.is_dir():
        raise StoreError(f"{directory}: {name} has an index, but neither {name}.h5 nor a folder {name}")
    folders = sorted(folder.glob("shard_*"), key=lambda path: int(path.name.removeprefix("shard_")))
    if (named := [each.name for each in folders]) != [f"shard_{number:04d}" for number in range(len(folders))]:
        raise StoreError(f"{folder}: its shards are {', '.join(named)}; they are numbered from 0 without a gap. Build the store again")
    shards = [read_bin(shard / "meta.json", guards)[1] for shard in folders]
    for shard, arrays in zip(folders, shards, strict=True):
        if arrays.keys() != shards[0].keys() or len({*map(len, arrays.values())}) > 1:
            lengths = {key: len(array) for key, array in arrays.items()}
            raise StoreError(
                f"{shard} has arrays of lengths {lengths}; all have one, and the keys {sorted(shards[0])}. Build the store again"
            )
    names = {in_file: key for key, in_file in BIN_NAMES.items()}
    arrays_of = {key: [shard[key] for shard in shards] for key in (shards[0] if shards else ())}
    return {names.get(key, key): Segmented(arrays) if len(arrays) > 1 else arrays[0] for key, arrays in arrays_of.items()}
