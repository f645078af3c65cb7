"""Text of a data set for people to read: nothing in it can steer a terminal, a page, or the direction of writing."""

from __future__ import annotations

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
"""Code point → what is shown: control characters, marks of direction, zero width, code points that are not characters."""
_ONE_LINE = {**SIGNS, ord("\n"): "⏎"}


def visible(text: str) -> str:
    """`text` with line breaks as ``⏎`` and a line break, and other characters that cannot be seen as signs."""
    return text.translate(SIGNS)


def one_line(text: str) -> str:
    """The same on one line."""
    return text.translate(_ONE_LINE)
