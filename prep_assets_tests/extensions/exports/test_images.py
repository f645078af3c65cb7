"""Exports of stores with images: Cerebras' multimodal layout place by place, LLaMA-Factory's column, and refusal by every other format."""

from __future__ import annotations

import json
import random
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest

from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.registry import export, exports
from prep_assets.stores.images import Image, ImageBlock, ImageWriter
from prep_assets.stores.table import TOKENS, open_table
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.stores.payload import write_table as write_packed

TOKEN, PAD, PATCHES = 95, 99, 3
Document = tuple[list[int], list[int], list[str]]
"""Tokens, loss mask, and the paths of the images that stand on the runs of the image token, in order."""


def draw_document(rng: random.Random, number: int) -> Document:
    """Texts and images in turn; two images may be neighbours, the last token is text."""
    ids, mask, paths = [rng.randrange(90)], [0], []
    for _ in range(rng.randrange(4)):
        ids += [TOKEN] * PATCHES
        mask += [0] * PATCHES
        paths.append(f"{number}/{len(paths)} ü.png")
        for _ in range(rng.choice([0, 1, 5])):
            ids.append(rng.randrange(90))
            mask.append(rng.randrange(2))
    return [*ids, 5], [*mask, 1], paths


DOCUMENTS = [draw_document(random.Random(seed), seed) for seed in range(30)]


def starts_of(ids: list[int]) -> list[int]:
    """Where images begin: every third place that holds the image token."""
    return [place for place, token in enumerate(ids) if token == TOKEN][::PATCHES]


def block_of(number: int, ids: list[int], paths: list[str]) -> ImageBlock:
    starts = np.array(starts_of(ids), np.int64)
    return ImageBlock(np.full(len(paths), number), starts, np.full(len(paths), PATCHES), [Image(path, "00" * 32) for path in paths])


def write_stream(folder: Path, documents: list[Document]) -> Path:
    folder.mkdir()
    with TableWriter(folder, "train", TOKENS, {"tokens": "int32", "loss_mask": "uint8"}) as writer:
        for number, (ids, mask, paths) in enumerate(documents):
            block = {"tokens": np.array(ids, "int32"), "loss_mask": np.array(mask, "uint8")}
            writer.append(block, np.array([len(ids)]), [0], [number], images=block_of(0, ids, paths))
    return folder


def write_table(folder: Path, rows: list[list[Document]], row_len: int) -> Path:
    write_packed(folder, "h5", [[document[:2] for document in row] for row in rows], row_len, PAD)
    writer = ImageWriter(folder, "sft_packed")
    for number, row in enumerate(rows):
        ids, paths = ([each for document in row for each in document[part]] for part in (0, 2))
        writer.append(block_of(number, ids, paths), 0)
    writer.close()
    return folder


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", DOCUMENTS)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table", [DOCUMENTS[at : at + 2] for at in range(0, 30, 2)], 64)


def load(out: Path) -> dict[str, np.ndarray]:
    files = [h5py.File(path) for path in sorted(out.glob("*.h5"), key=lambda path: int(path.stem.rpartition("_")[2]))]
    return {name: np.concatenate([file[name][:] for file in files]) for name in files[0]}


def sample(ids: list[int], mask: list[int], width: int) -> list[list[int]]:
    """The five rows, from the documented meaning of each."""
    inputs, pad = ids[:-1], width - len(ids) + 1
    return [
        inputs + [PAD] * pad,
        mask[1:] + [0] * pad,
        ids[1:] + [PAD] * pad,
        [0] * len(inputs) + [1] * pad,
        [int(token == TOKEN) for token in inputs] + [0] * pad,
    ]


def assert_layout(found: dict[str, np.ndarray], rows: list[Document], width: int, most: int) -> None:
    assert found["data"].shape == (len(rows), 5, width) and found["data"].dtype == "int32"
    assert found["img_data_loc"].shape == (len(rows), most, PATCHES)
    assert found["img_path"].shape == (len(rows), most)
    assert found["has_img"].shape == (len(rows), 1) and found["has_img"].dtype == bool
    for number, (ids, mask, paths) in enumerate(rows):
        assert found["data"][number].tolist() == sample(ids, mask, width)
        missing = most - len(paths)
        assert [path.decode() for path in found["img_path"][number]] == paths + ["None"] * missing
        places = [list(range(start, start + PATCHES)) for start in starts_of(ids)]
        assert found["img_data_loc"][number].tolist() == places + [[width] * PATCHES] * missing
        assert found["has_img"][number, 0] == bool(paths)


MOST = max(len(paths) for _, _, paths in DOCUMENTS)


def test_a_token_stream(stream: Path, tmp_path: Path) -> None:
    out = export(stream, "cerebras", tmp_path / "out", max_seq_length=40, pad_id=PAD, samples_per_file=7)
    assert_layout(load(out), DOCUMENTS, 40, MOST)
    about = json.loads((out / "data_params.json").read_text())
    assert about["features"] == ["text_input_ids", "loss_mask", "labels", "key_padding_mask", "token_modality_idx"]
    assert about["dataset"] == {"is_multimodal": True, "max_num_img": MOST, "num_patches": PATCHES}
    assert about["post-process"] == {"loss_valid_tokens": sum(sum(mask[1:]) for _, mask, _ in DOCUMENTS), "n_examples": 30}
    with h5py.File(out / "output_chunk_0_0.h5") as file:
        assert {name: (each.compression, each.chunks[0]) for name, each in file.items()} == dict.fromkeys(file, ("gzip", 1))
        assert h5py.check_string_dtype(file["img_path"].dtype).encoding == "utf-8"


