"""One row of tokens, ready to be looked at, and the names of the records that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prep_assets.assets.reading.pinned import read_sources
from prep_assets.assets.stage import Store
from prep_assets.errors import ConfigError
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Preview:
    """A row of tokens.

    Attributes:
        title: what and where it is.
        tokens: text of each token; parts of one character that lie in several tokens are shown as the bytes' hex, e.g. ``⟨f0⟩``.
        weights: loss weight of each token; empty where the store has no mask.
        positions: position of each token in its document.
        origins: (first token, record id) of each document in the row.
        ids: id of each token, where the row is no record of one stream.
    """

    title: str
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    positions: tuple[int, ...]
    origins: tuple[tuple[int, str], ...]
    ids: tuple[int, ...] = ()


def token_texts(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    """The text of each token for display."""
    table = vocabulary.token_bytes
    if table is None:
        return tuple(vocabulary.decode([token]) for token in ids)
    return tuple(_shown(table[token]) for token in ids)


def _shown(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02x}⟩" if byte >= 0x80 else chr(byte) for byte in piece)


def record_name(store: Store, domain: str, file: int, row: int) -> str:
    """``<domain>/<file>:<row>`` of a record that a store numbers by file."""
    published = store.workspace.published(store.raw, domain)
    if published is None:
        return f"{domain}/file {file}:{row}"
    sources = read_sources(published)
    names = [entry["name"] for which in ("files", "test_files") for entry in sources[which]]
    return f"{domain}/{names[file]}:{row}" if file < len(names) else f"{domain}/file {file}:{row}"


def check_row(store: Store, row: int, count: int) -> None:
    """Raises:
    ConfigError: there is no such row.
    """
    if not 0 <= row < count:
        raise ConfigError(f"row {row:,} of {store.asset.name}: there are {count:,}, numbered from 0")


def chosen_stream(store: Store, stream: str | None, names: Sequence[str]) -> str:
    """The stream that is asked for, else the first.

    Raises:
        ConfigError: the store has no such stream.
    """
    if stream is not None and stream not in names:
        raise ConfigError(f"{store.published.where} has no stream {stream!r}; it has {', '.join(names)}")
    return stream or names[0]
