"""The packed SFT table: fixed rows of tokens and their loss mask, and which documents stand where in them.

    h5    sft_packed.h5    tokens int32 (N, row_len), loss_mask int8 (N, row_len)      train-llm-from-scratch's layout
    bin   sft_packed/shard_0000/{meta.json, sequence.bin, loss_mask.bin, position_ids.bin} …   AstrAI's layout, whole rows end to end

Where a token is not attended there is ``attention_mask`` uint8 as well, 0 at such tokens and in the padding.

Beside either, ``sft_packed.documents/`` says what each row is made of, one entry for each piece of a document, ordered by row:

    row int64, row_offset int64, length int64     tokens row_offset … row_offset + length of that row
    source int32, record int64, start int64       are tokens start … of that record in that domain's token store

and, where there are images, ``sft_packed.images/`` which image stands where (see `prep_assets.stores.images`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import save_array
from prep_assets.stores.files import went_through
from prep_assets.stores.guards import Guards, load_array, load_json
from prep_assets.stores.h5 import FixedH5
from prep_assets.stores.images import NO_IMAGES, Images, open_images
from prep_assets.stores.readers import H5Array, bin_rows, read_bin, read_h5, shard_metas
from prep_assets.stores.tokens import ATTENTION, BIN_NAMES, BinWriter, StorageFormat, signed
from prep_assets.stores.verification import write_json

DOCUMENT_FIELDS = {"row": np.int64, "row_offset": np.int64, "length": np.int64, "source": np.int32, "record": np.int64, "start": np.int64}
KEYS = ("tokens", "loss_mask")


Documents = dict[str, npt.NDArray[Any]]
_REMEDY = "Build the store again"


class PackedWriter(AbstractContextManager["PackedWriter"]):
    """Writes blocks of rows; the number of rows is known beforehand.

    Args:
        dtype: of the tokens.
        loss_dtype: int8, or float32 where weights are fractions.
        attention: whether there is an ``attention_mask``.
        max_tokens_per_shard: of `bin`. A shard holds whole rows, at least one.
    """

    def __init__(
        self,
        storage: StorageFormat,
        directory: Path,
        name: str,
        rows: int,
        row_len: int,
        *,
        dtype: str = "int32",
        loss_dtype: str = "int8",
        attention: bool = False,
        max_tokens_per_shard: int = 100_000_000,
    ) -> None:
        self._name, self._shape, self._at = name, (rows, row_len), 0
        self._dtypes = {"tokens": dtype, "loss_mask": loss_dtype}
        if storage == "bin":
            self._dtypes["position_ids"] = "int32"
        if attention:
            self._dtypes[ATTENTION] = "uint8"
        shapes = {key: (self._shape, dtype) for key, dtype in self._dtypes.items()}
        self._file: FixedH5 | BinWriter = (
            FixedH5(directory / f"{name}.h5", shapes, libver="v108")
            if storage == "h5"
            else BinWriter(directory / name, self._dtypes, max_tokens_per_shard=max_tokens_per_shard)
        )

    def append(self, block: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write a block of rows: arrays (R, row_len) for ``tokens``, ``loss_mask`` and, in `bin`, ``position_ids``; ``attention_mask`` where there is one."""
        count, row_len = len(block["tokens"]), self._shape[1]
        if isinstance(self._file, BinWriter):
            self._file.append({key: block[key].reshape(-1) for key in self._dtypes}, np.full(count, row_len))
        else:
            for key in self._dtypes:
                self._file.write(key, self._at * row_len, block[key])
        self._at += count

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._file.close()
        if kind is None and self._at != self._shape[0]:
            raise StoreError(f"{self._name}: {self._at:,} rows written, {self._shape[0]:,} planned")


def write_documents(directory: Path, name: str, fields: Mapping[str, npt.NDArray[Any]], sources: tuple[str, ...], row_len: int) -> None:
    """Write ``<name>.documents/``: the fields of `DOCUMENT_FIELDS`, and the names that `source` numbers."""
    folder = directory / f"{name}.documents"
    folder.mkdir()
    for field, dtype in DOCUMENT_FIELDS.items():
        save_array(folder / f"{field}.npy", np.asarray(fields[field], dtype))
    write_json(folder / "sources.json", {"sources": list(sources), "row_len": row_len})


