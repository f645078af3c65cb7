"""Decoders of the ways in which source files are compressed, with one interface."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Decompressor(Protocol):
    """The interface of `bz2.BZ2Decompressor`, which lzma and zstd share: one member or frame, output in bounded pieces."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's gzip decoder with the interface that bz2, lzma and zstd have."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)
        # A full answer may leave output inside zlib although all input is consumed.
        self.needs_input = not self._decoder.unconsumed_tail and len(out) < max_length
        return out


def _zstd() -> Any:
    zstd = _zstd_module()
    # Windows of up to 2 GiB (`zstd --long=31`) are common for large text corpora; the memory is taken only for files that ask for it.
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31})


def _zstd_module() -> Any:
    """Python's own from 3.14 on, its backport before."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


_DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {
    "gzip": _Gzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ),
    "zstd": _zstd,
}


def decompressor(compression: str) -> Decompressor:
    """A decoder for one member or frame of `gzip`, `bz2`, `xz` or `zstd` data."""
    return _DECOMPRESSORS[compression]()


def damage() -> tuple[type[Exception], ...]:
    """What the decoders raise on data that is damaged."""
    return (zlib.error, lzma.LZMAError, _zstd_module().ZstdError, OSError, ValueError, EOFError)
