"""One row of tokens, ready to be looked at, and the names of the records that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prep_assets.assets.raw import read_sources
from prep_assets.assets.workspace import Workspace
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


def record_name(workspace: Workspace, raw: str, domain: str, file: int, row: int) -> str:
    """``<domain>/<file>:<row>`` of a record that a store numbers by file."""
    published = workspace.published(raw, domain)
    if published is None:
        return f"{domain}/file {file}:{row}"
    sources = read_sources(published)
    names = [entry["name"] for which in ("files", "test_files") for entry in sources[which]]
    return f"{domain}/{names[file]}:{row}" if file < len(names) else f"{domain}/file {file}:{row}"
