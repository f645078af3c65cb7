"""Formats of token streams: OLMo-core, nanotron, litdata, MDS."""

from __future__ import annotations

import gzip
import json
import struct
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.huggingface import _read_row
from prep_assets.extensions.exports.readable import require_filled, starts_of
from prep_assets.extensions.exports.registry import reader as reader_of
from prep_assets.extensions.exports.token_files import read_mds, require_rounded
from prep_assets.stores.table import open_table
from prep_assets_tests.extensions.exports.conftest import Document, Stream, Table, labels_of, some
from prep_assets_tests.extensions.exports.learned import lessons, lessons_of, shifted
from prep_assets_tests.extensions.exports.readers import reader, streaming


def trained(document: Document) -> list[bool]:
    return [label != -100 for label in labels_of(document)]


def olmo_documents(out: Path, dtype: str) -> tuple[list[list[int]], list[list[bool]]]:
    """Documents by the borders of each part, and their label masks where there are any."""
    tokens, masks = [], []
    for path in sorted(out.glob("token_ids_part_*.npy")):
        ids = np.memmap(path, dtype, "r")
        mask_path = path.with_name(path.name.replace("token_ids", "labels_mask"))
        mask = np.memmap(mask_path, bool, "r") if mask_path.is_file() else np.ones(len(ids), bool)
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
            borders = [tuple(map(int, line.split(","))) for line in lines]
        assert [0, *[end for _, end in borders]] == [*[start for start, _ in borders], len(ids)]
        assert len(mask) == len(ids)
        tokens += [ids[start:end].tolist() for start, end in borders]
        masks += [mask[start:end].tolist() for start, end in borders]
    return tokens, masks


@pytest.mark.parametrize(("vocab_size", "dtype"), [(None, "uint32"), (256, "uint8"), (257, "uint16"), (65_537, "uint32")])
def test_olmo_text(text: Stream, tmp_path: Path, vocab_size: int | None, dtype: str) -> None:
    out = export(text.folder, "olmo", tmp_path / "out", vocab_size=vocab_size)
    assert olmo_documents(out, dtype)[0] == [tokens for tokens, _ in text.documents]
    assert not list(out.glob("labels_mask*"))


@pytest.mark.parametrize("part_bytes", [1, 150, 10_000])
def test_olmo_parts_are_cut_between_documents(table: Table, tmp_path: Path, part_bytes: int) -> None:
    out = export(table.folder, "olmo", tmp_path / "out", part_bytes=part_bytes, vocab_size=100)
    tokens, masks = olmo_documents(out, "uint8")
    assert tokens == [tokens for tokens, _ in table.documents]
    assert masks == [trained(document) for document in table.documents]
    longest = max(len(tokens) for tokens, _ in table.documents)
    sizes = [path.stat().st_size for path in out.glob("token_ids_part_*.npy")]
    assert max(sizes) <= max(part_bytes, longest)
    statistics = json.loads((out / "dataset_statistics.json").read_text())["overall_statistics"]
    assert statistics == {"total_instances": len(tokens), "total_tokens": sum(map(len, tokens)), "trainable_tokens": sum(map(sum, masks))}


@pytest.mark.readers
def test_nanotron_read_by_datatrove(text: Stream, tmp_path: Path) -> None:
    module = reader("datatrove.utils.dataset")
    out = export(text.folder, "nanotron", tmp_path / "out", vocab_size=50_257, tokenizer="gpt2")
    found = module.DatatroveFolderDataset(str(out), seq_len=15, token_size=2, filename_pattern="*.ds", return_positions=True)
    assert len(found) == len(text.tokens) // 16
    positions = [place for tokens, _ in text.documents for place in range(len(tokens))]
    for window in some(len(found)):
        at = slice(window * 16, window * 16 + 16)
        assert found[window]["input_ids"].tolist() == text.tokens[at]
        # positions of the first document of a window count from the window's start
        first = text.tokens[at], positions[at]
        cut = next((i for i in range(1, 16) if first[1][i] == 0), 16)
        assert found[window]["positions"].tolist() == [*range(cut), *first[1][cut:]]


def test_nanotron_files(table: Table, tmp_path: Path) -> None:
    out = export(table.folder, "nanotron", tmp_path / "out", tokenizer="gpt2")
    ends = np.cumsum([len(tokens) for tokens, _ in table.documents])
    assert np.fromfile(out / "00000_tokens.ds", "<u4").tolist() == [token for tokens, _ in table.documents for token in tokens]
    assert np.fromfile(out / "00000_tokens.ds.index", "<u8").tolist() == ends.tolist()
    assert np.fromfile(out / "00000_tokens.ds.loss", bool).tolist() == [
        value for document in table.documents for value in trained(document)
    ]
    assert (out / "00000_tokens.ds.metadata").read_text().split("\n")[:2] == ["gpt2|4", str(ends[-1])]


