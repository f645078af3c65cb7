"""Lists beside tokens, of a package that is not there: what is written is read, by records, copied or not, and named in recipes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import StoreError
from prep_assets.schemas import registry
from prep_assets.stores import lists, writer
from prep_assets.stores.lists import Entries, Lists, list_entries, lists_of
from prep_assets.stores.table import TOKENS, open_stream, open_table
from prep_assets.stores.writer import TableWriter

SEEN = Lists(
    "seen",
    "sightings",
    {"place": "int16", "odds": "float32"},
    "sightings",
    lambda *_: ([], None, NONE),
    lambda: None,
    lambda *_: [],
    lambda _: lambda *_: None,
)
NONE = Entries(np.zeros(0, np.int64), np.zeros(0, np.int64), {"place": np.zeros(0), "odds": np.zeros(0)})
Said = list[list[list[tuple[int, float]]]]


@pytest.fixture(autouse=True)
def declares(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lists, writer):
        monkeypatch.setattr(module, "declared", lambda: {"seen": SEEN})


def drawn(records: int) -> Said:
    """Of each record the entries of each of its tokens."""
    draw = np.random.default_rng(records)
    return [
        [[(int(draw.integers(99)), float(draw.integers(99)) / 4) for _ in range(draw.integers(3))] for _ in range(draw.integers(1, 5))]
        for _ in range(records)
    ]


def batch(said: Said) -> Entries:
    flat = [entry for record in said for token in record for entry in token]
    counts, sizes = [len(token) for record in said for token in record], [sum(map(len, record)) for record in said]
    return Entries(
        np.array(counts, np.int64),
        np.array(sizes, np.int64),
        {"place": np.array([place for place, _ in flat]), "odds": np.array([odds for _, odds in flat])},
    )


def written(folder: Path, said: Said, step: int) -> Path:
    with TableWriter(folder, "train", TOKENS, {"tokens": "int32"}) as out:
        for first in range(0, len(said), step):
            part = said[first : first + step]
            lengths, row = np.array([len(record) for record in part]), np.arange(first, first + len(part))
            out.append({"tokens": np.zeros(int(lengths.sum()))}, lengths, np.zeros(len(part)), row, lists={"seen": batch(part)})
    return folder


def read(entries: Entries, lengths: list[int]) -> Said:
    rest = iter(zip(entries.values["place"].tolist(), entries.values["odds"].tolist(), strict=True))
    counts = iter(entries.counts.tolist())
    return [[[next(rest) for _ in range(next(counts))] for _ in range(length)] for length in lengths]


def test_whatever_is_written_is_read_by_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "COPIED", 6)
    said = drawn(20)
    written(tmp_path / "one", said, 3)
    with TableWriter(tmp_path / "copy", "train", TOKENS, {"tokens": "int32"}) as out:
        out.append_stored(tmp_path / "one", "train")
    for folder in (tmp_path / "one", tmp_path / "copy"):
        table, lengths = open_table(folder, "train"), [len(record) for record in said]
        ends = np.cumsum(lengths).tolist()
        for first, stop in ((0, 20), (0, 1), (7, 12), (19, 20)):
            span = slice(ends[first] - lengths[first], ends[stop - 1])
            assert read(table.lists["seen"].read(slice(first, stop), span), lengths[first:stop]) == said[first:stop]
        assert list_entries([table.lists]) == {"seen": sum(len(token) for record in said for token in record)}
    assert {path.name for path in (tmp_path / "copy" / "train.seen").iterdir()} == {"count.npy", "end.npy", "place.npy", "odds.npy"}


def test_some_of_a_batch_and_several_batches(tmp_path: Path) -> None:
    said, chosen = drawn(9), np.arange(9) % 3 == 1
    lengths = np.array([len(record) for record in said])
    assert read(batch(said).only(chosen, lengths), lengths[chosen].tolist()) == said[1::3]
    assert read(Entries.joined(SEEN.fields, [batch(said[:4]), batch(said[4:])]), lengths.tolist()) == said


@pytest.mark.parametrize("column", ["count", "end", "place", "odds"])
def test_lists_cut_short_are_found_at_open(tmp_path: Path, column: str) -> None:
    path = written(tmp_path, drawn(5), 2) / "train.seen" / f"{column}.npy"
    np.save(path, np.load(path)[:-1])
    with pytest.raises(StoreError, match=r"train.seen: its parts do not fit together"):
        open_stream(tmp_path, "train")


@pytest.mark.parametrize("column", ["count", "end", "place"])
def test_lists_without_a_file_are_not_taken_for_none(tmp_path: Path, column: str) -> None:
    (written(tmp_path, drawn(2), 2) / "train.seen" / f"{column}.npy").unlink()
    with pytest.raises(StoreError, match=rf"{column}.npy"):
        open_stream(tmp_path, "train")


def test_a_stream_whose_name_goes_on_has_its_own(tmp_path: Path) -> None:
    written(tmp_path, drawn(2), 2)
    with TableWriter(tmp_path, "tr[a]in", TOKENS, {"tokens": "int32"}) as out:
        out.append({"tokens": np.zeros(2)}, np.array([2]), [0], [0])
    (tmp_path / "train.seen").rename(tmp_path / "tr[a]in.more.seen")
    assert open_stream(tmp_path, "tr[a]in").lists == {}


def test_lists_that_nobody_declares_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, drawn(2), 2)
    monkeypatch.setattr(lists, "declared", dict)
    with pytest.raises(StoreError, match=r"train.seen has lists that no installed package declares"):
        open_stream(tmp_path, "train")


def test_the_code_that_makes_lists_is_in_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: Any = SimpleNamespace(name="sightings", variant_of="", factory=drawn)
    monkeypatch.setattr(registry, "schemas", lambda: {"sightings": shown})
    monkeypatch.setattr(registry, "added_code", lambda module: module)
    assert registry.schema_code("sightings") == f"{__name__}; {__name__}"
    assert lists_of("sightings") is SEEN and lists_of("tokenized") is None
