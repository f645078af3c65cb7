"""Finding source files: which, in which order, under which names."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from prep_assets.data import files as folder_module
from prep_assets.data.files import find_files, fingerprint, pin_folder, record_id, stored_sums
from prep_assets.errors import ConfigError, SourceError


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b'{"a": 1}\n')


def names(folder: Path, *patterns: str) -> list[str]:
    return [file.name for file in find_files(patterns, folder)]


@pytest.mark.parametrize("suffix, compression", [("", None), (".gz", "gzip"), (".zst", "zstd"), (".bz2", "bz2"), (".xz", "xz")])
@pytest.mark.parametrize(
    "stem, format",
    [
        ("a.jsonl", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.json", "json"),
        ("a.csv", "csv"),
        ("a.tsv", "tsv"),
        ("a.parquet", "parquet"),
        ("a.arrow", "arrow"),
        ("a.txt", "txt"),
        ("A.JSONL", "jsonl"),
        ("a.b.csv", "csv"),
    ],
)
def test_format_and_compression_come_from_the_suffix(tmp_path: Path, stem: str, format: str, suffix: str, compression: str | None) -> None:
    fill(tmp_path, stem + suffix)
    (file,) = find_files([stem + suffix], tmp_path)
    assert (file.name, file.format, file.compression, file.size) == (stem + suffix, format, compression, 9)
    assert file.url == str(tmp_path / (stem + suffix))


def test_format_overrides_the_suffix_and_keeps_the_compression(tmp_path: Path) -> None:
    fill(tmp_path, "rows.json.gz", "rows.data")
    found = find_files(["*"], tmp_path, format="jsonl")
    assert [(file.name, file.format, file.compression) for file in found] == [
        ("rows.data", "jsonl", None),
        ("rows.json.gz", "jsonl", "gzip"),
    ]


def test_a_wrong_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'parquet'"):
        find_files(["a"], tmp_path, format="parket")


def test_files_are_sorted_by_name_and_come_once(tmp_path: Path) -> None:
    fill(tmp_path, "b.jsonl", "a.jsonl", "sub/c.jsonl")
    assert names(tmp_path, "sub", "b.jsonl", "*.jsonl", "./b.jsonl", "sub/../a.jsonl") == ["a.jsonl", "b.jsonl", "sub/c.jsonl"]


def test_names_start_at_the_common_parent_wherever_the_files_are(tmp_path: Path) -> None:
    for machine in ("one", "another/deeper"):
        fill(tmp_path / machine, "x/train.jsonl", "y/train.jsonl")
        assert names(tmp_path / machine, "x/*.jsonl", "y/*.jsonl") == ["x/train.jsonl", "y/train.jsonl"]
        assert names(tmp_path / machine, "x/train.jsonl") == ["train.jsonl"]
    assert record_id(find_files(["one/x"], tmp_path)[0], 7) == "train.jsonl:7"


def test_a_folder_gives_known_suffixes_of_all_depths_and_nothing_hidden_or_unfinished(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl", "d/b.csv.gz", "README.md", ".hidden.jsonl", ".cache/c.jsonl", "e.jsonl.part", "f.tmp", "dataset_infos.json")
    assert names(tmp_path, ".") == ["a.jsonl", "d/b.csv.gz"]


@pytest.mark.parametrize("pattern", [".", "**", "*/**", "c"])
def test_links_that_go_round_multiply_nothing(tmp_path: Path, pattern: str) -> None:
    """A link to the folder that it is in gave each file forty times."""
    fill(tmp_path, "c/a.jsonl", "c/d/b.jsonl", "far/e.jsonl")
    (tmp_path / "c" / "again").symlink_to(".")
    (tmp_path / "c" / "d" / "up").symlink_to("../..")
    (tmp_path / "c" / "d" / "far").symlink_to("../../far")
    (tmp_path / "far" / "back").symlink_to("../c")
    found = [Path(file.url).relative_to(tmp_path).as_posix() for file in find_files([pattern], tmp_path)]
    assert len(found) == len(set(found)) < 12
    assert {"c/a.jsonl", "c/d/b.jsonl", "c/d/far/e.jsonl"} <= set(found)


def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(SourceError, match="is a pipe, a socket or a device"):
        find_files(["."], tmp_path)


def test_a_glob_leaves_folders_and_unfinished_files_out(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl", "a.jsonl.part", "d.jsonl/b.jsonl")
    assert names(tmp_path, "*") == ["a.jsonl"]
    assert names(tmp_path, "**") == ["a.jsonl", "d.jsonl/b.jsonl"]


def test_glob_characters_in_a_name_that_exists_are_letters(tmp_path: Path) -> None:
    fill(tmp_path, "a[1].jsonl", "a1.jsonl")
    assert names(tmp_path, "a[1].jsonl") == ["a[1].jsonl"]


def test_glob_characters_in_the_folder_of_the_config_are_letters(tmp_path: Path) -> None:
    fill(tmp_path / "set [1]", "a.jsonl", "sub/b.jsonl")
    assert names(tmp_path / "set [1]", "*.jsonl", "sub/../sub/*") == ["a.jsonl", "sub/b.jsonl"]


def test_a_file_url_and_an_absolute_path_are_the_same_file(tmp_path: Path) -> None:
    fill(tmp_path, "a.jsonl")
    assert names(Path("/"), f"file://{tmp_path}/a.jsonl", str(tmp_path / "a.jsonl")) == ["a.jsonl"]


@pytest.mark.parametrize(
    "pattern, says",
    [
        ("missing.jsonl", "there is no file"),
        ("*.csv", "matches no file in"),
        ("nowhere/*.csv", "does not exist"),
        ("only_readme", "has no data file"),
        ("empty.jsonl", r"is empty \(0 bytes\)"),
        ("*.md", "suffix says nothing"),
    ],
)
def test_a_pattern_without_usable_files_stops_and_says_why(tmp_path: Path, pattern: str, says: str) -> None:
    fill(tmp_path, "only_readme/README.md", "notes.md")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SourceError, match=says) as raised:
        find_files([pattern], tmp_path)
    assert repr(pattern) in str(raised.value)
    assert str(tmp_path) in str(raised.value)


def test_a_missing_file_names_the_folder_it_was_looked_up_from(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"looked up from the folder {tmp_path}$"):
        find_files(["gone.jsonl"], tmp_path)
    with pytest.raises(SourceError, match=r"Check the name$"):
        find_files([str(tmp_path / "gone.jsonl")], Path("/elsewhere"))


def test_no_patterns_at_all(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="list of patterns is empty"):
        find_files([], tmp_path)


def saved_data_set(folder: Path, order: list[str]) -> None:
    fill(folder, *order, "cache-123.arrow", "dataset_info.json")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in order], "_split": "train"}))


def test_a_saved_data_set_gives_its_arrow_files_in_its_own_order(tmp_path: Path) -> None:
    saved_data_set(tmp_path / "saved", ["data-2.arrow", "data-10.arrow"])
    assert names(tmp_path, "saved") == ["data-2.arrow", "data-10.arrow"]
    fill(tmp_path, "saved.jsonl", "before.jsonl")
    for patterns in (["saved", "*.jsonl"], ["saved/data*", "*.jsonl", "saved"]):
        assert names(tmp_path, *patterns) == ["before.jsonl", "saved.jsonl", "saved/data-2.arrow", "saved/data-10.arrow"]


def test_a_folder_of_saved_splits_is_searched(tmp_path: Path) -> None:
    saved_data_set(tmp_path / "set" / "train", ["data-0.arrow"])
    saved_data_set(tmp_path / "set" / "test", ["data-0.arrow"])
    fill(tmp_path, "set/dataset_dict.json")
    assert names(tmp_path, "set") == ["test/data-0.arrow", "train/data-0.arrow"]


def test_a_saved_data_set_with_a_missing_file_stops(tmp_path: Path) -> None:
    saved_data_set(tmp_path, ["data-0.arrow", "data-1.arrow"])
    (tmp_path / "data-1.arrow").unlink()
    with pytest.raises(SourceError, match=r"data-1\.arrow.*missing"):
        find_files(["."], tmp_path)


def test_content_hash_is_sha256_of_the_stored_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "a.jsonl.gz").write_bytes(data)
    assert stored_sums(find_files(["a.jsonl.gz"], tmp_path)[0]).sha256 == hashlib.sha256(data).hexdigest()


def test_the_fingerprint_follows_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}")
    (file,) = find_files(["a.jsonl"], tmp_path)
    os.utime(path, ns=(0, 1_000))
    first = fingerprint(file)
    assert fingerprint(file) == first
    os.utime(path, ns=(0, 2_000))
    assert fingerprint(file) != first
    path.write_bytes(b"{ }")
    os.utime(path, ns=(0, 1_000))
    assert fingerprint(file) != first


@pytest.mark.parametrize("pattern", ["set/**/*.jsonl", "set/*/a.jsonl", "set"])
def test_a_folder_that_cannot_be_read_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """Python's glob leaves it out, and what is in it would be taken for removed."""
    for name in ("here", "locked"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "a.jsonl").write_text("{}\n")
    assert len(find_files([pattern], tmp_path)) == 2
    scandir, iterdir = os.scandir, Path.iterdir

    def locked(path: object) -> None:
        if str(path).rstrip("/").endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", lambda path=".": locked(path) or scandir(path))
    monkeypatch.setattr(Path, "iterdir", lambda path: locked(path) or iterdir(path))
    with pytest.raises(SourceError, match=r"cannot read .*locked.*: Permission denied"):
        find_files([pattern], tmp_path)


