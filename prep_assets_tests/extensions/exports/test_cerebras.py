"""Cerebras' HDF5 forms against their documented rows, written out place by place."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports import blocks
from prep_assets_tests.extensions.exports.conftest import ROW_LEN, Document, Stream, Table, write_stream


def load(out: Path) -> np.ndarray:
    parts = []
    for path in sorted(out.glob("*.h5"), key=lambda path: int(path.stem.rpartition("_")[2])):
        with h5py.File(path) as file:
            data = file["data"]
            assert (data.dtype, data.compression, data.chunks[0], file.attrs["n_examples"]) == ("int32", "gzip", 1, len(data))
            parts.append(data[:])
    return np.concatenate(parts)


def fill(values: list[int], width: int, pad: int) -> list[int]:
    return values + [pad] * (width - len(values))


def shifted(document: Document, width: int, pad: int) -> list[list[int]]:
    tokens, mask = document
    return [fill(tokens[:-1], width, pad), fill(mask[1:], width, 0), fill(tokens[1:], width, pad)]


def test_documents(chats: Stream, tmp_path: Path) -> None:
    out = export(chats.folder, "cerebras", tmp_path / "out", max_seq_length=29, pad_id=7, samples_per_file=15)
    assert load(out).tolist() == [shifted(document, 29, 7) for document in chats.documents]
    about = json.loads((out / "data_params.json").read_text())
    trained = sum(sum(mask[1:]) for _, mask in chats.documents)
    assert about == {
        "features": ["input_ids", "attention_mask", "labels"],
        "post-process": {"loss_valid_tokens": trained, "n_examples": len(chats.documents)},
    }


@pytest.mark.parametrize("count", [1, 3, 5])
def test_files_have_as_many_samples_as_asked_for(count: int, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are read at a time."""
    whole = load(export(table.folder, "cerebras", tmp_path / "whole"))
    monkeypatch.setattr(blocks, "BLOCK", 70)
    out = export(table.folder, "cerebras", tmp_path / "out", samples_per_file=count)
    assert np.array_equal(load(out), whole)
    full, rest = divmod(len(whole), count)
    sizes = [len(h5py.File(out / f"output_chunk_0_{number}.h5")["data"]) for number in range(len([*out.glob("*.h5")]))]
    assert sizes == [count] * full + [rest] * bool(rest)


def test_a_document_that_does_not_fit_is_refused(chats: Stream, tmp_path: Path) -> None:
    longest = max(len(tokens) for tokens, _ in chats.documents)
    with pytest.raises(ConfigError, match=f"a row has {longest} tokens, {longest - 1} were asked for"):
        export(chats.folder, "cerebras", tmp_path / "out", max_seq_length=longest - 2)
    export(chats.folder, "cerebras", tmp_path / "fits", max_seq_length=longest - 1)
    with pytest.raises(ConfigError, match="needs max_seq_length"):
        export(chats.folder, "cerebras", tmp_path / "out")


def test_packed_rows(table: Table, tmp_path: Path) -> None:
    found = load(export(table.folder, "cerebras", tmp_path / "out", pad_id=7))
    assert found.shape == (len(table.rows), 5, ROW_LEN)
    for row, documents in enumerate(table.rows):
        tokens = table.tokens(row)
        counts: list[int] = []
        spans: list[int] = []
        positions: list[int] = []
        for number, (ids, mask) in enumerate(documents):
            last = number == len(documents) - 1
            length = len(ids) - last
            counts += [*mask[1:], 0][:length]
            spans += range(length - 1, -1, -1)
            positions += range(length)
        expected = [fill(tokens[:-1], ROW_LEN, 7), fill(counts, ROW_LEN, 0), fill(tokens[1:], ROW_LEN, 7)]
        assert found[row].tolist() == [*expected, fill(spans, ROW_LEN, 0), fill(positions, ROW_LEN, 0)]


def test_pairs(pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    folder, chosen, rejected = pairs
    found = load(export(folder, "cerebras", tmp_path / "out", max_seq_length=30, pad_id=7))
    for row, both in enumerate(zip(chosen, rejected, strict=True)):
        expected = []
        for tokens, mask in both:
            counts = [*mask[1:], 0]
            labels = [token if count else 7 for token, count in zip([*tokens[1:], 7], counts, strict=True)]
            expected += [fill(tokens, 30, 7), fill(counts, 30, 0), fill(labels, 30, 7)]
        assert found[row].tolist() == expected


def test_the_last_token_of_a_document_never_counts(tmp_path: Path) -> None:
    """Their packed pretraining trains the end token on the next document's first one; here nothing does."""
    write_stream(tmp_path / "s", "train", [([5, 6, 1], [1, 1, 1])], masked=True)
    assert load(export(tmp_path / "s", "cerebras", tmp_path / "out", max_seq_length=4))[0].tolist() == [
        [5, 6, 0, 0],
        [1, 1, 0, 0],
        [6, 1, 0, 0],
    ]
