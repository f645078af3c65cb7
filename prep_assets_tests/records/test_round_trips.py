"""Every format in every compression gives back what an independent writer wrote."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from prep_assets.errors import ConfigError, SourceError
from prep_assets.records.files import find_files
from prep_assets.records.read import read_blocks

Read = Callable[..., tuple[list[Any], list[Any]]]
Source = Callable[..., Any]
Compress = dict[str, Callable[[bytes], bytes]]

ROWS: list[dict[str, Any]] = [
    {"text": f'row {i}, "quoted"\tüñí\n次の行' if i % 3 else f"plain {i}", "n": str(i), "more": "x" * (i % 7)} for i in range(500)
]


def as_csv(delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue().encode()


def as_parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=70)
    return out.getvalue()


def as_arrow(new: Callable[..., Any]) -> bytes:
    out = io.BytesIO()
    table = pa.Table.from_pylist(ROWS)
    with new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    return out.getvalue()


WRITERS: dict[str, Callable[[], bytes]] = {
    "a.jsonl": lambda: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode(),
    "a.ndjson": lambda: "\n".join(map(json.dumps, ROWS)).encode(),
    "a.json": lambda: json.dumps(ROWS, indent=1).encode(),
    "a.csv": lambda: as_csv(","),
    "a.tsv": lambda: as_csv("\t"),
    "a.parquet": as_parquet,
    "file.arrow": lambda: as_arrow(ipc.new_file),
    "stream.arrow": lambda: as_arrow(ipc.new_stream),
}


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("name", list(WRITERS))
@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 24])
def test_round_trip(source: Source, read: Read, compress: Compress, name: str, suffix: str, block_bytes: int) -> None:
    stored = compress[suffix](WRITERS[name]())
    file = source(name + suffix, stored)
    records, refused = read(file, block_bytes=block_bytes)
    assert not refused
    assert [r.row for r in records] == list(range(len(ROWS)))
    assert [dict(r.payload) for r in records] == ROWS
    blocks = list(read_blocks(file, 0, block_bytes=block_bytes))
    assert blocks[-1].bytes_read == len(stored)
    if block_bytes == 1 << 10:
        assert len(blocks) > 5


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_several_members_one_after_the_other_are_one_file(source: Source, read: Read, compress: Compress, suffix: str) -> None:
    parts = [b'{"n": 0}\n{"n"', b": 1}\n", b"", b'{"n": 2}\n']
    records, refused = read(source(f"a.jsonl{suffix}", b"".join(compress[suffix](part) for part in parts)))
    assert [r.payload["n"] for r in records] == [0, 1, 2]
    assert not refused


def test_gzip_padding_and_highly_compressible_data(source: Source, read: Read) -> None:
    """A thousandfold compression: one stored chunk gives far more output than is asked for at a time."""
    lines = b'{"a": "' + b"x" * 300_000 + b'"}\n'
    records, _ = read(source("a.jsonl.gz", gzip.compress(lines * 20) + b"\0" * 700), block_bytes=1000)
    assert [len(r.payload["a"]) for r in records] == [300_000] * 20


def test_zstd_frames_as_other_tools_write_them(source: Source, read: Read) -> None:
    """Frames without their size, a skippable frame as pzstd writes it, and a window over zstd's default limit of 128 MiB."""
    zstandard = pytest.importorskip("zstandard", reason="zstandard writes frames that pyarrow does not")
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    parameters = zstandard.ZstdCompressionParameters(compression_level=1, window_log=28, write_content_size=0, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    long_window = writer.compress(b'{"n": 1}\n') + writer.flush()
    data = zstandard.compress(b'{"n": 0}\n') + skippable + long_window
    records, _ = read(source("a.jsonl.zst", data))
    assert [r.payload["n"] for r in records] == [0, 1]


def test_parquet_of_another_writer(tmp_path: Path, read: Read) -> None:
    polars = pytest.importorskip("polars", reason="polars has a Parquet writer of its own")
    polars.DataFrame(ROWS).write_parquet(tmp_path / "a.parquet", row_group_size=100)
    records, _ = read(find_files(["a.parquet"], tmp_path)[0])
    assert [r.payload for r in records] == ROWS


@pytest.mark.readers
def test_a_data_set_saved_by_datasets(tmp_path: Path, read: Read) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets writes the folder that is read here")
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    files = find_files(["saved"], tmp_path)
    assert [file.name for file in files] == [f"data-0000{i}-of-00003.arrow" for i in range(3)]
    assert [r.payload for file in files for r in read(file)[0]] == ROWS


def test_text_lines(source: Source, read: Read) -> None:
    records, refused = read(source("a.txt", "\ufeff one \r\n\r\n  \nzwei\xa0\nd\u2028rei\x0c".encode()))
    assert [(r.row, r.payload) for r in records] == [(0, {"text": " one "}), (3, {"text": "zwei\xa0"}), (4, {"text": "d\u2028rei\x0c"})]
    assert not refused


def test_text_as_one_document(source: Source, read: Read) -> None:
    text = "one\r\n\r\ntwo\n"
    (record,), refused = read(source("a.txt", b"\xef\xbb\xbf" + text.encode()), txt="file")
    assert (record.row, record.payload) == (0, {"text": text})
    assert not refused
    assert read(source("blank.txt", b" \n\n"), txt="file") == ([], [])


def test_text_that_cannot_be_read(source: Source, read: Read) -> None:
    file = source("a.txt", b"good\ncaf\xe9\n" + b"x" * 5000 + b"\nend")
    records, refused = read(file, max_record_bytes=100, block_bytes=64)
    assert [r.row for r in records] == [0, 3]
    assert [(u.row, u.reason, u.length) for u in refused] == [(1, "invalid_utf8", 4), (2, "too_long", 5000)]
    assert [(u.reason, u.length) for u in read(file, txt="file", max_record_bytes=100)[1]] == [("too_long", 5014)]
    assert [u.reason for u in read(file, txt="file")[1]] == ["invalid_utf8"]


@pytest.mark.parametrize("options", [{"block_bytes": 0}, {"max_record_bytes": 0}, {"txt": "paragraph"}])
def test_arguments_without_sense_stop_before_any_reading(source: Source, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_blocks(source("a.jsonl", b"{}"), 0, **options)


def test_a_file_that_is_gone(source: Source, tmp_path: Path) -> None:
    file = source("a.jsonl", b"{}")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match="cannot open"):
        list(read_blocks(file, 0))


def test_one_large_row_group_is_not_held_in_memory(source: Source) -> None:
    noise = random.Random(7)
    out = io.BytesIO()
    pq.write_table(pa.table({"text": [noise.randbytes(500).hex() for _ in range(20_000)]}), out, compression="none")
    file = source("a.parquet", out.getvalue())
    assert file.size > 20_000_000
    tracemalloc.start()
    try:
        assert sum(len(block.records) for block in read_blocks(file, 0, block_bytes=1 << 18)) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6_000_000
