from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.astrai.run import DEFAULT, EMPTY, Domains, folder_of
from prep_assets.errors import PrepAssetsError
from prep_assets_tests.astrai.conftest import Run
from prep_assets_tests.astrai.pipelines import TEXT, changed


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("wiki", "wiki"),
        ("百科", "百科"),
        ("Common Crawl 1.5", "Common Crawl 1.5"),
        ("../x", "%2E.%2Fx"),
        ("", EMPTY),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        (".raw", "%2Eraw"),
        ("a\\b", "a%5Cb"),
        ("50%", "50%25"),
        ("a\0b", "a%00b"),
        ("x.", "x%2E"),
        ("é?", "é%3F"),
        ("__default__", "%5F_default__"),
        ("NUL", "%4EUL"),
    ],
)
def test_folders(value: str, folder: str) -> None:
    assert folder_of(value) == folder


@given(st.text(max_size=60))
def test_a_folder_is_one_safe_name_and_can_be_read_back(value: str) -> None:
    folder = folder_of(value)
    assert PurePosixPath(folder).name == folder
    assert folder not in ("", ".", "..", DEFAULT)
    assert not set(folder) & set('/\\:*?"<>|[]\0')
    assert not folder.startswith(".") and not folder.endswith((".", " "))
    assert len(folder.encode()) < 255
    if value and "%sha" not in folder:
        assert unquote(folder) == value


@given(st.lists(st.text(max_size=8), unique=True, min_size=2, max_size=8))
def test_different_values_have_different_folders(values: list[str]) -> None:
    assert len({folder_of(value) for value in values}) == len(values)


def test_long_values_stay_different() -> None:
    folders = {folder_of("界" * 500 + end) for end in "ab"}
    assert len(folders) == 2
    assert all(len(folder.encode()) < 255 for folder in folders)


@pytest.mark.parametrize(("first", "second"), [("Wiki", "wiki"), ("é", "e\u0301")])
def test_values_that_some_file_systems_would_join_stop_the_run(first: str, second: str) -> None:
    domains = Domains()
    domains.folder(first)
    if folder_of(first).casefold() == folder_of(second).casefold():
        with pytest.raises(PrepAssetsError, match="one folder"):
            domains.folder(second)
    else:  # a combining accent is no letter, so that it is coded and cannot compose
        assert domains.folder(second) == "e%CC%81"


def test_records_without_a_string_have_the_default_domain() -> None:
    domains = Domains()
    assert [domains.folder(value) for value in (None, 3, ["wiki"], "wiki")] == [DEFAULT, DEFAULT, DEFAULT, "wiki"]
    assert domains.values == {DEFAULT: None, "wiki": "wiki"}


def test_nothing_leaves_the_output_directory(run: Run, tmp_path: Path) -> None:
    values = ["../x", "", "a/b", "wiki", None]
    rows = [{"content": f"a {number}", "source": value} for number, value in enumerate(values)]
    run(rows, changed(TEXT, preprocessing={"min_chars": 0}, output={"domain_key": "source"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.jsonl"]
    folders = json.loads((tmp_path / "out" / "domains.json").read_text())
    assert list(folders.values()) == values
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == sorted(folders)
    assert all((tmp_path / "out" / folder / "shard_0000" / "meta.json").is_file() for folder in folders)