@dataclass(frozen=True)
class PackedStore:
    """A packed table, opened for reading.

    Attributes:
        tokens, loss_mask: (N, row_len).
        documents: the fields of `DOCUMENT_FIELDS`, one entry a piece, ordered by row and offset.
        sources: domain names that ``documents["source"]`` numbers.
        row_len: tokens in a row.
        images: the images in the rows.
        attention_mask: (N, row_len), 0 where a token is not attended and in the padding; `None` where all tokens are attended.
    """

    tokens: Any
    loss_mask: Any
    documents: Mapping[str, npt.NDArray[Any]]
    sources: tuple[str, ...]
    row_len: int
    images: Images = NO_IMAGES
    attention_mask: Any = None

    def __len__(self) -> int:
        return len(self.tokens)

    def weights(self, rows: int | slice) -> npt.NDArray[Any]:
        """The weights of a row, or of several, as `signed` has them."""
        return signed(self.loss_mask[rows], None if self.attention_mask is None else self.attention_mask[rows])

    def pieces(self, row: int) -> slice:
        """Which entries of `documents` are in a row."""
        low, high = np.searchsorted(self.documents["row"], [row, row + 1])
        return slice(int(low), int(high))

    def blocks(self, tokens: int = 1 << 20) -> Iterator[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]:
        """First row number, tokens and loss mask of successive blocks of about so many tokens."""
        rows = max(1, tokens // self.row_len)
        for start in range(0, len(self), rows):
            yield start, np.asarray(self.tokens[start : start + rows]), np.asarray(self.loss_mask[start : start + rows])
            went_through(4 * rows * self.row_len)


def open_packed(directory: Path, name: str, guards: Guards | None = None) -> PackedStore:
    """Open the packed table `name` of a store, whichever its format.

    Raises:
        StoreError: it is not there, its parts do not fit together, or the documents of a row are not one after another from 0.
    """
    guards = guards or Guards()
    documents, sources, row_len = open_documents(directory, name, guards)
    h5, folder = directory / f"{name}.h5", directory / name
    try:
        rows = _h5_rows(h5, row_len, guards) if h5.is_file() else _bin_rows(folder, row_len, guards)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{h5 if h5.is_file() else folder}: a file is missing or damaged ({error!r}). {_REMEDY}") from error
    tokens, loss_mask, *attention = rows
    if any(each.shape != tokens.shape for each in rows) or tokens.shape[1] != row_len:
        shapes = ", ".join(f"{key} {each.shape}" for key, each in zip((*KEYS, ATTENTION), rows, strict=False))
        raise StoreError(f"{directory}: {shapes}, row_len {row_len} do not fit together")
    _check_rows(directory / f"{name}.documents", documents, len(tokens))
    return PackedStore(tokens, loss_mask, documents, sources, row_len, open_images(directory, name, guards), *attention)


def open_documents(directory: Path, name: str, guards: Guards | None = None) -> tuple[Documents, tuple[str, ...], int]:
    """What the rows of the packed table `name` are made of: the fields of `DOCUMENT_FIELDS`, the names of domains, and the row length.

    Raises:
        StoreError: a file is missing or damaged, or the documents of a row are not one after another from 0.
    """
    folder = directory / f"{name}.documents"
    if not folder.is_dir():
        raise StoreError(f"{directory} has no packed table {name!r}: {folder.name} is missing")
    guards = guards or Guards()
    documents = {field: _column(folder / f"{field}.npy", guards) for field in DOCUMENT_FIELDS}
    counts = {field: len(values) for field, values in documents.items()}
    if len(set(counts.values())) != 1:
        raise StoreError(f"{folder}: fields of different lengths: {counts}. {_REMEDY}")
    path = folder / "sources.json"
    try:
        meta = load_json(path, guards)
        sources, row_len = tuple(meta["sources"]), int(meta["row_len"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is missing or damaged ({error!r}). {_REMEDY}") from error
    _check_places(folder, documents, row_len)
    return documents, sources, row_len


def _column(path: Path, guards: Guards) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = load_array(path, guards)
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path} is missing or damaged ({error}). {_REMEDY}") from error
    if found.ndim != 1 or found.dtype != DOCUMENT_FIELDS[path.stem]:
        expected = np.dtype(DOCUMENT_FIELDS[path.stem]).name
        raise StoreError(f"{path}: {found.dtype.name} of shape {found.shape}, expected {expected} of one dimension. {_REMEDY}")
    return found


def _check_places(folder: Path, documents: Documents, row_len: int, block: int = 1 << 20) -> None:
    """Rows ascend; in each, documents stand one after another from 0, inside the row. Blocks overlap by one entry."""
    count = len(documents["row"])
    for start in range(0, count, block):
        row, offset, length = (np.asarray(documents[field][max(0, start - 1) : start + block]) for field in ("row", "row_offset", "length"))
        follows = np.diff(row) == 0
        place = np.append(offset[0] if start else 0, np.where(follows, offset[:-1] + length[:-1], 0))
        wrong = (offset != place) | (length < 1) | (offset + length > row_len) | (row < 0) | (np.diff(row, prepend=row[0]) < 0)
        if wrong.any():
            at = int(wrong.argmax())
            raise StoreError(
                f"{folder}: entry {max(0, start - 1) + at:,} of {count:,} has row {row[at]}, row_offset {offset[at]}, length {length[at]}; "
                f"documents stand one after another from 0 in rows of {row_len:,} tokens, in the order of rows. {_REMEDY}"
            )


def _check_rows(folder: Path, documents: Documents, rows: int) -> None:
    last = int(documents["row"][-1]) + 1 if len(documents["row"]) else 0
    if last > rows:
        raise StoreError(f"{folder}: its last document is in row {last - 1:,} of a table of {rows:,} rows. {_REMEDY}")


def _h5_rows(path: Path, row_len: int, guards: Guards) -> list[Any]:
    shard = read_h5([path], guards)[0]
    if shard.row_len != row_len:
        raise StoreError(f"{path}: rows of {shard.row_len:,} tokens, {path.stem}.documents says {row_len:,}. {_REMEDY}")
    return [_as_rows(shard.arrays[key], row_len) for key in (*KEYS, *({ATTENTION} & shard.arrays.keys()))]


def _bin_rows(folder: Path, row_len: int, guards: Guards) -> list[Any]:
    """The rows of each key; of the attention mask where a shard has one, and then all have."""
    if not (metas := shard_metas(folder)):
        raise StoreError(f"{folder} has no shard. {_REMEDY}")
    shards = read_bin(metas, guards)
    extra = [ATTENTION] if any(ATTENTION in shard.arrays for shard in shards) else []
    return [bin_rows(shards, BIN_NAMES.get(key, key), row_len) for key in (*KEYS, *extra)]


def _as_rows(array: Any, row_len: int) -> Any:
    if not len(array):
        return np.zeros((0, row_len), array.dtype)
    if isinstance(array, H5Array):
        raise StoreError("a packed table is uncompressed and in one piece")
    return array.reshape(-1, row_len)
