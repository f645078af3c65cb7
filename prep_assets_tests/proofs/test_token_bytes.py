"""The bytes of ids, proven by a decoder: of a tokenizer of bytes and a few longer tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.caches import CACHES
from prep_assets.proofs import words as module
from prep_assets.proofs.words import ByteTable, unproven_id
from prep_assets.stores.files import Kept

MORE = (
    b"the",
    b" cat",
    "\u732b".encode(),
    "\u732b".encode()[1:],
    b"\xf1\x80",
    b"\x80\x80",
    b"x\xc3",
    b"\xff\xfe",
    b"\xa9 ",
    b"\xed\xa0\x80",
)
TABLE = tuple(bytes([byte]) for byte in range(256)) + MORE


class Decoder:
    """A tokenizer that decodes by a table of its own; `table` is what is said of it."""

    def __init__(self, own: Sequence[bytes] = TABLE, table: Any = TABLE) -> None:
        self.own, self.token_bytes, self.size, self.hash = own, table, len(own), f"{own}{table}"
        self.calls: list[list[list[int]]] = []

    def decode_batch(self, rows: list[list[int]]) -> list[str]:
        self.calls.append(rows)
        return [b"".join(self.own[each] for each in ids).decode(errors="replace") for ids in rows]


def vocabulary(own: Sequence[bytes] = TABLE, table: Any = TABLE) -> Any:
    return Decoder(own, table)


def other(at: int, data: bytes) -> tuple[bytes, ...]:
    return (*TABLE[:at], data, *TABLE[at + 1 :])


@pytest.mark.parametrize("run", [256, 1, 7])
def test_a_table_that_is_right(monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    monkeypatch.setattr(module, "_RUN", run)
    sound = vocabulary()
    assert unproven_id(sound) is None
    assert sound.calls[1] == [], "no text of a run was doubtful"
    decoded = {token for row in sound.calls[0] for token in row}
    never = {256 + MORE.index(b"\xff\xfe"), 256 + MORE.index(b"\xed\xa0\x80")}
    assert set(range(128)) | {number for number in range(256, len(TABLE)) if number not in never} <= decoded, "each id is in a text"
    assert len(sound.calls[0]) == ceil(len(list(module._cases(TABLE))) / run)


@pytest.mark.parametrize("at", [0, 10, 65, 0xC3, 0xE4, 0xF1, 0x80, 0xA9, *(256 + number for number in range(7)), 264])
@pytest.mark.parametrize("run", [256, 1])
def test_an_id_that_decodes_to_something_else(monkeypatch: pytest.MonkeyPatch, run: int, at: int) -> None:
    """Whole characters and parts of one, alone and among others."""
    monkeypatch.setattr(module, "_RUN", run)
    wrong = other(at, b"?" if at >= 256 else b"!!")
    found = unproven_id(vocabulary(wrong))
    assert found is not None and (at < 256 or found == at), "a byte may stand in the texts of others"


def test_the_first_of_several() -> None:
    wrong = list(TABLE)
    wrong[257] = wrong[256] = b"?"
    found = vocabulary(wrong)
    assert unproven_id(found) == 256
    assert len(found.calls[1]) > 1, "only the ids of the texts that differ are decoded alone"
    assert sum(map(len, found.calls[1])) < 600


def test_a_tokenizer_without_bytes_or_lines() -> None:
    assert unproven_id(vocabulary(table=None)) == 0
    lines = tuple(own for own in TABLE if own != b"\n")
    alone = vocabulary(lines, lines)
    assert unproven_id(alone) is None and max(map(len, alone.calls[0])) <= 7
    for at in (64, 65):
        assert unproven_id(vocabulary((*lines[:at], b"!!", *lines[at + 1 :]), lines)) == at
    assert unproven_id(vocabulary((*lines[:-1], b"?"), lines)) is None, "bytes that UTF-8 never has are in no text"


def test_cases() -> None:
    """An id that is no whole character stands between ids of single bytes that make it one."""

    def of(*table: bytes) -> list[tuple[int, list[int], str]]:
        return list(module._cases(table))

    assert of(b"a", b"bc", b"", b"a") == [(0, [0], "a"), (1, [1], "bc"), (2, [2], ""), (3, [3], "a")]
    assert of("\u00e9".encode()) == [(0, [0], "\u00e9")]
    assert of(b"\xa9", b"\xc3") == [(0, [1, 0], "\u00e9")]
    assert of(b"\xc3", b"\x80", b"\x80") == [(0, [0, 1], "\u00c0"), (1, [0, 1], "\u00c0"), (2, [0, 2], "\u00c0")]
    assert of(b"\xb8\xad", b"\xe4") == [(0, [1, 0], "\u4e2d")]
    assert of(b"\xff", b"\x80") == []


def ids(*values: int) -> Any:
    return lambda: np.array(values)


def test_bytes_are_taken_once_they_are_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "unproven_id", asked.append)
    CACHES["proven token bytes"].clear()
    words: Any = SimpleNamespace(hash="x", size=5, token_bytes=(b"ab", b"", b"\xff"))
    table = ByteTable(words)
    assert table.take(2, ids(0, 1)) is None and table.take(3, ids(0, 1, 2)) is None and asked == [], "so few ids are decoded as quickly"
    found = table.take(4, ids(2, 0, 1, 0))
    assert found is not None
    data, bounds = found
    assert data == b"\xffabab" and (bounds.tolist(), bounds.dtype) == ([0, 1, 3, 3, 5], np.int32)
    for most, dtype in ((6, np.int32), (5, np.int64)):
        monkeypatch.setattr(module, "NARROW", most)
        wide = table.take(4, ids(2, 0, 1, 0))
        assert wide is not None and wide[0] == data and (wide[1].tolist(), wide[1].dtype) == (bounds.tolist(), dtype)
    empty = table.take(1, ids(1))
    assert empty is not None and empty[0] == b"" and empty[1].tolist() == [0, 0]
    assert asked == [words]
    again = ByteTable(words)
    assert again.take(6, ids(0, 0, 0, 0, 0, 0)) is not None and asked == [words], "proven once for each tokenizer"
    monkeypatch.setattr(module, "unproven_id", lambda _: 3)
    unproven = ByteTable(SimpleNamespace(**{**vars(words), "hash": "y"}))  # type: ignore[arg-type]
    assert unproven.take(6, ids(0)) is None and unproven.take(6, ids(0)) is None
    without = ByteTable(SimpleNamespace(hash="z", size=5, token_bytes=None))  # type: ignore[arg-type]
    assert without.take(6, ids(0)) is None


def test_what_is_proven_is_on_disk_for_the_next_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what is proven, of this very tokenizer and code."""
    monkeypatch.setattr(module, "KEPT", Kept(str(tmp_path), 9))
    wrong, keys = other(5, b"x"), set[str]()
    for own, proven in ((TABLE, True), (wrong, False)):
        for again in (False, True):
            CACHES["proven token bytes"].clear()
            tokenizer = vocabulary(own)
            assert module.is_proven(tokenizer) is proven
            assert bool(tokenizer.calls) is not (again and proven)
            keys |= {path.name for path in tmp_path.iterdir()}
    assert len(keys) == 1
    (tmp_path / "code.py").write_text("another")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "code.py"))
    CACHES["proven token bytes"].clear()
    assert module.is_proven(tokenizer := vocabulary()) and tokenizer.calls
