"""Golden bytes of Megatron's own builder, written here place by place from its format, and read back."""

from __future__ import annotations

import hashlib
import struct
from itertools import accumulate
from pathlib import Path

import pytest

from prep_assets import load

CODES = {"int32": (4, "i"), "uint16": (8, "H")}


def write(folder: Path, dtype: str, documents: list[list[list[int]]], modes: list[int] | None = None) -> tuple[bytes, bytes]:
    """The pair of files of documents of several sequences each."""
    code, letter = CODES[dtype]
    sequences = [sequence for document in documents for sequence in document]
    lengths = [len(sequence) for sequence in sequences]
    starts = [0, *accumulate(length * struct.calcsize(f"<{letter}") for length in lengths)][: len(lengths)]
    borders = [0, *accumulate(len(document) for document in documents)]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sequences), len(borders))
    index += (
        struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(starts)}q", *starts) + struct.pack(f"<{len(borders)}q", *borders)
    )
    index += struct.pack(f"<{len(modes or [])}b", *(modes or []))
    data = b"".join(struct.pack(f"<{len(sequence)}{letter}", *sequence) for sequence in sequences)
    (folder / "x.idx").write_bytes(index)
    (folder / "x.bin").write_bytes(data)
    return data, index


@pytest.mark.parametrize(
    ("dtype", "documents", "modes", "data", "md5", "size"),
    [
        ("int32", [[[1, 2, 3]], [[4, 5]]], None, "0100000002000000030000000400000005000000", "9f72f8d411fbab536ce8e7ea21e865db", 82),
        ("uint16", [[[1, 2], [3]], [[65499]]], None, "010002000300dbff", "4d19d9dacd915ec38a2ee7f28dbcfe57", 94),
        ("int32", [[[-100, 7]]], None, "9cffffff07000000", "dffe110292cc5f41b6676cfc3abd6404", 62),
        ("int32", [[[1, 2]]], [1], "0100000002000000", "3100bf07d6c3e6c9f2cabfe34ae6c59f", 63),
    ],
)
def test_the_bytes_of_megatrons_builder_are_read_as_documents(
    tmp_path: Path, dtype: str, documents: list[list[list[int]]], modes: list[int] | None, data: str, md5: str, size: int
) -> None:
    written, index = write(tmp_path, dtype, documents, modes)
    assert (written.hex(), hashlib.md5(index).hexdigest(), len(index)) == (data, md5, size)
    store = load(tmp_path)
    found = [store.fetch_record(number, "sequence").tolist() for number in range(len(documents))]
    assert found == [[token for sequence in document for token in sequence] for document in documents]


def test_the_first_index_in_full(tmp_path: Path) -> None:
    _, index = write(tmp_path, "int32", [[[1, 2, 3]], [[4, 5]]])
    assert index.hex() == (
        "4d4d4944494458000001000000000000000402000000000000000300000000000000030000000200000000000000000000000c00000000000000"
        "000000000000000001000000000000000200000000000000"
    )


def test_a_set_merged_with_itself(tmp_path: Path) -> None:
    """Lengths 3 2 3 2, pointers 0 12 20 32, documents 0 1 2 3 4."""
    _, index = write(tmp_path, "int32", [[[1, 2, 3]], [[4, 5]]] * 2)
    assert struct.unpack_from("<4i4q5q", index, 34) == (3, 2, 3, 2, 0, 12, 20, 32, 0, 1, 2, 3, 4)
    store = load(tmp_path)
    assert [store.fetch_record(number, "sequence").tolist() for number in range(4)] == [[1, 2, 3], [4, 5]] * 2
