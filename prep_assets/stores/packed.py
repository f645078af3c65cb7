"""The packed SFT table: rows of fixed length with tokens and loss mask, and the index of documents in them.

    h5    sft_packed.h5    tokens int32 (N, row_len), loss_mask int8 (N, row_len)      train-llm-from-scratch's layout
    bin   sft_packed/shard_0000/{meta.json, sequence.bin, loss_mask.bin, position_ids.bin} …   AstrAI's layout, whole rows end to end

If some tokens are not attended there is also ``attention_mask`` uint8, 0 at those tokens and in the padding.

With either format, ``sft_packed.documents/`` holds the contents of the rows, one entry per piece of a document, ordered by row:

    row int64, row_offset int64, length int64     tokens row_offset … row_offset + length of that row
    source int32, record int64, start int64       are tokens start … of that record in that domain's token store

Its ``sources.json`` has the names of domains, the row length and, if it is not 1, ``align``: rows have room for each piece with its length rounded up
to a multiple of it. The padding between documents is laid out by what hands rows to a trainer; here they stand end to end.

and, with images, ``sft_packed.images/`` their positions (see `prep_assets.stores.images`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns, rounded_up
from prep_assets.stores.guards import Guards, Segmented, load_columns, load_json
from prep_assets.stores.shards import ATTENTION, read_ours
from prep_assets.stores.verification import write_json

DOCUMENT_FIELDS = {"row": np.int64, "row_offset": np.int64, "length": np.int64, "source": np.int32, "record": np.int64, "start": np.int64}
KEYS = ("tokens", "loss_mask")
POSITIONS = "position_ids"


Documents = dict[str, npt.NDArray[Any]]
_REMEDY = "Build the store again"


def write_documents(
    directory: Path, name: str, fields: Mapping[str, npt.NDArray[Any]], sources: tuple[str, ...], row_len: int, align: int = 1
) -> None:
    """Write ``<name>.documents/``: the fields of `DOCUMENT_FIELDS`, the domain names that `source` indexes, row length and alignment."""
    folder = directory / f"{name}.documents"
    columns = Columns(folder, DOCUMENT_FIELDS)
    columns.append(fields)
    columns.close()
    write_json(folder / "sources.json", {"sources": list(sources), "row_len": row_len, **({"align": align} if align > 1 else {})})


def open_rows(directory: Path, name: str, row_len: int, guards: Guards) -> dict[str, Any]:
    """Open the arrays of the packed table `name`, by key, each (N, row_len).

    Raises:
        StoreError: the table is missing or damaged, or has another row length; its arrays do not fit together.
    """
    rows: dict[str, Any] = {}
    for key, array in read_ours(directory, name, guards).items():
        if array.shape[1:] not in ((), (row_len,)):
            raise StoreError(f"{directory / name}: rows of {array.shape[1]:,} tokens, {name}.documents says {row_len:,}. {_REMEDY}")
        if array.shape[1:] == () and any(len(part) % row_len for part in (array.parts if isinstance(array, Segmented) else [array])):
            raise StoreError(f"{directory / name}: {key} has {len(array):,} elements, which are no rows of {row_len:,}. {_REMEDY}")
        rows[key] = array.reshape(-1, row_len)
    shapes = {key: rows[key].shape for key in (*KEYS, ATTENTION) if key in rows}
    if len({*shapes.values()}) != 1 or not shapes.keys() >= {*KEYS}:
        raise StoreError(f"{directory}: {', '.join(f'{key} {shape}' for key, shape in shapes.items())} do not fit together. {_REMEDY}")
    return rows


def open_documents(directory: Path, name: str, guards: Guards | None = None) -> tuple[Documents, tuple[str, ...], int, int]:
    """Open the documents of the packed table `name`: the fields of `DOCUMENT_FIELDS`, the domain names, the row length, and the alignment.

    Raises:
        StoreError: a file is missing or damaged, the documents of a row are not contiguous from 0, or, aligned, do not fit into it.
    """
    folder = directory / f"{name}.documents"
    guards = guards or Guards()
    documents = load_columns(folder, DOCUMENT_FIELDS, guards)
    for field, values in documents.items():
        if values.dtype != DOCUMENT_FIELDS[field]:
            expected = np.dtype(DOCUMENT_FIELDS[field]).name
            raise StoreError(f"{folder / field}.npy: {values.dtype.name}, expected {expected} of one dimension. {_REMEDY}")
    path = folder / "sources.json"
    try:
        meta = load_json(path, guards)
        sources, row_len, align = tuple(meta["sources"]), int(meta["row_len"]), int(meta.get("align", 1))
        if align < 1 or row_len % align:
            raise ValueError(f"rows of {row_len:,} are no multiple of align {align:,}")
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is missing or damaged ({error!r}). {_REMEDY}") from error
    _check_places(folder, documents, row_len)
    if align > 1 and len(documents["row"]):
        needed = np.bincount(documents["row"], rounded_up(np.asarray(documents["length"]), align))
        if (needed > row_len).any():
            row = int(needed.argmax())
            raise StoreError(
                f"{folder}: the documents of row {row:,} need {int(needed[row]):,} of its {row_len:,} places, a multiple of {align:,} each. {_REMEDY}"
            )
    return documents, sources, row_len, align


def _check_places(folder: Path, documents: Documents, row_len: int, block: int = 1 << 20) -> None:
    """Check that rows ascend, and that the documents of a row are contiguous from 0 and inside it. Blocks overlap by one entry."""
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
