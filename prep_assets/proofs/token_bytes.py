"""The bytes behind each token id, proven against the tokenizer's own decoder: what makes it sound to compare documents as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.disk.columns import in_arrow, stretches
from prep_assets.disk.kept import Kept, key_of
from prep_assets.tokenization.vocabulary import Vocabulary

_BEFORE = (b"", b"\xc3", b"\xe4", b"\xf1", b"\xe4\xb8", b"\xf1\x80", b"\xf1\x80\x80", b"\xe0", b"\xed", b"\xf0", b"\xf4")
_RUN = 256
"""Texts that are decoded as one."""
NARROW = 1 << 31
"""Places below it fit into 32 bits."""
_AFTER = (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0", b"\xa0\x80", b"\x90\x80", b"\x90\x80\x80")


def unproven_id(vocabulary: Vocabulary) -> int | None:
    """The first id that the tokenizer's decoder does not turn into the bytes of `Vocabulary.token_bytes`; `None` where it does so for all.

    An id that holds a part of a character is decoded between ids of single bytes that make the character whole. Bytes that UTF-8 never has
    cannot be in any text, so that for them nothing is compared.
    """
    table = vocabulary.token_bytes
    if table is None:
        return 0
    cases = list(_cases(table))
    # many in one text, each on a line of its own; those of a text that differs are decoded one by one
    line = [table.index(b"\n")] if b"\n" in table else []
    run_length = _RUN if line else 1
    runs = [cases[at : at + run_length] for at in range(0, len(cases), run_length)]
    found = vocabulary.decode_batch([[token for _, ids, _ in run for token in (*ids, *line)] for run in runs])
    doubtful = [
        case
        for run, decoded in zip(runs, found, strict=True)
        if decoded != "".join(text + "\n" * len(line) for _, _, text in run)
        for case in run
    ]
    alone = vocabulary.decode_batch([ids for _, ids, _ in doubtful])
    return next((number for (number, _, text), decoded in zip(doubtful, alone, strict=True) if decoded != text), None)


@bounded_cache("proven token bytes", 256, key=lambda vocabulary: vocabulary.hash)
def is_proven(vocabulary: Vocabulary) -> bool:
    """Whether the decoder confirms the bytes of every id; found out once for each tokenizer on a machine."""
    key = key_of(vocabulary.hash, sha256(Path(__file__).read_bytes()).hexdigest())
    if KEPT.find(key) is not None:
        return True
    if unproven_id(vocabulary) is not None:
        return False
    KEPT.keep(key, b"")
    return True


KEPT = Kept("bytes", 256)
"""An empty file for each tokenizer of which it is proven."""


class ByteTable:
    """The bytes of each id, proven once so many ids were looked at that the tokenizer's own decoder would take longer for them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary, self._asked = vocabulary, 0
        self._table: Any = None
        self._lengths: npt.NDArray[np.int32]  # made with the table

    def take(self, count: int, ids: Callable[[], npt.NDArray[np.integer[Any]]]) -> tuple[memoryview, npt.NDArray[Any]] | None:
        """The bytes of ids, one after the other, and where each begins: integers, count + 1 of them; `None` where the table is not proven.

        Args:
            ids: gives the `count` ids, where they are wanted.
        """
        import pyarrow as pa

        self._asked += count
        if self._table is None and self._vocabulary.token_bytes is not None and self._asked > self._vocabulary.size:
            self._table = pa.array(self._vocabulary.token_bytes) if is_proven(self._vocabulary) else False
            self._lengths = np.fromiter(map(len, self._vocabulary.token_bytes), np.int32)
        if self._table is None or self._table is False:
            return None
        wanted = ids()
        # a long text has many tokens, so that places are narrow where they can be
        narrow = sum(int(self._lengths[wanted[part]].sum(dtype=np.int64)) for part in stretches(count)) < NARROW
        found = (self._table if narrow else self._table.cast(pa.large_binary())).take(in_arrow(wanted))
        places = np.frombuffer(found.buffers()[1], np.int32 if narrow else np.int64, count + 1)
        return memoryview(found.buffers()[2] or b"").cast("B"), places


def _cases(table: tuple[bytes, ...]) -> Iterator[tuple[int, list[int], str]]:
    """An id, ids of which it is one, and what they must decode to."""
    single = {own: number for number, own in reversed(list(enumerate(table))) if len(own) == 1}
    for number, own in enumerate(table):
        if own.isascii():
            yield number, [number], own.decode()
            continue
        for before, after in ((a, b) for a in _BEFORE for b in _AFTER):
            parts = [bytes([byte]) for byte in before], [bytes([byte]) for byte in after]
            if all(part in single for side in parts for part in side) and (text := _text(before + own + after)) is not None:
                yield number, [*(single[part] for part in parts[0]), number, *(single[part] for part in parts[1])], text
                break


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
