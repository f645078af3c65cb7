"""Make texts and rows of data sets safe to show."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

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


class Preview(Struct, frozen=True):
    """A row of tokens.

    Attributes:
        title: what and where it is.
        tokens: text of each token; parts of one character that lie in several tokens are shown as the bytes' hex, e.g. ``⟨f0⟩``.
        weights: loss weight of each token, below 0 where it is not attended; empty where the store has no mask.
        positions: position of each token in its document.
        origins: (first token, record id) of each document in the row.
        ids: id of each token.
    """

    title: str
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    positions: tuple[int, ...]
    origins: tuple[tuple[int, str], ...]
    ids: tuple[int, ...] = ()
