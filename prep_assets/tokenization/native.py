"""Limits for the files of a tokenizer, which are foreign and read by native code.

Native code cannot be interrupted, so what it is given is bounded instead: the size of each file, before it is opened; and each pattern is tried
on texts at which patterns blow up. The library ends such a search after ten million steps with a panic; that, and any other, becomes an error in
words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError, PrepAssetsError

MOST_BYTES = 256 << 20
"""Of one file of a tokenizer: eight times the largest that is known (a vocabulary of 262,144 tokens has 33 MB)."""
MOST_IDS = 1 << 24
"""A vocabulary is written out with a place for each id up to the largest. The largest that are known have 262,144."""
WORDS_BESIDE, WORDS_IN_CHARGE = 2048, 10_000
"""Words that the library remembers of a tokenizer, in each of its threads: where another engine encodes most texts, and where it encodes all."""
_RUN = 48
PROBES = tuple(
    f"{start}{unit * _RUN}{end}"
    for unit in ("a", "A", "1", " ", "\n", "'s", "é", "中", "_", "a ", "aA", "1.")
    for start, end in (("", "!"), ("x", "\0"))
)
"""A long run that nearly matches, and what it does not go on with: where a pattern can take a run apart in many ways, it tries them all here."""


def checked_size(path: Path) -> Path:
    """The file, if it is not too large.

    Raises:
        ConfigError: it is.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ConfigError(
            f"{path} has {size:,} bytes; a file of a tokenizer may have {MOST_BYTES:,}. Is it what was meant? Copy the published file again"
        )
    return path


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Errors of the library, panics too, as errors that say `what` was done.

    Raises:
        ConfigError: what happens inside.
    """
    try:
        yield
    except PrepAssetsError:
        raise
    except BaseException as error:  # the library raises bare Exception, and a panic is a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        kind = "" if type(error) is Exception else f"{type(error).__name__}: "
        raise ConfigError(f"{what}: {kind}{str(error)[:300]}") from error


def remember_words(backend: Any, most: int) -> None:
    """Bound what the library remembers of a tokenizer. It keeps those words when the tokenizer is gone, some 300 bytes each, until the thread ends."""
    if (resize := getattr(backend.model, "_resize_cache", None)) is not None:  # not in tokenizers 0.21.0
        resize(most)


def try_out(path: Path, backend: Any) -> None:
    """Encode what patterns blow up at.

    Raises:
        ConfigError: one does, or the tokenizer encodes nothing.
    """
    remember_words(backend, WORDS_BESIDE)
    for probe in PROBES:
        with in_words(f"{path}: this tokenizer does not encode {probe[:12]!r}… ({len(probe)} characters). Use one that reads any text"):
            backend.encode(probe, add_special_tokens=False)