def test_a_packed_table(table: Path, tmp_path: Path) -> None:
    rows = []
    for at in range(0, 30, 2):
        (left, left_mask, a), (right, right_mask, b) = DOCUMENTS[at : at + 2]
        rows.append((left + right, [0, *left_mask[1:], 0, *right_mask[1:]], a + b))
    most = max(len(paths) for _, _, paths in rows)
    assert_layout(load(export(table, "cerebras", tmp_path / "out", pad_id=PAD)), rows, 64, most)


def test_more_room_than_needed_and_less(stream: Path, tmp_path: Path) -> None:
    assert_layout(load(export(stream, "cerebras", tmp_path / "out", max_seq_length=40, pad_id=PAD, max_num_img=9)), DOCUMENTS, 40, 9)
    over = sum(len(paths) > MOST - 1 for _, _, paths in DOCUMENTS)
    with pytest.raises(ConfigError, match=f"{over} rows have more images than max_num_img {MOST - 1}, the most has {MOST}"):
        export(stream, "cerebras", tmp_path / "less", max_seq_length=40, max_num_img=MOST - 1)


def test_what_the_layout_cannot_say_is_refused(tmp_path: Path) -> None:
    last = write_stream(tmp_path / "last", [([5, *[TOKEN] * PATCHES], [0] * 4, ["a.png"])])
    with pytest.raises(ConfigError, match="row 0 ends with an image"):
        export(last, "cerebras", tmp_path / "out", max_seq_length=9)
    folder = tmp_path / "mixed"
    folder.mkdir()
    with TableWriter(folder, "train", TOKENS, {"tokens": "int32", "loss_mask": "uint8"}) as writer:
        image = ImageBlock(np.array([0]), np.array([1]), np.array([3]), [Image("a.png", None)])
        writer.append(
            {"tokens": np.array([5, 7, TOKEN, 8, 5]), "loss_mask": np.array([0, 0, 0, 0, 1])}, np.array([5]), [0], [0], images=image
        )
    with pytest.raises(ConfigError, match="row 0: tokens of 3 kinds stand for an image"):
        export(folder, "cerebras", tmp_path / "out", max_seq_length=9)
    none = write_stream(tmp_path / "none", [([5, *[TOKEN] * PATCHES, 5], [0, 0, 0, 0, 1], ["None"])])
    with pytest.raises(ConfigError, match="named 'None'"):
        export(none, "cerebras", tmp_path / "out", max_seq_length=9)


@pytest.mark.parametrize("which", ["stream", "table"])
@pytest.mark.parametrize("fault", ["path", "place", "modality", "padding", "has", "order"])
def test_the_reader_notices(which: str, fault: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = request.getfixturevalue(which)
    options = {"max_seq_length": 40 if which == "stream" else None, "pad_id": PAD}
    out = export(folder, "cerebras", tmp_path / "out", **options)
    source = open_table(folder)
    assert compare(out, source, "cerebras", options).passed
    row = next(number for number in range(len(source)) if (part := source.images.of(number, number + 1)).stop - part.start >= 2)
    with h5py.File(out / "output_chunk_0_0.h5", "r+") as file:
        if fault == "path":
            file["img_path"][row, 0] = "other.png"
        elif fault == "place":
            file["img_data_loc"][row, 0] = file["img_data_loc"][row, 0] + 1
        elif fault == "has":
            file["has_img"][row, 0] = False
        elif fault == "order":
            file["img_path"][row, :2] = file["img_path"][row, :2][::-1]
        else:
            data = file["data"][row]
            data[4 if fault == "modality" else 3, file["img_data_loc"][row, 0, 0]] = fault == "padding"
            file["data"][row] = data
    try:
        assert not compare(out, source, "cerebras", options).passed
    except Exception as error:  # a reader may also find that a file contradicts itself
        assert "img_data_loc says" in str(error)


def test_llama_factorys_column_of_images(stream: Path, tmp_path: Path) -> None:
    for image_dir, before in ((None, ""), ("/data", "/data/")):
        out = export(stream, "hf_arrow", tmp_path / f"out{len(before)}", layout="llama_factory", image_dir=image_dir)
        options = {"layout": "llama_factory", "split": "train", "pad_id": 0, "image_dir": image_dir}
        assert compare(out, open_table(stream), "hf_arrow", options).passed
        (file,) = (out / "train").glob("*.arrow")
        found = pa.ipc.open_stream(pa.memory_map(str(file))).read_all().to_pylist()
        assert [row["images"] for row in found] == [[before + path for path in paths] or None for _, _, paths in DOCUMENTS]
        assert [row["input_ids"] for row in found] == [ids for ids, _, _ in DOCUMENTS]
        assert all(row["videos"] is None and row["audios"] is None for row in found)


def test_every_other_format_refuses(stream: Path, table: Path, tmp_path: Path) -> None:
    count = sum(len(paths) for _, _, paths in DOCUMENTS)
    for name in exports():
        for folder in (stream, table):
            needed = {"litdata": {"block_size": 8}, "nanotron": {}, "cerebras": {"max_seq_length": 40}}.get(name, {})
            if name in ("cerebras", "webdataset", "mds", "hf_parquet", "llava") or open_table(folder).schema not in exports()[name].takes:
                continue
            with pytest.raises(ConfigError, match=f"would lose {count} images"):
                export(folder, name, tmp_path / f"{name}-{folder.name}", **needed)
    with pytest.raises(ConfigError, match=f"layout 'llama_factory' of a packed table would lose {count} images"):
        export(table, "hf_arrow", tmp_path / "neat", layout="llama_factory")
