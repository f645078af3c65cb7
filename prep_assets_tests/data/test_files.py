"""Source files: patterns, folders, the hub, and the sizes of images."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from prep_assets import plugins
from prep_assets.data import pins as folder_module
from prep_assets.data.addresses import ListedFile, MatchedFile
from prep_assets.data.files import find_files, fingerprint, open_stored, record_id, stored_sums
from prep_assets.data.pins import pin_folder
from prep_assets.errors import ConfigError, SourceError, SourceUnavailable
from prep_assets.extensions.remote.hub import HubAddress, hub_address

# Finding source files: which, in which order, under which names.


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


FOUND: dict[str, tuple[tuple[str, ...], str, tuple[str, ...], list[str]]] = {
    "sorted by name, and each once": (
        ("b.jsonl", "a.jsonl", "sub/c.jsonl"),
        ".",
        ("sub", "b.jsonl", "*.jsonl", "./b.jsonl", "sub/../a.jsonl"),
        ["a.jsonl", "b.jsonl", "sub/c.jsonl"],
    ),
    "of a folder known suffixes of all depths, nothing hidden or unfinished": (
        ("a.jsonl", "d/b.csv.gz", "README.md", ".hidden.jsonl", ".cache/c.jsonl", "e.jsonl.part", "f.tmp", "dataset_infos.json"),
        ".",
        (".",),
        ["a.jsonl", "d/b.csv.gz"],
    ),
    "of a glob no folders": (("a.jsonl", "a.jsonl.part", "d.jsonl/b.jsonl"), ".", ("*",), ["a.jsonl"]),
    "of all depths": (("a.jsonl", "a.jsonl.part", "d.jsonl/b.jsonl"), ".", ("**",), ["a.jsonl", "d.jsonl/b.jsonl"]),
    "letters of a name that exists": (("a[1].jsonl", "a1.jsonl"), ".", ("a[1].jsonl",), ["a[1].jsonl"]),
    "letters of the folder": (
        ("set [1]/a.jsonl", "set [1]/sub/b.jsonl"),
        "set [1]",
        ("*.jsonl", "sub/../sub/*"),
        ["a.jsonl", "sub/b.jsonl"],
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_which_files_are_found(tmp_path: Path, what: str) -> None:
    there, folder, patterns, found = FOUND[what]
    fill(tmp_path, *there)
    assert names(tmp_path / folder, *patterns) == found


def test_names_start_at_the_common_parent_wherever_the_files_are(tmp_path: Path) -> None:
    for machine in ("one", "another/deeper"):
        fill(tmp_path / machine, "x/train.jsonl", "y/train.jsonl")
        assert names(tmp_path / machine, "x/*.jsonl", "y/*.jsonl") == ["x/train.jsonl", "y/train.jsonl"]
        assert names(tmp_path / machine, "x/train.jsonl") == ["train.jsonl"]
    assert record_id(find_files(["one/x"], tmp_path)[0], 7) == "train.jsonl:8"


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
    with pytest.raises(SourceError, match="no source files"):
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


def test_another_package_reads_the_addresses_of_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b'{"text": "a"}\n'
    listed = ListedFile("shelf://team/a.jsonl", len(rows), "of today")
    shelf = SimpleNamespace(
        find=lambda pattern, fetch: [MatchedFile(listed.url, listed.url, listed=listed)],
        look=lambda url: listed,
        open=lambda url: BytesIO(rows),
    )
    monkeypatch.setattr(plugins, "added", lambda group, taken: {"shelf": shelf} if group == "addresses" else {})
    monkeypatch.setattr(plugins, "load", lambda entry: entry)
    (file,) = find_files(["shelf://team/"], Path("/"))
    assert (file.name, file.size, file.format, fingerprint(file), stored_sums(file).bytes) == (
        "a.jsonl",
        len(rows),
        "jsonl",
        "of today",
        len(rows),
    )
    assert open_stored(file).read() == rows


# Hub addresses, with a folder that stands in for the hub behind the real `huggingface_hub` cache layout.


huggingface_hub = pytest.importorskip("huggingface_hub", reason="hub addresses need huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTENT = {"README.md": b"# card", "dataset_infos.json": b"{}", "data/train-0.jsonl": b'{"n": 0}\n', "data/train-1.jsonl": b'{"n": 0}\n'}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A full cache of one data set and no connection. Files of equal content are one blob there, as in a real cache."""
    root = tmp_path / "cache" / "datasets--owner--name"
    snapshot = root / "snapshots" / COMMIT
    for path, data in CONTENT.items():
        blob = root / "blobs" / hashlib.sha1(data).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(blob)
    real = huggingface_hub.snapshot_download

    def offline(*args: object, **options: object) -> str:
        return str(real(*args, **{**options, "cache_dir": root.parent, "local_files_only": True}))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    return root


