"""Make text of data sets safe to show; how commands and addresses of pages name a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from prep_assets.text.vocabulary import Vocabulary

# Text made visible cannot steer a terminal, a page, or the direction of writing.

NEWLINE = "⏎\n"
_HIDDEN = (
    0x7F,
    *range(0x80, 0xA0),
    0x61C,  # Arabic letter mark
    0x180E,
    0x200B,  # zero-width space; joiners stay, because emoji and Persian are written with them
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xFFFE, 0x10000),
    *range(0xD800, 0xE000),
    *range(0xE0000, 0xE0080),
)
SIGNS = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    **{code: f"⟨u+{code:04x}⟩" for code in _HIDDEN},
    ord("\n"): NEWLINE,
    ord("\t"): "⇥",
}
"""Code point → its sign: control characters, direction marks, zero-width characters, noncharacters."""
_ONE_LINE = {**SIGNS, ord("\n"): "⏎"}


def visible(text: str) -> str:
    """`text` with invisible characters as signs; a line break stays, after ``⏎``."""
    return text.translate(SIGNS)


def one_line(text: str) -> str:
    """`visible` on one line."""
    return text.translate(_ONE_LINE)


def token_texts(vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[str, ...]:
    """The text of each token for display; ``⟨no token 7⟩`` for ids outside the vocabulary, as in a damaged store."""
    return tuple(_text(vocabulary, token) if 0 <= token < vocabulary.size else f"⟨no token {token}⟩" for token in ids)


def _text(vocabulary: Vocabulary, token: int) -> str:
    if vocabulary.token_bytes is None:
        return vocabulary.decode([token])
    piece = vocabulary.token_bytes[token]
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02x}⟩" if byte >= 0x80 else chr(byte) for byte in piece)


def arguments(asset: str, partition: str) -> str:
    """The arguments of commands that name a store."""
    return f"{asset} -p {partition}" if partition else asset


# Addresses of the pages that `prep-assets view` serves.

HOST, PORT = "127.0.0.1", 8899
STORES, CANDIDATES, TRACES = "/stores/", "/candidates/", "/traces/"
"""Paths of pages of current stores, of candidates whose checks fail, and of traces."""
VIEW = "PREP_ASSETS_VIEW_URL"
"""Environment variable with the server's address, where it is not on this machine."""


def page_address(asset: str, partition: str = "", *, candidate: bool = False) -> str:
    """The address of a store's page."""
    base = os.environ.get(VIEW) or f"http://{HOST}:{PORT}"
    return base.rstrip("/") + (CANDIDATES if candidate else STORES) + quote("/".join(filter(None, (asset, partition))))
