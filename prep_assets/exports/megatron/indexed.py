"""Writes one pair of Megatron's ``.bin`` and ``.idx``. Byte layout: `prep_assets.stores.read_megatron`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.written import WrittenFile
from prep_assets.stores.read_megatron import HEADER, MAGIC

CODES = {"int32": 4, "uint16": 8}


class IndexedWriter:
    """Writes ``<prefix>.bin`` block by block, and ``<prefix>.idx`` at the end; every sequence is a document, unless `append` says otherwise."""

    def __init__(self, prefix: Path, dtype: str) -> None:
        self._prefix, self._dtype, self._lengths = prefix, np.dtype(dtype).newbyteorder("<"), [np.zeros(0, np.int64)]
        self._per_document = [np.zeros(0, np.int64)]
        self._file = WrittenFile(prefix.with_name(f"{prefix.name}.bin"))

    def __enter__(self) -> IndexedWriter:
        return self

    def append(self, values: npt.NDArray[Any], lengths: npt.NDArray[np.int64], per_document: npt.NDArray[np.int64] | None = None) -> None:
        """Write sequences: their values end to end, and the length of each; and how many sequences each document has, if not one."""
        self._file.write_array(np.asarray(values, self._dtype))
        self._lengths.append(lengths)
        self._per_document.append(np.ones(len(lengths), np.int64) if per_document is None else per_document)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        lengths = np.concatenate(self._lengths)
        code = CODES[self._dtype.name]
        pointers = (np.cumsum(lengths) - lengths) * self._dtype.itemsize
        with WrittenFile(self._prefix.with_name(f"{self._prefix.name}.idx")) as file:
            documents = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._per_document))])
            file.write(MAGIC + HEADER.pack(1, code, len(lengths), len(documents)))
            for array, dtype in ((lengths, "<i4"), (pointers, "<i8"), (documents, "<i8")):
                file.write_array(array.astype(dtype))
