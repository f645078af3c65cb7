"""Shards with the files of images: members and their bytes, images that are not what they were, and what WebDataset and MosaicML streaming read."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports import media
from prep_assets.extensions.exports.compared import compare
from prep_assets.graph.graph import assets_of
from prep_assets.stores.images import Image, ImageBlock, ImageWriter
from prep_assets.stores.table import TOKENS, Table, open_table
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.extensions.exports.readers import reader, streaming
from prep_assets_tests.extensions.exports.test_images import DOCUMENTS, PAD, PATCHES, starts_of, write_packed
from prep_assets_tests.graph.pictures import TOKEN, chat, png, tokenizer_in
from prep_assets_tests.graph.workspaces import build, domain, jsonl, make, minimal, workspace_in

OPTIONS = {"image_dir": None, "split": "train", "rows_per_file": 10_000}


def picture(path: str) -> bytes:
    """A picture whose size follows from its path, so that no two are alike."""
    return png(8 + len(path), 8 + sum(path.encode()) % 97) + path.encode()


def written(folder: Path, change: Callable[[Image], Image] = lambda image: image) -> Path:
    """A stream whose images are files of a folder beside it."""
    with TableWriter(folder, "train", TOKENS, {"tokens": "int32", "loss_mask": "uint8"}) as writer:
        for number, (ids, mask, paths) in enumerate(DOCUMENTS):
            images = []
            for path in paths:
                place = folder.parent / "pictures" / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(picture(path))
                images.append(change(Image(path, hashlib.sha256(picture(path)).hexdigest())))
            starts = np.array(starts_of(ids), np.int64)
            block = ImageBlock(np.zeros(len(paths), np.int64), starts, np.full(len(paths), PATCHES), images)
            arrays = {"tokens": np.array(ids, "int32"), "loss_mask": np.array(mask, "uint8")}
            writer.append(arrays, np.array([len(ids)]), [0], [number], images=block)
    return folder


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    (tmp_path / "stream").mkdir()
    return written(tmp_path / "stream")


def samples(out: Path) -> list[dict[str, bytes]]:
    """By the standard library: members in their order, gathered by what stands before the first dot."""
    found: dict[str, dict[str, bytes]] = {}
    for shard in json.loads((out / "shards.json").read_text())["shards"]:
        path = out / shard["url"]
        assert (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == (shard["bytes"], shard["sha256"])
        with tarfile.open(path) as tar:
            for member in tar:
                assert (member.mtime, member.uid, member.uname) == (0, 0, "")
                file = tar.extractfile(member)
                assert file is not None
                key, _, name = member.name.partition(".")
                found.setdefault(key, {})[name] = file.read()
    return [found[key] for key in sorted(found)]


def test_samples_hold_ids_labels_and_the_bytes_of_images(stream: Path, tmp_path: Path) -> None:
    out = export(stream, "webdataset", tmp_path / "out", image_dir=str(tmp_path / "pictures"), rows_per_file=7)
    assert sorted(path.name for path in out.iterdir()) == ["shards.json", *(f"train-{number:06d}.tar" for number in range(5))]
    for (ids, mask, paths), sample in zip(DOCUMENTS, samples(out), strict=True):
        row = json.loads(sample.pop("json"))
        assert row["input_ids"] == ids
        assert row["labels"] == [token if trained and at else -100 for at, (token, trained) in enumerate(zip(ids, mask, strict=True))]
        assert sample == {f"{number}.png": picture(path) for number, path in enumerate(paths)}
        listed = [(image["file"], image["path"], image["start"], image["length"]) for image in row.get("images", [])]
        assert listed == [
            (f"{number}.png", path, start, PATCHES) for number, (path, start) in enumerate(zip(paths, starts_of(ids), strict=True))
        ]
    options = {**OPTIONS, "image_dir": str(tmp_path / "pictures"), "rows_per_file": 7}
    assert compare(out, open_table(stream), "webdataset", options).passed


@pytest.mark.parametrize("format", ["webdataset", "mds", "hf_parquet"])
def test_rows_of_a_packed_table(tmp_path: Path, format: str) -> None:
    """Two documents a row: positions begin again, images stand where the row has them."""
    pairs = [DOCUMENTS[at : at + 2] for at in range(0, len(DOCUMENTS), 2)]
    (tmp_path / "stream").mkdir()
    written(tmp_path / "stream")
    folder = tmp_path / "table"
    write_packed(folder, "h5", [[document[:2] for document in row] for row in pairs], 64, PAD)
    writer = ImageWriter(folder, "sft_packed")
    for number, row in enumerate(pairs):
        ids, paths = ([each for document in row for each in document[part]] for part in (0, 2))
        images = [Image(path, hashlib.sha256(picture(path)).hexdigest()) for path in paths]
        starts = np.array(starts_of(ids), np.int64)
        writer.append(ImageBlock(np.full(len(paths), number), starts, np.full(len(paths), PATCHES), images), 0)
    writer.close()
    options: dict[str, Any] = {"image_dir": str(tmp_path / "pictures")}
    out = export(folder, format, tmp_path / "out", **options)
    filled = {"split": "train", "rows_per_file": 10_000, "size_limit": 1 << 26, **options}
    assert compare(out, open_table(folder), format, filled).passed
    if format == "webdataset":
        for row, sample in zip(pairs, samples(out), strict=True):
            found = json.loads(sample["json"])
            assert found["position_ids"] == [place for ids, _, _ in row for place in range(len(ids))]
            assert [sample[image["file"]] for image in found.get("images", [])] == [picture(path) for _, _, paths in row for path in paths]


@pytest.mark.parametrize("packed", [True, False])
def test_only_packed_rows_have_position_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    rows = [[(ids, mask)] for ids, mask, _ in DOCUMENTS]
    (tmp_path / "stream").mkdir()
    if packed:
        write_packed(folder := tmp_path / "table", "h5", rows, 64, PAD)
    else:
        folder = written(tmp_path / "stream")
    made = media._rows

    def turned(source: Table, progress: Any) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        for fields, images in made(source, progress):
            rest = {name: values for name, values in fields.items() if name != "position_ids"}
            yield (rest if packed else {**rest, "position_ids": list(range(len(rest["input_ids"])))}), images

    monkeypatch.setattr(media, "_rows", turned)
    options = {} if packed else {"image_dir": str(tmp_path / "pictures")}
    out = export(folder, "webdataset", tmp_path / "out", **options)
    with pytest.raises(StoreError, match=r"row 0: .*where it is packed, and only there"):
        compare(out, open_table(folder), "webdataset", {**OPTIONS, **options})


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        (None, {}, "needs image_dir"),
        (None, {"image_dir": "nowhere"}, r"cannot be read \(No such file or directory\)"),
        (lambda image: Image(image.path, "00" * 32), {"image_dir": "pictures"}, "the store was built with 0000"),
        (lambda image: Image(f"https://a.b/{image.path}", None), {"image_dir": "pictures"}, "is an address, which is not fetched"),
        (lambda image: Image(f"{image.path}.txt", image.sha256), {"image_dir": "pictures"}, "has none of the suffixes"),
    ],
)
def test_a_file_that_is_not_what_it_was_stops_the_export(tmp_path: Path, change: Any, options: dict[str, Any], says: str) -> None:
    (tmp_path / "stream").mkdir()
    folder = written(tmp_path / "stream", change) if change else written(tmp_path / "stream")
    options = {key: str(tmp_path / value) for key, value in options.items()}
    with pytest.raises(ConfigError, match=says):
        export(folder, "webdataset", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_image_dir_without_images_is_refused(tmp_path: Path) -> None:
    with TableWriter(tmp_path, "train", TOKENS, {"tokens": "int32"}) as writer:
        writer.append({"tokens": np.array([1, 2], "int32")}, np.array([2]), [0], [0])
    with pytest.raises(ConfigError, match="has no effect: the source has no images"):
        export(tmp_path, "webdataset", tmp_path / "out", image_dir="there")


def rebuilt(path: Path, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> None:
    """A shard with members changed, and an index that fits it."""
    import io

    with tarfile.open(path) as tar:
        members = [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            if (changed := change(name, data)) is not None:
                info = tarfile.TarInfo(changed[0])
                info.size = len(changed[1])
                tar.addfile(info, io.BytesIO(changed[1]))
    index = path.parent / "shards.json"
    shards = json.loads(index.read_text())
    shards["shards"][0] |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    index.write_text(json.dumps(shards))


FIRST = next(number for number, (_, _, paths) in enumerate(DOCUMENTS) if len(paths) > 1)
SPOILS: dict[str, Callable[[str, bytes], tuple[str, bytes] | None]] = {
    "another picture": lambda name, data: (name, data + b"!" if name == f"{FIRST:08d}.1.png" else data),
    "a picture lost": lambda name, data: None if name == f"{FIRST:08d}.0.png" else (name, data),
    "pictures exchanged": lambda name, data: (name.replace("0.png", "x").replace("1.png", "0.png").replace("x", "1.png"), data),
    "a place moved": lambda name, data: (name, data.replace(b'"start": ', b'"start": 1')),
    "a label shifted": lambda name, data: (
        name,
        data.replace(b'"labels": [-100, ', b'"labels": [').replace(b'], "images"', b', -100], "images"'),
    ),
    "a sample lost": lambda name, data: None if name.startswith(f"{FIRST:08d}") else (name, data),
}


@pytest.mark.parametrize("what", SPOILS)
def test_a_spoiled_export_is_seen(stream: Path, tmp_path: Path, what: str) -> None:
    options = {**OPTIONS, "image_dir": str(tmp_path / "pictures")}
    out, source = export(stream, "webdataset", tmp_path / "out", **options), open_table(stream)
    assert compare(out, source, "webdataset", options).passed
    rebuilt(out / "train-000000.tar", SPOILS[what])
    try:
        passed = compare(out, source, "webdataset", options).passed
    except Exception:  # what no reader of its format can read
        passed = False
    assert not passed


@pytest.mark.parametrize("format", ["webdataset", "mds", "hf_parquet"])
def test_image_dir_is_relative_to_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    (tmp_path / "configs" / "pictures").mkdir(parents=True)
    (tmp_path / "configs" / "pictures" / "a.png").write_bytes(picture("a.png"))
    chats = domain(jsonl(tmp_path / "chats.jsonl", [chat("<image>?", "a.png"), chat("None?")]), "messages", image_dir="pictures")
    options = {"tokenizer": tokenizer_in(tmp_path), "image_token": TOKEN, "test_fraction": 0}
    exports = {"files": {"from": "sft_tokens", "to": format, "options": {"image_dir": "pictures"}}}
    workspace = workspace_in(tmp_path, minimal("sft", {"chats": chats}, **options, exports=exports))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    build(workspace, "sft_tokens", "chats")
    published = make(workspace, assets_of(workspace)["sft_export_files"], "chats")  # with its checks
    assert published.manifest.recipe["options"]["image_dir"] == "pictures"


@pytest.mark.readers
def test_streaming_reads_ids_and_the_bytes_of_images(stream: Path, tmp_path: Path) -> None:
    options = {"size_limit": 4000, "image_dir": str(tmp_path / "pictures")}
    out = export(stream, "mds", tmp_path / "out", **options)
    assert len(list(out.glob("*.mds"))) > 2
    found = streaming().StreamingDataset(local=str(out), batch_size=1)
    assert len(found) == len(DOCUMENTS)
    for (ids, _, paths), sample in zip(DOCUMENTS, (found[number] for number in range(len(found))), strict=True):
        assert sample["input_ids"].tolist() == ids
        places = [(image["path"], image["start"], image["length"]) for image in sample["images"]]
        assert places == [(path, start, PATCHES) for path, start in zip(paths, starts_of(ids), strict=True)]
        assert sample["image_bytes"] == b"".join(map(picture, paths))
        assert [image["bytes"] for image in sample["images"]] == [len(picture(path)) for path in paths]


def test_parquet_has_the_files_and_is_compared_with_the_store(stream: Path, tmp_path: Path) -> None:
    options = {"image_dir": str(tmp_path / "pictures"), "rows_per_file": 11}
    out, source = export(stream, "hf_parquet", tmp_path / "out", **options), open_table(stream)
    paths = sorted((out / "data").iterdir())
    assert [pq.read_metadata(path).num_rows for path in paths] == [11, 11, 8]
    found = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert [row["input_ids"] for row in found] == [ids for ids, _, _ in DOCUMENTS]
    assert [row["images"] for row in found] == [[{"bytes": picture(path), "path": path} for path in paths] for _, _, paths in DOCUMENTS]
    filled = {"split": "train", **options}
    assert compare(out, source, "hf_parquet", filled).passed
    table = pq.read_table(paths[0])
    for spoil in (lambda rows: rows[FIRST]["images"].reverse(), lambda rows: rows[FIRST]["images"][0].update(bytes=b"another")):
        rows = table.to_pylist()
        spoil(rows)
        pq.write_table(pa.Table.from_pylist(rows, table.schema), paths[0])
        with pytest.raises(StoreError, match=f"row {FIRST}: .* is another file than"):
            compare(out, source, "hf_parquet", filled)


@pytest.mark.readers
def test_datasets_decodes_the_images_of_parquet(tmp_path: Path) -> None:
    """`datasets` knows the column as a list of images."""
    image, folder = reader("PIL.Image"), tmp_path / "pictures"
    folder.mkdir()
    names = [f"{number}.png" for number in range(5)]
    for number, name in enumerate(names):
        image.new("RGB", (4 + number, 5), (number, 0, 0)).save(folder / name)
    with TableWriter(tmp_path, "train", TOKENS, {"tokens": "int32", "loss_mask": "uint8"}) as writer:
        images = [Image(name, hashlib.sha256((folder / name).read_bytes()).hexdigest()) for name in names]
        block = ImageBlock(np.array([0, 0, 0, 0, 2]), np.array([1, 2, 3, 4, 0]), np.ones(5, np.int64), images)
        writer.append({"tokens": np.arange(10), "loss_mask": np.ones(10)}, np.array([6, 2, 2]), [0, 0, 0], [0, 1, 2], images=block)
    out = export(tmp_path, "hf_parquet", tmp_path / "out", image_dir=str(folder))
    found = reader("datasets").load_dataset(
        "parquet", data_files=str(out / "data" / "train-*"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [[(each.size, each.getpixel((0, 0))) for each in row["images"]] for row in found] == [
        [((4 + number, 5), (number, 0, 0)) for number in numbers] for numbers in (range(4), (), (4,))
    ]


def test_mds_is_compared_with_the_store(stream: Path, tmp_path: Path) -> None:
    options = {"size_limit": 1 << 20, "image_dir": str(tmp_path / "pictures")}
    out, source = export(stream, "mds", tmp_path / "out", **options), open_table(stream)
    assert compare(out, source, "mds", options).passed
    [shard] = out.glob("*.mds")
    data, path = shard.read_bytes(), DOCUMENTS[FIRST][2][0]
    content = picture(path)
    assert data.count(content) == 1
    shard.write_bytes(data.replace(content, content[:-1] + b"?"))
    with pytest.raises(StoreError, match="is another one than that of the store"):
        compare(out, source, "mds", options)
    with pytest.raises(ConfigError, match="export 'mds' needs image_dir"):
        export(stream, "mds", tmp_path / "none")


@pytest.mark.readers
def test_webdataset_reads_rows_from_raw_chats_on(tmp_path: Path) -> None:
    """From raw rows to decoded pictures: WebDataset gives each sample its ids, and its images in the order in which they stand."""
    web = reader("webdataset")
    folder = tmp_path / "pictures"
    folder.mkdir()
    image = reader("PIL.Image")
    rows = []
    for number in range(24):
        names = [f"{number}-{at}.png" for at in range(number % 3)]
        for at, name in enumerate(names):
            image.new("RGB", (4 + number, 5 + at), (number, at, 0)).save(folder / name)
        content = [{"type": "image", "image": name} for name in names] + [{"type": "text", "text": f"What is {number}?"}]
        rows.append({"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": f"It is {number}."}]})
    chats = domain(jsonl(tmp_path / "chats.jsonl", rows), "messages", image_dir=str(folder))
    options = {"tokenizer": tokenizer_in(tmp_path), "template": "tokenizer", "image_token": TOKEN, "image_patches": 3, "test_fraction": 0}
    workspace = workspace_in(tmp_path, minimal("sft", {"chats": chats}, **options))
    tokens = build(workspace, "sft_tokens", "chats")
    out = export(tokens, "webdataset", tmp_path / "out", stream="train", image_dir=str(folder), rows_per_file=10)
    shards = [str(out / shard["url"]) for shard in json.loads((out / "shards.json").read_text())["shards"]]
    found = list(web.WebDataset(shards, shardshuffle=False).decode("pil"))
    assert len(found) == len(rows)
    source = open_table(tokens.directory, "train")
    for number, sample in enumerate(found):
        assert sample["json"]["input_ids"] == source.columns["tokens"].arrays(number)[0].tolist()
        listed = sample["json"].get("images", [])
        assert [each["path"] for each in listed] == [f"{number}-{at}.png" for at in range(number % 3)]
        assert [sample[each["file"]].size for each in listed] == [(4 + number, 5 + at) for at in range(number % 3)]
        assert [sample[each["file"]].getpixel((0, 0)) for each in listed] == [(number, at, 0) for at in range(number % 3)]