@pytest.mark.readers
@pytest.mark.parametrize("chunk_bytes", [1, 300, 1 << 20])
def test_litdata(text: Stream, tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    package, loader = reader("litdata"), reader("litdata.streaming.item_loader")
    out = export(text.folder, "litdata", tmp_path / "out", block_size=9, chunk_bytes=chunk_bytes)
    found = package.StreamingDataset(str(out), item_loader=loader.TokensLoader(block_size=9), shuffle=False)
    assert len(found) == len(text.tokens) // 9
    assert [found[i].tolist() for i in range(len(found))] == [text.tokens[9 * i : 9 * i + 9] for i in range(len(found))]


def test_litdata_refuses_what_it_would_train_wrongly(chats: Stream, text: Stream, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="have no loss mask"):
        export(chats.folder, "litdata", tmp_path / "out", block_size=9)
    with pytest.raises(ConfigError, match="no whole block"):
        export(text.folder, "litdata", tmp_path / "out", block_size=100_000)


def mds_samples(out: Path) -> list[dict[str, list[int]]]:
    """Every sample, by the text of the format."""
    samples = []
    for shard in json.loads((out / "index.json").read_text())["shards"]:
        data = (out / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        (count,) = struct.unpack_from("<I", data)
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        config = json.loads(data[4 + 4 * (count + 1) : offsets[0]])
        assert (count, offsets[-1]) == (shard["samples"], len(data))
        assert config["column_names"] == sorted(config["column_names"]) == shard["column_names"]
        for begin, end in pairwise(offsets):
            samples.append(mds_sample(data[begin:end], config["column_names"]))
    return samples


def mds_sample(sample: bytes, names: list[str]) -> dict[str, list[int]]:
    found, at = {}, 4 * len(names)
    for name, size in zip(names, struct.unpack_from(f"<{len(names)}I", sample), strict=True):
        column = sample[at : at + size]
        assert column[0] >> 2 == 1
        width = 1 << (column[0] & 3)
        values = np.frombuffer(column[1 + width :], "<i4")
        assert int.from_bytes(column[1 : 1 + width], "little") == len(values)
        found[name], at = values.tolist(), at + size
    assert at == len(sample)
    return found


@pytest.mark.parametrize("size_limit", [1, 2000, 1 << 20])
def test_mds_rows(table: Table, tmp_path: Path, size_limit: int) -> None:
    found = mds_samples(export(table.folder, "mds", tmp_path / "out", size_limit=size_limit))
    assert len(found) == len(table.rows)
    for row, sample in enumerate(found):
        positions = [place for length in table.lengths(row) for place in range(length)]
        assert sample == {"input_ids": table.tokens(row), "labels": table.labels(row), "position_ids": positions}


def test_mds_text_with_long_documents(tmp_path: Path) -> None:
    from prep_assets_tests.extensions.exports.conftest import write_stream

    documents: list[Any] = [([1] * length, [1] * length) for length in (255, 256, 70_000)]
    write_stream(tmp_path / "s", "train", documents, masked=False)
    assert mds_samples(export(tmp_path / "s", "mds", tmp_path / "out")) == [{"tokens": tokens} for tokens, _ in documents]


@pytest.mark.readers
def test_mds_read_by_streaming(table: Table, tmp_path: Path) -> None:
    out = export(table.folder, "mds", tmp_path / "out", size_limit=2000)
    found = streaming().StreamingDataset(local=str(out), batch_size=1, shuffle=False)
    assert len(found) == len(table.rows)
    for row in some(len(table.rows)):
        assert found[row]["input_ids"].tolist() == table.tokens(row)
        assert found[row]["labels"].tolist() == table.labels(row)
        item = {key: values.tolist() for key, values in found[row].items()}
        taught = lessons_of(item["input_ids"], shifted(item["labels"]), item["position_ids"])
        assert taught == lessons(table.rows[row])


@pytest.mark.parametrize("change", [{"version": 3}, {"compression": "zstd"}, {"column_names": ["input_ids", "position_ids", "labels"]}])
def test_an_index_that_streaming_cannot_read_or_that_names_other_columns(table: Table, change: dict[str, Any], tmp_path: Path) -> None:
    out, source = export(table.folder, "mds", tmp_path / "out"), open_table(table.folder)
    assert read_mds(out, source, {"size_limit": 1 << 26}).row(0)
    index = json.loads((out / "index.json").read_text("utf-8"))
    index["shards"][0] |= change
    (out / "index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(StoreError, match=r"streaming cannot read|other columns"):
        read_mds(out, source, {"size_limit": 1 << 26})


ROWS = [2, 3, 0, 9, 1, 2, 3]


@pytest.mark.parametrize(
    ("filled", "limit", "sizes", "right"),
    [
        *[([3, 3, 1], 3, None, True), ([3], 3, None, True), ([1], 3, None, True), ([5, 9, 3, 3], 5, ROWS, True), ([7, 7], 1, [7, 7], True)],
        *[([3, 2, 1], 3, None, False), ([3, 4], 3, None, False), ([1, 2], 3, None, False), ([2, 3, 9, 3, 3], 5, ROWS, False)],
        *[([5, 10, 5], 5, ROWS, False), ([5, 9, 1, 5], 5, ROWS, False), ([5, 9, 3], 5, ROWS, False), ([4, 10, 3, 3], 5, ROWS, False)],
    ],
)
def test_how_many_rows_a_file_holds(filled: list[int], limit: int, sizes: list[int] | None, right: bool) -> None:
    with nullcontext() if right else pytest.raises(StoreError, match=r"as many rows|where rows do"):
        require_filled(filled, limit, None if sizes is None else np.array(sizes))


def test_of_many_files_the_first_are_named() -> None:
    shown = [2] * 20
    for sizes, says in (
        (None, f"files hold {shown}; each should hold as many rows as 1,000 allows"),
        (np.full(20, 3), f"files with {shown} do not end where rows do"),
    ):
        with pytest.raises(StoreError) as raised:
            require_filled([2] * 30, 1000, sizes)
        assert str(raised.value) == says


@pytest.mark.parametrize("positions", [[0, 1, 3], [1, 2, 3], [0, 1, 2, 0, 2], [0, -1]])
def test_positions_that_do_not_count_from_0(positions: list[int]) -> None:
    assert starts_of([0, 1, 2, 0, 1, 0, 0]).tolist() == [0, 3, 5, 6]
    with pytest.raises(StoreError, match="do not count from 0"):
        starts_of(positions)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention_mask", [1, 1, 2, -1]),
        ("attention_mask", [1, 2, 2, 0]),
        ("packing_params", {"sequence_boundaries": [0, 2, 4], "right_padding_length": 1}),
        ("packing_params", {"sequence_boundaries": [0, 2, 3, 4], "right_padding_length": 0}),
        ("packing_params", {"video_subseq_ids": [0]}),
    ],
)
def test_neat_rows_that_number_their_documents_otherwise(field: str, value: Any) -> None:
    row = {"input_ids": [5, 6, 7, 0], "labels": [-100, 6, 7, -100], "attention_mask": [1, 1, 2, 0], "position_ids": [0, 1, 0, 0]}
    media = {f"{kind}_subseq_ids": [1 << 32] for kind in ("image", "video", "audio")}
    row["packing_params"] = {"sequence_boundaries": [0, 2, 3, 4], "right_padding_length": 1, **media}
    assert _read_row(row)
    with pytest.raises(StoreError, match="other documents than position_ids"):
        _read_row({**row, field: {**row[field], **value} if isinstance(value, dict) else value})


@pytest.mark.parametrize("count", [7, 999, 1000, 1_004_999, 999_600, 73_500_000, 2 * 10**9])
def test_a_rounded_number_of_tokens(count: int) -> None:
    units = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3))
    right = next((f"{count / size:.3g} {unit}T" for unit, size in units if count >= size), f"{count} T")
    require_rounded(right, count)
    for wrong in (f"{right[0]}{right}", right.replace(" ", " K", 1), f"{count / 100:.3g} KT"):
        with pytest.raises(StoreError, match="tokens"):
            require_rounded(wrong, count)


@pytest.mark.parametrize(("format", "mask"), [("olmo", "labels_mask_part_0000.npy"), ("nanotron", "00000_tokens.ds.loss")])
def test_a_mask_that_is_missing_is_seen(table: Table, format: str, mask: str, tmp_path: Path) -> None:
    out, source = export(table.folder, format, tmp_path / "out"), open_table(table.folder)
    options = {"vocab_size": None, "name": "00000_tokens"}
    assert reader_of(format)(out, source, options).row(0)
    (out / mask).unlink()
    with pytest.raises(StoreError, match=r"mask|loss"):
        reader_of(format)(out, source, options)
