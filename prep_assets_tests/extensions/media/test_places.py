"""The table of images beside tokens: what is written is what is read, for any batches, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import StoreError
from prep_assets.extensions.media.proofs import tokens as proof
from prep_assets.extensions.media.proofs.tokens import image_fault
from prep_assets.stores.images import Image, ImageBlock
from prep_assets.stores.table import TOKENS, Table, open_stream
from prep_assets.stores.writer import TableWriter

TOKEN = 7
Record = tuple[int, list[tuple[int, int, str, str | None]]]
"""Length, and start, length, path and digest of each image."""


def fault_of(store: Table) -> str | None:
    column = store.columns["tokens"]
    return image_fault(
        store.images,
        {key: each.values for key, each in store.columns.items()},
        column.starts_of(slice(0, len(store))),
        store.lengths,
        TOKEN,
    )


def block_of(records: list[Record]) -> tuple[np.ndarray, np.ndarray, ImageBlock]:
    tokens, rows = [], []
    for number, (length, images) in enumerate(records):
        ids = [1] * length
        for start, size, path, digest in images:
            ids[start : start + size] = [TOKEN] * size
            rows.append((number, start, size, Image(path, digest)))
        tokens += ids
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    return np.array(tokens, np.int32), np.array([length for length, _ in records]), ImageBlock(*columns, [row[3] for row in rows])


def write(folder: Path, batches: list[list[Record]], storage: str = "bin", name: str = "train") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TableWriter(folder, name, TOKENS, {"tokens": "int32", "loss_mask": "uint8"}, storage=storage) as writer:
        for records in batches:
            tokens, lengths, images = block_of(records)
            block = {"tokens": tokens, "loss_mask": (tokens != TOKEN).astype("uint8")}
            writer.append(block, lengths, [0] * len(lengths), range(len(lengths)), images=images)


@st.composite
def records(draw: st.DrawFn) -> Record:
    images, at = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.integers(1, 3))
        images.append(
            (
                at,
                size,
                draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)),
                draw(st.none() | st.just("ab" * 32)),
            )
        )
        at += size + draw(st.integers(0, 2))
    return at + draw(st.integers(1, 4)), images


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(records(), max_size=5), max_size=4), storage=st.sampled_from(["bin", "h5"]))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, batches: list[list[Record]], storage: str) -> None:
    folder = tmp_path_factory.mktemp("store")
    write(folder, batches, storage)
    store = open_stream(folder, "train")
    every = [record for batch in batches for record in batch]
    expected = [(number, *image) for number, (_, images) in enumerate(every) for image in images]
    references = store.images.references(np.arange(len(store.images)))
    columns = (store.images.record.tolist(), store.images.start.tolist(), store.images.length.tolist())
    assert [(*place, image.path, image.sha256) for *place, image in zip(*columns, references, strict=True)] == expected
    assert (folder / "train.images").is_dir() == bool(expected)
    for first in range(len(every)):
        part = store.images.of(first, first + 1)
        assert part.stop - part.start == len(every[first][1])
    assert fault_of(store) is None
    backwards = np.arange(len(store.images))[::-1]
    assert store.images.references(backwards) == references[::-1]


EXAMPLE: list[Record] = [(6, [(0, 2, "a.png", "00"), (3, 2, "b.png", None)]), (4, []), (5, [(1, 2, "a.png", "00")])]


@pytest.mark.parametrize("part", ["record.npy", "end.npy", "images.jsonl"])
def test_a_table_that_is_cut_short_is_refused(tmp_path: Path, part: str) -> None:
    write(tmp_path, [EXAMPLE])
    path = tmp_path / "train.images" / part
    if part == "images.jsonl":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        np.save(path, np.load(path)[:-1])
    with pytest.raises(StoreError, match="do not fit together"):
        open_stream(tmp_path, "train")


def changed(folder: Path, field: str, at: int, value: int) -> None:
    path = folder / "train.images" / f"{field}.npy"
    column = np.load(path)
    column[at] = value
    np.save(path, column)


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("field", "at", "value", "fault"),
    [
        ("start", 1, 2, "image token, and no image|another token|overlap"),
        ("start", 1, 4, "no image stands there|another token|inside its record"),
        ("start", 0, -1, "inside its record"),
        ("length", 2, 1, "is the image token, and no image stands there"),
        ("length", 2, 5, "inside its record"),
        ("length", 0, 0, "inside its record"),
        ("record", 2, 3, "inside its record"),
        ("record", 2, 1, "another token|no image"),
        ("record", 0, 1, "overlap|order"),
    ],
)
def test_a_wrong_place_is_found(tmp_path: Path, monkeypatch, field: str, at: int, value: int, fault: str, block: int) -> None:
    write(tmp_path, [EXAMPLE])
    real = proof._token_fault
    monkeypatch.setattr(proof, "_token_fault", lambda *given: real(*given, block=block))
    changed(tmp_path, field, at, value)
    store = open_stream(tmp_path, "train")
    found = fault_of(store)
    assert found is not None and any(part in found for part in fault.split("|"))


def test_a_trained_token_of_an_image_and_a_foreign_image_token_are_found(tmp_path: Path) -> None:
    write(tmp_path, [EXAMPLE])
    shard = tmp_path / "train" / "shard_0000"
    for name, dtype, at, value, fault in (
        ("loss_mask", "uint8", 4, 1, "trained"),
        ("sequence", "int32", 7, TOKEN, "no image stands there"),
        ("sequence", "int32", 12, 1, "another token"),
    ):
        path = shard / f"{name}.bin"
        kept = path.read_bytes()
        values = np.frombuffer(kept, dtype).copy()
        values[at] = value
        path.write_bytes(values.tobytes())
        store = open_stream(tmp_path, "train")
        found = fault_of(store)
        assert found is not None and fault in found
        path.write_bytes(kept)
