"""Where an export is written: one at a time, whole, only in its folder, and only what the format can say."""

from __future__ import annotations

import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.registry import export, exports
from prep_assets.stores.table import LINES, open_table
from prep_assets_tests.extensions.exports.conftest import Stream, Table, write_lines, write_stream
from prep_assets_tests.extensions.exports.test_registry import OPTIONS, contents


def test_two_exports_to_one_folder_never_mix(table: Table, tmp_path: Path) -> None:
    """The second comes while the first has written half: it is refused, and the first is whole."""
    expected = contents(export(table.folder, "mds", tmp_path / "alone"))
    half, go = threading.Event(), threading.Event()

    def wait(done: int, total: int) -> None:
        half.set()
        assert go.wait(20)

    first = threading.Thread(target=lambda: export(table.folder, "mds", tmp_path / "out", progress=wait))
    first.start()
    assert half.wait(20)
    try:
        with pytest.raises(ConfigError, match=r"another export to .*out is under way"):
            export(table.folder, "olmo", tmp_path / "out")
    finally:
        go.set()
        first.join()
    assert contents(tmp_path / "out") == expected
    assert sorted(path.name for path in tmp_path.iterdir() if path != table.folder) == ["alone", "out"]


def test_what_appeared_meanwhile_is_kept(table: Table, tmp_path: Path) -> None:
    def appear(done: int, total: int) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "mine").write_text("keep")

    with pytest.raises(ConfigError, match="is not empty"):
        export(table.folder, "mds", tmp_path / "out", progress=appear)
    assert contents(tmp_path / "out").keys() == {"mine"}


def test_what_a_killed_export_left_is_cleaned(table: Table, tmp_path: Path) -> None:
    (tmp_path / ".out.writing" / "deep").mkdir(parents=True)
    (tmp_path / ".out.writing" / "half").write_text("")
    export(table.folder, "mds", tmp_path / "out")
    assert "half" not in contents(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir() if path != table.folder) == ["out"]


def test_places_where_no_export_can_stand(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("keep")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for place, complaint in (
        (".", "is the current folder"),
        (file, "it is a file"),
        (file / "a" / "b", "is below .*file, which is a file"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            export(table.folder, "mds", place)
    assert file.read_text() == "keep" and not any((tmp_path / "here").iterdir())


def test_a_link_to_an_empty_folder_is_that_folder(table: Table, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert contents(export(table.folder, "mds", tmp_path / "link")) == contents(tmp_path / "disk") != {}


OF_LINES = [name for name, each in exports().items() if set(each.takes) == {LINES}]
NAMED = [(name, option) for name, each in exports().items() for option in each.options if option in ("name", "split")]


def test_names_stay_in_the_folder(table: Table, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "l", "x", [{"prompt": "p", "gold": 1}])
    for (name, option), value in product(NAMED, ["../escape", "a/b", "/abs", "", ".", "..", "a\\b", "a\0"]):
        with pytest.raises(ConfigError, match=f"option '{option}' = .* must be the name of a (file|split)"):
            export(lines if name in OF_LINES else table.folder, name, tmp_path / "out", **{option: value})


BOUNDED = [
    (name, option, value)
    for name, each in exports().items()
    for option in each.options
    for value in {"pad_id": (-1, 1 << 31), "eos_id": (-1, 1 << 31), "image_dir": (), "neat": (), "negatives": (-1,)}.get(option, (0, -1))
    if isinstance(each.options[option].default, int | None) and option not in ("name", "layout", "data_source", "neat")
]


def test_numbers_out_of_bounds_are_refused(table: Table, text: Stream, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "l", "x", [{"prompt": "p", "gold": 1}])
    for name, option, value in BOUNDED:
        source = lines if name in OF_LINES else text.folder if name == "litdata" else table.folder
        with pytest.raises(ConfigError, match=f"option '{option}' = {value}: Input should be"):
            export(source, name, tmp_path / "out", **{**OPTIONS.get(name, {}), option: value})


@pytest.mark.parametrize(("name", "options"), [("tlfs", {}), ("megatron", {}), ("megatron", {"layout": "text"})])
def test_no_mask_is_lost(name: str, options: dict[str, Any], chats: Stream, text: Stream, tmp_path: Path) -> None:
    untrained = sum(mask.count(0) for _, mask in chats.documents)
    with pytest.raises(
        ConfigError, match=f"{name} would lose the loss mask of this stream, in which {untrained:,} of .* every token would be"
    ):
        export(open_table(chats.folder), name, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    export(text.folder, name, tmp_path / "text", **options)


def test_a_mask_that_trains_every_token_is_not_lost(tmp_path: Path) -> None:
    write_stream(tmp_path / "s", "train", [([1, 2, 3], [1, 1, 1])], masked=True)
    export(tmp_path / "s", "tlfs", tmp_path / "out")
    export(tmp_path / "s", "megatron", tmp_path / "text")