class Branches(BaseHTTPRequestHandler):
    """The hub's answer to where a branch is."""

    at: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        branch = self.path.rpartition("/")[2]
        found = self.at.get(branch, "404")
        self.send_response(200 if len(found) == 40 else int(found))
        self.end_headers()
        self.wfile.write(json.dumps({"id": "owner/name", "sha": found}).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def branches(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A hub on this machine: branch → the commit that it is at, or the status of the answer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Branches) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(Branches, "at", {})
        yield Branches.at
        server.shutdown()


def names_of_hub(*patterns: str) -> list[str]:
    return [file.name for file in find_files(patterns, Path("/nowhere"))]


def test_an_address_has_a_full_commit_and_perhaps_a_path() -> None:
    assert hub_address(f"hub://owner/na.me@{COMMIT}") == HubAddress("owner/na.me", COMMIT, None)
    assert hub_address(f"hub://o/n@{COMMIT}/data/*.parquet") == HubAddress("o/n", COMMIT, "data/*.parquet")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        *(
            (f"hub://owner/name{each}", "needs a full commit")
            for each in ("", "@main", "@0123456", f"@{COMMIT[:-1]}", f"@{COMMIT.upper()}", "/data")
        ),
        *((each, "is not a hub address") for each in ("hub://name", "hub:///name@x", f"hub://owner/name@{COMMIT}/../../etc", "hub://")),
    ],
)
def test_a_revision_that_may_move_and_what_is_no_address_are_refused(address: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        hub_address(address)


def test_files_of_the_cache_are_found_offline_under_names_without_the_cache(hub: Path) -> None:
    assert names_of_hub(f"hub://owner/name@{COMMIT}") == ["train-0.jsonl", "train-1.jsonl"]
    assert names_of_hub(f"hub://owner/name@{COMMIT}/data/*-1.jsonl") == ["train-1.jsonl"]
    assert names_of_hub(f"hub://owner/name@{COMMIT}/data") == ["train-0.jsonl", "train-1.jsonl"]
    assert names_of_hub(f"hub://owner/name@{COMMIT}/data/*-1.jsonl", f"hub://owner/name@{COMMIT}/dataset_infos.json") == [
        "data/train-1.jsonl",
        "dataset_infos.json",
    ]
    (first, _) = find_files([f"hub://owner/name@{COMMIT}"], Path("/"))
    assert Path(first.url).read_bytes() == b'{"n": 0}\n'


def test_local_and_hub_files_of_one_domain_have_names_without_either_folder(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(b"{}")
    assert names_of_hub(f"hub://owner/name@{COMMIT}", str(tmp_path / "mine.jsonl")) == [
        "file/mine.jsonl",
        "hub/train-0.jsonl",
        "hub/train-1.jsonl",
    ]


def test_a_saved_data_set_on_the_hub_keeps_its_order(hub: Path) -> None:
    folder = hub / "snapshots" / COMMIT / "saved"
    folder.mkdir()
    for name in ("b.arrow", "a.arrow"):
        (folder / name).write_bytes(b"x")
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}))
    assert names_of_hub(f"hub://owner/name@{COMMIT}/saved") == ["b.arrow", "a.arrow"]