# -- pins of folders: they say what is in them, to the byte, and nothing else ------------------------------------------------------------


FILES = {"b.png": b"two", "a.png": b"one", "a/1.png": b"three", "a-b/2.png": b"four", "a/x/3.png": b"", "ü.png": b"five"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "images"


def expected(files: dict[str, bytes]) -> str:
    """Every file's path, size and hash, in the order of the parts of their paths."""
    lines = [[name, len(content), hashlib.sha256(content).hexdigest()] for name, content in files.items()]
    text = "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: str(line[0]).split("/")))
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_a_pin_says(images: Path, tmp_path: Path) -> None:
    pin = pin_folder(images, tmp_path / "known.jsonl")
    assert (pin.files, pin.bytes, pin.sha256) == (len(FILES), sum(map(len, FILES.values())), expected(FILES))
    assert pin_folder(images, tmp_path / "elsewhere" / "known.jsonl") == pin_folder(images, tmp_path / "known.jsonl") == pin


def test_only_what_changed_is_hashed_again(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    real = folder_module._hash
    monkeypatch.setattr(folder_module, "_hash", lambda path, sign: hashed.append(path.name) or real(path, sign))
    known = tmp_path / "known.jsonl"
    before = pin_folder(images, known)
    assert len(hashed) == len(FILES)
    hashed.clear()
    (images / "a" / "0.png").write_bytes(b"new")
    (images / "b.png").write_bytes(b"TWO")
    os.utime(images / "b.png", ns=(1, 1))
    (images / "a.png").unlink()
    files = {**FILES, "a/0.png": b"new", "b.png": b"TWO"}
    del files["a.png"]
    after = pin_folder(images, known)
    assert hashed == ["0.png", "b.png"] and after.sha256 == expected(files) != before.sha256
    hashed.clear()
    assert pin_folder(images, known) == after and hashed == []


def test_a_renamed_or_touched_file(images: Path, tmp_path: Path) -> None:
    before = pin_folder(images, tmp_path / "known")
    os.utime(images / "a.png", ns=(5, 5))
    assert pin_folder(images, tmp_path / "known") == before
    (images / "a.png").rename(images / "c.png")
    assert pin_folder(images, tmp_path / "known").sha256 != before.sha256


@pytest.mark.parametrize("content", ["", "not json\n", '["a.png", 1]\n', '["a.png", "3:5", "wrong"]\n'])
def test_a_memory_that_cannot_be_read_costs_only_time(images: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "known").write_text(content)
    assert pin_folder(images, tmp_path / "known").sha256 == expected(FILES)


def test_links_are_followed_and_do_not_go_round(images: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "6.png").write_bytes(b"six")
    (images / "z").symlink_to(tmp_path / "far")
    (images / "a" / "up").symlink_to(images)
    assert pin_folder(images, tmp_path / "known").sha256 == expected({**FILES, "z/6.png": b"six"})


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no folder of images at .*nowhere"):
        pin_folder(tmp_path / "nowhere", tmp_path / "known")