def test_what_is_not_there_stops(hub: Path) -> None:
    with pytest.raises(SourceError, match="matches no file of the data set"):
        names_of_hub(f"hub://owner/name@{COMMIT}/*.parquet")
    other = COMMIT[::-1]
    with pytest.raises(SourceError, match=f"cannot fetch hub data set 'owner/name' at commit {other}.*HF_TOKEN"):
        names_of_hub(f"hub://owner/name@{other}")


def test_a_branch_that_is_followed_is_read_at_the_commit_that_the_hub_names(hub: Path, branches: dict[str, str]) -> None:
    branches.update(main=COMMIT, **{"refs%2Fconvert%2Fparquet": COMMIT})
    assert hub_address("hub://o/n@follow:refs%2Fconvert%2Fparquet/data") == HubAddress("o/n", None, "data", "refs/convert/parquet")
    for branch in ("main", "refs%2Fconvert%2Fparquet"):
        assert names_of_hub(f"hub://owner/name@follow:{branch}/data") == ["train-0.jsonl", "train-1.jsonl"]
    branches["main"] = COMMIT[::-1]
    with pytest.raises(SourceError, match=f"at commit {COMMIT[::-1]}"):
        names_of_hub("hub://owner/name@follow:main")
    with pytest.raises(ConfigError, match="To take whatever a branch holds, today and tomorrow, write @follow:main"):
        hub_address("hub://owner/name@main")


def test_a_hub_that_does_not_answer_is_no_old_commit_of_a_branch(
    hub: Path, branches: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(COMMIT)  # what the cache remembers
    branches["main"] = "503"
    with pytest.raises(SourceUnavailable, match=r"cannot look at branch 'main' of the hub data set 'owner/name'.*503"):
        names_of_hub("hub://owner/name@follow:main")
    with pytest.raises(SourceError, match=r"404|Not Found") as gone:
        names_of_hub("hub://owner/name@follow:other")
    assert not isinstance(gone.value, SourceUnavailable)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceUnavailable, match="cannot look at branch 'main'"):
        names_of_hub("hub://owner/name@follow:main")


def test_what_is_not_in_the_cache_is_looked_at_without_a_download(hub: Path, branches: dict[str, str]) -> None:
    branches["main"] = COMMIT
    [one, two] = find_files(["hub://owner/name@follow:main"], Path("/"), fetch=False)
    assert Path(one.url).is_file() and (one.listed, two.name) == ("", "train-1.jsonl")
    branches["main"] = COMMIT[::-1]
    [pattern] = find_files(["hub://owner/name@follow:main"], Path("/"), fetch=False)
    assert (pattern.url, pattern.listed) == ("hub://owner/name@follow:main", f"commit={COMMIT[::-1]}")


# Every real file loads with as many rows as an independent count finds.


Read = Callable[..., tuple[list[Any], list[Any]]]

PATTERNS = ["gsm8k/*.jsonl", "hh_rlhf/*.gz", "llama_factory", "moss/*.jsonl"]


def rows_of(path: Path) -> list[Any]:
    """The rows by the standard library alone."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode("utf-8-sig")
    if path.suffix == ".json":
        return list(json.loads(text))
    lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    return [{"text": line} for line in lines] if path.suffix == ".txt" else [json.loads(line) for line in lines]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_and_content(real_data: Path, read: Read, pattern: str) -> None:
    files = find_files([pattern], real_data)
    assert files
    for file in files:
        records, refused = read(file)
        assert not refused, file.name
        assert [r.payload for r in records] == rows_of(Path(file.url)), file.name


@pytest.mark.parametrize(
    ("name", "format", "is_read"),
    [("a.jsonl", "txt", False), ("a.csv", "jsonl", False), ("a.json", "jsonl", True), ("a.txt", "csv", True), ("a.log", "txt", True)],
)
def test_a_format_does_not_contradict_a_suffix(tmp_path: Path, name: str, format: str, is_read: bool) -> None:
    fill(tmp_path, name)
    if is_read:
        assert [file.format for file in find_files([name], tmp_path, format=format)] == [format]
    else:
        with pytest.raises(SourceError, match=f"`format: {format}` contradicts its suffix"):
            find_files([name], tmp_path, format=format)
